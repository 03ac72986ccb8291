"""A script, read from JSON: the replies of a model, and, of a recording, what its servers said. `scripted` plays it.

What is wrong in a file is a `ConfigError` that says where, and what was expected.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dial_client.errors import ConfigError, ProviderError
from dial_client.messages import ToolCallRequest, Usage
from dial_client.model import FinishReason
from dial_client.providers.endpoint_profile import is_valid_flag
from dial_client.settings.config_types import Wire

VERSION = 1
"""Of recordings."""
MAX_BYTES = 512 * 1024 * 1024
"""Of a file."""
_MAX_HEAD = 65_536
"""Characters of the first line of a recording."""


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply in plain words, as `scripted` describes it."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallRequest, ...] = ()
    finish: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    notes: tuple[str, ...] = ()
    echo: Any = None
    chunks: tuple[str, ...] = ()
    chunk_size: int = 0
    completion: bool = True
    error: ProviderError | None = None
    hang: bool = False


@dataclass(frozen=True, slots=True)
class WireReply:
    """One answer of an endpoint, byte by byte, as `scripted` describes it."""

    wire: Wire
    body: bytes = b""
    status: int = 200
    breaks: str | None = None
    """How it breaks off behind the body, in words; empty for no words of its own."""
    hang: bool = False
    chunk_size: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RecordedServer:
    """What one server said, in JSON's types and MCP's names."""

    tools: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By their names, each as it was last listed."""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    """In the order in which they ended: ``called`` and one of ``result``, ``error``, ``denied``, ``cancelled``."""
    failed: bool = False
    """It was not there."""


@dataclass(frozen=True, slots=True)
class Script:
    """All that a file says."""

    replies: tuple[ScriptedReply | WireReply, ...] = ()
    repeats: bool = False
    provider: str = ""
    """Of a recording: the name of the provider that was asked."""
    tool_format: str | None = None
    """Of a recording: how calls rode."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Of a recording: those of the endpoint's flags that its replies are read by."""
    servers: Mapping[str, RecordedServer] | None = None
    """Of a recording: the servers that were there; None for any other script."""


