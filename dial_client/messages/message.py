"""The data of conversations: roles, messages, the tool calls that a model requests, and their results.

All types are frozen and independent of providers: a provider converts them to the form of its API for each request.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import dropwhile, groupby, islice, takewhile
from typing import Any

from dial_client.messages.citations import Citation, parse_citations
from dial_client.messages.mcp_apps import App
from dial_client.messages.vendor_forms import VendorForms
from dial_client.runtime.json_fields import expect_object, expect_optional_text, expect_span, expect_text
from dial_client.runtime.safe_text import sanitize, to_one_line

# The name of the conversation's own model among its agents, with which the path of an agent begins.
MAIN = "main"
# What separates the names in the path of an agent: ``main > reviewer``.
PATH_SEPARATOR = " > "


class EntryKind(StrEnum):
    """The kinds of entries that this release writes."""

    BRANCH = "branch"
    """``{"head"}``: the position of the message that the next message follows; -1 for the beginning."""
    REMOVAL = "removal"
    """``{"positions"}``: the positions of messages that no version shows any more."""
    TURN = "turn"
    """The details of the turn that ended before the entry (`conversations.persistence`)."""
    AGENT = "agent"
    """What an agent has done whose call has not ended (`tools.agent_progress`)."""
    SETTINGS = "settings"
    """The settings of the conversation from here on (`conversations.conversation_settings`)."""
    TASK = "task"
    """The task with which a server has answered a call (`tools.background_calls`)."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a stored conversation, which is not a message."""

    kind: str
    """A value of `EntryKind`, or a kind that only a newer release knows, which is ignored."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The data of the entry, of JSON types only."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"kind", "data"}``."""
        return {"kind": self.kind, "data": dict(self.data)}

    @classmethod
    def from_dict(cls, data: Any) -> StoredEntry | None:
        """Read the form of `to_dict`; None if `data` is None.

        Raises:
            TypeError, KeyError: `data` is not an entry.
        """
        if data is None:
            return None
        if not isinstance(data["kind"], str) or not isinstance(data["data"], dict):
            raise TypeError("an entry has a kind and data")
        return cls(data["kind"], data["data"])


# The host's tool that searches for tools where there are many. The embedded model knows it too.
SEARCH_TOOLS = "search_tools"

MAX_ICONS = 8
# The most characters of a URL; a ``data:`` URL contains the image itself.
MAX_SOURCE = 100_000


@dataclass(frozen=True, slots=True)
class Icon:
    """An icon. An SVG may contain a script: show it as an image only."""

    src: str
    """An ``https:`` or ``data:`` URL, as the server sends it (MCP 2025-11-25, "Icons": other URLs must not be used)."""
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    """The sizes in pixels, such as ``48x48``, or ``any``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the icon as JSON."""
        return {"src": self.src, "mime_type": self.mime_type, "sizes": list(self.sizes)}


def read_icons(icons: Iterable[Any] | None) -> tuple[Icon, ...]:
    """Return the icons of a server (`mcp_types.Icon`) whose URLs are allowed and not too long."""
    usable = (icon for icon in icons or () if icon.src.startswith(("https:", "data:")) and len(icon.src) <= MAX_SOURCE)
    return tuple(Icon(icon.src, icon.mime_type, tuple(icon.sizes or ())) for icon in islice(usable, MAX_ICONS))


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text."""

    text: str
    foreign: bool = False
    """True for text of a server in the user's message: an attached resource."""


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, as MCP servers send them."""

    data: str = field(repr=False)
    """The bytes, in base64."""
    mime_type: str
    """The MIME type, such as ``image/png``."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A document that a user attaches, or an MCP server embeds."""

    data: str = field(repr=False)
    """The bytes, in base64."""
    mime_type: str
    """The MIME type, such as ``application/pdf``."""
    name: str = ""
    """The file name, for the model and the user: ``report.pdf``; empty if unknown."""


Part = TextPart | ImagePart | FilePart
Content = str | tuple[Part, ...]


