"""Every response of the corpus is read like the vendor's SDK reads it, or the corpus explains the difference."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.inner import Api, ApiReply
from tests.recordings.__main__ import add
from tests.recordings.corpus import Answer, Reading, read_answer, read_corpus, to_reply
from tests.recordings.sdk_readings import SdkReader

pytestmark = [pytest.mark.anyio, pytest.mark.once]
CUTS = 8
"""The number of positions where each stream is cut off."""
LEAST = {Api.CHAT: 200, Api.RESPONSES: 130, Api.MESSAGES: 125}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def list_undeclared(answer: Answer, ours: Reading, sdk: Reading) -> list[str]:
    """Return the differences to the SDK that the corpus does not declare, or declares wrongly."""
    found = json.loads(json.dumps(ours.to_dict()))
    differences = ours.list_differences(sdk)
    wrong = [f"{name} is {found[name]!r}" for name, value in answer.ours.items() if found[name] != value]
    unsaid = [
        f"{name} is {value!r}, the SDK has {sdk.to_dict()[name]!r}"
        for name, value in differences.items()
        if name not in answer.ours
    ]
    stale = ["the SDK agrees: there is nothing to explain"] if answer.ours and not differences else []
    unexplained = ["there is no reason"] if bool(answer.ours) is not bool(answer.why) else []
    return [f"{answer.name}: {problem}" for problem in (*wrong, *unsaid, *stale, *unexplained)]


@pytest.mark.parametrize("wire", Api)
async def test_responses_are_read_like_the_sdk_or_the_corpus_explains_the_difference(wire: Api) -> None:
    reader = SdkReader(wire)
    offenders: list[str] = []
    names: list[str] = []
    for answer in read_corpus(wire):
        names.append(answer.name)
        offenders += list_undeclared(answer, await read_answer(wire, to_reply(answer, wire)), reader.read(answer))
    assert offenders == []
    assert len(names) >= LEAST[wire]
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_every_vendor_of_the_corpus_is_in_the_table_of_models() -> None:
    document = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    section = document.partition("## Sources of the endpoint table")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \|.*\| ([^|]+) \|$", section, re.MULTILINE))
    named = {
        name.strip().removesuffix(" On Your Data")
        for wire in Api
        for answer in read_corpus(wire)
        for names in re.findall(r"\(((?:[A-Z]|vLLM|xAI)[^()]*)\)", answer.name)
        for name in names.split(",")
    }
    vendors = {name for name in named if any(row.startswith(name) for row in rows)}
    unknown = named - vendors - {"FastAPI", "Bedrock", "asynchronous filter", "named choice"}
    assert unknown == set()
    without = {row for row, loopback in rows.items() if "answers" in loopback} - {
        row for row in rows for name in vendors if row.startswith(name)
    }
    assert without <= {"Anthropic", "llama.cpp"}


async def find_misreadings(wire: Api, answer: Answer, dice: random.Random) -> list[str]:
    """Read a stream in chunks of different sizes, and cut off at random positions; return the reading errors."""
    data, whole = answer.to_bytes(wire), await read_answer(wire, to_reply(answer, wire))
    problems: list[str] = []
    for size in (1, 7, dice.randint(2, 60)):
        in_pieces = await read_answer(wire, to_reply(answer, wire, chunk_size=size))
        problems += [f"in pieces of {size} bytes: {in_pieces}"] if in_pieces != whole else []
    for at in (dice.randrange(len(data)) for _ in range(CUTS)):
        cut = await read_answer(wire, to_reply(answer, wire, data[:at], breaks="", chunk_size=dice.randint(20, 400)))
        is_same = (cut.finish, cut.text, cut.calls) == (whole.finish, whole.text, whole.calls)
        is_cut = cut.finish in ("cut", "refused", "length") and cut.calls == [] and whole.text.startswith(cut.text)
        if not (cut.error or is_same or is_cut or whole.error):
            problems.append(f"cut at {at}: {cut}")
    return [f"{answer.name}: {problem}" for problem in problems]


@pytest.mark.parametrize("wire", Api)
async def test_a_stream_cut_at_any_position_is_never_misread(wire: Api) -> None:
    dice = random.Random(wire.value)
    streams = [answer for answer in read_corpus(wire) if answer.is_stream and answer.to_bytes(wire)]
    offenders = [problem for answer in streams for problem in await find_misreadings(wire, answer, dice)]
    assert offenders == []


async def test_one_command_adds_the_answers_of_a_recording(tmp_path: Path) -> None:
    plain = {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
    odd: dict[str, Any] = {
        "choices": [{"message": {"role": "assistant", "content": {"a": 1}}, "finish_reason": "stop"}]
    }
    exchange = {"asked": {}, "replies": [{"wire": "chat", "body": json.dumps(body)} for body in (plain, odd)]}
    recording = tmp_path / "said.jsonl"
    recording.write_text(f'{{"recording": 1}}\n{json.dumps(exchange)}\n', encoding="utf-8")

    added, left_out = await add(recording, "mine", "", tmp_path)
    assert added == "added: mine, 1"
    assert left_out.startswith("left out: mine, 2: --why is missing")
    assert await add(recording, "mine", "an object is its JSON", tmp_path) == ["added: mine, 1", "added: mine, 2"]

    *_, row = (json.loads(line) for line in (tmp_path / "chat.jsonl").read_text(encoding="utf-8").splitlines())
    answer = Answer(**row)
    assert answer.why == "an object is its JSON"
    reading = await read_answer(Api.CHAT, ApiReply(Api.CHAT, json.dumps(odd).encode()))
    assert list_undeclared(answer, reading, SdkReader(Api.CHAT).read(answer)) == []
