"""The status model describes a running call, without delaying the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import ConfigError, DialClient, Finished, Message, StatusChanged, StopReason
from dial_client.testing import ScriptedProvider
from tests.inner import (
    MAX_TOKENS,
    Completion,
    Emit,
    FinishReason,
    ModelInfo,
    ProviderError,
    StatusModel,
    TextChunk,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    Usage,
    compute_cost,
)
from tests.support.fakes import Model, ReceivedEvents, virtual_time

pytestmark = pytest.mark.anyio

STARTED = ToolCallStarted(ToolCallRequest("1", "look_up", {"city": "Paris"}), "weather", "look_up")
FINISHED = ToolCallFinished(ToolCallResult("1", success=True, content="sun"), "weather", 1.0)
END = Completion(FinishReason.STOP, Usage(30, 8))


def running(call: Callable[[], Awaitable[object]]) -> Callable[[Emit], Awaitable[str]]:
    async def work(emit: Emit) -> str:
        await emit(STARTED)
        await call()
        await emit(FINISHED)
        return "done"

    return work


async def nothing() -> None:
    """Return at once, like a call that takes no time."""


@virtual_time
async def test_the_sentence_is_shown_while_the_call_runs() -> None:
    heard, used = ReceivedEvents(), list[Usage]()
    model = Model([TextChunk('"Looking up the weather'), TextChunk(' in Paris."\n'), END])
    done = await StatusModel(model, lambda usage, _: used.append(usage)).narrate(
        running(lambda: anyio.sleep(5)), heard.emit
    )
    assert done == "done"
    assert heard == [STARTED, StatusChanged("Looking up the weather in Paris…"), FINISHED]
    assert used == [Usage(30, 8)]
    [request] = model.requests
    assert (request.settings.max_tokens, request.tools, request.stream) == (MAX_TOKENS, (), False)
    assert "look_up" in request.messages[0].text
    assert "Paris" in request.messages[0].text


async def test_a_finished_call_has_no_sentence_and_does_not_wait_for_the_model() -> None:
    model = Model([anyio.sleep_forever])
    heard = ReceivedEvents()
    await StatusModel(model, lambda *_: None).narrate(running(nothing), heard.emit)
    assert heard == [STARTED, FINISHED]
    assert model.open_streams == 0


@virtual_time
async def test_a_late_sentence_is_not_shown() -> None:
    model = Model([lambda: anyio.sleep(3), TextChunk("Looking"), END])
    heard = ReceivedEvents()
    await StatusModel(model, lambda *_: None).narrate(running(lambda: anyio.sleep(10)), heard.emit)
    assert heard == [STARTED, FINISHED]
    assert model.open_streams == 0


@virtual_time
@pytest.mark.parametrize(
    "text", ["", "  \n ", '{"sentence": "x"}', "<think>The user", "word " * 50, "a\x1b[31mred"], ids=repr
)
async def test_a_reply_that_is_not_a_sentence_is_not_shown(text: str) -> None:
    heard = ReceivedEvents()
    model = Model([TextChunk(text), END])
    await StatusModel(model, lambda *_: None).narrate(running(lambda: anyio.sleep(5)), heard.emit)
    assert heard == [STARTED, FINISHED]


@virtual_time
async def test_a_failing_status_model_has_no_effect() -> None:
    heard = ReceivedEvents()
    model = Model([ProviderError("busy", status=429)])
    await StatusModel(model, lambda *_: None).narrate(running(lambda: anyio.sleep(5)), heard.emit)
    assert heard == [STARTED, FINISHED]


class Billed(ScriptedProvider):
    info = ModelInfo("gpt", "gpt-5.4", "https://api.openai.com/v1")


async def test_a_turn_shows_the_template_until_the_sentence_is_complete() -> None:
    is_shown = anyio.Event()
    server = MCPServer("weather")

    @server.tool()
    async def look_up(city: str) -> str:
        """Look up the weather."""
        await is_shown.wait()
        return f"sun in {city}"

    used = {"usage": {"input_tokens": 100}}
    call = {"tool_calls": [{"name": "look_up", "arguments": {"city": "Paris"}}]}
    model = Billed([call | used, {"text": "Sun."} | used])
    words = Billed([{"text": "Looking up the weather in Paris", "usage": {"input_tokens": 9}}])
    statuses: list[str] = []
    turn = None
    async with DialClient(model, servers={"weather": server}, status="model", status_model=words) as dial:
        async for event in dial.stream([Message.user("Weather?")]):
            if isinstance(event, StatusChanged):
                statuses.append(event.text)
                if event.text.startswith("Looking"):
                    is_shown.set()
            elif isinstance(event, Finished):
                turn = event.turn
    assert statuses[2:4] == ["Using Look Up…", "Looking up the weather in Paris…"]
    assert turn is not None
    assert turn.stop_reason is StopReason.ANSWERED
    assert turn.usage.input_tokens == 209
    assert turn.cost_usd == pytest.approx(compute_cost(Usage(209), Billed.info)), "the sentence has its price too"


def test_a_status_model_without_its_switch_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match='status_model needs status="model"'):
        DialClient(ScriptedProvider([]), status_model=ScriptedProvider([]))


async def test_a_turn_with_another_model_needs_no_status_model() -> None:
    words, chosen = ScriptedProvider([]), ScriptedProvider(["Hi."])
    async with DialClient(ScriptedProvider([]), status="model", status_model=words) as dial:
        assert (await dial.run("Hello", model=chosen)).text == "Hi."


def test_an_unknown_kind_of_status_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="status"):
        DialClient(ScriptedProvider([]), status="poem")  # type: ignore[arg-type]  # what is tested
