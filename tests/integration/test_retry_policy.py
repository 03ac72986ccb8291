"""The retry policy of model requests: which failures are retried, how often, and after which delay."""

from __future__ import annotations

import json
import logging
import math
import socket
import ssl
from contextlib import aclosing
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread

from dial_client import DialClient
from tests.inner import (
    DEADLINE_MARGIN,
    Api,
    Endpoint,
    FinishReason,
    Limits,
    Message,
    ProviderError,
    RetryClass,
    RoundStarted,
    StatusChanged,
    StopReason,
    classify_connection_error,
    classify_refusal,
    compute_delay,
    provider_errors,
    retry_policy,
    status_text,
)
from tests.support.model_endpoint import Answer, Bytes, Raw, Say, hear, model_endpoint, one_json, provider_of, refuse
from tests.support.program import LONG

WIRES = pytest.mark.parametrize("wire", list(Api))
SOON = {"retry-after-ms": "1"}
LOADING = one_json({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503, SOON)
MISREAD = "Failed to parse input at pos 17: <tool_call>"


@pytest.mark.parametrize(
    ("attempts", "asked", "left", "chance", "expected"),
    [
        (1, None, math.inf, 0.0, 0.5),
        (2, None, math.inf, 0.0, 1.0),
        (3, None, math.inf, 0.0, 2.0),
        (4, None, math.inf, 0.0, None),
        (1, None, math.inf, 1.0, 0.375),
        (3, None, math.inf, 0.5, 1.75),
        (1, 7.0, math.inf, 1.0, 7.0),
        (1, 60.0, math.inf, 0.0, 60.0),
        (1, 60.5, math.inf, 0.0, None),
        (1, 0.0, math.inf, 0.0, 0.5),
        (1, 7.0, 7.0 + DEADLINE_MARGIN, 0.0, 7.0),
        (1, 7.0, 6.9 + DEADLINE_MARGIN, 0.0, None),
        (1, None, 0.4 + DEADLINE_MARGIN, 0.0, None),
        (1, None, -math.inf, 0.0, None),
    ],
)
def test_a_delay_grows_follows_retry_after_and_fits_the_remaining_time(
    attempts: int, asked: float | None, left: float, chance: float, expected: float | None
) -> None:
    assert compute_delay(RetryClass.BUSY, attempts, retry_after=asked, time_left=left, jitter=chance) == expected


@pytest.mark.parametrize(
    ("again", "waits"),
    [
        (RetryClass.NEVER, []),
        (RetryClass.ABSENT, [0.1]),
        (RetryClass.MISREAD, [0.0]),
        (RetryClass.DROPPED, [0.0, 1.0, 2.0]),
        (RetryClass.UNREACHED, [0.5, 1.0, 2.0]),
        (RetryClass.BUSY, [0.5, 1.0, 2.0]),
        (RetryClass.BROKEN, [0.5, 1.0, 2.0]),
        (RetryClass.LIMITED, [0.5, 1.0, 2.0]),
    ],
)
def test_the_number_of_retries_depends_on_the_failure(again: RetryClass, waits: list[float]) -> None:
    given = [
        compute_delay(again, attempts, retry_after=None, time_left=math.inf, jitter=0.0)
        for attempts in range(1, len(waits) + 2)
    ]

    assert given == [*waits, None]


def test_a_limited_rate_is_retried_for_as_long_as_the_person_is_patient() -> None:
    def list_waits(patience: float) -> list[float]:
        waits: list[float] = []
        while (
            wait := compute_delay(
                RetryClass.LIMITED,
                len(waits) + 1,
                retry_after=None,
                time_left=math.inf,
                jitter=0.0,
                patience=patience - sum(waits),
            )
        ) is not None:
            waits.append(wait)
        return waits

    assert list_waits(0.0) == [0.5, 1.0, 2.0]
    assert list_waits(60.0) == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0]


GOOGLE = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38s"}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ({"message": "Quota exceeded.", "details": GOOGLE}, 38.0),
        ({"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": {"details": GOOGLE}})}}, 38.0),
        ({"message": "Rate limit reached. Please try again in 3.2s. Visit us."}, 3.2),
        ({"message": "Rate limit reached: please try again in 1m26.4s"}, 86.4),
        ({"message": "Please try again in 20ms."}, 0.02),
        ({"message": "Please retry in 38.123s."}, 38.123),
        ({"message": "Try again in 2 minutes"}, 120.0),
        ({"message": "Please wait 12 seconds before you send more"}, 12.0),
        ({"message": "Retry after 5 seconds"}, 5.0),
        ({"message": "Slow down: 5 requests a minute, in 3 regions"}, None),
    ],
)
async def test_the_wait_in_the_body_of_a_refusal_is_obeyed(error: dict[str, Any], seconds: float | None) -> None:
    with model_endpoint([refuse(429, headers={"x-should-retry": "false"}, **error)]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError) as caught:
            await hear(provider)
        await provider.aclose()

    assert caught.value.retry_after == pytest.approx(seconds)


