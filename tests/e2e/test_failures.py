"""Failures of models and servers in practice, with default settings, with and without streaming, over loopback.

What fails is in `probes.kinds`, which probes other hosts too, from outside; here each probe is a turn in this process,
with its expected end and the exact results in its last request. In every row the requests are valid, another server
stays usable, and the conversation can be continued. docs/turns.md has the same rows for users.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Message, ProviderError, StopReason, ToolCallProgress, Turn
from dial_client.extend import Elicitation, ElicitationAnswer
from dial_client.testing import ScriptedProvider
from probes.kinds import LATER, NOBODY_THERE, OTHER, PROBES, Probe, build_entry, calls
from probes.script import DONE, Script, offered_names
from probes.servers import LONG_NAME, PNG
from tests.inner import Api, Callbacks
from tests.integration.test_conversations_after_failure import ask, check_request
from tests.support.fakes import virtual_time
from tests.support.model_endpoint import Raw, Recorded, Say, model_endpoint, provider_of
from tests.support.program import python_server
from tests.support.servers.launch import is_alive, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "support" / "servers"
AWKWARD = build_entry("Awkward")


def build_server(server: Any) -> Any:
    """Return the entry of a server that is named by a script of the SDK; others are entries already."""
    return python_server(SERVERS / server) if isinstance(server, str) else server


@dataclass(frozen=True)
class Seen:
    """A turn and its model requests."""

    turn: Turn
    requests: Sequence[Recorded]

    @property
    def last_request(self) -> str:
        """The body of the last request as JSON text."""
        return json.dumps(self.requests[-1].json)

    @property
    def results(self) -> list[str]:
        """The results of the calls in the last request, for chat completions."""
        return [message["content"] for message in self.requests[-1].json["messages"] if message["role"] == "tool"]

    @property
    def offered(self) -> list[str]:
        return offered_names(self.requests[-1])


Check = Callable[[Seen], None]


@dataclass(frozen=True)
class Row:
    """One failure, and its expected outcome."""

    probe: Probe
    check: Check
    stop: StopReason = StopReason.ANSWERED
    text: str = DONE
    requests: int = 0
    """The requests of the turn; 0 for one for each reply, and one for the answer."""
    wires: Sequence[Api] = (Api.CHAT,)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the client, mostly empty."""


def has(*results: str) -> Check:
    """Return a check that the results of the calls begin with the given texts."""

    def check(seen: Seen) -> None:
        assert [text[: len(most)] for text, most in zip_longest(seen.results, results, fillvalue="")] == list(results)

    return check


def is_bounded(seen: Seen) -> None:
    [result] = seen.results
    assert max(len(request.body) for request in seen.requests) < 60_000
    assert result.startswith("the head")
    assert result.endswith("the tail")
    assert "of 2,000,000 characters are left out here; read_result(" in result
    assert "read_result" in seen.offered


def is_shown_once(seen: Seen) -> None:
    assert seen.last_request.count(PNG) == 1
    assert re.search(f'data:image/png;base64,{PNG}|"media_type": "image/png"', seen.last_request)
    assert seen.turn.notes == ()


def names_fit(seen: Seen) -> None:
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in seen.offered)
    assert len(set(seen.offered)) == len(seen.offered)
    assert set(seen.offered) >= {SHORTENED, "a_b_c"}
    has(f"{LONG_NAME} ran", "a.b/c ran")(seen)


def both_ran(seen: Seen) -> None:
    assert set(seen.offered) >= {"one__who", "two__who"}
    assert len(set(seen.results)) == 2


def notes(words: str) -> Check:
    """Return a check that the only note begins with a text, and that the call of the other server succeeded."""

    def check(seen: Seen) -> None:
        has("still there")(seen)
        assert [note[: len(words)] for note in seen.turn.notes] == [words]

    return check


async def agrees(question: Elicitation) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"yes": True})


LOST = "ERROR: The server 'awkward' is not available: the call was lost, and may have had its effect: "
NO_USER = "ERROR: The call failed: it asks the user a question, but no user can answer"
SHORTENED = "long_" * 10 + "lon_fe0378cf67"

