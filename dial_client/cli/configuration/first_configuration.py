"""The work of ``dial-chat init``: choose a model and servers, write a commented file, trust it, and try it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dial_client.cli.load_settings import read_settings, warn
from dial_client.cli.models.model_search import ModelProposal, find_models
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.servers.server_addition import find_entry_warnings
from dial_client.cli.servers.server_proposals import ServerProposal, choose_by_name, find_host_proposals, find_proposals
from dial_client.cli.trust_prompt import trust_now
from dial_client.cli.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.cli.word_wrap import print_lines
from dial_client.messages.errors import ConfigError, DialError
from dial_client.providers import open_provider
from dial_client.runtime.safe_text import escape_line, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.status import ServerState
from dial_client.settings import configuration
from dial_client.settings.config_editor import ConfigText, write_text
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path
from dial_client.settings.config_trust import EnvFiles, read_found


async def ask_for_model(
    proposals: Sequence[ModelProposal], title: str = "1. Which model answers?"
) -> ModelProposal | None:
    """Return the model that the user chooses; None if no model was found and the user names none.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print(f"\n{title}")
    _print_choices([(proposal.name, proposal.about) for proposal in proposals])
    if not proposals:
        print("   None was found: set a key such as OPENAI_API_KEY, start Ollama, or pip install 'dial-client[local]'.")
    usual = f"Enter for {proposals[0].name}" if proposals else "Enter for none yet"
    while True:
        answer = await ask_for_line(f"   A number, the name of any model, or {usual}: ")
        if not answer:
            return proposals[0] if proposals else None
        if answer.isdecimal() and 0 < int(answer) <= len(proposals):
            return proposals[int(answer) - 1]
        chosen = _find_model(answer)
        if chosen is not None:
            return chosen


async def ask_for_servers(proposals: Sequence[ServerProposal]) -> list[ServerProposal]:
    """Return the servers that the user chooses.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print("\n2. Which servers? Their tools are offered to the model.")
    _print_choices([(proposal.name, f"{proposal.about} ({proposal.command})") for proposal in proposals])
    usual = [proposal for proposal in proposals if proposal.is_default]
    named = ", ".join(proposal.name for proposal in usual) or "none"
    while True:
        answer = await ask_for_line(f"   Numbers such as 1,3; all; none; or Enter for {named}: ")
        chosen = choose_servers(answer, proposals)
        if chosen is not None:
            return chosen
        print(f"   Please name numbers from 1 to {len(proposals)}.")


def choose_servers(answer: str, proposals: Sequence[ServerProposal]) -> list[ServerProposal] | None:
    """Return the servers that an answer names by numbers, ranges, names, ``all`` or ``none``; None if it is invalid."""
    if not answer:
        return [proposal for proposal in proposals if proposal.is_default]
    if answer.lower() in ("all", "none"):
        return [*proposals] if answer.lower() == "all" else []
    numbers: set[int] = set()
    names = [proposal.name for proposal in proposals]
    for word in re.split(r"[,\s]+", answer.strip(", ")):
        if found := re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", word):
            numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
        elif word in names:
            numbers.add(names.index(word) + 1)
        else:
            return None
    is_clear = bool(numbers) and numbers <= set(range(1, len(proposals) + 1))
    return [proposals[number - 1] for number in sorted(numbers)] if is_clear else None


async def ask_for_place(folder_file: str, user_file: str) -> bool:
    """Return True if the user chooses the file for every folder, False for the file of this folder.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print("\n3. Where?")
    _print_choices([("this folder", folder_file), ("every folder", user_file)])
    while True:
        answer = await ask_for_line("   1, 2, or Enter for this folder: ")
        if answer in ("", "1", "2"):
            return answer == "2"


def _print_choices(choices: Sequence[tuple[str, str]]) -> None:
    width = min(40, max((len(name) for name, _ in choices), default=0))
    for number, (name, about) in enumerate(choices, 1):
        label = f"   {number:>2}  {escape_line(name):<{width}}  "
        print_lines([label + escape_line(about)], len(label))


def _find_model(name: str) -> ModelProposal | None:
    """Return the model of a typed name; if there is no such model, print the reason and return None."""
    from dial_client.messages.errors import ConfigError

    try:
        open_provider(name)
    except ConfigError as error:
        print(f"   {escape_line(str(error))}")
        return None
    return ModelProposal(name, "as you named it")


QUESTION = "What time is it in Tokyo?"
_HEADER = "  // Written by dial-chat init. docs/configuration.md of dial-client lists every key."


@dataclass(frozen=True, slots=True)
class InitChoice:
    """The options of ``dial-chat init``."""

    in_user_folder: bool | None = None
    """True to write the user's file, False to write ./servers.json, None to ask."""
    model: str | None = None
    servers: tuple[str, ...] = ()
    is_agreed: bool = False
    """Ask nothing, and use the default of each choice that is not given."""


async def write_first_configuration(choice: InitChoice) -> int:
    """Write a first servers.json and trust it; in a terminal, ask for the choices and try the file.

    Returns:
        The exit code.

    Raises:
        ConfigError: The file exists already, it cannot be written, or no server can start on this machine.
    """
    asks = can_ask_user() and not choice.is_agreed
    try:
        path, model, servers = await _choose(choice, asks=asks)
    except Unanswered:
        print("\nNothing was written.")
        return ExitCode.USAGE
    if path.exists():  # another program wrote it while the user chose
        raise ConfigError("there is a configuration already", path=str(path))
    write_text(ConfigText(path, "{}", None), format_configuration(servers, model))
    for server in servers:
        for warning in find_entry_warnings(server.entry):
            warn(f"{to_one_line(server.name, 60)}: {warning}")
    if path != build_user_config_path():
        trust_now(read_found(path), EnvFiles())
    _print_summary(path, model, servers)
    if asks:
        return await _try(path, model, servers)
    print(f'Try: dial-chat "{QUESTION}"')
    return ExitCode.ANSWERED


