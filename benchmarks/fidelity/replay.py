"""Plays the solutions of tasks as a model that knows them, through the host, and compares what arrives.

The model writes each call in the host's format, in pieces of a few characters, and reads each result in the next
request. A task is right if every result and the state after every turn are those of the same calls without a host.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self

from benchmarks.fidelity.tasks import Call, Task, TaskTurn
from benchmarks.fidelity.toolkits import Toolkit
from dial_client import DialClient, Limits, Message, Turn
from dial_client.extend import ModelRequest
from dial_client.testing import ScriptedProvider

ALL = 100_000_000
LIMITS = Limits(
    max_depth=100,
    max_consecutive_errors=1000,
    max_repeats=1000,
    max_result_chars=ALL,
    max_tool_bytes=ALL,
    timeout=600.0,
)
"""Limits that no task reaches."""
OFFERED = 10
"""The most tools that are offered without a search, in runs with search."""
PIECE = 7
"""The characters of each streamed piece of a reply: fewer than most names and labels have."""
SEARCH, RUN_CODE = "search_tools", "run_code"
CODE = "code"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a turn must come to."""

    results: tuple[str, ...]
    states: tuple[str, ...]
    """The state of each server of the task."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A task that was played."""

    task: str
    calls: int
    fault: str = ""
    """The first difference; empty if there is none."""
    rounds: int = 0
    """The requests to the model."""
    request_bytes: int = 0
    """The bytes of all offered tools and instructions as JSON."""
    searches: int = 0
    found: int = 0
    """The searches whose answer offered the tool that was called next."""


def expect(task: Task, toolkits: Mapping[str, Toolkit]) -> tuple[Expected, ...]:
    """Return what the calls come to without a host."""
    for server in task.servers:
        toolkits[server].begin(task.id)
    turns = []
    for turn in task.turns:
        results = tuple(toolkits[call.server].call(call.tool, call.arguments)[0] for call in turn.calls)
        turns.append(Expected(results, tuple(toolkits[server].state() for server in task.servers)))
    return tuple(turns)


