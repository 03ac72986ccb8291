"""The page before one server, while the turn runs at another, or nowhere any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.conversations.history import INTERRUPTED
from dial_client.messages.message import Message, ToolCallRequest
from dial_client.serve.cluster import remote_turns
from dial_client.serve.cluster.topics import turn_events_topic as events_of
from dial_client.serve.sse_response import encode_end
from dial_client.sinks import sse_encoder
from dial_client.stores.sql_store import SQLStore
from tests.e2e.test_page_apps import call, open_app
from tests.integration.test_human_input import CALL, Pen, stream_chat
from tests.integration.test_serve_cluster import next_text, two
from tests.support.browser import Browser, Tab
from tests.support.http_service import TOKEN
from tests.support.program import LONG
from tests.support.servers.app_server import build
from tests.support.web_page import DONE, assert_harmless, open_page, open_relay, read_text, send_message

pytestmark = [pytest.mark.anyio, pytest.mark.once]

TURN = "the-first-turn"
WROTE = ToolCallRequest("call_1", "write", {"what": "first"})
STATES = "[...document.querySelectorAll('.tool')].map(e => e.dataset.state)"
WAITING_READ = "performance.getEntriesByType('resource').filter(e => /(approval|question)s$/.test(e.name)).length > 1"
IDLE = "document.getElementById('send').title === 'Send'"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def seen(act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Do something with the browser, which takes its time, while the servers are at work."""
    return await to_thread.run_sync(partial(act, *arguments, **named))


async def at(chromium: Browser, url: str, conversation: str) -> Tab:
    """Open a conversation at a server."""
    tab: Tab = await seen(open_page, chromium, f"{url}/#token={TOKEN}")
    await seen(tab.run, f"location.hash = '#/{conversation}'")
    return tab


async def begun_by_nobody(store: SQLStore) -> str:
    """Begin a turn whose process is gone before its call had a result; give the conversation."""
    made = await store.create()
    await store.begin(made.id, TURN, [Message.user("Write!")], expected_count=0, lease=LONG, title="Write!")
    await store.append(made.id, [Message.assistant("I will write.", [WROTE])], turn=TURN)
    chunk = {"choices": [{"index": 0, "delta": {"content": "I will write."}}]}
    lines = [(1, f"id: {TURN}:1\ndata: {json.dumps(chunk)}\n\n")]
    lines += [(2, f"id: {TURN}:2\nevent: tool_call\ndata: {json.dumps(WROTE.to_dict() | {'server': 'pen'})}\n\n")]
    await store.mailbox.send([(events_of(made.id, TURN), sse_encoder.to_json(lines))], LONG)
    return made.id


async def test_what_a_dead_process_did_is_shown_as_it_is_stored_and_gone_on_with(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_turns, "SILENCE_TIMEOUT", 0.1)
    async with two(tmp_path, there=["Gone on with."]) as (_, there):
        assert isinstance(there.store, SQLStore)
        made = await begun_by_nobody(there.store)
        tab = await at(chromium, there.url, made)
        await seen(tab.until, f"({STATES}).join() === 'running' && !({IDLE})")
        await there.store.renew(made, TURN, 0.0)
        assert "was interrupted" in await seen(read_text, tab, ".failed p")
        assert await seen(read_text, tab, ".tool-result pre") == INTERRUPTED
        assert await seen(read_text, tab, ".failed button") == "Ask again"
        await seen(tab.until, IDLE)
        await seen(send_message, tab, "Go on")
        await seen(tab.until, "document.querySelector('.turn:last-child .prose')?.textContent === 'Gone on with.'")
        assert await seen(tab.run, "document.querySelectorAll('.turn').length") == 2
        await seen(assert_harmless, tab, there.url)


