"""The options of the command line, and the exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


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


class Output(StrEnum):
    """The forms of an answer on standard output."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    SSE = "sse"


class Format(StrEnum):
    """The tool format: how tool calls are written."""

    NATIVE = "native"
    REACT = "react"
    XML = "xml"
    AUTO = "auto"


class AuditMode(StrEnum):
    """The mode of the audit log."""

    ON = "on"
    OFF = "off"
    ARGUMENTS = "arguments"
    """Record the arguments of calls too."""


class Logs(StrEnum):
    """The destination of the program's log."""

    NONE = "none"
    STDERR = "stderr"
    FILE = "file"
    """A file if standard error is a terminal, where the log would mix with the answer; else standard error."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; other commands than the chat use some of them."""

    config: Path | None = None
    model: str | None = None
    base_url: str | None = None
    fallback_model: tuple[str, ...] = ()
    tool_format: Format | None = None
    system: str | None = None
    max_depth: int | None = None
    timeout: float | None = None
    tool_timeout: float | None = None
    stream: bool = True
    output: Output = Output.TEXT
    schema: Path | None = None
    """A file with the JSON Schema of the answer."""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    yes: bool = False
    """Run every call that no rule denies, without asking for approval. Not the same as ``allow=("*",)``."""
    policy: Path | None = None
    continue_latest: bool = False
    resume: str | None = None
    save: bool = True
    record: Path | None = None
    verbose: bool = False
    logs: Logs = Logs.NONE
    plain: bool = False
    """Print answers unformatted, as the model writes them, line by line, even in a terminal."""
    theme: str = "auto"
    quiet: bool = False
    sampling: bool = False
    audit: AuditMode = AuditMode.ON
    command: str = "dial-chat"
    """The name of the program in the audit log."""
    trust: bool = False
    store: str | None = None
    """The database of conversations, as a file or a URL; None for the user's own file."""
    profile: str | None = None
    """The name of a profile of the configuration; None to use the environment variable, if it is set."""

    @classmethod
    def of_command(cls, parameters: Mapping[str, Any], **fixed: Any) -> Options:
        """Return the options among the parameters of a command, by their names; `fixed` overrides them."""
        own = {field.name for field in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in parameters.items() if name in own}
        patterns = {name: tuple(values.get(name) or ()) for name in ("allow", "deny", "fallback_model")}
        stream, save = (not parameters.get(name, False) for name in ("no_stream", "no_save"))
        chosen = {
            "stream": stream,
            "save": save,
            "audit": _read_audit_mode(parameters),
            "logs": _choose_logs(parameters),
        }
        return cls(**(values | patterns | chosen | fixed))


def _choose_logs(parameters: Mapping[str, Any]) -> Logs:
    """Return the destination of the log; a command that has no ``--debug`` writes the log with ``-v``."""
    if "debug" in parameters:
        return Logs.FILE if parameters["debug"] else Logs.NONE
    return Logs.STDERR if parameters.get("verbose", False) else Logs.NONE


def _read_audit_mode(parameters: Mapping[str, Any]) -> AuditMode:
    if parameters.get("no_audit", False):
        return AuditMode.OFF
    return AuditMode.ARGUMENTS if parameters.get("audit_arguments", False) else AuditMode.ON


@dataclass(frozen=True, slots=True)
class ConfigChoice:
    """The file that a command changes, as its options name it."""

    user: bool = False
    folder: bool = False
    file: Path | None = None


