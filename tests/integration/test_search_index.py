"""The search index for tools: queries of a few words find matching tools with different naming styles."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.search import KeywordSearch, as_wire, hit_rates
from benchmarks.search_data import questions, tools
from benchmarks.search_live import RESULTS, LiveBench, measure, play, read_needs
from tests.inner import CHAT, MAX_QUERY, MAX_SCHEMAS, ChatProvider, Endpoint, Message, SearchIndex, ToolSpec
from tests.support.fakes import unhurried
from tests.support.model_endpoint import Say, hear, model_endpoint
from tests.support.program import LONG

ROOT = Path(__file__).parents[2]


def spec(name: str, description: str = "", *, server: str = "", tool: str = "", title: str = "", **of: Any) -> ToolSpec:
    schema = {"type": "object", "properties": of}
    return ToolSpec(name, description, schema, server=server, tool=tool or name, title=title or None)


def found(offered: Sequence[ToolSpec], query: str, limit: int = 5) -> list[str]:
    return [tool.name for tool in SearchIndex(offered).search(query, limit)]


ISSUES = spec("create_issue", "Create a new issue in a repository.", server="github")
TICKETS = spec("createJiraTicket", "Create a ticket in a project.", server="jira")
FORECAST = spec("get-forecast", "Weather of the coming days.", server="weather", city={"type": "string"})
DELETE = spec("delete_file", "Delete a file from the disk.", server="filesystem", path={"type": "string"})
LIST = spec("list_directory", "The files of a directory.", server="filesystem", path={"type": "string"})
OFFERED = [ISSUES, TICKETS, FORECAST, DELETE, LIST]


# --- matching ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create an issue", "create_issue"),
        ("create_issue", "create_issue"),
        ("CREATE ISSUE", "create_issue"),
        ("createIssue", "create_issue"),
        ("create-issue!", "create_issue"),
        ("jira ticket", "createJiraTicket"),
        ("create jira ticket", "createJiraTicket"),
        ("createjiraticket", "createJiraTicket"),
        ("deleting files", "delete_file"),
        ("remove a document", "delete_file"),
        ("what is in this folder?", "list_directory"),
        ("wether forcast", "get-forecast"),
        ("show the direcotry", "list_directory"),
    ],
)
def test_words_of_a_query_find_the_matching_tool(query: str, first: str) -> None:
    assert found(OFFERED, query)[0] == first


def test_a_tool_named_in_the_query_comes_first() -> None:
    noisy = [spec(f"issue_{at}", "create an issue in a repository " * 3) for at in range(9)]
    asked = "create an issue in a repository, as get-forecast does"
    assert found([*OFFERED, *noisy], asked)[0] == "get-forecast"
    assert found([*OFFERED, *noisy], "Use createJiraTicket.")[0] == "createJiraTicket"


def test_a_query_may_use_the_servers_own_name_of_a_tool() -> None:
    offered = [spec(f"{server}__pages_read", server=server, tool="pages.read") for server in ("a", "b")]
    assert found([*OFFERED, *offered], "call pages.read")[:2] == ["a__pages_read", "b__pages_read"]


def test_a_tool_name_of_one_common_word_has_no_extra_weight() -> None:
    query = spec("query", "Run a statement.")
    logs = spec("search_logs", "Search logs by a query.")
    assert found([query, logs], "search the logs by a query")[0] == "search_logs"
    assert found([query, logs], "query")[0] == "query"


def test_the_server_decides_between_tools_of_the_same_name() -> None:
    offered = [
        spec(f"{server}__delete_file", "Delete a file.", server=server, tool="delete_file")
        for server in ("box", "drive", "disk")
    ]
    for server in ("box", "drive", "disk"):
        assert found(offered, f"delete a file on {server}")[0] == f"{server}__delete_file"


@pytest.mark.parametrize(
    ("schema", "query"),
    [
        ({"dueDate": {"type": "string"}}, "due date"),
        ({"x": {"description": "The colour of the label."}}, "colour"),
        ({"x": {"enum": ["squash", "rebase"]}}, "rebase"),
        ({"x": {"type": "array", "items": {"properties": {"recipient": {}}}}}, "recipient"),
        ({"x": {"anyOf": [{"enum": ["urgent"]}, {"type": "null"}]}}, "urgent"),
    ],
)
def test_parameter_names_are_searched(schema: dict[str, Any], query: str) -> None:
    assert found([*OFFERED, spec("a1"), spec("z9", **schema)], query)[0] == "z9"


def test_shared_definitions_are_searched() -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/Level"}}, "$defs": {"Level": {"enum": ["critical"]}}}
    assert found([*OFFERED, ToolSpec("z9", "", MappingProxyType(schema))], "critical") == ["z9"]


def test_titles_are_searched() -> None:
    assert found([*OFFERED, spec("z9", title="Archive Mailbox")], "mailbox") == ["z9"]


def test_a_word_of_the_name_weighs_more_than_a_word_of_a_long_description() -> None:
    talker = spec("a1", "Does this and that, and can be used where an invoice is wanted. " * 5)
    assert found([talker, spec("void_invoice", "Void it.")], "invoice")[0] == "void_invoice"


def test_a_repeated_word_gains_little_weight() -> None:
    stuffed = spec("a1", "invoice " * 2_000)
    assert found([stuffed, spec("send_invoice", "Send an invoice.")], "send an invoice")[0] == "send_invoice"


def test_a_word_of_the_query_comes_before_a_synonym() -> None:
    erase, remove = spec("a_erase", "Erase a row."), spec("z_remove", "Remove a row.")
    assert found([erase, remove], "remove") == ["z_remove", "a_erase"]


def test_abbreviations_match_full_words_and_vice_versa() -> None:
    pull, short = spec("merge_pull_request"), spec("close_pr")
    assert found([*OFFERED, pull], "merge the PR")[0] == "merge_pull_request"
    assert "close_pr" in found([*OFFERED, short], "close my pull request")


def test_a_query_that_adds_a_file_does_not_find_a_tool_that_deletes_files_first() -> None:
    offered = [spec(f"{verb}_file", f"{verb.capitalize()} a file.") for verb in ("delete", "send", "create")]
    assert found(offered, "upload a file")[0] != "delete_file"
    assert found(offered, "add a file")[0] == "create_file"
    assert found(offered, "delete a file")[0] == "delete_file"
    assert found(offered, "get rid of the file")[0] == "delete_file"


def test_the_first_words_of_a_query_count_more_than_the_last() -> None:
    offered = [spec("plant_a_rose"), spec("feed_the_cat")]
    assert found(offered, "plant feed rose cat")[0] == "plant_a_rose"
    assert found(offered, "feed plant cat rose")[0] == "feed_the_cat"


def test_the_kind_of_server_decides_between_tools_that_do_the_same() -> None:
    offered = [
        spec("search_papers", "Search by a topic.", server="arxiv"),
        spec("search_cards", "Search by a topic.", server="deck"),
        spec("read_paper", "Read a scientific paper.", server="arxiv"),
        spec("draw_card", "Draw a card of the game.", server="deck"),
    ]
    index = SearchIndex(offered)
    assert index.search("search by a topic", server="scientific papers")[0].name == "search_papers"
    assert index.search("search by a topic", server="a card game")[0].name == "search_cards"
    assert index.search("search by a topic", server="deck")[0].name == "search_cards"
    assert {tool.server for tool in index.search("search a topic", 9, server="papers", only="deck")} == {"deck"}
    assert index.search("search", only="unknown") == ()


def test_used_tools_come_before_equal_tools_and_not_before_better_tools() -> None:
    offered = [spec(name, "Water the plants.", server="garden") for name in ("a", "b")]
    offered.append(spec("feed_cat", "Feed the cat.", server="garden"))
    uses = {("garden", "b"): 1_000, ("garden", "feed_cat"): 1_000}
    index = SearchIndex(offered)
    assert [tool.name for tool in index.search("water plants", uses=uses)][:2] == ["b", "a"]
    assert index.search("water plants", 1, uses=uses)[0].name == "b"


def test_an_index_of_changed_tools_keeps_the_words_of_other_servers() -> None:
    before = [spec("water_plants", server="garden"), spec("old_issue", server="github")]
    after = [before[0], spec("new_issue", server="github"), spec("feed_cat", server="pets")]
    grown = SearchIndex(after, SearchIndex(before))
    for query in ("plants", "issue", "cat", "old_issue"):
        assert grown.search(query) == SearchIndex(after).search(query)
    assert grown.search("plants")[0] is before[0]
    again = SearchIndex(before, grown)
    assert [tool.name for tool in again.search("issue")] == ["old_issue"]


def test_an_index_of_some_of_the_tools_of_a_server_finds_what_a_new_index_of_them_finds() -> None:
    every = [spec(name, f"{name} of the garden.", server="garden") for name in ("water", "weed", "harvest")]
    changed = [every[0], spec("weed", "Pull out thistles.", server="garden")]
    some = SearchIndex(changed, SearchIndex(every))
    for query in ("water", "harvest", "thistles", "garden"):
        assert some.search(query) == SearchIndex(changed).search(query)


def test_common_words_among_many_tools_only_rank_the_results_of_rarer_words() -> None:
    many = [spec(f"get_item_{at}", "Get an item.", server=f"s{at % 50}") for at in range(3_000)]
    index = SearchIndex([*many, spec("get_invoice", "Get an invoice.", server="bills")])
    assert index.search("get an invoice item")[0].name == "get_invoice"
    assert index.search("get_item_2999")[0].name == "get_item_2999"
    assert len(index.search("get item", 7)) == 7


def test_of_too_many_equal_tools_the_first_tools_are_found() -> None:
    many = [spec(f"item_{at}", "Water the plants.") for at in range(3_000)]
    assert [tool.name for tool in SearchIndex(many).search("plants", 3)] == ["item_0", "item_1", "item_10"]
    assert [tool.name for tool in SearchIndex(many[::-1]).search("plants", 2)] == ["item_2900", "item_2901"]


def test_a_question_prefers_tools_that_read() -> None:
    offered = [spec("create_event", "An event."), spec("list_events", "Events."), spec("update_event", "An event.")]
    assert found(offered, "Which events are there?")[0] == "list_events"


@pytest.mark.parametrize(
    ("name", "description", "query"),
    [
        ("z9", "Zeigt das Wetter für München", "wetter munchen"),
        ("z9", "Cree una reunión", "reunion"),
        ("z9", "Показать погоду", "ПОГОДУ"),
        ("z9", "天气 预报", "天气"),
        ("z9", "Straße", "STRASSE"),
        ("z9", "ﬁnal report", "final"),
    ],
)
def test_words_of_any_language_are_searched(name: str, description: str, query: str) -> None:
    assert found([*OFFERED, spec(name, description)], query)[0] == "z9"


# --- empty results and limits -----------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", " \n\t", "?!…", "the of and", "qzxv", "\0", "\ud800", "🙂", "_" * 600, "7"])
def test_a_query_without_meaningful_words_finds_nothing(query: str) -> None:
    assert found(OFFERED, query) == []


def test_an_empty_index_finds_nothing() -> None:
    assert found([], "create an issue") == []


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 0), (1, 1), (2, 2), (99, 2)])
def test_the_number_of_results_is_limited(limit: int, count: int) -> None:
    assert len(found(OFFERED, "create", limit)) == count


def test_only_the_start_of_a_long_query_is_used() -> None:
    assert found(OFFERED, "x" * MAX_QUERY + " weather forecast") == []
    assert found(OFFERED, "weather forecast " + "x " * 1_000_000)[0] == "get-forecast"


def test_only_a_limited_part_of_a_large_schema_is_indexed() -> None:
    wide: dict[str, Any] = {f"p{at}": {"type": "string"} for at in range(MAX_SCHEMAS)} | {"recipient": {}}
    deep: dict[str, Any] = {"properties": {"recipient": {}}}
    for _ in range(5_000):
        deep = {"items": deep}
    assert found([spec("a", **wide), spec("b", x=deep)], "recipient") == []
    assert found([spec("a", **wide), spec("b", x=deep)], "p7") == ["a"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": None},
        {"properties": []},
        {"properties": {"x": True}},
        {"properties": {"x": {"enum": [{}, [], None, 1]}}},
        {"properties": {"x": {"enum": "abc", "description": 7}}},
        {"anyOf": {"a": 1}, "items": True, "$defs": "x", "allOf": [None]},
    ],
)
def test_malformed_schemas_are_indexed_without_errors(schema: Any) -> None:
    assert found([ToolSpec("send_mail", "", schema)], "mail") == ["send_mail"]


# --- order --------------------------------------------------------------------------------------------


def test_equal_matches_are_ordered_by_name() -> None:
    offered = [spec(name, "Water the plants.") for name in ("c", "a", "b")]
    for order in permutations(offered):
        assert found(order, "plants") == ["a", "b", "c"]


def test_the_first_of_two_tools_with_the_same_name_is_used() -> None:
    first, second = spec("same", "Water the plants."), spec("same", "Feed the plants.")
    assert SearchIndex([first, second]).search("plants") == (first,)


def test_the_order_is_the_same_in_every_process() -> None:
    program = (
        "from benchmarks.search_data import questions, tools; from dial_client.tools.search_index import SearchIndex; "
        "index = SearchIndex(tools()); "
        "print([tool.name for q in questions('tuning') for tool in index.search(q.text.replace('e', 'a'), 9)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


# --- arbitrary input ----------------------------------------------------------------------------------

WORDS = st.sampled_from(["create", "issue", "createIssue", "files", "fiel", "Größe", "pull request", "\ud800", "PR"])
TEXTS = st.lists(WORDS | st.text(max_size=6), max_size=6).map(" ".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "anyOf", "enum", "description", "$defs"]) | TEXTS, inner, max_size=4
        )
    ),
    max_leaves=12,
)
SPECS = st.builds(
    ToolSpec,
    name=TEXTS,
    description=TEXTS,
    input_schema=st.dictionaries(st.sampled_from(["properties", "items", "$defs", "oneOf"]), JSON, max_size=3),
    server=TEXTS,
    tool=TEXTS,
    title=st.none() | TEXTS,
)


@unhurried
@given(st.lists(SPECS, max_size=8), TEXTS, st.integers(-2, 20))
@example([ToolSpec("", "", {})], "", 5)
def test_any_query_returns_distinct_offered_tools_deterministically(
    offered: list[ToolSpec], query: str, limit: int
) -> None:
    results = SearchIndex(offered).search(query, limit)
    names = [tool.name for tool in results]
    assert all(any(tool is tool_offered for tool_offered in offered) for tool in results)
    assert len(set(names)) == len(names) <= max(limit, 0)
    assert SearchIndex(offered).search(query, limit) == results


# --- the benchmark ------------------------------------------------------------------------------------


def test_the_benchmark_has_its_documented_numbers_of_tools_and_questions() -> None:
    offered, reported, tuning = tools(), questions("reported"), questions("tuning")
    assert (len(offered), len({tool.server for tool in offered})) == (300, 10)
    assert (len(reported), len(tuning)) == (50, 100)
    assert {question.asks for question in (*reported, *tuning)} == {"model", "person"}
    assert not {question.text.lower() for question in reported} & {question.text.lower() for question in tuning}
    assert all(set(tool.input_schema.get("required", ())) <= set(tool.input_schema["properties"]) for tool in offered)


def test_the_index_beats_a_keyword_search_on_questions_outside_the_tuning_set() -> None:
    offered, asked = tools(), questions("reported")
    ours, plain = hit_rates(SearchIndex(offered).search, asked), hit_rates(KeywordSearch(offered).search, asked)
    assert all(ours[depth] > plain[depth] for depth in ours)
    as_models_ask = [question for question in asked if question.asks == "model"]
    assert hit_rates(SearchIndex(offered).search, as_models_ask)[5] >= 0.95
    assert ours[5] >= 0.8


@pytest.mark.anyio
async def test_the_benchmark_counts_tools_in_the_form_of_requests() -> None:
    offered = tools()[:20]
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        await hear(provider, Message.user("Hello?"), tools=offered)
        await provider.aclose()
    assert endpoint.requests[0].json["tools"] == [as_wire(tool) for tool in offered]


def test_the_benchmark_prints_its_tables() -> None:
    command = [sys.executable, "-m", "benchmarks.search", "--repeat", "1"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=LONG).stdout
    assert printed.startswith("50 questions (reported set), 300 tools of 10 servers")
    assert "SearchIndex, model (25)" in printed
    assert "tokens: all tools" in printed
    assert " 2000 tools: build" in printed


def test_the_benchmark_reads_searches_and_the_tools_that_were_called_next(tmp_path: Path) -> None:
    query = "<tool_assistant>\nserver: plants\ntool: water the roses\n</tool_assistant>"
    used = {"server_name": "garden", "tool_name": "water_plants"}
    calls = [
        {"function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in (("route", {"query": query}), ("execute-tool", used))
    ]
    tool: dict[str, Any] = {"name": "water_plants", "description": "", "inputSchema": {}, "annotations": None}
    more = [tool | {"name": f"other_{number}"} for number in range(40)]
    annotations = {"task_id": "a", "Annotator Metadata": {"Tools": "1. water_plants\n2. gone"}}
    for path, content in (
        ("tools/LiveMCPTool/tools.json", [{"tools": {"garden": {"tools": [tool, *more]}}}]),
        ("annotated_data/all_annotations.json", [annotations]),
        (RESULTS, [{"task_id": "a", "messages": [{"role": "assistant", "tool_calls": calls}]}]),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content), encoding="utf-8")
    bench = LiveBench(tmp_path)
    assert bench.annotated == {"a": {"water_plants"}}
    figures = measure(bench, SearchIndex(bench.tools), (0, 1), one_field=False)
    assert (figures["annotated (1)"], figures["used (1)"], figures["used first (1)"]) == (100, 100, 100)
    played = asyncio.run(play(bench, SearchIndex(bench.tools), (0, 1)))
    assert [played[f"{figure} (1)"] for figure in ("described", "mentioned", "available", "first")] == [100] * 4
    assert played["answers"] == len("These tools can be called now:\n- water_plants: ")
    assert [half for half, _, _ in read_needs()] == [0, 1] * 60
