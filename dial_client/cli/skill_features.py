"""The commands ``skills list``, ``show``, ``add`` and ``trust``, and what ``/skills`` shows in a conversation."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from shlex import quote

from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import open_client, use_skills
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.streams.error_stream import print_notes, warn_once
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.cli.trust.folder_texts import (
    FOLDER_SKILLS,
    SKILL_FILE,
    USER_SKILLS,
    find_folder_skills,
    read_found_skill,
    read_skills,
)
from dial_client.cli.trust.trust_summary import number_lines
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.safe_text import escape_line, sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.settings.config_locations import build_user_config_path
from dial_client.settings.config_trust import TrustStore
from dial_client.settings.config_types import Settings, SkillFolder
from dial_client.tools.skills.skill_folders import hash_files, read_skill
from dial_client.tools.skills.skill_lists import SkillReview, SkillSummary

_MAX_NAME = 120
_MAX_DESCRIPTION = 160


@asynccontextmanager
async def _open(options: Options, settings: Settings) -> AsyncGenerator[DialClient]:
    """Open a client with the skills of this folder, whose servers are ready or have failed."""
    skills = await read_skills(options, settings)
    async with open_client(options, settings, None, None) as dial:
        use_skills(dial, skills)
        await dial.ready()
        yield dial


async def list_skills(options: Options, *, as_json: bool) -> None:
    """Print all skills, one per line, or as JSON."""
    async with _open(options, await read_settings(options, needs_servers=False)) as dial:
        found = await dial.skills.list()
        print_notes(dial.notes)
    if as_json:
        print(json.dumps([asdict(skill) for skill in found], indent=2))
    elif not found:
        warn_once("there are no skills; `dial-chat skills add FOLDER` adds one (dial-chat help skills)")
    else:
        width = min(40, max((len(to_one_line(skill.name, _MAX_NAME)) for skill in found), default=0))
        print_lines((f"{format_name(skill):<{width}}  {format_description(skill)}" for skill in found), width + 2)


async def show_skill(options: Options, name: str, *, as_json: bool) -> None:
    """Print a skill as it is now: its files, the change since its first use, and its text.

    Raises:
        ConfigError: There is no such skill.
        ServerError: Its server did not answer, or the skill is invalid.
    """
    async with _open(options, await read_settings(options, needs_servers=False)) as dial:
        review = await dial.skills.review(name)
    print(json.dumps(asdict(review), indent=2) if as_json else format_review(review))


async def trust_skill(options: Options, name: str) -> int:
    """Trust a skill as it is now: of a server by its name, of the working folder by its name or its path.

    Raises:
        ConfigError: There is no such skill, or the decision cannot be stored.
        ServerError: As `show_skill`.
    """
    folder = Path(name).parent if Path(name).name == SKILL_FILE else Path(name)
    if not (folder / SKILL_FILE).is_file():
        settings = await read_settings(options, needs_servers=False)
        found = find_folder_skills(settings)
        named = [skill.file.path.parent for skill in found if skill.file.path.parent.name == name]
        if not named:
            async with _open(options, settings) as dial:
                print(format_review(await dial.skills.trust(name)))
            print(f"trusted, until it changes: {to_one_line(name, _MAX_NAME)}")
            return ExitCode.ANSWERED
        folder = named[0]
    _trust_folder(folder)
    return ExitCode.ANSWERED


def _trust_folder(folder: Path) -> None:
    read_skill(SkillFolder(folder))
    skill = read_found_skill(folder)
    try:
        trusted = TrustStore().save(skill.file, skill.files)
    except OSError as error:
        raise ConfigError(f"your trust cannot be stored: {describe_system_error(error)}", path=str(folder)) from None
    print(number_lines(skill.file.text, None))
    for name in skill.files:
        print(f"with {escape_line(name)}")
    print(f"trusted, until it changes: {escape_line(trusted.location)}")


async def add_skill(source: Path, *, for_folder: bool, replace: bool) -> int:
    """Copy a skill into the user's folder of skills, or into the working folder, where it is trusted.

    Only the files that a skill can have are copied: no links, and no names that begin with a dot.

    Raises:
        ConfigError: The source is no skill, there is a skill of its name, or a file cannot be written.
    """
    source = source.parent if source.name == SKILL_FILE else source
    if not (source / SKILL_FILE).exists() and (inner := sorted(source.glob(f"*/{SKILL_FILE}"))):
        hint = f"one skill is added at a time, such as {escape_line(str(inner[0].parent))}"
        raise ConfigError(f"this folder has no {SKILL_FILE}", hint, str(source))
    skill = read_skill(SkillFolder(source))
    files = hash_files(source)
    place = (FOLDER_SKILLS[0] if for_folder else build_user_config_path().parent / USER_SKILLS) / skill.name
    if place.exists() and not replace:
        raise ConfigError(f"there is a skill {skill.name} already", "--replace replaces it", str(place))
    contents = {name: skill.read_file(name) for name in files}  # all of them: the source may be what is replaced
    new = place.with_name(f".{place.name}.new")  # no skill has such a name; a full disk leaves what was there before
    try:
        for name, data in contents.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(data)
        if place.exists():
            shutil.rmtree(place)
        new.rename(place)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise ConfigError(f"the skill cannot be written: {describe_system_error(error)}", path=str(place)) from None
    if for_folder:
        _trust_folder(place)
    print(f"added: {escape_line(str(place))} ({count_noun(len(files), 'file')})")
    return ExitCode.ANSWERED


def format_name(skill: SkillSummary) -> str:
    """Return the name of a skill, by which it is read."""
    return to_one_line(skill.name, _MAX_NAME)


def format_description(skill: SkillSummary) -> str:
    """Return the description of a skill in one line; of one that is withheld, why, and what to do."""
    if skill.is_withheld:
        name = quote(format_name(skill))  # a server has chosen it, and the user may paste the command
        return f"withheld: it has changed since its first use; `dial-chat skills show {name}` shows the change"
    mark = "[generated: you are asked before each reading] " if skill.is_dynamic else ""
    return to_one_line(f"{mark}{skill.description}", _MAX_DESCRIPTION)


def format_review(review: SkillReview) -> str:
    """Return a skill as text: where it is from, its files, its change, and its ``SKILL.md``."""
    summary = review.summary
    lines = [
        f"{format_name(summary)}: {to_one_line(summary.origin, 300)}",
        *([f"allowed-tools, which allow nothing here: {summary.allowed_tools}"] if summary.allowed_tools else []),
        *(f"file: {to_one_line(name, 300)}" for name in review.files),
    ]
    if review.change:
        lines += ["", "It has changed since its first use:", *map(escape_line, review.change.splitlines())]
    return sanitize("\n".join([*lines, "", *map(escape_line, review.text.splitlines())]))
