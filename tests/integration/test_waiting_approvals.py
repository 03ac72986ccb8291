"""A call that waits for approval: it has not run, whoever continues the turn decides about it, and it runs once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.inner import (
    INTERRUPTED,
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    AuditEntry,
    ConfigError,
    ConversationManager,
    DialClient,
    DurableTimings,
    DurableTurns,
    Message,
    PendingApproval,
    ScriptedProvider,
    SQLStore,
    StopReason,
    ToolCallRequest,
    ToolSpec,
    Turn,
)
from tests.integration.test_durable import new_enough
from tests.support.managed_conversations import assert_valid
from tests.support.program import LONG, start_python
from tests.support.temporary_stores import needs_dbos

pytestmark = pytest.mark.anyio

WAITS = "Not run: it waits for approval."
CALLS = {
    "text": "Let me see.",
    "tool_calls": [{"name": "delete", "arguments": {"name": "old"}}, {"name": "look", "arguments": {}}],
}
POLICY = ApprovalPolicy(allow=["functions/look"])


class Shelf:
    """Functions that note each call, and an approver that decides later."""

    def __init__(self, answer: Approval | None = None) -> None:
        self.ran: list[str] = []
        self.asked: list[ApprovalContext] = []
        self._answer = answer or Approval("defer")

    def look(self) -> str:
        """Look at the shelf."""
        self.ran.append("look")
        return "old, new"

    def delete(self, name: str) -> str:
        """Delete a document."""
        self.ran.append(name)
        return f"deleted {name}"

    async def approve(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:  # noqa: ARG002
        self.asked.append(context)
        return self._answer

    def client(self, *replies: Any, **options: Any) -> DialClient:
        chosen: dict[str, Any] = {"approve": self.approve, "approval": POLICY} | options
        return DialClient(ScriptedProvider(list(replies)), tools=[self.look, self.delete], **chosen)


async def defer(shelf: Shelf) -> Turn:
    """Run a turn that ends because a call waits; return it after it was stored and read as JSON."""
    async with shelf.client(CALLS) as dial:
        turn = await dial.run("Tidy up!")
    return Turn.from_dict(json.loads(json.dumps(turn.to_dict())))


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


async def test_a_deferred_call_ends_the_turn_and_says_what_is_asked() -> None:
    shelf = Shelf()
    turn = await defer(shelf)
    assert (turn.stop_reason, turn.text) == (StopReason.AWAITING_APPROVAL, "Let me see.")
    assert texts(turn.messages) == ["Tidy up!", "Let me see.", WAITS, "old, new"]
    assert_valid(turn.messages)
    [pending] = turn.pending_approvals
    assert (pending.call.name, pending.call.arguments, pending.tool) == ("delete", {"name": "old"}, "delete")
    assert (pending.id, len(pending.digest)) == (shelf.asked[0].approval_id, 64)
    assert PendingApproval.from_dict(json.loads(json.dumps(pending.to_dict()))) == pending
    assert shelf.ran == ["look"]


async def test_a_later_decision_runs_the_call_once_and_the_model_continues() -> None:
    shelf = Shelf()
    turn = await defer(shelf)
    [pending] = turn.pending_approvals
    model = ScriptedProvider(["Done."])
    later = Shelf()
    async with DialClient(model, tools=[later.look, later.delete], approve=later.approve, approval=POLICY) as dial:
        ended = await dial.resume(turn, {pending.id: Approval("once", decided_by="ann")})
    assert (ended.text, ended.stop_reason, ended.pending_approvals) == ("Done.", StopReason.ANSWERED, ())
    assert texts(ended.messages) == ["Tidy up!", "Let me see.", "deleted old", "old, new", "Done."]
    assert_valid(ended.messages)
    assert model.requests[0].messages == ended.messages[:-1]
    assert [record.call.name for record in ended.tool_calls] == ["delete"]
    assert (later.ran, later.asked) == (["old"], [])


@pytest.mark.parametrize(
    ("decision", "result", "ran"),
    [
        ("deny", "The user did not allow this call.", []),
        (Approval("deny", "keep it"), "The user did not allow this call: keep it.", []),
        (Approval("once", arguments={"name": "older"}), "[The user changed the arguments", ["older"]),
        (Approval("once", arguments={"name": 7, "x": 1}), "The arguments do not fit", []),
        ("once", "deleted old", ["old"]),
        (True, "deleted old", ["old"]),
        (False, "The user did not allow this call.", []),
    ],
)
async def test_a_later_decision_is_checked_like_an_answer_at_once(
    decision: Approval | str | bool, result: str, ran: list[str]
) -> None:
    turn = await defer(Shelf())
    later = Shelf()
    async with later.client("Done.") as dial:
        ended = await dial.resume(turn, {turn.pending_approvals[0].id: decision})
    assert ended.messages[2].text.startswith(result)
    assert later.ran == ran


@pytest.mark.parametrize("arguments", [None, {"name": "secret"}])
async def test_a_rule_that_was_added_meanwhile_denies_a_call_that_was_approved(
    arguments: Mapping[str, Any] | None,
) -> None:
    turn = await defer(Shelf())
    later = Shelf()
    async with later.client("Done.", approval=ApprovalPolicy(deny=["delete"])) as dial:
        ended = await dial.resume(turn, {turn.pending_approvals[0].id: Approval("once", arguments=arguments)})
    assert "a rule of the user forbids this tool" in ended.messages[2].text
    assert later.ran == []


async def test_a_decision_holds_for_the_tool_that_was_shown_only() -> None:
    turn = await defer(Shelf())
    [pending] = turn.pending_approvals
    ran: list[str] = []

    def delete(name: str) -> str:
        """Delete a document, and all its copies."""
        ran.append(name)
        return "deleted"

    async with DialClient(ScriptedProvider([]), tools=[delete]) as dial:
        again = await dial.resume(turn, {pending.id: Approval("once")})
    [asked] = again.pending_approvals
    assert (again.stop_reason, ran) == (StopReason.AWAITING_APPROVAL, [])
    assert asked.id != pending.id
    assert "has changed since the approval was requested" in asked.change


@pytest.mark.parametrize("options", [{}, {"approve": None}])
async def test_a_call_without_a_decision_goes_on_waiting(options: dict[str, Any]) -> None:
    turn = await defer(Shelf())
    later = Shelf()
    async with later.client(**options) as dial:
        again = await dial.resume(turn, {})
    assert (again.stop_reason, again.pending_approvals) == (StopReason.AWAITING_APPROVAL, turn.pending_approvals)
    assert texts(again.messages) == texts(turn.messages)
    assert later.ran == []


async def test_an_unknown_decision_is_an_error_before_anything_runs() -> None:
    turn = await defer(Shelf())
    async with Shelf().client("Done.") as dial:
        with pytest.raises(ConfigError, match="no call waits for the approval 'call_1'"):
            await dial.resume(turn, {"call_1": Approval("once")})
        with pytest.raises(ValueError, match="'perhaps': expected Approval"):
            await dial.resume(turn, {turn.pending_approvals[0].id: "perhaps"})
        with pytest.raises(ConfigError, match="no call of this turn waits"):
            await dial.resume(await dial.resume(turn, {turn.pending_approvals[0].id: "deny"}), {})


async def test_the_decision_of_one_call_is_not_that_of_a_later_call_with_the_same_id() -> None:
    once = {"tool_calls": [{"id": "call_1", "name": "delete", "arguments": {"name": "old"}}]}
    shelf = Shelf()
    async with shelf.client(once) as dial:
        turn = await dial.run("Tidy up!")
    later = Shelf()
    async with later.client(once) as dial:
        again = await dial.resume(turn, {turn.pending_approvals[0].id: "once"})
    assert (later.ran, len(later.asked), len(again.pending_approvals)) == (["old"], 1, 1)


async def test_the_audit_log_has_the_deferral_and_the_decision() -> None:
    entries: list[AuditEntry] = []

    class Recorder:
        def record(self, entry: AuditEntry) -> None:
            entries.append(entry)

    turn = await defer(Shelf())
    later = Shelf()
    async with later.client("Done.", audit=Recorder()) as dial:
        waiting = await dial.resume(turn, {})
        await dial.resume(waiting, {turn.pending_approvals[0].id: Approval("once", decided_by="ann")})
    assert [(entry.event, entry.decision, entry.decided_by, entry.outcome) for entry in entries] == [
        ("decision", "deferred", "the user", ""),
        ("call", "", "", "not_run"),
        ("decision", "allowed", "ann", ""),
        ("call", "", "", "ok"),
    ]


# --- stored conversations -------------------------------------------------------------------------


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


async def test_a_stored_conversation_waits_and_another_program_decides(tmp_path: Path) -> None:
    store = SQLStore(tmp_path / "talk.db")
    shelf, later = Shelf(), Shelf()
    async with shelf.client(CALLS) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        turn = await manager.chat(conversation.id, "Tidy up!")
    async with later.client("Done.") as dial:
        manager = ConversationManager(dial, store)
        waiting = await manager.get(conversation.id)
        assert waiting.pending_approvals == turn.pending_approvals
        assert (waiting.running, waiting.notes) == (False, ())
        resumed = await manager.resume(conversation.id, decisions={turn.pending_approvals[0].id: "once"})
        assert resumed is not None
        assert (await resumed.result()).text == "Done."
        assert await manager.resume(conversation.id, decisions={turn.pending_approvals[0].id: "once"}) is None
        read = await manager.get(conversation.id)
    assert texts(read.messages) == ["Tidy up!", "Let me see.", "deleted old", "old, new", "Done."]
    assert_valid(read.messages)
    assert (later.ran, read.pending_approvals) == (["old"], ())
    await store.aclose()


async def test_another_message_gives_the_waiting_call_up(tmp_path: Path) -> None:
    store = SQLStore(tmp_path / "talk.db")
    async with Shelf().client(CALLS) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        turn = await manager.chat(conversation.id, "Tidy up!")
    later = Shelf()
    async with later.client("As you like.") as dial:
        manager = ConversationManager(dial, store)
        await manager.chat(conversation.id, "Never mind.")
        assert await manager.resume(conversation.id, decisions={turn.pending_approvals[0].id: "once"}) is None
        read = await manager.get(conversation.id)
    assert texts(read.messages) == ["Tidy up!", "Let me see.", WAITS, "old, new", "Never mind.", "As you like."]
    assert (later.ran, read.pending_approvals) == ([], ())
    await store.aclose()


# --- killed programs ------------------------------------------------------------------------------

LEASE = 0.6

PROGRAM = """
import json, sys
from pathlib import Path
import anyio
from dial_client import Approval, ApprovalPolicy, ConversationManager, DialClient, SQLStore
from dial_client.durable import DurableTurns
from dial_client.testing import ScriptedProvider