@dataclass(slots=True)
class Oracle:
    """A model that knows the calls of the current turn.

    Args:
        format: The tool format of the client: ``native``, ``react``, ``xml`` or ``code``.
        names: The offered name of each tool, by server and tool.
    """

    format: str
    names: Mapping[tuple[str, str], str]
    calls: Iterator[Call] = field(default_factory=lambda: iter(()))
    next_call: Call | None = None
    text: str = ""
    searched: bool = False
    rounds: int = 0
    request_bytes: int = 0
    searches: int = 0
    found: int = 0

    def begin(self, turn: TaskTurn) -> None:
        """Prepare for the requests of a turn."""
        self.calls, self.text, self.searched = iter(turn.calls), turn.text, False
        self.next_call = next(self.calls, None)

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the next call, a search for its tool if it is not on offer, or the answer.

        The search has the user's own words. If it does not find the tool, the model calls the tool all the same, by
        its exact name.
        """
        self.rounds += 1
        about = [(tool.name, tool.description, dict(tool.input_schema)) for tool in request.tools]
        self.request_bytes += len(json.dumps(about)) + len(request.instruction_text)
        if self.next_call is None:
            return self._write_answer()
        if self.format == CODE:
            return self._write_program(request)
        name = self.names[self.next_call.server, self.next_call.tool]
        is_offered = self._is_offered(name, request)
        if not is_offered and not self.searched and self._is_offered(SEARCH, request):
            self.searched = True
            self.searches += 1
            return self._write_call(SEARCH, {"query": self.text})
        self.found += self.searched and is_offered
        arguments, self.searched = self.next_call.arguments, False
        self.next_call = next(self.calls, None)
        return self._write_call(name, arguments)

    def _write_program(self, request: ModelRequest) -> dict[str, Any]:
        """Return all calls of the turn as one program, after a search for what is not on offer."""
        assert self.next_call is not None
        calls = [self.next_call, *self.calls]
        names = [self.names[call.server, call.tool] for call in calls]
        described = next(tool.description for tool in request.tools if tool.name == RUN_CODE)
        missing = [name for name in names if f"async def {name}(" not in described]
        if missing and not self.searched and self._is_offered(SEARCH, request):
            self.searched = True
            self.searches += 1
            self.calls = iter(calls[1:])
            return self._write_call(SEARCH, {"query": self.text})
        answered = request.messages[-1].text if self.searched else ""
        self.found += self.searched and all(f"async def {name}(" in described + answered for name in names)
        self.next_call = None
        # Some solutions have calls that fail, and go on: a failed call raises in a program.
        lines = [
            f"try:\n    results.append(await {name}("
            f"{', '.join(f'{key}={value!r}' for key, value in call.arguments.items())}))\n"
            "except Exception as error:\n    results.append(str(error))"
            for name, call in zip(names, calls, strict=True)
        ]
        return self._write_call(RUN_CODE, {"code": "\n".join(["results = []", *lines, "results"])})

    def _is_offered(self, name: str, request: ModelRequest) -> bool:
        if request.tools:
            return any(tool.name == name for tool in request.tools)
        return f'"name": "{name}"' in request.instruction_text

    def _write_call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        text = json.dumps(arguments, ensure_ascii=False)
        if self.format in ("native", CODE):
            return {"tool_calls": [{"name": name, "arguments": text}], "chunk_size": PIECE}
        if self.format == "xml":
            call = f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>'
        else:
            call = f"Thought: The next step is {name}.\nAction: {name}\nAction Input: {text}"
        return {"text": call, "chunk_size": PIECE}

    def _write_answer(self) -> dict[str, Any]:
        label = "Thought: All is done.\nFinal Answer: " if self.format == "react" else ""
        return {"text": f"{label}It is done.", "chunk_size": PIECE}


class Host:
    """A client with the servers of a suite, for tasks one after another.

    Args:
        format: The tool format.
        search: True to offer a few tools, and a search for the others of all servers; False to offer the tools of a
            task's servers at once.
    """

    def __init__(
        self,
        servers: Sequence[str],
        format: str,  # noqa: A002 - as the option
        *,
        search: bool,
    ) -> None:
        self._servers, self._format, self._search = servers, format, search
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        module, entry = ["-m", "benchmarks.fidelity.server"], {"command": sys.executable, "autoApprove": ["*"]}
        servers = {name: entry | {"args": [*module, name]} for name in self._servers}
        self._dial = await self._stack.enter_async_context(
            DialClient(
                ScriptedProvider(self._reply),
                servers=servers,
                tool_format=self._format,
                limits=replace(LIMITS, max_tools=OFFERED if self._search else ALL),
            )
        )
        await self._dial.ready()
        self._names = {(tool.server, tool.tool): tool.name for tool in self._dial.tools}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _reply(self, request: ModelRequest) -> dict[str, Any]:
        return self._oracle.reply(request)

    async def play(self, task: Task, expected: Sequence[Expected]) -> Replay:
        """Play a task, up to its first difference."""
        oracle = self._oracle = Oracle(self._format, self._names)
        for server in task.servers:
            await self._dial.call(self._names[server, f"begin_{server}"], {"task": task.id})
        history: tuple[Message, ...] = ()
        fault = ""
        for turn, should_be in zip(task.turns, expected, strict=True):
            oracle.begin(turn)
            played = await self._dial.run(turn.text, history=history, tools=self._patterns(task, turn))
            history = (*history, *played.messages)
            states = [await self._state(server) for server in task.servers]
            fault = _find_fault(turn, played, should_be, states)
            if fault:
                break
        calls = sum(len(turn.calls) for turn in task.turns)
        return Replay(task.id, calls, fault, oracle.rounds, oracle.request_bytes, oracle.searches, oracle.found)

    def _patterns(self, task: Task, turn: TaskTurn) -> list[str]:
        hidden = turn.missing | {f"{server}/{tool}_{server}" for server in self._servers for tool in ("begin", "state")}
        servers = self._servers if self._search else task.servers
        return [*(f"{server}/*" for server in servers), *(f"!{name}" for name in sorted(hidden))]

    async def _state(self, server: str) -> str:
        return str((await self._dial.call(self._names[server, f"state_{server}"], {})).content)


def _find_fault(turn: TaskTurn, played: Turn, expected: Expected, states: Sequence[str]) -> str:
    """Return the first difference between a turn and what it should be; an empty text if there is none."""
    results = _list_results(played)
    for call, result, should_be in zip(turn.calls, results, expected.results, strict=False):
        # An exception of a program begins with the name of its function.
        if should_be not in (result, result.removeprefix(f"{call.tool}: ")):
            return f"{call.server}.{call.tool}({json.dumps(call.arguments)}): {result[:200]!r}, not {should_be[:200]!r}"
    if len(results) != len(expected.results):
        last = str(played.tool_calls[-1].result.content) if played.tool_calls else played.text
        return f"{len(results)} calls, not {len(expected.results)}: {last[:400]!r}"
    if tuple(states) != expected.states:
        return "another state"
    return "" if played.text == "It is done." else f"the answer is {played.text[:200]!r}"


def _list_results(played: Turn) -> list[str]:
    """Return the results of a turn's calls; those of a program as the program had them."""
    records = [record for record in played.tool_calls if record.call.name != SEARCH]
    program = next((record for record in records if record.call.name == RUN_CODE), None)
    if program is None:
        return [str(record.result.content) for record in records]
    try:
        results = json.loads(str(program.result.content))
    except ValueError:
        return []
    return [result if isinstance(result, str) else json.dumps(result) for result in results]
