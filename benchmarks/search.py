"""Measures how well `SearchIndex` finds the right tool among 300: ``python -m benchmarks.search``.

The questions are in `search_reported.txt`; the index was tuned on those of `search_tuning.txt`, but see ADR 0052. It is
compared with a plain keyword search, which counts the query's words in a tool's name and description. A hit is an
expected tool among the first results. Tokens are the bytes of the tools' JSON in a chat completion, divided by four.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.report import machine
from benchmarks.search_data import Question, questions, tools
from dial_client.messages.message import ToolSpec
from dial_client.tools.search_index import SearchIndex

DEPTHS = (1, 3, 5, 10)
OFFERED = 5
MANY = 2_000

Search = Callable[[str, int], Sequence[ToolSpec]]

SEARCH_TOOL = ToolSpec(
    "search_tools",
    "Find tools by what they do. What is found can be called from then on.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What is to be done, in a few words."},
            "limit": {"type": "integer", "description": "How many tools to give."},
        },
        "required": ["query"],
    },
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tools of a request, in tokens of four bytes."""

    all_tools: int
    found: float
    """The search tool and its first `OFFERED` results, on average over the questions."""


class KeywordSearch:
    """The simplest search, which counts common words."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        ordered = sorted(tools, key=lambda tool: tool.name)
        self._words = [(tool, _words(f"{tool.name} {tool.description}")) for tool in ordered]

    def search(self, query: str, limit: int = OFFERED) -> tuple[ToolSpec, ...]:
        """Return the tools that share the most words with the query; tools with equal counts are sorted by name."""
        query_words = _words(query)
        counts = [(len(query_words & words), tool) for tool, words in self._words]
        ranked = sorted((pair for pair in counts if pair[0]), key=lambda pair: -pair[0])
        return tuple(tool for _, tool in ranked[:limit])


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def hit_rates(search: Search, question_set: Sequence[Question]) -> dict[int, float]:
    """Return, for each of `DEPTHS`, the share of questions with an expected tool among the first results."""
    found = [
        [tool.name in question.expected for tool in search(question.text, max(DEPTHS))] for question in question_set
    ]
    return {depth: sum(any(hits[:depth]) for hits in found) / len(question_set) for depth in DEPTHS}


def compared(searches: Mapping[str, Search], question_set: Sequence[Question]) -> dict[str, dict[int, float]]:
    """Return the hit rates of each search for all questions, for questions of models and for questions of people."""
    rates = {}
    for kind in ("all", *sorted({question.asks for question in question_set})):
        of_kind = [question for question in question_set if kind in ("all", question.asks)]
        for name, search in searches.items():
            rates[f"{name}, {kind} ({len(of_kind)})"] = hit_rates(search, of_kind)
    return rates


def as_wire(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool in the format of chat completions."""
    function = {"name": tool.name, "parameters": dict(tool.input_schema), "description": tool.description}
    return {"type": "function", "function": function}


def tokens_of(offered: Iterable[ToolSpec]) -> int:
    """Return a quarter of the bytes of the tools' JSON."""
    return len(json.dumps([as_wire(tool) for tool in offered], ensure_ascii=False, separators=(",", ":")).encode()) // 4


def tokens(search: Search, offered: Sequence[ToolSpec], question_set: Sequence[Question]) -> Tokens:
    """Return the tokens of offering every tool, and of offering the search tool and its results."""
    found = [tokens_of([SEARCH_TOOL, *search(question.text, OFFERED)]) for question in question_set]
    return Tokens(tokens_of(offered), statistics.mean(found))


def milliseconds(
    offered: Sequence[ToolSpec], question_set: Sequence[Question], repeat: int
) -> tuple[float, float, float]:
    """Return milliseconds: the median for building an index, and the median and maximum for a query."""
    builds, queries = [], []
    for _ in range(repeat):
        started_at = time.perf_counter()
        index = SearchIndex(offered)
        builds.append(1000 * (time.perf_counter() - started_at))
        for question in question_set:
            started_at = time.perf_counter()
            index.search(question.text)
            queries.append(1000 * (time.perf_counter() - started_at))
    return statistics.median(builds), statistics.median(queries), max(queries)


def multiplied(offered: Sequence[ToolSpec], count: int) -> list[ToolSpec]:
    """Return `count` tools: copies of the given tools on servers with other names."""
    return [
        replace(tool, name=f"{tool.name}_{at // len(offered)}", server=f"{tool.server}{at // len(offered)}")
        for at, tool in ((at, offered[at % len(offered)]) for at in range(count))
    ]


def table(rates: Mapping[str, Mapping[int, float]]) -> str:
    """Return the hit rates as plain text."""
    heads = ["search".ljust(28), *(f"hit@{depth}".rjust(7) for depth in DEPTHS)]
    rows = ([name.ljust(28), *(f"{rate[depth]:7.0%}" for depth in DEPTHS)] for name, rate in rates.items())
    return "\n".join("".join(cells) for cells in (heads, *rows))


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--tuning", action="store_true", help="the questions the index was tuned on, with misses")
    parser.add_argument("--repeat", type=int, default=9, metavar="N", help="how often an index is built and timed")
    options = parser.parse_args()
    offered, question_set = tools(), questions("tuning" if options.tuning else "reported")
    index = SearchIndex(offered)
    print(
        f"{len(question_set)} questions ({'tuning' if options.tuning else 'reported'} set), {len(offered)} tools of",
        end=" ",
    )
    print(len({tool.server for tool in offered}), "servers\n")
    searches: dict[str, Search] = {"keywords": KeywordSearch(offered).search, "SearchIndex": index.search}
    print(table(compared(searches, question_set)), end="\n\n")
    if options.tuning:
        missed = [q for q in question_set if not q.expected & {tool.name for tool in index.search(q.text, OFFERED)}]
        print(*(f"missed: {question.text}" for question in missed), "", sep="\n")
    used = tokens(index.search, offered, question_set)
    print(f"tokens: all tools {used.all_tools:,}; search and {OFFERED} found {used.found:,.0f} on average", end=" ")
    print(f"({1 - used.found / used.all_tools:.1%} less)\n")
    for many in (offered, multiplied(offered, MANY)):
        build, query, longest = milliseconds(many, question_set, options.repeat)
        print(f"{len(many):>5} tools: build {build:6.1f} ms, query {query:5.2f} ms (longest {longest:.2f})")
    print("", machine(), sep="\n")


if __name__ == "__main__":
    main()