job = json.loads(sys.argv[1])

def note(line):
    with Path(job["log"]).open("a") as file:
        file.write(line + "\\n")

async def look() -> str:
    "Look at the shelf."
    note("look")
    return "old, new"

async def delete(name: str) -> str:
    "Delete a document."
    note(f"delete {name}")
    await anyio.sleep(job["works"])
    return f"deleted {name}"

async def approve(call, tool, context):
    note(f"asked {context.approval_id}")
    await anyio.sleep(job["thinks"])
    return Approval("once")

async def main():
    store = SQLStore(job["store"])
    model = ScriptedProvider(job["replies"])
    policy = ApprovalPolicy(allow=["functions/look"])
    async with DialClient(model, tools=[look, delete], approve=approve, approval=policy) as dial:
        if job["durable"]:
            async with DurableTurns(dial, store, job["store"] + "-turns", lease=job["lease"]) as turns:
                await turns.result(await turns.submit(job["conversation"], "Tidy up!"))
        else:
            manager = ConversationManager(dial, store, lease=job["lease"])
            resume, conversation = job["resumes"], job["conversation"]
            turn = await (manager.resume(conversation) if resume else manager.start(conversation, "Tidy up!"))
            await turn.result()

anyio.run(main)
"""


class KilledProgram:
    """A program that was killed in its turn, with its conversation, and the lines that it wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SQLStore(f"sqlite:///{folder / 'talk.db'}")
        self.conversation = ""

    @property
    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().split("\n")[:-1] if file.exists() else []

    async def run_until(self, beginning: str, **more: Any) -> None:
        """Run a program until it has written a line with this beginning; kill it, and wait for the end of its lease."""
        self.conversation = self.conversation or (await self.store.create()).id
        (self.folder / "log").unlink(missing_ok=True)
        job: dict[str, Any] = {
            "store": self.store.where,
            "conversation": self.conversation,
            "log": str(self.folder / "log"),
            "lease": LEASE,
            "durable": False,
            "resumes": False,
            "thinks": LONG,
            "works": LONG,
            "replies": [CALLS],
        }
        with start_python(self.folder, ["-c", PROGRAM, json.dumps(job | more)]) as process, anyio.fail_after(LONG):
            try:
                while not any(line.startswith(beginning) for line in self.log):  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.02)
            finally:
                process.kill()
        with anyio.fail_after(LONG):
            while (await self.store.get(self.conversation)).running:  # noqa: ASYNC110 - until the lease expires
                await anyio.sleep(0.02)


