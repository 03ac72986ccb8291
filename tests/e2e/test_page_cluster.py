"""The page of one server process, while the turn runs at a peer or its process is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from anyio import to_thread

from tests.e2e.test_page_apps import call
from tests.inner import INTERRUPTED, ConversationManager, Message, SQLStore, ToolCallRequest, encode_end, remote_turns
from tests.integration.test_human_input import CALL, Pen, stream_chat
from tests.integration.test_serve_cluster import next_text, two
from tests.support.browser import Browser, Tab
from tests.support.http_service import TOKEN
from tests.support.other_process import other_process
from tests.support.program import LONG
from tests.support.servers.app_server import build
from tests.support.temporary_stores import needs_postgres
from tests.support.web_page import DONE, assert_harmless, find_frame, open_page, open_relay, read_text, send_message

pytestmark = [pytest.mark.anyio, pytest.mark.once, needs_postgres]

TURN = "the-first-turn"
WROTE = ToolCallRequest("call_1", "write", {"what": "first"})
STATES = "[...document.querySelectorAll('.tool')].map(e => e.dataset.state)"
WAITING_READ = "performance.getEntriesByType('resource').filter(e => /(approval|question)s$/.test(e.name)).length > 1"
IDLE = "document.getElementById('send').title === 'Send'"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def in_browser(act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run a blocking action of the browser in a thread, while the servers run."""
    return await to_thread.run_sync(partial(act, *arguments, **named))


async def open_conversation(chromium: Browser, url: str, conversation: str) -> Tab:
    """Open a conversation on the page of a server."""
    tab: Tab = await in_browser(open_page, chromium, f"{url}/#token={TOKEN}")
    await in_browser(tab.run, f"location.hash = '#/{conversation}'")
    return tab


async def begin_turn(store: SQLStore) -> tuple[str, dict[str, list[Any]]]:
    """Store a turn with a call without a result; return the id of its conversation, and the events of its process."""
    made = await store.create()
    await store.acquire(made.id, TURN, [Message.user("Write!")], expected_count=0, lease=LONG, title="Write!")
    await store.append(made.id, [Message.assistant("I will write.", [WROTE])], turn=TURN)
    chunk = {"choices": [{"index": 0, "delta": {"content": "I will write."}}]}
    lines: list[Any] = [(1, f"id: {TURN}:1\ndata: {json.dumps(chunk)}\n\n")]
    lines += [(2, f"id: {TURN}:2\nevent: tool_call\ndata: {json.dumps(WROTE.to_dict() | {'server': 'pen'})}\n\n")]
    return made.id, {TURN: lines}


async def test_the_stored_turn_of_a_dead_process_is_shown_and_can_be_continued(
    chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_turns, "SILENCE_TIMEOUT", 0.1)
    async with two(there=["Gone on with."]) as (_, there):
        assert isinstance(there.store, SQLStore)
        made, turns = await begin_turn(there.store)
        async with other_process(there.store, turns):
            tab = await open_conversation(chromium, there.url, made)
            await in_browser(tab.until, f"({STATES}).join() === 'running' && !({IDLE})")
        await there.store.renew(made, TURN, 0.0)
        assert "was interrupted" in await in_browser(read_text, tab, ".failed p")
        assert await in_browser(read_text, tab, ".tool-result pre") == INTERRUPTED
        assert await in_browser(read_text, tab, ".failed button") == "Ask again"
        await in_browser(tab.until, IDLE)
        await in_browser(send_message, tab, "Go on")
        await in_browser(
            tab.until, "document.querySelector('.turn:last-child .prose')?.textContent === 'Gone on with.'"
        )
        assert await in_browser(tab.run, "document.querySelectorAll('.turn').length") == 2
        await in_browser(assert_harmless, tab, there.url)