async def _choose(choice: InitChoice, *, asks: bool) -> tuple[Path, ModelProposal | None, list[ServerProposal]]:
    """Return the file, the model and the servers. With `asks`, ask for those that are not given; else use defaults."""
    in_user_folder = _find_place(choice, asks=asks)
    model = ModelProposal(choice.model, "as you named it") if choice.model else None
    if model is None:
        models = await find_models()
        # Unasked, the embedded model is not chosen: its weights are a download of 490 MB.
        unasked = next((found for found in models if found.name != "local"), None)
        model = await ask_for_model(models) if asks else unasked
    usual = find_proposals(Path.cwd(), in_user_folder=bool(in_user_folder))
    if choice.servers:
        servers = choose_by_name(choice.servers, [*usual, *find_host_proposals()])
    elif asks:
        servers = await ask_for_servers([*usual, *find_host_proposals()])
    else:
        servers = [proposal for proposal in usual if proposal.is_default]
    if not servers and not asks:
        raise ConfigError(
            "no MCP server is installed here, and there is no uvx to fetch one",
            hint="pip install 'dial-client[demo]', then dial-chat init",
        )
    if in_user_folder is None:
        in_user_folder = await ask_for_place(str(Path.cwd() / FILE_NAME), str(build_user_config_path()))
    if not in_user_folder:
        return Path(FILE_NAME), model, servers
    for server in servers:
        if server.needs_folder:
            print(f"   {server.name} is left out: it serves a single folder.")
    return build_user_config_path(), model, [server for server in servers if not server.needs_folder]


def _find_place(choice: InitChoice, *, asks: bool) -> bool | None:
    """Return True for the user's file, False for the file of this folder, None if the user may choose.

    Raises:
        ConfigError: The file exists already.
    """
    places = {False: Path.cwd() / FILE_NAME, True: build_user_config_path()}
    if choice.in_user_folder is not None or not asks:
        places = {bool(choice.in_user_folder): places[bool(choice.in_user_folder)]}
    free = [in_user_folder for in_user_folder, place in places.items() if not place.exists()]
    if not free:
        hint = "dial-chat servers add, remove and import change it"
        raise ConfigError("there is a configuration already", hint, str(next(iter(places.values()))))
    return free[0] if len(free) == 1 else None


def format_configuration(servers: Sequence[ServerProposal], model: ModelProposal | None) -> str:
    """Return the text of the file, with a comment for each server."""
    parts = []
    if model is not None:
        parts.append(
            "  // The model that answers; -m NAME chooses another.\n"
            f'  "defaultModel": {json.dumps(model.name, ensure_ascii=False)}'
        )
        if model.profile:
            profile = json.dumps({model.name: dict(model.profile)}, ensure_ascii=False)
            parts.append(f'  "models": {profile}')
    entries = [
        f"    // {to_one_line(server.about, 100)}\n"
        f"    {json.dumps(server.name, ensure_ascii=False)}: {json.dumps(dict(server.entry), ensure_ascii=False)}"
        for server in servers
    ]
    listed = ",\n".join(entries)
    parts.append(f'  "mcpServers": {{\n{listed}\n  }}' if entries else '  "mcpServers": {}')
    body = ",\n".join(parts)
    return f"{{\n{_HEADER}\n{body}\n}}\n"


def _print_summary(path: Path, model: ModelProposal | None, servers: Sequence[ServerProposal]) -> None:
    print(f"{escape_line(str(path))} has {count_noun(len(servers), 'server')}:")
    for server in servers:
        print(f"  {escape_line(server.name):<6} {escape_line(server.about)} ({escape_line(server.command)})")
    if model is not None:
        print(f"Model: {escape_line(model.name)} ({escape_line(model.about)})")
    else:
        warn("no model was found: set a key such as OPENAI_API_KEY, start Ollama, or name one with --model")


async def _try(path: Path, model: ModelProposal | None, servers: Sequence[ServerProposal]) -> int:
    """Start the servers of the new file, and answer one question with it, if the user agrees."""
    options = Options(config=path)
    print("\nStarting the servers …")
    try:
        settings = await read_settings(options)
        async with open_client(options, settings, None, None) as dial:
            await dial.ready()
            for status in dial.servers.values():
                is_ready = status.state is ServerState.READY
                problem = f"{status.state.value}: {status.error or ''}"
                shown = count_noun(len(status.tools), "tool") if is_ready else to_one_line(problem, 200)
                print(f"  {escape_line(status.name)}: {shown}")
    except DialError as error:
        warn(str(error))
        return ExitCode.ANSWERED
    if model is None:
        return ExitCode.ANSWERED
    question = QUESTION if any(server.name == "time" for server in servers) else "What can you do with your tools?"
    return await _answer(settings, model, question)


async def _answer(settings: configuration.Settings, model: ModelProposal, question: str) -> int:
    try:
        answer = await ask_for_line(f'Ask {escape_line(model.name)} "{question}" now? [Y]es, [n]o: ')
    except Unanswered:
        return ExitCode.ANSWERED
    if answer.lower() in ("n", "no"):
        print(f'Later: dial-chat "{question}"')
        return ExitCode.ANSWERED
    from dial_client.cli.chat.one_shot import answer as answer_question

    return await answer_question(Options(config=settings.path, no_save=True), question)
