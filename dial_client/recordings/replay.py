"""A recording played again: the model's replies from the file, and mock servers in place of the recorded ones.

The mock servers offer the recorded tools and answer the recorded calls. A call is identified by its server, its tool
and its arguments; the outcomes of the same call made several times come in the order in which they were recorded. A
call that was never recorded, or not as often, gets an error result. A call that was cancelled gets no result: it ends
as it did then, by a limit or by a person.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import anyio

from dial_client.errors import ConfigError, ServerError, ServerGone
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.model import Provider
from dial_client.providers.script import RecordedServer
from dial_client.providers.scripted import ScriptedProvider
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.session import Target
from dial_client.servers.session_calls import OnProgress
from dial_client.tools.approval import Approval, ApprovalContext, Approver, Decision

_DECIDED_BY = "the recording"


class Replay(NamedTuple):
    """What a client needs to play a recording: ``DialClient(servers, provider, approve=approver)``."""

    provider: Provider
    servers: Mapping[str, RecordedServer]
    """The recorded servers by name; `connect` makes a mock server of each."""
    approver: Approver | None
    """Denies what was denied in the recording; None if all calls are allowed."""


def load_recording(
    recording: str | os.PathLike[str] | Provider, replaced: Container[str] = (), approve: Approver | None = None
) -> Replay:
    """Return the model, the servers and the approver of a recording.

    Args:
        recording: the file, or the provider that plays it.
        replaced: names of recorded servers to leave out, because the caller has servers of these names.
        approve: decides calls of the caller's own servers; None to allow them.

    Raises:
        ConfigError: the file is missing or wrong, or it is no recording.
    """
    provider = ScriptedProvider.from_file(recording) if isinstance(recording, str | os.PathLike) else recording
    recorded = provider.servers if isinstance(provider, ScriptedProvider) else None
    if recorded is None:
        raise ConfigError(f"{provider.info.name} is no recording", hint="`record=FILE` writes one")
    servers = {name: server for name, server in recorded.items() if name not in replaced and not server.failed}
    return Replay(provider, servers, _make_approver(servers, approve) if servers else approve)


def connect(name: str, target: Target, host: ClientCapabilities) -> Connection:
    """Return the connection to a server, or to the mock server for a recorded one.

    Raises:
        ConfigError: the definition of a recorded tool is not valid.
    """
    if isinstance(target, RecordedServer):
        return _MockConnection(name, target, host)
    return Connection(name, target, host)


def _make_approver(servers: Mapping[str, RecordedServer], approve: Approver | None) -> Approver:
    """Return the approver of a replay: mock servers do no harm, so only calls that were denied are denied again."""
    denied: dict[str, deque[str]] = defaultdict(deque)
    for server in servers.values():
        for call in server.calls:
            if "denied" in call:
                denied[_key(**call["called"])].append(call["denied"])

    async def decide(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        if context.server not in servers:
            return await approve(call, tool, context) if approve is not None else Approval(Decision.ONCE)
        reasons = denied.get(_key(context.server, tool.tool, call.arguments))
        if reasons:
            return Approval(Decision.DENY, reasons.popleft(), _DECIDED_BY)
        return Approval(Decision.ONCE, decided_by=_DECIDED_BY)

    return decide


class _MockConnection(Connection):
    """A connection to an in-process server that lists the recorded tools. Calls are answered from the recording."""

    def __init__(self, name: str, server: RecordedServer, host: ClientCapabilities) -> None:
        super().__init__(name, _make_mock_server(name, server), host)
        self._outcomes: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for call in server.calls:
            if "denied" not in call:
                self._outcomes[_key(**call["called"])].append(call)

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None) -> Any:  # noqa: ARG002 - nothing was recorded of progress
        """Return the recorded result of a call.

        Raises:
            ServerError: the call failed in the recording too.
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


def _make_mock_server(name: str, recorded: RecordedServer) -> Any:
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
