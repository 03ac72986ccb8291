"""Structured results that do not fit the output schema: the text is kept, and a remark tells the model."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import CallToolResult

from dial_client import DialClient, Message
from dial_client.testing import ScriptedProvider
from tests.inner import (
    ApprovalChecker,
    Deadline,
    Limits,
    OnCallProgress,
    PolicyRules,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutor,
    build_catalog,
)
from tests.support.fakes import ReceivedEvents, server, tool_named
from tests.support.program import entry

pytestmark = pytest.mark.anyio

COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def result_of(schema: Any, *, text: str = "three", structured: Any = None, fails: bool = False) -> ToolCallResult:
    async def call(tool: str, arguments: Any, on_progress: OnCallProgress) -> CallToolResult:
        result = {"content": [{"type": "text", "text": text}] if text else [], "isError": fails}
        return CallToolResult.model_validate(result | ({} if structured is None else {"structuredContent": structured}))

    catalog = build_catalog([server("maths", tool_named("count", output_schema=schema), call=call)])
    executor = ToolExecutor(lambda: catalog, ApprovalChecker(PolicyRules(), None), Limits())
    return await executor.execute(ToolCallRequest("1", "count", {}), ReceivedEvents().emit, Deadline(5))


async def test_a_remark_after_the_text_reports_a_result_that_does_not_fit_its_schema() -> None:
    result = await result_of(COUNT, structured={"n": "three"})
    assert result.success
    text, _, remark = str(result.content).partition("\n")
    assert text == "three"
    assert remark.startswith("[The structured result does not fit what the tool promises: n:")


@pytest.mark.parametrize(
    ("schema", "structured", "fails"),
    [
        (COUNT, {"n": 3}, False),
        (COUNT, None, False),
        (COUNT, {"n": "x"}, True),
        (None, {"n": "x"}, False),
        ({"type": "nonsense"}, {"n": "x"}, False),
        ({"$ref": "http://127.0.0.1:9/schema"}, {"n": "x"}, False),
    ],
    ids=["kept", "nothing structured", "a failure", "no promise", "a promise nobody can read", "a promise elsewhere"],
)
async def test_a_valid_or_unchecked_result_has_no_remark(schema: Any, structured: Any, fails: bool) -> None:
    assert (await result_of(schema, structured=structured, fails=fails)).content == "three"


async def test_without_text_the_model_gets_the_structured_content_and_the_remark() -> None:
    content = str((await result_of(COUNT, text="", structured={"n": "x"})).content)
    assert content.startswith('{"n": "x"}\n[The structured result')


async def test_a_result_of_a_real_server_that_does_not_fit_is_used() -> None:
    model = ScriptedProvider([{"tool_calls": [{"name": "echo", "arguments": {}}]}, "Done."])
    async with DialClient(model, servers={"raw": entry("BrokenOutput")}) as dial:
        turn = await dial.run([Message.user("go on")])
    [record] = turn.tool_calls
    assert record.result.success
    assert turn.text == "Done."


async def test_the_structured_content_of_a_result_is_its_value() -> None:
    assert (await result_of(COUNT, structured={"n": 3})).value == {"n": 3}
    assert (await result_of(COUNT, structured={"n": "x"}, fails=True)).value == {"n": "x"}
    assert (await result_of(None)).value is None
