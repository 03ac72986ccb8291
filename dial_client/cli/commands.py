"""The commands of ``dial-chat``. Each command imports heavy modules only when it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dial_client import __version__
from dial_client.cli import (  # noqa: F401 - they register commands
    audit_command,
    config_command,
    doctor_command,
    init_command,
    models_command,
    policy_command,
    trust_command,
)
from dial_client.cli import options as o
from dial_client.cli.command_help import ChatTyperCommand
from dial_client.cli.command_line import is_bare_word, normalize_resume, split_command
from dial_client.cli.plain_values import build_command
from dial_client.cli.typer_apps import SETTINGS, chat_app, command_app, run_command


@chat_app.command(cls=ChatTyperCommand, context_settings=SETTINGS)
def chat(
    prompt: Annotated[
        str | None, typer.Argument(help="The question. Without one, hold a conversation in the terminal.")
    ] = None,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    fallback_model: o.FallbackModel = None,
    tool_format: o.ToolFormat = None,
    system: o.System = None,
    max_depth: o.MaxDepth = None,
    timeout: o.Timeout = None,
    tool_timeout: o.ToolTimeout = None,
    no_stream: o.NoStream = False,
    output: o.OutputForm = o.Output.TEXT,
    schema: o.Schema = None,
    allow: o.Allow = None,
    deny: o.Deny = None,
    yes: o.Yes = False,
    policy: o.Policy = None,
    sampling: o.Sampling = False,
    continue_latest: o.Continue = False,
    resume: o.Resume = None,
    no_save: o.NoSave = False,
    record: o.Record = None,
    no_audit: o.NoAudit = False,
    audit_arguments: o.AuditArguments = False,
    prompt_file: o.PromptFile = None,
    plain: o.Plain = False,
    theme: o.ThemeName = "auto",
    quiet: o.Quiet = False,
    verbose: o.ChatVerbose = False,
    debug: o.Debug = False,
    install_completion: o.InstallCompletion = False,
    show_completion: o.ShowCompletion = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Ask a chat model that can use the tools of your MCP servers, or hold a conversation."""
    if version:
        typer.echo(__version__)
        return
    options = o.Options.of_command(locals())
    if install_completion or show_completion:
        run_command(lambda: _choose_completion(prompt, is_installed=install_completion), options)
    run_command(lambda: _chat(options, prompt, prompt_file), options)


def _chat(options: o.Options, prompt: str | None, prompt_file: Path | None) -> Callable[[], Awaitable[int]]:
    from dial_client.cli import prompt_input
    from dial_client.cli.terminal.ability import check_theme

    check_theme(options.theme)
    question = prompt_input.read(prompt, prompt_file)
    if question is None and options.schema is not None:
        from dial_client.messages.errors import ConfigError

        raise ConfigError("--schema needs a question", hint="dial-chat --schema FILE PROMPT")
    if question is None:
        from dial_client.cli.repl import run_conversation

        return lambda: run_conversation(options)
    from dial_client.cli.one_shot import answer

    return lambda: answer(options, question, "" if prompt in (None, "-") else prompt)


def _choose_completion(shell: str | None, *, is_installed: bool) -> Callable[[], Awaitable[int]]:
    from dial_client.cli.completion.shell_script import SCRIPTS, choose_shell, install

    chosen = choose_shell(shell)

    async def work() -> int:
        print("\n".join(install(chosen, Path.home())) if is_installed else SCRIPTS[chosen].rstrip())
        return int(o.ExitCode.ANSWERED)

    return work


