"""Replays a recording: the file has the model's replies, and mock servers replace the recorded servers.

The mock servers offer the recorded tools and return the recorded results. A call is identified by its server, tool and
arguments. If the same call was recorded several times, its outcomes are returned in the recorded order. A call that was
never recorded, or not as often, gets an error result. A call that was cancelled in the recording never returns: it
waits until a limit or the user cancels it again.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import anyio

from dial_client.messages.errors import ConfigError, ServerError, ServerGone
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.messages.model import Provider
from dial_client.providers.script_format import RecordedServer
from dial_client.providers.scripted import ScriptedProvider
from dial_client.servers.connection import Connection
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import OnCallProgress, Target
from dial_client.tools.approval import Approval, ApprovalContext, Approver, Decision

_DECIDED_BY = "the recording"


class Replay(NamedTuple):
    """The parts of a client that replays a recording: ``DialClient(provider, servers=servers, approve=approver)``."""

    provider: Provider
    servers: Mapping[str, RecordedServer]
    """The recorded servers by name; `connect` creates a mock server for each."""
    approver: Approver | None
    """Denies the calls that were denied in the recording; None if all calls are allowed."""


def load_recording(
    recording: str | os.PathLike[str] | Provider, replaced: Container[str] = (), approve: Approver | None = None
) -> Replay:
    """Return the model, the servers and the approver of a recording.

    Args:
        recording: The path of the file, or the provider that replays it.
        replaced: The names of recorded servers to leave out, because the caller has its own servers of these names.
        approve: The approver for calls of the caller's own servers; None to allow these calls.

    Raises:
        ConfigError: The file is missing or wrong, or is not a recording.
    """
    provider = ScriptedProvider.from_file(recording) if isinstance(recording, str | os.PathLike) else recording
    recorded = provider.servers if isinstance(provider, ScriptedProvider) else None
    if recorded is None:
        raise ConfigError(f"{provider.info.name} is not a recording", hint="`record=FILE` writes one")
    servers = {name: server for name, server in recorded.items() if name not in replaced and not server.failed}
    return Replay(provider, servers, _make_approver(servers, approve) if servers else approve)


def connect(name: str, target: Target, capabilities: ClientCapabilities) -> Connection:
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

    async def decide(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
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
