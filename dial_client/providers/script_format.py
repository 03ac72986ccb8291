"""The parser of scripts: JSON files with the replies of a model, and the servers of a recording. `scripted` plays them.

An error in a file raises a `ConfigError` that names the place and the expected value.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.message import ToolCallRequest
from dial_client.messages.model import FinishReason
from dial_client.messages.token_usage import Usage
from dial_client.runtime.text import did_you_mean
from dial_client.settings.config_types import Api
from dial_client.settings.config_values import Node
from dial_client.settings.endpoint_profile import FLAGS


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A reply as text and calls, independent of any API. `scripted` describes the members."""

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
class ApiReply:
    """The HTTP response of an endpoint, as bytes. `scripted` describes the members."""

    api: Api
    body: bytes = b""
    status: int = 200
    breaks: str | None = None
    """The error message when the connection breaks after the body; empty for the default; None for no break."""
    hang: bool = False
    chunk_size: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RecordedServer:
    """The tools and calls of a recorded MCP server, as the JSON objects of MCP."""

    tools: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The last listed definition of each tool, by name."""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    """The calls in the order of completion: ``called``, and one of ``result``, ``error``, ``denied``, ``cancelled``."""
    failed: bool = False
    """True if the server was not available."""


@dataclass(frozen=True, slots=True)
class Script:
    """The parsed contents of a script."""

    replies: tuple[ScriptedReply | ApiReply, ...] = ()
    repeats: bool = False
    provider: str = ""
    """The name of the recorded provider; empty if the script is not a recording."""
    tool_format: str | None = None
    """The tool format of the recording; None for the API's own tool calls, or if the script is not a recording."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """The flags of the recorded endpoint's profile that affect the parsing of responses."""
    servers: Mapping[str, RecordedServer] | None = None
    """The recorded servers; None if the script is not a recording."""


# The version of the recording format.
VERSION = 1
# The most bytes of a file.
MAX_BYTES = 512 * 1024 * 1024
# The most characters of the first line of a recording.
_MAX_HEAD = 65_536


def read_file(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Script:
    """Return the script in a file.

    Raises:
        ConfigError: The file is missing, invalid, or larger than `max_bytes`.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=name) from None
    if len(data) > max_bytes:
        raise ConfigError(f"this is larger than {max_bytes:,} bytes", path=name)
    try:
        text = data.decode("utf-8-sig")
    except ValueError as error:
        raise ConfigError(f"this is not JSON: {error}", path=name) from None
    reader = _ScriptReader(name)
    if _is_recording(text):
        return reader.parse_recording(text)
    script = reader.parse_json(text, 1)
    members = reader.check(
        {"replies": script} if isinstance(script, list) else script, "the script", {"replies": list, "after": str}
    )
    if "replies" not in members:
        raise ConfigError("there are no replies", hint='expected {"replies": […]}, or a list', path=name)
    return read_replies(members["replies"], members.get("after", "error"), name)


def read_replies(replies: Sequence[Any], after: str, path: str) -> Script:
    """Return the script with the given replies.

    Args:
        replies: The replies, in any of the forms that `scripted` describes.
        after: The response after the last reply: ``"error"``, or ``"repeat"`` to repeat the last reply.
        path: The file of the replies, for error messages.

    Raises:
        ConfigError: A reply is invalid.
    """
    if after not in ("error", "repeat"):
        raise ConfigError("after: invalid value", hint='expected "error" or "repeat"', path=path)
    reader = _ScriptReader(path)
    return Script(
        tuple(reader.parse_reply(value, f"replies[{index}]") for index, value in enumerate(replies)), after == "repeat"
    )


def read_reply(value: Any, path: str) -> ScriptedReply | ApiReply:
    """Return a reply of a function, in any of the forms that `scripted` describes.

    Raises:
        ConfigError: The reply is invalid.
    """
    return _ScriptReader(path).parse_reply(value, "reply")


