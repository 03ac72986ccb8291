"""The cost of turns, summaries, sampling and status texts, if the prices are known."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import anyio
import pytest

from dial_client import DialClient, Event, Limits, Message, StatusChanged, ToolCallRequest
from dial_client.extend import SamplingRequest
from tests.inner import (
    CallContext,
    Completion,
    ConfigError,
    Deadline,
    Delta,
    Emit,
    ModelInfo,
    ModelRequest,
    ModelSampler,
    ScriptedProvider,
    StatusModel,
    ToolCallStarted,
    Usage,
    compute_cost,
    open_provider,
    parse,
    summarize,
)

OPENAI = "https://api.openai.com/v1"
GPT = ModelInfo("gpt", "gpt-5.4", OPENAI)


def test_cached_tokens_of_a_known_model_cost_less() -> None:
    fresh = compute_cost(Usage(1000, 100), GPT)
    cached = compute_cost(Usage(1000, 100, cached_tokens=900), GPT)
    assert fresh is not None
    assert cached is not None
    assert 0 < cached < fresh


PRIVATE = {"input": 2, "output": 10, "cached_input": 0.5, "cache_write": 2.5}


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(1_000_000), 2),
        (Usage(0, 100_000), 1),
        (Usage(1_000_000, cached_tokens=400_000), 1.2 + 0.2),
        (Usage(1_000_000, cache_write_tokens=1_000_000), 2.5),
        (Usage(10, 10, server_tool_calls=1), None),
    ],
)
def test_a_profile_states_the_prices_of_a_private_model(usage: Usage, dollars: float | None) -> None:
    text = json.dumps({"models": {"mine": {"api": "chat", "base_url": "http://127.0.0.1:9/v1", "prices": PRIVATE}}})
    info = open_provider("mine", models=parse(text).models).info
    assert compute_cost(usage, info) == (None if dollars is None else pytest.approx(dollars))


def test_without_prices_for_the_cache_its_tokens_cost_as_much_as_others() -> None:
    info = ModelInfo("mine", prices={"input": 2, "output": 0})
    assert compute_cost(Usage(1_000_000, cached_tokens=1_000_000), info) == 2
    assert compute_cost(Usage(1_000_000, cache_write_tokens=10), info) == 2


@pytest.mark.parametrize(
    "prices", [{"input": 1}, {"input": -1, "output": 1}, {"in": 1, "output": 1}, {"input": "1"}, 3]
)
def test_a_wrong_price_is_an_error_of_the_profile(prices: object) -> None:
    text = json.dumps({"models": {"mine": {"base_url": "http://127.0.0.1:9/v1", "prices": prices}}})
    with pytest.raises(ConfigError, match=r"models\.mine\.prices"):
        parse(text)


def test_cache_writes_have_a_separate_price() -> None:
    claude = ModelInfo("claude", "claude-sonnet-5-5", "https://api.anthropic.com")
    plain, written = compute_cost(Usage(1000, 1), claude), compute_cost(Usage(1000, 1, cache_write_tokens=1000), claude)
    assert plain is not None
    assert written is not None
    assert written > plain


@pytest.mark.parametrize(
    ("usage", "info"),
    [
        (Usage(1000, 100), ModelInfo("x", "nobody-knows-this-model", OPENAI)),
        (Usage(1000, 100), ModelInfo("x", "gpt-5.4", "http://127.0.0.1:8080/v1")),
        (Usage(10, 100, cached_tokens=500), GPT),
        (Usage(1000, 100), ModelInfo("x", "gpt-5.4")),
        (Usage(), GPT),
    ],
    ids=["an unknown model", "an unknown endpoint", "impossible counts", "no endpoint", "nothing counted"],
)
def test_usage_without_a_known_price_has_no_cost(usage: Usage, info: ModelInfo) -> None:
    assert compute_cost(usage, info) is None


class Billed(ScriptedProvider):
    info = GPT


CALL = {"tool_calls": [{"name": "nobody_offers_this", "arguments": {}}], "usage": {"input_tokens": 1000}}


@pytest.mark.anyio
async def test_the_cost_of_a_turn_is_the_sum_of_its_rounds() -> None:
    model = Billed([CALL, {"text": "Done.", "usage": {"input_tokens": 2000, "output_tokens": 50}}])
    async with DialClient(model) as dial:
        turn = await dial.run([Message.user("Go.")])
    prices = [compute_cost(usage, GPT) for usage in turn.request_usages]
    assert [usage.input_tokens for usage in turn.request_usages] == [1000, 2000]
    assert turn.cost_usd == pytest.approx(sum(price for price in prices if price is not None))
    assert turn.to_dict()["usage"]["cost_usd"] == turn.cost_usd


class Relay(ScriptedProvider):
    """A provider whose replies name a different model than `info`, as with fallback models."""

    info = ModelInfo("relay", "nobody-knows-this-model", OPENAI)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        async with aclosing(super().generate(request)) as deltas:
            async for delta in deltas:
                yield replace(delta, info=GPT) if isinstance(delta, Completion) else delta


SUMMARY = {"text": "A summary", "usage": {"input_tokens": 1000}}


@pytest.mark.anyio
async def test_a_summary_has_the_price_of_the_model_that_wrote_it() -> None:
    dial = DialClient(Relay([SUMMARY]))
    assert (await summarize(dial.model, [Message.user("Go.")])).cost_usd == compute_cost(Usage(1000), GPT)


@pytest.mark.anyio
async def test_a_reply_to_a_sampling_request_has_the_price_of_the_model_that_wrote_it() -> None:
    spent: list[float | None] = []
    model = Relay([SUMMARY])
    context = CallContext(Deadline(60), Deadline(60), lambda _, cost: spent.append(cost))
    sample = ModelSampler(lambda: model, None, (), Limits())
    await sample(SamplingRequest("server", (Message.user("Go."),), 100), (context,))
    assert spent == [compute_cost(Usage(1000), GPT)]


@pytest.mark.anyio
async def test_a_status_has_the_price_of_the_model_that_wrote_it() -> None:
    answered: list[ModelInfo] = []
    written = anyio.Event()

    async def run(emit: Emit) -> None:
        await emit(ToolCallStarted(ToolCallRequest("1", "add", {}), "server"))
        await written.wait()

    async def emit(event: Event) -> None:
        if isinstance(event, StatusChanged):
            written.set()

    await StatusModel(Relay([SUMMARY]), lambda _, info: answered.append(info)).narrate(run, emit)
    assert answered == [GPT]


@pytest.mark.anyio
async def test_a_turn_with_a_round_of_unknown_cost_has_no_cost() -> None:
    async with DialClient(Billed([CALL, "Done."])) as dial:
        turn = await dial.run([Message.user("Go.")])
    assert turn.cost_usd is None
    assert turn.to_dict()["usage"]["rounds"][0]["input_tokens"] == 1000
