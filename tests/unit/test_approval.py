"""Approval: a deny rule wins, then allow rules, then the approver decides; every error denies the call."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.inner import (
    Approval,
    ApprovalChecker,
    ApprovalContext,
    Decision,
    Effect,
    PolicyRules,
    ProposedCall,
    ServerSettings,
    ToolCallRequest,
    ToolSpec,
    Transport,
    assign_names,
    load_policy,
)
from tests.support.fakes import unhurried

CALL = ToolCallRequest("1", "now", {})


def spec(server: str = "clock", tool: str = "now", name: str | None = None) -> ToolSpec:
    return ToolSpec(tool if name is None else name, "", {}, server=server, tool=tool)


def approved(*patterns: str) -> ServerSettings:
    return ServerSettings("clock", Transport.STDIO, command="clock", auto_approve=patterns)


def find_effect(rules: PolicyRules, tool: ToolSpec) -> Effect | None:
    verdict = rules.find_verdict(ProposedCall(tool))
    return verdict.effect if verdict is not None else None


def allows(rules: PolicyRules, tool: ToolSpec) -> bool:
    return find_effect(rules, tool) is Effect.ALLOW


def denies(rules: PolicyRules, tool: ToolSpec) -> bool:
    return find_effect(rules, tool) is Effect.DENY


class Person:
    """An approver that returns prepared answers and records its questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[ToolCallRequest, ToolSpec, str]] = []

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        self.asked.append((call, tool, context.server))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # programs may return anything


# --- rules ----------------------------------------------------------------------------------------

HITS = ["*", "clock/now", "clock/*", "*/now", "c?ock/n?w", "*/*"]
MISSES = [
    "NOW",
    "no",
    "w",
    "",
    "clock",
    "clock__now",
    "clock__*",
    "clock.now",
    "other/*",
    "clock/NOW",
    "/now",
    "clock/",
]
OWN_NAMES = ["now", "n?w", "no*"]


@pytest.mark.parametrize(("pattern", "matches"), [(p, True) for p in HITS] + [(p, False) for p in MISSES])
def test_a_pattern_names_the_server_and_the_tool(pattern: str, matches: bool) -> None:
    assert allows(PolicyRules(allow=(pattern,)), spec()) == matches
    assert denies(PolicyRules(deny=(pattern,)), spec()) == matches


@pytest.mark.parametrize("pattern", OWN_NAMES)
def test_a_deny_without_a_server_matches_the_tools_own_name_and_such_an_allow_matches_nothing(pattern: str) -> None:
    assert denies(PolicyRules(deny=(pattern,)), spec())
    assert denies(PolicyRules(deny=(pattern,)), spec("other", "now", "other__now"))
    assert not allows(PolicyRules(allow=(pattern,)), spec())


RENAMED = spec("clock", "now.utc", "clock__now_utc")


@pytest.mark.parametrize("pattern", ["now.utc", "now*", "clock/now.utc", "*/now.*"])
def test_a_deny_matches_the_own_name_of_a_tool_that_is_offered_under_a_different_name(pattern: str) -> None:
    assert denies(PolicyRules(deny=(pattern,)), RENAMED)


def test_the_first_slash_ends_the_servers_name() -> None:
    odd = spec("git", "evil/x")
    assert allows(PolicyRules(allow=("git/*",)), odd)
    assert allows(PolicyRules(allow=("git/evil/*",)), odd)
    assert not allows(PolicyRules(allow=("git/*",)), spec("git/evil", "x"))
    assert not allows(PolicyRules(allow=("g*/x",)), odd)


def test_auto_approve_of_a_server_applies_to_that_server_only() -> None:
    checker = ApprovalChecker(PolicyRules(), Person(), entries={"clock": approved("now", "get_*")})
    assert checker.decide(spec("clock", "now"))
    assert checker.decide(spec("clock", "get_zone"))
    assert not checker.decide(spec("other", "now"))
    assert not checker.decide(spec("clock", "set_zone"))


SERVERS = st.sampled_from(["clock", "evil", "a", "a__b", "a b", "b"])
TOOLS = st.sampled_from(["now", "clock__now", "b__now", "clock/now", "a_b__x", "clock__now_0123456789"])