@pytest.mark.anyio
async def test_a_header_precedes_the_wait_in_the_body() -> None:
    refused = refuse(429, "Please try again in 3.2s", {"retry-after": "7", "x-should-retry": "false"})
    with model_endpoint([refused]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError) as caught:
            await hear(provider)
        await provider.aclose()

    assert caught.value.retry_after == 7.0


@pytest.mark.anyio
async def test_a_client_that_is_patient_sends_more_requests_after_a_limited_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_policy, "_MAX_BACKOFF", 0.001)
    refused = refuse(429)
    with model_endpoint([*[refused] * 6, Say("Hi")]) as endpoint:
        async with DialClient(provider_of(endpoint)) as dial:
            with pytest.raises(ProviderError, match="429"):
                await dial.run("Hi")
            dial.model.patience = 60.0
            turn = await dial.run("Hi")

    assert (turn.text, len(endpoint.requests)) == ("Hi", 7)


def test_a_loading_model_has_more_but_limited_retries() -> None:
    waits = [
        compute_delay(RetryClass.LOADING, attempts, retry_after=None, time_left=math.inf, jitter=0.0)
        for attempts in range(1, 61)
    ]

    assert waits[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert waits[-2:] == [8.0, None]
    assert compute_delay(RetryClass.LOADING, 40, retry_after=None, time_left=8.0, jitter=0.0) is None


def refusal(status: int, headers: dict[str, str] | None = None, **error: Any) -> RetryClass:
    endpoint = Endpoint("http://127.0.0.1:1")
    reported = provider_errors.build_reported_error(endpoint, {"error": error}, status=status)
    return classify_refusal(reported, headers or {}, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (408, RetryClass.BUSY),
        (409, RetryClass.BUSY),
        (429, RetryClass.LIMITED),
        (500, RetryClass.BROKEN),
        (502, RetryClass.BROKEN),
        (503, RetryClass.BUSY),
        (504, RetryClass.BROKEN),
        (529, RetryClass.BUSY),
    ],
)
def test_a_temporary_status_is_retried_unless_the_endpoint_forbids_it(status: int, expected: RetryClass) -> None:
    assert refusal(status, message="no") is expected
    assert refusal(status, {"x-should-retry": "false"}, message="no") is RetryClass.NEVER


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_permanent_status_is_never_retried(status: int) -> None:
    assert refusal(status, message="no") is RetryClass.NEVER
    assert refusal(status, {"x-should-retry": "true"}, message="no") is RetryClass.NEVER


