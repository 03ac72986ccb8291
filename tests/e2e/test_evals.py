"""The evaluation: its judges are correct, and its tasks can be solved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evals import distractors
from evals.matching import is_expected, says
from evals.report import row, rows, table
from evals.run import Outcome, run_offer
from evals.servers import sample_repository, server_entries
from evals.tasks import SETS, Expected, Kind, Offer, Task, load, offers
from tests.inner import ScriptedProvider
from tests.support.eval_servers import quick_start
from tests.support.program import PIPES, environment, run_to_end, start_python

ROOT = Path(__file__).parents[2]
ADD = Expected("calculate", {"expression": {"value": 42, "example": "17 + 25"}})
SUM = Task("sum", "What is 17 + 25?", (ADD,), (r"\b42\b",))
SCHEMA: Mapping[str, Any] = {"properties": {"count": {"type": "integer", "default": 10}, "path": {"type": "string"}}}


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    with sample_repository() as path:
        yield path


def played(task: Task) -> list[Any]:
    """Return the replies of a model that makes the expected calls."""
    return [{"tool_calls": [{"name": call.tool, "arguments": examples(call)}]} for call in task.calls] + ["So it is."]


def examples(call: Expected) -> dict[str, Any]:
    found = {}
    for name, value in call.arguments.items():
        if not isinstance(value, Mapping):
            found[name.removesuffix("?")] = value
        elif "example" in value:
            found[name] = value["example"]
    return found


async def judge_sums(*conversations: tuple[Any, ...]) -> list[Outcome]:
    """Return the outcome of `SUM` for each sequence of replies; the server starts once for all of them."""
    outcomes: list[Outcome] = []
    servers = {"desk": quick_start(server_entries(ROOT)["desk"])}
    model = ScriptedProvider([reply for replies in conversations for reply in replies])
    offer = Offer(frozenset({"calculate"}), (SUM,) * len(conversations))
    await run_offer(offer, model, "native", servers, outcomes.append)
    return outcomes


def call(expression: str, name: str = "calculate") -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": {"expression": expression}}]}


def outcome(kind: Kind, **changes: Any) -> Outcome:
    usual: dict[str, Any] = {"task": "t", "kind": kind.value, "format": "native", "tools": 3, "needless": 0}
    usual |= dict.fromkeys(("well_formed", "right_tool", "right_call", "right_answer"), True)
    return Outcome(**(usual | {"seconds": 1.0, "stop_reason": "answered", "calls": (), "text": "Yes."} | changes))


def test_the_two_sets_have_all_kinds_and_share_no_question() -> None:
    tuning, reported = (load(name, Path("r")) for name in SETS)
    assert len(tuning) >= 40
    assert len(reported) >= 60
    assert sum(task.kind is Kind.TWO_STEP for task in reported) >= 10
    assert sum(task.kind is Kind.NO_TOOL for task in reported) >= 10
    assert not {task.question for task in tuning} & {task.question for task in reported}
    for tasks in (tuning, reported):
        assert len({task.id for task in tasks}) == len(tasks)


@pytest.mark.once
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("name", SETS)
async def test_every_task_can_be_solved_with_the_offered_tools(name: str, repository: Path) -> None:
    tasks = load(name, repository)
    spare = [tool.name for tool in await distractors.server.list_tools()]
    servers = {name: quick_start(entry) for name, entry in server_entries(repository).items()}
    outcomes: list[Outcome] = []
    for offer in offers(tasks, 20, spare):
        model = ScriptedProvider([reply for task in offer.tasks for reply in played(task)])
        await run_offer(offer, model, "native", servers, outcomes.append)
    by_id = {task.id: task for task in tasks}
    assert {scored.task for scored in outcomes} == by_id.keys()
    for scored in outcomes:
        results = [result for _, _, result in scored.calls]
        assert (scored.tools, scored.well_formed, scored.right_call, scored.needless) == (20, True, True, 0), scored
        assert not results or says(by_id[scored.task].answer, " ".join(results), results), scored


@pytest.mark.once
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_calls_and_answers_are_judged_separately() -> None:
    good, no_call, wrong_arguments, repeated = await judge_sums(
        (call("25 + 17"), "That makes **42**."),
        ("It is 42.",),
        (call("17 * 25"), "It is 425."),
        (call("17 + 25"), call("17 + 25"), "42"),
    )
    assert (good.well_formed, good.right_tool, good.right_call, good.right_answer) == (True, True, True, True)
    assert (good.needless, good.tools, good.stop_reason) == (0, 1, "answered")
    assert good.calls == (("calculate", {"expression": "25 + 17"}, "42"),)
    assert (no_call.well_formed, no_call.right_tool, no_call.right_call, no_call.right_answer) == (
        (True, False, False, True)
    )
    assert (wrong_arguments.right_tool, wrong_arguments.right_call) == (True, False)
    assert (wrong_arguments.right_answer, wrong_arguments.needless) == (False, 1)
    assert (repeated.right_call, repeated.right_answer, repeated.needless) == (True, True, 1)


@pytest.mark.once
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_malformed_replies_are_detected() -> None:
    malformed = {
        "a tool that is not on offer": (call("1", name="nonsense"), call("17 + 25"), "42"),
        "arguments that do not fit": (
            {"tool_calls": [{"name": "calculate", "arguments": {"sum": "17 + 25"}}]},
            call("17 + 25"),
            "42",
        ),
        "markup in the answer": (call("17 + 25"), 'Final Answer: {"tool": "calculate"} 42'),
        "an answer that was cut": (call("17 + 25"), {"text": "It is 42 bec", "finish": "length"}),
    }
    outcomes = await judge_sums(*malformed.values())
    missed = [name for name, found in zip(malformed, outcomes, strict=True) if found.well_formed]
    assert missed == []
    assert [len(found.calls) for found in outcomes] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    ("expected", "given", "is_right"),
    [
        ({"path": "/a"}, {"path": "/a"}, True),
        ({"path": "/a"}, {"path": "/A "}, True),
        ({"path": "/a"}, {"path": "/b"}, False),
        ({"path": "/a"}, {}, False),
        ({"path": "/a"}, {"path": "/a", "count": 10}, True),
        ({"path": "/a"}, {"path": "/a", "count": None}, True),
        ({"path": "/a"}, {"path": "/a", "count": 3}, False),
        ({"path?": "/a"}, {}, True),
        ({"path?": "/a"}, {"path": "/b"}, False),
        ({"path": {"matches": "/a/?"}}, {"path": "/a/"}, True),
        ({"path": {"matches": "/a/?"}}, {"path": "/a/b"}, False),
        ({"path": {"any": True}}, {"path": "x"}, True),
        ({"count": 3}, {"count": "3"}, True),
        ({"count": 3}, {"count": 3.0}, True),
        ({"count": {"value": 6}}, {"count": "2 * 3"}, True),
        ({"count": {"value": 6}}, {"count": "__import__('os')"}, False),
        ({"on": True}, {"on": True}, True),
        ({"on": True}, {"on": 1}, False),
    ],
)
def test_arguments_are_compared_with_the_expected_arguments(
    expected: dict[str, Any], given: dict[str, Any], is_right: bool
) -> None:
    assert is_expected(Expected("t", expected), "t", given, SCHEMA) is is_right
    assert not is_expected(Expected("t", expected), "another", given, SCHEMA)


def test_an_expected_value_may_be_written_in_different_ways() -> None:
    assert says([r"\b1204\b", "PARIS"], "It is **1,204** in Paris.", [])
    assert says(["-3"], "\N{MINUS SIGN}3 °C", [])
    assert not says([r"\b1204\b", "rome"], "It is 1,204 in Paris.", [])
    assert says([r"result:T(\d\d:\d\d)"], "It is 09:41 now.", ['{"datetime": "2026-01-01T09:41:00"}'])
    assert says([r"result:T(\d\d:\d\d)"], "It is 9:41 AM now.", ['{"datetime": "2026-01-01T09:41:00"}'])
    assert not says([r"result:T(\d\d:\d\d)"], "It is 9:41 PM now.", ['{"datetime": "2026-01-01T09:41:00"}'])
    assert not says([r"result:T(\d\d:\d\d)"], "It is 09:42 now.", ['{"datetime": "2026-01-01T09:41:00"}'])
    assert not says([r"result:T(\d\d:\d\d)"], "It is 09:41 now.", [])


def test_offers_have_the_given_size_and_the_tools_of_their_tasks() -> None:
    tasks = load("reported", Path("r"))
    spare = [f"spare{number}" for number in range(20)]
    for size in (1, 3, 8, 20):
        made = list(offers(tasks, size, spare))
        given = [task.id for offer in made for task in offer.tasks]
        assert sorted(given) == sorted(task.id for task in tasks if len(task.tools) <= size)
        for offer in made:
            assert len(offer.tools) == size
            assert all(task.tools <= offer.tools for task in offer.tasks)


def test_each_kind_of_task_has_its_own_measure() -> None:
    found = row(
        [
            outcome(Kind.ONE_CALL, calls=(("t", {}, "r"),), seconds=3.0),
            outcome(Kind.ONE_CALL, right_call=False, needless=2, seconds=2.0),
            outcome(Kind.TWO_STEP),
            outcome(Kind.TWO_STEP, right_answer=False, well_formed=False),
            outcome(Kind.NO_TOOL),
            outcome(Kind.NO_TOOL, calls=(("t", {}, "r"),), needless=1),
            outcome(Kind.NO_TOOL, right_answer=False),
        ]
    )
    assert found == {
        "format": "native",
        "tools": 3,
        "well-formed": [6, 7],
        "right tool": [2, 2],
        "right call": [1, 2],
        "answer": [2, 2],
        "two-step": [1, 2],
        "needless": 3,
        "no tool": [2, 3],
        "no tool, right": [1, 3],
        "s/turn": 1.0,
    }
    heads, _, first = table(rows([outcome(Kind.NO_TOOL)])).splitlines()
    assert [cell.strip() for cell in heads.split("|")][1:4] == ["format", "tools", "well-formed"]
    assert [cell.strip() for cell in first.split("|")][1:4] == ["native", "3", "1/1"]


def test_the_program_prints_a_table_and_stores_the_answers(tmp_path: Path) -> None:
    script, kept = tmp_path / "script.json", tmp_path / "said.json"
    expression = {"expression": "348 + 577"}
    replies: list[Any] = [{"tool_calls": [{"name": "calculate", "arguments": expression}]}, "It is 925."]
    script.write_text(json.dumps(replies), encoding="utf-8")
    options = ["--model", f"scripted:{script}", "--set", "tuning", "--only", "calc-add"]
    options += ["--calls", "--format", "native", "--tools", "3"]
    ended = run_to_end(
        start_python(ROOT, ["-m", "evals", *options, "--json", str(kept)], env=environment(tmp_path), **PIPES)
    )
    assert ended.returncode == 0, ended.stderr
    assert "| native | 3     | 1/1" in ended.stdout
    report = json.loads(kept.read_text(encoding="utf-8"))
    assert report["rows"][0]["right call"] == [1, 1]
    assert report["outcomes"][0]["calls"] == [["calculate", {"expression": "348 + 577"}, "925"]]
