"""Agents on the page: the completion of their names, their calls below their own call, and who has the conversation.

The calls of programs are shown as those of agents are. A call in the background has a card, its result a second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import config_folder, python_server
from tests.support.servers.launch import HERE
from tests.support.web_page import open_page, read_text, send_message, serve_page

pytestmark = pytest.mark.once

ECHO = {"tool_calls": [{"name": "echo", "arguments": {"text": "tea"}}]}
REPLIES = [
    ECHO,
    "There is no tea any more.",
    "The reviewer misses the tea.",
    {"tool_calls": [{"name": "teacher", "arguments": {}}]},
    "What do you know already?",
]
# The calls of agents that have a call which waits.
WAITING = (
    "[...document.querySelectorAll('.call .agent-calls')]"
    ".filter((calls) => calls.querySelector('.tool[data-state=waiting]'))"
)
AGENTS = {"reviewer": "Reviews a change.", "teacher": "Teaches Spanish.\nhandoff: true"}


@contextmanager
def serve_agents(folder: Path, replies: Sequence[object] = REPLIES, **entry: object) -> Iterator[str]:
    """Serve the page with two agents, of which one takes conversations over, and provide its URL."""
    agents = config_folder(folder) / "agents"
    agents.mkdir(parents=True)
    for name, fields in AGENTS.items():
        (agents / f"{name}.md").write_text(f"---\ndescription: {fields}\n---\nBe strict.\n", encoding="utf-8")
    with serve_page(folder, list(replies), {"raw": python_server(HERE / "raw.py", **entry)}) as address:
        yield address


def ask_both(tab: Tab) -> None:
    """Ask the reviewer, whose name is completed, and then let the model hand the conversation over."""
    tab.click("#message")
    tab.type("@rev")
    tab.until("document.querySelector('.completion .completion-label')?.textContent === '@reviewer'")
    tab.press("Tab")
    tab.type("look at the menu")
    tab.press("Enter")
    tab.until("document.querySelector('.turn-foot')")
    send_message(tab, "I want to learn Spanish")
    tab.until("document.querySelectorAll('.turn-foot').length === 2")


def test_the_calls_of_an_agent_are_below_its_call_and_the_page_says_who_answers(
    tmp_path: Path, chromium: Browser
) -> None:
    with serve_agents(tmp_path, autoApprove=["*"]) as address:
        tab = open_page(chromium, address)
        ask_both(tab)
        for _ in range(2):
            own = ".call > details > .tool-body > .agent-calls > .call"
            assert read_text(tab, f"{own} .tool-name") == "echo"
            assert tab.run(f"document.querySelector('{own} .tool').dataset.state") == "done"
            assert tab.run("document.querySelector('.call > details').open") is False
            assert "tea" in read_text(tab, f"{own} .tool-result pre")
            assert read_text(tab, ".turn:last-of-type .speaker") == "Agent teacher"
            assert read_text(tab, ".turn:last-of-type .speaker + .prose").strip() == "What do you know already?"
            tab.reload()
            tab.until("document.querySelectorAll('.turn-foot').length === 2")


def test_a_question_marks_the_call_of_the_agent_that_asks_also_if_ids_are_equal(
    tmp_path: Path, chromium: Browser
) -> None:
    pair = {"tool_calls": [{"name": "reviewer", "arguments": {"task": task}, "id": task} for task in "ab"]}
    with serve_agents(tmp_path, [pair, ECHO, ECHO, "A.", "B.", "Both."]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Go!")
        tab.until(f"{WAITING}.length === 2")
        tab.click("[data-shortcut=y]")
        tab.until(f"{WAITING}.length === 1")
        tab.click("[data-shortcut=y]")
        tab.until("document.querySelector('.turn-foot')")
        assert tab.run(f"{WAITING}.length") == 0


PROGRAM = """\
import asyncio
rows = await asyncio.gather(*[echo(text=name) for name in ("tea", "milk")])
try:
    await echo(text="coffee")
except PermissionError:
    print("no coffee")
len(rows)"""


def test_the_calls_of_a_program_are_below_its_own_call_and_can_wait(tmp_path: Path, chromium: Browser) -> None:
    pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")
    replies = [{"tool_calls": [{"name": "run_code", "arguments": {"code": PROGRAM}}]}, "Two rows."]
    servers = {"raw": python_server(HERE / "raw.py")}
    own, inner = ".answer > .call > details", ".tool-body > .agent-calls > .call .tool"
    with serve_page(tmp_path, replies, servers, "--tool-format", "code") as address:
        tab = open_page(chromium, address)
        send_message(tab, "look at the menu")
        for count in (2, 1):
            tab.until(f"document.querySelectorAll('{own} {inner}[data-state=waiting]').length === {count}")
            tab.click(".request-buttons .primary")
        tab.until("document.querySelector('.request')?.innerText.includes('coffee')")
        tab.click(".request-denial .button")
        tab.until("document.querySelector('.turn-foot')")
        for _ in range(2):
            assert tab.run("document.querySelectorAll('.answer > .call').length") == 1
            states = f"[...document.querySelectorAll('{own} > {inner}')].map((card) => card.dataset.state).join()"
            assert sorted(tab.run(states).split(",")) == ["done", "done", "failed"]
            assert read_text(tab, f"{own} > .tool-body > section pre") == PROGRAM
            assert "no coffee" in read_text(tab, f"{own} > .tool-body > .tool-result pre")
            tab.reload()
            tab.until("document.querySelector('.turn-foot')")


def test_a_call_in_the_background_has_a_card_that_says_so_and_its_result_has_a_second_card(
    tmp_path: Path, chromium: Browser
) -> None:
    tasks = tmp_path / "tasks.json"
    jobs = python_server(HERE / "tasks.py", str(tasks), autoApprove=["*"], backgroundAfter=0)
    replies = [{"tool_calls": [{"name": "goes_on"}]}, "It is being done.", *(["Yes."] * 20)]
    with serve_page(tmp_path, replies, {"jobs": jobs}) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Do it")
        for _ in range(2):
            tab.until("document.querySelector('.turn-foot')")
            assert tab.run("document.querySelector('.tool').dataset.state") == "background"
            assert "goes on in the background" in read_text(tab, ".tool")
            tab.reload()
        tab.until("document.querySelector('.turn-foot')")
        tasks.with_suffix(".end").touch()
        # The first turn that begins after the end of the task has its result.
        turns = 1
        while tab.run("document.querySelectorAll('.tool').length") < 2:
            turns += 1
            send_message(tab, "Is it done?")
            tab.until(f"document.querySelectorAll('.turn-foot').length === {turns}")
        late = "[...document.querySelectorAll('.tool')].at(-1)"
        assert tab.run(f"{late}.dataset.state") == "done"
        assert "goes_on done in" in tab.run(f"{late}.textContent")