def read_file(path: str | os.PathLike[str]) -> Script:
    """Read a file.

    Raises:
        ConfigError: it is missing, or wrong.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=name) from None
    except ValueError as error:
        raise ConfigError(f"this is no JSON: {error}", path=name) from None
    if len(text) > MAX_BYTES:
        raise ConfigError(f"this is larger than {MAX_BYTES // 1024**2} MiB", path=name)
    reader = _ScriptReader(name)
    if _is_recording(text):
        return reader.recording(text)
    script = reader.json(text, 1)
    known = reader.checked(
        {"replies": script} if isinstance(script, list) else script, "the script", {"replies": list, "after": str}
    )
    if "replies" not in known:
        raise ConfigError("there are no replies", hint='expected {"replies": […]}, or a list', path=name)
    return read_replies(known["replies"], known.get("after", "error"), name)


def read_replies(replies: Sequence[Any], after: str, path: str) -> Script:
    """Read replies in any of their forms.

    Args:
        replies: the replies.
        after: what is played behind the last: ``"error"`` or ``"repeat"``.
        path: the file they come from, for error messages.

    Raises:
        ConfigError: a reply is wrong.
    """
    if after not in ("error", "repeat"):
        raise ConfigError("after: this is not a value for it", hint='expected "error" or "repeat"', path=path)
    read = _ScriptReader(path)
    return Script(tuple(read.reply(said, f"replies[{at}]") for at, said in enumerate(replies)), after == "repeat")


def is_recording_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is there and is a recording."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return _is_recording(file.readline(_MAX_HEAD))
    except (OSError, ValueError):
        return False


def _is_recording(text: str) -> bool:
    """Whether the first line is the head of a recording."""
    try:
        head = json.loads(text[:_MAX_HEAD].partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(head, dict) and "recording" in head


@dataclass(slots=True)
class _ScriptReader:
    """Reads parts of a script, and says what is wrong with them."""

    path: str
    calls: int = 0

    def json(self, text: str, line: int) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"this is no JSON: {error.msg}", path=self.path, line=error.lineno + line - 1, column=error.colno
            ) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is no JSON: {error}", path=self.path) from None

    def recording(self, text: str) -> Script:
        lines = self._lines(text)
        head = self.checked(next(lines)[1], "line 1", _HEAD)
        if head["recording"] != VERSION:
            raise self.wrong("line 1.recording", f"version {VERSION}")
        flags = self.checked(head.get("flags", {}), "line 1.flags", _FLAGS)
        for name, flag in flags.items():
            if not is_valid_flag(name, flag) or (name == "tool_name_re" and not _SIMPLE_PATTERN.fullmatch(flag)):
                raise self.wrong(f"line 1.flags.{name}", "a flag as a model's profile has it")
        flags = {name: tuple(flag) if isinstance(flag, list) else flag for name, flag in flags.items()}
        replies: list[ScriptedReply | WireReply] = []
        servers: dict[str, RecordedServer] = {}
        for number, said in lines:
            where = f"line {number}"
            line = self.checked(said, where, _LINE)
            if "replies" in line:
                replies += [self.reply(one, f"{where}.replies[{at}]") for at, one in enumerate(line["replies"])]
            elif "called" in line:
                called = self.checked(line["called"], f"{where}.called", _CALLED)
                for key in _CALLED:
                    self.needed(called, key, where)
                servers.setdefault(called["server"], RecordedServer()).calls.append(line)
            else:
                server = servers.setdefault(self.needed(line, "server", where), RecordedServer())
                server.failed = bool(line.get("failed")) and not server.tools
                tools = (self.checked(tool, f"{where}.tools", _TOOL) for tool in line.get("tools", ()))
                server.tools |= {self.needed(tool, "name", where): tool for tool in tools}
        return Script(
            tuple(replies),
            provider=head.get("provider", ""),
            tool_format=head.get("tool_format"),
            flags=flags,
            servers=servers,
        )

    def _lines(self, text: str) -> Iterator[tuple[int, Any]]:
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            is_torn = number == len(lines)  # whoever wrote it was killed: a whole line has its end
            try:
                value = self.json(line, number) if line.strip() else None
            except ConfigError:
                if is_torn:
                    return
                raise
            if value is not None:
                yield number, value

    def reply(self, said: Any, where: str) -> ScriptedReply | WireReply:
        if isinstance(said, ScriptedReply | WireReply):
            return said
        if isinstance(said, str):
            return ScriptedReply(text=said)
        if isinstance(said, Mapping) and "wire" in said:
            return self.wire_reply(said, where)
        known = self.checked(said, where, _REPLY)
        calls = known.get("tool_calls", [])
        known["tool_calls"] = tuple(self.call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls))
        if "finish" in known:
            if known["finish"] not in list(FinishReason):
                raise self.wrong(f"{where}.finish", " or ".join(FinishReason))
            known["finish"] = FinishReason(known["finish"])
        usage = dict.fromkeys((count.name for count in fields(Usage)), int)
        known["usage"] = Usage(**self.checked(known.get("usage", {}), f"{where}.usage", usage))
        known["notes"] = tuple(str(note) for note in known.get("notes", ()))
        known["chunks"] = tuple(str(chunk) for chunk in known.get("chunks", ()))
        if known["chunks"] and (known.get("text") or known.get("chunk_size")):
            raise self.wrong(f"{where}.chunks", "either chunks, or text and chunk_size")
        self.size(known, where)
        if "error" in known:
            error = self.checked(known["error"], f"{where}.error", _ERROR)
            wait = error.get("retry_after")
            if wait is not None and not 0 <= wait < math.inf:
                raise self.wrong(f"{where}.error.retry_after", "a number of seconds")
            known["error"] = ProviderError(error.pop("message", "the script says so"), **error)
        return ScriptedReply(**known)

    def wire_reply(self, said: Mapping[str, Any], where: str) -> WireReply:
        known = self.checked(said, where, _WIRE)
        if known["wire"] not in list(Wire):
            raise self.wrong(f"{where}.wire", " or ".join(Wire))
        if ("body" in known) == ("events" in known):
            raise self.wrong(where, "either body or events")
        if "events" in known:
            body = "".join(f"data: {_event_data(event)}\n\n" for event in known["events"])
        else:
            body = known["body"] if isinstance(known["body"], str) else json.dumps(known["body"])
        breaks = known.get("break", False)
        return WireReply(
            Wire(known["wire"]),
            body.encode("utf-8", "surrogateescape" if _has_escaped_bytes(body) else "replace"),
            known.get("status", 200),
            breaks if isinstance(breaks, str) else ("" if breaks else None),
            known.get("hang", False),
            self.size(known, where),
            tuple(str(note) for note in known.get("notes", ())),
        )

    def size(self, known: Mapping[str, Any], where: str) -> int:
        size: int = known.get("chunk_size", 0)
        if size < 0:
            raise self.wrong(f"{where}.chunk_size", "a number of characters, or of bytes of a wire")
        return size

    def call(self, said: Any, where: str) -> ToolCallRequest:
        if isinstance(said, ToolCallRequest):
            return said
        known = self.checked(said, where, _CALL)
        name = self.needed(known, "name", where, "the name of a tool")
        self.calls += 1
        call_id, arguments = known.get("id", f"call_{self.calls}"), known.get("arguments", {})
        if isinstance(arguments, dict):
            return ToolCallRequest(call_id, name, arguments)
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return ToolCallRequest(call_id, name, value)
        return ToolCallRequest(call_id, name, {}, unreadable=arguments)

    def needed(self, known: Mapping[str, Any], key: str, where: str, expected: str = "a string") -> str:
        if key not in known:
            raise self.wrong(f"{where}.{key}", expected)
        return str(known[key])

    def checked(self, said: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Give a copy of an object, if it has no other keys than these, with values of these types."""
        if not isinstance(said, Mapping):
            raise self.wrong(where, f"an object with {', '.join(kinds)}")
        for key, value in said.items():
            if key not in kinds:
                raise self.wrong(f"{where}.{key}", f"only {', '.join(kinds)}")
            kind = kinds[key] if isinstance(kinds[key], tuple) else (kinds[key],)
            if not isinstance(value, kind) or (isinstance(value, bool) and not {bool, object} & set(kind)):
                raise self.wrong(f"{where}.{key}", _type_names(kind))
        return dict(said)

    def wrong(self, where: str, expected: str) -> ConfigError:
        return ConfigError(f"{where}: this cannot be", hint=f"expected {expected}", path=self.path)