# Those of `PROBES` that are not here have tests of their own below, or in tests/integration/test_elicitation.py.
ROWS: dict[str, Row] = {
    "one server's command does not exist": Row(
        PROBES["a command does not exist"], notes("server 'missing' is not available: ")
    ),
    "one server never answers initialize": Row(  # a shorter wait; the default has its own test below
        replace(PROBES["initialize is never answered"], servers={"mute": build_entry("Mute", startupTimeout=1)}),
        notes("server 'mute' is not available: not ready within 1 seconds; it last said: still thinking"),
    ),
    "other text on the server's stdout": Row(PROBES["other text on standard output"], has("Hi")),
    "two servers, same tool names": Row(PROBES["two tools with one name"], both_ran),
    "recursive schema": Row(PROBES["a recursive schema"], has("recursive ran")),
    "names no provider takes": Row(PROBES["names that no provider takes"], names_fit),
    "2,000,000 characters": Row(PROBES["a result of 2 MB"], is_bounded),
    "image": Row(PROBES["an image"], is_shown_once, wires=list(Api)),
    "structured content only": Row(PROBES["structured content alone"], has('{"answer": 42}')),
    "embedded text and a link": Row(
        PROBES["a resource and a link"],
        has(
            "[resource memo:///notes.txt]\nthe notes\n"
            "[resource report: https://docs.example/report.pdf, application/pdf]"
        ),
    ),
    "isError": Row(PROBES["a failing call"], has("ERROR: the disk is full")),
    "fails every time": Row(
        PROBES["calls that always fail"],
        has(*["ERROR: the disk is full"] * 3),
        stop=StopReason.CONSECUTIVE_ERRORS,
        requests=4,
    ),
    "never stops calling": Row(
        PROBES["calls without end"],
        has(*(f"round {at}" for at in range(1, 11)), "ERROR: Not run: too many rounds"),
        stop=StopReason.MAX_DEPTH,
        requests=12,
    ),
    "unknown tool": Row(
        PROBES["a tool that does not exist"], has("ERROR: There is no tool 'ecko'. Did you mean 'echo'?", "Hi")
    ),
    "cut JSON": Row(
        PROBES["arguments that are cut off"],
        has("ERROR: The arguments are not a JSON object. Expected a JSON object with: text.", "Hi"),
    ),
    "wrong names": Row(PROBES["arguments of other names"], has("ERROR: The arguments do not fit: ", "Hi")),
    "three calls at once": Row(PROBES["three calls at once"], has(*["all three are here"] * 3)),
    "a tool that never returns": Row(  # a shorter wait; the default has its own test below
        replace(PROBES["a tool that never returns"], servers={"awkward": AWKWARD | {"toolTimeout": 1}}),
        has("ERROR: The tool gave no result within 1 seconds.", "1 cancelled in process "),
    ),
    "the process dies in a call, next call to it": Row(
        PROBES["a server dies during a call"],
        has(f"{LOST}the server ended with exit code 7; it last said: out of cheese", "Hi"),
    ),
    "500 and 429 once": Row(PROBES["errors 500 and 429"], has("Hi")),
    "cut in the answer": Row(
        PROBES["a stream that breaks"], has("Hi"), stop=StopReason.TRUNCATED, text="Half an ans", requests=2
    ),
    "empty answer once": Row(PROBES["one empty answer"], has("Hi")),
    "empty answers only": Row(
        PROBES["empty answers alone"],
        has("Hi"),
        stop=StopReason.REFUSED,
        text="[Unable to complete task: the model gave no answer]",
        requests=3,
    ),
    "a new tool": Row(PROBES["a server adds a tool"], has("there is one more", "grown ran")),
    "ctx.elicit": Row(Probe(NOBODY_THERE, [calls("asks")], (), {"asking": "elicitation.py"}), has(NO_USER)),
    "a question of 2026-07-28": Row(
        Probe(NOBODY_THERE, [calls("returns")], (), {"questions": "questions.py"}), has(NO_USER)
    ),
    "a question that cannot be pushed": Row(
        Probe(NOBODY_THERE, [calls("asks")], (), {"asking": "elicitation.py"}),
        has("the user said accept"),
        options={"callbacks": Callbacks(elicit=agrees)},
    ),
}
CASES = [
    pytest.param(row, wire, stream, id=f"{name}-{wire.value}-{'streamed' if stream else 'whole'}")
    for name, row in ROWS.items()
    for wire in row.wires
    for stream in ((True,) if row.probe.streamed else (True, False))
]