@command_app.command(context_settings=SETTINGS)
def tools(
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the tools as they are offered to the model."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.tool_commands import list_tools

        return lambda: list_tools(options, as_json=as_json)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def resources(
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the resources of the servers: @SERVER:URI in a question attaches a resource."""
    _list_resources_or_prompts("resources", o.Options.of_command(locals()), as_json=as_json)


@command_app.command(context_settings=SETTINGS)
def prompts(
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the prompts of the servers: /SERVER:PROMPT ARG=VALUE in a conversation sends a prompt."""
    _list_resources_or_prompts("prompts", o.Options.of_command(locals()), as_json=as_json)


def _list_resources_or_prompts(what: str, options: o.Options, *, as_json: bool) -> None:
    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.resources_and_prompts import list_resources_or_prompts

        return lambda: list_resources_or_prompts(options, what, as_json=as_json)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def call(
    name: Annotated[str, typer.Argument(help="The name of the tool, as `dial-chat tools` lists it.")],
    arguments: Annotated[str, typer.Argument(help="The arguments, a JSON object.")] = "{}",
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    tool_timeout: o.ToolTimeout = None,
    no_audit: o.NoAudit = False,
    audit_arguments: o.AuditArguments = False,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """Call one tool, without a model. No approval is asked for: you make the call yourself."""
    options = o.Options.of_command(locals(), timeout=tool_timeout, command="dial-chat call")

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.tool_commands import call_tool

        return lambda: call_tool(options, name, arguments, as_json=as_json)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def conversations(
    action: Annotated[str, typer.Argument(help="list, show, delete, export or import.")] = "list",
    target: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id of a conversation; for import, a file.")
    ] = None,
    search: Annotated[
        str, typer.Option("--search", metavar="WORDS", help="List conversations that contain all these words.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="The size of a page of the list.")] = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Continue the list after this cursor.")] = None,
    form: Annotated[str, typer.Option("--format", metavar="FORM", help="Export as markdown or json.")] = "markdown",
    as_json: o.AsJson = False,
) -> None:
    """List, show, delete, export or import stored conversations."""

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.conversations_command import ConversationQuery, manage

        return lambda: manage(action, target, ConversationQuery(as_json, search, limit, cursor, form))

    run_command(choose, o.Options())


@command_app.command(context_settings=SETTINGS)
def serve(
    host: o.Host = "127.0.0.1",
    port: o.Port = 8000,
    token: o.Token = None,
    no_token: o.NoToken = False,
    allow_host: o.AllowHost = None,
    store: o.Store = None,
    max_turns: o.MaxTurns = 64,
    durable: o.Durable = False,
    lock: o.Lock = None,
    allow_admin: o.AllowAdmin = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    tool_format: o.ToolFormat = None,
    system: o.System = None,
    max_depth: o.MaxDepth = None,
    timeout: o.Timeout = None,
    tool_timeout: o.ToolTimeout = None,
    allow: o.Allow = None,
    deny: o.Deny = None,
    yes: o.Yes = False,
    policy: o.Policy = None,
    no_save: o.NoSave = False,
    no_audit: o.NoAudit = False,
    audit_arguments: o.AuditArguments = False,
    verbose: o.Verbose = False,
) -> None:
    """Serve over HTTP: an OpenAI-compatible endpoint that uses your tools, conversations, and a web page."""
    options = o.Options.of_command(locals(), command="dial-chat serve")

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.serve_command import ServeOptions, serve_http

        hosts, locked = tuple(allow_host or ()), tuple(lock or ())
        serve_options = ServeOptions(
            host, port, token, not no_token, hosts, store, max_turns, durable, locked, allow_admin
        )
        return lambda: serve_http(options, serve_options)

    run_command(choose, options)


def run(arguments: Sequence[str]) -> int:
    """Run the command of these arguments, and return its exit code."""
    command, words = split_command(normalize_resume(arguments))
    if not command and is_bare_word(words):
        from dial_client.cli.bare_words import resolve_bare_word

        resolved = resolve_bare_word(words)
        if resolved is None:
            return int(o.ExitCode.USAGE)
        command, words = split_command(resolved)
    try:
        build_command(command, SETTINGS)([*(command or "").split(), *words], prog_name="dial-chat")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(o.ExitCode.UNEXPECTED)
    return int(o.ExitCode.ANSWERED)