@unhurried
@given(st.sets(st.tuples(SERVERS, TOOLS), min_size=1, max_size=5), st.sampled_from(["clock", "a", "b", "a__b", "a_b"]))
@example({("clock", "now"), ("evil", "clock__now")}, "clock")
@example({("a", "b__now"), ("a__b", "now")}, "a__b")
def test_an_allow_for_all_tools_of_a_server_matches_no_tool_of_another_server(
    keys: set[tuple[str, str]], trusted: str
) -> None:
    """Even if the name of another server's tool looks like a name of the allowed server's tool."""
    for (server, tool), name in assign_names(keys).items():
        assert allows(PolicyRules(allow=(f"{trusted}/*",)), spec(server, tool, name)) == (server == trusted)


# --- decisions ------------------------------------------------------------------------------------


def test_a_deny_wins_over_every_allow() -> None:
    rules = PolicyRules(allow=("*",), deny=("now",))
    known = ApprovalChecker(rules, None, entries={"clock": approved("*")}).decide(spec())
    assert known is not None
    assert not known.allowed
    assert known.reason


def test_without_an_approver_a_call_that_no_rule_matches_is_allowed() -> None:
    known = ApprovalChecker(PolicyRules(), None).decide(spec())
    assert known is not None
    assert known.allowed


def test_with_an_approver_a_call_that_no_rule_matches_is_undecided() -> None:
    person = Person()
    assert ApprovalChecker(PolicyRules(), person).decide(spec()) is None
    assert ApprovalChecker(PolicyRules(allow=("clock/now",)), person).decide(spec()) == Approval("once")
    assert person.asked == []


DECIDED: list[tuple[PolicyRules, bool, str | None]] = [
    (PolicyRules(deny=("now",)), True, "deny now"),
    (PolicyRules(allow=("clock/*",)), True, "allow clock/*"),
    (PolicyRules(allow=("clock/*",), typed=frozenset({"clock/*"})), True, "/approve clock/*"),
    (PolicyRules(policy=load_policy([{"allow": "clock/*"}])), True, "policy rule 1"),
    (PolicyRules(policy=load_policy([{"deny": "clock/*"}])), False, "policy rule 1"),
    (PolicyRules(policy=load_policy([{"ask": "clock/*"}])), False, "no approver"),
    (PolicyRules(policy=load_policy([{"ask": "clock/*"}])), True, None),
    (PolicyRules(), False, "no approver"),
    (PolicyRules(), True, None),
]


@pytest.mark.parametrize(("rules", "asks", "decided_by"), DECIDED, ids=str)
def test_a_decision_names_its_source(rules: PolicyRules, asks: bool, decided_by: str | None) -> None:
    known = ApprovalChecker(rules, Person() if asks else None).decide(spec())
    assert (None if known is None else known.decided_by) == decided_by


def test_a_decision_by_the_entry_of_a_server_names_it() -> None:
    known = ApprovalChecker(PolicyRules(), Person(), entries={"clock": approved("*")}).decide(spec())
    assert known is not None
    assert known.decided_by == "autoApprove of clock"


@pytest.mark.anyio
async def test_an_answer_is_attributed_to_the_user_unless_the_approver_names_a_source() -> None:
    approvals = ApprovalChecker(
        PolicyRules(),
        Person(Approval("once"), Approval("once", decided_by="--yes"), None, Approval("session")),
        single_user=True,
    )
    assert [(await approvals.ask(CALL, spec())).decided_by for _ in range(5)] == [
        "the user",
        "--yes",
        "no approver",
        "the user",
        "grant for the session",
    ]


def test_an_unknown_decision_is_an_error() -> None:
    with pytest.raises(ValueError, match="maybe"):
        Approval("maybe")
    assert Approval("deny") == Approval(Decision.DENY)


@pytest.mark.anyio
async def test_an_approver_receives_the_call_the_tool_and_the_server() -> None:
    person = Person(Approval("once"))
    tool = spec()
    assert (await ApprovalChecker(PolicyRules(), person).ask(CALL, tool)).allowed
    assert person.asked == [(CALL, tool, "clock")]


