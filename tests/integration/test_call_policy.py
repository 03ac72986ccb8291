"""Which call of the embedded model is made: its values have sources, it is likely enough, and it suits the question."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.inner import (
    GrammarToolCallingProvider,
    Message,
    Role,
    ScriptedProvider,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
)
from tests.support.model_endpoint import ParsedReply, hear

pytestmark = pytest.mark.anyio

TEXT = {"type": "string"}


def tool(name: str, description: str, /, **properties: Any) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(properties)})


ZONE = {
    "type": "string",
    "description": "IANA timezone name (e.g., 'America/New_York', 'Europe/London'). "
    "Use 'UTC' as local timezone if no timezone provided by the user.",
}
TIME = tool("get_time", "Get the time.", timezone=ZONE)
SEND = tool(
    "send_message", "Send a message.", to={"type": "string", "description": "The receiver's e-mail address"}, text=TEXT
)
STATUS = tool("git_status", "Show the status of a repository.", repo_path=TEXT)
WEATHER = tool("weather_forecast", "Get the weather of a city for today or tomorrow.", city=TEXT)
ROOM = tool("room_temperature", "Measure the temperature of a room.", room=TEXT)
LIFT = tool("lift_status", "Find out whether the lift of a building works.", building=TEXT)
CALCULATE = tool("calculate", "Compute an expression.", expression=TEXT)
EVENTS = tool("list_events", "List the events on a day.", date={"type": "string", "description": "As YYYY-MM-DD"})
ALARM = tool("next_bus", "Get the next bus after a time.", time={"type": "string", "description": "As HH:MM"})
BRANCHES = tool(
    "git_branch", "List branches.", kind={"type": "string", "description": "Local ('local') or all branches ('all')."}
)
PARCEL = tool("track_parcel", "Find a parcel.", number=TEXT)
READ = tool("read_file", "Read a file.", path={"type": "string", "description": "The absolute path in a folder"})


async def ask_with_calls(
    question: str, *calls: tuple[ToolSpec, dict[str, Any]], rest: tuple[str, ...] = ()
) -> ParsedReply:
    """Return the reply to a question, when the model decides for these calls, and then for the replies in `rest`."""
    replies = [json.dumps({"tool": tool.name, "arguments": arguments}) for tool, arguments in calls]
    tools = tuple(dict.fromkeys(tool.name for tool, _ in calls))
    specs = {tool.name: tool for tool, _ in calls}
    provider = GrammarToolCallingProvider(ScriptedProvider(replies))
    return await hear(provider, Message.user(question), tools=tuple(specs[name] for name in tools))


@pytest.mark.parametrize(
    ("question", "tool", "arguments"),
    [
        ("whats the weather in lisbon like", WEATHER, {"city": "Lisbon"}),
        ("How is the weather in Lissabon?", WEATHER, {"city": "Lisbon"}),
        ("Is the lift of the town hall working?", LIFT, {"building": "Town Hall"}),
        ("What's 15% of 80?", CALCULATE, {"expression": "0.15 * 80"}),
        ("What is three times 12?", CALCULATE, {"expression": "3 * 12"}),
        ("Which bus goes after 3 pm?", ALARM, {"time": "15:00"}),
        ("What is on 2026-06-03?", EVENTS, {"date": "2026-06-03"}),
        ("Which branches are there?", BRANCHES, {"kind": "all"}),
        (
            "Tell ruth@example.test that the soup is ready",
            SEND,
            {"to": "ruth@example.test", "text": "The soup is ready"},
        ),
        ("Read /docs/plan.txt", READ, {"path": "/docs/plan.txt"}),
    ],
)
async def test_a_call_is_made_if_its_values_have_a_source(
    question: str, tool: ToolSpec, arguments: dict[str, Any]
) -> None:
    assert (await ask_with_calls(question, (tool, arguments))).asked == [(tool.name, arguments)]


@pytest.mark.parametrize(
    ("question", "tool", "arguments", "missing"),
    [
        ("What will the weather be tomorrow?", WEATHER, {"city": "New York"}, "city"),
        ("How warm is the room?", ROOM, {"room": "living room"}, "room"),
        ("How warm is the room?", ROOM, {"room": "room"}, "room"),
        ("Is the lift working today?", LIFT, {"building": "Lift"}, "building"),
        ("What is on that day?", EVENTS, {"date": "2026-06-03"}, "date"),
        ("Which bus goes after 3 pm?", ALARM, {"time": "16:00"}, "time"),
        ("Where is my parcel?", PARCEL, {"number": "PX-771"}, "number"),
        ("Tell Ruth that the soup is ready", SEND, {"to": "ruth@mail.test", "text": "The soup is ready"}, "to"),
        ("Read the plan in docs", READ, {"path": "/docs/plan"}, "path"),
        ("What is the time of the next bus?", ALARM, {}, "time"),
    ],
)
async def test_the_reply_asks_for_a_value_without_a_source(
    question: str, tool: ToolSpec, arguments: dict[str, Any], missing: str
) -> None:
    heard = await ask_with_calls(question, (tool, arguments))
    assert heard.asked == []
    assert f"you have not said its {missing}" in heard.text


@pytest.mark.parametrize(
    ("value", "question", "zone"),
    [
        ("London", "What time is it in London?", "Europe/London"),
        ("new york", "What time is it in New York?", "America/New_York"),
        ("Asia/Berlin", "What time is it in Berlin?", "Europe/Berlin"),
        ("America/São Paulo", "What time is it in São Paulo?", "America/Sao_Paulo"),
        ("Asia/Tokyo", "What time is it in Tokyo?", "Asia/Tokyo"),
        ("America/New_York", "What time is it?", "UTC"),
    ],
)
async def test_a_city_becomes_its_time_zone(value: str, question: str, zone: str) -> None:
    """Without a city, the only zone that the description quotes is used."""
    heard = await ask_with_calls(question, (TIME, {"timezone": value}))
    assert heard.asked == [("get_time", {"timezone": zone})]


@pytest.mark.parametrize("value", ["/home/ada/git", "your-repo", "https://github.com/ada/garden", "repo"])
async def test_a_folder_without_a_source_is_the_current_one(value: str) -> None:
    heard = await ask_with_calls("Show me the git status of this repo", (STATUS, {"repo_path": value}))
    assert heard.asked == [("git_status", {"repo_path": "."})]


async def test_a_miscopied_folder_is_not_replaced_by_another_folder() -> None:
    heard = await ask_with_calls("Show me the git status of /srv/shop", (STATUS, {"repo_path": "/srv/shap"}))
    assert heard.asked == []
    assert "you have not said its repo_path" in heard.text


@pytest.mark.parametrize(("folder", "calls"), [(".", [("git_status", {"repo_path": "/srv/shop"})]), ("/srv/inn", [])])
async def test_only_an_unnamed_folder_is_replaced_by_the_allowed_folder(
    folder: str, calls: list[tuple[str, dict[str, str]]]
) -> None:
    call = ToolCallRequest("c1", STATUS.name, {"repo_path": folder})
    error = f"Repository path '{folder}' is outside the allowed repository '/srv/shop'"
    messages = [
        Message.user(f"Show me the git status of {folder}"),
        Message(Role.ASSISTANT, "", (call,)),
        Message.tool(call, ToolCallResult("c1", success=False, content=error)),
    ]
    heard = await hear(GrammarToolCallingProvider(ScriptedProvider([])), *messages, tools=(STATUS,))
    assert heard.asked == calls
    assert bool(calls) or "/srv/inn" in heard.text


async def test_a_call_without_sources_gives_way_to_a_call_with_sources() -> None:
    calls = ((WEATHER, {"city": "Lisbon"}), (ROOM, {"room": "cellar"}))
    heard = await ask_with_calls("What temperature has the cellar?", *calls)
    assert heard.asked == [("room_temperature", {"room": "cellar"})]


async def test_a_call_without_sources_never_gives_way_to_a_call_that_writes() -> None:
    heard = await ask_with_calls("Tell me the weather", (WEATHER, {"city": "Lisbon"}), (SEND, {"to": "x", "text": "y"}))
    assert heard.asked == []
    assert "you have not said its city" in heard.text


SEARCH = ToolSpec("search_tools", "Finds tools.", {"type": "object", "properties": {"query": TEXT}})


async def test_where_tools_are_searched_for_the_question_is_the_search_and_what_it_has_found_is_called() -> None:
    question = Message.user("What time is it in Rome?")
    model = ScriptedProvider([json.dumps({"tool": "get_time", "arguments": {"timezone": "Europe/Rome"}})])
    provider = GrammarToolCallingProvider(model)
    first = await hear(provider, question, tools=(SEARCH,))
    assert first.asked == [("search_tools", {"query": question.text})]
    assert model.requests == [], "the model is not asked what to search for"
    search = ToolCallRequest("s", "search_tools", {"query": question.text})
    found = Message.tool(search, ToolCallResult("s", success=True, content="- get_time: The time. Asia/Tokyo"))
    second = await hear(provider, question, Message.assistant("", [search]), found, tools=(SEARCH, TIME))
    assert second.asked == [("get_time", {"timezone": "Europe/Rome"})]
    shown = str(model.requests)
    assert "get_time" in shown
    assert "search_tools" not in shown
    assert "Asia/Tokyo" not in shown


async def test_a_question_for_which_the_search_has_found_nothing_cannot_be_answered_by_the_connected_tools() -> None:
    question = Message.user("What is the weather in Rome now?")
    search = ToolCallRequest("s", "search_tools", {"query": question.text})
    found = Message.tool(search, ToolCallResult("s", success=True, content="No tool was found."))
    provider = GrammarToolCallingProvider(ScriptedProvider([json.dumps({"unknown": True})] * 2))
    reply = await hear(provider, question, Message.assistant("", [search]), found, tools=(SEARCH,))
    assert "none of the connected tools can" in reply.text
