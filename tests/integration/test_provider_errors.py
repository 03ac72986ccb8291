"""Errors of model requests: one-line messages, error codes, retries, timeouts and closed connections."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread

from tests.inner import (
    Api,
    Endpoint,
    FinishReason,
    Message,
    ModelRequest,
    ProviderError,
    TextChunk,
    ToolSpec,
    errors,
    provider_errors,
)
from tests.support.model_endpoint import (
    ModelEndpoint,
    Raw,
    Say,
    events,
    hear,
    model_endpoint,
    one_json,
    provider_of,
    refuse,
)
from tests.support.program import LONG

pytestmark = pytest.mark.anyio

WIRES = pytest.mark.parametrize("wire", list(Api))
NO_RETRY = {"x-should-retry": "false"}
TOOLS = tuple(ToolSpec(name, "", {"type": "object"}) for name in ("good", "bad", "fine"))


async def refusal(answer: Any, wire: Api = Api.CHAT, **request: Any) -> tuple[ProviderError, ModelEndpoint]:
    with model_endpoint([answer]) as endpoint:
        provider = provider_of(endpoint, wire, api_key="sk-secret")
        try:
            with pytest.raises(ProviderError) as caught:
                await hear(provider, **request)
        finally:
            await provider.aclose()
    return caught.value, endpoint


@WIRES
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 503, 529])
async def test_a_refusal_is_one_line_with_its_status(wire: Api, status: int) -> None:
    error, endpoint = await refusal(refuse(status, "no\n way", NO_RETRY, code="a_code"), wire)

    assert error.status == status
    assert error.code == "a_code"
    assert f"answered {status}: no way" in str(error)
    assert "\n" not in str(error)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(502, b"<html><head><title>Bad\nGateway</title></head>" + b"x" * 9000, "Bad Gateway", id="a title"),
        pytest.param(502, b"<html><p>Down for <b>now</b></p></html>", "Down for now", id="a page"),
        pytest.param(400, b"plain \x1b[31mwords\x07", "plain [31mwords", id="words with escapes"),
        pytest.param(400, b"", "answered 400", id="nothing"),
        pytest.param(400, b"\xff\xfe", "answered 400", id="no text"),
        pytest.param(422, b'{"detail": [{"msg": "wrong"}]}', "wrong", id="as FastAPI does"),
        pytest.param(400, b'{"message": "wrong"}', "wrong", id="a message"),
        pytest.param(400, b'[{"error": {"message": "wrong"}}]', "wrong", id="in a list"),
        pytest.param(400, b'"wrong"', "wrong", id="a string"),
        pytest.param(401, b'{"error": "key sk-secret is bad"}', "key [key] is bad", id="the key itself"),
    ],
)
async def test_an_error_with_any_body_is_short_and_printable(status: int, body: bytes, expected: str) -> None:
    error, _ = await refusal(Raw((body,), status, NO_RETRY))

    assert expected in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 700
    assert "sk-secret" not in str(error)


ROUTED_JSON = '{"object": "error", "message": "Unexpected role \'user\'", "type": "invalid_order", "code": "3230"}'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(ROUTED_JSON, "Provider returned error: Unexpected role 'user'", id="JSON in a text"),
        pytest.param('{"error": {"message": "No."}}', "Provider returned error: No.", id="an error in a text"),
        pytest.param({"error": {"message": "No."}}, "Provider returned error: No.", id="an object"),
        pytest.param("upstream \x1b[31mfailed", "Provider returned error: upstream [31mfailed", id="words"),
        pytest.param("key sk-secret is bad", "Provider returned error: key [key] is bad", id="the key"),
        pytest.param(None, "Provider returned error", id="nothing"),
        pytest.param([], "Provider returned error", id="an empty list"),
        pytest.param("Provider returned error", "Provider returned error", id="the same words"),
    ],
)
async def test_the_error_has_the_message_of_the_endpoint_behind_a_router(raw: Any, expected: str, stream: bool) -> None:
    error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "Mistral"}}

    refused, _ = await refusal(one_json({"error": error}, 400), stream=stream)
    reported, _ = await refusal(events({"error": error}) if stream else one_json({"error": error}), stream=stream)

    assert str(refused).endswith(f"answered 400: {expected}")
    assert str(reported).endswith(f"answered 400: {expected}")


@WIRES
async def test_a_web_page_instead_of_a_response_is_an_error(wire: Api) -> None:
    error, _ = await refusal(Raw((b"<!doctype html><title>Welcome to Open WebUI</title>",)), wire)

    assert "Welcome to Open WebUI" in str(error)
    assert "is the address right?" in str(error)


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools", errors.TOOLS_UNSUPPORTED),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', errors.TOOLS_UNSUPPORTED),
        (404, "No endpoints found that support tool use", errors.TOOLS_UNSUPPORTED),
        (500, "tools param requires --jinja flag", errors.TOOLS_UNSUPPORTED),
        (400, "`tool calling` is not supported with this model", errors.TOOLS_UNSUPPORTED),
        (400, "This model's maximum context length is 8192 tokens", errors.CONTEXT_LENGTH_EXCEEDED),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", errors.CONTEXT_LENGTH_EXCEEDED),
        (400, "Something else", "an_error"),
        (429, "too many tokens per minute", "an_error"),
    ],
)
async def test_actionable_errors_have_the_same_code_for_every_endpoint(status: int, message: str, code: str) -> None:
    error, _ = await refusal(refuse(status, message, NO_RETRY))

    assert error.code == code


@pytest.mark.parametrize("stream", [True, False])
async def test_the_type_of_an_error_is_used_if_its_code_is_a_number(stream: bool) -> None:
    error = {"message": "The total length of all messages is too much.", "type": "too_many_prompt_tokens", "code": 400}
    reported = events({"error": error}) if stream else one_json({"error": error})
    for answer in (one_json({"error": error}, 400), reported):
        caught, _ = await refusal(answer, stream=stream)
        assert (caught.status, caught.code) == (400, errors.CONTEXT_LENGTH_EXCEEDED)

    busy, _ = await refusal(one_json({"error": error | {"code": 429}}, 429, NO_RETRY), stream=stream)
    assert busy.code == "429"


@WIRES
async def test_a_request_to_a_busy_endpoint_is_retried(wire: Api) -> None:
    with model_endpoint(
        [refuse(429, headers={"retry-after-ms": "1"}), refuse(503, headers={"retry-after-ms": "1"}), Say("Hi")]
    ) as endpoint:
        provider = provider_of(endpoint, wire)
        heard = await hear(provider)
        await provider.aclose()

    assert heard.text == "Hi"
    assert len(endpoint.requests) == 3


@WIRES
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(refuse(429, code="insufficient_quota"), id="the money is used up"),
        pytest.param(refuse(429, headers={"retry-after": "61"}), id="the wait is too long"),
    ],
)
async def test_a_request_is_not_retried_if_a_retry_cannot_succeed(wire: Api, answer: Raw) -> None:
    error, endpoint = await refusal(answer, wire)

    assert len(endpoint.requests) == 1
    assert error.retry_after == (61 if "retry-after" in answer.headers else None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("9" * 400, None),
        ("soon", None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 32 Dec 2026 25:59:59 GMT", None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(value: str, expected: float | None) -> None:
    assert provider_errors.parse_retry_after({"retry-after": value}) == expected


@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (httpx2.ConnectTimeout(""), "model.test could not be reached in time", "timeout"),
        (httpx2.ReadTimeout(""), "model.test did not answer in time", "timeout"),
        (httpx2.ConnectError("refused"), "model.test cannot be reached: refused", "connection"),
        (httpx2.ReadError(""), "the connection to model.test broke: ReadError", "connection"),
        (httpx2.DecodingError("bad\x1b data"), "the connection to model.test broke: bad data", "connection"),
    ],
)
def test_a_failure_is_reported_in_one_line(error: Exception, says: str, code: str) -> None:
    reported = provider_errors.build_connection_error(Endpoint("https://model.test/v1"), error)

    assert (str(reported), reported.code, reported.status) == (says, code, None)


@WIRES
async def test_the_error_for_an_unreachable_endpoint_names_its_address(wire: Api) -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        url = endpoint.url
    provider = provider_of(url, wire)

    with pytest.raises(ProviderError) as caught:
        await hear(provider)
    await provider.aclose()

    assert caught.value.code == "connection"
    assert url.removeprefix("http://") in str(caught.value)
    assert "is the server running?" in str(caught.value)


@WIRES
async def test_redirects_of_endpoints_are_not_followed(wire: Api) -> None:
    with model_endpoint([Say("Hi")]) as elsewhere:
        for status in (301, 302, 307, 308):
            error, _ = await refusal(Raw((), status, {"location": f"{elsewhere.url}/v1"}), wire)
            assert error.status == status
            assert f"{elsewhere.url}/v1" in str(error)

    assert elsewhere.requests == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_without_a_response_times_out(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dial_client.providers.http.http_provider._UNSTREAMED_TIMEOUT", 0.05)
    with model_endpoint([Raw(hang=True)]) as endpoint:
        provider = provider_of(endpoint, quirks={"idle_timeout": 0.05})
        with pytest.raises(ProviderError, match="did not answer in time") as caught:
            await hear(provider, stream=stream)
        await provider.aclose()

    assert caught.value.code == "timeout"


async def test_a_timeout_within_a_stream_keeps_the_text_so_far() -> None:
    body = events({"choices": [{"delta": {"content": "Half an"}}]}, done=False, hang=True)
    with model_endpoint([body]) as endpoint:
        provider = provider_of(endpoint, quirks={"idle_timeout": 0.5})
        heard = await hear(provider)
        await provider.aclose()

    assert heard.text == "Half an"
    assert heard.completion.finish is FinishReason.CUT


FIRST: dict[Api, list[Any]] = {
    Api.CHAT: [{"choices": [{"delta": {"content": "Hi"}}]}],
    Api.RESPONSES: [{"type": "response.output_text.delta", "delta": "Hi"}],
    Api.MESSAGES: [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}}],
}


@WIRES
async def test_leaving_a_stream_early_closes_its_connection(wire: Api) -> None:
    with model_endpoint([events(*FIRST[wire], done=False, hang=True)]) as endpoint:
        provider = provider_of(endpoint, wire)
        async with aclosing(provider.generate(ModelRequest((Message.user("?"),)))) as deltas:
            async for delta in deltas:
                assert delta == TextChunk("Hi")
                break

        assert await to_thread.run_sync(endpoint.disconnected.wait, LONG)
        await provider.aclose()


@WIRES
@pytest.mark.parametrize("answer", ["the first words", "nothing"])
async def test_cancelling_closes_the_connection(wire: Api, answer: str) -> None:
    raw = events(*FIRST[wire], done=False, hang=True) if answer == "the first words" else Raw(hang=True)
    with model_endpoint([raw]) as endpoint:
        provider = provider_of(endpoint, wire)
        first = anyio.Event()

        async def listen() -> None:
            async with aclosing(provider.generate(ModelRequest((Message.user("?"),)))) as deltas:
                async for _ in deltas:
                    first.set()

        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                if answer == "nothing":
                    assert await to_thread.run_sync(endpoint.asked.wait, LONG)
                else:
                    await first.wait()
                tasks.cancel_scope.cancel()

        assert await to_thread.run_sync(endpoint.disconnected.wait, LONG)
        await provider.aclose()


@WIRES
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelling_an_asyncio_task_closes_the_connection(wire: Api) -> None:
    with model_endpoint([Raw(hang=True)]) as endpoint:
        provider = provider_of(endpoint, wire)
        with anyio.fail_after(LONG):
            task = asyncio.create_task(hear(provider))
            assert await to_thread.run_sync(endpoint.asked.wait, LONG)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        assert await to_thread.run_sync(endpoint.disconnected.wait, LONG)
        await provider.aclose()


@WIRES
async def test_a_provider_can_be_closed_unused_and_twice_and_used_again(wire: Api) -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, wire)
        await provider.aclose()
        await provider.prepare()
        await provider.prepare()
        assert (await hear(provider)).text == "Hi"
        await provider.aclose()
        await provider.aclose()
        assert (await hear(provider)).text == "Hi"
        await provider.aclose()


async def test_no_proxy_is_used_for_loopback_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        assert (await hear(provider)).text == "Hi"
        await provider.aclose()


def test_an_error_object_of_any_shape_is_reported_in_one_line() -> None:
    values: list[Any] = [
        None,
        7,
        [],
        {},
        {"error": {}},
        {"error": None},
        {"error": {"message": {"a": 1}}},
        {"error": [1]},
    ]
    for value in values:
        error = provider_errors.build_reported_error(Endpoint("http://127.0.0.1"), value)
        assert str(error).isprintable()


async def test_an_incomplete_json_response_is_an_error() -> None:
    error, _ = await refusal(Raw((b'{"choices": [',), headers={"content-type": "application/json"}), stream=False)

    assert "sent text that is not JSON" in str(error)


@WIRES
@pytest.mark.parametrize(
    "value", [{}, {"choices": 7}, {"hello": "world"}, [], [1, 2], 7, "text", {"type": "message_stop"}]
)
async def test_json_of_another_shape_is_an_error(wire: Api, value: Any) -> None:
    if value == {"type": "message_stop"} and wire is Api.MESSAGES:
        pytest.skip("there it is the end of an empty message")
    error, _ = await refusal(one_json(value), wire, stream=False)

    assert error.status is None
    assert str(error).isprintable()
