"""Failures of models and servers in practice, with default settings, with and without streaming, over loopback.

Each row, which was also used to measure other MCP hosts, is a real turn with real servers, with its expected end and
the expected results in its last request. In every row the requests are valid, another server stays usable, and the
conversation can be continued. docs/turns.md has the same rows for users.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Message, ProviderError, StopReason, ToolCallProgress, Turn
from dial_client.extend import Elicitation, ElicitationAnswer
from dial_client.testing import ScriptedProvider
from tests.inner import Api, Callbacks
from tests.integration.test_conversations_after_failure import ask, check_request
from tests.support.fakes import virtual_time
from tests.support.model_endpoint import Answer, Call, Raw, Recorded, Say, events, model_endpoint, provider_of, refuse
from tests.support.program import entry, python_server
from tests.support.servers.awkward import LONG_NAME, PNG
from tests.support.servers.launch import is_alive, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "support" / "servers"
DONE = "Done."


def child(script: str, *options: str, **settings: Any) -> dict[str, Any]:
    argv = ["-W", "ignore", str(SERVERS / script), *options]
    return {"command": sys.executable, "args": argv, "env": {"PYTHONPATH": str(ROOT)}, **settings}


def build_server(server: Any) -> Any:
    """Return the entry of a server that is named by a script of the SDK; others are entries already."""
    return python_server(SERVERS / server) if isinstance(server, str) else server


AWKWARD = child("awkward.py")
OTHER = child("awkward.py", "Other")


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
        return [tool["function"]["name"] for tool in self.requests[-1].json["tools"]]


Check = Callable[[Seen], None]


@dataclass(frozen=True)
class Row:
    """One failure: the replies of the model, the servers, and the expected outcome."""

    sentence: str
    """The first column of its row in docs/turns.md."""
    answers: Sequence[Answer]
    """The replies of the model; the turn sends exactly one request for each."""
    check: Check
    servers: Mapping[str, Any] = field(default_factory=lambda: {"awkward": AWKWARD})
    stop: StopReason = StopReason.ANSWERED
    text: str = DONE
    wires: Sequence[Api] = (Api.CHAT,)
    streams: Sequence[bool] = (True, False)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the client, mostly empty."""


def calls(*names: str, **arguments: Any) -> Say:
    return Say("", tuple(Call(name, arguments, f"call_{at}") for at, name in enumerate(names)))


def after(*replies: Answer) -> list[Answer]:
    return [*replies, Say(DONE)]


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
    has(f"{LONG_NAME} ran", "a.b/c ran")(seen)


def notes(words: str) -> Check:
    """Return a check that the only note begins with a text, and that the call of the other server succeeded."""

    def check(seen: Seen) -> None:
        has("still there")(seen)
        assert [note[: len(words)] for note in seen.turn.notes] == [words]

    return check


async def agrees(question: Elicitation) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"yes": True})


NOBODY_THERE = "a server asks a question"
NOT_STARTED = "a server does not start, or never answers"
NO_SUCH_FORM = "a schema is recursive, a name is too long or has odd characters"
OTHER_CONTENT = "a result has no text, but structured content, resources or links"
FAILING = "a tool keeps failing"
BAD_ARGUMENTS = "the arguments are incomplete or invalid"
NOTHING_SAID = "the model returns an empty answer"
LOST = "ERROR: The server 'awkward' is not available: the call was lost, and may have had its effect: "
BUSY = {"retry-after-ms": "1"}
CUT = events({"choices": [{"delta": {"content": "Half an ans"}}]}, done=False, cut=True)
SHORTENED = "long_" * 10 + "lon_fe0378cf67"

