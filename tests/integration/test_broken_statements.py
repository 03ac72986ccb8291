"""A connection to the database breaks at each statement of a durable turn: nothing is lost, repeated or misreported."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import InitVar, dataclass, field

import anyio
import asyncpg
import pytest
from anyio import to_thread

from tests.inner import (
    Approval,
    ApprovalContext,
    Approver,
    CallChunk,
    Completion,
    Conversation,
    ConversationManager,
    Delta,
    DialClient,
    DialError,
    DurableTimings,
    DurableTurns,
    FinishReason,
    ModelInfo,
    ModelRequest,
    Role,
    SQLStore,
    StoreUnavailable,
    TextChunk,
    ToolCallRequest,
    ToolSpec,
    TurnHandle,
)
from tests.support.database_proxy import DatabaseProxy, Moment
from tests.support.program import LONG
from tests.support.temporary_stores import database_url, needs_dbos, needs_postgres

pytestmark = [pytest.mark.anyio, needs_postgres, needs_dbos]

TEXTS = ["Look!", "Let me see.", "seen", "All is well."]
SOON = DurableTimings(recovery_interval=0.2, idle_interval=0.2)
STATEMENTS = {
    "question": ('"Look!"',),
    "workflow": ("INSERT INTO", "workflow_status"),
    "call": ('Let me see."',),
    "result": ('"seen"',),
    "answer": ('All is well."',),
    "details": ('"stop_reason"',),
}
"""The statements of a turn, by what they contain."""


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


@dataclass
class Looker:
    """A model that calls a tool once and then answers, and the tool."""

    info = ModelInfo("model")
    waits: InitVar[str] = ""
    """What waits until the test lets it go on: ``reply``, ``look``, both or nothing."""
    looks: int = 0
    """How often the tool has had its effect."""
    asked: int = 0
    """How often the model was asked."""
    may_reply: anyio.Event = field(default_factory=anyio.Event)
    may_look: anyio.Event = field(default_factory=anyio.Event)
    has_looked: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self, waits: str) -> None:
        for name, gate in (("reply", self.may_reply), ("look", self.may_look)):
            if name not in waits:
                gate.set()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        await self.may_reply.wait()
        if request.messages[-1].role is Role.USER:
            yield TextChunk("Let me see.")
            yield CallChunk(ToolCallRequest("call_1", "look", {}))
            yield Completion(FinishReason.TOOL_CALLS)
        else:
            yield TextChunk("All is well.")
            yield Completion(FinishReason.STOP)

    async def look(self) -> str:
        """Look."""
        self.looks += 1
        self.has_looked.set()
        await self.may_look.wait()
        return "seen"

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def durable(
    looker: Looker, *, lease: float = 10.0, timings: DurableTimings = SOON, approve: Approver | None = None
) -> AsyncIterator[tuple[DatabaseProxy, DurableTurns, str]]:
    """Run durable turns over a proxy, and create a conversation."""
    async with database_url() as url:
        with DatabaseProxy(url) as proxy, anyio.fail_after(LONG):
            async with (
                SQLStore(proxy.url) as store,
                DialClient(looker, tools=[looker.look], approve=approve) as dial,
                DurableTurns(dial, store, proxy.url, timings=timings, lease=lease) as turns,
            ):
                yield proxy, turns, (await turns.manager.create()).id
                proxy.restore()


@asynccontextmanager
async def direct(
    proxy: DatabaseProxy, looker: Looker, approve: Approver | None = None
) -> AsyncIterator[ConversationManager]:
    """Run another process, whose connections do not break."""
    async with SQLStore(proxy.target) as store, DialClient(looker, tools=[looker.look], approve=approve) as dial:
        yield ConversationManager(dial, store)


async def resume(proxy: DatabaseProxy, manager: ConversationManager, conversation: str) -> TurnHandle:
    """Resume a turn whose lease has expired, before the process that runs it can renew it."""
    operator = await asyncpg.connect(proxy.target)
    await operator.execute("UPDATE conversations SET held_until = 0")
    await operator.close()
    turn = await manager.resume(conversation)
    assert turn is not None
    return turn


async def read_end(turns: DurableTurns, conversation: str) -> Conversation:
    """Return the conversation once no process runs or resumes its turn."""
    while True:
        try:
            read = await turns.manager.get(conversation)
        except StoreUnavailable:  # the connections of the proxy are refused
            read = None
        if read is not None and not read.running:
            return read
        await anyio.sleep(0.02)


@pytest.mark.parametrize("moment", ["statement", "commit", "acknowledgement"])
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_client_that_is_refused_has_no_call_run_and_any_other_turn_is_whole(
    statement: str, moment: Moment
) -> None:
    looker, refusal = Looker(), None
    async with durable(looker) as (proxy, turns, conversation):
        trap = proxy.cut_at(*STATEMENTS[statement], moment=moment, refusals=3)
        try:
            turn = await turns.start(conversation, "Look!")
            await turn.result()
        except StoreUnavailable as error:
            refusal = error
        read = await read_end(turns, conversation)
    assert trap.has_sprung.is_set()
    if refusal is None:
        assert [message.text for message in read.messages] == TEXTS
        assert (read.turn, read.notes, looker.looks) == ("", (), 1)
    else:
        assert (statement, looker.looks) == ("question", 0)
        assert read.messages == ()


async def test_a_client_whose_turn_waits_for_a_database_that_restarts_is_answered_soon_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    has_waited, sleep = threading.Event(), time.sleep

    def pause(seconds: float) -> None:
        if threading.current_thread().name.startswith("dbos-executor"):
            pauses.append(seconds)
            sleep(0.001)
            if len(pauses) == 20:  # without a limit the pause would be of some minutes
                has_waited.set()
        else:
            sleep(seconds)

    looker = Looker()
    # The search for abandoned turns would wait for the database, too.
    timings = DurableTimings(recovery_interval=LONG, idle_interval=LONG)
    async with durable(looker, timings=timings) as (proxy, turns, conversation), anyio.create_task_group() as group:
        monkeypatch.setattr(time, "sleep", pause)
        proxy.cut_at(*STATEMENTS["workflow"], moment="statement", refusals=float("inf"))
        group.start_soon(turns.start, conversation, "Look!")
        await to_thread.run_sync(has_waited.wait)
        proxy.restore()
        read = await read_end(turns, conversation)
    assert max(pauses) < 1
    assert [message.text for message in read.messages] == TEXTS


async def test_no_call_runs_before_it_is_stored_that_the_turn_is_durable() -> None:
    # A client whose turn could not be made durable is told to send its message again: its effect would come twice.
    looker = Looker()
    timings = DurableTimings(recovery_interval=0.2, idle_interval=0.2, database_timeout=2.0)
    async with durable(looker, timings=timings) as (proxy, turns, conversation):
        proxy.cut_at(*STATEMENTS["workflow"], moment="statement", holds=True)
        with pytest.raises(StoreUnavailable):
            await turns.start(conversation, "Look!")
        proxy.cut(refusals=0)  # the statement is repeated, and arrives after its client was refused
        read = await read_end(turns, conversation)
    assert (looker.asked, looker.looks) == (1, 0)
    assert [message.text for message in read.messages] == [*TEXTS[:2], "Not run: it was cancelled."]


async def read_workflow(proxy: DatabaseProxy) -> str:
    """Return the state of the one workflow of the database when it has ended."""
    operator = await asyncpg.connect(proxy.target)
    statement = "SELECT status FROM dbos.workflow_status WHERE status NOT IN ('PENDING', 'ENQUEUED')"
    while not (ended := await operator.fetch(statement)):  # noqa: ASYNC110 - in the database
        await anyio.sleep(0.02)
    await operator.close()
    return str(ended[0]["status"])


@pytest.mark.parametrize("method", ["start", "submit"])
async def test_a_turn_whose_client_was_refused_does_not_run_however_late_its_workflow_is_stored(method: str) -> None:
    looker = Looker(waits="reply")
    timings = DurableTimings(recovery_interval=0.2, idle_interval=0.2, start_timeout=0.0, database_timeout=1.0)
    async with durable(looker, lease=1.0, timings=timings) as (proxy, turns, conversation):
        trap = proxy.cut_at(*STATEMENTS["workflow"], moment="statement", refusals=float("inf"))

        async def reply() -> None:  # a reply that comes earlier would still be stored, without its call
            await to_thread.run_sync(trap.has_sprung.wait)
            looker.may_reply.set()

        async with anyio.create_task_group() as group:
            group.start_soon(reply)
            with pytest.raises(StoreUnavailable):
                await getattr(turns, method)(conversation, "Look!")
        if (turn := turns.manager.find_turn(conversation)) is not None:
            await turn.stop()
            with pytest.raises(DialError):  # its end is not stored
                await turn.result()
        proxy.restore()
        assert await read_workflow(proxy) == "SUCCESS"
        read = await read_end(turns, conversation)
    assert looker.looks == 0
    assert [message.text for message in read.messages] == {"start": TEXTS[:1], "submit": []}[method]


async def test_a_turn_whose_conversation_was_taken_over_does_not_take_the_same_reply_for_its_own() -> None:
    looker, second = Looker(waits="reply"), Looker(waits="look")
    async with durable(looker, lease=60.0) as (proxy, turns, conversation):
        # Another process gets the same reply from the model, while this one cannot store it.
        trap = proxy.cut_at(*STATEMENTS["call"], moment="statement", refusals=float("inf"))
        turn = await turns.start(conversation, "Look!")
        looker.may_reply.set()
        await to_thread.run_sync(trap.has_sprung.wait)
        async with direct(proxy, second) as manager:
            resumed = await resume(proxy, manager, conversation)
            await second.has_looked.wait()
            proxy.restore()
            with pytest.raises(DialError, match="taken over"):
                await turn.result()
            second.may_look.set()
            await resumed.result()
        read = await read_end(turns, conversation)
    assert (looker.looks, second.looks) == (0, 1)
    assert [message.text for message in read.messages] == TEXTS


async def test_no_call_runs_under_a_lease_that_expired_while_the_call_could_not_be_stored() -> None:
    looker = Looker(waits="reply look")
    async with durable(looker, lease=3.0) as (proxy, turns, conversation):
        turns.manager._heartbeat._interval = LONG  # a machine with much else to do
        trap = proxy.cut_at(*STATEMENTS["call"], moment="statement", refusals=float("inf"))
        turn = await turns.start(conversation, "Look!")
        looker.may_reply.set()
        await to_thread.run_sync(trap.has_sprung.wait)
        async with direct(proxy, Looker()) as manager:
            while (await manager.get(conversation)).running:  # noqa: ASYNC110 - until the lease expires
                await anyio.sleep(0.02)
            proxy.restore()
            await looker.has_looked.wait()
            assert (await manager.get(conversation)).running
        looker.may_look.set()
        await turn.result()
        read = await read_end(turns, conversation)
    assert [message.text for message in read.messages] == TEXTS


async def test_a_call_that_is_allowed_after_its_turn_was_taken_over_does_not_run_here() -> None:
    looker, second, asked, may_answer = Looker(), Looker(), anyio.Event(), anyio.Event()

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.set()
        await may_answer.wait()
        return Approval("once")

    async def approve_at_once(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        return Approval("once")

    async with durable(looker, lease=60.0, approve=approve) as (proxy, turns, conversation):
        turn = await turns.start(conversation, "Look!")
        await asked.wait()
        proxy.cut()
        async with direct(proxy, second, approve_at_once) as manager:
            await (await resume(proxy, manager, conversation)).result()
            may_answer.set()
            proxy.restore()
            with pytest.raises(DialError, match="taken over"):
                await turn.result()
        read = await read_end(turns, conversation)
    assert (looker.looks, second.looks) == (0, 1)
    assert [message.text for message in read.messages] == TEXTS
