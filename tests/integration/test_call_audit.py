"""Audit entries: the decision before each tool call, the outcome of the call, and the requests of servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from dial_client import Approval, DialClient, ToolCallRequest, ToolSpec
from dial_client.extend import Elicitation, ElicitationAnswer, SamplingRequest
from tests.inner import (
    ApprovalChecker,
    ApprovalContext,
    ApprovalPolicy,
    Approver,
    AuditEntry,
    Callbacks,
    Connection,
    ConversationManager,
    Deadline,
    Limits,
    MemoryStore,
    Origin,
    PolicyRules,
    ScriptedProvider,
    ToolExecutor,
    TurnAudit,
    build_catalog,
)
from tests.support.audit_logs import Entries
from tests.support.clients import ASK, call, client
from tests.support.fakes import ReceivedEvents, server, text_result, tool_named
from tests.support.servers import questions
from tests.support.tool_rounds import STRICT, fails, runs

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ORIGIN = Origin("conversation", "turn")


def executor(
    entries: Entries,
    *servers: Connection,
    approve: Approver | None = None,
    rules: PolicyRules | None = None,
    **limits: Any,
) -> ToolExecutor:
    catalog = build_catalog(servers)
    audit = TurnAudit(entries, ORIGIN)
    checker = ApprovalChecker(rules or PolicyRules(), approve)
    return ToolExecutor(lambda: catalog, checker, Limits(**limits), audit=audit)


async def audited(*calls: ToolCallRequest, entries: Entries | None = None, **options: Any) -> Entries:
    kept = Entries() if entries is None else entries
    behaviour = options.pop("behaviour", None) or runs(anyio.lowlevel.checkpoint)
    there = server("clock", tool_named("now.utc", input_schema=STRICT), call=behaviour)
    await executor(kept, there, **options).execute_all(calls, ReceivedEvents().emit, Deadline(1000))
    return kept


NOW = ToolCallRequest("call_9", "now_utc", {"count": 1})


async def test_a_call_has_a_decision_entry_and_a_matching_end_entry() -> None:
    decision, end = await audited(NOW)
    assert (decision.event, decision.decision, decision.decided_by) == ("decision", "allowed", "no approver")
    assert (decision.arguments, decision.waited, decision.call) == ({"count": 1}, None, "call_9")
    assert (end.event, end.outcome, end.result_bytes, end.arguments) == ("call", "ok", len("done"), None)
    assert end.duration is not None and end.duration >= 0
    for entry in (decision, end):
        assert (entry.origin, entry.server, entry.tool, entry.id) == (ORIGIN, "clock", "now.utc", decision.id)


async def test_the_decision_is_recorded_before_the_call_runs() -> None:
    entries, seen = Entries(), list[list[tuple[str, str, str]]]()

    async def look() -> None:
        seen.append(entries.summaries)

    await audited(NOW, entries=entries, behaviour=runs(look))
    assert seen == [[("decision", "allowed", "clock/now.utc")]]


async def test_the_deciding_rule_and_the_waiting_time_are_recorded() -> None:
    async def no(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        return Approval("deny", "because of reasons", "policy rule 3")

    decision, end = await audited(NOW, approve=no)
    assert (decision.decision, decision.decided_by) == ("denied", "policy rule 3")
    assert decision.waited is not None
    assert (end.outcome, end.result_bytes) == ("denied", None)


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [(fails(RuntimeError("no")), "server"), (fails(ValueError("secret")), "server"), (None, "ok")],
)
async def test_the_kind_of_a_failure_is_recorded_without_its_text(behaviour: Any, outcome: str) -> None:
    entries = await audited(NOW, behaviour=behaviour)
    assert entries.summaries[-1] == ("call", outcome, "clock/now.utc")
    assert "secret" not in repr(entries)


async def test_a_failure_of_the_tool_is_distinguished_from_a_failure_of_the_host() -> None:
    async def failing(*_: object) -> Any:
        return text_result("no such file", is_error=True)

    entries = await audited(NOW, behaviour=failing)
    assert entries.summaries[-1] == ("call", "tool_error", "clock/now.utc")


async def test_calls_that_fail_before_a_decision_are_recorded_with_their_arguments() -> None:
    wrong, unknown, too_many = ToolCallRequest("1", "now_utc", {}), ToolCallRequest("2", "nothing", {"a": 1}), NOW
    entries = await audited(wrong, unknown, too_many, max_calls_per_round=2)
    ends = sorted((entry.call, entry.event, entry.outcome, entry.tool) for entry in entries)
    assert ends == [
        ("1", "call", "bad_arguments", "now.utc"),
        ("2", "call", "unknown_tool", "nothing"),
        ("call_9", "call", "not_run", "now.utc"),
    ]
    assert all(entry.arguments is not None for entry in entries)


@pytest.mark.parametrize("is_asking", [True, False])
async def test_a_cancelled_call_is_recorded_as_cancelled(is_asking: bool) -> None:
    entries, begun = Entries(), anyio.Event()

    async def hang() -> None:
        begun.set()
        await anyio.sleep_forever()

    async def ask(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        await hang()
        raise AssertionError("unreachable")

    there = server("clock", tool_named("now.utc", input_schema=STRICT), call=runs(hang))
    async with anyio.create_task_group() as group:
        work = executor(entries, there, approve=ask if is_asking else None)
        group.start_soon(work.execute, NOW, ReceivedEvents().emit, Deadline(1000))
        await begun.wait()
        group.cancel_scope.cancel()
    decision = "cancelled" if is_asking else "allowed"
    assert entries.summaries == [("decision", decision, "clock/now.utc"), ("call", "cancelled", "clock/now.utc")]


async def test_a_failing_audit_recorder_does_not_affect_the_call() -> None:
    class Broken:
        def record(self, entry: AuditEntry) -> None:
            raise RuntimeError(entry.id)

    dial, _ = client(audit=Broken())
    async with dial:
        assert (await dial.call("add", {"a": 1, "b": 2})).success


async def test_entries_have_the_conversation_if_any_and_a_distinct_turn_identifier() -> None:
    entries = Entries()
    dial, _ = client(call("add", a=1, b=2), "3", call("add", a=1, b=2), "3", call("add", a=1, b=2), "3", audit=entries)
    async with dial:
        manager = ConversationManager(dial, MemoryStore())
        kept = (await manager.create()).id
        async for _event in manager.stream_chat(kept, "go on"):
            pass
        await dial.run(ASK)
        await dial.run(ASK)
        await dial.call("add", {"a": 1, "b": 2})
    origins = [entry.origin for entry in entries if entry.event == "call"]
    assert [origin.conversation for origin in origins] == [kept, "", "", ""]
    assert len({origin.turn for origin in origins}) == 4 and [bool(origin.turn) for origin in origins] == [1, 1, 1, 0]


# --- requests of servers --------------------------------------------------------------------------


def decisions(entries: Entries, event: str) -> list[tuple[str, str, str, str]]:
    assert all(entry.origin.turn for entry in entries)
    return [(e.server, e.tool, e.decision, e.decided_by) for e in entries if e.event == event]


async def asked(
    tool: str, *replies: Any, elicit: Any = None, sample: Any = None, allow: Sequence[str] = (), **options: Any
) -> Entries:
    entries = Entries()
    model = ScriptedProvider([call(tool), *replies])
    async with DialClient(
        model,
        servers={"shop": questions.make()},
        audit=entries,
        callbacks=Callbacks(elicit=elicit, sample=sample),
        approval=ApprovalPolicy(allow=allow),
        **options,
    ) as dial:
        await dial.run(ASK)
    return entries


@pytest.mark.parametrize("tool", ["samples", "samples_too"])
@pytest.mark.parametrize(
    ("options", "decision", "by"),
    [
        ({}, "allowed", "no approver"),
        ({"approve": "once"}, "allowed", "approver"),
        ({"approve": "deny"}, "denied", "approver"),
        ({"approve": "deny", "allow": ("shop/*",)}, "allowed", "allow shop/*"),
        ({"limits": Limits(max_sampling_tokens=1)}, "denied", "sampling budget"),
    ],
)
async def test_the_decision_about_a_sampling_request_is_recorded(
    tool: str, options: dict[str, Any], decision: str, by: str
) -> None:
    async def person(request: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        return Approval("once" if spec.tool == tool else options["approve"])

    more = options | ({"approve": person} if "approve" in options else {})
    replies = ["a secret word", "done"] if decision == "allowed" else ["done"]
    entries = await asked(tool, *replies, sample="model", **more)
    assert decisions(entries, "sampling") == [("shop", tool, decision, by)]
    assert "secret" not in repr(entries)


@pytest.mark.parametrize(("reply", "decision"), [("a secret word", "allowed"), (None, "denied")])
async def test_the_decision_of_a_sample_callback_is_recorded(reply: Any, decision: str) -> None:
    async def sample(request: SamplingRequest) -> str | None:
        return reply  # type: ignore[no-any-return]  # one of the above

    entries = await asked("samples", "done", sample=sample)
    assert decisions(entries, "sampling") == [("shop", "samples", decision, "sample callback")]
    assert "secret" not in repr(entries)


@pytest.mark.parametrize("tool", ["pushes", "orders"])
@pytest.mark.parametrize("action", ["accept", "decline", "cancel", "failed"])
async def test_the_action_of_an_elicitation_is_recorded_without_the_values(tool: str, action: str) -> None:
    async def person(question: Elicitation) -> ElicitationAnswer:
        if action == "failed":
            raise RuntimeError("no")
        return ElicitationAnswer(action, {"name": "a secret", "gift": True} if action == "accept" else {})

    entries = await asked(tool, "done", elicit=person)
    assert decisions(entries, "elicitation") == [("shop", tool, action, "elicit callback")]
    assert "secret" not in repr(entries)
