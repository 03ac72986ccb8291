"""Conversations over HTTP: stored, streamed, and resumed after a client lost its connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer

from tests.inner import (
    Completion,
    Delta,
    FinishReason,
    ImagePart,
    MemoryStore,
    Message,
    ModelInfo,
    ModelRequest,
    ScriptedProvider,
    SQLStore,
    TextChunk,
)
from tests.support.http_service import Gate, HttpService, ServerSentEvent, join_text, read_events, serve
from tests.support.servers.library import PNG, library

pytestmark = pytest.mark.anyio

ADD = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Maths:
    """An in-process server with a tool that waits until the test opens its gate."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.server = MCPServer("maths")

        @self.server.tool()
        def add(a: int, b: int) -> str:
            """Adds."""
            return str(a + b)

        @self.server.tool()
        async def wait() -> str:
            """Waits."""
            await self.gate.passed()
            return "done"


async def chat(server: HttpService, where: str, text: str = "Hello?") -> list[ServerSentEvent]:
    async with server.http.stream("POST", f"{where}/chat", json={"text": text}) as answer:
        assert answer.status_code == 200
        return [event async for event in read_events(answer)]


async def test_a_conversation_is_created_continued_and_read() -> None:
    async with serve(["Hello you."]) as server:
        where = await server.conversation()
        events = await chat(server, where)
        read = await server.json("GET", where)
    assert join_text(events) == "Hello you."
    assert events[-2].name == "done"
    assert events[-2].data["stop_reason"] == "answered"
    assert events[-1].data == "[DONE]"
    assert read["messages"] == [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello you."}]
    assert (read["title"], read["running"], read["notes"]) == ("Hello?", None, [])


async def test_without_streaming_the_response_is_the_turn() -> None:
    async with serve([ADD, "It is 3."], {"maths": Maths().server}, allow=["*"]) as server:
        where = await server.conversation()
        turn = await server.json("POST", f"{where}/chat", json={"text": "1 + 2?", "stream": False})
    assert (turn["text"], turn["stop_reason"], turn["depth"]) == ("It is 3.", "answered", 1)
    assert [call["content"] for call in turn["tool_calls"]] == ["3"]


async def test_images_and_documents_are_sent_as_parts_and_stored() -> None:
    provider = ScriptedProvider(["I see.", "I still see."])
    content = [
        {"type": "text", "text": "Look at @books:book://1"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}},
    ]
    async with serve(provider, {"books": library()}) as server:
        where = await server.conversation()
        await server.json("POST", f"{where}/chat", json={"content": content, "stream": False})
        await server.json("POST", f"{where}/chat", json={"content": content[1:2], "stream": False})
        first, _, second, _ = (await server.json("GET", where))["messages"]
    image = {"type": "image", "data": PNG, "mime_type": "image/png"}
    document = {"type": "file", "data": PNG, "mime_type": "application/pdf", "name": "a.pdf"}
    assert first["content"][:3] == [{"type": "text", "text": "Look at @books:book://1"}, image, document]
    assert "The first book." in first["content"][3]["text"]
    assert second["content"] == [image]
    assert provider.requests[1].messages[-1].content == (ImagePart(PNG, "image/png"),)


async def test_tool_calls_are_events_between_the_text() -> None:
    async with serve([ADD, "It is 3."], {"maths": Maths().server}, allow=["*"]) as server:
        events = await chat(server, await server.conversation())
    named = {event.name: event.data for event in events}
    assert named["tool_call"] == {"id": "call_1", "name": "add", "arguments": {"a": 1, "b": 2}, "server": "maths"}
    assert (named["tool_result"]["content"], named["tool_result"]["success"]) == ("3", True)