def test_an_endpoint_may_request_a_retry() -> None:
    assert refusal(418, message="no") is RetryClass.NEVER
    assert refusal(418, {"x-should-retry": "true"}, message="no") is RetryClass.BUSY


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        pytest.param(429, {"code": "insufficient_quota"}, RetryClass.NEVER, id="the quota is used up"),
        pytest.param(429, {"code": "429", "type": "insufficient_quota"}, RetryClass.NEVER, id="the same as a type"),
        pytest.param(429, {"code": "billing_hard_limit_reached"}, RetryClass.NEVER, id="a limit of money"),
        pytest.param(429, {"message": "Your credit balance is too low"}, RetryClass.NEVER, id="no credit"),
        pytest.param(500, {"message": "tools param requires --jinja flag"}, RetryClass.NEVER, id="no tools"),
        pytest.param(500, {"message": "context length exceeded"}, RetryClass.NEVER, id="too long"),
        pytest.param(503, {"message": "Loading model"}, RetryClass.LOADING, id="llama.cpp is starting"),
        pytest.param(500, {"message": MISREAD}, RetryClass.MISREAD, id="llama.cpp cannot read its model"),
        pytest.param(500, {"message": "The peg-native parser gave up"}, RetryClass.MISREAD, id="in other words"),
    ],
)
def test_the_error_of_a_response_decides_about_a_retry(
    status: int, error: dict[str, str], expected: RetryClass
) -> None:
    assert refusal(status, None, **error) is expected


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(httpx2.ConnectError("refused"), RetryClass.UNREACHED, id="nobody there"),
        pytest.param(httpx2.ConnectTimeout(""), RetryClass.ABSENT, id="no answer from there"),
        pytest.param(
            caused(httpx2.ConnectError("x"), socket.gaierror(socket.EAI_NONAME, "no such host")),
            RetryClass.NEVER,
            id="no such name",
        ),
        pytest.param(
            caused(httpx2.ConnectError("x"), socket.gaierror(socket.EAI_AGAIN, "try again")),
            RetryClass.UNREACHED,
            id="names cannot be looked up",
        ),
        pytest.param(
            caused(httpx2.ConnectError("x"), ssl.SSLCertVerificationError("self-signed")),
            RetryClass.NEVER,
            id="a false name",
        ),
        pytest.param(httpx2.ReadError("reset"), RetryClass.DROPPED, id="reset"),
        pytest.param(httpx2.WriteError("broken pipe"), RetryClass.DROPPED, id="closed while it was asked"),
        pytest.param(
            httpx2.RemoteProtocolError("Server disconnected without sending a response."),
            RetryClass.DROPPED,
            id="closed",
        ),
        pytest.param(httpx2.RemoteProtocolError("illegal status line"), RetryClass.NEVER, id="that is not HTTP"),
        pytest.param(httpx2.ReadTimeout(""), RetryClass.NEVER, id="it may be at work"),
        pytest.param(httpx2.WriteTimeout(""), RetryClass.NEVER, id="it does not listen"),
        pytest.param(httpx2.PoolTimeout(""), RetryClass.NEVER, id="too many at once"),
        pytest.param(httpx2.ProxyError("407"), RetryClass.NEVER, id="the proxy says no"),
        pytest.param(httpx2.LocalProtocolError("illegal header"), RetryClass.NEVER, id="our own fault"),
    ],
)
def test_the_type_of_a_connection_error_decides_about_a_retry(error: Exception, expected: RetryClass) -> None:
    assert classify_connection_error(error, is_local=False) is expected


def test_a_refused_local_connection_is_retried_once() -> None:
    assert classify_connection_error(httpx2.ConnectError("refused"), is_local=True) is RetryClass.ABSENT


