"""The commands of ``dial-chat`` outside of groups. Each imports heavy modules only when it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from dial_client import __version__
from dial_client.cli import options as o
from dial_client.cli.commands.command_help import ChatTyperCommand
from dial_client.cli.commands.typer_apps import SETTINGS, chat_app, command_app, run_command


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
        from dial_client.cli.chat.conversation import run_conversation

        return lambda: run_conversation(options)
    from dial_client.cli.chat.one_shot import answer

    return lambda: answer(options, question, "" if prompt in (None, "-") else prompt)


def _choose_completion(shell: str | None, *, is_installed: bool) -> Callable[[], Awaitable[int]]:
    from dial_client.cli.commands.shell_completion import SCRIPTS, choose_shell, install

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
        from dial_client.cli.servers.server_features import list_tools

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
        from dial_client.cli.servers.server_features import list_resources_or_prompts

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
        from dial_client.cli.servers.server_features import call_tool

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
        from dial_client.cli.chat.stored_conversations import ConversationQuery, manage

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


@command_app.command(context_settings=SETTINGS)
def audit(
    action: Annotated[str, typer.Argument(help="show, tail or verify.")] = "show",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="tail: print new entries until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, metavar="N", help="tail: the number of last entries to print.")
    ] = 10,
    server: Annotated[str, typer.Option("--server", metavar="PATTERN", help="Only entries of these servers.")] = "",
    tool: Annotated[str, typer.Option("--tool", metavar="PATTERN", help="Only entries of these tools.")] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only entries since this date, time or age: 2026-11-22, 2026-11-22T17:00, 90m, 3h, 2d.",
        ),
    ] = "",
    conversation: Annotated[
        str, typer.Option("--conversation", metavar="ID", help="Only entries of this conversation.")
    ] = "",
    head: Annotated[
        str, typer.Option("--head", metavar="DIGEST", help="verify: a digest that the log must contain.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help="The folder of the log, if not the default.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Show decisions about tool calls and their results, or verify that the log was not changed.

    verify exits with 1 if the log was changed, or does not contain the digest of --head.
    """

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli import audit_report

        filters = audit_report.Filters(server, tool, since, conversation)
        match action:
            case "show":
                return lambda: audit_report.show(folder, filters, as_json=as_json)
            case "tail":
                return lambda: audit_report.tail(folder, filters, lines, follow=follow, as_json=as_json)
            case "verify":
                return lambda: audit_report.check(folder, head, as_json=as_json)
            case _:
                from dial_client.messages.errors import ConfigError

                raise ConfigError(f"unknown action {action!r}", hint="one of show, tail, verify")

    run_command(choose, o.Options())


Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="GROUP", help="Only these checks: config, servers, tools, model, files. Repeatable."
    ),
]


@command_app.command(context_settings=SETTINGS)
def doctor(
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    store: o.Store = None,
    only: Only = None,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the fixes of findings that have one.")] = False,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """Check the configuration, the servers, their tools and the model. The exit code is 1 if there is an error."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.doctor.doctor_report import diagnose, read_groups

        groups = read_groups(only)
        return lambda: diagnose(options, groups, with_fixes=fix, as_json=as_json)

    run_command(choose, options)


@command_app.command(name="bug-report", context_settings=SETTINGS)
def bug_report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)] = Path(
        "dial-chat-report.md"
    ),
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Write the file without asking.")] = False,
    verbose: o.Verbose = False,
) -> None:
    """Write versions, the findings of doctor, and logs of the servers into one file. The report is printed first."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.doctor.bug_report import write_report

        return lambda: write_report(options, file, is_confirmed=yes)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def models(
    action: Annotated[
        str, typer.Argument(help="list or test. test asks a model short questions, to show what it can do.")
    ] = "list",
    name: Annotated[
        str | None, typer.Argument(help="For test: the name of the model, as for -m. For list: a part of names.")
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Request the lists of models again, not from the cache.")
    ] = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    base_url: o.BaseUrl = None,
    tool_format: o.ToolFormat = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the models of your endpoints and of this machine; or test what a model can do."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.messages.errors import ConfigError

        if action not in ("list", "test"):
            raise ConfigError(f"unknown action {action!r}", hint="one of list, test")
        if action == "test" and name is not None:
            from dial_client.cli.models.model_trials import test_model

            return lambda: test_model(options, name, as_json=as_json)
        if action == "test":
            raise ConfigError("which model?", hint="dial-chat models [list [WORD] | test NAME]")
        from dial_client.cli.models.model_table import list_models

        return lambda: list_models(options, name or "", is_refreshed=refresh, as_json=as_json)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def policy(
    action: Annotated[str, typer.Argument(help="list or test.")] = "list",
    name: Annotated[str | None, typer.Argument(help="For test: SERVER/TOOL, or the name that the model uses.")] = None,
    arguments: Annotated[str, typer.Argument(help="For test: a JSON object.")] = "{}",
    tainted: Annotated[
        bool, typer.Option("--tainted", help="Test the call in a conversation with untrusted content.")
    ] = False,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    rules: o.Policy = None,
    allow: o.Allow = None,
    deny: o.Deny = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the rules in effect, or test a call against them: exit code 0 runs, 5 is denied, 6 needs approval.

    No server is started: the tools are those that the servers had at the last run.
    """
    options = o.Options.of_command(locals(), policy=rules)

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli import policy_listing
        from dial_client.messages.errors import ConfigError

        if action not in ("list", "test"):
            raise ConfigError(f"unknown action {action!r}", hint="one of list, test")
        if action == "list" and name is None:
            return lambda: policy_listing.list_rules(options, as_json=as_json)
        if action != "test" or name is None:
            raise ConfigError("which call?", hint="""dial-chat policy [list | test NAME '{"a": 1}']""")
        return lambda: policy_listing.test_call(options, name, arguments, is_tainted=tainted, as_json=as_json)

    run_command(choose, options)


@command_app.command(context_settings=SETTINGS)
def grants(
    revoke: Annotated[
        str | None,
        typer.Option(
            "--revoke",
            metavar="ID",
            help="Revoke a grant by its id or by a pattern SERVER/TOOL; --revoke --all revokes every grant.",
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """List the tools that you always allow, or revoke such a grant."""

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli import policy_listing

        return lambda: policy_listing.manage_grants(revoke, as_json=as_json)

    run_command(choose, o.Options())


@command_app.command(context_settings=SETTINGS)
def trust(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A servers.json, or its folder: trusted without a question."),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the files that are trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the trust in FILE, or in ./servers.json.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Trust a servers.json, so that dial-chat uses it in its folder; without FILE, show ./servers.json and ask."""

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.trust_prompt import manage

        return lambda: manage(file, list_all=list_all, revoke=revoke, as_json=as_json)

    run_command(choose, o.Options())
