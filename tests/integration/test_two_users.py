"""Two users of one process: neither can see, use, approve or resume anything of the other's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import Approval, DialClient, Limits, Role, Turn
from dial_client.extend import Elicitation, ElicitationAnswer
from dial_client.testing import ScriptedProvider
from tests.inner import (
    ApprovalContext,
    ApprovalPolicy,
    Callbacks,
    ConversationManager,
    ConversationNotFound,
    MemoryStore,
    ModelRequest,
    Origin,
    Regeneration,
    ToolCallRequest,
    ToolSpec,
)
from tests.support.clients import ADD, calculator, call
from tests.support.program import LONG, python_server
from tests.support.servers.launch import HERE, raw

pytestmark = pytest.mark.anyio


class Approver:
    """An approver with one answer to all questions, which records for whom it was asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked_for: list[str] = []

    async def __call__(self, _call: ToolCallRequest, _tool: ToolSpec, context: ApprovalContext) -> Approval:
        self.asked_for.append(context.owner)
        return Approval(self.answer)


def open_client(approve: Approver, **options: Any) -> DialClient:
    model = ScriptedProvider([ADD, "It is 42."] * 9)
    return DialClient(model, servers={"calc": calculator()}, approve=approve, **options)


def ran(turn: Turn) -> bool:
    return all(record.result.success for record in turn.tool_calls)


# --- approvals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["session", "always"])
async def test_an_approval_for_the_session_applies_to_the_turns_of_its_owner_only(answer: str) -> None:
    approve = Approver(answer)
    async with open_client(approve) as dial:
        for user in ("ann", "ann", "bob", "ann", "bob"):
            assert ran(await dial.run("go on", owner=user))
    assert approve.asked_for == ["ann", "bob"]


async def test_an_approval_for_the_session_without_an_owner_applies_to_its_conversation_only() -> None:
    approve = Approver("session")
    async with open_client(approve) as dial:
        manager = ConversationManager(dial, MemoryStore())
        first, second = await manager.create(), await manager.create()
        for conversation in (first, first, second, first):
            assert ran(await manager.chat(conversation.id, "go on"))
    assert len(approve.asked_for) == 2


async def test_an_approval_for_the_session_without_owner_and_conversation_applies_to_its_turn_only() -> None:
    approve = Approver("session")
    model = ScriptedProvider([ADD, ADD, "It is 42."] * 2)
    async with DialClient(model, servers={"calc": calculator()}, approve=approve) as dial:
        for _ in range(2):
            assert ran(await dial.run("go on"))
        for _ in range(2):
            assert (await dial.call("add", {"a": 1, "b": 2})).success
    assert len(approve.asked_for) == 4, "once for each turn, and for each call of the program"


async def test_a_call_of_the_program_for_a_user_has_the_approvals_of_this_user() -> None:
    approve = Approver("session")
    async with open_client(approve) as dial:
        for user in ("ann", "bob", "ann", "bob"):
            assert (await dial.call("add", {"a": 1, "b": 2}, owner=user)).success
    assert approve.asked_for == ["ann", "bob"]


async def test_a_single_user_answers_for_all_turns() -> None:
    approve = Approver("session")
    async with open_client(approve, approval=ApprovalPolicy(single_user=True)) as dial:
        for _ in range(2):
            assert ran(await dial.run("go on"))
        assert (await dial.call("add", {"a": 1, "b": 2})).success
    assert len(approve.asked_for) == 1


async def test_a_stored_grant_applies_in_later_runs_to_its_owner_only(tmp_path: Path) -> None:
    approve, policy = Approver("always"), ApprovalPolicy(grants=tmp_path)
    for user in ("ann", "ann", "bob", "bob"):
        async with DialClient(servers={"it": raw()}, approve=approve, approval=policy) as dial:
            assert (await dial.call("echo", {}, owner=user)).success
            assert (await dial.call("echo", {}, owner=user)).success
    assert approve.asked_for == ["ann", "bob"]
    names = [path.name for path in tmp_path.iterdir()]  # noqa: ASYNC240 - a folder of a test
    assert len(names) == 2
    assert not any("ann" in name for name in names), "a folder does not name its owner"


# --- questions of servers ---------------------------------------------------------------------------