async def test_who_comes_back_when_the_process_is_gone_is_shown_what_is_stored(
    chromium: Browser, tmp_path: Path
) -> None:
    async with two(tmp_path) as (_, there):
        assert isinstance(there.store, SQLStore)
        made = await begun_by_nobody(there.store)
        with open_relay(f"{there.url}/") as (relay, way):
            tab = await at(chromium, way.rstrip("/"), made)
            await seen(tab.until, f"({STATES}).join() === 'running'")
            relay.cut()
            await seen(tab.until, "document.getElementById('status-text').textContent.includes('Connection lost')")
            board = there.store.mailbox
            await board.take(*(note.id for note in await board.read({events_of(made, TURN): 0})))
            await there.store.renew(made, TURN, 0.0)
            relay.mend()
            assert "was interrupted" in await seen(read_text, tab, ".failed p")
            assert await seen(read_text, tab, ".tool-result pre") == INTERRUPTED
            await seen(tab.until, IDLE)


async def test_a_turn_that_goes_on_at_another_server_is_followed_there(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_turns, "SILENCE_TIMEOUT", LONG)
    pen = Pen()
    async with two(tmp_path, [CALL, "Written after all."], servers={"pen": pen.server}) as (here, there):
        assert isinstance(there.store, SQLStore)
        made = await begun_by_nobody(there.store)
        tab = await at(chromium, there.url, made)
        await seen(tab.until, f"({STATES}).join() === 'running'")
        await there.store.renew(made, TURN, 0.0)
        live = await ConversationManager(here.dial, here.store).resume(made)
        assert live is not None
        here.turns.add(live)
        gone = encode_end(remote_turns.TurnLost("its process is gone"), {})
        await there.store.mailbox.send([(events_of(made, TURN), sse_encoder.to_json([(None, gone)]))], LONG)
        await seen(tab.until, f"document.querySelector('.request') && ({STATES}).join() === 'failed,waiting'")
        assert await seen(read_text, tab, ".tool-result pre") == INTERRUPTED
        left = {"conversation": made, "turn": TURN, "call": WROTE.to_dict(), "server": "pen", "tool": "write"}
        request = {"id": "left", "about": left, "key": "", "to": "nobody"}
        await there.store.mailbox.send([("asked:approval", json.dumps(request))], LONG)
        await seen(tab.reload)  # what another process has done is not among this turn's events, nor what that one asked
        await seen(tab.until, f"document.querySelector('.request') && {WAITING_READ}")
        assert await seen(tab.run, "document.getElementById('request-count').hidden")
        await seen(tab.click, ".request .primary")
        await seen(tab.until, f"{DONE} && ({STATES}).join() === 'failed,done'")
        assert await seen(read_text, tab, ".answer .prose:last-of-type") == "Written after all."
        assert await seen(tab.run, "document.querySelector('.answer').innerText.split('I will write.').length") == 2
        assert await seen(tab.run, "document.querySelector('.failed')") is None
        await seen(assert_harmless, tab, there.url)
    assert pen.written == ["a"]


async def test_a_turn_that_runs_at_another_server_is_followed_allowed_and_stopped(
    chromium: Browser, tmp_path: Path
) -> None:
    pen = Pen()
    replies = [{"text": "I will write.", **CALL}, call("show_counter", start=3), {"text": "And so", "hang": True}]
    async with two(tmp_path, replies, servers={"pen": pen.server, "apps": build()}) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, _):
            await next_text(events)
            tab = await at(chromium, there.url, where.rpartition("/")[2])
            assert "pen wants to run write" in await seen(read_text, tab, ".request h2")
            assert await seen(read_text, tab, ".answer .prose") == "I will write."
            await seen(tab.click, ".request .primary")
            await seen(tab.until, "document.querySelector('.request h2')?.textContent.endsWith('run show_counter')")
            await seen(tab.click, ".request .primary")
            await seen(open_app, tab, "find('count').textContent === '3'")
            await seen(tab.until, "document.querySelector('.answer .prose:last-of-type')?.textContent === 'And so'")
            assert await seen(read_text, tab, ".tool-result pre") == "written: a"
            await seen(tab.press, "Escape")
            assert await seen(read_text, tab, ".stopped") == "Stopped."
            await seen(tab.until, IDLE)
            assert [event.data["stop_reason"] async for event in events if event.name == "done"] == ["cancelled"]
        await seen(assert_harmless, tab, there.url)
    assert pen.written == ["a"]
