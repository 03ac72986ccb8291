"""Records a conversation with models and servers in a file, and replays it for the model ``scripted:FILE``.

The file has the format JSON Lines. Each line is written at once when its exchange is complete, so a killed process
loses only the unfinished exchange. The first line is the header::

    {"recording": 1, "by": "dial_client 1.0", "provider": "chat:m@host", "tool_format": "auto"}

The further lines follow the order of events: exchanges with the model, the tools of a server in MCP's form (when the
server is connected, and when the tools change), and tool calls::

    {"asked": {"after": 0, "messages": […], "tools": ["…"], "tool_choice": "auto", "stream": true},
     "replies": [REPLY, …]}
    {"server": "time", "tools": [{"name": "…", "inputSchema": {…}, …}]}
    {"server": "gone", "failed": true}
    {"called": {"server": "time", "tool": "…", "arguments": {…}}, "result": {…}}

Each of these is one line. The request (``asked``) is only information for readers of the file. ``after`` is the number
of messages that are the same as in the previous exchange, and ``messages`` are the further ones. ``instructions`` are
present if they have changed. Echoes, which only the provider understands, are left out. A REPLY has the form of
`providers.scripted`; an exchange has several if the model paused. Instead of ``result`` a call may have ``error`` (it
failed without a result), ``denied`` (with the reason) or ``cancelled``. Texts and bodies longer than 4 MB are cut and
marked.

The file contains no configuration: no headers, keys, environment variables or commands. The endpoint's key, header
values and secrets in a server's environment are replaced by ``[secret]`` wherever they occur in a text.

In a replay the file has the model's replies, and mock servers replace the recorded servers: they offer the recorded
tools and return the recorded results. A call is identified by its server, tool and arguments. If the same call was
recorded several times, its outcomes are returned in the recorded order. A call that was never recorded, or not as
often, gets an error result. A call that was cancelled in the recording never returns: it waits until a limit or the
user cancels it again.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import anyio

from dial_client import __version__
from dial_client.messages.errors import ConfigError, ProviderError, ServerError, ServerGone
from dial_client.messages.message import Message, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    CallChunk,
    Completion,
    Delta,
    Downloading,
    Instruction,
    ModelInfo,
    ModelRequest,
    Preparable,
    Provider,
    ReasoningChunk,
    TextChunk,
)
from dial_client.providers import is_recording
from dial_client.providers.http.response_stream import RawBody, Recordable
from dial_client.providers.script_format import VERSION, RecordedServer
from dial_client.providers.scripted import ScriptedProvider
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.sdk_import import import_sdk
from dial_client.servers.secret_masking import find_secrets
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import OnCallProgress, Target
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.argument_types import describe_type
from dial_client.tools.approval import Answer, Approval, ApprovalContext, Approver, Decision, read_answer
from dial_client.tools.catalog import is_enabled

log = get_logger(__name__)

# The most characters of a text in the file.
MAX_TEXT = 4 * 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
if sys.platform == "win32":
    _APPEND |= os.O_BINARY
# The least characters of a secret that is masked; shorter ones would occur in many other texts.
_MIN_SECRET = 8
# The source of decisions in a replay.
_DECIDED_BY = "the recording"
_TOOL_FIELDS = {"name", "title", "description", "input_schema", "output_schema", "annotations"}


class Recording:
    """Writes a recording while a client is open.

    Args:
        path: The path of the file; an existing file is replaced if it is a recording or empty.
        servers: The servers of the client, whose secrets are masked.
        provider: The provider of the model; None for a client without a model.
        tool_format: The name of the tool format: ``native``, ``react``, ``xml`` or ``auto``.

    Raises:
        ConfigError: The provider replays a recording.
        TypeError: `path` is no path.
    """

    def __init__(self, path: Any, servers: Mapping[str, Target], provider: Provider | None, tool_format: str) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"record takes the path of a file, not {describe_type(path)}")
        self._path = Path(path)
        if is_recording(provider):
            raise ConfigError("a recording cannot be recorded while it is replayed", hint="leave `record` out")
        self._provider = provider
        self._tool_format = tool_format
        self._secrets = _find_secrets(provider, servers.values())
        self._file: int | None = None
        self._last_messages: tuple[Message, ...] = ()
        self._last_instructions: tuple[Instruction, ...] = ()
        self._last_listings: dict[str, Any] = {}
        self._has_head = False

    def open(self) -> None:
        """Create the file, readable by its owner only; if this object was open before, append to the file.

        Raises:
            ConfigError: The file cannot be written, or it exists and is not a recording.
        """
        name = str(self._path)
        try:
            if not self._has_head and self._path.exists():
                if not _may_be_replaced(self._path):
                    raise ConfigError("exists already, and is not a recording", hint="name another file", path=name)
                self._path.unlink()
            self._file = os.open(self._path, _APPEND | (0 if self._has_head else os.O_EXCL), 0o600)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror or error}", path=name) from None
        if not self._has_head:
            self._has_head = True
            head: dict[str, Any] = {"recording": VERSION, "by": f"dial_client {__version__}"}
            head["tool_format"] = self._tool_format
            if (provider := self._provider) is not None:
                head["provider"] = provider.info.name
                if isinstance(provider, Recordable) and provider.parser_flags:
                    head["flags"] = provider.parser_flags
            self._write(head)

    def close(self) -> None:
        """Close the file. May be called twice."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def record_provider(self, provider: Provider | None) -> Provider | None:
        """Return a provider that writes each exchange to the file."""
        return None if provider is None else RecordingProvider(provider, self)

    def connect(self, name: str, target: Target, capabilities: ClientCapabilities) -> Connection:
        """Return a connection that writes the server's tools and calls to the file."""
        self._secrets = sorted({*self._secrets, *_find_secrets(None, [target])}, key=len, reverse=True)
        return _RecordingConnection(self, name, target, capabilities)

    def record_approver(self, approve: Approver | None) -> Approver | None:
        """Return an approver that writes each denial to the file."""
        if approve is None:
            return None

        async def decide(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Answer:
            answer = await approve(call, tool, context)
            with suppress(ValueError):  # an answer that decides nothing is the checker's
                if not (approval := read_answer(answer)).allowed:
                    self.write_call(context.server, tool.tool, call.arguments, {"denied": approval.reason})
            return answer

        return decide

    def write_exchange(self, request: ModelRequest, replies: list[dict[str, Any]]) -> None:
        """Write a request to the model and its replies."""
        pairs = zip(self._last_messages, request.messages, strict=False)
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._last_messages = request.messages
        request_json = {
            "after": known,
            "messages": [message.without_echo().without_kept().to_dict() for message in request.messages[known:]],
            "tools": [tool.name for tool in request.tools],
            "tool_choice": request.settings.tool_choice or "auto",
            "stream": request.stream,
        }
        if request.instructions != self._last_instructions:
            self._last_instructions = request.instructions
            request_json["instructions"] = [
                {"source": instruction.source.value, "text": instruction.text} for instruction in request.instructions
            ]
        self._write({"asked": request_json, "replies": replies})

    def write_server(self, connection: Connection, *, failed: bool) -> None:
        """Write the tools of a server, or that it failed, unless the last line about the server says the same."""
        tools = [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_TOOL_FIELDS)
            for tool in connection.tools
            if is_enabled(tool.name, connection)
        ]
        listing: Any = {"failed": True} if failed else {"tools": tools}
        if (tools or failed) and self._last_listings.get(connection.name) != listing:
            self._last_listings[connection.name] = listing
            self._write({"server": connection.name, **listing})

    def write_call(self, server: str, tool: str, arguments: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Write a tool call and its outcome."""
        self._write({"called": {"server": server, "tool": tool, "arguments": dict(arguments)}, **outcome})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            data = json.dumps(self._mask(line), default=str).encode() + b"\n"
            while data:
                data = data[os.write(self._file, data) :]
        except (OSError, ValueError, RecursionError) as error:
            # The conversation continues without its recording. An incomplete line must be the last one.
            log.warning("recording_ended", path=str(self._path), error=type(error).__name__)
            self.close()

    def _mask(self, value: Any) -> Any:
        """Return a value with secrets masked, and texts cut at `MAX_TEXT`."""
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, "[secret]")
            left_out = len(value) - MAX_TEXT
            return f"{value[:MAX_TEXT]}[… {left_out:,} more characters are not recorded]" if left_out > 0 else value
        if isinstance(value, Mapping):
            return {self._mask(str(key)): self._mask(item) for key, item in value.items()}
        return [self._mask(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True, eq=False)
class RecordingProvider:
    """A provider that writes every exchange of another provider to a recording."""

    _provider: Provider
    _recording: Recording

    @property
    def info(self) -> ModelInfo:
        """The description of the recorded model."""
        return self._provider.info

    @property
    def needs_download(self) -> bool:
        """Whether the model of the recorded provider has to be downloaded."""
        return isinstance(self._provider, Downloading) and self._provider.needs_download

    async def prepare(self) -> None:
        """Prepare the recorded provider."""
        if isinstance(self._provider, Preparable):
            await self._provider.prepare()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model. The request and its replies are written when the exchange ends, also with an error."""
        bodies: list[RawBody] = []
        deltas: list[Delta] = []
        end: dict[str, Any] = {"hang": True}  # the reader left before the end of the reply
        try:
            if isinstance(self._provider, Recordable):
                generated = self._provider.generate_recorded(request, bodies)
            else:
                generated = self._provider.generate(request)
            async with aclosing(generated) as stream:
                async for delta in stream:
                    deltas.append(delta)
                    yield delta
            end = {}
        except Exception as error:
            end = {"error": _to_error(error)}
            raise
        finally:
            replies = _to_replies(bodies, end) if bodies else [_to_plain_reply(deltas) | end]
            self._recording.write_exchange(request, replies)

    async def aclose(self) -> None:
        """Close the recorded provider."""
        await self._provider.aclose()


def _to_plain_reply(deltas: Iterable[Delta]) -> dict[str, Any]:
    """Return the reply of a provider whose HTTP responses cannot be recorded, in the form of `providers.scripted`."""
    reasoning: list[str] = []
    text: list[str] = []
    calls: list[dict[str, Any]] = []
    end: dict[str, Any] = {"completion": False}
    state: dict[str, Any] = {}
    for delta in deltas:
        match delta:
            case TextChunk(piece):
                text.append(piece)
            case ReasoningChunk(piece):
                reasoning.append(piece)
            case CallChunk(call):
                arguments = call.unreadable or dict(call.arguments)
                calls.append({"id": call.id, "name": call.name, "arguments": arguments})
            case Completion():
                end = {"finish": delta.finish.value, "usage": delta.usage.to_dict()}
                state = {"echo": delta.echo, "notes": list(delta.notes)}
    texts = {"chunks": text} if len(text) > 1 else {"text": "".join(text)}
    reply = {"reasoning": "".join(reasoning), **texts, "tool_calls": calls, **state}
    return {name: value for name, value in reply.items() if value or (name == "echo" and value is not None)} | end


def _to_replies(bodies: list[RawBody], end: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bodies in the form of `providers.scripted`; `end` is the abnormal end of the exchange, or empty."""
    replies: list[dict[str, Any]] = []
    for body in bodies:
        reply: dict[str, Any] = {"wire": body.api, "body": body.data.decode("utf-8", "surrogateescape")}
        if body.notes:
            reply["notes"] = list(body.notes)
        if body.left_out:
            reply["break"] = f"the rest of this reply is not recorded: {body.left_out:,} bytes"
        elif body.broke is not None:
            reply["break"] = body.broke
        replies.append(reply)
    if bodies[-1].paused and end:
        replies.append(end)
    elif "hang" in end and not bodies[-1].ended:
        replies[-1] |= end
    return replies


def _to_error(error: Exception) -> dict[str, Any]:
    if not isinstance(error, ProviderError):
        return {"message": f"{type(error).__name__}: {error}"}
    fields = {"status": error.status, "code": error.code, "retry_after": error.retry_after}
    return {"message": str(error), **{name: value for name, value in fields.items() if value is not None}}


class _RecordingConnection(Connection):
    """A connection that writes the server's tools and calls to a recording."""

    def __init__(self, recording: Recording, name: str, target: Target, capabilities: ClientCapabilities) -> None:
        self._recording = recording

        def record(name: str, status: ServerStatus) -> None:
            recording.write_server(self, failed=status.state is ServerState.FAILED)
            if capabilities.on_change is not None:
                capabilities.on_change(name, status)

        super().__init__(name, target, replace(capabilities, on_change=record))

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress | None = None) -> Any:
        """Call a tool, and write the call and its outcome to the recording."""
        outcome: dict[str, Any] = {"cancelled": True}
        try:
            result = await super().call(tool, arguments, on_progress)
            outcome = {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
        except ServerError as error:
            outcome = {"error": {"problem": error.problem, "gone": isinstance(error, ServerGone)}}
            raise
        finally:
            self._recording.write_call(self.name, tool, arguments, outcome)
        return result


def _may_be_replaced(path: Path) -> bool:
    """Return True if a file is empty or is a recording."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(13) in (b"", b'{"recording":')


def _find_secrets(provider: Provider | None, targets: Iterable[Target]) -> list[str]:
    """Return the secrets to mask, the longest first."""
    secrets = set(provider.info.secrets if provider is not None else ())
    for target in targets:
        secrets.update(find_secrets(target))
    return sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET), key=len, reverse=True)


def replay(
    provider: Provider, targets: Mapping[str, Any], approve: Approver | None
) -> tuple[dict[str, Any], Approver | None]:
    """Return the targets and the approver of a client that replays a recording.

    Args:
        provider: The model, which is a recording.
        targets: The client's own servers, which replace recorded servers of their names.
        approve: The approver for calls of these servers; None to allow these calls.
    """
    assert isinstance(provider, ScriptedProvider)
    recorded = provider.servers or {}
    servers = {name: server for name, server in recorded.items() if name not in targets and not server.failed}
    return {**servers, **targets}, _make_approver(servers, approve) if servers else approve


def connect_recorded(name: str, target: Target, capabilities: ClientCapabilities) -> Connection:
    """Return the connection to a server; for a recorded server, a connection to its mock server.

    Raises:
        ConfigError: The definition of a recorded tool is invalid.
    """
    if isinstance(target, RecordedServer):
        return _MockConnection(name, target, capabilities)
    return Connection(name, target, capabilities)


def _make_approver(servers: Mapping[str, RecordedServer], approve: Approver | None) -> Approver:
    """Return the approver of a replay. It denies the calls that were denied, and allows other calls of mock servers."""
    denied: dict[str, deque[str]] = defaultdict(deque)
    for server in servers.values():
        for call in server.calls:
            if "denied" in call:
                denied[_build_key(**call["called"])].append(call["denied"])

    async def decide(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Answer:
        if context.server not in servers:
            return await approve(call, tool, context) if approve is not None else Approval(Decision.ONCE)
        reasons = denied.get(_build_key(context.server, tool.tool, call.arguments))
        if reasons:
            return Approval(Decision.DENY, reasons.popleft(), _DECIDED_BY)
        return Approval(Decision.ONCE, decided_by=_DECIDED_BY)

    return decide


class _MockConnection(Connection):
    """A connection to an in-process server with the recorded tools. Calls return results from the recording."""

    def __init__(self, name: str, server: RecordedServer, capabilities: ClientCapabilities) -> None:
        super().__init__(name, _make_mock_server(name, server), capabilities)
        self._outcomes: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for call in server.calls:
            if "denied" not in call:
                self._outcomes[_build_key(**call["called"])].append(call)

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress | None = None) -> Any:  # noqa: ARG002 - progress is not recorded
        """Return the recorded result of a call.

        Raises:
            ServerError: The call failed in the recording, or its recorded result is invalid.
        """
        from mcp_types import CallToolResult
        from pydantic import ValidationError

        await anyio.lowlevel.checkpoint()
        outcomes = self._outcomes.get(_build_key(self.name, tool, arguments))
        if not outcomes:
            how_often = "never recorded" if outcomes is None else "not recorded as often as it is made"
            text = f"This call is {how_often}: {tool} with these arguments. The recording has no answer to it."
            return CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": True})
        outcome = outcomes.popleft()
        if "result" in outcome:
            try:
                return CallToolResult.model_validate(outcome["result"])
            except ValidationError:
                raise ServerError(self.name, "the recorded result is invalid") from None
        if "error" not in outcome:
            await anyio.sleep_forever()
        error = outcome["error"]
        raise (ServerGone if error.get("gone") else ServerError)(self.name, str(error.get("problem", "it failed")))


def _build_key(server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps([server, tool, arguments], sort_keys=True, default=str)


def _make_mock_server(name: str, recorded: RecordedServer) -> Any:
    import_sdk()
    from mcp.server.lowlevel import Server
    from mcp_types import ListToolsResult, Tool
    from pydantic import ValidationError

    try:
        tools = [Tool.model_validate(tool) for tool in recorded.tools.values()]
    except ValidationError as error:
        raise ConfigError(f"a recorded tool of {name!r} is invalid: {error.errors()[0]['msg']}") from None

    async def list_tools(context: Any, params: Any) -> ListToolsResult:  # noqa: ARG001 - the SDK passes them
        return ListToolsResult(tools=tools)

    return Server(name, on_list_tools=list_tools)
