"""Measures `SearchIndex` on LiveMCPBench: ``python -m benchmarks.search_live FOLDER``.

LiveMCPBench (github.com/icip-cas/LiveMCPBench, Apache-2.0) has 527 tools of 70 servers, 95 tasks with the tools that
people annotated, and the searches that a model made while it worked on them. It is not part of this repository: FOLDER
is a copy of it. Every file of results in it has the same 283 searches of one model; a file is read once.

The tasks are in two halves, by a hash of their names: the index was tuned on one half. The needs of
`search_needs.txt`, for tools of 60 of the servers, are in two halves as well. A search has two texts, what kind of
server and what to do; with ``--one-field`` they are one text. Reported are, in percent:

annotated   annotated tools among the first five of any search of their task
named       the same, or among the names that the answers of these searches give besides, about 20 each
used        searches after which a tool was called before the next search, with this tool among the first five
used first  the same, with this tool first
need        needs with a right tool among the first five
need first  needs with a right tool first

A second line has what the tool of search answers, played task by task: it describes only what is not on offer yet.

described   annotated tools that an answer of their task describes
mentioned   annotated tools that an answer of their task describes or names
available   searches as of "used", with the tool on offer after the answer: described, named, or found before
first       searches as of "used", with the tool first in the answer: described, or named since it is on offer
answers     bytes of the answers of a task
definitions bytes of the definitions of found tools, over all requests that the model made in a task
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.report import machine
from benchmarks.search import as_wire
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolSpec
from dial_client.tools.catalog import Catalog, Route, assign_names
from dial_client.tools.function_tools import FunctionTools
from dial_client.tools.result_content import ResultStore
from dial_client.tools.search_index import MAX_NAMED, SearchIndex, describe_less_likely
from dial_client.tools.tool_selection import ToolSnapshot, TurnTools

FOUND = 5
RESULTS = "baseline/output/claude-sonnet-4-20250514_Qwen3-Embedding-0.6B.json"
SEARCH = re.compile(r"<tool_assistant>\s*server:\s*(.*?)\s*tool:\s*(.*?)\s*</tool_assistant>", re.DOTALL)
NAME = re.compile(r"[\w-]+")
DESCRIBED = re.compile(r"^- ([\w-]+): ", re.MULTILINE)
NAMED = re.compile(r"^(?:On offer already|Others, which can be called by name): (.*)\.$", re.MULTILINE)
FIRST = re.compile(r"^(?:- |On offer already: )([\w-]+)", re.MULTILINE)
REQUEST = "a request to the model"
NEEDS = Path(__file__).with_name("search_needs.txt")

# A tool by its server's name and its own.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Search:
    """A search of a model, and the tools that it called after it."""

    server: str
    action: str
    used: frozenset[Key]
    requests: int = 0
    """The requests to the model after the search, until the next search."""


@dataclass(frozen=True)
class LiveBench:
    """The data of LiveMCPBench.

    Args:
        folder: A copy of the repository.
    """

    folder: Path

    @cached_property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools, with the names under which they would be offered."""
        found: dict[Key, Mapping[str, Any]] = {}
        for server in self._read("tools/LiveMCPTool/tools.json"):
            for name, listed in server["tools"].items():
                found |= {(name, tool["name"]): tool for tool in listed.get("tools", ())}
        names = assign_names(found)
        return tuple(
            ToolSpec(
                names[key],
                tool["description"] or "",
                tool["inputSchema"],
                server=key[0],
                tool=key[1],
                title=(tool["annotations"] or {}).get("title"),
            )
            for key, tool in found.items()
        )

    @cached_property
    def annotated(self) -> Mapping[str, frozenset[str]]:
        """The annotated tools of each task by their own names; a few that no server has are left out."""
        known = frozenset(tool.tool for tool in self.tools)
        return {
            task["task_id"]: frozenset(
                re.findall(r"^\s*\d+\.\s*(\S+)\s*$", task["Annotator Metadata"]["Tools"], re.MULTILINE)
            )
            & known
            for task in self._read("annotated_data/all_annotations.json")
        }

    @cached_property
    def searches(self) -> Mapping[str, Sequence[Search]]:
        """The searches of each task in order."""
        return {task["task_id"]: tuple(self._read_searches(task["messages"])) for task in self._read(RESULTS)}

    def _read_searches(self, messages: Iterable[Any]) -> Iterator[Search]:
        known = {(tool.server, tool.tool) for tool in self.tools}
        latest: Search | None = None
        for name, arguments in _list_calls(messages):
            if name == "route":
                if latest is not None:
                    yield latest
                words = SEARCH.search(arguments["query"])
                server, action = words.groups() if words else ("", arguments["query"])
                latest = Search(server, action, frozenset())
            elif latest is not None and name == REQUEST:
                latest = replace(latest, requests=latest.requests + 1)
            elif latest is not None:
                key = (arguments.get("server_name", ""), arguments.get("tool_name", ""))
                latest = replace(latest, used=latest.used | ({key} & known))
        if latest is not None:
            yield latest

    def _read(self, path: str) -> Any:
        return json.loads((self.folder / path).read_text(encoding="utf-8"))