async def test_a_reconnecting_page_shows_the_stored_turn_of_a_dead_process(chromium: Browser) -> None:
    async with two() as (_, there):
        assert isinstance(there.store, SQLStore)
        made, turns = await begin_turn(there.store)
        with open_relay(f"{there.url}/") as (relay, way):
            async with other_process(there.store, turns):
                tab = await open_conversation(chromium, way.rstrip("/"), made)
                await in_browser(tab.until, f"({STATES}).join() === 'running'")
                relay.cut()
                await in_browser(
                    tab.until, "document.getElementById('status-text').textContent.includes('Connection lost')"
                )
            await there.store.renew(made, TURN, 0.0)
            relay.mend()
            assert "was interrupted" in await in_browser(read_text, tab, ".failed p")
            assert await in_browser(read_text, tab, ".tool-result pre") == INTERRUPTED
            await in_browser(tab.until, IDLE)


async def test_a_turn_resumed_at_a_peer_is_followed_there(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_turns, "SILENCE_TIMEOUT", LONG)
    monkeypatch.setattr(remote_turns, "ENDED_TIMEOUT", 0.1)
    pen = Pen()
    async with two([CALL, "Written after all."], servers={"pen": pen.server}) as (here, there):
        assert isinstance(there.store, SQLStore)
        made, turns = await begin_turn(there.store)
        async with other_process(there.store, turns) as dying:
            tab = await open_conversation(chromium, there.url, made)
            await in_browser(tab.until, f"({STATES}).join() === 'running'")
            await there.store.renew(made, TURN, 0.0)
            live = await ConversationManager(here.dial, here.store).resume(made)
            assert live is not None
            here.turns.add(live)
            gone = encode_end(remote_turns.TurnLost("its process is gone"), {})
            await dying.send([(None, gone)])
        await in_browser(tab.until, f"document.querySelector('.request') && ({STATES}).join() === 'failed,waiting'")
        assert await in_browser(read_text, tab, ".tool-result pre") == INTERRUPTED
        left = {"conversation": made, "turn": TURN, "call": WROTE.to_dict(), "server": "pen", "tool": "write"}
        request = {"about": left, "key": "", "owner": "", "at": 1.0}
        await there.store.values.put("approval", "left", json.dumps(request), LONG)
        await in_browser(tab.reload)  # the events of this turn exclude the dead process's calls and requests
        await in_browser(tab.until, f"document.querySelector('.request') && {WAITING_READ}")
        assert await in_browser(tab.run, "document.getElementById('request-count').hidden")
        await in_browser(tab.click, ".request .primary")
        await in_browser(tab.until, f"{DONE} && ({STATES}).join() === 'failed,done'")
        assert await in_browser(read_text, tab, ".answer .prose:last-of-type") == "Written after all."
        assert (
            await in_browser(tab.run, "document.querySelector('.answer').innerText.split('I will write.').length") == 2
        )
        assert await in_browser(tab.run, "document.querySelector('.failed')") is None
        await in_browser(assert_harmless, tab, there.url)
    assert pen.written == ["a"]


async def test_a_turn_at_a_peer_can_be_followed_approved_and_stopped(chromium: Browser) -> None:
    pen = Pen()
    replies = [{"text": "I will write.", **CALL}, call("show_counter", start=3), {"text": "And so", "hang": True}]
    async with two(replies, servers={"pen": pen.server, "apps": build()}) as (here, there):
        where = await here.conversation()
        async with stream_chat(here, where) as (events, _):
            await next_text(events)
            tab = await open_conversation(chromium, there.url, where.rpartition("/")[2])
            assert "pen wants to run write" in await in_browser(read_text, tab, ".request h2")
            assert await in_browser(read_text, tab, ".answer .prose") == "I will write."
            await in_browser(tab.click, ".request .primary")
            await in_browser(
                tab.until, "document.querySelector('.request h2')?.textContent.endsWith('run show_counter')"
            )
            await in_browser(tab.click, ".request .primary")
            await in_browser(find_frame, tab, "find('count').textContent === '3'")
            await in_browser(
                tab.until, "document.querySelector('.answer .prose:last-of-type')?.textContent === 'And so'"
            )
            assert await in_browser(read_text, tab, ".tool-result pre") == "written: a"
            await in_browser(tab.press, "Escape")
            assert await in_browser(read_text, tab, ".stopped") == "Stopped."
            await in_browser(tab.until, IDLE)
            assert [event.data["stop_reason"] async for event in events if event.name == "done"] == ["cancelled"]
        await in_browser(assert_harmless, tab, there.url)
    assert pen.written == ["a"]
