"""Programs that the models of other hosts write: ``run_code`` beside the tools that find others (``--tools code``).

A program runs in the sandbox of the client, and each of its calls is a call like any other of its host: with rules,
pins, approval at that host, untrusted content, and the audit log, which has the tool that is called and the id of the
program. In revision 2026-07-28 a program that waits for its person is in the state that the client keeps.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mcp.server.context import HandlerResult, ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, Tool, ToolAnnotations

from dial_client.gateway.addresses import restore_arguments
from dial_client.gateway.client_requests import ClientRequest
from dial_client.gateway.definitions import ToolDefinitions
from dial_client.gateway.questions import GivenApproval
from dial_client.gateway.tool_calls import ToolCalls
from dial_client.messages.events import Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
from dial_client.messages.message import SEARCH_TOOLS, ToolCallRequest, ToolSpec
from dial_client.runtime.deadline import NoDeadline
from dial_client.tools.catalog import RUN_CODE
from dial_client.tools.snippets.call_values import MAX_RESULT
from dial_client.tools.snippets.run_code import build_code_executor, build_code_spec, describe_functions
from dial_client.tools.snippets.sandbox import Sandbox
from dial_client.tools.snippets.tool_stubs import to_function_names

# What may be the name of a tool in a program: one of a server that is starting is waited for.
_TOOL_NAME = re.compile(r"[A-Za-z_]\w*__\w+", re.ASCII)
_SPEC = build_code_spec(f"- `{SEARCH_TOOLS}` finds tools, and `describe_tool` declares their functions.")
CODE_TOOL = Tool(
    name=RUN_CODE,
    description=_SPEC.description,
    input_schema=dict(_SPEC.input_schema),
    # What it may do depends on the tools that it calls, so it claims the worst.
    annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
)


@dataclass(frozen=True, slots=True)
class CodeCalls:
    """Runs the programs of clients.

    Args:
        open_sandbox: Returns the sandbox of the client.
        definitions: The tools of the servers.
        calls: Calls the tools.
    """

    _open_sandbox: Callable[[], Sandbox]
    _definitions: ToolDefinitions
    _calls: ToolCalls

    def declare(self, tools: Sequence[ToolSpec]) -> Mapping[str, str]:
        """Return the declarations of tools as functions, by their names in the gateway."""
        names = to_function_names(self._definitions.current.listed)
        return {tool.name: describe_functions([tool], names).rstrip() for tool in tools}

    async def call_tool(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> HandlerResult:
        """Run a program, and return its result, what the client has to answer first, or a task.

        Raises:
            MCPError: The client has brought an answer that was used already, or no answer to its question.
        """
        return await self._calls.call_tool(context, params, partial(self._run, arguments=params.arguments or {}))

    async def _run(
        self, request: ClientRequest, given: GivenApproval | None, *, arguments: Mapping[str, Any]
    ) -> CallToolResult | InputRequiredResult:
        """Run a program for a client, or go on with the one that the client has brought with it."""
        request.run_program()
        asked = None if given is None else given.asked
        id_ = secrets.token_hex(8) if asked is None else asked.waiting_id
        call = ToolCallRequest(id_, RUN_CODE, arguments)
        waiting = {} if asked is None or given is None else {id_: (asked, given.approval)}
        for name in set(_TOOL_NAME.findall(str(arguments.get("code")))):
            await self._definitions.wait_for(name)
        executor = self._calls.derive(request)
        limits = replace(executor.limits, max_result_chars=MAX_RESULT)  # a result is handed on whole
        alone = build_code_executor(
            self._open_sandbox(),
            replace(executor, limits=limits),
            self._definitions.get_catalog,
            # The declaration of a changed tool would be what a model must not read before the user has approved it.
            hidden=self._definitions.current.withheld,
            restore=self._restore,
            waiting=waiting,
        )
        async with request.session.programs:
            result = await alone.execute_here(call, _Progress(request).emit, NoDeadline())
        return self._calls.build_answer(request, result)

    def _restore(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a call of a program, with the server's own URIs in place of addresses."""
        listed = self._definitions.current.listed.get(name)
        return arguments if listed is None else restore_arguments(listed.connection.name, arguments)


@dataclass(slots=True)
class _Progress:
    """What a client sees of a program: how many of its calls have ended, and that those which take long go on."""

    request: ClientRequest
    _reported: float = 0.0

    async def emit(self, event: Event) -> None:
        match event:
            case ToolCallStarted(parent=parent) if parent:
                # A program is no way around the limit of calls: those that it makes count for the next request.
                self.request.session.calls_left.take()
            case ToolCallFinished(result) if "/" in result.tool_call_id:
                await self._report(math.floor(self._reported) + 1.0, None)
            case ToolCallProgress(message=message):
                await self._report(math.nextafter(self._reported + 1e-6, math.inf), message)

    async def _report(self, progress: float, message: str | None) -> None:
        self._reported = progress
        await self.request.report(progress, None, message)