def _list_calls(messages: Iterable[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for message in messages:
        if not isinstance(message, dict) or message["role"] != "assistant":
            continue
        yield REQUEST, {}
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"], json.loads(call["function"]["arguments"])


def read_needs() -> Iterator[tuple[int, str, frozenset[Key]]]:
    """Yield the half, the text and the right tools of each need; half 0 may be tuned on."""
    half = 0
    for line in NEEDS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            half = 0
        elif line and not line.startswith("#"):
            text, expected = line.split(" | ")
            keys = (key.split("/") for key in expected.split(", "))
            yield half, text, frozenset((server, tool) for server, tool in keys)
            half = 1


def find_half(task: str) -> int:
    """Return 0 for a task of the half for tuning, else 1."""
    return hashlib.sha256(task.encode()).digest()[-1] % 2


def measure(bench: LiveBench, index: SearchIndex, halves: Sequence[int], *, one_field: bool) -> dict[str, float]:
    """Return the figures of some halves in percent, as the module describes them."""

    def find(search: Search) -> tuple[list[Key], list[Key]]:
        query, server = (f"{search.server} {search.action}", "") if one_field else (search.action, search.server)
        ranked = index.search(query, FOUND + MAX_NAMED, server=server)
        line = " ".join(describe_less_likely(tool.name for tool in ranked[FOUND:])).partition(": ")[2]
        less_likely = [tool for tool in ranked[FOUND:] if tool.name in NAME.findall(line)]
        found, named = ([(tool.server, tool.tool) for tool in tools] for tools in (ranked[:FOUND], less_likely))
        return found, named

    figures = ("annotated", "named", "used", "used first", "need", "need first")
    hits: dict[str, list[bool]] = {name: [] for name in figures}
    for task, expected in bench.annotated.items():
        if find_half(task) not in halves:
            continue
        found = [(search, *find(search)) for search in bench.searches.get(task, ())]
        offered = {tool for _, keys, _ in found for _, tool in keys}
        named = offered | {tool for _, _, keys in found for _, tool in keys}
        hits["annotated"] += (tool in offered for tool in expected)
        hits["named"] += (tool in named for tool in expected)
        used = [(search.used, keys) for search, keys, _ in found if search.used]
        hits["used"] += (not expected_keys.isdisjoint(keys) for expected_keys, keys in used)
        hits["used first"] += (not expected_keys.isdisjoint(keys[:1]) for expected_keys, keys in used)
    for half, text, right in read_needs():
        if half in halves:
            keys = [(tool.server, tool.tool) for tool in index.search(text, FOUND)]
            hits["need"].append(not right.isdisjoint(keys))
            hits["need first"].append(not right.isdisjoint(keys[:1]))
    return {f"{name} ({len(values)})": 100 * sum(values) / len(values) for name, values in hits.items()}


async def play(bench: LiveBench, index: SearchIndex, halves: Sequence[int]) -> dict[str, float]:
    """Return the figures of the answers in some halves, in percent and in bytes of a task with searches."""

    async def ignore(*_: object) -> None: ...

    backend = FunctionTools()
    catalog = Catalog(bench.tools, {tool.name: Route(backend, tool) for tool in bench.tools})
    snapshot = ToolSnapshot(catalog, build_index=lambda _: index)
    sizes = {tool.name: len(json.dumps(as_wire(tool), ensure_ascii=False).encode()) for tool in bench.tools}
    hits: dict[str, list[bool]] = {"described": [], "mentioned": [], "available": [], "first": []}
    sums = {"answers": 0, "definitions": 0}
    tasks = [task for task in bench.annotated if find_half(task) in halves]
    for task in tasks:
        turn = TurnTools(lambda: snapshot, ResultStore(), Limits())
        described, mentioned = set[str](), set[str]()
        for search in bench.searches.get(task, ()):
            arguments = {"query": search.action, "server": search.server}
            answer = str((await turn.call("search_tools", arguments, ignore)).content)
            described.update(DESCRIBED.findall(answer))
            mentioned.update(name for line in NAMED.findall(answer) for name in line.split(", "))
            offered = {tool.name for tool in turn.offer_tools() if tool.server}
            used = {catalog.by_key[key].spec.name for key in search.used}
            if used:
                hits["available"].append(not used.isdisjoint(offered))
                hits["first"].append(not used.isdisjoint(FIRST.findall(answer)[:1]))
            sums["answers"] += len(answer.encode())
            sums["definitions"] += search.requests * sum(sizes[name] for name in offered)
            # A call without success adds no use, which would change the ranking of what follows.
            turn.add_calls((name, False) for name in used)
        for figure, found in (("described", described), ("mentioned", described | mentioned)):
            own = {catalog.routes[name].spec.tool for name in found}
            hits[figure] += [tool in own for tool in bench.annotated[task]]
    figures = {f"{name} ({len(values)})": 100 * sum(values) / len(values) for name, values in hits.items()}
    return figures | {name: total / len(tasks) for name, total in sums.items()}


def multiply(tools: Sequence[ToolSpec], count: int) -> list[ToolSpec]:
    """Return `count` tools: copies of the given tools on servers with other names."""
    return [
        replace(tool, name=f"{tool.name}_{copy}", server=f"{tool.server}{copy}")
        for tool, copy in ((tools[at % len(tools)], at // len(tools)) for at in range(count))
    ]


def measure_time(bench: LiveBench, repeat: int) -> Iterator[str]:
    """Yield lines with milliseconds of processor time, the least of some repetitions."""
    some, many = multiply(bench.tools, 2_000), multiply(bench.tools, 10_000)
    known = SearchIndex(some)
    changed = [replace(tool, description="Changed.") if tool.server == some[0].server else tool for tool in some]
    # The same loop before each figure: how fast the machine is at this moment.
    yield f"a sum of a million numbers            {_time(lambda: sum(range(1_000_000)), repeat):6.1f} ms"
    yield f"index of 2,000 tools                  {_time(lambda: SearchIndex(some), repeat):6.1f} ms"
    yield f"the same after a change of one server {_time(lambda: SearchIndex(changed, known), repeat):6.1f} ms"
    index = SearchIndex(many)
    searches = [search for of_task in bench.searches.values() for search in of_task]
    times = sorted(
        _time(lambda search=search: index.search(search.action, server=search.server), 3) for search in searches
    )
    median, late = times[len(times) // 2], times[len(times) * 95 // 100]
    yield f"a search among 10,000 tools           {median:6.1f} ms (95 of 100 at most {late:.1f} ms)"


def _time(run: Any, repeat: int) -> float:
    least = float("inf")
    for _ in range(repeat):
        started_at = time.process_time()
        run()
        least = min(least, time.process_time() - started_at)
    return 1_000 * least


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_live", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a copy of LiveMCPBench")
    parser.add_argument("--one-field", action="store_true", help="search with one text in place of two")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="how often times are measured")
    options = parser.parse_args()
    bench = LiveBench(options.folder)
    index = SearchIndex(bench.tools)
    servers = {tool.server for tool in bench.tools}
    print(f"{len(bench.tools)} tools of {len(servers)} servers, {len(bench.annotated)} tasks\n")
    for name, halves in (("tuning half", (0,)), ("held-out half", (1,)), ("all", (0, 1))):
        figures = measure(bench, index, halves, one_field=options.one_field)
        played = asyncio.run(play(bench, index, halves))
        for start, line in ((name, figures), ("  answers", played)):
            print(f"{start:14}", *(f"{figure} {value:.1f}" for figure, value in line.items()), sep="  ")
    print("", *measure_time(bench, options.repeat), "", machine(), sep="\n")


if __name__ == "__main__":
    main()
