"""Invisible characters are removed from texts of models for users, and from texts of servers for models and users."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import CreateMessageRequestParams, SamplingMessage, TextContent
from pydantic import BaseModel, Field

from dial_client import DialClient, Message
from dial_client.extend import Elicitation, ElicitationAnswer
from dial_client.testing import ScriptedProvider
from tests.inner import (
    Callbacks,
    CallChunk,
    Completion,
    FilePart,
    FinishReason,
    ModelRequest,
    ReasoningChunk,
    ReasoningDelta,
    TextChunk,
    TextDelta,
    ToolCallProgress,
    ToolCallRequest,
    adapt,
    build_catalog,
    count_unseen,
    describe_invisible,
    map_sampling_request,
    result_content,
    status_text,
    to_one_line,
)
from tests.support.fakes import server, tool_named
from tests.support.model_calls import Exchange

HIDDEN = "a\u200bb\u034f\U000e0041\u3164c"
STOP = Completion(FinishReason.STOP)

pytestmark = pytest.mark.anyio


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts_of(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in texts_of(part)]
    return [value] if isinstance(value, str) else []


async def test_invisible_characters_are_removed_from_text_and_reasoning() -> None:
    thoughts = [ReasoningChunk("h\u200b"), ReasoningChunk("m\x1b[")]
    chunks = ["👩", "\u200d", "💻 \x1b[", "31mred\u202e", "\u200b"]
    exchange = Exchange([*thoughts, *map(TextChunk, chunks), STOP])
    reply = await exchange.ask()
    assert "".join(event.text for event in exchange.heard.of(TextDelta)) == "👩\u200d💻 red"
    assert "".join(event.text for event in exchange.heard.of(ReasoningDelta)) == "hm"
    assert reply.message.text == "👩\u200d💻 red"


async def test_arguments_of_calls_are_not_changed() -> None:
    call = ToolCallRequest("1", "now", {"text": HIDDEN})
    assert (await Exchange([CallChunk(call), STOP]).ask()).message.tool_calls == (call,)


def test_invisible_characters_are_removed_from_schemas() -> None:
    schema = {
        "type": "object",
        "title": HIDDEN,
        f"x-{HIDDEN}": HIDDEN,
        "properties": {
            "level": {
                "enum": ["low\u200b", HIDDEN],
                "default": HIDDEN,
                "examples": [HIDDEN],
                "x-note": {HIDDEN: HIDDEN},
            },
            "code": {"type": "string", "pattern": "[\u200b]"},
            "deep": {
                "type": "object",
                "properties": {HIDDEN: {"description": HIDDEN, "const": HIDDEN}},
                "patternProperties": {"[\u200b]": {}},
                "required": [HIDDEN],
            },
        },
    }
    fitted = adapt(schema)
    assert [text for text in texts_of([fitted.schema, list(fitted.hints)]) if count_unseen(text)] == []
    properties = fitted.schema["properties"]
    assert properties["level"]["enum"] == ["low", "abc"]
    assert "pattern" not in properties["code"], "a pattern without a character is another one, or none"
    assert properties["deep"]["required"] == list(properties["deep"]["properties"]) == ["abc"]


def test_an_approver_gets_the_number_of_invisible_characters() -> None:
    catalog = build_catalog([server("raw", tool_named("echo", description=HIDDEN, title="T\u200b"))])
    [tool] = catalog.tools
    assert (tool.description, tool.title, tool.removed_invisible) == ("abc", "T", 5)
    call = ToolCallRequest("1", "echo", {"text": ["\u202e", {"\u200b": "x\r\n"}]})
    assert describe_invisible(call, tool) == [
        "5 invisible characters were removed from what the server says",
        "2 invisible characters are written out in the arguments",
    ]


BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": HIDDEN},
    {"type": "audio", "data": "AAAA", "mimeType": HIDDEN},
    {"type": "resource_link", "name": HIDDEN, "uri": "file:///x", "mimeType": HIDDEN},
    {"type": "resource", "resource": {"uri": "file:///x", "text": HIDDEN}},
    {"type": "resource", "resource": {"uri": "file:///x", "blob": "AAAA", "mimeType": f"x/{HIDDEN}"}},
    {"type": "resource", "resource": {"uri": "file:///a%E2%80%8Bb.pdf", "blob": "AAAA", "mimeType": "application/pdf"}},
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block)[:40])
def test_invisible_characters_are_removed_from_every_type_of_result(block: dict[str, Any]) -> None:
    from mcp_types import CallToolResult

    content = result_content.to_content(CallToolResult.model_validate({"content": [block]}))
    texts = [content] if isinstance(content, str) else [part.name for part in content if isinstance(part, FilePart)]
    assert texts
    assert [text for text in texts if count_unseen(text)] == []


def test_invisible_characters_are_removed_from_structured_results_errors_and_status() -> None:
    from mcp_types import CallToolResult

    structured = CallToolResult.model_validate({"content": [], "structuredContent": {HIDDEN: HIDDEN}})
    assert result_content.to_content(structured) == '{"abc": "abc"}'
    assert to_one_line(f"it broke: {HIDDEN}", 100) == "it broke: abc"
    assert status_text.describe_tool(ToolCallRequest("1", f"x\n{HIDDEN}", {}), None) == "Using X Abc…"


def test_invisible_characters_are_removed_from_sampling_requests() -> None:
    params = CreateMessageRequestParams(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text=HIDDEN))],
        system_prompt=HIDDEN,
        max_tokens=10,
    )
    request = map_sampling_request("raw", params, ())
    assert (request.messages[0].text, request.system) == ("abc", "abc")


async def test_invisible_characters_are_removed_from_elicitations_with_a_warning() -> None:
    class Answer(BaseModel):
        colour: str = Field(title=f"T{HIDDEN}", description=HIDDEN)

    asking = MCPServer("asking", instructions=HIDDEN)

    @asking.tool()
    async def ask(ctx: Context) -> str:
        """Ask."""
        await ctx.report_progress(1, 2, HIDDEN)
        return str((await ctx.elicit(f"Q\u200b\n{HIDDEN}", Answer)).action)

    asked: list[Elicitation] = []

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        asked.append(question)
        return ElicitationAnswer("decline")

    requests: list[ModelRequest] = []

    class Listening(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> Any:
            requests.append(request)
            async for delta in super().generate(request):
                yield delta

    model = Listening([{"tool_calls": [{"name": "ask", "arguments": {}}]}, "Done."])
    async with DialClient(model, servers={"asking": asking}, callbacks=Callbacks(elicit=elicit)) as dial:
        events = [event async for event in dial.stream([Message.user("Go")])]
    [question] = asked
    assert question.message == "Q\nabc"
    assert [text for text in texts_of(dict(question.schema or {})) if count_unseen(text)] == []
    assert question.warnings == ("13 invisible characters were removed from what it says",)
    assert [event.message for event in events if isinstance(event, ToolCallProgress)] == ["abc", "abc"]
    assert [
        text for request in requests for text in texts_of([m.to_dict() for m in request.messages]) if count_unseen(text)
    ] == []
