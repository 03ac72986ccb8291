"""Questions that the embedded model once answered wrongly, with the repository's two servers.

The answers of its weights are recorded, request by request: the file has them as long as this package asks the same. A
changed request fails the test; `make answers` then asks the real weights, and records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dial_client import DialClient, Limits, Message, ModelSettings, StopReason, Turn
from evals.judges import admits, asks_back, faults, inventions
from evals.servers import sample_repository
from tests.inner import QWEN, LocalProvider, embedded_process, local_provider, weights
from tests.support.real_weights import HAS_MODEL

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(3600),
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]
UNHURRIED = Limits(timeout=900)
"""Inference is much slower while other work runs."""
RECORDINGS = Path(__file__).parents[1] / "recordings" / "embedded"
RECORDED_MODEL = Path(__file__).parents[1] / "support" / "servers" / "recorded_model.py"


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start the recorded model in place of llama.cpp's server, with a file of the size of the weights."""
    name = request.node.originalname.removeprefix("test_")
    monkeypatch.setenv("DIAL_TEST_RECORDED_MODEL", str(RECORDINGS / f"{name}.jsonl"))
    monkeypatch.setattr(embedded_process, "_SERVER", RECORDED_MODEL)
    if not HAS_MODEL:
        file = tmp_path / QWEN.file
        with file.open("wb") as sparse:
            sparse.truncate(QWEN.size)
        memo = weights._build_memo(file, QWEN)
        weights._build_memo_path(file).write_text(json.dumps(memo), encoding="utf-8")
        monkeypatch.setattr(local_provider, "find_cache_folder", lambda: tmp_path)


def two_servers(repository: Path) -> dict[str, Any]:
    """Return the servers of the repository's own ``servers.json``."""
    programs = Path(sys.executable).parent
    return {
        "time": {"command": str(programs / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "git": {"command": str(programs / "mcp-server-git"), "args": ["--repository", str(repository)]},
    }


@asynccontextmanager
async def host(servers: dict[str, Any]) -> AsyncGenerator[DialClient, None]:
    async with DialClient(LocalProvider(), servers=servers, limits=UNHURRIED) as dial:
        yield dial


async def ask(dial: DialClient, question: str) -> Turn:
    return await dial.run([Message.user(question)])


async def test_with_two_servers_open_questions_are_answered_whole_and_without_a_call() -> None:
    # One test, because the model reads the instructions and the tools once for all its questions.
    with sample_repository() as repository:
        async with host(two_servers(repository)) as dial:
            code = await ask(dial, "Write a Python function that reverses a string")
            person = await ask(dial, "Write a JSON example of a person")
            tips = await ask(dial, "Three tips for learning Spanish")
            branch = await ask(dial, "Which branch am I on?")
            advice = await ask(dial, "How do I undo my last commit but keep the changes?")
    for turn, check in (
        (code, {"python": "assert f('abc') == 'cba'"}),
        (person, {"json": {"type": "object", "min": 2}}),
        (tips, {"items": 3, "never": [r"\d{4}-\d\d"]}),
    ):
        assert (faults(turn.text, check), turn.tool_calls) == ([], ()), turn.text
        assert turn.stop_reason is StopReason.ANSWERED
    results = " ".join(str(record.result.content) for record in branch.tool_calls)
    if "main" not in results:
        assert admits(branch.text) or asks_back(branch.text), branch.text
    assert inventions(branch.text, f"{results} {[tool.name for tool in dial.tools]}") == []
    assert advice.tool_calls == ()
    assert "reset" in advice.text


async def test_without_servers_the_time_is_unknown() -> None:
    async with host({}) as dial:
        turn = await ask(dial, "What time is it in Tokyo?")
    assert admits(turn.text), turn.text
    assert inventions(turn.text, "") == []
    assert "dial-chat init" in turn.text


async def test_a_word_is_not_looked_up_as_a_contact() -> None:
    def find_contact(name: str) -> str:
        """Look a person up in the address book: e-mail, phone, city and manager."""
        raise AssertionError(name)

    def list_events(date: str) -> str:
        """List the events in the calendar on a day."""
        raise AssertionError(date)

    async with DialClient(LocalProvider(), tools=[find_contact, list_events], limits=UNHURRIED) as dial:
        turn = await dial.run("What is a leap year?", settings=ModelSettings(max_tokens=8))
    assert turn.tool_calls == ()


@dataclass
class Stock:
    book: str
    copies: int


async def test_an_answer_from_a_tool_result_has_its_type() -> None:
    def count_copies(book: str) -> int:
        """Return how many copies of a book are in stock."""
        return 7

    async with DialClient(LocalProvider(), tools=[count_copies], limits=UNHURRIED) as dial:
        turn = await dial.run("How many copies of the book Dune are in stock?", output_type=Stock)
    assert turn.output == Stock("Dune", 7)
    assert [record.tool for record in turn.tool_calls] == ["count_copies"]
