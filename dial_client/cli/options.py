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
    """What the audit log records."""

    ON = "on"
    OFF = "off"
    ARGUMENTS = "arguments"
    """The arguments of calls, too."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a chat; commands that need fewer use fewer."""

    config: Path | None = None
    model: str | None = None
    base_url: str | None = None
    tool_format: Format | None = None
    system: str | None = None
    max_depth: int | None = None
    timeout: float | None = None
    tool_timeout: float | None = None
    stream: bool = True
    output: Output = Output.TEXT
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    yes: bool = False
    """Nothing is asked: what no rule denies is allowed. Not the same as ``allow=("*",)``."""
    policy: Path | None = None
    continue_latest: bool = False
    resume: str | None = None
    save: bool = True
    record: Path | None = None
    verbose: bool = False
    sampling: bool = False
    audit: AuditMode = AuditMode.ON
    command: str = "dial-chat"
    """As the audit log names the program."""
    trust: bool = False

    @classmethod
    def of_command(cls, parameters: Mapping[str, Any], **fixed: Any) -> Options:
        """Return the options among the parameters of a command, by their names; `fixed` overrides them."""
        own = {field.name for field in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in parameters.items() if name in own}
        patterns = {name: tuple(values.get(name) or ()) for name in ("allow", "deny")}
        stream, save = (not parameters.get(name, False) for name in ("no_stream", "no_save"))
        return cls(**(values | patterns | {"stream": stream, "save": save, "audit": _audit_mode(parameters)} | fixed))


def _audit_mode(parameters: Mapping[str, Any]) -> AuditMode:
    if parameters.get("no_audit", False):
        return AuditMode.OFF
    return AuditMode.ARGUMENTS if parameters.get("audit_arguments", False) else AuditMode.ON


Config = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="The servers. Default: ./servers.json if you trust it, else servers.json in your configuration folder.",
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Trust the ./servers.json of this folder, for this run only.")]
Model = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        metavar="NAME",
        help="openai:ID, anthropic:ID, chat:ID, ollama:ID, dial:ID, local, scripted:FILE, or one of the file's models.",
    ),
]
BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="The model's endpoint.")]
ToolFormat = Annotated[Format | None, typer.Option("--tool-format", help="How tool calls ride.")]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="Instructions for the model.")]
MaxDepth = Annotated[int | None, typer.Option("--max-depth", metavar="N", help="Rounds of tool calls. Default: 10.")]
Timeout = Annotated[float | None, typer.Option("--timeout", metavar="S", help="Seconds for a turn. Default: 120.")]
ToolTimeout = Annotated[
    float | None, typer.Option("--tool-timeout", metavar="S", help="Seconds for one tool call. Default: 60.")
]
NoStream = Annotated[bool, typer.Option("--no-stream", help="Ask the model for its answer in one piece.")]
OutputForm = Annotated[Output, typer.Option("--output", help="The form of the answer on standard output.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="PATTERN", help="Tools that run without asking, as SERVER/TOOL: 'time/*'. Repeatable."
    ),
]
Deny = Annotated[
    list[str] | None,
    typer.Option("--deny", metavar="PATTERN", help="Tools that never run, as SERVER/TOOL or TOOL; wins. Repeatable."),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Allow all calls that no rule denies, and ask nothing.")]
Policy = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="Rules that allow, ask about or deny calls; they come first."),
]
Sampling = Annotated[
    bool,
    typer.Option("--sampling", help="Let servers ask your model, a little in a turn, each time with your consent."),
]
Continue = Annotated[bool, typer.Option("--continue", help="Go on with the latest conversation.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID", help="Go on with this conversation.")]
NoSave = Annotated[bool, typer.Option("--no-save", help="Do not keep this conversation.")]
Record = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Write the conversation down; -m scripted:FILE plays it again."),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say on standard error what is done.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoAudit = Annotated[
    bool, typer.Option("--no-audit", help="Write no audit log of tool calls; DIAL_AUDIT=off does the same.")
]
AuditArguments = Annotated[
    bool, typer.Option("--audit-arguments", help="Write the arguments of tool calls into the audit log.")
]
Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; elsewhere than on loopback with care.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="0 picks one that is free.")]
Token = Annotated[
    str | None,
    typer.Option("--token", help="What clients have to show; else DIAL_SERVE_TOKEN, else one is made and printed."),
]
NoToken = Annotated[bool, typer.Option("--no-token", help="Let in every program on this machine. On loopback only.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name by which clients may call this server. Repeatable."),
]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Where conversations are kept: a SQLite file, or postgresql://…"),
]
Durable = Annotated[
    bool,
    typer.Option(
        "--durable", help="Answer what was asked, whichever process dies; with pip install 'dial-client[durable]'."
    ),
]
MaxTurns = Annotated[
    int, typer.Option("--max-turns", min=1, metavar="N", help="Turns at once; more are asked to wait.")
]