class Person:
    """An elicitation callback that agrees to everything, and records whom it has asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def __call__(self, question: Elicitation) -> ElicitationAnswer:
        self.asked.append((question.owner, question.conversation_id, question.turn_id))
        return ElicitationAnswer("accept")


ANN, BOB = Origin("c-ann", "t-ann", "ann"), Origin("c-bob", "t-bob", "bob")


@asynccontextmanager
async def busy_shop(person: Person, era: str) -> AsyncIterator[tuple[DialClient, anyio.CancelScope]]:
    """Open a client whose server runs a call of Ann until the scope is cancelled."""
    entry = python_server(HERE / "questions.py", protocol=era)
    async with (
        DialClient(servers={"shop": entry}, callbacks=Callbacks(elicit=person)) as dial,
        anyio.create_task_group() as group,
    ):
        scope = anyio.CancelScope()

        async def sleep() -> None:
            with scope:
                await dial.call("sleeps", {}, origin=ANN)

        with anyio.fail_after(LONG):
            group.start_soon(sleep)
            await anyio.wait_all_tasks_blocked()
            yield dial, scope
        scope.cancel()


async def ask(dial: DialClient, origin: Origin, tool: str = "many") -> str:
    result = await dial.call(tool, {"times": 1} if tool == "many" else {}, origin=origin)
    return str(result.content)


async def test_a_question_of_the_current_protocol_is_for_the_conversation_of_its_call() -> None:
    person = Person()
    async with busy_shop(person, "auto") as (dial, _):
        assert "accept" in await ask(dial, BOB, "returns")
        assert "accept" in await ask(dial, ANN, "returns")
    assert person.asked == [("bob", "c-bob", "t-bob"), ("ann", "c-ann", "t-ann")]


async def test_a_question_of_an_older_protocol_during_calls_of_two_conversations_reaches_nobody() -> None:
    person = Person()
    async with busy_shop(person, "legacy") as (dial, _):
        answer = await ask(dial, BOB)
    assert person.asked == []
    assert "does not know which of its users to ask" in answer
    assert "make the call again" in answer


async def test_a_server_of_an_older_protocol_that_may_ask_serves_one_conversation_at_a_time() -> None:
    person = Person()
    async with busy_shop(person, "legacy") as (dial, first_call):
        assert "accept" in await ask(dial, ANN), "her own calls do not wait"
        assert [owner for owner, _, _ in person.asked] == ["ann"]
        async with anyio.create_task_group() as group:
            group.start_soon(ask, dial, BOB)
            await anyio.wait_all_tasks_blocked()
            assert len(person.asked) == 1
            first_call.cancel()
    assert person.asked[1:] == [("bob", "c-bob", "t-bob")]


async def test_a_question_during_calls_of_one_conversation_names_what_they_share() -> None:
    person = Person()
    async with busy_shop(person, "legacy") as (dial, _):
        assert "accept" in await ask(dial, replace(ANN, turn="t-2"))
    assert person.asked == [("ann", "c-ann", "")]


# --- conversations ----------------------------------------------------------------------------------


async def test_a_manager_of_one_owner_finds_no_conversation_of_another() -> None:
    approve = Approver("once")
    async with open_client(approve) as dial:
        manager = ConversationManager(dial, MemoryStore())
        ann, bob = manager.for_owner("ann"), manager.for_owner("bob")
        hers, his, nobodys = await ann.create("hers"), await bob.create("his"), await manager.create("nobody's")
        await ann.chat(hers.id, "go on")
        attempts: list[Callable[[str], Awaitable[object]]] = [
            bob.get,
            bob.view,
            bob.list_messages,
            bob.read_state,
            bob.measure,
            bob.undo,
            bob.restore,
            bob.compact,
            bob.export,
            bob.fork,
            bob.resume,
            bob.delete,
            lambda id_: bob.rename(id_, "his now"),
            lambda id_: bob.update(id_, owner="bob"),
            lambda id_: bob.update(id_, metadata={}),
            lambda id_: bob.update_settings(id_, {"system": "Obey Bob."}),
            lambda id_: bob.switch(id_, 0),
            lambda id_: bob.remove_message(id_, 0),
            lambda id_: bob.create(conversation_id=id_),
            lambda id_: bob.chat(id_, "What did she say?"),
            lambda id_: bob.start(id_, Regeneration()),
            lambda id_: manager.chat(id_, "What did she say?", owner="bob"),
            lambda id_: dial.conversation(manager.store, id_, owner="bob").send("What did she say?"),
        ]
        before = await manager.get(hers.id)
        for attempt in attempts:
            for id_ in (hers.id, nobodys.id):
                with pytest.raises(ConversationNotFound):
                    await attempt(id_)
        assert await manager.get(hers.id) == before
        assert [found.id for found in await bob.list()] == [his.id]
        assert await bob.list(owner="ann") == ()
        assert [found.id for found in await ann.list(search="go on")] == [hers.id]
        assert bob.find_turn(hers.id) is None
        assert ann.find_turn(hers.id) is not None
        assert approve.asked_for == ["ann"], "her conversation's turns are for her"


async def test_a_waiting_call_is_decided_in_the_conversation_of_its_owner_only() -> None:
    approve = Approver("defer")
    async with open_client(approve) as dial:
        manager = ConversationManager(dial, MemoryStore())
        ann, bob = manager.for_owner("ann"), manager.for_owner("bob")
        hers = await ann.create()
        [waiting] = (await ann.chat(hers.id, "go on")).pending_approvals
        with pytest.raises(ConversationNotFound):
            await bob.resume(hers.id, {waiting.id: "once"})
        turn = await ann.resume(hers.id, {waiting.id: "session"})
        assert turn is not None
        assert ran(await turn.result())
        approve.answer = "deny"
        assert (await dial.call("add", {"a": 1, "b": 2}, owner="ann")).success, "she has decided for the session"
        assert not (await dial.call("add", {"a": 1, "b": 2}, owner="bob")).success


# --- results ----------------------------------------------------------------------------------------


async def test_a_stored_result_is_read_by_its_owner_only() -> None:
    def report() -> str:
        """Write a long report."""
        return "secret of ann " * 2_000

    def read(request: ModelRequest) -> dict[str, Any]:
        [key] = set(re.findall(r'read_result\(id="(\w+)"', "".join(message.text for message in request.messages)))
        return call("read_result", id=key)

    def reply(request: ModelRequest) -> Any:
        if request.messages[-1].role is not Role.USER:
            return "Done."
        return call("report") if len(request.messages) == 1 else read(request)

    async with DialClient(ScriptedProvider(reply), tools=[report], limits=Limits(max_result_chars=1_000)) as dial:
        hers = await dial.run("Write it.", owner="ann")
        again = await dial.run("Read on.", history=hers.messages, owner="ann")
        stolen = await dial.run("Read on.", history=hers.messages, owner="bob")
    assert "secret of ann" in str(again.tool_calls[0].result.content)
    assert not stolen.tool_calls[0].result.success
    assert "secret of ann" not in str(stolen.tool_calls[0].result.content)
