"""`dial-chat acp` and what real editors send to it: the messages of their clients, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.editor_recordings import PlayedSession, play
from tests.support.program import dial_chat, write_config

pytestmark = pytest.mark.anyio

NOW = {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "UTC"}}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def read_user_messages(folder: Path, played: PlayedSession) -> list[Any]:
    session = next(response["result"]["sessionId"] for response in played.responses if "sessionId" in str(response))
    shown = json.loads(dial_chat(folder, "conversations", "show", session, "--json").stdout)
    return [message["content"] for message in shown["messages"] if message["role"] == "user"]


async def test_a_session_of_zed_is_answered_and_its_mentions_are_paths_with_lines(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [NOW, "They are equal.", NOW, "Later."])
    played = await play(tmp_path, "zed")
    initialized, listed, opened, mode, first, second, loaded = (response["result"] for response in played.responses)
    (content, second_text) = read_user_messages(tmp_path, played)
    texts = [part["text"] for part in content if part["type"] == "text"]
    here = tmp_path.as_posix()
    assert initialized["protocolVersion"] == 1 and initialized["agentCapabilities"]["loadSession"]
    assert (listed["sessions"], mode, opened["modes"]["currentModeId"]) == ([], {}, "ask")
    assert (first["stopReason"], second["stopReason"], bool(loaded["modes"])) == ("end_turn", "cancelled", True)
    assert texts == [
        "Compare ",
        f"[file {here}/menu.md; the user attached it]\n# Menu\ntea\n\n[end of file]",
        " with ",
        f"[file {here}/old menu.md, lines 2 to 3; the user attached it]\ncoffee\ncake\n\n[end of file]",
        f", see {here}/prices.md and {here}/till.py, lines 7 to 9",
    ]
    assert [part["type"] for part in content][-1] == "image"
    assert second_text == "And now?"
    assert [asked["toolCall"]["title"] for asked in played.asked] == [
        'editor-clock.get_current_time timezone="UTC"'
    ] * 2
    assert "gone" in str(played.find("agent_thought_chunk"))
    assert "They are equal." in str(played.find("agent_message_chunk"))
    assert played.find("user_message_chunk")[-1]["content"] == {"type": "text", "text": "And now?"}
    assert (played.unexpected, played.errors) == ([], "")


async def test_a_session_of_codecompanion_is_answered_and_a_lasting_permission_holds(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [NOW, "It is late.", "I plan."])
    played = await play(tmp_path, "codecompanion")
    _, opened, first, mode, second, loaded = (response["result"] for response in played.responses)
    (content, second_text) = read_user_messages(tmp_path, played)
    assert opened["modes"]["currentModeId"] == "ask" and mode == {}
    assert [first["stopReason"], second["stopReason"]] == ["end_turn"] * 2
    assert [part["type"] for part in content] == ["text", "image", "text"]
    assert content[0]["text"].startswith(f"[file {tmp_path.as_posix()}/menu.md; the user attached it]")
    assert (content[2]["text"], second_text) == ("What time is it?", "And now?")
    assert len(played.asked) == 1
    assert {update["status"] for update in played.find("tool_call_update")} == {"completed"}
    assert loaded["modes"]["currentModeId"] == "ask"  # a mode is not stored
    assert (played.unexpected, played.errors) == ([], "")
