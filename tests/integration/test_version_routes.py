"""HTTP routes to undo, compact, switch and remove parts of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_service import HttpService, serve

pytestmark = [pytest.mark.anyio, pytest.mark.once]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def texts(view: dict[str, Any]) -> list[str]:
    return [message["content"] for message in view["messages"]]


async def ask(server: HttpService, where: str, *questions: str) -> None:
    for question in questions:
        await server.json("POST", f"{where}/chat", json={"text": question, "stream": False})


async def test_the_last_exchange_is_undone_and_restored_once() -> None:
    async with serve(["1", "2"]) as server:
        where = await server.conversation()
        await ask(server, where, "One?", "Two?")
        undone = await server.json("POST", f"{where}/undo")
        assert (texts(undone), len(undone["turns"])) == (["One?", "1"], 1)
        again = await server.json("POST", f"{where}/restore", json={})
        assert (texts(again), len(again["turns"])) == (["One?", "1", "Two?", "2"], 2)
        assert again["state"] != undone["state"]
        assert texts(await server.json("POST", f"{where}/restore", json={})) == texts(again)
        assert (await server.json("GET", f"{where}/state"))["state"] == again["state"]
        await server.json("POST", f"{where}/restore", 400, json={"edit": "everything"})


async def test_a_summary_replaces_older_messages_has_no_position_and_can_be_undone() -> None:
    async with serve([*"1234", "Numbers."]) as server:
        where = await server.conversation()
        await ask(server, where, "One?", "Two?", "Three?", "Four?")
        before = await server.json("GET", where)
        compacted = await server.json("POST", f"{where}/compact")
        assert compacted["note"]
        assert texts(compacted)[1:] == ["Three?", "3", "Four?", "4"]
        assert "Numbers." in texts(compacted)[0]
        assert compacted["positions"][0] is None
        assert [turn["message"] for turn in compacted["turns"]] == [2, 4]
        back = await server.json("POST", f"{where}/restore", json={"edit": "compact"})
        assert texts(back) == texts(before)


async def test_versions_are_switched_and_the_last_of_them_is_removed() -> None:
    async with serve(["1", "uno"]) as server:
        where = await server.conversation()
        await ask(server, where, "One?")
        await server.json("POST", f"{where}/regenerate", json={"stream": False})
        shown = await server.json("GET", where)
        (versions,) = shown["versions"]
        assert (texts(shown), versions["current"]) == (["One?", "uno"], 1)
        first, second = versions["positions"]
        assert texts(await server.json("POST", f"{where}/switch", json={"message": first})) == ["One?", "1"]
        removed = await server.json("DELETE", f"{where}/messages/{first}")
        assert (texts(removed), removed["versions"]) == (["One?", "uno"], [])
        listed = (await server.json("GET", f"{where}/messages"))["messages"]
        assert [entry["position"] for entry in listed] == [0, second]
        assert texts(await server.json("DELETE", f"{where}/messages/0")) == []


@pytest.mark.parametrize("message", [None, -1, True, "1", 1.5])
async def test_a_switch_requires_a_valid_position(message: Any) -> None:
    async with serve([]) as server:
        await server.json("POST", f"{await server.conversation()}/switch", 400, json={"message": message})


async def test_messages_and_conversations_that_do_not_exist_are_refused() -> None:
    async with serve([]) as server:
        where = await server.conversation()
        for position in ("0", "7", "9" * 5_000):
            answer = await server.http.request("DELETE", f"{where}/messages/{position}")
            assert answer.status_code in (400, 404), answer.text
        await server.json("POST", f"{where}/switch", 400, json={"message": 7})
        await server.json("POST", f"{where}/regenerate", 400, json={})
        await server.json("POST", f"{where}/continue", 400, json={})
        assert (await server.json("POST", f"{where}/undo"))["messages"] == []
        for route in ("undo", "restore", "compact", "switch", "regenerate", "continue"):
            await server.json("POST", f"/conversations/none/{route}", 404, json={"message": 0})
        await server.json("DELETE", "/conversations/none/messages/0", 404)


async def test_a_conversation_cannot_exceed_the_limits_of_the_server() -> None:
    async with serve([]) as server:
        where = await server.conversation()
        for limits in ({"max_depth": 11}, {"timeout": 121}):
            refused = await server.json("PATCH", where, 400, json={"settings": {"limits": limits}, "title": "New"})
            assert "at most" in refused["error"]["message"]
        assert (await server.json("GET", where))["title"] != "New"
        lower = {"limits": {"max_depth": 2, "max_tokens_total": 1_000}}
        assert (await server.json("PATCH", where, json={"settings": lower}))["settings"] == lower
        await server.json("PATCH", where, 400, json={"settings": {}, "title": 1})
        assert (await server.json("GET", where))["settings"] == lower