Config = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="Use only this configuration file. Default: servers.json in your configuration folder, overridden by "
        "./servers.json if you trust it.",
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Trust the ./servers.json of this folder for this run.")]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="A profile of the configuration. Default: DIAL_PROFILE, else none."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        metavar="NAME",
        help="The model, such as openai:ID, anthropic:ID or local. Also chat:ID (any OpenAI-compatible endpoint), "
        "ollama:ID, dial:ID, azure:DEPLOYMENT, bedrock:ID, vertex:ID, foundry:ID, scripted:FILE, or one of the "
        "configuration's models.",
    ),
]
FallbackModel = Annotated[
    list[str] | None,
    typer.Option(
        "--fallback-model",
        metavar="NAME",
        help="A model to ask if the first one cannot answer. May be given several times.",
    ),
]
BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="The model's endpoint.")]
ToolFormat = Annotated[
    Format | None,
    typer.Option("--tool-format", metavar="FORMAT", help="How calls are written: native, react, xml or auto."),
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="Instructions for the model.")]
MaxDepth = Annotated[
    int | None, typer.Option("--max-depth", metavar="N", help="At most N rounds of tool calls; 10 by default.")
]
Timeout = Annotated[float | None, typer.Option("--timeout", metavar="S", help="Seconds for a turn; 120 by default.")]
ToolTimeout = Annotated[
    float | None, typer.Option("--tool-timeout", metavar="S", help="Seconds for one tool call; 60 by default.")
]
NoStream = Annotated[bool, typer.Option("--no-stream", help="Do not stream: request the answer in one piece.")]
OutputForm = Annotated[
    Output, typer.Option("--output", metavar="FORM", help="The form of the answer: text, json, jsonl or sse.")
]
Schema = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Print only an answer in JSON of this schema. FILE has a JSON Schema; an answer that does not fit it is "
        "not printed.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="PATTERN", help="Tools that run without asking, like 'time/*'. As SERVER/TOOL; repeatable."
    ),
]
Deny = Annotated[
    list[str] | None,
    typer.Option(
        "--deny", metavar="PATTERN", help="Tools that never run; overrides --allow. As SERVER/TOOL or TOOL; repeatable."
    ),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Run all calls that no rule denies, without asking.")]
Policy = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="Rules that allow, ask about or deny calls. They are checked before other rules.",
    ),
]
Sampling = Annotated[
    bool,
    typer.Option(
        "--sampling",
        help="Let servers use your model, if you consent. This is MCP sampling: it has a budget, and you are asked "
        "unless you have allowed it for the session.",
    ),
]
Continue = Annotated[bool, typer.Option("--continue", help="Continue the latest conversation.")]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="[ID|WORDS]",
        help="Continue this conversation, or choose one. Name it by the beginning of its id, or by words in it.",
    ),
]
NoSave = Annotated[bool, typer.Option("--no-save", help="Do not store conversations.")]
Record = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Record the conversation. -m scripted:FILE replays it."),
]
ChatVerbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show reasoning, tokens and cost of each answer.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Write a log. In a terminal it goes into a file, else to standard error.")
]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="Print answers as the model writes them. In a terminal too, line by line."),
]
ThemeName = Annotated[
    str, typer.Option("--theme", metavar="NAME", help="Colours of answers: auto, dark, light, ansi or mono.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only answers, questions and errors: no banner.")]
PromptFile = Annotated[
    Path | None, typer.Option("-f", "--file", metavar="FILE", help="Read the prompt from a file; - is standard input.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print details on standard error.")]
InstallCompletion = Annotated[
    bool,
    typer.Option(
        "--install-completion",
        help="Let your shell complete dial-chat. PROMPT may name the shell: bash, zsh, fish or powershell.",
    ),
]
ShowCompletion = Annotated[
    bool, typer.Option("--show-completion", help="Print what --install-completion would install.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoAudit = Annotated[
    bool, typer.Option("--no-audit", help="Write no audit log of tool calls. DIAL_AUDIT=off does the same.")
]
AuditArguments = Annotated[
    bool, typer.Option("--audit-arguments", help="Write the arguments of calls into the audit log.")
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="The address to listen on. Anything but loopback is reachable by other machines.",
    ),
]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port to listen on; 0 picks a free one.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="The token clients must send. Default: DIAL_SERVE_TOKEN, else a generated one, which is printed.",
    ),
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Require no token: every program on this machine has access. Loopback only.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="A host name that clients may use in the Host header. Repeatable."
    ),
]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Where conversations are stored: a SQLite file, or postgresql://…"),
]
Durable = Annotated[
    bool,
    typer.Option(
        "--durable", help="Finish every turn even if a process dies. Needs pip install 'dial-client[durable]'."
    ),
]
Lock = Annotated[
    list[str] | None,
    typer.Option(
        "--lock",
        metavar="SETTING",
        help="A setting that conversations cannot change, such as model, or all. Repeatable.",
    ),
]
AllowAdmin = Annotated[
    bool, typer.Option("--allow-admin", help="Let clients add and change servers, which runs programs here.")
]
MaxTurns = Annotated[
    int, typer.Option("--max-turns", min=1, metavar="N", help="At most N turns at once; further requests must retry.")
]