async def test_conversations_are_listed_in_pages_and_searched() -> None:
    async with serve([]) as server:
        for title in ("Of cats", "Of dogs", "Of cats and dogs"):
            await server.json("POST", "/conversations", 201, json={"title": title})
        first = await server.json("GET", "/conversations?limit=2")
        rest = await server.json("GET", "/conversations", params={"cursor": first["cursor"]})
        cats = await server.json("GET", "/conversations?search=CATS")
    assert [summary["title"] for summary in first["conversations"]] == ["Of cats and dogs", "Of dogs"]
    assert [summary["title"] for summary in rest["conversations"]] == ["Of cats"]
    assert rest["cursor"] is None
    assert [summary["title"] for summary in cats["conversations"]] == ["Of cats and dogs", "Of cats"]
    assert first["conversations"][0]["running"] is False


async def test_a_conversation_is_renamed_forked_exported_imported_and_deleted() -> None:
    async with serve(["One.", "Two."]) as server:
        where = await server.conversation()
        await chat(server, where, "Say one")
        await chat(server, where, "Say two")
        renamed = await server.json("PATCH", where, json={"title": "Counting"})
        fork = await server.json("POST", f"{where}/fork", 201, json={"at": 2})
        exported = await server.http.get(f"{where}/export")
        printed = await server.http.get(f"{where}/export?format=markdown")
        imported = await server.json("POST", "/conversations/import", 201, content=exported.content)
        await server.json("DELETE", where, 204)
        gone = await server.json("GET", where, 404)
    assert renamed["title"] == "Counting"
    assert [message["content"] for message in fork["messages"]] == ["Say one", "One."]
    assert [message["content"] for message in imported["messages"]] == ["Say one", "One.", "Say two", "Two."]
    assert exported.headers["content-disposition"].endswith('.json"')
    assert printed.text.startswith("# Counting")
    assert gone["error"]["code"] == "conversation_not_found"


async def test_a_dropped_client_reads_the_rest_of_its_turn() -> None:
    maths = Maths()
    calls_wait = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([calls_wait, "It is done."], {"maths": maths.server}, allow=["*"]) as server:
        where = await server.conversation()
        before: list[ServerSentEvent] = []
        async with server.http.stream("POST", f"{where}/chat", json={"text": "Go!"}) as answer:
            turn = answer.headers["x-turn-id"]
            async for event in read_events(answer):
                before.append(event)
                if event.name == "tool_call":
                    break
        await maths.gate.begun.wait()
        running = await server.json("GET", where)
        maths.gate.open.set()
        events = f"{where}/turns/{turn}/events"
        async with server.http.stream("GET", events, headers={"Last-Event-ID": before[-1].id}) as answer:
            after = [event async for event in read_events(answer)]
        async with server.http.stream("GET", events) as answer:
            whole = [event async for event in read_events(answer)]
    assert running["running"] == turn
    assert "tool_call" not in {event.name for event in after}
    assert join_text(after) == "It is done."
    assert [(e.name, e.id) for e in before + after] == [(e.name, e.id) for e in whole]


async def test_a_client_that_reconnects_to_a_silent_turn_gets_the_response_headers_at_once() -> None:
    maths = Maths()
    replies = [{"tool_calls": [{"name": "wait", "arguments": {}}]}, "It is done."]
    async with serve(replies, {"maths": maths.server}, allow=["*"]) as server:
        where = await server.conversation()
        last = ""
        async with server.http.stream("POST", f"{where}/chat", json={"text": "Go!"}) as answer:
            events = f"{where}/turns/{answer.headers['x-turn-id']}/events"
            async for event in read_events(answer):
                last = event.id
                if event.name == "status" and event.data["text"] == "Using Wait…":
                    break
        async with server.http.stream("GET", events, headers={"Last-Event-ID": last}) as answer:
            assert answer.status_code == 200
            maths.gate.open.set()
            assert join_text([event async for event in read_events(answer)]) == "It is done."