@pytest.mark.parametrize(("row", "wire", "stream"), CASES)
async def test_a_turn_ends_as_documented_and_can_be_continued(row: Row, wire: Api, stream: bool) -> None:
    with model_endpoint([Say(DONE)]) as endpoint:
        endpoint.answer_to = Script(row.probe.replies)
        provider = provider_of(endpoint, wire)
        servers = {name: build_server(server) for name, server in row.probe.servers.items()}
        async with DialClient(provider, servers={**servers, **OTHER}, **row.options) as dial:
            conversation: list[Message] = []
            turn = await ask(dial, conversation, "Go on.", stream=stream)
            assert isinstance(turn, Turn)
            assert (turn.text, turn.stop_reason) == (row.text, row.stop)
            assert len(endpoint.requests) == (row.requests or len(row.probe.replies) + 1)
            row.check(Seen(turn, tuple(endpoint.requests)))
            endpoint.answer_to = Script(LATER, "b")
            later = await ask(dial, conversation, "Is the other server still there?", stream=stream)

    assert isinstance(later, Turn)
    assert later.text == "It is."
    assert [record.result.content for record in later.tool_calls] == ["still there"]
    for request in endpoint.requests:
        check_request(wire, request)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_incomplete_response_without_streaming_is_an_error_and_the_results_are_kept() -> None:
    half = Raw((b'{"choices": [{"message": {"content": "Half an ans',), cut=True)
    with model_endpoint([calls("echo", text="Hi"), half, Say("Here I am.")]) as endpoint:
        async with DialClient(provider_of(endpoint), servers={"awkward": AWKWARD}) as dial:
            conversation: list[Message] = []
            error = await ask(dial, conversation, "Go on.", stream=False)
            assert isinstance(error, ProviderError)
            assert "\n" not in str(error)
            later = await ask(dial, conversation, "And now?", stream=False)

    assert isinstance(later, Turn)
    assert later.text == "Here I am."
    assert [message["role"] for message in endpoint.requests[-1].json["messages"]][-3:] == ["assistant", "tool", "user"]
    check_request(Api.CHAT, endpoint.requests[-1])


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_cancelling_a_tool_call_notifies_the_server_and_leaves_no_process(stream: bool) -> None:
    """The library's part of Ctrl-C; tests/e2e/test_interrupts.py tests the program with the signal."""
    with model_endpoint([calls("never", "still_there"), Say("Here I am.")]) as endpoint:
        async with DialClient(provider_of(endpoint), servers={"awkward": AWKWARD, **OTHER}) as dial:
            running = dial.start([Message.user("Go on.")], stream=stream)
            async for event in running.events():
                if isinstance(event, ToolCallProgress):
                    running.cancel()
            turn = await running.result()
            cancelled, *_, pid = str((await dial.call("itself", {})).content).split()
            again = [*turn.messages, Message.user("And now?")]
            assert (await dial.run(again)).text == "Here I am."

    assert (turn.text, turn.stop_reason) == ("[Unable to complete task: it was cancelled]", StopReason.CANCELLED)
    has("ERROR: Interrupted: it was cancelled. It is not known whether the tool did its work.", "")(
        Seen(turn, endpoint.requests)
    )
    assert cancelled == "1"
    await until(lambda: not is_alive(int(pid)))
    check_request(Api.CHAT, endpoint.requests[-1])


HOUR = 3600.0


@virtual_time
async def test_the_default_timeouts_of_a_tool_and_of_a_start_are_one_minute() -> None:
    @asynccontextmanager
    async def boots(server: MCPServer) -> AsyncIterator[None]:
        await anyio.sleep(HOUR)
        yield

    slow = MCPServer("slow", log_level="CRITICAL")

    @slow.tool()
    async def sleeps() -> None:
        await anyio.sleep(HOUR)

    mute = MCPServer("mute", lifespan=boots, log_level="CRITICAL")
    model = ScriptedProvider([{"tool_calls": [{"name": "sleeps", "arguments": {}}]}, DONE])
    began = anyio.current_time()
    async with DialClient(model, servers={"slow": slow, "mute": mute}) as dial:
        started = anyio.current_time()
        turn = await dial.run([Message.user("Go on.")])
        ended = anyio.current_time()

    assert (started - began, ended - started) == pytest.approx((60, 60))
    assert (turn.text, turn.stop_reason) == (DONE, StopReason.ANSWERED)
    assert turn.tool_calls[0].result.error == "The tool gave no result within 60 seconds."
    assert turn.notes == ("server 'mute' is not available: not ready within 60 seconds",)


def test_the_documentation_has_exactly_the_rows_of_this_test() -> None:
    section = (ROOT / "docs" / "turns.md").read_text("utf-8").partition("## What happens when")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!-)(.+?) \|", section, re.MULTILINE)[1:]
    assert sorted(rows) == sorted({probe.sentence for probe in PROBES.values()})
    assert len(rows) == 20