@asynccontextmanager
async def killed_program(folder: Path) -> AsyncIterator[KilledProgram]:
    killed = KilledProgram(folder)
    yield killed
    await killed.store.aclose()


async def test_a_call_that_waited_when_its_program_was_killed_is_asked_again_and_runs_once(tmp_path: Path) -> None:
    async with killed_program(tmp_path) as killed:
        await killed.run_until("asked")
        shelf = Shelf(Approval("once"))
        async with shelf.client("Done.") as dial:
            manager = ConversationManager(dial, killed.store, lease=LEASE)
            read = await manager.get(killed.conversation)
            assert read.messages[2].text == WAITS
            assert [f"asked {pending.id}" for pending in read.pending_approvals] == [
                line for line in killed.log if line.startswith("asked")
            ]
            resumed = await manager.resume(killed.conversation)
            assert resumed is not None
            assert (await resumed.result()).text == "Done."
            read_again = await manager.get(killed.conversation)
        assert [context.approval_id for context in shelf.asked] == [read.pending_approvals[0].id]
        assert shelf.ran == ["old"] if "look" in killed.log else ["look", "old"]
        assert "delete old" not in killed.log
        assert (read_again.messages[2].text, read_again.messages[-1].text) == ("deleted old", "Done.")
        assert_valid(read_again.messages)