async def test_a_completely_read_turn_resumes_with_only_the_end_marker() -> None:
    async with serve(["Hello."]) as server:
        where = await server.conversation()
        last = (await chat(server, where))[-2].id
        turn = last.partition(":")[0]
        answer = await server.http.get(f"{where}/turns/{turn}/events", headers={"Last-Event-ID": last})
        missing = await server.json("GET", f"{where}/turns/another/events", 404)
    assert answer.text == ": this turn\n\ndata: [DONE]\n\n"
    assert missing["error"]["code"] == "turn_not_found"


@pytest.mark.parametrize("position", ["nonsense", ":", "another:3", "²", "-1", "9" * 40])
async def test_an_invalid_last_event_id_restarts_at_the_first_event(position: str) -> None:
    async with serve(["Hello."]) as server:
        where = await server.conversation()
        turn = (await chat(server, where))[-2].id.partition(":")[0]
        headers = {b"Last-Event-ID": position.encode()}
        async with server.http.stream("GET", f"{where}/turns/{turn}/events", headers=headers) as answer:
            assert join_text([event async for event in read_events(answer)]) == "Hello."


async def test_a_message_without_text_or_with_two_contents_is_refused() -> None:
    async with serve([]) as server:
        chat_url = f"{await server.conversation()}/chat"
        empty = await server.json("POST", chat_url, 400, json={"text": " "})
        both = await server.json("POST", chat_url, 400, json={"text": "Hi", "content": "Hi"})
    assert (empty["error"]["code"], both["error"]["code"]) == ("empty_message", "text_and_content")


async def test_a_stopped_turn_keeps_the_text_so_far() -> None:
    maths = Maths()
    calls_wait = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([calls_wait], {"maths": maths.server}, allow=["*"]) as server:
        where = await server.conversation()
        events: list[ServerSentEvent] = []

        async def send() -> None:
            events.extend(await chat(server, where))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await maths.gate.begun.wait()
            busy = await server.json("POST", f"{where}/chat", 409, json={"text": "And?"})
            await server.json("POST", f"{where}/stop", 204)
        await maths.gate.cancelled.wait()
        read = await server.json("GET", where)
        await server.json("POST", f"{where}/stop", 204)
    assert busy["error"]["code"] == "conversation_busy"
    assert events[-2].data["stop_reason"] == "cancelled"
    assert [message["role"] for message in read["messages"]] == ["user", "assistant", "tool"]
    assert read["running"] is None


class Echo:
    """A model that repeats the last message."""

    info = ModelInfo("echo")

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        for word in request.messages[-1].text.split():
            await anyio.lowlevel.checkpoint()
            yield TextChunk(f"{word} ")
        yield Completion(FinishReason.STOP)

    async def aclose(self) -> None:
        """Close nothing: the model has no connections."""


async def test_many_concurrent_conversations_do_not_mix(tmp_path: Path) -> None:
    replies: dict[str, tuple[str, list[str]]] = {}
    async with serve(Echo(), store=SQLStore.sqlite(tmp_path / "talk.db")) as server:

        async def send(number: int) -> None:
            where = await server.conversation()
            text = " ".join(f"{number}-{word}" for word in range(20))
            heard_ = join_text(await chat(server, where, text))
            kept = (await server.json("GET", where))["messages"]
            replies[text] = (heard_.strip(), [message["content"].strip() for message in kept])

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(send, number)
    assert len(replies) == 30
    assert replies == {text: (text, [text, text]) for text in replies}


async def test_a_model_failure_ends_the_stream_with_an_error_event() -> None:
    async with serve([{"text": "I be", "error": {"message": "overloaded", "status": 503}}]) as server:
        events = await chat(server, await server.conversation())
    assert [(event.name, event.data) for event in events[-2:]] == [
        ("error", {"message": "overloaded", "type": "ProviderError", "status": 503, "code": None}),
        ("", "[DONE]"),
    ]


