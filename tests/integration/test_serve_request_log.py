"""What a service writes down of its requests: an id for each, and a line of the access log."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests.inner import REQUEST_ID, Operations, Proxies, ScriptedProvider
from tests.support.http_service import TOKEN, serve

pytestmark = pytest.mark.anyio

GIVEN = "4bf92f3577b34da6a3ce929d0e0e4736"
LOOPBACK = Proxies((ipaddress.ip_network("127.0.0.1"),), frozenset({REQUEST_ID}))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _json_events() -> Iterator[None]:
    structlog.configure([structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()])
    yield
    structlog.reset_defaults()


def read_events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    events = [json.loads(record.getMessage()) for record in caplog.records if record.name.startswith("dial_client")]
    return [event for event in events if event["event"] == name]


async def test_a_failed_turn_and_its_request_have_the_same_id_in_the_log_and_in_the_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = ScriptedProvider([{"error": {"status": 500, "message": "the model is away"}}])
    asked = {"messages": [{"role": "user", "content": "Hello?"}]}
    with caplog.at_level(logging.INFO, logger="dial_client"):
        async with serve(provider, operations=Operations(access_log=True)) as service:
            failed = await service.http.post("/v1/chat/completions?debug=secret", json=asked)
            refused = await service.http.get("/conversations", headers={"Authorization": "Bearer wrong"})
    [turn], [first, second] = read_events(caplog, "turn_failed"), read_events(caplog, "request")
    assert turn["request_id"] == first["request_id"] == failed.headers[REQUEST_ID]
    assert second["request_id"] == refused.headers[REQUEST_ID] != first["request_id"]
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/chat/completions", 502)
    assert (second["status"], second["code"], second["client"]) == (401, "invalid_api_key", "127.0.0.1")
    assert first["bytes"] == len(failed.content)
    assert first["ms"] > 0
    assert "secret" not in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("proxies", "given", "is_taken"),
    [(LOOPBACK, GIVEN, True), (LOOPBACK, "forged\x1bid", False), (Proxies(headers=LOOPBACK.headers), GIVEN, False)],
)
async def test_the_id_of_a_request_is_taken_from_a_named_proxy_if_it_is_well_formed(
    proxies: Proxies, given: str, *, is_taken: bool
) -> None:
    async with serve([], proxies=proxies) as service:
        answers = [await service.http.get("/healthz", headers={REQUEST_ID: given}) for _ in range(2)]
    ids = {answer.headers[REQUEST_ID] for answer in answers}
    assert (ids == {given}) is is_taken
    assert len(ids) == (1 if is_taken else 2)


async def test_without_the_option_no_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dial_client"):
        async with serve([]) as service:
            await service.http.get("/healthz")
    assert read_events(caplog, "request") == []
