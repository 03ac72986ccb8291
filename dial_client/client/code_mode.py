"""The code mode of a client: its sandbox, and the programs that run without a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dial_client.hooks.audit.entries import Origin
from dial_client.hooks.owners import act_for
from dial_client.messages.events import discard_event
from dial_client.messages.message import ToolCallRequest, ToolCallResult
from dial_client.runtime.deadline import Deadline
from dial_client.settings.argument_types import check_items, check_types
from dial_client.tools.catalog import RUN_CODE
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.taint import Taint
from dial_client.tools.tool_selection import ToolSnapshots
from dial_client.turns.turn_keywords import select_tools


class CodeMode:
    """The sandbox of a client, whose module is loaded by clients that use it.

    Args:
        tools: The tools of the client.
        executor: Makes the calls of programs that run without a model.
        wait_for_servers: Waits for servers that are starting.
        require_open: Raises an error if the client is not open.
    """

    def __init__(
        self,
        tools: ToolSnapshots,
        executor: ToolExecutor,
        wait_for_servers: Callable[[], Awaitable[None]],
        require_open: Callable[[], object],
    ) -> None:
        self._tools, self._executor = tools, executor
        self._wait_for_servers, self._require_open = wait_for_servers, require_open
        self._sandbox: Any = None

    def open(self) -> Any:
        """Return the `Sandbox`."""
        if self._sandbox is None:
            from dial_client.tools.snippets.sandbox import Sandbox

            self._sandbox = Sandbox()
        return self._sandbox

    async def aclose(self) -> None:
        """End the processes of the sandbox."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    async def run(
        self, source: str, tools: Sequence[str] | None, owner: str, kept: Mapping[str, Any] | None
    ) -> ToolCallResult:
        """Run a program, and return its result; see `DialClient.run_code`.

        Raises:
            ConfigError: The extra ``code`` is not installed.
            RuntimeError: The client is not open.
            TypeError: `source` is no string, `tools` no list of strings, or `kept` no mapping.
        """
        self._require_open()
        check_types(source=(source, str), kept=(kept, Mapping))
        if tools is not None:
            check_items(tools=(tools, str))
        from dial_client.tools.snippets import run_code, sandbox  # loaded only by programs that use it

        sandbox.require_installed()
        left = None if kept is None else ("call_1", kept)
        arguments = {"code": source} if kept is None else {"code": source, "keep": True}
        request = ToolCallRequest("call_1", RUN_CODE, arguments)
        with act_for(owner):
            await self._wait_for_servers()
            selected = select_tools(self._tools.take_snapshot, tools)
            scope, origin = CallScope(taint=Taint()), Origin(owner=owner)
            calls = self._executor.derive(self._tools.get_catalog, scope, origin)
            alone = run_code.build_code_executor(self.open(), calls, lambda: selected().catalog, kept=left)
            return await alone.execute(request, discard_event, Deadline(self._executor.limits.timeout))