def _event_data(event: Any) -> str:
    return event if isinstance(event, str) else json.dumps(event)


def _has_escaped_bytes(body: str) -> bool:
    """Whether all its lone surrogates stand for bytes that are not UTF-8, as a recording writes them."""
    try:
        body.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _type_names(kinds: tuple[Any, ...]) -> str:
    names = {
        str: "a string",
        int: "a number",
        float: "a number",
        bool: "true or false",
        list: "a list",
        dict: "an object",
        Mapping: "an object",
    }
    return " or ".join(dict.fromkeys(names[one] for one in kinds if one in names))


_SIMPLE_PATTERN = re.compile(
    r"\^?(?:(?:\[[^\[\]\\]{1,80}\]|[A-Za-z0-9_-])(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?){0,4}\$?", re.ASCII
)
"""Of the regular expressions for names those that are matched in no time, whoever wrote the recording."""
_LIST = (list, tuple)
_REPLY: Mapping[str, Any] = {
    "text": str,
    "reasoning": str,
    "tool_calls": _LIST,
    "finish": str,
    "usage": Mapping,
    "notes": _LIST,
    "echo": object,
    "chunks": _LIST,
    "chunk_size": int,
    "completion": bool,
    "error": Mapping,
    "hang": bool,
}
_WIRE: Mapping[str, Any] = {
    "wire": str,
    "body": (str, dict, list),
    "events": _LIST,
    "status": int,
    "break": (bool, str),
    "hang": bool,
    "chunk_size": int,
    "notes": _LIST,
}
_CALL: Mapping[str, Any] = {"name": str, "arguments": (dict, str), "id": str}
_ERROR: Mapping[str, Any] = {
    "message": str,
    "status": (int, type(None)),
    "code": (str, type(None)),
    "retry_after": (int, float, type(None)),
}
_HEAD: Mapping[str, Any] = {"recording": int, "by": str, "provider": str, "tool_format": str, "flags": Mapping}
_FLAGS: Mapping[str, Any] = {"reasoning_in": list, "tool_name_re": str, "tool_name_len": int}
_LINE: Mapping[str, Any] = {
    "asked": Mapping,
    "replies": list,
    "server": str,
    "tools": list,
    "failed": bool,
    "called": Mapping,
    "result": Mapping,
    "error": Mapping,
    "denied": str,
    "cancelled": bool,
}
_CALLED: Mapping[str, Any] = {"server": str, "tool": str, "arguments": Mapping}
_TOOL: Mapping[str, Any] = {
    "name": str,
    "title": str,
    "description": str,
    "inputSchema": Mapping,
    "outputSchema": Mapping,
    "annotations": Mapping,
}
