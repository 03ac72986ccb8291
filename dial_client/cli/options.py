"""The options of the command line, and the exit codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

from typer import Option


class ExitCode(IntEnum):
    """The exit codes of ``dial-chat``."""

    ANSWERED = 0
    UNEXPECTED = 1
    USAGE = 2
    MODEL = 3
    LIMIT = 4
    DENIED = 5
    ASKS = 6
    INTERRUPTED = 130


# The names of the programs of the service, of the gateway and of the agent for editors in `Options.command`.
SERVE, GATEWAY, ACP = "dial-chat serve", "dial-chat gateway", "dial-chat acp"
# The forms of an answer on standard output.
Output = Literal["text", "json", "jsonl", "sse", "ai-sdk", "ag-ui"]
# The tool format: how tool calls are written.
Format = Literal["native", "react", "xml", "code", "auto"]
# The mode of approval, see `tools.approval_mode`.
Mode = Literal["ask", "read", "plan", "auto"]
# The destination of the program's log. ``file`` is a file if standard error is a terminal, where the log would mix
# with the answer; else standard error. ``warnings`` are the warnings alone, on standard error.
Logs = Literal["none", "warnings", "stderr", "file"]

AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
# The option of commands other than the chat.
Verbose = Annotated[bool, Option("-v", "--verbose", help="Print details on standard error.")]


@dataclass(frozen=True, eq=False, slots=True)
class Options:
    """The options that commands have in common. Typer fills those of a command: see `typer_commands.command`."""

    config: Annotated[
        Path | None,
        Option(
            "-c",
            "--config",
            metavar="FILE",
            help="Use only this configuration file. Default: servers.json in your configuration folder, overridden by "
            "./servers.json if you trust it.",
        ),
    ] = None
    trust: Annotated[bool, Option("--trust", help="Trust the files of this folder for this run.")] = False
    strict: Annotated[
        bool,
        Option(
            "--strict",
            help="Exit with 2 if ./servers.json has changed. Without it, the parts that you trust are used. In a "
            "terminal you are asked.",
        ),
    ] = False
    server: Annotated[
        tuple[str, ...],
        Option(metavar="NAME=COMMAND", help="Use this server, too, in this run. Or NAME=URL; repeatable."),
    ] = ()
    profile: Annotated[
        str | None, Option(metavar="NAME", help="A profile of the configuration. Default: DIAL_PROFILE, else none.")
    ] = None
    model: Annotated[
        str | None,
        Option(
            "-m",
            "--model",
            metavar="NAME",
            help="The model, such as openai:ID, anthropic:ID or local. Also chat:ID (any OpenAI-compatible endpoint), "
            "ollama:ID, dial:ID, azure:DEPLOYMENT, bedrock:ID, vertex:ID, foundry:ID, scripted:FILE, or one of the "
            "configuration's models.",
        ),
    ] = None
    base_url: Annotated[str | None, Option(metavar="URL", help="The model's endpoint.")] = None
    fallback_model: Annotated[
        tuple[str, ...],
        Option(metavar="NAME", help="A model to ask if the first one cannot answer. May be given several times."),
    ] = ()
    tool_format: Annotated[
        Format | None, Option(metavar="FORMAT", help="How calls are written: native, code, react, xml.")
    ] = None
    system: Annotated[str | None, Option(metavar="TEXT", help="Instructions for the model.")] = None
    agent: Annotated[str | None, Option(metavar="NAME", help="Talk to this agent of `dial-chat agents`.")] = None
    no_instructions: Annotated[bool, Option("--no-instructions", help="Leave out AGENTS.md and CLAUDE.md.")] = False
    max_depth: Annotated[int | None, Option(metavar="N", help="At most N rounds of tool calls; 50 by default.")] = None
    timeout: Annotated[float | None, Option(metavar="S", help="Seconds for a turn; 120 without a terminal.")] = None
    tool_timeout: Annotated[float | None, Option(metavar="S", help="Seconds for one tool call; 60 by default.")] = None
    no_stream: Annotated[
        bool,
        Option(
            "--no-stream",
            help="Do not stream: request the answer in one piece. Piped text is streamed only where no tool call can "
            "follow it, because standard output has the answer alone; --output jsonl always streams.",
        ),
    ] = False
    output: Annotated[Output, Option(metavar="FORM", help="The form: text, json, jsonl, sse, ai-sdk or ag-ui.")] = (
        "text"
    )
    schema: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Print only an answer in JSON of this schema. FILE has a JSON Schema; an answer that does not fit it "
            "is not printed.",
        ),
    ] = None
    allow: Annotated[
        tuple[str, ...],
        Option(metavar="PATTERN", help="Tools that run without asking, like 'time/*'. As SERVER/TOOL; repeatable."),
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        Option(metavar="PATTERN", help="Tools that never run; overrides --allow. As SERVER/TOOL or TOOL; repeatable."),
    ] = ()
    mode: Annotated[
        Mode | None,
        Option(
            metavar="MODE",
            help="What runs without asking: ask, read, plan or auto. In read, what only reads; in plan, only what "
            "reads runs, and the model answers with a plan; in auto, all that no rule denies or asks about. "
            "Shift-Tab changes it.",
        ),
    ] = None
    yes: Annotated[
        bool,
        Option(
            "-y",
            "--yes",
            help="Run all calls that no rule denies, without asking. This is --mode auto, with yes as the answer to "
            "the questions that are left.",
        ),
    ] = False
    """Run every call that no rule denies, without asking for approval. Not the same as ``allow=("*",)``."""
    policy: Annotated[
        Path | None,
        Option(metavar="FILE", help="Rules that allow, ask about or deny calls. They are checked before other rules."),
    ] = None
    sampling: Annotated[
        bool,
        Option(
            "--sampling",
            help="Let servers use your model, if you consent. This is MCP sampling: it has a budget, and you are asked "
            "unless you have allowed it for the session.",
        ),
    ] = False
    continue_latest: Annotated[bool, Option("--continue", help="Continue the latest conversation of this folder.")] = (
        False
    )
    resume: Annotated[
        str | None,
        Option(
            metavar="[ID|WORDS]",
            help="Continue this conversation, or choose one. Name it by the beginning of its id, or by words in it.",
        ),
    ] = None
    all_folders: Annotated[
        bool,
        Option(
            "--all", help="With --continue, --resume: of all folders. Also conversations that a single question began."
        ),
    ] = False
    store: Annotated[
        str | None, Option(metavar="URL", help="Where conversations are stored: a SQLite file, or postgresql://…")
    ] = None
    no_save: Annotated[bool, Option("--no-save", help="Do not store conversations.")] = False
    record: Annotated[
        Path | None, Option(metavar="FILE", help="Record the conversation. -m scripted:FILE replays it.")
    ] = None
    no_audit: Annotated[
        bool, Option("--no-audit", help="Write no audit log of tool calls. DIAL_AUDIT=off does the same.")
    ] = False
    audit_arguments: Annotated[
        bool, Option("--audit-arguments", help="Write the arguments of calls into the audit log.")
    ] = False
    print_answer: Annotated[
        bool,
        Option("-p", "--print", help="Answer the words as a question, and exit. They may be the name of a command."),
    ] = False
    prompt_file: Annotated[
        Path | None, Option("-f", "--file", metavar="FILE", help="Read the prompt from a file; - is standard input.")
    ] = None
    plain: Annotated[
        bool, Option("--plain", help="Print answers as the model writes them. In a terminal too, line by line.")
    ] = False
    theme: Annotated[str, Option(metavar="NAME", help="Colours of answers: auto, dark, light, ansi or mono.")] = "auto"
    quiet: Annotated[bool, Option("-q", "--quiet", help="Print only answers, questions and errors: no banner.")] = False
    verbose: Annotated[bool, Option("-v", "--verbose", help="Show reasoning, tokens and cost of each answer.")] = False
    debug: Annotated[
        bool, Option("--debug", help="Write a log. In a terminal it goes into a file, else to standard error.")
    ] = False
    command: str = "dial-chat"
    """The name of the program in the audit log."""

    @property
    def logs(self) -> Logs:
        """The destination of the log. A command that has no ``--debug`` writes the log with ``-v``."""
        if self.debug:
            return "file"
        if self.command in (SERVE, GATEWAY, ACP) and not self.verbose:
            return "warnings"  # nobody watches it: a failed turn and a lost database must leave a trace
        return "stderr" if self.verbose and self.command != "dial-chat" else "none"


@dataclass(frozen=True, eq=False, slots=True)
class ConfigChoice:
    """The file that a command changes, as its options name it."""

    user: Annotated[bool, Option("--user", help="Change servers.json in your configuration folder.")] = False
    folder: Annotated[bool, Option("--folder", help="Change ./servers.json, the configuration of this folder.")] = False
    file: Annotated[Path | None, Option("-c", "--config", "--file", metavar="FILE", help="Change this file.")] = None


@dataclass(frozen=True, eq=False, slots=True)
class NewServerOptions:
    """What a command line says about a new server, in addition to its program or URL."""

    env: Annotated[
        tuple[str, ...],
        Option(metavar="KEY=VALUE", help="A variable for the program; VALUE may be ${VAR}. Repeatable."),
    ] = ()
    header: Annotated[
        tuple[str, ...], Option(metavar="LINE", help="A header, like 'Authorization: Bearer ${TOKEN}'. Repeatable.")
    ] = ()
    cwd: Annotated[str | None, Option(metavar="FOLDER", help="The program's working folder.")] = None
    transport: Annotated[str | None, Option(metavar="TYPE", help="stdio, http or sse; usually detected.")] = None
    allow: Annotated[
        tuple[str, ...], Option(metavar="TOOL", help="A tool of the server that runs without approval. Repeatable.")
    ] = ()


@dataclass(frozen=True, eq=False, slots=True)
class ListingOptions:
    """The options of the gateway: what its clients are given."""

    tools: Annotated[
        str,
        Option(
            metavar="WHICH",
            help="Which tools clients see: all; search, three tools that find, describe and call the others; auto, "
            "which is search if the definitions are larger than maxToolBytes; or code, which is search, and run_code "
            "for programs that call tools. Pinned servers are always listed.",
        ),
    ] = "all"
    max_result_chars: Annotated[
        int | None,
        Option(
            min=1_000,
            metavar="N",
            help="Shorten results to N characters; the tool read_result reads on. Default: results are whole.",
        ),
    ] = None
    calls_per_minute: Annotated[int, Option(min=1, metavar="N", help="At most N calls of one client in a minute.")] = (
        6_000
    )


@dataclass(frozen=True, eq=False, slots=True)
class ServeOptions:
    """The options of the HTTP server: its address and access."""

    host: Annotated[
        str,
        Option(
            metavar="ADDRESS", help="The address to listen on. Anything but loopback is reachable by other machines."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, metavar="N", help="The port to listen on; 0 picks a free one.")] = (
        8000
    )
    token: Annotated[
        str | None,
        Option(help="The token clients must send. Default: DIAL_SERVE_TOKEN, else a generated one, which is printed."),
    ] = None
    no_token: Annotated[
        bool, Option("--no-token", help="Require no token: every program on this machine has access. Loopback only.")
    ] = False
    auth: Annotated[
        str,
        Option(
            metavar="WHO",
            help="Who sends a request: token, one token for one person; tokens, those that `dial-chat tokens` has "
            "created, each with its owner; oidc, also tokens of an OpenID provider; proxy, also a header of a --proxy. "
            "--token is then the operator's.",
        ),
    ] = "token"
    oidc_issuer: Annotated[
        str, Option(metavar="URL", help="The OpenID provider of --auth oidc, such as https://login.example.com/realm.")
    ] = ""
    oidc_client_id: Annotated[
        str,
        Option(
            metavar="ID",
            help="The id of this service at the provider: the page then logs persons in there, at --public-url. "
            "DIAL_OIDC_CLIENT_SECRET has the secret, if there is one.",
        ),
    ] = ""
    oidc_audience: Annotated[
        tuple[str, ...],
        Option(metavar="ID", help="What else the provider's tokens may be issued for, such as an API. Repeatable."),
    ] = ()
    groups_claim: Annotated[
        str, Option(metavar="NAME", help="The claim of such tokens that has a person's groups.")
    ] = "groups"
    user_header: Annotated[
        str, Option(metavar="NAME", help="The header in which the proxy of --auth proxy names a person.")
    ] = "X-Forwarded-User"
    groups_header: Annotated[str, Option(metavar="NAME", help="The header in which it names the person's groups.")] = (
        "X-Forwarded-Groups"
    )
    group_scopes: Annotated[
        tuple[str, ...],
        Option(
            metavar="GROUP=SCOPES",
            help="What a group may do, such as admins=admin,chat,read; * is everybody. Default: all but admin for "
            "everybody. Repeatable.",
        ),
    ] = ()
    public_url: Annotated[
        str, Option(metavar="URL", help="Where clients reach this service, such as https://chat.example.com.")
    ] = ""
    allow_host: Annotated[
        tuple[str, ...], Option(metavar="NAME", help="A host name that clients may use in the Host header. Repeatable.")
    ] = ()
    proxy: Annotated[
        tuple[str, ...],
        Option(
            metavar="ADDRESS",
            help="The address of a proxy, or a network such as 10.0.0.0/8, whose X-Forwarded-For names the client."
            " Repeatable.",
        ),
    ] = ()
    max_turns: Annotated[
        int, Option(min=1, metavar="N", help="At most N turns at once; further requests must retry.")
    ] = 64
    durable: Annotated[
        bool,
        Option("--durable", help="Finish every turn even if a process dies. Needs pip install 'dial-client[durable]'."),
    ] = False
    answer_timeout: Annotated[
        float | None,
        Option(metavar="S", help="Seconds for which a call waits for approval. Default: a day; 30 with --durable."),
    ] = None
    no_share: Annotated[
        bool, Option("--no-share", help="No conversation can be shared by a link, which needs no token.")
    ] = False
    title_model: Annotated[
        str | None,
        Option(metavar="MODEL", help="Let this model write the titles of conversations, a request for each."),
    ] = None
    lock: Annotated[
        tuple[str, ...],
        Option(
            metavar="SETTING", help="A setting that conversations cannot change, such as model, or all. Repeatable."
        ),
    ] = ()
    allow_origin: Annotated[
        tuple[str, ...],
        Option(
            metavar="ORIGIN",
            help="An origin whose pages may use /mcp, /ag-ui and /ai-sdk/chat, such as http://localhost:6274 or "
            "vscode-webview://*. Repeatable.",
        ),
    ] = ()
    mcp_tools: Annotated[
        str,
        Option(metavar="WHICH", help="Which tools clients of /mcp see: all, search, code or auto, as for the gateway."),
    ] = "all"
    mcp_max_result_chars: Annotated[
        int | None,
        Option(min=1_000, metavar="N", help="Shorten results to N characters for clients of /mcp, as the gateway."),
    ] = None
    mcp_calls_per_minute: Annotated[
        int, Option(min=1, metavar="N", help="At most N calls of one client of /mcp in a minute.")
    ] = 6_000
    no_mcp: Annotated[bool, Option("--no-mcp", help="Do not serve the tools as an MCP server at /mcp.")] = False
    owner_limits: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A JSON file with the limits of persons and groups: turns, requests, tokens, money, models and tools.",
        ),
    ] = None
    retain: Annotated[
        str,
        Option(
            metavar="TIME",
            help="Delete conversations that nobody has changed for so long, like 90d, and files of the audit log.",
        ),
    ] = ""
    access_log: Annotated[
        bool, Option("--access-log", help="Log each request: method, path, status, time, bytes, person and address.")
    ] = False
    metrics: Annotated[
        bool, Option("--metrics", help="Serve metrics for Prometheus at /metrics, for tokens with the scope admin.")
    ] = False
    log_format: Annotated[
        Literal["console", "json"], Option(metavar="FORM", help="The form of the log: console or json.")
    ] = "console"
    allow_admin: Annotated[
        bool, Option("--allow-admin", help="Let clients add and change servers, which runs programs here.")
    ] = False