@pytest.mark.anyio
async def test_a_denial_has_its_reason() -> None:
    answer = await ApprovalChecker(PolicyRules(), Person(Approval("deny", "too dear"))).ask(CALL, spec())
    assert (answer.allowed, answer.reason) == (False, "too dear")


HOW_LONG = [("once", 2), ("session", 1), ("always", 1), ("deny", 2)]


@pytest.mark.anyio
@pytest.mark.parametrize(("decision", "questions"), HOW_LONG, ids=[decision for decision, _ in HOW_LONG])
async def test_answers_for_the_session_or_for_always_prevent_the_next_question(decision: str, questions: int) -> None:
    person = Person(Approval(decision), Approval(decision))
    approvals = ApprovalChecker(PolicyRules(), person, single_user=True)
    for _ in range(2):
        await approvals.ask(CALL, spec())
    assert len(person.asked) == questions
    assert (approvals.decide(spec()) is not None) == (decision in ("session", "always"))


@pytest.mark.anyio
@pytest.mark.parametrize("tool", [spec("tool", "now"), spec("clock", "set"), spec("tool", "x", "now")], ids=str)
async def test_a_grant_applies_only_to_the_tool_and_the_server_it_was_given_for(tool: ToolSpec) -> None:
    approvals = ApprovalChecker(PolicyRules(), Person(Approval("session")), single_user=True)
    await approvals.ask(CALL, spec())
    assert approvals.decide(tool) is None
    assert approvals.decide(spec(name="clock__now")) is not None, "the same tool, offered under another name"


BROKEN: list[tuple[str, Any]] = [
    ("raises", OSError("no terminal")),
    ("returns None", None),
    ("returns a number", 1),
    ("returns another word", "yes"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [answer for _, answer in BROKEN], ids=[name for name, _ in BROKEN])
async def test_a_failing_approver_denies_the_call(answer: Any) -> None:
    approvals = ApprovalChecker(PolicyRules(), Person(answer, Approval("once")))
    refused = await approvals.ask(CALL, spec())
    assert not refused.allowed
    assert "terminal" not in refused.reason, "the model does not see the exception"
    assert (await approvals.ask(CALL, spec())).allowed, "the next question is still asked"


@pytest.mark.anyio
async def test_questions_are_asked_in_sequence_and_a_grant_for_the_session_answers_waiting_questions() -> None:
    asking = 0
    asked = 0

    async def person(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        nonlocal asking, asked
        asking, asked = asking + 1, asked + 1
        await anyio.wait_all_tasks_blocked()
        assert asking == 1
        asking -= 1
        return Approval("session")

    approvals = ApprovalChecker(PolicyRules(), person, single_user=True)
    answers: list[Approval] = []

    async def ask(tool: ToolSpec) -> None:
        answers.append(await approvals.ask(CALL, tool))

    async with anyio.create_task_group() as group:
        for tool in [spec(), spec(), spec(), spec(tool="other")]:
            group.start_soon(ask, tool)
    assert asked == 2
    assert [answer.allowed for answer in answers] == [True] * 4


@pytest.mark.anyio
async def test_a_cancelled_question_does_not_block_the_next_question() -> None:
    began = anyio.Event()

    async def person(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        if not began.is_set():
            began.set()
            await anyio.sleep_forever()
        return Approval("once")

    approvals = ApprovalChecker(PolicyRules(), person, single_user=True)
    async with anyio.create_task_group() as group:
        group.start_soon(approvals.ask, CALL, spec())
        await began.wait()
        group.cancel_scope.cancel()
    with anyio.fail_after(60):
        assert (await approvals.ask(CALL, spec())).allowed


@pytest.fixture
def early_checker() -> ApprovalChecker:
    """A checker that is created before the event loop starts, as in most programs."""
    return ApprovalChecker(PolicyRules(), Person(Approval("once")))


@pytest.mark.anyio
async def test_a_checker_created_before_the_event_loop_works(early_checker: ApprovalChecker) -> None:
    assert (await early_checker.ask(CALL, spec())).allowed
