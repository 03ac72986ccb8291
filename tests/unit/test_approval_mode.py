"""The modes of approval: what they let run, what they deny, and that they weaken no rule."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import ApprovalPolicy, DialClient
from dial_client.testing import ScriptedProvider
from tests.inner import (
    PLAN_FIRST,
    PLAN_INSTRUCTION,
    Approval,
    ApprovalChecker,
    ApprovalMode,
    PolicyRules,
    ServerSettings,
    ToolSpec,
    Transport,
    load_policy,
)

TRUSTED = ServerSettings("files", Transport.STDIO, command="files", trusted=True)
CLAIMING = ServerSettings("web", Transport.STDIO, command="web")


async def person(*_: Any) -> Approval:
    raise AssertionError("`decide` does not ask")


def spec(tool: str, server: str = "files", *, read_only: bool = False) -> ToolSpec:
    return ToolSpec(tool, "", {}, server=server, tool=tool, read_only=read_only)


READ, WRITE = spec("read", read_only=True), spec("write")
CLAIMED = spec("look", "web", read_only=True)
HOST = ToolSpec("read_result", "", {}, "", "read_result", read_only=True)


def decide(
    mode: str, tool: ToolSpec, policy: list[dict[str, Any]] | None = None, *, is_attended: bool = True, **more: Any
) -> str:
    """Return what is decided about a call: ``run``, ``deny`` or ``ask``, with the source of the decision."""
    rules = PolicyRules(more.pop("allow", ()), more.pop("deny", ()), load_policy(policy or []))
    checker = ApprovalChecker(
        rules, person if is_attended else None, entries={"files": TRUSTED, "web": CLAIMING}, mode=ApprovalMode(mode)
    )
    decided = checker.decide(tool, {"path": "a"}, **more)
    if decided is None:
        return "ask"
    return f"{'run' if decided.allowed else 'deny'}: {decided.decided_by}"


DECISIONS = [
    ("ask", READ, "ask"),
    ("ask", WRITE, "ask"),
    ("read", READ, "run: mode read"),
    ("read", WRITE, "ask"),
    ("read", CLAIMED, "ask"),
    ("plan", READ, "run: mode plan"),
    ("plan", WRITE, "deny: mode plan"),
    ("plan", CLAIMED, "ask"),
    ("plan", HOST, "run: the host's own tool"),
    ("auto", READ, "run: mode auto"),
    ("auto", WRITE, "run: mode auto"),
    ("auto", CLAIMED, "run: mode auto"),
]


@pytest.mark.parametrize(("mode", "tool", "expected"), DECISIONS)
def test_a_mode_decides_by_what_a_trusted_server_says_of_its_tool(mode: str, tool: ToolSpec, expected: str) -> None:
    assert decide(mode, tool) == expected


@pytest.mark.parametrize("mode", [*ApprovalMode])
def test_no_mode_lifts_a_denial_a_forced_question_or_the_question_about_untrusted_content(mode: str) -> None:
    assert decide(mode, READ, [{"deny": "files/*"}]) == "deny: policy rule 1"
    assert decide(mode, READ, deny=("read",)) == "deny: deny read"
    assert decide(mode, READ, [{"ask": "files/*"}]) == "ask"
    assert decide(mode, READ, taint=("web/look",)) == "ask"


@pytest.mark.parametrize("mode", [*ApprovalMode])
def test_every_mode_asks_about_a_tool_that_has_changed_since_its_approval(mode: str) -> None:
    assert decide(mode, READ, change="- reads\n+ writes") == "ask"


def test_a_plan_comes_before_what_rules_allow() -> None:
    assert decide("plan", WRITE, [{"allow": "files/*"}]) == "deny: mode plan"
    assert decide("plan", WRITE, allow=("*",)) == "deny: mode plan"


def test_a_rule_of_the_user_can_say_that_a_call_only_reads() -> None:
    rules = [{"allow": "files/write", "arguments": {"path": "a"}, "readOnly": True}]
    assert decide("plan", WRITE, rules) == "run: policy rule 1"
    assert decide("plan", spec("other"), rules) == "deny: mode plan"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("ask", "run: no approver"),
        ("read", "deny: no approver"),
        ("auto", "run: mode auto"),
        ("plan", "deny: mode plan"),
    ],
)
def test_without_an_approver_a_mode_denies_what_it_asks_about(mode: str, expected: str) -> None:
    assert decide(mode, WRITE, is_attended=False) == expected


def test_the_model_reads_why_a_call_waits_for_the_plan() -> None:
    checker = ApprovalChecker(PolicyRules(), person, mode=ApprovalMode.PLAN)
    assert checker.decide(WRITE) == Approval("deny", PLAN_FIRST)


def test_a_mode_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="'careful' is not a valid ApprovalMode"):
        ApprovalPolicy(mode="careful")


@pytest.mark.anyio
async def test_a_mode_that_changes_in_the_middle_of_a_turn_holds_for_the_next_call_and_the_next_request() -> None:
    def first() -> str:
        dial.approvals.set_mode("plan")
        return "one"

    ran: list[str] = []

    def second() -> str:
        ran.append("second")
        return "two"

    replies = [{"tool_calls": [{"name": "first"}]}, {"tool_calls": [{"name": "second"}]}, "Done."]
    model = ScriptedProvider(replies)
    async with DialClient(model, tools=[first, second], approval=ApprovalPolicy(mode="auto")) as dial:
        turn = await dial.run("Go")
    assert [record.denied for record in turn.tool_calls] == [False, True]
    assert ran == []
    texts = [[instruction.text for instruction in request.instructions] for request in model.requests]
    assert [PLAN_INSTRUCTION in instructions for instructions in texts] == [False, True, True]
