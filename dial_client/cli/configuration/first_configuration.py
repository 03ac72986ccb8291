"""The work of ``dial-chat init``: choose a model and servers, write a commented file, trust it, and try it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dial_client.cli.init_questions import ask_for_model, ask_for_place, ask_for_servers
from dial_client.cli.load_settings import read_settings, warn
from dial_client.cli.models.model_search import ModelProposal, find_models
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.servers.server_addition import find_entry_warnings
from dial_client.cli.servers.server_proposals import ServerProposal, choose_by_name, find_host_proposals, find_proposals
from dial_client.cli.trust_review import trust_now
from dial_client.cli.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.messages.errors import ConfigError, DialError
from dial_client.runtime.safe_text import escape_line, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.status import ServerState
from dial_client.settings.config_editor import ConfigText, write_text
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path
from dial_client.settings.config_trust import EnvFiles, read_found
from dial_client.settings.config_types import Settings
from dial_client.settings.host_documents import describe_folder_servers

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
    if of_other_hosts := describe_folder_servers(Path.cwd()):
        print(escape_line(of_other_hosts))


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


async def _answer(settings: Settings, model: ModelProposal, question: str) -> int:
    try:
        answer = await ask_for_line(f'Ask {escape_line(model.name)} "{question}" now? [Y]es, [n]o: ')
    except Unanswered:
        return ExitCode.ANSWERED
    if answer.lower() in ("n", "no"):
        print(f'Later: dial-chat "{question}"')
        return ExitCode.ANSWERED
    from dial_client.cli.chat.one_shot import answer as answer_question

    return await answer_question(Options(config=settings.path, no_save=True), question)