@pytest.mark.anyio
@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_retries_of_a_busy_endpoint_are_reported_and_logged(
    wire: Api, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dial_client")
    with model_endpoint(
        [refuse(429, headers=SOON), refuse(429, headers=SOON), refuse(529, headers=SOON), Say("Hi")]
    ) as (endpoint):
        provider = provider_of(endpoint, wire)
        heard = await hear(provider, stream=stream)
        await provider.aclose()

    host = endpoint.url.removeprefix("http://")
    assert heard.text == "Hi"
    assert heard.completion.notes == (
        f"{host} limits requests (429): retried 2 times, after 0 s",
        f"{host} was busy (529): retried after 0 s",
    )
    assert len({request.body for request in endpoint.requests}) == 1
    assert [record.levelname for record in caplog.records if "request_retried" in record.getMessage()] == ["INFO"] * 3


@pytest.mark.anyio
async def test_a_wait_for_a_busy_endpoint_is_shown_as_the_status() -> None:
    with model_endpoint([refuse(429, headers={"retry-after": "29.1"})]) as endpoint:
        async with DialClient(provider_of(endpoint)) as dial, aclosing(dial.stream([Message.user("Hi")])) as events:
            received = [await anext(events) for _ in range(3)]

    assert received == [
        RoundStarted(0),
        StatusChanged(status_text.ANALYZING),
        StatusChanged("The model's endpoint limits requests; trying again in 30 s…"),
    ]


@pytest.mark.anyio
async def test_a_long_wait_is_reported_and_so_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    delays = []
    for least in (retry_policy.MIN_REPORTED_WAIT, 0.0):
        monkeypatch.setattr(retry_policy, "MIN_REPORTED_WAIT", least)
        with model_endpoint([refuse(429, headers=SOON), Say("Hi")]) as endpoint:
            async with DialClient(provider_of(endpoint)) as dial:
                events = [event async for event in dial.stream([Message.user("Hi")])]
        delays.append([event.text for event in events if isinstance(event, StatusChanged)])

    again = "The model's endpoint limits requests; trying again in 1 s…"
    assert delays == [
        [status_text.ANALYZING, status_text.FORMULATING],
        [status_text.ANALYZING, again, status_text.ANALYZING, status_text.FORMULATING],
    ]


@pytest.mark.anyio
async def test_an_error_of_the_endpoint_is_not_called_busy() -> None:
    with model_endpoint([refuse(500, headers=SOON), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider)
        await provider.aclose()

    host = endpoint.url.removeprefix("http://")
    assert heard.completion.notes == (f"{host} had an error (500): retried after 0 s",)


@pytest.mark.anyio
async def test_a_busy_endpoint_gets_four_requests() -> None:
    with model_endpoint([refuse(503, headers=SOON)]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError, match="503"):
            await hear(provider)
        await provider.aclose()

    assert len(endpoint.requests) == 4


@pytest.mark.anyio
@pytest.mark.parametrize("dropped", [Bytes(), Bytes(reset=True)], ids=["closed", "reset"])
async def test_a_connection_closed_without_a_response_is_reopened_at_once(dropped: Bytes) -> None:
    with model_endpoint([Say("Hi"), dropped, Say("RetryClass")]) as endpoint:
        provider = provider_of(endpoint)
        first = await hear(provider)
        second = await hear(provider)
        await provider.aclose()

    assert (first.text, second.text) == ("Hi", "RetryClass")
    assert endpoint.connections == 2
    assert "closed the connection without an answer: retried after 0 s" in str(second.completion.notes)


@pytest.mark.anyio
async def test_a_local_endpoint_that_is_not_running_gets_two_attempts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dial_client")
    with model_endpoint([Say("Hi")]) as endpoint:
        url = endpoint.url
    provider = provider_of(url)
    with pytest.raises(ProviderError, match="is the server running"):
        await hear(provider)
    await provider.aclose()

    assert sum("request_retried" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.anyio
async def test_a_request_waits_for_a_loading_model() -> None:
    with model_endpoint([*[LOADING] * 9, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider)
        await provider.aclose()

    assert heard.text == "Hi"
    assert "was loading its model: retried 9 times" in str(heard.completion.notes)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "misread",
    [
        pytest.param(refuse(500, MISREAD), id="llama.cpp"),
        pytest.param(
            refuse(400, "Failed to call a function", code="tool_use_failed", failed_generation="<tool_call>{"),
            id="Groq",
        ),
    ],
)
async def test_a_reply_that_the_endpoint_cannot_parse_is_generated_again(misread: Raw) -> None:
    with model_endpoint([misread, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider)
        await provider.aclose()
    with model_endpoint([misread]) as endpoint_that_never_can:
        provider = provider_of(endpoint_that_never_can)
        with pytest.raises(ProviderError, match="Failed to"):
            await hear(provider)
        await provider.aclose()

    assert heard.text == "Hi"
    assert heard.completion.finish is FinishReason.STOP
    assert "could not parse" in str(heard.completion.notes)
    assert len(endpoint_that_never_can.requests) == 2


@pytest.mark.anyio
async def test_a_delay_beyond_the_remaining_time_is_an_error_at_once() -> None:
    with model_endpoint([refuse(429, headers={"retry-after": "30"})]) as endpoint:
        provider = provider_of(endpoint)
        with anyio.move_on_after(20) as scope, pytest.raises(ProviderError) as caught:
            await hear(provider)
        await provider.aclose()

    assert caught.value.retry_after == 30
    assert not scope.cancelled_caught
    assert len(endpoint.requests) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_delay_beyond_the_timeout_of_the_turn_is_an_error_at_once(stream: bool) -> None:
    answers: list[Answer] = [refuse(429, headers={"retry-after": "30"})]
    with model_endpoint(answers) as endpoint:
        async with DialClient(provider_of(endpoint), limits=Limits(timeout=20)) as dial:
            with pytest.raises(ProviderError) as caught:
                if stream:
                    async for _ in dial.stream([Message.user("Hi")]):
                        pass
                else:
                    await dial.run([Message.user("Hi")])

    assert (caught.value.status, caught.value.retry_after) == (429, 30)
    assert len(endpoint.requests) == 1


@pytest.mark.anyio
async def test_a_turn_can_be_cancelled_during_a_delay() -> None:
    with model_endpoint([refuse(429, headers={"retry-after": "30"}), Say("Hi")]) as endpoint:
        async with DialClient(provider_of(endpoint)) as dial:
            running = dial.start([Message.user("Hi")], stream_events=False)
            assert await to_thread.run_sync(endpoint.asked.wait, LONG)
            running.cancel()
            turn = await running.result()

            assert turn.stop_reason is StopReason.CANCELLED
            assert len(endpoint.requests) == 1
            assert (await dial.run([Message.user("Hi")])).text == "Hi"
