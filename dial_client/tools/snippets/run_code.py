"""The tool of the host that runs a snippet, what the model reads about it, and what a turn in code mode offers.

Such a turn offers one tool for all tools of servers, and the host's own tools beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from dial_client.hooks import call_context
from dial_client.hooks.call_context import CallContext
from dial_client.hooks.owners import find_owner
from dial_client.messages.message import SEARCH_TOOLS, Failure, Message, PendingApproval, ToolCallResult, ToolSpec
from dial_client.servers.session import OnCallProgress
from dial_client.settings.config_types import ServerSettings, Transport
from dial_client.tools.approval import Approval
from dial_client.tools.catalog import RUN_CODE, Catalog, Route, build_host_tool
from dial_client.tools.executor import ToolExecutor, WaitingCalls
from dial_client.tools.snippets import call_values
from dial_client.tools.snippets.sandbox import MAX_SOURCE, Sandbox
from dial_client.tools.snippets.sealed_states import NotRestored, find_kept, restore, restore_names
from dial_client.tools.snippets.snippet_run import ChangeArguments, SnippetRun, SnippetTools
from dial_client.tools.snippets.tool_stubs import HEAD, to_function_names, write_stub
from dial_client.tools.tool_selection import TurnTools

_GUIDE = """\
Runs a Python program that calls tools, and returns what it prints and the value of its last line. Write one program \
for all that can be done without looking at a result yourself: loops, conditions, several calls at once. Each tool is \
an asynchronous function with keyword arguments:

```python
import asyncio
pages = await asyncio.gather(*[read_page(number=n) for n in range(3)])
[page[:80] for page in pages]
```

