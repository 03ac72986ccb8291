"""The commands of ``dial-chat`` outside of groups. Each imports heavy modules only when it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Context, Option

from dial_client import __version__
from dial_client.cli.commands.command_help import ChatTyperCommand
from dial_client.cli.commands.command_line import is_bare_word, normalize_resume, resolve_bare_word, split_command
from dial_client.cli.commands.foreign_words import (
    find_hint,
    is_misspelled_command,
    translate_command,
    translate_options,
)
from dial_client.cli.commands.typer_commands import (
    PROGRAM,
    CommandRun,
    build_command,
    command,
    list_command_names,
    list_given_words,
)
from dial_client.cli.options import AsJson, ExitCode, ListingOptions, Options, ServeOptions

# The base class of Typer's errors about a command line, of which Typer exports only this subclass.
_UsageError: Any = typer.BadParameter.__base__
_CONFIGURATION = ("config", "trust", "strict", "profile", "verbose")
_CHAT = tuple(name for name in Options.__dataclass_fields__ if name not in ("store", "command"))


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - a callback of Typer
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@command("", *_CHAT, cls=ChatTyperCommand)
def chat(
    *,
    words: Annotated[
        list[str] | None,
        Argument(metavar="[PROMPT]", help="The question. Without one, hold a conversation in the terminal."),
    ] = None,
    options: Options,
    install_completion: Annotated[
        bool,
        Option(
            "--install-completion",
            help="Let your shell complete dial-chat. PROMPT may name the shell: bash, zsh, fish or powershell.",
        ),
    ] = False,
    show_completion: Annotated[
        bool, Option("--show-completion", help="Print what --install-completion would install.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool, Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> CommandRun:
    """Ask a chat model that can use the tools of your MCP servers, or hold a conversation."""
    prompt = " ".join(words) if words else None
    if install_completion or show_completion:
        from dial_client.cli.commands.shell_completion import set_up_completion

        if install_completion and show_completion:
            raise _build_conflict("--install-completion", "--show-completion")

        return set_up_completion(prompt, is_installed=install_completion)
    from dial_client.cli.streams import prompt_input
    from dial_client.cli.terminal.banner import check_theme
    from dial_client.messages.errors import ConfigError

    check_theme(options.theme)
    try:
        question = prompt_input.read(prompt, options.prompt_file, is_required=options.print_answer)
    except ConfigError as error:
        from dial_client.cli.chat.one_shot import print_error

        print_error(error, options)
        raise
    if question is not None:
        from dial_client.cli.chat.one_shot import answer

        return answer(options, question, "" if prompt in (None, "-") else prompt)
    if options.schema is not None or options.output != "text":
        name = "--output" if options.schema is None else "--schema"
        raise ConfigError(f"{name} needs a question", hint=f"dial-chat {name} … PROMPT")
    from dial_client.cli.chat.conversation import run_conversation

    return run_conversation(options)


@command("tools", *_CONFIGURATION, "server")
def tools(*, options: Options, as_json: AsJson = False) -> CommandRun:
    """List the tools as they are offered to the model."""
    from dial_client.cli.servers.server_features import list_tools

    return list_tools(options, as_json=as_json)


@command("agents", *_CONFIGURATION)
def agents(*, options: Options, as_json: AsJson = False) -> CommandRun:
    """List the agents that the model can call: yours, and those of this folder."""
    from dial_client.cli.agent_features import list_agents

    return list_agents(options, as_json=as_json)


@command("resources", *_CONFIGURATION, "server")
def resources(*, options: Options, as_json: AsJson = False) -> CommandRun:
    """List the resources of the servers: @SERVER:URI in a question attaches a resource."""
    from dial_client.cli.servers.server_features import list_resources_or_prompts

    return list_resources_or_prompts(options, "resources", as_json=as_json)


@command("prompts", *_CONFIGURATION, "server")
def prompts(*, options: Options, as_json: AsJson = False) -> CommandRun:
    """List the prompts of the servers: /SERVER:PROMPT ARG=VALUE in a conversation sends a prompt."""
    from dial_client.cli.servers.server_features import list_resources_or_prompts

    return list_resources_or_prompts(options, "prompts", as_json=as_json)


@command("call", *_CONFIGURATION, "server", "tool_timeout", "no_audit", "audit_arguments")
def call(
    *,
    name: Annotated[str, Argument(metavar="SERVER/TOOL", help="The tool, or its name in `dial-chat tools`.")],
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="[KEY=VALUE…]",
            help="The arguments; a value of a list or an object is JSON, KEY=@FILE is the text of a file. Or one JSON "
            "object.",
        ),
    ] = None,
    options: Options,
    as_json: AsJson = False,
) -> CommandRun:
    """Call one tool, without a model; only its server starts. No approval is asked for: you make the call yourself."""
    from dial_client.cli.servers.tool_call import call_tool

    # The time for a turn must not end the call before its own time does.
    timeout = None if options.tool_timeout is None else math.inf
    return call_tool(replace(options, timeout=timeout), name, arguments or (), as_json=as_json)


@command("conversations")
def conversations(
    *,
    action: Annotated[str, Argument(help="list, show, delete, export or import.")] = "list",
    target: Annotated[str | None, Argument(metavar="ID", help="The id of a conversation; for import, a file.")] = None,
    all_folders: Annotated[
        bool, Option("--all", help="List conversations of all folders, and those that a single question began.")
    ] = False,
    search: Annotated[str, Option(metavar="WORDS", help="List conversations that contain all these words.")] = "",
    limit: Annotated[int, Option(metavar="N", help="The size of a page of the list.")] = 100,
    cursor: Annotated[str | None, Option(help="Continue the list after this cursor.")] = None,
    form: Annotated[str, Option("--format", metavar="FORM", help="Export as markdown or json.")] = "markdown",
    as_json: AsJson = False,
) -> CommandRun:
    """List, show, delete, export or import conversations."""
    from dial_client.cli.chat.stored_conversations import ConversationQuery, manage

    _refuse_unused(
        f"conversations {action}",
        {
            "--search": (search != "", "list"),
            "--limit": (limit != 100, "list"),
            "--cursor": (cursor is not None, "list"),
            "--all": (all_folders, "list"),
            "--format": (form != "markdown", "export"),
            "--json": (as_json, "list, show, export, import"),
            repr(target): (target is not None and action == "list", "show, delete, export, import"),
        },
    )
    return manage(action, target, ConversationQuery(as_json, search, limit, cursor, form, all_folders))


@command(
    "serve",
    *(*_CONFIGURATION, "model", "base_url", "tool_format", "system", "max_depth", "timeout", "tool_timeout"),
    *("allow", "deny", "mode", "yes", "policy", "store", "no_save", "no_audit", "audit_arguments"),
)
def serve(*, serve_options: ServeOptions, options: Options) -> CommandRun:
    """Serve over HTTP: an OpenAI-compatible endpoint that uses your tools, conversations, and a web page."""
    from dial_client.cli.service.serve_command import serve_http

    return serve_http(options, serve_options)


@command("tokens", "store")
def tokens(
    *,
    action: Annotated[str, Argument(help="list, create or revoke.")] = "list",
    name: Annotated[
        str | None, Argument(help="For create: what the token is for, such as laptop. For revoke: its id.")
    ] = None,
    owner: Annotated[
        str | None, Option(metavar="PERSON", help="The person whom a new token stands for, such as an e-mail address.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        Option(
            metavar="SCOPE",
            help="What a new token may be used for: chat, read, approve, gateway, admin. Repeatable. "
            "Default: all but admin.",
        ),
    ] = None,
    expires: Annotated[str, Option(metavar="TIME", help="How long a new token is valid, like 12h, 90d or 52w.")] = "",
    rate: Annotated[int, Option(min=0, metavar="N", help="At most N requests a minute with a new token.")] = 0,
    options: Options,
    as_json: AsJson = False,
) -> CommandRun:
    """Create, list and revoke tokens of persons: for a service with `--auth tokens`."""
    from dial_client.cli.service.token_commands import NewToken, manage_tokens

    _refuse_unused(
        f"tokens {action}",
        {
            "--owner": (owner is not None, "create"),
            "--scope": (bool(scope), "create"),
            "--expires": (expires != "", "create"),
            "--rate": (rate != 0, "create"),
            "--json": (as_json, "list, create"),
        },
    )
    return manage_tokens(action, name, NewToken(owner, tuple(scope or ()), expires, rate), options, as_json=as_json)


@command("credentials", "store", "config", "trust")
def credentials(
    *,
    action: Annotated[str, Argument(help="list, set, revoke or key.")] = "list",
    server: Annotated[str | None, Argument(help="For set and revoke: the server.")] = None,
    name: Annotated[str | None, Argument(help="The NAME in ${user.NAME}. The value is read from the input.")] = None,
    owner: Annotated[str, Option(metavar="PERSON", help="Whose credentials.")] = "",
    options: Options,
    as_json: AsJson = False,
) -> CommandRun:
    """List, set and revoke credentials of persons: for servers of a service with `${user.NAME}`, or print a key."""
    from dial_client.cli.service.credential_commands import manage_credentials

    unused = {
        "--json": (as_json, "list"),
        "--config": (options.config is not None, "revoke"),
        "--trust": (options.trust, "revoke"),
    }
    _refuse_unused(f"credentials {action}", unused)
    return manage_credentials(action, server, name, owner, options, as_json=as_json)


@command("db", "store", "config", "trust")
def db(
    *,
    action: Annotated[str, Argument(help="check, migrate, export or erase.")] = "check",
    owner: Annotated[str | None, Argument(metavar="[PERSON]", help="For export and erase: whose data.")] = None,
    is_agreed: Annotated[bool, Option("--yes", help="Erase without being asked: there is no way back.")] = False,
    options: Options,
) -> CommandRun:
    """Check or migrate the database, export or erase a person. Export prints JSON, an object in each line."""
    from dial_client.cli.service.database_command import manage_database

    unused = {
        "--yes": (is_agreed, "erase"),
        "--config": (options.config is not None, "erase"),
        "--trust": (options.trust, "erase"),
    }
    _refuse_unused(f"db {action}", unused)
    return manage_database(action, owner, options, is_agreed=is_agreed)


@command(
    "gateway",
    *(
        *_CONFIGURATION,
        "server",
        "tool_timeout",
        "allow",
        "deny",
        "mode",
        "yes",
        "policy",
        "model",
        "base_url",
        "sampling",
        "no_audit",
        "audit_arguments",
    ),
)
def gateway(
    *,
    context: Context,
    host: Annotated[
        str | None,
        Option(
            "--print",
            metavar="HOST",
            help="Print what starts the gateway, with the other options given here, in the configuration of a host, "
            "and exit: claude-code, cursor, vscode, codex, zed, gemini, goose, …",
        ),
    ] = None,
    listing: ListingOptions,
    options: Options,
) -> CommandRun:
    """Serve all servers as one MCP server, for another MCP host."""
    early = None
    if host is None:  # before everything else is loaded: it answers the first requests meanwhile
        from dial_client.gateway.early_answers import begin_early_answers

        early = begin_early_answers(list_given_words(context))
    from dial_client.cli import gateway_command

    if early is None:
        return gateway_command.print_entry(host or "", options, list_given_words(context, "host"))
    return gateway_command.serve_gateway(options, listing, early)


@command(
    "acp",
    *(*_CONFIGURATION, "server", "model", "base_url", "fallback_model", "tool_format", "system", "no_instructions"),
    *("max_depth", "timeout", "tool_timeout", "allow", "deny", "mode", "yes", "policy", "sampling", "no_save"),
    *("no_audit", "audit_arguments"),
)
def acp(*, options: Options) -> CommandRun:
    """Serve an editor: Zed, JetBrains, Neovim and others that speak ACP."""
    from dial_client.gateway.standard_files import claim_standard_files

    files = claim_standard_files()  # before anything else can print
    from dial_client.cli import acp_command

    return acp_command.answer_editor(options, files)


@command("audit")
def audit(
    *,
    action: Annotated[str, Argument(help="show, tail or verify.")] = "show",
    follow: Annotated[bool, Option("-f", "--follow", help="tail: print new entries until Ctrl-C.")] = False,
    lines: Annotated[
        int | None, Option("-n", "--lines", min=0, metavar="N", help="Only the last N entries. For tail: 10.")
    ] = None,
    server: Annotated[str, Option(metavar="PATTERN", help="Only entries of these servers.")] = "",
    tool: Annotated[str, Option(metavar="PATTERN", help="Only entries of these tools.")] = "",
    since: Annotated[
        str,
        Option(
            metavar="WHEN", help="Only entries since this date, time or age: 2026-11-22, 2026-11-22T17:00, 90m, 3h, 2d."
        ),
    ] = "",
    conversation: Annotated[
        str, Option(metavar="ID", help="Only entries of this conversation, which the beginning of its id names.")
    ] = "",
    head: Annotated[str, Option(metavar="DIGEST", help="verify: a digest that the log must contain.")] = "",
    folder: Annotated[Path | None, Option(metavar="FOLDER", help="The folder of the log, if not the default.")] = None,
    as_json: AsJson = False,
) -> CommandRun:
    """Show or verify the log of decisions and tool calls.

    verify exits with 1 if the log was changed, or does not contain the digest of --head.
    """
    from dial_client.cli import audit_report

    _refuse_unused(
        f"audit {action}",
        {
            "--follow": (follow, "tail"),
            "--lines": (lines is not None, "show, tail"),
            "--server": (server != "", "show, tail"),
            "--tool": (tool != "", "show, tail"),
            "--since": (since != "", "show, tail"),
            "--conversation": (conversation != "", "show, tail"),
            "--head": (head != "", "verify"),
        },
    )
    if folder is not None and not folder.is_dir() and not follow:
        from dial_client.messages.errors import ConfigError

        raise ConfigError("there is no such folder", "leave --folder out for the usual log", str(folder))
    matches = audit_report.build_filter(server, tool, since, conversation)
    match action:
        case "show":
            return audit_report.show(folder, matches, lines, as_json=as_json)
        case "tail":
            last = 10 if lines is None else lines
            return audit_report.tail(folder, matches, last, follow=follow, as_json=as_json)
        case "verify":
            return audit_report.check(folder, head, as_json=as_json)
        case _:
            raise _build_unknown_action(action, "show, tail, verify")


@command("doctor", "config", "trust", "profile", "model", "base_url", "store", "verbose")
def doctor(
    *,
    options: Options,
    only: Annotated[
        list[str] | None,
        Option(metavar="GROUP", help="Only these checks: config, servers, tools, model, files. Repeatable."),
    ] = None,
    fix: Annotated[bool, Option("--fix", help="Apply the fixes of findings that have one.")] = False,
    as_json: AsJson = False,
) -> CommandRun:
    """Check the configuration, the servers and the model. The exit code is 1 if there is an error."""
    from dial_client.cli.doctor.doctor_report import diagnose, read_groups

    if only:
        _refuse_unused(
            f"doctor {', '.join(only)}",
            {
                "--model": (options.model is not None and not {"model", "tools"} & {*only}, "--only model"),
                "--base-url": (options.base_url is not None and "model" not in only, "--only model"),
                "--store": (options.store is not None and "files" not in only, "--only files"),
            },
        )
    return diagnose(options, read_groups(only), with_fixes=fix, as_json=as_json)


@command("bug-report", "config", "trust", "profile", "model", "base_url", "verbose")
def bug_report(
    *,
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write.", show_default=False)] = Path(
        "dial-chat-report.md"
    ),
    options: Options,
    yes: Annotated[bool, Option("-y", "--yes", help="Write the file without asking.")] = False,
) -> CommandRun:
    """Write versions, findings and logs into one file. The findings are those of doctor, the logs those of the servers.

    The report is printed first.
    """
    from dial_client.cli.doctor.bug_report import write_report

    return write_report(options, file, is_confirmed=yes)


@command("models", "config", "trust", "profile", "base_url", "tool_format", "verbose")
def models(
    *,
    action: Annotated[
        str, Argument(help="list or test. test asks a model short questions, to show what it can do.")
    ] = "list",
    name: Annotated[
        str | None, Argument(help="For test: the name of the model, as for -m. For list: a part of names.")
    ] = None,
    refresh: Annotated[
        bool, Option("--refresh", help="Request the lists of models again, not from the cache.")
    ] = False,
    options: Options,
    as_json: AsJson = False,
) -> CommandRun:
    """List the models of your endpoints and of this machine; or test what a model can do."""
    from dial_client.messages.errors import ConfigError

    is_address = action == "list" and options.base_url is not None
    _refuse_unused(
        f"models {action}",
        {
            "--refresh": (refresh, "list"),
            "--tool-format": (options.tool_format is not None, "test"),
            "--config": (is_address and options.config is not None, "test"),
            "--profile": (is_address and options.profile is not None, "test"),
        },
    )
    match action, name:
        case "list", _:
            from dial_client.cli.models.model_table import list_models

            return list_models(options, name or "", is_refreshed=refresh, as_json=as_json)
        case "test", str():
            from dial_client.cli.models.model_trials import test_model

            return test_model(options, name, as_json=as_json)
        case "test", _:
            raise ConfigError("missing model name", hint="dial-chat models [list [WORD] | test NAME]")
        case _:
            raise _build_unknown_action(action, "list, test")


@command("policy", "config", "trust", "strict", "profile", "policy", "allow", "deny", "mode", "verbose")
def policy(
    *,
    action: Annotated[str, Argument(help="list or test.")] = "list",
    name: Annotated[str | None, Argument(help="For test: SERVER/TOOL, or the name that the model uses.")] = None,
    arguments: Annotated[str, Argument(help="For test: a JSON object.")] = "{}",
    tainted: Annotated[
        bool, Option("--tainted", help="Test the call in a conversation with untrusted content.")
    ] = False,
    options: Options,
    as_json: AsJson = False,
) -> CommandRun:
    """List the rules in effect, or test a call against them: exit code 0 runs, 5 is denied, 6 needs approval.

    No server is started: the tools are those that the servers had at the last run.
    """
    from dial_client.cli import policy_listing
    from dial_client.messages.errors import ConfigError

    _refuse_unused(f"policy {action}", {"--tainted": (tainted, "test")})
    match action, name:
        case "list", None:
            return policy_listing.list_rules(options, as_json=as_json)
        case "test", str():
            return policy_listing.test_call(options, name, arguments, is_tainted=tainted, as_json=as_json)
        case "list" | "test", _:
            problem = "missing tool name" if action == "test" else f"list takes no name, and {name!r} is given"
            raise ConfigError(problem, hint="""dial-chat policy [list | test NAME '{"a": 1}']""")
        case _:
            raise _build_unknown_action(action, "list, test")


@command("grants", "config", "trust", "profile")
def grants(
    *,
    options: Options,
    allow: Annotated[
        str | None,
        Option(
            "--allow",
            metavar="SERVER/TOOL",
            help="Always allow this tool, with the definition that it has now. Takes effect at once in running "
            "programs, and approves a definition that has changed.",
        ),
    ] = None,
    revoke: Annotated[
        str | None,
        Option(
            metavar="ID",
            help="Revoke a grant by its id or by a pattern SERVER/TOOL; --revoke --all revokes every grant.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> CommandRun:
    """List the tools that you always allow; allow or revoke one."""
    from dial_client.cli import policy_listing
    from dial_client.messages.errors import ConfigError

    if allow is not None and revoke is not None:
        raise ConfigError("--allow and --revoke exclude each other")
    return policy_listing.manage_grants(options, allow, revoke, as_json=as_json)


@command("trust")
def trust(
    *,
    file: Annotated[
        Path | None,
        Argument(
            metavar="[FILE]",
            help="A servers.json, or its folder: trusted without a question. With --read-only the name of a server.",
        ),
    ] = None,
    read_only: Annotated[
        bool,
        Option(
            "--read-only",
            help="Let the tools that a server calls read-only run without a question; FILE is the server's name.",
        ),
    ] = False,
    list_all: Annotated[bool, Option("--list", help="List the files that are trusted.")] = False,
    revoke: Annotated[bool, Option("--revoke", help="Revoke the trust in FILE, or in ./servers.json.")] = False,
    as_json: AsJson = False,
) -> CommandRun:
    """Trust a servers.json, so that dial-chat uses it in its folder; without FILE, show ./servers.json and ask."""
    if read_only:
        from dial_client.cli.policy_listing import trust_read_only_tools
        from dial_client.messages.errors import ConfigError

        if file is None or list_all or revoke or as_json:
            raise ConfigError("--read-only needs the name of a server", hint="dial-chat trust SERVER --read-only")
        return trust_read_only_tools(str(file))
    from dial_client.cli.trust.trust_prompt import manage

    return manage(file, list_all=list_all, revoke=revoke, as_json=as_json)


@command("init")
async def init(
    *,
    model: Annotated[str | None, Option("-m", "--model", metavar="NAME", help="The model that answers.")] = None,
    base_url: Annotated[
        str | None, Option(metavar="URL", help="The model's endpoint, whose models are listed.")
    ] = None,
    key_variable: Annotated[str, Option(metavar="NAME", help="The environment variable with the endpoint's key.")] = "",
    server: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="A server: time, git, filesystem, fetch, memory, or a server of another MCP host on this machine. "
            "Repeatable.",
        ),
    ] = None,
    folder: Annotated[bool, Option("--folder", help="Write ./servers.json, for this folder.")] = False,
    user: Annotated[
        bool, Option("--user", help="Write the file into your configuration folder, for every folder.")
    ] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="Ask no questions: use the defaults.")] = False,
) -> int:
    """Write a first servers.json: ask for the model, the servers and the folder, and try the file.

    Without a terminal no questions are asked: the file names the best model that is found, and the servers that are
    installed or that uvx can download.
    """
    from dial_client.cli.configuration.first_configuration import InitChoice, write_first_configuration
    from dial_client.messages.errors import ConfigError

    if user and folder:
        raise ConfigError("--user and --folder name different files", "give one of them")
    if model == "":
        raise ConfigError("--model is empty", "leave it out, or give NAME")
    if key_variable and not re.fullmatch(r"[A-Za-z_]\w*", key_variable):
        raise ConfigError(f"{key_variable!r} is no name of a variable", "--key-variable NAME, such as OPENAI_API_KEY")
    if key_variable and not base_url:
        raise ConfigError("--key-variable has no effect without --base-url", "other keys are found by themselves")
    place = user if user or folder else None
    return await write_first_configuration(
        InitChoice(place, model, base_url, key_variable, tuple(server or ()), is_agreed=yes)
    )


@command("help")
def help_(
    *,
    topic: Annotated[
        list[str] | None,
        Argument(help="A page, such as ci, or a code of doctor, such as DC301. Without it: all pages."),
    ] = None,
) -> CommandRun:
    """Show a page of the documentation; all of it is installed with the program."""
    from dial_client.cli.help_pages import show_help

    return show_help(topic or (), list_command_names)


_CONFIG_ACTIONS = ("path", "show", "get", "set", "unset", "edit", "schema")


@command("config", "config", "trust", "profile", "model")
async def config(
    *,
    action: Annotated[str, Argument(help=f"{', '.join(_CONFIG_ACTIONS[:-1])} or {_CONFIG_ACTIONS[-1]}.")] = "path",
    key: Annotated[
        str | None, Argument(help="For show, get, set and unset: a path such as mcpServers.time.args.")
    ] = None,
    value: Annotated[str | None, Argument(help="For set: the value, as JSON or as plain text.")] = None,
    origin: Annotated[bool, Option("--origin", help="With show: the file and line of each value.")] = False,
    user: Annotated[bool, Option("--user", help="Change the file of your configuration folder.")] = False,
    options: Options,
    as_json: AsJson = False,
) -> int:
    """Print the configuration files and folders, show or change values, or print the JSON Schema of servers.json."""
    from dial_client.cli.configuration import configuration_edits, configuration_report

    _refuse_unused(
        f"config {action}",
        {
            "--origin": (origin, "show"),
            "--user": (user, "set, unset, edit"),
            "--json": (as_json, "path, show, get, schema"),
            "--model": (options.model is not None and not origin, "show --origin"),
            "--profile": (options.profile is not None and not origin, "show --origin"),
            "--trust": (options.trust, "show, get"),
            repr(key): (key is not None and action in ("path", "edit", "schema"), "show, get, set, unset"),
            repr(value): (value is not None and action in ("show", "get", "unset"), "set"),
        },
    )
    match action:
        case "path":
            configuration_report.print_paths(options, as_json=as_json)
        case "show" if origin:
            configuration_report.print_origins(options, key, as_json=as_json)
        case "show" if key is None:
            configuration_report.print_values(options, as_json=as_json)
        case "get" | "show":
            configuration_report.print_value(options, key, as_json=as_json)
        case "schema":
            configuration_report.print_schema()
        case "set":
            configuration_edits.set_key(options, key, value, in_user_file=user)
        case "unset":
            configuration_edits.unset_key(options, key, in_user_file=user)
        case "edit":
            return await configuration_edits.edit_file(options, in_user_file=user)
        case _:
            from dial_client.messages.errors import ConfigError
            from dial_client.runtime.text import suggest_name

            raise ConfigError(f"unknown command: config {action}", hint=suggest_name(action, _CONFIG_ACTIONS))
    return ExitCode.ANSWERED


def _refuse_unused(command: str, options: Mapping[str, tuple[bool, str]]) -> None:
    """Raise `ConfigError` for an option that the named action does not use, so that no option is ignored in silence.

    Args:
        command: The command with its action: ``audit verify``.
        options: The options, each with whether it is given, and the actions that use it.
    """
    from dial_client.messages.errors import ConfigError

    name, _, action = command.partition(" ")
    for option, (is_given, actions) in options.items():
        if is_given and action not in actions.split(", "):
            raise ConfigError(f"{option} has no effect with {command}", f"it belongs to: {name} {actions}")


def _build_conflict(first: str, second: str) -> Exception:
    from dial_client.messages.errors import ConfigError

    return ConfigError(f"{first} cannot be combined with {second}", "give one of them")


def _build_unknown_action(action: str, actions: str) -> Exception:
    from dial_client.messages.errors import ConfigError

    return ConfigError(f"unknown action {action!r}", hint=f"one of {actions}; to ask the model: dial-chat -p PROMPT")


def _report_error(problem: str) -> None:
    # Imported only for an error: `--version` and `--help` need no themes, and clean no texts.
    from dial_client.cli.streams.error_stream import report_error

    report_error(problem)


def run(arguments: Sequence[str]) -> int:
    """Run the command of these arguments, and return its exit code."""
    name, words = split_command(normalize_resume(arguments))
    if not name:
        name, words = split_command(translate_command(words))
    if not name:
        words = translate_options(words)
        if hint := find_hint(words):
            _report_error(hint)
            return int(ExitCode.USAGE)
        if is_bare_word(words) or is_misspelled_command(words):
            resolved = resolve_bare_word(words)
            if resolved is None:
                return int(ExitCode.USAGE)
            name, words = split_command(resolved)
    program = f"{PROGRAM} {name}".strip()
    try:
        code = build_command(name).main(words, prog_name=program, standalone_mode=False)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else ExitCode.UNEXPECTED
    except _UsageError as error:
        problem = error.format_message().rstrip(".").replace("Value error, ", "")  # the words of pydantic
        asks = "; to ask the model: dial-chat -p PROMPT" if name and "extra argument" in problem else ""
        _report_error(f"{problem}; {program} -h shows what there is{asks}")
        code = ExitCode.USAGE
    return int(code or ExitCode.ANSWERED)
