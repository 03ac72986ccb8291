"""The group ``skills`` of commands: list, show, add and trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dial_client.cli.commands.typer_commands import CommandRun, command
from dial_client.cli.options import AsJson, Options

Name = Annotated[str, Argument(help="The name of a skill, as `dial-chat skills list` prints it.")]
_CONFIGURATION = ("config", "trust", "strict", "profile", "server", "verbose")


@command("skills list", *_CONFIGURATION)
def list_all(*, options: Options, as_json: AsJson = False) -> CommandRun:
    """List the skills that the model can read: yours, those of this folder, and those of the servers."""
    from dial_client.cli.skill_features import list_skills

    return list_skills(options, as_json=as_json)


@command("skills show", *_CONFIGURATION)
def show(*, name: Name, options: Options, as_json: AsJson = False) -> CommandRun:
    """Print a skill with its files; of a server's skill, also what has changed since its first use."""
    from dial_client.cli.skill_features import show_skill

    return show_skill(options, name, as_json=as_json)


@command("skills add")
def add(
    *,
    source: Annotated[Path, Argument(metavar="FOLDER", help="A folder with a SKILL.md.")],
    folder: Annotated[bool, Option("--folder", help="Copy it into ./.dial/skills, for this folder.")] = False,
    replace: Annotated[bool, Option("--replace", help="Replace a skill of the same name.")] = False,
) -> CommandRun:
    """Copy a skill into your configuration folder, for every folder."""
    from dial_client.cli.skill_features import add_skill

    return add_skill(source, for_folder=folder, replace=replace)


@command("skills trust", *_CONFIGURATION)
def trust(
    *,
    name: Annotated[str, Argument(help="A skill of a server or of this folder, or the folder of a skill.")],
    options: Options,
) -> CommandRun:
    """Trust a skill as it is now: of this folder, or of a server whose skill has changed. `show` prints it first."""
    from dial_client.cli.skill_features import trust_skill

    return trust_skill(options, name)
