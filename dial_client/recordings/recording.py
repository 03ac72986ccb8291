"""A conversation with models and servers, written down so that ``scripted:FILE`` plays it again.

JSON lines. A line is written, in one piece, as soon as what it tells is over: whoever is killed loses only what was
under way. The first line is the head::

    {"recording": 1, "by": "dial_client 1.0", "provider": "chat:m@host", "tool_format": "auto"}

Then, as they happen, exchanges with the model; a server's tools, when it is there and when they change, in MCP's terms;
and calls of tools::

    {"asked": {"after": 0, "messages": […], "tools": ["…"], "tool_choice": "auto", "stream": true},
     "replies": [REPLY, …]}
    {"server": "time", "tools": [{"name": "…", "inputSchema": {…}, …}]}
    {"server": "gone", "failed": true}
    {"called": {"server": "time", "tool": "…", "arguments": {…}}, "result": {…}}

Each in one line, whatever its length. What was asked is for whoever reads: ``messages`` are those behind the first
``after``, which are the same as the exchange before had; ``instructions`` are there where they have changed; what only
the provider understands is left out. A REPLY has the form of `providers.scripted`; an exchange has several where the
model paused. In place of ``result`` a call may have ``error``, with how it failed before there was a result,
``denied``, with the reason, or ``cancelled``. Of one text or body 4 MB are kept, with a mark where more was.

Nothing of the configuration is written: no header, no key, no environment, no command. Where the endpoint's key, a
header's value or a secret of a server's environment occurs in a text, ``[secret]`` stands in its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dial_client import __version__
from dial_client.errors import ConfigError, ProviderError, ServerError, ServerGone
from dial_client.logs import get_logger
from dial_client.messages import Message, ToolCallRequest, ToolSpec
from dial_client.model import (
    CallChunk,
    Completion,
    Delta,
    Instruction,
    ModelRequest,
    Provider,
    ReasoningChunk,
    TextChunk,
)
from dial_client.providers.http.response_stream import RawBody
from dial_client.providers.script_format import VERSION
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.secret_detection import find_secrets
from dial_client.servers.session import OnProgress, Target
from dial_client.servers.status import OnChange, ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.approval import Approval, Approver
from dial_client.tools.catalog import is_enabled

log = get_logger(__name__)

MAX_TEXT = 4 * 1024 * 1024
"""Characters of one text."""
_APPENDED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_MIN_SECRET = 8
"""Characters a secret has at least: what is shorter would be found in any text."""
_TOOL_FIELDS = {"name", "title", "description", "input_schema", "output_schema", "annotations"}


class Recording:
    """One file that is written while a client is open.

    Args:
        path: the file; one that is there is replaced if it is a recording itself or empty.
        servers: what the client connects to: their secrets are kept out.
        provider: who is asked; None for nobody.
        tool_format: how calls ride: ``native``, ``react``, ``xml`` or ``auto``.

    Raises:
        ConfigError: the provider plays a recording.
    """

    def __init__(
        self, path: str | os.PathLike[str], servers: Mapping[str, Target], provider: Provider | None, tool_format: str
    ) -> None:
        self._path = Path(path)
        if getattr(provider, "servers", None) is not None:
            raise ConfigError("a recording that is played again is not recorded", hint="leave `record` out")
        self._provider = provider
        self._tool_format = tool_format
        self._secrets = _secrets(provider, servers.values())
        self._file: int | None = None
        self._last: tuple[Message, ...] = ()
        self._instructions: tuple[Instruction, ...] = ()
        self._tools: dict[str, Any] = {}
        self._begun = False

    def open(self) -> None:
        """Begin the file, readable by its owner only; or go on with it, if it was this one's before.

        Raises:
            ConfigError: it cannot be written, or another file is in its place.
        """
        name = str(self._path)
        try:
            if not self._begun and self._path.exists():
                if not _may_be_replaced(self._path):
                    raise ConfigError("is there already, and is no recording", hint="name another file", path=name)
                self._path.unlink()
            self._file = os.open(self._path, _APPENDED | (0 if self._begun else os.O_EXCL), 0o600)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror or error}", path=name) from None
        if self._begun:
            return
        self._begun = True
        head = {"recording": VERSION, "by": f"dial_client {__version__}", "tool_format": self._tool_format}
        flags_of_replies = getattr(self._provider, "reading_flags", None)
        named = {"provider": self._provider.name} if self._provider is not None else {}
        self._write(head | named | ({"flags": flags_of_replies} if flags_of_replies else {}))

    def close(self) -> None:
        """Close the file. May be called twice."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def heard(self, provider: Provider | None) -> Provider | None:
        """Give the provider with every exchange written down."""
        return None if provider is None else _RecordingProvider(provider, self)

    def connection(self, name: str, target: Target, host: ClientCapabilities) -> Connection:
        """Make a connection whose tools and calls are written down."""
        self._secrets = tuple(sorted({*self._secrets, *_secrets(None, [target])}, key=len, reverse=True))
        return _RecordingConnection(self, name, target, host)

    def approver(self, approve: Approver | None) -> Approver | None:
        """Give the approver with every no written down."""
        if approve is None:
            return None

        async def heard(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
            answer = await approve(call, tool, server)
            if not answer.allowed:
                self.call(server, tool.tool, call.arguments, {"denied": answer.reason})
            return answer

        return heard

    def exchange(self, request: ModelRequest, replies: list[dict[str, Any]]) -> None:
        """Write down what the model was asked, and what it said."""
        after = 0
        for one, other in zip(self._last, request.messages, strict=False):
            if one != other:
                break
            after += 1
        self._last = request.messages
        asked = {
            "after": after,
            "messages": [message.without_echo().to_dict() for message in request.messages[after:]],
            "tools": [tool.name for tool in request.tools],
            "tool_choice": request.tool_choice.value,
            "stream": request.stream,
        }
        if request.instructions != self._instructions:
            self._instructions = request.instructions
            asked["instructions"] = [
                {"source": instruction.source.value, "text": instruction.text} for instruction in request.instructions
            ]
        self._write({"asked": asked, "replies": replies})

    def server(self, connection: Connection, *, failed: bool) -> None:
        """Write down the tools of a server, unless they are known; or that it is not there."""
        tools = [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_TOOL_FIELDS)
            for tool in connection.tools
            if is_enabled(tool.name, connection)
        ]
        said: Any = {"failed": True} if failed else {"tools": tools}
        if (tools or failed) and self._tools.get(connection.name) != said:
            self._tools[connection.name] = said
            self._write({"server": connection.name, **said})

    def call(self, server: str, tool: str, arguments: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Write down a call, and what came of it."""
        self._write({"called": {"server": server, "tool": tool, "arguments": dict(arguments)}, **outcome})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            data = json.dumps(self._fit(line), default=str).encode() + b"\n"
            while data:
                data = data[os.write(self._file, data) :]
        except (OSError, ValueError, RecursionError) as error:
            # The conversation is worth more than its recording; a line that is not whole must be the last.
            log.warning("recording_ended", path=str(self._path), error=type(error).__name__)
            self.close()

    def _fit(self, value: Any) -> Any:
        """Give a value without secrets, and with no text that is too long."""
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, "[secret]")
            left_out = len(value) - MAX_TEXT
            return f"{value[:MAX_TEXT]}[… {left_out:,} more characters are not recorded]" if left_out > 0 else value
        if isinstance(value, Mapping):
            return {self._fit(str(key)): self._fit(item) for key, item in value.items()}
        return [self._fit(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(slots=True)
class _Plain:
    """A reply of a provider that has no wire, put together from its deltas."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallRequest] = field(default_factory=list)
    completion: Completion | None = None

    def add(self, delta: Delta) -> None:
        match delta:
            case TextChunk(text):
                self.text.append(text)
            case ReasoningChunk(text):
                self.reasoning.append(text)
            case CallChunk(call):
                self.calls.append(call)
            case Completion():
                self.completion = delta

    def reply(self) -> dict[str, Any]:
        """Give it in the form of a script, without what it does not have."""
        last = self.completion
        said: dict[str, Any] = {"reasoning": "".join(self.reasoning), "chunks": self.text}
        if len(self.text) < 2:
            said = {"reasoning": "".join(self.reasoning), "text": "".join(self.text)}
        said["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.unreadable or dict(call.arguments)}
            for call in self.calls
        ]
        if last is None:
            return _without_empty(said) | {"completion": False}
        said |= {"echo": last.echo, "notes": list(last.notes)}
        return _without_empty(said) | {"finish": last.finish.value, "usage": last.usage.to_dict()}


class _RecordingProvider:
    """A provider, with every exchange written down."""

    def __init__(self, provider: Provider, recording: Recording) -> None:
        self.name = provider.name
        self._provider = provider
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask, and write down what was asked and what came."""
        bodies: list[RawBody] = []
        plain = _Plain()
        tapped = getattr(self._provider, "tapped", None)
        deltas = self._provider.generate(request) if tapped is None else tapped(request, bodies)
        end: dict[str, Any] = {"hang": True}  # whoever leaves in the middle was tired of waiting
        try:
            async with aclosing(deltas) as stream:
                async for delta in stream:
                    plain.add(delta)
                    yield delta
            end = {}
        except Exception as error:
            end = {"error": _told(error)}
            raise
        finally:
            self._recording.exchange(request, _replies(bodies, plain, end))

    async def aclose(self) -> None:
        """Let go of what the provider holds."""
        await self._provider.aclose()


def _replies(bodies: list[RawBody], plain: _Plain, end: dict[str, Any]) -> list[dict[str, Any]]:
    if not bodies:
        return [{**plain.reply(), **end} if end else plain.reply()]
    replies = [_reply_of(body) for body in bodies]
    if bodies[-1].paused and end:
        replies.append(end)
    elif "hang" in end and not bodies[-1].ended:
        replies[-1] |= end
    return replies


def _reply_of(body: RawBody) -> dict[str, Any]:
    said: dict[str, Any] = {"wire": body.wire, "body": body.kept.decode("utf-8", "surrogateescape")}
    if body.notes:
        said["notes"] = list(body.notes)
    if body.left_out:
        said["break"] = f"the rest of this reply is not recorded: {body.left_out:,} bytes"
    elif body.broke is not None:
        said["break"] = body.broke
    return said


def _told(error: Exception) -> dict[str, Any]:
    if not isinstance(error, ProviderError):
        return {"message": f"{type(error).__name__}: {error}"}
    said = {"status": error.status, "code": error.code, "retry_after": error.retry_after}
    return {"message": str(error), **{name: value for name, value in said.items() if value is not None}}


def _without_empty(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value or (name == "echo" and value is not None)}


class _RecordingConnection(Connection):
    """A connection, with its tools and calls written down."""

    def __init__(self, recording: Recording, name: str, target: Target, host: ClientCapabilities) -> None:
        self._recording = recording
        super().__init__(name, target, replace(host, on_change=self._then(host.on_change)))

    def _then(self, on_change: OnChange | None) -> OnChange:
        def changed(name: str, status: ServerStatus) -> None:
            self._recording.server(self, failed=status.state is ServerState.FAILED)
            if on_change is not None:
                on_change(name, status)

        return changed

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None) -> Any:
        """Call a tool, and write down what came of it."""
        outcome: dict[str, Any] = {"cancelled": True}
        try:
            result = await super().call(tool, arguments, on_progress)
            outcome = {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
        except ServerError as error:
            outcome = {"error": {"problem": error.problem, "gone": isinstance(error, ServerGone)}}
            raise
        finally:
            self._recording.call(self.name, tool, arguments, outcome)
        return result


def _may_be_replaced(path: Path) -> bool:
    """Whether a file is empty, or the recording of another time."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(13) in (b"", b'{"recording":')


def _secrets(provider: Provider | None, targets: Iterable[Target]) -> tuple[str, ...]:
    """Give what must not be written, the longest first."""
    found = set(getattr(provider, "secrets", ()))
    for target in targets:
        if isinstance(target, ServerSettings):
            found.update(find_secrets(target))
    return tuple(sorted((one for one in found if len(one) >= _MIN_SECRET), key=len, reverse=True))
