"""Fallback models answer if the first model cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dial_client import ConfigError, DialClient, ProviderError, StopReason, Usage
from dial_client.extend import (
    CallNext,
    Completion,
    FinishReason,
    Middleware,
    ModelInfo,
    ModelReply,
    ModelRequest,
    ProviderState,
    TextChunk,
)
from dial_client.testing import ScriptedProvider
from tests.inner import (
    CONTEXT_LENGTH_EXCEEDED,
    PAUSE,
    TOOLS_UNSUPPORTED,
    FallbackProvider,
    Options,
    Settings,
    apply_configuration,
    configuration,
    list_models,
    open_model,
)
from tests.support.fakes import Model, Step

pytestmark = pytest.mark.anyio

DOWN = ProviderError("a.example cannot be reached", code="connection")
ANSWER: list[Step] = [TextChunk("Noon."), Completion(FinishReason.STOP, Usage(3, 2), echo={"signature": "s"})]


class Named(Model):
    """A stand-in model with a name, a secret and a closed state."""

    def __init__(self, name: str, *replies: list[Step]) -> None:
        super().__init__(*replies)
        self.info = ModelInfo(name, secrets=(f"key-{name}",))
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def read(provider: FallbackProvider) -> tuple[str, Completion]:
    deltas = [delta async for delta in provider.generate(ModelRequest(()))]
    assert isinstance(deltas[-1], Completion)
    return "".join(delta.text for delta in deltas if isinstance(delta, TextChunk)), deltas[-1]


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        ProviderError("a.example did not answer in time", code="timeout"),
        ProviderError("a.example answered 503", status=503),
        ProviderError("a.example answered 429: slow down", status=429, code="rate_limit_exceeded"),
        ProviderError("a.example answered 401: no such key", status=401),
        ProviderError("a.example answered 404: no such model", status=404, code="model_not_found"),
        ProviderError("a.example answered 429: no quota", status=429, code="insufficient_quota"),
    ],
    ids=lambda error: str(error.status or error.code),
)
async def test_the_next_model_answers_if_the_first_model_cannot(error: ProviderError) -> None:
    a, b = Named("a", [error]), Named("b", ANSWER)
    async with DialClient(a, fallback_models=[b]) as dial:
        turn = await dial.run("What time is it?")
    assert (turn.text, turn.stop_reason) == ("Noon.", StopReason.ANSWERED)
    assert turn.notes == (f"b answered in place of a: {error}",)
    assert turn.message.echo == ProviderState("b", {"signature": "s"}), "the echo of b is sent back to b only"
    assert (a.is_closed, b.is_closed) == (True, True)


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("a.example answered 400: no such parameter", status=400),
        ProviderError("a.example answered 500: too long", status=500, code=CONTEXT_LENGTH_EXCEEDED),
        ProviderError("a.example answered 404: no tools", status=404, code=TOOLS_UNSUPPORTED),
    ],
    ids=lambda error: str(error.code or error.status),
)
async def test_a_refused_request_is_not_sent_to_another_model(error: ProviderError) -> None:
    a, b = Named("a", [error]), Named("b", ANSWER)
    with pytest.raises(ProviderError) as caught:
        await read(FallbackProvider([a, b]))
    assert (caught.value, b.requests) == (error, [])


async def test_a_reply_that_has_begun_is_not_requested_from_another_model() -> None:
    a, b = Named("a", [TextChunk("No"), DOWN]), Named("b", ANSWER)
    with pytest.raises(ProviderError, match="cannot be reached"):
        await read(FallbackProvider([a, b]))
    assert b.requests == []


async def test_the_error_names_the_problems_of_all_models() -> None:
    a, b = Named("a", [ProviderError("a is down", status=503, code="down")]), Named("b", [ProviderError("b is down")])
    with pytest.raises(ProviderError, match="a is down; then b is down") as caught:
        await read(FallbackProvider([a, b]))
    assert (caught.value.status, caught.value.code) == (503, "down")


async def test_a_model_that_failed_is_asked_last_during_a_pause() -> None:
    clock = Clock()
    a, b = Named("a", [DOWN], ANSWER), Named("b", ANSWER, ANSWER)
    provider = FallbackProvider([a, b], clock)
    assert provider.info.name == "a"
    await read(provider)
    assert provider.info.name == "b", "`info` describes the model that is asked next"
    _, completion = await read(provider)
    assert completion.notes == ("b answered in place of a: a.example cannot be reached",)
    assert (len(a.requests), len(b.requests)) == (1, 2)
    clock.now += PAUSE
    _, completion = await read(provider)
    assert (completion.notes, completion.info) == ((), a.info)
    assert (len(a.requests), len(b.requests)) == (2, 2)


async def test_a_model_is_not_asked_again_before_its_retry_after_time() -> None:
    clock = Clock()
    a, b = Named("a", [ProviderError("busy", status=429, retry_after=300)]), Named("b", ANSWER, ANSWER)
    provider = FallbackProvider([a, b], clock)
    await read(provider)
    clock.now += 299
    await read(provider)
    assert (len(a.requests), len(b.requests)) == (1, 2)


async def test_recordings_hide_the_keys_of_all_models() -> None:
    assert FallbackProvider([Named("a"), Named("b")]).info.secrets == ("key-a", "key-b")


async def test_a_middleware_reads_which_model_answered() -> None:
    names: list[str] = []

    class Watch(Middleware):
        async def around_model_call(
            self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
        ) -> ModelReply:
            reply = await call_next(request)
            names.append(reply.info.name if reply.info is not None else "")
            return reply

    dial = DialClient(Named("a", [DOWN]), fallback_models=[Named("b", ANSWER)], middleware=[Watch()])
    async with dial:
        await dial.run("What time is it?")
    assert names == ["b"]


async def test_a_configuration_names_the_fallback_models_of_its_default_model(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    models = {name: {"base_url": f"http://127.0.0.1:9/{name}"} for name in ("a", "b")}
    path.write_text(json.dumps({"models": models, "defaultModel": "a", "fallbackModels": ["b"]}))
    assert isinstance(DialClient.from_config(path).model.provider, FallbackProvider)
    assert not isinstance(DialClient.from_config(path, "b").model.provider, FallbackProvider)
    assert not isinstance(DialClient.from_config(path, fallback_models=()).model.provider, FallbackProvider)
    settings = configuration.load_config(path)
    assert isinstance(open_model(Options(), settings), FallbackProvider)
    assert not isinstance(open_model(Options(model="b"), settings), FallbackProvider)


async def test_a_changed_fallback_model_counts_as_a_changed_model() -> None:
    def read(port: int) -> Settings:
        models = {name: {"base_url": f"http://127.0.0.1:{at}"} for name, at in (("a", 9), ("b", port))}
        return configuration.parse(json.dumps({"models": models, "defaultModel": "a", "fallbackModels": ["b"]}))

    def is_changed(options: Options, port: int) -> bool:
        return list_models(options, read(19)) != list_models(options, read(port))

    assert not is_changed(Options(), 19)
    assert is_changed(Options(), 29)
    assert is_changed(Options(model="a", fallback_model=("b",)), 29)
    assert not is_changed(Options(model="scripted:x"), 29)


async def test_a_configuration_with_a_model_that_cannot_be_selected_changes_nothing(tmp_path: Path) -> None:
    dial = DialClient(Named("a"), record=tmp_path / "recording.jsonl")
    rules = {"policy": [{"deny": "*"}]}
    before, after = (configuration.parse(json.dumps({"defaultModel": f"ollama:{name}", **rules})) for name in "ab")
    with pytest.raises(ConfigError, match="the model cannot be changed while it is recorded"):
        await apply_configuration(dial, Options(), before, after, lambda *_: None)
    assert (dial.model.name, dial.approvals.rules.policy) == ("a", ())


async def test_the_entry_of_a_model_names_its_fallback_models() -> None:
    file = {
        "models": {
            "fast": {"base_url": "http://127.0.0.1:9/v1", "fallback_models": ["steady"]},
            "steady": {"base_url": "http://127.0.0.1:19/v1"},
        }
    }
    models = configuration.parse(str(file).replace("'", '"'), environ={}).models
    assert models["fast"].fallback_models == ("steady",)
    dial = DialClient("fast", models=models)
    assert isinstance(dial.model.provider, FallbackProvider)
    assert dial.model.name == "chat:fast@127.0.0.1:9"


async def test_a_switch_of_the_tool_format_keeps_the_fallback_models() -> None:
    a, b = Named("a", [DOWN]), Named("b", ANSWER)
    async with DialClient(a, fallback_models=[b]) as dial:
        dial.model.switch(tool_format="xml")
        assert (await dial.run("What time is it?")).text == "Noon."


@pytest.mark.parametrize(
    ("models", "problem"),
    [("steady", r"a list, not a string \(\['steady'\]\)"), (["nothing:at-all"], "nothing:at-all")],
)
async def test_an_invalid_fallback_model_is_an_error_when_the_client_is_created(models: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        DialClient(ScriptedProvider(["x"]), fallback_models=models)
