"""The work of ``dial-chat init``: choose a model and servers, write a commented file, trust it, and try it."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from dial_client.cli.init_questions import ask_for_endpoint, ask_for_model, ask_for_place, ask_for_servers
from dial_client.cli.load_settings import read_settings
from dial_client.cli.models.endpoint_trial import propose, split_model_name, try_endpoint
from dial_client.cli.models.model_proposals import (
    ModelProposal,
    describe_demonstration,
    describe_download,
    describe_name,
    find_offers,
    name_profile,
)
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.servers.server_addition import find_entry_warnings
from dial_client.cli.servers.server_proposals import ServerProposal, choose_by_name, find_host_proposals, find_proposals
from dial_client.cli.streams.error_stream import report_error, warn
from dial_client.cli.streams.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.cli.streams.word_wrap import count_cells, print_lines
from dial_client.cli.trust.trust_review import trust_now
from dial_client.messages.errors import ConfigError, DialError, ProviderError
from dial_client.providers import pin_address
from dial_client.providers.http.endpoint import normalize_url
from dial_client.runtime.safe_text import escape_line, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.status import ServerState
from dial_client.settings.config_editor import ConfigText, write_text
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path
from dial_client.settings.config_trust import EnvFiles, read_found
from dial_client.settings.config_types import ModelProfile, Settings
from dial_client.settings.host_documents import describe_folder_servers

QUESTION = "What time is it in Tokyo?"
# Timeout in seconds of the requests that show whether a named model can answer.
_CHECK_SECONDS = 10.0
_HEADER = "  // Written by dial-chat init. `dial-chat help configuration` lists every key."


@dataclass(frozen=True, slots=True)
class InitChoice:
    """The options of ``dial-chat init``."""

    in_user_folder: bool | None = None
    """True to write the user's file, False to write ./servers.json, None to ask."""
    model: str | None = None
    base_url: str | None = None
    """The address of the model's endpoint; None for the usual address."""
    key_variable: str = ""
    """The environment variable with the key of the endpoint at `base_url`; empty for none."""
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
    question = QUESTION if any(server.name == "time" for server in servers) else "What can you do with your tools?"
    code: int = ExitCode.ANSWERED
    if asks:
        code = await _try(path, model, question)
    elif model is not None:
        await _warn_about_model(model)
    _print_next_commands(model, question)
    return code


async def _choose(choice: InitChoice, *, asks: bool) -> tuple[Path, ModelProposal | None, list[ServerProposal]]:
    """Return the file, the model and the servers. With `asks`, ask for those that are not given; else use defaults."""
    in_user_folder = _find_place(choice, asks=asks)
    model = await _choose_model(choice, asks=asks)
    usual = find_proposals(Path.cwd(), in_user_folder=bool(in_user_folder))
    if choice.servers:
        servers = choose_by_name(choice.servers, [*usual, *find_host_proposals()])
    elif asks:
        servers = await ask_for_servers([*usual, *find_host_proposals()])
    else:
        servers = [proposal for proposal in usual if proposal.is_default]
    if not servers and not asks and not choice.servers:
        raise ConfigError(
            "no MCP server is installed here, and there is no uvx to fetch one",
            hint="pip install 'dial-client[demo]', then dial-chat init",
        )
    if in_user_folder is None:
        in_user_folder = await ask_for_place(_shorten(Path.cwd() / FILE_NAME), _shorten(build_user_config_path()))
    if not in_user_folder:
        return Path(FILE_NAME), model, servers
    for server in servers:
        if server.needs_folder:
            print(f"   {server.name} is left out: it serves a single folder.")
    return build_user_config_path(), model, [server for server in servers if not server.needs_folder]


async def _choose_model(choice: InitChoice, *, asks: bool) -> ModelProposal | None:
    """Return the model that the options name, that the user chooses, or unasked the first one that can be used now.

    Raises:
        ConfigError: The endpoint of the options cannot be used.
    """
    url = normalize_url(choice.base_url, "--base-url") if choice.base_url is not None else ""
    if url and choice.model:
        api, model_id = split_model_name(choice.model)
        return propose(url, model_id, api, choice.key_variable)
    if url and asks:
        return await ask_for_endpoint(url, choice.key_variable)
    if url:
        trial = await try_endpoint(url, os.environ.get(choice.key_variable, ""))
        if trial.problem or not trial.ids:
            hint = "--key-variable NAME names the variable with its key" if trial.refuses_key else "give --model ID"
            raise ConfigError(trial.problem or f"{trial.endpoint.host} has no list of models", hint)
        return trial.propose(trial.ids[0], choice.key_variable)
    if choice.model:
        return _pin(ModelProposal(choice.model, describe_name(choice.model)))
    offers = await find_offers()
    if asks:
        chosen = await ask_for_model(offers)
    else:  # Unasked, the embedded model is not chosen: it is a demonstration, and a download of 490 MB.
        found = offers.usual
        chosen = found if found is not None and found.name.partition(":")[0] != "local" else None
    return chosen and _pin(chosen)