ROWS: dict[str, Row] = {
    "one server's command does not exist": Row(
        NOT_STARTED,
        after(calls("still_there")),
        notes("server 'missing' is not available: "),
        {"missing": {"command": "no-such-command"}},
    ),
    "one server never answers initialize": Row(  # a shorter wait; the default has its own test below
        NOT_STARTED,
        after(calls("still_there")),
        notes("server 'mute' is not available: not ready within 1 seconds; it last said: still thinking"),
        {"mute": entry("Hangs", startupTimeout=1)},
    ),
    "other text on the server's stdout": Row(
        "a server writes text that is not a message to its standard output",
        after(calls("echo", text="Hi")),
        has('{"text": "Hi"}'),
        {"chatty": entry("Chatty")},
    ),
    "two servers, same tool names": Row(
        "two servers have tools with the same name",
        after(calls("one__echo", "two__echo", text="Hi")),
        has('{"text": "Hi"}', '{"text": "Hi"}'),
        {"one": entry("Server"), "two": entry("Server")},
    ),
    "recursive schema": Row(NO_SUCH_FORM, after(calls("recursive", root={"children": [{}]})), has("recursive ran")),
    "names no provider takes": Row(NO_SUCH_FORM, after(calls(SHORTENED, "a_b_c")), names_fit),
    "2,000,000 characters": Row("a result has 2,000,000 characters", after(calls("huge")), is_bounded),
    "image": Row("a tool returns an image", after(calls("picture")), is_shown_once, wires=list(Api)),
    "structured content only": Row(OTHER_CONTENT, after(calls("structured")), has('{"answer": 42}')),
    "embedded text and a link": Row(
        OTHER_CONTENT,
        after(calls("resources")),
        has("[resource file:///notes.txt]\nthe notes\n[resource report: file:///report.pdf, application/pdf]"),
    ),
    "isError": Row(FAILING, after(calls("fails")), has("ERROR: the disk is full")),
    "fails every time": Row(
        FAILING, after(*[calls("fails")] * 3), has(*["ERROR: the disk is full"] * 3), stop=StopReason.CONSECUTIVE_ERRORS
    ),
    "never stops calling": Row(
        "the model never stops calling",
        after(*(calls("echo", text=f"round {at}") for at in range(11))),
        has(*(f"round {at}" for at in range(10)), "ERROR: Not run: too many rounds"),
        stop=StopReason.MAX_DEPTH,
    ),
    "unknown tool": Row(
        "the model calls a tool that does not exist",
        after(calls("ecko", text="Hi"), calls("echo", text="Hi")),
        has("ERROR: There is no tool 'ecko'. Did you mean 'echo'?", "Hi"),
    ),
    "cut JSON": Row(
        BAD_ARGUMENTS,
        after(Say(calls=(Call("echo", '{"text": "H'),)), calls("echo", text="Hi")),
        has("ERROR: The arguments are not a JSON object. Expected a JSON object with: text.", "Hi"),
    ),
    "wrong names": Row(
        BAD_ARGUMENTS,
        after(calls("echo", words="Hi"), calls("echo", text="Hi")),
        has("ERROR: The arguments do not fit: ", "Hi"),
    ),
    "three calls at once": Row(
        "the model makes several calls at once", after(calls(*["three_at_once"] * 3)), has(*["all three are here"] * 3)
    ),
    "a tool that never returns": Row(  # a shorter wait; the default has its own test below
        "a tool never returns",
        after(calls("never"), calls("itself")),
        has("ERROR: The tool gave no result within 1 seconds.", "1 cancelled in process "),
        {"awkward": AWKWARD | {"toolTimeout": 1}},
    ),
    "the process dies in a call, next call to it": Row(
        "a server dies during a call",
        after(calls("dies"), calls("echo", text="Hi")),
        has(f"{LOST}the server ended with exit code 7; it last said: out of cheese", "Hi"),
    ),
    "500 and 429 once": Row(
        "the model's endpoint is overloaded, limits requests or has an error (429, 5xx)",
        [refuse(500, headers=BUSY), refuse(429, headers=BUSY), *after(calls("echo", text="Hi"))],
        has("Hi"),
    ),
    "cut in the answer": Row(
        "the stream breaks",
        [calls("echo", text="Hi"), CUT],
        has("Hi"),
        stop=StopReason.TRUNCATED,
        text="Half an ans",
        streams=[True],
    ),
    "empty answer once": Row(NOTHING_SAID, after(calls("echo", text="Hi"), Say("")), has("Hi")),
    "empty answers only": Row(
        NOTHING_SAID,
        [calls("echo", text="Hi"), Say(""), Say("")],
        has("Hi"),
        stop=StopReason.REFUSED,
        text="[Unable to complete task: the model gave no answer]",
    ),
    "a new tool": Row(
        "a server adds a tool during a turn",
        after(calls("grow"), calls("grown")),
        has("there is one more", "grown ran"),
    ),
    "ctx.elicit": Row(
        NOBODY_THERE,
        after(calls("asks")),
        has("ERROR: The call failed: it asks the user a question, but no user can answer"),
        {"asking": "elicitation.py"},
    ),
    "a question of 2026-07-28": Row(
        NOBODY_THERE,
        after(calls("returns")),
        has("ERROR: The call failed: it asks the user a question, but no user can answer"),
        {"questions": "questions.py"},
    ),
    "a question that cannot be pushed": Row(
        "a server asks a question",
        after(calls("asks")),
        has("the user said accept"),
        {"asking": "elicitation.py"},
        options={"callbacks": Callbacks(elicit=agrees)},
    ),
}
CASES = [
    pytest.param(row, wire, stream, id=f"{name}-{wire.value}-{'streamed' if stream else 'whole'}")
    for name, row in ROWS.items()
    for wire in row.wires
    for stream in row.streams
]


@pytest.mark.parametrize(("row", "wire", "stream"), CASES)
async def test_a_turn_ends_as_documented_and_can_be_continued(row: Row, wire: Api, stream: bool) -> None:
    with model_endpoint([*row.answers, calls("still_there"), Say("It is.")]) as endpoint:
        provider = provider_of(endpoint, wire)
        servers = {name: build_server(server) for name, server in row.servers.items()}
        async with DialClient(provider, servers={**servers, "other": OTHER}, **row.options) as dial:
            conversation: list[Message] = []
            turn = await ask(dial, conversation, "Go on.", stream=stream)
            assert isinstance(turn, Turn)
            assert (turn.text, turn.stop_reason) == (row.text, row.stop)
            assert len(endpoint.requests) == len(row.answers)
            row.check(Seen(turn, tuple(endpoint.requests)))
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
        async with DialClient(provider_of(endpoint), servers={"awkward": AWKWARD, "other": OTHER}) as dial:
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
    assert sorted(rows) == sorted({row.sentence for row in ROWS.values()} | {"Ctrl-C is pressed while a tool runs"})
    assert len(rows) <= 20