def is_recording_file(path: str | os.PathLike[str]) -> bool:
    """Return True if a file exists and is a recording."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return _is_recording(file.readline(_MAX_HEAD))
    except (OSError, ValueError):
        return False


def _is_recording(text: str) -> bool:
    """Return True if the first line is the header of a recording."""
    try:
        head = json.loads(text[:_MAX_HEAD].partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(head, dict) and "recording" in head


@dataclass(slots=True)
class _ScriptReader:
    """Parses the parts of a script, and raises a `ConfigError` for the first invalid part."""

    path: str
    calls: int = 0

    def parse_json(self, text: str, line: int) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"this is not JSON: {error.msg}", path=self.path, line=error.lineno + line - 1, column=error.colno
            ) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is not JSON: {error}", path=self.path) from None

    def parse_recording(self, text: str) -> Script:
        lines = self._split_lines(text)
        head = self.check(next(lines)[1], "line 1", _HEAD)
        if head["recording"] != VERSION:
            raise self.build_error("line 1.recording", f"version {VERSION}")
        replies: list[ScriptedReply | ApiReply] = []
        servers: dict[str, RecordedServer] = {}
        for number, value in lines:
            where = f"line {number}"
            line = self.check(value, where, _LINE)
            if "replies" in line:
                replies += [
                    self.parse_reply(reply, f"{where}.replies[{index}]") for index, reply in enumerate(line["replies"])
                ]
            elif "called" in line:
                called = self.check(line["called"], f"{where}.called", _CALLED)
                for key in _CALLED:
                    self.require(called, key, where)
                servers.setdefault(called["server"], RecordedServer()).calls.append(line)
            else:
                server = servers.setdefault(self.require(line, "server", where), RecordedServer())
                server.failed = bool(line.get("failed")) and not server.tools
                tools = (self.check(tool, f"{where}.tools", _TOOL) for tool in line.get("tools", ()))
                server.tools |= {self.require(tool, "name", where): tool for tool in tools}
        flags = self.check(head.get("flags", {}), "line 1.flags", _FLAGS)
        for name, flag in flags.items():
            try:
                flags[name] = FLAGS[name](Node(flag))
            except ConfigError:
                raise self.build_error(f"line 1.flags.{name}", "a flag as a model's profile has it") from None
            if name == "tool_name_re" and not _SIMPLE_PATTERN.fullmatch(flag):
                raise self.build_error(f"line 1.flags.{name}", "a flag as a model's profile has it")
        return Script(
            tuple(replies),
            provider=head.get("provider", ""),
            tool_format=head.get("tool_format"),
            flags=flags,
            servers=servers,
        )

    def _split_lines(self, text: str) -> Iterator[tuple[int, Any]]:
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            is_torn = number == len(lines)  # a complete line ends with a line feed: the writer was killed in this line
            try:
                value = self.parse_json(line, number) if line.strip() else None
            except ConfigError:
                if is_torn:
                    return
                raise
            if value is not None:
                yield number, value

    def parse_reply(self, value: Any, where: str) -> ScriptedReply | ApiReply:
        if isinstance(value, ScriptedReply | ApiReply):
            return value
        if isinstance(value, str):
            return ScriptedReply(text=value)
        if isinstance(value, Mapping) and "wire" in value:
            return self.parse_api_reply(value, where)
        members = self.check(value, where, _REPLY)
        calls = members.get("tool_calls", [])
        members["tool_calls"] = tuple(self.parse_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls))
        if "finish" in members:
            if members["finish"] not in list(FinishReason):
                raise self.build_error(f"{where}.finish", " or ".join(FinishReason))
            members["finish"] = FinishReason(members["finish"])
        usage = dict.fromkeys((count.name for count in fields(Usage)), int)
        members["usage"] = Usage(**self.check(members.get("usage", {}), f"{where}.usage", usage))
        members["notes"] = tuple(str(note) for note in members.get("notes", ()))
        members["chunks"] = tuple(str(chunk) for chunk in members.get("chunks", ()))
        if members["chunks"] and (members.get("text") or members.get("chunk_size")):
            raise self.build_error(f"{where}.chunks", "either chunks, or text and chunk_size")
        self.parse_chunk_size(members, where)
        if "error" in members:
            members["error"] = self.parse_error(members["error"], f"{where}.error")
        return ScriptedReply(**members)

    def parse_error(self, value: Any, where: str) -> ProviderError:
        error = self.check(value, where, _ERROR)
        wait = error.get("retry_after")
        if wait is not None and not 0 <= wait < math.inf:
            raise self.build_error(f"{where}.retry_after", "a number of seconds")
        return ProviderError(error.pop("message", "an error in the script"), **error)

    def parse_api_reply(self, value: Mapping[str, Any], where: str) -> ApiReply:
        members = self.check(value, where, _WIRE)
        if members["wire"] not in list(Api):
            raise self.build_error(f"{where}.wire", " or ".join(Api))
        if ("body" in members) == ("events" in members):
            raise self.build_error(where, "either body or events")
        if "events" in members:
            events = (event if isinstance(event, str) else json.dumps(event) for event in members["events"])
            text = "".join(f"data: {event}\n\n" for event in events)
        else:
            text = members["body"] if isinstance(members["body"], str) else json.dumps(members["body"])
        try:
            # In a recording, every lone surrogate encodes a byte of invalid UTF-8.
            body = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            body = text.encode("utf-8", "replace")
        breaks = members.get("break", False)
        return ApiReply(
            Api(members["wire"]),
            body,
            members.get("status", 200),
            breaks if isinstance(breaks, str) else ("" if breaks else None),
            members.get("hang", False),
            self.parse_chunk_size(members, where),
            tuple(str(note) for note in members.get("notes", ())),
        )

    def parse_chunk_size(self, members: Mapping[str, Any], where: str) -> int:
        size: int = members.get("chunk_size", 0)
        if size < 0:
            raise self.build_error(f"{where}.chunk_size", "a number of characters, or of bytes of a body")
        return size

    def parse_call(self, value: Any, where: str) -> ToolCallRequest:
        if isinstance(value, ToolCallRequest):
            return value
        members = self.check(value, where, _CALL)
        name = self.require(members, "name", where, "the name of a tool")
        self.calls += 1
        call_id, arguments = members.get("id", f"call_{self.calls}"), members.get("arguments", {})
        parsed = arguments
        if isinstance(arguments, str):
            with suppress(ValueError, RecursionError):
                parsed = json.loads(arguments)
        if isinstance(parsed, dict):
            return ToolCallRequest(call_id, name, parsed)
        return ToolCallRequest(call_id, name, {}, unreadable=arguments)

    def require(self, members: Mapping[str, Any], key: str, where: str, expected: str = "a string") -> str:
        if key not in members:
            raise self.build_error(f"{where}.{key}", expected)
        return str(members[key])

    def check(self, value: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of an object; raise an error if it has other keys or types of values than `kinds`."""
        if not isinstance(value, Mapping):
            raise self.build_error(where, f"an object with {', '.join(kinds)}")
        for key, member in value.items():
            if key not in kinds:
                raise self.build_unknown_key_error(where, str(key), kinds)
            kind = kinds[key] if isinstance(kinds[key], tuple) else (kinds[key],)
            if not isinstance(member, kind) or (isinstance(member, bool) and not {bool, object} & set(kind)):
                names = dict.fromkeys(_TYPE_NAMES[type_] for type_ in kind if type_ in _TYPE_NAMES)
                raise self.build_error(f"{where}.{key}", " or ".join(names))
        return dict(value)

    def build_unknown_key_error(self, where: str, key: str, known: Mapping[str, Any]) -> ConfigError:
        near = next((name for name in known if key and key in name), "")
        hint = did_you_mean(key, known) or (f'did you mean "{near}"?' if near else f"the keys are {', '.join(known)}")
        return ConfigError(f"{where}.{key}: unknown key", hint=hint, path=self.path)

    def build_error(self, where: str, expected: str) -> ConfigError:
        return ConfigError(f"{where}: wrong value", hint=f"expected {expected}", path=self.path)


