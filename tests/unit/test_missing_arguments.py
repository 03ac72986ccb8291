"""A required argument counts as missing unless its value has a source in the conversation or the schema."""

from __future__ import annotations

from typing import Any

from dial_client.messages.message import Message, ToolCallRequest, ToolSpec
from dial_client.providers.embedded.missing_arguments import find_missing

TEXT = {"type": "string"}


def tool(name: str, description: str, **properties: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(properties)})


WEATHER = tool("weather_forecast", "Get the weather of a city for today or tomorrow.", city=TEXT)
ROOM = tool("room_temperature", "Measure the temperature of a room.", room=TEXT)
LIFT = tool("lift_status", "Find out whether the lift of a building works.", building=TEXT)
TIME = tool("get_time", "Get the time.", zone=TEXT)
CONVERT = tool("convert_time", "Convert a time.", time={"description": "As HH:MM"})
RATE = tool("exchange_rate", "Get a rate between two currencies, by their codes.", from_currency=TEXT, to_currency=TEXT)
BRANCH = tool("git_branch", "List branches", repo_path=TEXT, kind={"description": "Local ('local') or all ('all')."})
SEND = tool("send_message", "Send a message.", to=TEXT, text=TEXT)


def missing(tool: ToolSpec, *texts: str, **arguments: Any) -> list[str]:
    messages = [Message.user(text) for text in texts]
    return list(find_missing(ToolCallRequest("c1", tool.name, arguments), tool, messages, "\n".join(texts)))


def test_a_name_without_a_source_in_the_conversation_is_missing() -> None:
    assert missing(WEATHER, "Hello", "What will the weather be tomorrow?", city="New York") == ["city"]
    assert missing(ROOM, "How warm is the room?", room="living room") == ["room"]
    assert missing(ROOM, "How warm is the room?", room="room") == ["room"]
    assert missing(LIFT, "Is the lift working today?", building="Lift") == ["building"]
    assert missing(LIFT, "Is the lift of the town hall working?", building="town hall") == []
    assert missing(SEND, "Tell my sister that the soup is ready.", to="Anna", text="Soup!") == ["to"]


def test_a_name_may_have_a_different_spelling_or_language() -> None:
    assert missing(WEATHER, "whats the weather in lisbon like", city="Lisbon") == []
    assert missing(WEATHER, "How is the weather in Lissabon?", city="Lisbon") == []
    assert missing(WEATHER, "Wie wird das Wetter morgen in Wien?", city="Vienna") == []


def test_codes_and_time_zones_may_follow_from_a_name() -> None:
    assert missing(TIME, "What time is it in Japan?", zone="Asia/Tokyo") == []
    assert missing(RATE, "How many euros is a dollar?", from_currency="USD", to_currency="EUR") == []
    assert missing(TIME, "What time is it?", zone="Asia/Tokyo") == ["zone"]
    assert missing(CONVERT, "It is 3pm in Berlin.", time="15:00") == []
    assert missing(CONVERT, "It is 3pm in Berlin.", time="16:00") == ["time"]


def test_a_value_that_the_description_names_and_the_current_folder_are_not_missing() -> None:
    assert missing(BRANCH, "Which branches are there?", repo_path=".", kind="all") == []
    assert missing(BRANCH, "Which branches are there?", repo_path="/home/ada/git", kind="all") == ["repo_path"]