async def test_a_turn_of_another_process_cannot_be_stopped() -> None:
    store = MemoryStore()
    async with serve([], store=store) as server:
        where = await server.conversation()
        id_ = where.rpartition("/")[2]
        assert await store.acquire(id_, "theirs", [Message.user("Hi")], expected_count=0, lease=1000, title="")
        read = await server.json("GET", where)
        refused = await server.json("POST", f"{where}/stop", 409)
        busy = await server.json("POST", f"{where}/chat", 409, json={"text": "Hello?"})
    assert read["running"] == "theirs"
    assert refused["error"]["code"] == "runs_elsewhere"
    assert busy["error"]["code"] == "conversation_busy"


WRONG: dict[str, tuple[str, str, Any]] = {
    "no JSON": ("POST", "/chat", b"{"),
    "no object": ("POST", "/chat", b"[1]"),
    "nested too deeply": ("POST", "/chat", b'{"a":' * 50_000),
    "no text": ("POST", "/chat", b"{}"),
    "nothing said": ("POST", "/chat", b'{"text": "  "}'),
    "text that is none": ("POST", "/chat", b'{"text": 1}'),
    "parts without anything": ("POST", "/chat", b'{"content": [{"type": "text", "text": " "}]}'),
    "no parts": ("POST", "/chat", b'{"content": []}'),
    "parts beside a text": ("POST", "/chat", b'{"text": "Hi", "content": [{"type": "text", "text": "Hi"}]}'),
    "parts there are not": ("POST", "/chat", b'{"content": [{"type": "audio"}]}'),
    "an image elsewhere": (
        "POST",
        "/chat",
        b'{"content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]}',
    ),
    "no title": ("PATCH", "", b"{}"),
    "a fork at no number": ("POST", "/fork", b'{"at": "2"}'),
    "a fork beyond the end": ("POST", "/fork", b'{"at": 9}'),
    "a form there is not": ("GET", "/export?format=pdf", b""),
    "nothing to import": ("POST", "/../import", b"{}"),
    "a page of nothing": ("GET", "/../?limit=0", b""),
    "a page of 5,000 digits": ("GET", f"/../?limit={'1' * 5_000}", b""),
    "a cursor that is none": ("GET", "/../?cursor=x", b""),
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_invalid_request_is_refused_with_the_reason(name: str) -> None:
    method, path, content = WRONG[name]
    async with serve([]) as server:
        where = await server.conversation()
        place = "/conversations" + path.removeprefix("/..").replace("/?", "?") if "/.." in path else where + path
        answer = await server.json(method, place, 400, content=content)
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"]


async def test_unknown_paths_and_wrong_methods_are_reported_as_json() -> None:
    async with serve([]) as server:
        assert (await server.json("GET", "/nothing", 404))["error"]["code"] == "not_found"
        assert (await server.json("PUT", "/conversations", 405))["error"]["message"]


async def test_servers_and_tools_are_listed_and_a_server_is_restarted() -> None:
    async with serve([], {"maths": Maths().server}) as server:
        servers = await server.json("GET", "/servers")
        tools = await server.json("GET", "/tools")
        await server.json("POST", "/servers/maths/restart", 204)
        again = await server.json("GET", "/servers")
        await server.json("POST", "/servers/none/restart", 404)
    assert [(status["name"], status["state"]) for status in servers["servers"]] == [("maths", "ready")]
    assert tools["tools"][0] == {
        "name": "add",
        "description": "Adds.",
        "server": "maths",
        "title": None,
        "read_only": False,
    }
    assert again["servers"][0]["state"] == "ready"


async def test_deleting_a_conversation_deletes_the_events_of_its_running_turn() -> None:
    maths = Maths()
    waits = {"tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([waits], {"maths": maths.server}, allow=["*"]) as server:
        where = await server.conversation()
        async with server.http.stream("POST", f"{where}/chat", json={"text": "Hello?"}) as answer:
            await maths.gate.begun.wait()
            await server.json("DELETE", where, 204)
            assert (await answer.aread()).endswith(b"data: [DONE]\n\n")
        events = f"{where}/turns/{answer.headers['x-turn-id']}/events"
        assert (await server.json("GET", events, 404))["error"]["code"] == "conversation_not_found"
