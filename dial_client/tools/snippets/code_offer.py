"""What a turn in code mode offers: one tool for all tools of servers, and the host's own tools beside it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dial_client.messages.message import Message, ToolSpec
from dial_client.tools.catalog import RUN_CODE, SEARCH_TOOLS, Catalog, Route
from dial_client.tools.executor import ToolExecutor, WaitingCalls
from dial_client.tools.snippets.run_code import CodeTool
from dial_client.tools.snippets.sandbox import Sandbox
from dial_client.tools.snippets.sealed_states import find_kept
from dial_client.tools.tool_selection import TurnTools


class CodeOffer:
    """The tools of one turn in code mode.

    Args:
        sandbox: The sandbox of the client.
        tools: The tools that the turn would offer without code mode.
        hidden: The offered names of tools that client-side tools hide: programs cannot call them either.
        messages: The conversation, with the names that its programs have left.
        prepares: Whether the sandbox is prepared while the model writes.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        tools: TurnTools,
        hidden: Collection[str] = (),
        messages: Sequence[Message] = (),
        *,
        prepares: bool = True,
    ) -> None:
        self._tools, self._prepares = tools, prepares
        self._code = CodeTool(sandbox, tools.get_catalog, frozenset(hidden), None, find_kept(messages))
        tools.describe_found, tools.list_names = self._code.describe_found, self._code.list_names
        # What was offered last, and what it was made of.
        self._offered: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] = ((), ())
        self._catalog: tuple[object, object, Catalog] = (None, None, Catalog())
        self._declared: tuple[ToolSpec, ...] = ()
        self._spec: ToolSpec | None = None

    def use_executor(self, executor: ToolExecutor) -> None:
        """Make the calls of snippets by the executor of the turn; a snippet cannot call ``run_code``."""
        self._code.use_executor(executor)

    def take_paused(self, waiting: WaitingCalls) -> WaitingCalls:
        """Keep the programs among the calls that waited for approval, and return the other calls.

        A program itself needs no approval: the answer is about one of its calls.
        """
        self._code.set_paused(waiting)
        return {id_: entry for id_, entry in waiting.items() if entry[0].snippet is None}

    def offer_tools(self) -> tuple[ToolSpec, ...]:
        """Return ``run_code`` and the host's own tools; the same tuple object while nothing changes."""
        tools = self._tools.offer_tools()
        if tools is not self._offered[0] or not self._offered[1]:
            own = tuple(tool for tool in tools if not tool.server)
            spec = self._describe(tools)
            self._offered = (tools, (spec, *own))
        return self._offered[1]

    def _describe(self, tools: tuple[ToolSpec, ...]) -> ToolSpec:
        is_searched = any(not tool.server and tool.name == SEARCH_TOOLS for tool in tools)
        # What a search has found is declared in its answer: a description that grows would be sent anew, to be cached.
        declared = self._tools.always_offered if is_searched else tuple(tool for tool in tools if tool.server)
        if self._spec is None or declared != self._declared:
            self._spec, self._declared = self._code.describe(declared, is_searched=is_searched), declared
            if self._prepares:
                self._code.warm()
        return self._spec

    def get_catalog(self) -> Catalog:
        """Return the catalog of the turn, with ``run_code``."""
        catalog = self._tools.get_catalog()
        spec = (self._offered[1] or self.offer_tools())[0]
        if self._catalog[0] is not catalog or self._catalog[1] is not spec:
            routes = {**catalog.routes, RUN_CODE: Route(self._code, spec)}
            self._catalog = (catalog, spec, replace(catalog, routes=routes))
        return self._catalog[2]
