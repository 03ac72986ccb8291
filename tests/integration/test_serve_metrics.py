"""The metrics of a service, as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from mcp.server import MCPServer
from prometheus_client.parser import text_string_to_metric_families

from tests.inner import AccessPolicy, Operations, PersonalTokens, ServiceMetrics, SQLStore
from tests.support.http_service import serve

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def read_metrics(answer: httpx2.Response) -> dict[str, dict[str, float]]:
    """Return the values of each sample by its labels, joined by commas."""
    assert answer.status_code == 200
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[",".join(sample.labels.values())] = sample.value
    return values


async def test_metrics_count_turns_tokens_calls_and_errors_without_names_of_tools_or_persons(tmp_path: Path) -> None:
    pen = MCPServer("pen")

    @pen.tool()
    def write(what: str) -> str:
        """Writes."""
        if what == "nothing":
            raise ValueError("there is nothing to write")
        return what

    def call(what: str) -> dict[str, object]:
        return {"tool_calls": [{"name": "write", "arguments": {"what": what}}]}

    usage = {"input_tokens": 11, "output_tokens": 7}
    replies = [call("a secret"), call("nothing"), {"text": "Done.", "usage": usage}, {"error": {"status": 429}}]
    metrics = ServiceMetrics()
    async with serve(
        replies,
        {"pen": pen},
        allow=["*"],
        store=SQLStore(tmp_path / "a.db"),
        operations=Operations(metrics=metrics),
        middleware=[metrics],
    ) as service:
        where = await service.conversation()
        for status in (200, 429):
            await service.json("POST", f"{where}/chat", status, json={"text": "Write.", "stream": False})
        answer = await service.http.get("/metrics")
        later = read_metrics(await service.http.get("/metrics", headers={"accept": "text/plain"}))
    values = read_metrics(answer)
    assert values["dial_turns_total"] == {"answered": 1, "failed": 1}
    assert values["dial_turn_first_token_seconds_count"] == {"": 1}
    assert values["dial_model_tokens_total"] == {"scripted,input": 11, "scripted,output": 7}
    assert values["dial_model_errors_total"] == {"429": 1}
    assert values["dial_tool_call_seconds_count"] == {"pen": 2}
    assert values["dial_tool_errors_total"] == {"tool,pen": 1}
    assert (values["dial_server_up"], values["dial_database_up"]) == ({"pen": 1}, {"": 1})
    assert values["dial_turns_running"] == {"": 0}
    assert later["dial_http_responses_total"]["200"] == values["dial_http_responses_total"]["200"] + 1
    assert "secret" not in answer.text
    assert "write" not in answer.text


async def test_only_the_scope_admin_reads_metrics_and_without_the_option_there_are_none(tmp_path: Path) -> None:
    store, metrics = SQLStore(tmp_path / "a.db"), ServiceMetrics()
    policy = AccessPolicy(authenticator=PersonalTokens(store.tokens))
    async with serve([], policy=policy, store=store, operations=Operations(metrics=metrics)) as service:
        asked = [
            await service.http.get("/metrics", headers={"Authorization": f"Bearer {text}"})
            for text, _ in [await store.tokens.create("a", "anna", scopes) for scopes in (["read", "chat"], ["admin"])]
        ]
    async with serve([]) as without:
        missing = await without.http.get("/metrics")
    assert [answer.status_code for answer in (*asked, missing)] == [403, 200, 404]