class Failure(StrEnum):
    """The kind of a call's failure. The model always receives the failure as a text."""

    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    DENIED = "denied"
    TIMEOUT = "timeout"
    SERVER = "server"
    TOOL = "tool"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """A tool call that the model requests, with the offered name of the tool."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    """The arguments as a JSON object; empty if the model's text could not be parsed."""
    unreadable: str | None = None
    """The model's text for the arguments if it is not a JSON object; else None."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"id", "name", "arguments"}``, and ``unreadable`` if it is not None."""
        data = {"id": self.id, "name": self.name, "arguments": dict(self.arguments)}
        return data if self.unreadable is None else data | {"unreadable": self.unreadable}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCallRequest:
        """Read the form of `to_dict`, or OpenAI's ``{"id", "function": {"name", "arguments"}}``.

        Raises:
            ValueError: A part is missing or of the wrong type.
        """
        try:
            function = data.get("function", data)
            arguments = expect_object(function["arguments"])
            return cls(str(data["id"]), str(function["name"]), arguments, expect_optional_text(data.get("unreadable")))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a tool call: {error!r}") from error


# The fields of a result that exist only in the process of its call.
_UNSTORED = ("exception", "value")


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A tool call that waits for approval, and what the approver is asked about it. The call has not run."""

    id: str
    """Unique among all approvals, also of other turns; the same each time the approver is asked about this call."""
    call: ToolCallRequest
    """The call as it would run; its id is unique among the calls of its reply only."""
    server: str
    """The name in the configuration of the server that the call reaches."""
    tool: str
    """The server's own name of the tool."""
    reason: str = ""
    """Why the approver is asked although the call may be allowed otherwise, as `ApprovalContext.why_asked`."""
    change: str = ""
    """The difference between the tool's approved and its current definition, as `ApprovalContext.change`."""
    digest: str = ""
    """The SHA-256, in hex digits, of the arguments and the tool's definition. A decision holds for these only."""
    snippet: Mapping[str, Any] | None = field(default=None, repr=False)
    """The paused program that makes the call, sealed (`tools.snippets.sealed_states`); None for a call of the model.
    Its ``call`` is the id of the program's own call. A program is in one approval, that of its first call that
    waits: the others are asked about one after the other, each when the program was resumed with the answer before."""
    agent: str = ""
    """The path of the agent that makes the call, ``main > reviewer``; empty for the turn itself."""
    messages: tuple[Message, ...] = field(default=(), repr=False)
    """For the call of an agent whose own calls wait: the messages of its turn so far. `find_pending_approvals` has the
    approvals of those calls in place of this one."""

    @property
    def waiting_id(self) -> str:
        """The id of the call of the model that waits: the call itself, or that of the program that makes it."""
        return self.call.id if self.snippet is None else str(self.snippet["call"])

    def to_dict(self) -> dict[str, Any]:
        """Return the approval in JSON types; `from_dict` builds an equal one."""
        texts = {"server": self.server, "tool": self.tool, "reason": self.reason, "change": self.change}
        snippet = {} if self.snippet is None else {"snippet": dict(self.snippet)}
        agent: dict[str, Any] = {"agent": self.agent} if self.agent else {}
        if self.messages:
            agent["messages"] = [message.to_dict() for message in self.messages]
        return {"id": self.id, "call": self.call.to_dict(), **texts, "digest": self.digest, **snippet, **agent}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PendingApproval:
        """Read the form of `to_dict`.

        Raises:
            ValueError: `data` is not an approval.
        """
        try:
            server, tool, *texts = (
                expect_text(data[name]) for name in ("server", "tool", "reason", "change", "digest")
            )
            snippet = None if data.get("snippet") is None else expect_object(data["snippet"])
            if snippet is not None:
                expect_text(snippet["call"])
            reason, change, digest = texts
            call = ToolCallRequest.from_dict(data["call"])
            id_, agent = expect_text(data["id"]), expect_text(data.get("agent", ""))
            messages = tuple(Message.from_dict(message) for message in data.get("messages", ()))
            return cls(id_, call, server, tool, reason, change, digest, snippet, agent, messages)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an approval: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """The result of a tool call. A failed call has a result too, whose `content` the model receives as well."""

    tool_call_id: str
    success: bool
    content: Content
    """The content for the model; for a failure, the problem and what was expected."""
    error: str | None = None
    """The failure in one line; None for a success."""
    failure: Failure | None = None
    """The kind of the failure; None for a success."""
    taint: str = ""
    """The untrusted source of the content, as in `Message.taint`."""
    app: App | None = None
    """The MCP App that shows the result; None if there is none, or the client does not show apps."""
    pending: PendingApproval | None = None
    """The approval that the call waits for; None for any other result."""
    citations: tuple[Citation, ...] = ()
    """The sources that a function cites; the answer of the turn has them too."""
    background: str = ""
    """The id of a call that goes on in the background, whose content says so; empty for a call that has ended."""
    handoff: str = ""
    """The agent that has the conversation after the call, or `MAIN`; empty for a call that changes nothing of it."""
    kept: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The names that a program has left for the next one, sealed (`tools.snippets.sealed_states`); without any entry if
    those of earlier programs do not hold any more, None if they do. Not in `to_dict`: the message has them."""
    value: Any = field(default=None, compare=False, repr=False)
    """The result as a value: the object that a function returned, or the structured content of a server's tool. None if
    there is none, and in a result that was stored, pickled or sent."""
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """The exception of a function, an approver or a middleware that made the call fail; None if there was none, and in
    a result that was stored, pickled or sent."""
    decided_by: str = field(default="", compare=False, repr=False)
    """What a middleware that answers in place of the tool names in the audit log; empty for ``middleware``. Not in
    `to_dict`."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A value and an exception may hold what cannot be pickled. Not `__getstate__`: up to Python 3.11.2, a frozen
        # dataclass with slots replaces it.
        return type(self), tuple(None if item.name in _UNSTORED else getattr(self, item.name) for item in fields(self))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"tool_call_id", "success", "content", "error"}``, and other fields if they are set.

        These are ``failure``, ``taint``, ``app``, ``pending``, ``citations``, ``background`` and ``handoff``.
        """
        content = content_to_json(self.content)
        rare: dict[str, Any] = {
            "failure": self.failure and self.failure.value,
            "taint": self.taint,
            "app": self.app and self.app.to_dict(),
            "pending": self.pending and self.pending.to_dict(),
            "citations": [citation.to_dict() for citation in self.citations],
            "background": self.background,
            "handoff": self.handoff,
        }
        return {
            "tool_call_id": self.tool_call_id,
            "success": self.success,
            "content": content,
            "error": self.error,
            **{name: value for name, value in rare.items() if value},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCallResult:
        """Read the form of `to_dict`.

        Raises:
            ValueError: `data` is not the result of a call.
        """
        try:
            failure = data.get("failure")
            return cls(
                tool_call_id=expect_text(data["tool_call_id"]),
                success=data["success"] is True,
                content=content_from_json(data["content"]),
                error=expect_optional_text(data.get("error")),
                failure=None if failure is None else Failure(failure),
                taint=expect_text(data.get("taint", "")),
                app=App.from_optional(data.get("app")),
                pending=_read_pending(data),
                citations=parse_citations(data),
                background=expect_text(data.get("background", "")),
                handoff=expect_text(data.get("handoff", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the result of a call: {error!r}") from error

    @classmethod
    def failed(cls, call_id: str, failure: Failure, error: str) -> ToolCallResult:
        """Return the result of a failed call.

        Args:
            call_id: The id of the call.
            failure: The kind of the failure.
            error: One short sentence for the model: the problem, and how to correct the call.
        """
        return cls(call_id, success=False, content=error, error=error, failure=failure)


@dataclass(frozen=True, slots=True)
class ProviderState:
    """Opaque data that a provider needs back unchanged with later requests: signatures, reasoning items."""

    provider: str
    data: Any
    """The data, of JSON types only."""


@dataclass(frozen=True, slots=True)
class Message(VendorForms):
    """One message of a conversation."""

    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCallRequest, ...] = ()
    """The tool calls that an assistant message requests, in order."""
    tool_call_id: str | None = None
    """The id of the call whose result a tool message is."""
    name: str | None = None
    """The offered name of the tool whose result a tool message is."""
    is_error: bool = False
    """True for the result of a failed call."""
    echo: ProviderState | None = field(default=None, repr=False)
    taint: str = ""
    """The untrusted source of the content, a tool or a server; empty if there is none. See `tools.taint`."""
    replaces: tuple[int, int] | None = None
    """In a stored conversation: the range ``(start, stop)`` of positions that this edit replaces (`history`)."""
    citations: tuple[Citation, ...] = ()
    """The sources of an assistant message."""
    app: App | None = field(default=None, repr=False)
    """The MCP App that shows the result in a tool message; it is not sent to models."""
    pending: PendingApproval | None = field(default=None, repr=False)
    """In a tool message: the approval that the call waits for. A later result of the call replaces this message."""
    entry: StoredEntry | None = None
    """In a stored conversation: a record without text, such as new settings (`message_tree`); it is never shown."""
    steers: bool = False
    """In a message of the user: it was sent while a turn ran, and belongs to this turn (`TurnHandle.steer`)."""
    agent: str = ""
    """In a message of a model: the agent that has written it, which has taken the conversation over; empty for the
    conversation's own model. In a tool message: the agent that has the conversation from here on, or `MAIN`."""
    kept: Mapping[str, Any] | None = field(default=None, repr=False)
    """In a tool message: the names that a program has left for the next one, as in `ToolCallResult.kept`; they are not
    sent to models."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(self.role))
        content: Any = self.content
        if not isinstance(content, str):
            parts = tuple(content) if isinstance(content, list | tuple) else (content,)
            if wrong := [type(part).__name__ for part in parts if not isinstance(part, Part)]:
                raise TypeError(f"the content of a message is a text or parts, such as TextPart, not {wrong[0]}")
            object.__setattr__(self, "content", parts)

    @classmethod
    def user(cls, text: str) -> Message:
        """Return a message of the user."""
        return cls(Role.USER, text)

    @classmethod
    def system(cls, text: str) -> Message:
        """Return a system message: instructions of the program."""
        return cls(Role.SYSTEM, text)

    @classmethod
    def assistant(cls, text: str, tool_calls: Sequence[ToolCallRequest] = ()) -> Message:
        """Return a message of the model."""
        return cls(Role.ASSISTANT, text, tuple(tool_calls))

    @classmethod
    def tool(cls, call: ToolCallRequest, result: ToolCallResult) -> Message:
        """Return the message that sends the result of a call to the model."""
        sent: dict[str, Any] = {"tool_call_id": result.tool_call_id, "name": call.name, "taint": result.taint}
        sent |= {"app": result.app, "pending": result.pending, "agent": result.handoff, "kept": result.kept}
        return cls(Role.TOOL, result.content, is_error=not result.success, **sent)

    @property
    def text(self) -> str:
        """The text of the content, without its other parts."""
        return extract_text(self.content)

    @property
    def is_question(self) -> bool:
        """Whether the message begins a turn: a message of the user that was not sent while a turn ran."""
        return self.role is Role.USER and not self.steers

    def without_echo(self) -> Message:
        """Return the message without its echo."""
        return self if self.echo is None else replace(self, echo=None)

    def without_kept(self) -> Message:
        """Return the message without the names of a program, which are of use in the stored conversation alone."""
        return self if self.kept is None else replace(self, kept=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON, without empty fields; `from_dict` restores an equal message."""
        rare = {
            "tool_calls": [call.to_dict() for call in self.tool_calls],
            "citations": [citation.to_dict() for citation in self.citations],
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "taint": self.taint or None,
            "is_error": self.is_error,
            "app": self.app and self.app.to_dict(),
            "pending": self.pending and self.pending.to_dict(),
            "echo": self.echo and {"provider": self.echo.provider, "data": self.echo.data},
            "entry": self.entry and self.entry.to_dict(),
            "replaces": self.replaces and list(self.replaces),
            "steers": self.steers,
            "agent": self.agent or None,
            "kept": None if self.kept is None else dict(self.kept),
        }
        data = {"role": self.role.value, "content": content_to_json(self.content)}
        return data | {name: value for name, value in rare.items() if value not in (None, [], False)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Read the form of `to_dict`, or OpenAI's form of messages with text and tool calls.

        Raises:
            ValueError: `data` is not a message.
        """
        try:
            echo = data.get("echo")
            return cls(
                role=Role(data["role"]),
                content=content_from_json(data.get("content")),
                tool_calls=tuple(ToolCallRequest.from_dict(call) for call in data.get("tool_calls") or ()),
                tool_call_id=expect_optional_text(data.get("tool_call_id")),
                name=expect_optional_text(data.get("name")),
                is_error=bool(data.get("is_error", False)),
                echo=ProviderState(echo["provider"], echo["data"]) if echo else None,
                taint=expect_optional_text(data.get("taint")) or "",
                replaces=expect_span(data.get("replaces")),
                citations=parse_citations(data),
                app=App.from_optional(data.get("app")),
                pending=_read_pending(data),
                entry=StoredEntry.from_dict(data.get("entry")),
                steers=bool(data.get("steers", False)),
                agent=expect_optional_text(data.get("agent")) or "",
                kept=None if data.get("kept") is None else expect_object(data["kept"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a message: {error!r}") from error


def find_agent(messages: Sequence[Message]) -> str:
    """Return the agent that has the conversation after these messages; empty for the conversation's own model."""
    for message in reversed(messages):
        if message.role is Role.ASSISTANT or (message.role is Role.TOOL and message.agent):
            return "" if message.agent == MAIN else message.agent
    return ""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to the model, and the server that has it."""

    name: str
    """The offered name: ``^[a-zA-Z0-9_-]{1,64}$``, unique among all servers."""
    description: str
    input_schema: Mapping[str, Any]
    """A JSON Schema that every provider accepts, with the type ``object`` at the top."""
    server: str = ""
    """The server's name in the configuration."""
    tool: str = ""
    """The server's own name of the tool."""
    title: str | None = None
    """A name to show to users; None if the server has none."""
    original_schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The input schema as the server sent it, against which arguments are checked."""
    output_schema: Mapping[str, Any] | None = field(default=None, repr=False)
    """The schema of structured results; None if there is none."""
    read_only: bool = False
    """True if the server claims that the tool changes nothing; the claim is not verified."""
    idempotent: bool = False
    """True if the server claims that a repeated call has no further effect; the claim is not verified."""
    destructive: bool | None = None
    """The server's claim whether the tool may destroy data; None without a claim, which counts as True."""
    open_world: bool | None = None
    """The server's claim whether the tool reaches other systems, such as the web; None without a claim."""
    icons: tuple[Icon, ...] = field(default=(), repr=False)
    app_uri: str = ""
    """The ``ui://`` URI of the MCP App that shows the tool's results; empty if there is none."""
    removed_invisible: int = 0
    """The number of invisible characters that were removed from the title and the description."""
    deferred: bool = False
    """True if an endpoint with tool search shows the tool to the model only when a search finds it."""


def _read_pending(data: Mapping[str, Any]) -> PendingApproval | None:
    pending = data.get("pending")
    return None if pending is None else PendingApproval.from_dict(pending)


def find_pending_approvals(messages: Sequence[Message]) -> tuple[PendingApproval, ...]:
    """Return the approvals that the calls at the end of a history wait for, in the order of the results.

    The approvals that an agent waits for are in the place of its call. Of several calls of a paused program that wait,
    the first is there alone (`PendingApproval.snippet`).
    """
    return tuple(
        approval
        for waiting in find_waiting_calls(messages)
        for approval in (find_pending_approvals(waiting.messages) if waiting.messages else (waiting,))
    )


def find_waiting_calls(messages: Sequence[Message]) -> tuple[PendingApproval, ...]:
    """Return what is asked about each call of the last reply of a history that waits, also of those of agents.

    The messages of the user that steered the turn meanwhile may follow the results.
    """
    latest = dropwhile(lambda message: message.steers, reversed(messages))
    results = takewhile(lambda message: message.role is Role.TOOL, latest)
    return tuple(message.pending for message in results if message.pending is not None)[::-1]


def order_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a history with the results after each reply in the order of its calls."""
    ordered: list[Message] = []
    order: dict[str | None, int] = {}
    for is_result, group in groupby(messages, lambda message: message.role is Role.TOOL):
        if is_result:
            ordered += sorted(group, key=lambda result: order.get(result.tool_call_id, len(order)))
        else:
            ordered += group
            order = {call.id: index for index, call in enumerate(ordered[-1].tool_calls)}
    return tuple(ordered)


def extract_text(content: Content) -> str:
    """Return the text in a message's content, without other parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def describe(part: ImagePart | FilePart) -> str:
    """Return the name, type and size of an image or a file as text, to show in its place."""
    if isinstance(part, ImagePart):
        kind, name = to_one_line(part.mime_type, _MAX_WORD) or "an image", ""
    else:
        kind, name = to_one_line(part.mime_type, _MAX_WORD) or "a file", to_one_line(part.name, _MAX_WORD)
    return f"{name and f'{name}, '}{kind}, about {max(1, len(part.data) * 3 // 4000)} kB"


# The content that the model receives for a result without text.
NO_OUTPUT = "(no output)"
# The most characters of a name or a MIME type in such a text.
_MAX_WORD = 120


def content_to_json(content: Content) -> Any:
    """Return content as JSON: a string, or a list with an object for each part.

    The objects are ``{"type": "text", "text"}``, with ``"foreign": true`` if set, ``{"type": "image", "data",
    "mime_type"}``, or ``{"type": "file", "data", "mime_type", "name"}``.
    """
    if isinstance(content, str):
        return content
    return [_part_to_json(part) for part in content]


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text, foreign):
            return {"type": "text", "text": text} | ({"foreign": True} if foreign else {})
        case ImagePart(data, mime_type):
            return {"type": "image", "data": data, "mime_type": mime_type}
        case FilePart(data, mime_type, name):
            return {"type": "file", "data": data, "mime_type": mime_type, "name": name}