- A part of Python: no classes with inheritance, no generators, no files, no network; of the standard library asyncio, \
collections, datetime, itertools, json, math, random, re, typing. `gather` takes awaitables only.
- A function returns `str` where its tool declares no form of result: `json.loads` it if it is JSON. A call that fails \
raises an exception; PermissionError: the user or a rule has refused the call, so do not try it again.
- Print or return only what is needed. `[image 1: …]` in a result stands for an image; print it to see the image.
- Each program begins without the variables of the last one."""
_KEEPS = "With `keep`, it begins with what the last one with `keep` has left."
_SEARCHED = f"- Not all functions are listed. `{SEARCH_TOOLS}` finds others, which can be called from then on."
_CODE = {"type": "string", "description": "The Python program.", "maxLength": MAX_SOURCE}
_KEEP = {
    "type": "boolean",
    "description": "Begin with the variables and functions of the last program with `keep`, and leave those of this "
    "one for the next. Default: false.",
}
_TWO_KEEP = (
    "Not run: another program with `keep` of this reply has not ended. Write one program, or one after the other."
)
# The most functions that are declared to the type checker before a snippet names some of them.
MAX_WARMED = 200
# The time of a snippet is that of its turn and of its calls; its processor time has a limit of its own.
_SETTINGS = ServerSettings("", Transport.STDIO, tool_timeout=math.inf)


def build_code_spec(more: str = "", *, keeps: bool = False) -> ToolSpec:
    """Return the tool for the model.

    Args:
        more: The end of its description.
        keeps: Whether programs can leave names for the next one.
    """
    properties = {"code": _CODE, "keep": _KEEP} if keeps else {"code": _CODE}
    schema = {"type": "object", "properties": properties, "required": ["code"]}
    guide = f"{_GUIDE} {_KEEPS}" if keeps else _GUIDE
    return build_host_tool(RUN_CODE, f"{guide}\n{more}".rstrip(), schema)


def build_code_executor(
    sandbox: Sandbox,
    executor: ToolExecutor,
    catalog: Callable[[], Catalog],
    *,
    hidden: Collection[str] = (),
    restore: ChangeArguments | None = None,
    waiting: WaitingCalls = MappingProxyType({}),
    kept: tuple[str, Mapping[str, Any]] | None = None,
) -> ToolExecutor:
    """Return an executor of ``run_code`` alone, outside of a turn.

    Args:
        sandbox: The sandbox of the client.
        executor: Makes the calls of snippets, with its scope.
        catalog: Returns the tools that snippets can call.
        hidden: The offered names of tools of the catalog that they cannot call.
        restore: Changes the arguments of each call before the call is judged; None for none.
        waiting: The snippet that waits for the answer about one of its calls.
        kept: The names for snippets with ``keep``, as of `find_kept`; None if they cannot keep names.
    """
    code = CodeTool(sandbox, catalog, frozenset(hidden), restore, kept)
    code.use_executor(executor)
    code.set_paused(waiting)
    own = Catalog(routes={RUN_CODE: Route(code, build_code_spec(keeps=kept is not None))})
    return replace(executor, catalog=lambda: own)


def describe_functions(tools: Sequence[ToolSpec], names: Mapping[str, str]) -> str:
    """Return the declarations of tools for the model.

    Args:
        tools: The tools.
        names: The names of all functions, of `to_function_names`.
    """
    functions = {tool: function for function, tool in names.items()}
    return "".join(write_stub(functions[tool.name], tool) for tool in tools if tool.name in functions)


@dataclass(eq=False)
class CodeTool:
    """The backend of the tool ``run_code`` in one turn.

    Args:
        sandbox: The sandbox of the client.
        catalog: Returns the tools that snippets can call; ``run_code`` is none of them.
        hidden: The offered names of tools of the catalog that they cannot call.
        restore: Changes the arguments of each call before the call is judged; None for none.
        kept: The names for snippets with ``keep``, as of `find_kept`; None if they cannot keep names.
    """

    name = ""
    settings = _SETTINGS
    _sandbox: Sandbox
    _catalog: Callable[[], Catalog]
    _hidden: frozenset[str] = frozenset()
    _restore: ChangeArguments | None = None
    _kept: tuple[str, Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        # The last catalog, with the names of its functions.
        self._named: tuple[Catalog | None, Mapping[str, str]] = (None, {})
        # The last catalog, with the declarations of all its functions.
        self._stubs: tuple[Catalog | None, str] = (None, "")
        self._executor: ToolExecutor | None = None
        self._paused: dict[str, tuple[PendingApproval | None, Approval | None]] = {}
        # The id of the snippet that keeps names, and has not ended.
        self._keeping = ""

    def use_executor(self, executor: ToolExecutor) -> None:
        """Make the calls of snippets as this executor makes calls, with its scope."""
        limits = replace(executor.limits, max_result_chars=call_values.MAX_RESULT)
        # The whole text of a result is the snippet's, and a snippet cannot wait for a call in the background.
        scope = replace(executor.scope, store_result=None, background=None)
        self._executor = replace(executor, catalog=self._catalog, scope=scope, limits=limits)

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return an empty text: the result itself is marked if a call of the snippet has read untrusted content."""
        return ""

    def set_paused(self, waiting: WaitingCalls) -> None:
        """Go on with the paused programs among these calls, in place of running them from the beginning."""
        self._paused.update({id_: entry for id_, entry in waiting.items() if entry[0].snippet is not None})

    def get_names(self) -> Mapping[str, str]:
        """Return the offered name of each tool that can be called, by the name of its function."""
        catalog = self._catalog()
        if self._named[0] is not catalog:
            self._named = (catalog, to_function_names(name for name in catalog.routes if name not in self._hidden))
        return self._named[1]

    def describe(self, tools: Sequence[ToolSpec], *, is_searched: bool) -> ToolSpec:
        """Return the tool for the model, with the declarations of these tools.

        Args:
            tools: The tools to declare.
            is_searched: Whether there are more, which the model searches for.
        """
        searched = f"{_SEARCHED}\n" if is_searched else ""
        functions = describe_functions(tools, self.get_names())
        return build_code_spec(f"{searched}\n{functions}", keeps=self._kept is not None)

    def describe_found(self, tools: Sequence[ToolSpec]) -> str:
        """Return what the model reads about tools that it has found: their declarations."""
        return describe_functions(tools, self.get_names())

    def list_names(self, tools: Sequence[ToolSpec]) -> Iterable[str]:
        """Return the names of the functions of those tools that programs can call."""
        functions = {tool: function for function, tool in self.get_names().items()}
        return (functions[tool.name] for tool in tools if tool.name in functions)

    def _find_tool(self, name: str) -> ToolSpec | None:
        route = self._catalog().routes.get(name)
        return None if route is None else route.spec

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> ToolCallResult:  # noqa: ARG002
        """Run a snippet, and return its result without an id."""
        context = call_context.find_current()
        assert context is not None
        try:
            asked, answer = self._paused.pop(context.call_id, (None, None))
            if asked is not None and asked.snippet is not None:
                return await self._resume(context, asked, answer)
            if arguments.get("keep") is True and self._kept is not None:
                return await self._run_with_names(context, arguments["code"], *self._kept)
            return await self._run(context, arguments["code"])
        finally:
            self.warm()

    async def _run(self, context: CallContext, source: str) -> ToolCallResult:
        async with self._open_run(context, self._declare(source)) as (run, _):
            return await run.run(source)

    async def _run_with_names(
        self, context: CallContext, source: str, call: str, sealed: Mapping[str, Any]
    ) -> ToolCallResult:
        """Run a snippet with the names that the snippet of an earlier call has left, and keep its own."""
        if self._keeping:
            return ToolCallResult.failed("", Failure.NOT_RUN, _TWO_KEEP)
        self._keeping = context.call_id
        # The types are checked in the prepared worker, which takes no stored state: the snippet runs in another one.
        result: ToolCallResult
        try:
            async with self._open_run(context, None) as (run, version):
                kept = restore_names(sealed, version, call, find_owner())
                check = partial(self._sandbox.check_types, source, self._declare(source), kept.names)
                result = await run.run_with(kept, source, check)
        except NotRestored as problem:
            text = f"Not run: the names of the last program cannot be used: {problem}. The next one begins without."
            result = replace(ToolCallResult.failed("", Failure.NOT_RUN, text), kept={})
        finally:
            self._keeping = ""
        if result.pending is not None:
            self._keeping = context.call_id  # until the turn goes on with the answer
        if result.kept is not None:
            self._kept = (context.call_id, result.kept)
        return result

    async def _resume(self, context: CallContext, asked: PendingApproval, answer: Approval | None) -> ToolCallResult:
        # Without declarations the worker is a new one: a prepared worker takes no stored state, and types were checked.
        try:
            async with self._open_run(context, "") as (run, version):
                paused = restore(asked.snippet or {}, version, context.call_id)
                result = await run.resume(paused, asked, answer)
        except NotRestored as problem:
            text = f"The program waited for an approval, and cannot go on: {problem}. Calls before it have run."
            return ToolCallResult.failed("", Failure.NOT_RUN, text)
        if result.kept is not None and self._kept is not None:
            self._kept = (context.call_id, result.kept)
        return result

    @asynccontextmanager
    async def _open_run(self, context: CallContext, stubs: str | None) -> AsyncIterator[tuple[SnippetRun, str]]:
        """Open the run of a snippet, with the version of the interpreter; the arguments are those of `open_session`."""
        assert context.emit is not None and self._executor is not None
        names = self.get_names()
        tools = SnippetTools(names, self._find_tool, self._restore)
        session = await self._sandbox.open_session(stubs, names.__contains__)
        try:
            run = SnippetRun(context.call_id, session, tools, self._executor, context.emit, context.turn)
            yield run, session.version
        finally:
            session.close()

    def warm(self) -> None:
        """Prepare the sandbox for the next snippet, if all functions can be declared before it is known."""
        if stubs := self._write_all_stubs():
            self._sandbox.warm(stubs)

    def _write_all_stubs(self) -> str:
        """Return the declarations of all functions; empty if these are too long for a check of types."""
        catalog, names = self._catalog(), self.get_names()
        if self._stubs[0] is not catalog:
            tools = [catalog.routes[tool].spec for tool in names.values()]
            functions = describe_functions(tools, names) if len(tools) <= MAX_WARMED else ""
            self._stubs = (catalog, HEAD + functions if functions else "")
        return self._stubs[1]

    def _declare(self, source: str) -> str:
        """Return the declarations of all functions, or of those that a snippet names, for the type checker."""
        if stubs := self._write_all_stubs():
            return stubs
        names = self.get_names()
        words = set(re.findall(r"\w+", source))
        routes = self._catalog().routes
        tools = [routes[tool].spec for function, tool in names.items() if function in words and tool in routes]
        return HEAD + describe_functions(tools, names)


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
        # A declaration is in the answer of a search alone, which may be summarized away.
        tools.describes_again = True
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