async def test_a_call_that_was_approved_before_its_program_was_killed_may_have_run(tmp_path: Path) -> None:
    async with killed_program(tmp_path) as killed:
        await killed.run_until("delete", thinks=0.0)
        shelf = Shelf(Approval("once"))
        async with shelf.client("Done.") as dial:
            manager = ConversationManager(dial, killed.store, lease=LEASE)
            read = await manager.get(killed.conversation)
            assert (read.messages[2].text, read.pending_approvals) == (INTERRUPTED, ())
            resumed = await manager.resume(killed.conversation)
            assert resumed is not None
            assert (await resumed.result()).text == "Done."
        assert (shelf.ran, shelf.asked) == ([], [])


async def test_the_program_that_continues_the_turn_may_be_killed_too(tmp_path: Path) -> None:
    async with killed_program(tmp_path) as killed:
        await killed.run_until("asked")
        for beginning, thinks, result in (("asked", LONG, WAITS), ("delete", 0.0, INTERRUPTED)):
            await killed.run_until(beginning, thinks=thinks, resumes=True)
            async with Shelf().client() as dial:
                read = await ConversationManager(dial, killed.store).get(killed.conversation)
            assert read.turn
            assert read.messages[2].text == result
            assert_valid(read.messages)
        shelf = Shelf(Approval("once"))
        async with shelf.client("Done.") as dial:
            manager = ConversationManager(dial, killed.store, lease=LEASE)
            await manager.chat(killed.conversation, "And now?")
            read = await manager.get(killed.conversation)
        assert texts(read.messages)[2:] == [INTERRUPTED, "old, new", "And now?", "Done."]
        assert_valid(read.messages)
        assert (shelf.ran, shelf.asked) == ([], [])


@needs_dbos
@new_enough
async def test_a_durable_turn_asks_again_in_the_program_that_continues_it(tmp_path: Path) -> None:
    async with killed_program(tmp_path) as killed:
        await killed.run_until("asked", durable=True)
        shelf = Shelf(Approval("once"))
        async with (
            shelf.client("Done.") as dial,
            DurableTurns(
                dial,
                killed.store,
                f"{killed.store.where}-turns",
                timings=DurableTimings(recovery_interval=0.1, idle_interval=0.1),
                lease=LEASE,
            ) as turns,
        ):
            with anyio.fail_after(LONG):
                while (await turns.manager.get(killed.conversation)).running:  # noqa: ASYNC110 - the workflow ends by itself
                    await anyio.sleep(0.02)
            read = await turns.manager.get(killed.conversation)
        assert (read.messages[2].text, read.messages[-1].text) == ("deleted old", "Done.")
        asked = [line for line in killed.log if line.startswith("asked")]
        assert [f"asked {context.approval_id}" for context in shelf.asked] == asked
        assert (shelf.ran.count("old"), "delete old" in killed.log) == (1, False)
