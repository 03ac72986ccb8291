"""Selection of offered tools: all tools, or the found tools and the search tool; reading of long results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Limits, Message, StopReason, Turn
from dial_client.testing import ScriptedProvider
from tests.inner import (
    MAX_OFFERED,
    MAX_OWNERS,
    MAX_TOOLS,
    Approval,
    ApprovalContext,
    ResultStore,
    Route,
    ToolCallRequest,
    ToolSnapshot,
    ToolSpec,
    ToolUses,
    TurnTools,
    add_own_tools,
    build_catalog,
    select_tools,
)
from tests.support.fakes import server, tool_named
from tests.support.program import entry

ASK = [Message.user("go on")]
ROSES = [f"rose_{number}" for number in range(50, 80)]
LONG = "".join(f"line {number}: nothing\n" for number in range(20_000)) + "line 20000: the needle\n"


def menu_of(count: int, *, pinned: frozenset[str] = frozenset()) -> ToolSnapshot:
    many = [tool_named(f"tool_{number}", description=f"Does thing {number}.") for number in range(count)]
    few = [tool_named("send_mail", description="Sends a message by mail."), tool_named("read_mail")]
    return ToolSnapshot(build_catalog([server("many", *many), server("mail", *few)]), pinned)


def turn_tools(
    menu: ToolSnapshot, *history: Message, limits: Limits | None = None, window: int | None = None
) -> TurnTools:
    return TurnTools(lambda: menu, ResultStore(), limits or Limits(), history, window)


def names(tools: tuple[ToolSpec, ...]) -> list[str]:
    return [tool.name for tool in tools]


async def no_progress(progress: float, total: float | None, message: str | None) -> None:
    """Ignore progress."""


async def search(offered: TurnTools, query: str) -> str:
    result = await offered.call("search_tools", {"query": query}, no_progress)
    return str(result.content)


def called(name: str) -> Message:
    return Message.assistant("", [ToolCallRequest("1", name, {})])


# --- many tools -----------------------------------------------------------------------------------


def test_tools_within_the_limit_are_all_offered() -> None:
    menu = menu_of(38)
    offered = turn_tools(menu)
    assert offered.offer_tools() is menu.catalog.tools
    assert len(offered.offer_tools()) == 40


@pytest.mark.anyio
async def test_above_the_limit_only_the_search_tool_and_found_tools_are_offered() -> None:
    offered = turn_tools(menu_of(100))
    assert names(offered.offer_tools()) == ["search_tools"]
    assert "many (100)" in offered.offer_tools()[0].description
    found = await search(offered, "send mail")
    assert "- send_mail: Sends a message by mail." in found
    assert names(offered.offer_tools())[:2] == ["search_tools", "send_mail"]
    assert len(offered.offer_tools()) <= 6


@pytest.mark.anyio
async def test_the_offered_tools_change_only_after_a_search_with_results() -> None:
    offered = turn_tools(menu_of(100))
    before = offered.offer_tools()
    assert offered.offer_tools() is before
    await search(offered, "send mail")
    assert offered.offer_tools()[: len(before)] == before, "what was sent before is a beginning of what is sent now"


@pytest.mark.anyio
async def test_a_search_without_a_match_is_reported() -> None:
    offered = turn_tools(menu_of(100))
    assert "No tool was found for 'qqqq'" in await search(offered, "qqqq")
    assert names(offered.offer_tools()) == ["search_tools"]


@pytest.mark.anyio
async def test_the_answer_of_a_search_names_servers_that_are_not_available() -> None:
    offered = turn_tools(replace(menu_of(100), describe_missing=lambda: "These servers are not available: 'late'."))
    found = await search(offered, "send mail")
    assert found.endswith("These servers are not available: 'late'.")
    assert (await search(offered, "qqqq")).endswith("These servers are not available: 'late'.")


@pytest.mark.anyio
async def test_the_answer_of_a_search_names_the_tools_of_any_server_that_are_ranked_next_and_not_on_offer() -> None:
    about = {"a": "Waters the roses.", "b": "Waters the roses at night, when nobody is there."}
    servers = [server(key, *(tool_named(f"{key}_{at}", description=about[key]) for at in range(30))) for key in "ab"]
    offered = turn_tools(ToolSnapshot(build_catalog(servers), frozenset({"b"})), limits=Limits(max_tools=35))
    offered.offer_tools()
    answer = await search(offered, "water the roses")
    found, named = answer.split("\nOthers, which can be called by name: ")
    assert [line.split(":")[0] for line in found.splitlines()[1:]] == ["- a_0", "- a_1", "- a_10", "- a_11", "- a_12"]
    assert named == ", ".join(sorted(f"a_{at}" for at in range(30))[5:]) + "."
    menu = build_catalog([server("a", *(tool_named(f"{'x' * 50}_{at}", description="Roses.") for at in range(50)))])
    named = (await search(turn_tools(ToolSnapshot(menu)), "roses")).split(": ")[-1]
    assert len(named) < 401
    assert set(named.removesuffix(".").split(", ")) < set(menu.routes), "each name is whole"


def gardens(end: str = "") -> ToolSnapshot:
    """Return 30 tools that are found by "water the roses" in the order of their names, and 40 others."""
    roses = [tool_named(name + end, description="Waters the roses." + " Well." * 50) for name in ROSES]
    return ToolSnapshot(build_catalog([server("garden", *roses), server("many", *(f"tool_{at}" for at in range(40)))]))


def described(answer: str) -> list[str]:
    return [line[2:].split(":")[0] for line in answer.splitlines() if line.startswith("- ")]


@pytest.mark.anyio
async def test_the_answer_of_a_search_describes_tools_that_are_not_on_offer_and_names_tools_that_are() -> None:
    offered = turn_tools(gardens())
    first = await search(offered, "water the roses")
    assert described(first) == ROSES[:5]
    assert "On offer already" not in first
    second = await search(offered, "water the roses")
    assert second.splitlines()[0] == f"On offer already: {', '.join(ROSES[:5])}."
    assert described(second) == ROSES[5:8], "a tool below the first eight fits less than those on offer"
    assert names(offered.offer_tools()) == ["search_tools", *ROSES[4::-1], *ROSES[5:8]]
    before = offered.offer_tools()
    third = (await search(offered, "water the roses")).splitlines()
    assert third[:2] == [f"On offer already: {', '.join(ROSES[:8])}.", "No other tool is among the best results."]
    assert third[2].startswith("Others, which can be called by name: rose_58, rose_59,")
    assert offered.offer_tools() is before


@pytest.mark.anyio
async def test_the_answer_of_a_search_begins_with_what_fits_best() -> None:
    offered = turn_tools(gardens(), called("rose_52"), called("rose_70"))
    lines = (await search(offered, "water the roses")).splitlines()
    assert (lines[0], lines[6]) == ("These tools can be called now:", "On offer already: rose_52.")
    answer = await search(offered, "rose_70")
    assert answer.startswith("On offer already: rose_70")
    assert answer.endswith("The whole description of rose_70:\nWaters the roses." + " Well." * 50)


@pytest.mark.anyio
async def test_the_answer_of_a_search_is_not_longer_where_tools_are_on_offer() -> None:
    garden = gardens("_in_the_garden")
    longest = len(await search(turn_tools(garden), "water the roses"))
    for count in range(1, 9):
        offered = turn_tools(garden, *(called(f"{name}_in_the_garden") for name in ROSES[8 - count : 8]))
        answer = await search(offered, "water the roses")
        assert len(answer) <= longest
        assert len(answer.split("already: ")[1].splitlines()[0].split(", ")) == count


@pytest.mark.anyio
async def test_a_tool_that_makes_room_for_new_tools_is_not_said_to_be_on_offer() -> None:
    offered = turn_tools(gardens(), called("rose_50"), called("rose_51"), limits=Limits(max_tools=7))
    answer = await search(offered, "water the roses")
    assert described(answer) == ROSES[2:7]
    assert answer.splitlines()[0] == "On offer already: rose_50."
    assert "by name: rose_51, rose_57, " in answer
    assert names(offered.offer_tools()) == ["search_tools", "rose_50", *ROSES[2:7]]


@pytest.mark.anyio
async def test_where_declarations_are_in_answers_alone_a_search_describes_tools_again() -> None:
    offered = turn_tools(gardens())
    offered.describes_again = True
    assert await search(offered, "water the roses") == await search(offered, "water the roses")


def test_the_search_tool_names_all_tools_that_fit_and_counts_them_otherwise() -> None:
    menu = menu_of(100)
    names_of_all = turn_tools(menu).offer_tools()[0].description
    assert "mail (2): read_mail, send_mail; many (100): tool_0, tool_1" in names_of_all
    counts = turn_tools(menu, limits=Limits(search_index_bytes=500)).offer_tools()[0].description
    assert counts.endswith("There are: mail (2), many (100).")
    assert turn_tools(menu).offer_tools()[0] is turn_tools(menu).offer_tools()[0], "the text is that of the last turn"


@pytest.mark.anyio
async def test_a_long_description_is_cut_and_the_search_returns_the_whole_by_the_name_of_the_tool() -> None:
    long = tool_named("explain", description="First of all. " + "More of it. " * 100 + "The end.")
    offered = turn_tools(
        ToolSnapshot(build_catalog([server("one", long, tool_named("other"))])), limits=Limits(max_description_chars=50)
    )
    explain, second, last = offered.offer_tools()
    assert explain.description.startswith("First of all. More of it.")
    assert len(explain.description) < 200
    assert "search_tools with the name of this tool" in explain.description
    assert (second.name, last.name) == ("other", "search_tools")
    assert offered.offer_tools() is offered.offer_tools()
    assert (await search(offered, "explain")).endswith("More of it. The end.")
    assert offered.get_catalog().routes["explain"].spec.description.endswith("The end."), "approvals know the whole"


@pytest.mark.parametrize(
    ("patterns", "hidden", "offered"),
    [(["mail/*"], (), ["read_mail", "send_mail"]), (["!many/*", "!read_mail"], (), ["send_mail"]), ((), (), [])],
)
def test_turns_with_the_same_selection_share_one_index_while_the_tools_stay(
    patterns: list[str], hidden: tuple[str, ...], offered: list[str]
) -> None:
    menu = menu_of(3)
    first, second = (select_tools(lambda: menu, patterns, hidden)() for _ in range(2))
    assert names(first.catalog.tools) == offered
    assert first.index is second.index
    assert select_tools(lambda: menu_of(3), patterns, hidden)().index is not first.index
    assert select_tools(lambda: menu, patterns, ["send_mail"])().index is not first.index


def test_many_selections_among_the_same_tools_are_right() -> None:
    menu = menu_of(50)
    for _ in range(2):
        for number in range(50):
            chosen = select_tools(lambda: menu, [f"many/tool_{number}"])()
            assert names(chosen.catalog.tools) == list(chosen.catalog.routes) == [f"tool_{number}"]


def test_further_tools_of_the_host_need_no_further_index() -> None:
    menu = menu_of(3)
    route = Route(server("host"), ToolSpec("read_skill", "Reads.", {}))
    added = [add_own_tools(lambda: menu, (route,))() for _ in range(2)]
    assert added[0] is added[1]
    assert added[0].own == (route,)
    assert added[0].index is menu.index


@pytest.mark.anyio
async def test_tools_that_a_person_used_are_found_first_by_this_person_only() -> None:
    tools = [tool_named(name, description="Waters plants.") for name in ("garden_a", "garden_b")]
    menu = ToolSnapshot(build_catalog([server("many", *tools, *(f"tool_{at}" for at in range(60)))]))

    def of(owner: str) -> TurnTools:
        return TurnTools(lambda: menu, ResultStore(), Limits(), (), None, lambda: False, owner)

    of("ann").add_calls([("garden_b", True), ("garden_b", False), ("gone", True)])
    assert (await search(of("ann"), "water plants")).splitlines()[1].startswith("- garden_b")
    assert (await search(of("bob"), "water plants")).splitlines()[1].startswith("- garden_a")
    assert menu.uses.count("ann") == {("many", "garden_b"): 1}


def test_uses_of_tools_are_kept_for_a_limited_number_of_persons_and_tools() -> None:
    uses = ToolUses()
    for number in range(MAX_TOOLS + 5):
        uses.add("ann", ("s", str(number)))
    assert len(uses.count("ann")) == MAX_TOOLS
    assert ("s", "0") not in uses.count("ann")
    for number in range(MAX_OWNERS):
        uses.add(str(number), ("s", "t"))
    assert uses.count("ann") == {}


def test_a_tool_used_in_the_conversation_stays_offered() -> None:
    offered = turn_tools(menu_of(100), *ASK, called("tool_7"), called("gone"))
    assert names(offered.offer_tools()) == ["search_tools", "tool_7"]


def test_tools_of_a_pinned_server_are_always_offered() -> None:
    offered = turn_tools(menu_of(100, pinned=frozenset({"mail"})), called("read_mail"))
    assert names(offered.offer_tools()) == ["search_tools", "read_mail", "send_mail"]


def test_the_number_of_tools_of_a_request_is_limited_even_for_pinned_servers() -> None:
    assert len(turn_tools(menu_of(300, pinned=frozenset({"many"}))).offer_tools()) == MAX_OFFERED


@pytest.mark.anyio
async def test_newly_found_tools_replace_the_oldest_found_tools() -> None:
    offered = turn_tools(menu_of(100), limits=Limits(max_tools=8))
    for number in range(0, 60, 6):
        await search(offered, f"thing {number} tool_{number}")
    assert len(offered.offer_tools()) == 8
    assert "tool_54" in names(offered.offer_tools())
    assert "tool_0" not in names(offered.offer_tools())


def test_large_tools_are_searched_with_a_small_context_window() -> None:
    large = tool_named("large", description="word " * 1000)
    menu = ToolSnapshot(build_catalog([server("one", large)]))
    assert names(turn_tools(menu, window=4000).offer_tools()) == ["search_tools"]
    assert names(turn_tools(menu, window=32_000).offer_tools()) == ["large"]


def large_menu(count: int, size: int, word: str = "a") -> ToolSnapshot:
    tools = [tool_named(f"large_{number:02}", description=word * size) for number in range(count)]
    return ToolSnapshot(build_catalog([server("large", *tools)]))


@pytest.mark.parametrize(
    ("count", "size", "word", "is_searched_for"),
    [(24, 3_400, "a", True), (24, 2_400, "a", False), (24, 2_400, "ä", True), (1, 7_000, "a", False)],
    ids=["24 tools of 3.4 KB", "24 tools of 2.4 KB", "as many characters, but twice the bytes", "one large tool"],
)
def test_tools_above_the_limit_of_bytes_are_searched(count: int, size: int, word: str, is_searched_for: bool) -> None:
    offered = names(turn_tools(large_menu(count, size, word)).offer_tools())
    assert (offered == ["search_tools"]) is is_searched_for
    assert is_searched_for or len(offered) == count


def test_the_size_of_schemas_counts_towards_the_limit() -> None:
    properties = {f"p{number}": {"type": "string", "description": "d" * 1_000} for number in range(70)}
    schema = {"type": "object", "properties": properties}
    menu = ToolSnapshot(build_catalog([server("one", tool_named("large", input_schema=schema))]))
    assert names(turn_tools(menu).offer_tools()) == ["search_tools"]
    assert names(turn_tools(menu, limits=Limits(max_tool_bytes=100_000)).offer_tools()) == ["large"]


def test_large_tools_called_earliest_are_removed_first() -> None:
    calls = [called(f"large_{number:02}") for number in range(20)]
    offered = turn_tools(large_menu(40, 5_000), *ASK, *calls)
    assert names(offered.offer_tools()) == ["search_tools", *(f"large_{number:02}" for number in range(9, 20))]


def test_the_results_of_one_search_are_offered_with_any_size() -> None:
    calls = [called(f"large_{number:02}") for number in range(20)]
    offered = turn_tools(large_menu(40, 5_000), *ASK, *calls, limits=Limits(max_tool_bytes=100))
    assert names(offered.offer_tools()) == ["search_tools", *(f"large_{number:02}" for number in range(15, 20))]


def test_a_server_cannot_take_the_names_of_the_clients_own_tools() -> None:
    menu = ToolSnapshot(build_catalog([server("evil", "read_result", "search_tools", "other")]))
    assert names(menu.catalog.tools) == ["evil__read_result", "evil__search_tools", "other"]


# --- whole turns ----------------------------------------------------------------------------------


def library() -> MCPServer:
    made = MCPServer("library")

    @made.tool()
    def long_text() -> str:
        """Return a long text."""
        return LONG

    for number in range(60):
        made.add_tool(lambda: "did it", name=f"thing_{number}", description=f"Does thing {number}.")
    return made


def small() -> MCPServer:
    made = MCPServer("small")
    made.add_tool(lambda: LONG, name="long_text", description="Gives a long text.")
    return made


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


class Reader(ScriptedProvider):
    """A model that calls a tool with a long result, and then reads more of the result by its id."""

    def __init__(self, replies: list[Any], arguments: dict[str, Any]) -> None:
        super().__init__(replies)
        self.arguments = arguments

    async def generate(self, request: Any) -> Any:
        if len(self.requests) == 1:
            key = request.messages[-1].text.split('read_result(id="')[1][:12]
            again = ScriptedProvider([calling("read_result", id=key, **self.arguments)])
            self.requests.append(request)
            async for delta in again.generate(request):
                yield delta
            return
        async for delta in super().generate(request):
            yield delta


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"offset": 37_500}, LONG[37_500:37_600]), ({"search": "NEEDLE"}, "line 20000: the needle")],
    ids=["by offset", "by words"],
)
async def test_a_too_long_result_is_shortened_and_the_rest_can_be_read(
    arguments: dict[str, Any], expected: str
) -> None:
    model = Reader([calling("long_text"), "in its place it reads on", "Found it."], arguments)
    asked: list[str] = []

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(call.name)
        return Approval("once")

    async with DialClient(model, servers={"small": small()}, approve=approve) as dial:
        turn = await dial.run(ASK)
    assert turn.stop_reason is StopReason.ANSWERED
    first, second = turn.tool_calls
    assert len(str(first.result.content)) < 51_000
    assert f"of {len(LONG):,} characters are left out here; read_result(id=" in str(first.result.content)
    assert expected in str(second.result.content)
    assert second.result.success
    assert asked == ["long_text"], "reading on needs nobody's permission"
    assert names(model.requests[0].tools) == ["long_text"]
    assert names(model.requests[1].tools) == ["long_text", "read_result"]


@pytest.mark.anyio
async def test_a_long_result_can_be_read_in_the_next_turn_and_only_with_the_same_client() -> None:
    model = ScriptedProvider([calling("long_text"), "Done.", "Again."])
    async with DialClient(model, servers={"small": small()}) as dial:
        turn = await dial.run(ASK)
        await dial.run([*turn.messages, Message.user("and now?")])
        assert names(model.requests[2].tools) == ["long_text", "read_result"]
    second = ScriptedProvider(["Again."])
    async with DialClient(second, servers={"small": small()}) as dial:
        await dial.run([*turn.messages, Message.user("and now?")])
    assert names(second.requests[0].tools) == ["long_text"]


@pytest.mark.anyio
async def test_a_conversation_without_long_results_does_not_offer_read_result() -> None:
    model = ScriptedProvider([calling("long_text"), "Done.", "Hello."])
    async with DialClient(model, servers={"small": small()}) as dial:
        await dial.run(ASK)
        await dial.run([Message.user("hi")])
    assert names(model.requests[2].tools) == ["long_text"]


@pytest.mark.anyio
async def test_the_model_searches_many_tools_and_calls_a_found_tool() -> None:
    model = ScriptedProvider([calling("search_tools", query="do thing_42"), calling("thing_42"), "Done."])
    async with DialClient(model, servers={"library": library()}) as dial:
        turn: Turn = await dial.run(ASK)
        assert len(dial.tools) == 61
    assert [str(record.result.content) for record in turn.tool_calls][1] == "did it"
    assert turn.text == "Done."
    assert names(model.requests[0].tools) == ["search_tools"]
    assert names(model.requests[1].tools)[:2] == ["search_tools", "thing_42"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool_format", "reply"),
    [
        ("native", calling("search_tools", query="do thing_42")),
        ("xml", '<tool_call>{"name": "search_tools", "arguments": {"query": "do thing_42"}}</tool_call>'),
    ],
)
async def test_tools_that_a_second_search_only_names_are_in_its_request_and_in_the_next(
    tool_format: str, reply: Any
) -> None:
    model = ScriptedProvider([reply, reply, "Done."])
    async with DialClient(model, servers={"library": library()}, tool_format=tool_format) as dial:
        turn = await dial.run(ASK)
    first, second = (str(record.result.content) for record in turn.tool_calls)
    known = second.splitlines()[0].removeprefix("On offer already: ").removesuffix(".").split(", ")
    assert known == described(first)
    assert not set(known) & set(described(second))
    for request in model.requests[1:]:
        definitions = request.tools if tool_format == "native" else request.instructions
        assert all(f"Does thing {name.removeprefix('thing_')}." in str(definitions) for name in known)


@pytest.mark.anyio
async def test_a_search_in_a_turn_names_a_server_that_has_failed() -> None:
    model = ScriptedProvider([calling("search_tools", query="draw a map", server="maps"), "Done."])
    broken = {"command": "no-such-program-anywhere"}
    async with DialClient(model, servers={"library": library(), "broken": broken}) as dial:
        turn = await dial.run(ASK)
    assert "These servers are not available: 'broken' (" in str(turn.tool_calls[0].result.content)


@pytest.mark.anyio
async def test_a_tool_that_was_not_found_runs_by_its_exact_name_and_is_offered_from_then_on() -> None:
    model = ScriptedProvider([calling("thing_42"), "Done."])
    async with DialClient(model, servers={"library": library()}) as dial:
        turn = await dial.run(ASK)
    assert [str(record.result.content) for record in turn.tool_calls] == ["did it"]
    assert names(model.requests[0].tools) == ["search_tools"]
    assert names(model.requests[1].tools) == ["search_tools", "thing_42"]


@pytest.mark.anyio
async def test_reading_a_result_that_is_not_stored_is_an_error() -> None:
    model = ScriptedProvider([calling("long_text"), calling("read_result", id="0" * 12), "Done."])
    async with DialClient(model, servers={"small": small()}) as dial:
        turn = await dial.run(ASK)
    assert "call the tool again" in str(turn.tool_calls[1].result.content)
    assert not turn.tool_calls[1].result.success


@pytest.mark.anyio
async def test_a_server_can_be_pinned_in_its_entry(tmp_path: Path) -> None:
    pinned = {**entry("Server"), "pinned": True}
    model = ScriptedProvider(["Hello."])
    async with DialClient(model, servers={"library": library(), "raw": pinned}) as dial:
        await dial.run(ASK)
    assert names(model.requests[0].tools) == ["search_tools", "echo"]


@pytest.mark.anyio
async def test_invalid_arguments_of_the_clients_own_tools_are_errors() -> None:
    wrong = [
        calling("search_tools"),
        calling("search_tools", query={"a": 1}),
        calling("read_result", id="0", offset="x"),
    ]
    model = ScriptedProvider([calling("long_text"), *wrong, "Done."])
    async with DialClient(model, servers={"library": library()}, limits=Limits(max_consecutive_errors=9)) as dial:
        turn = await dial.run(ASK)
    results = [str(record.result.content) for record in turn.tool_calls[1:]]
    assert all(text.startswith("The arguments do not fit") for text in results), results
