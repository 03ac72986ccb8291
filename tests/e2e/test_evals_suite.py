"""The suite of the evaluation: the number of its cases, and the correctness of its judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evals import judges
from evals.servers import server_entries
from evals.suite import KINDS, OFFERS, Case, load_cases, pack, quick
from evals.suite_report import suite_table
from evals.suite_run import Judged, run_cases
from evals.tasks import SETS
from tests.inner import ScriptedProvider
from tests.support.eval_servers import quick_start
from tests.support.program import PIPES, environment, run_to_end, start_python

ROOT = Path(__file__).parents[2]
LEAST = {"ordinary": 60, "failures": 20, "missing": 15, "offline": 15, "chains": 24, "unicode": 10, "calls": 60}


def test_the_suite_has_the_documented_number_of_cases_and_separate_halves() -> None:
    halves = [load_cases(half, Path("r")) for half in SETS]
    for kind, least in LEAST.items():
        assert sum(case.kind == kind for half in halves for case in half) >= least, kind
    tuning, reported = ({case.turns for case in half} for half in halves)
    assert not tuning & reported
    assert len([case for case in halves[SETS.index("reported")] if case.kind == "offline"]) >= 15


@pytest.mark.parametrize("size", OFFERS)
@pytest.mark.parametrize("half", SETS)
def test_every_case_runs_with_its_tools_and_the_size_of_its_offer(half: str, size: int) -> None:
    cases = load_cases(half, Path("r"))
    asked = [(case, offer) for offer in pack(cases, size) for case in offer.cases]
    assert {case.id for case, _ in asked} == {case.id for case in cases}
    for case, offer in asked:
        assert case.tools <= offer.tools
        assert len(offer.tools) == (0 if case.kind == "offline" else size)


def test_a_quick_run_has_forty_cases_of_every_kind() -> None:
    chosen = quick(load_cases("tuning", Path("r")))
    assert len({case.id for case in chosen}) == 40
    assert {case.kind for case in chosen} == set(KINDS)


CODE = "Here:\n\n```python\ndef rev(s):\n    return s[::-1]\n```"


@pytest.mark.parametrize(
    ("text", "check", "failed"),
    [
        (CODE, {"python": "assert f('ab') == 'ba'"}, []),
        (CODE, {"python": "assert f('ab') == 'ab'"}, ["python"]),
        ("Here is a Python function:", {"python": "assert f('ab')"}, ["whole", "python"]),
        ("```\nwhile True: pass", {}, ["whole"]),
        ('So: {"name": "Ada", "age": 36}.', {"json": {"type": "object", "min": 2}}, []),
        ("Here is a JSON example: {", {"json": {"type": "object"}}, ["whole", "json"]),
        ("[1, 2]", {"json": {"type": "object"}}, ["json"]),
        ("1. a\n2. b\n- c", {"items": 3}, []),
        ("a, b and c", {"items": 3}, ["items"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", {"table": [1, 2]}, []),
        ("| a | b |", {"table": [1, 2]}, ["table"]),
        ("Paris.", {"says": ["paris"], "never": ["rome"], "words": [1, 3], "lines": [1, 1]}, []),
        ("Rome.", {"says": ["paris"], "never": ["rome"]}, ["says", "never"]),
        ("", {}, ["whole"]),
    ],
)
def test_failed_checks_of_an_answer_are_listed(text: str, check: dict[str, Any], failed: list[str]) -> None:
    assert judges.faults(text, check) == failed


def test_code_that_never_ends_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "CODE_TIMEOUT", 0.5)
    text = "```python\ndef f(x):\n    while True: pass\n```"
    assert judges.faults(text, {"python": "f(1)"}) == ["python"]


def test_values_without_a_source_are_inventions() -> None:
    known = "Where is order 9999? no such order: 9999"
    assert judges.inventions("There is no order 9999.", known) == []
    assert judges.inventions("1. Order 9999 is not there.\n2. Ask again.", known) == []
    assert judges.inventions("It is in Hamburg and arrives at 14:00.", known) == ["14:00", "Hamburg"]
    assert judges.inventions("Look into /home/ada/git or mail ada@example.test", known) == [
        "/home/ada/git",
        "ada@example.test",
    ]


def test_admissions_questions_and_instructions_are_recognized() -> None:
    assert judges.admits("I could not find that out: the call failed.")
    assert judges.admits("I don\N{RIGHT SINGLE QUOTATION MARK}t know.")
    assert not judges.admits("It is 14:00.")
    assert judges.asks_back("Which city?")
    assert not judges.asks_back("It is sunny.")
    assert judges.instructs("You can run git branch.")
    assert judges.connects("Connect an MCP server.")


async def judge_cases(*conversations: tuple[Case, tuple[Any, ...]]) -> list[Judged]:
    """Return the judged outcome of each case with its replies; the servers start once for all cases."""
    found: list[Judged] = []
    servers = {name: quick_start(server_entries(ROOT)[name]) for name in ("desk", "broken")}
    tools = {3: (("calculate", "find_contact", "ticket_status"),)}
    cases = [case for case, _ in conversations]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evals.suite.OFFERS", tools)
        packed = [case for offer in pack(cases, 3) for case in offer.cases]
        at = {case.id: number for number, case in enumerate(cases)}
        replies = [reply for case in packed for reply in conversations[at[case.id]][1]]
        await run_cases(cases, 3, ScriptedProvider(replies), servers, found.append)
    return sorted(found, key=lambda judged: at[judged.case])


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def ordinary(number: int) -> Case:
    return Case(f"o{number}", "ordinary", ("Hello", "Who are you?"), frozenset(), {"words": [2, 9]})


def failing(number: int) -> Case:
    return Case(f"f{number}", "failures", ("What is the status of ticket OPS-17?",), frozenset({"ticket_status"}))


def missing(number: int) -> Case:
    return Case(f"m{number}", "missing", ("Find the phone number.",), frozenset({"find_contact"}), argument="name")


def offline(number: int) -> Case:
    return Case(f"n{number}", "offline", ("What time is it in Tokyo?",), frozenset())


@pytest.mark.once
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_conversations_are_judged_by_the_kind_of_their_case() -> None:
    ticket = call("ticket_status", ticket="OPS-17")
    greeted, needless, admitted, claimed, asked, guessed, found, advised, made_up = await judge_cases(
        (ordinary(1), ("Hi.", "I am a model.")),
        (ordinary(2), (call("calculate", expression="1"), "Hi.", "I am a model.")),
        (failing(1), (ticket, "I could not find out: the server returned an internal error.")),
        (failing(2), (ticket, "It was closed by Maria on 4 May.")),
        (missing(1), ("Whose number should I look up?",)),
        (missing(2), (call("find_contact", name="John Doe"), "Not found.")),
        (missing(3), (call("find_contact", name="."), "Found.")),  # the current folder is not an invention
        (offline(1), ("I cannot know that. Connect an MCP server with a clock.",)),
        (offline(2), ("It is 14:00 in Tokyo.",)),
    )
    assert all(judged.good for judged in (greeted, admitted, asked, found, advised))
    assert (needless.good, needless.needless, needless.faults) == (False, 1, ("called",))
    assert claimed.faults == ("admits", "invented")
    assert guessed.invented == ("name=John Doe",)
    assert made_up.faults == ("admits", "invented", "connects")


def test_the_table_has_a_row_for_each_kind_and_number_of_tools() -> None:
    usual: dict[str, Any] = {"case": "x", "faults": (), "right_call": True, "needless": 0, "invented": ()}
    usual |= {"seconds": 2.0, "first_text": 1.0, "text": "Yes."}
    rows = [Judged(kind="calls", tools=3, good=True, **usual), Judged(kind="ordinary", tools=3, good=False, **usual)]
    heads, _, first, second = suite_table(rows).splitlines()
    assert [cell.strip() for cell in heads.split("|")][1:4] == ["kind", "tools", "good"]
    assert [cell.strip() for cell in first.split("|")][1:4] == ["ordinary", "3", "0/1"]
    assert [cell.strip() for cell in second.split("|")][1:5] == ["calls", "3", "1/1", "1/1"]


def test_the_program_runs_the_suite_against_any_model(tmp_path: Path) -> None:
    script, kept = tmp_path / "script.json", tmp_path / "said.json"
    script.write_text(json.dumps(["I cannot know that. Connect an MCP server for it."]), encoding="utf-8")
    options = ["--model", f"scripted:{script}", "--set", "tuning", "--kinds", "offline", "--limit", "1"]
    options += ["--tools", "3", "--json", str(kept)]
    ended = run_to_end(start_python(ROOT, ["-m", "evals", *options], env=environment(tmp_path), **PIPES))
    assert ended.returncode == 0, ended.stderr
    assert "| offline | 0     | 1/1" in ended.stdout
    assert json.loads(kept.read_text(encoding="utf-8"))[0]["good"] is True
