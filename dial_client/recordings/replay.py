"""Stand-ins for the servers of a recording: they offer the recorded tools, and answer the recorded calls.

A call is known by its server, its tool and its arguments; where it was made several times, its outcomes come in the
order in which they were recorded. One that was never recorded, or not as often, is answered with an error that says so.
One that was cancelled is not answered at all: it ends as it did then, by a limit or by a person.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Container, Mapping
from typing import Any

import anyio

from dial_client.errors import ConfigError, ServerError, ServerGone
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.model import Provider
from dial_client.providers.script_format import RecordedServer, is_recording_file
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.session import OnProgress, Target
from dial_client.tools.approval import Approval, Approver, Decision

_RECORDING = "the recording"


def is_recording(model: str | Provider | None) -> bool:
    """Whether a model, or what it is named by, is a recording."""
    if isinstance(model, str):
        prefix, _, path = model.partition(":")
        return prefix == "scripted" and is_recording_file(path)
    return getattr(model, "servers", None) is not None


def stand_ins(provider: Provider | None, own: Container[str]) -> dict[str, RecordedServer]:
    """Give the servers that a recording brings along, apart from those somebody has of their `own`."""
    servers: Mapping[str, RecordedServer] = getattr(provider, "servers", None) or {}
    return {name: server for name, server in servers.items() if name not in own and not server.failed}


def connect(name: str, target: Target, host: ClientCapabilities) -> Connection:
    """Make the connection to a server, or to the stand-in for one.

    Raises:
        ConfigError: a recorded tool is none.
    """
    if isinstance(target, RecordedServer):
        return _MockServer(name, target, host)
    return Connection(name, target, host)


def approver(servers: Mapping[str, RecordedServer], approve: Approver | None) -> Approver:
    """Give the approver of a replay: a stand-in does no harm, so only what was denied then is denied now."""
    denied: dict[str, deque[str]] = defaultdict(deque)
    for server in servers.values():
        for call in server.calls:
            if "denied" in call:
                denied[_key(**call["called"])].append(call["denied"])

    async def decide(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
        if server not in servers:
            return await approve(call, tool, server) if approve is not None else Approval(Decision.ONCE)
        reasons = denied.get(_key(server, tool.tool, call.arguments))
        if reasons:
            return Approval(Decision.DENY, reasons.popleft(), _RECORDING)
        return Approval(Decision.ONCE, decided_by=_RECORDING)

    return decide


class _MockServer(Connection):
    """A connection to a server in this process that lists the recorded tools; their calls are answered right here."""

    def __init__(self, name: str, server: RecordedServer, host: ClientCapabilities) -> None:
        super().__init__(name, _server(name, server), host)
        self._outcomes: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for call in server.calls:
            if "denied" not in call:
                self._outcomes[_key(**call["called"])].append(call)

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None) -> Any:  # noqa: ARG002 - nothing was recorded of progress
        """Give what was recorded.

        Raises:
            ServerError: the call failed when it was recorded.
        """
        from mcp_types import CallToolResult
        from pydantic import ValidationError

        await anyio.lowlevel.checkpoint()
        outcomes = self._outcomes.get(_key(self.name, tool, arguments))
        if not outcomes:
            how_often = "never recorded" if outcomes is None else "not recorded as often as it is made"
            text = f"This call is {how_often}: {tool} with these arguments. The recording has no answer to it."
            return CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": True})
        outcome = outcomes.popleft()
        if "result" in outcome:
            try:
                return CallToolResult.model_validate(outcome["result"])
            except ValidationError:
                raise ServerError(self.name, "the recorded result is none") from None
        if "error" not in outcome:
            await anyio.sleep_forever()
        error = outcome["error"]
        raise (ServerGone if error.get("gone") else ServerError)(self.name, str(error.get("problem", "it failed")))


def _key(server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps([server, tool, arguments], sort_keys=True, default=str)


def _server(name: str, recorded: RecordedServer) -> Any:
    from mcp.server.lowlevel import Server
    from mcp_types import ListToolsResult, Tool
    from pydantic import ValidationError

    try:
        tools = [Tool.model_validate(tool) for tool in recorded.tools.values()]
    except ValidationError as error:
        raise ConfigError(f"a recorded tool of {name!r} is none: {error.errors()[0]['msg']}") from None

    async def list_tools(context: Any, params: Any) -> ListToolsResult:  # noqa: ARG001 - the SDK gives them
        return ListToolsResult(tools=tools)

    return Server(name, on_list_tools=list_tools)