def _pin(model: ModelProposal) -> ModelProposal:
    """Return the model with the address that the environment sets for it: the next shell may not set it."""
    profile = {} if model.profile else pin_address(model.name, os.environ)
    if not profile:
        return model
    return replace(model, name=name_profile(profile["model"]), profile=profile)


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


def _shorten(path: Path) -> str:
    """Return a path with ``~`` for the home folder."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


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
    print(f"{escape_line(str(path))} has {count_noun(len(servers), 'server')}{':' if servers else '.'}")
    width = max((count_cells(server.name) for server in servers), default=0)
    rows = (
        f"  {escape_line(server.name):<{width}}  {escape_line(server.about)} ({escape_line(server.command)})"
        for server in servers
    )
    print_lines(rows, width + 4)
    if model is not None:
        print_lines([f"Model: {escape_line(model.name)}, {escape_line(model.about)}"], len("Model: "))
    else:
        warn("no model was found: set a key such as OPENAI_API_KEY, start Ollama, or name one with --model")
    if of_other_hosts := describe_folder_servers(Path.cwd()):
        print_lines([escape_line(of_other_hosts)])


async def _warn_about_model(model: ModelProposal) -> None:
    """Print a warning for each reason why the model cannot answer, found by requests that are free."""
    profile = dict(model.profile)
    if variable := _find_key_variable(model):
        profile["api_key"] = os.environ.get(variable)
        if not profile["api_key"]:
            warn(f"{variable} is not set: the model's key is read from it")
            return
    from dial_client.cli.doctor.model_checks import find_model_problems

    models = {model.name: ModelProfile(model.name, **profile)} if profile else {}
    with anyio.move_on_after(_CHECK_SECONDS):
        for finding in await find_model_problems(model.name, models, os.environ):
            hint = f" ({finding.hint})" if finding.hint else ""
            warn(f"{to_one_line(model.name, 60)} cannot answer yet: {finding.text}{hint}")


def _find_key_variable(model: ModelProposal) -> str:
    """Return the environment variable that a profile names as its key; empty if it names none."""
    return str(model.profile.get("api_key", "")).removeprefix("${").removesuffix("}")


def _print_next_commands(model: ModelProposal | None, question: str) -> None:
    commands = {f'dial-chat "{question}"': "one answer", "dial-chat": "a conversation"}
    if model is None:
        commands = {"dial-chat models": "models that you can use", "dial-chat config set defaultModel NAME": "uses one"}
        if importlib.util.find_spec("xllamacpp") is not None:
            commands[f'dial-chat -m local "{question}"'] = describe_demonstration()
    elif model.name == "local":
        commands["dial-chat config set defaultModel NAME"] = "a model for real work, of `dial-chat models`"
    commands["dial-chat servers add NAME -- COMMAND"] = "one more server"
    if model is not None and (variable := _find_key_variable(model)):
        print(f"The key stays in {variable}: each shell sets it.")
    print("\nNext:")
    width = max(map(len, commands))
    print_lines((f"  {command:<{width}}  {about}" for command, about in commands.items()), width + 4)


async def _try(path: Path, model: ModelProposal | None, question: str) -> int:
    """Start the servers of the new file, and answer one question with it, if the user agrees."""
    options = Options(config=path)
    print("\nStarting the servers …")
    try:
        settings = await read_settings(options)
        async with open_client(options, settings, None, None) as dial:
            await dial.ready()
            width = max((count_cells(name) for name in dial.servers), default=0)
            for status in dial.servers.values():
                is_ready = status.state is ServerState.READY
                problem = f"{status.state.value}: {status.error or ''}"
                shown = count_noun(len(status.tools), "tool") if is_ready else to_one_line(problem, 200)
                print_lines([f"  {f'{escape_line(status.name)}:':<{width + 1}} {shown}"], width + 4)
    except DialError as error:
        report_error(str(error))
        return ExitCode.ANSWERED
    return ExitCode.ANSWERED if model is None else await _answer(settings, model, question)


async def _answer(settings: Settings, model: ModelProposal, question: str) -> int:
    download = f" First it {describe_download(model.download)}." if model.download else ""
    try:
        answer = await ask_for_line(f'Ask {escape_line(model.name)} "{question}" now?{download} [Y]es, [n]o: ')
    except Unanswered:
        return ExitCode.ANSWERED
    if answer.lower() not in ("", "y", "yes"):
        return ExitCode.ANSWERED
    from dial_client.cli.chat.one_shot import answer as answer_question

    try:
        return await answer_question(Options(config=settings.path, no_save=True), question)
    except ProviderError as error:  # the file is written: the next commands are still worth reading
        warn(str(error))
        return ExitCode.MODEL