# The accepted regular expressions for tool names. They match in linear time, so an untrusted recording is safe.
_SIMPLE_PATTERN = re.compile(
    r"\^?(?:(?:\[[^\[\]\\]{1,80}\]|[A-Za-z0-9_-])(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?){0,4}\$?", re.ASCII
)
_LIST = (list, tuple)
_REPLY: Mapping[str, Any] = {
    "text": str, "reasoning": str, "tool_calls": _LIST, "finish": str, "usage": Mapping, "notes": _LIST, "echo": object,
    "chunks": _LIST, "chunk_size": int, "completion": bool, "error": Mapping, "hang": bool,
}  # fmt: skip
_WIRE: Mapping[str, Any] = {
    "wire": str, "body": (str, dict, list), "events": _LIST, "status": int, "break": (bool, str), "hang": bool,
    "chunk_size": int, "notes": _LIST,
}  # fmt: skip
_CALL: Mapping[str, Any] = {"name": str, "arguments": (dict, str), "id": str}
_OR_NULL = type(None)
_ERROR: Mapping[str, Any] = {
    "message": str, "status": (int, _OR_NULL), "code": (str, _OR_NULL), "retry_after": (int, float, _OR_NULL),
}  # fmt: skip
_HEAD: Mapping[str, Any] = {"recording": int, "by": str, "provider": str, "tool_format": str, "flags": Mapping}
_FLAGS: Mapping[str, Any] = {"fenced_calls": bool, "reasoning_in": list, "tool_name_re": str, "tool_name_len": int}
_LINE: Mapping[str, Any] = {
    "asked": Mapping, "replies": list, "server": str, "tools": list, "failed": bool, "called": Mapping,
    "result": Mapping, "error": Mapping, "denied": str, "cancelled": bool,
}  # fmt: skip
_CALLED: Mapping[str, Any] = {"server": str, "tool": str, "arguments": Mapping}
_TOOL: Mapping[str, Any] = {
    "name": str, "title": str, "description": str, "inputSchema": Mapping, "outputSchema": Mapping,
    "annotations": Mapping,
}  # fmt: skip
_TYPE_NAMES: Mapping[Any, str] = {
    str: "a string", int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object",
    Mapping: "an object",
}  # fmt: skip