def content_from_json(content: Any) -> Content:
    """Read the form of `content_to_json`.

    Raises:
        ValueError, TypeError, KeyError: The value is not content.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return tuple(_part_from_json(part) for part in content)


def _part_from_json(part: Mapping[str, Any]) -> Part:
    match part["type"]:
        case "text":
            return TextPart(expect_text(part["text"]), part.get("foreign") is True)
        case "image":
            return ImagePart(expect_text(part["data"]), expect_text(part["mime_type"]))
        case "file":
            return FilePart(
                expect_text(part["data"]), expect_text(part["mime_type"]), expect_text(part.get("name", ""))
            )
        case kind:
            raise ValueError(f"not a content part: {kind!r}")


def describe_content(content: Content) -> str:
    """Return the text of a content; an image or a file is replaced by its description in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else f"[{describe(part)}]" for part in content)


# The beginning of the result of a call that the user denied.
NOT_ALLOWED = "The user did not allow this call"
_NOT_RUN = "Not run: "
_INTERRUPTED = "Interrupted: "


def build_not_run_result(call_id: str, why: str, failure: Failure = Failure.NOT_RUN) -> ToolCallResult:
    """Return the result of a call that was not made."""
    return ToolCallResult.failed(call_id, failure, f"{_NOT_RUN}{why}")


def build_waiting_result(pending: PendingApproval) -> ToolCallResult:
    """Return the result of a call that waits for approval."""
    return replace(build_not_run_result(pending.waiting_id, "it waits for approval."), pending=pending)


def build_interrupted_result(call_id: str, why: str) -> ToolCallResult:
    """Return the result of a call that was made, and that ended without a result."""
    unknown = "It is not known whether the tool did its work."
    return ToolCallResult.failed(call_id, Failure.NOT_RUN, f"{_INTERRUPTED}{why}. {unknown}")


def is_host_result(message: Message) -> bool:
    """Return whether a tool result is one that the host wrote itself, by its beginning, which a server can imitate."""
    return message.is_error and message.text.startswith((NOT_ALLOWED, _NOT_RUN, _INTERRUPTED))


# The maximum bytes of a text file.
MAX_TEXT = 256_000

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decode_text_file(data: bytes) -> str | None:
    """Return the text of a file, with line feeds at the ends of lines; None if the file is not text."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")


def build_text_part(name: str, text: str) -> TextPart:
    """Return the part of a message for an attached text file; the page finds the file by this form."""
    return TextPart(sanitize(f"[file {name}; the user attached it]\n{text}\n[end of file]"), foreign=True)
