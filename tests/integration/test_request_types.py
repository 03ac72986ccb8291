"""Whole requests of the providers, validated against the request types of the vendors' SDKs.

mypy checks each part of a request; these tests check requests with everything that a conversation may contain.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.inner import Api, FilePart, ImagePart, Message, Role, TextPart, ToolCallRequest, ToolSpec
from tests.support.model_endpoint import Say, hear, model_endpoint, provider_of

pytestmark = [pytest.mark.anyio, pytest.mark.once]

IMAGE = ImagePart("iVBORw0KGgo=", "image/png")
PDF = FilePart("JVBERi0=", "application/pdf", "report.pdf")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
CALLS = (ToolCallRequest("a", "look", {"at": "x"}), ToolCallRequest("b", "look", {}))
CONVERSATION = [
    Message.system("Be brief."),
    Message(Role.USER, (TextPart("Look:"), IMAGE, PDF)),
    Message.assistant("Let me see.", CALLS),
    Message(Role.TOOL, (TextPart("One."), IMAGE, PDF), tool_call_id="a"),
    Message(Role.TOOL, "It failed", tool_call_id="b", is_error=True),
    Message.user("And?"),
]


def types_of(wire: Api) -> tuple[str, TypeAdapter[Any], TypeAdapter[Any]]:
    """Return the name of the request field with the messages, and the SDK's types of messages and of tools."""
    from anthropic.types import MessageParam, ToolParam
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
    from openai.types.responses import FunctionToolParam, ResponseInputItemParam

    match wire:
        case Api.CHAT:
            chat_tools: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionFunctionToolParam])
            return "messages", TypeAdapter(list[ChatCompletionMessageParam]), chat_tools
        case Api.RESPONSES:
            return "input", TypeAdapter(list[ResponseInputItemParam]), TypeAdapter(list[FunctionToolParam])
        case Api.MESSAGES:
            return "messages", TypeAdapter(list[MessageParam]), TypeAdapter(list[ToolParam])


@pytest.mark.parametrize("wire", list(Api))
async def test_a_whole_conversation_has_the_types_of_the_sdk(wire: Api) -> None:
    field, messages, tools = types_of(wire)
    with model_endpoint([Say("Hm", reasoning="So.")]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"documents": True})
        reply = (await hear(provider, *CONVERSATION, tools=(TOOL,))).message(provider)
        await hear(provider, *CONVERSATION, reply, Message.user("Go on"), tools=(TOOL,))
        await provider.aclose()

    for request in endpoint.requests:
        for value in messages.validate_python(request.json[field]):
            exhaust(value)
        tools.validate_python(request.json["tools"])


def exhaust(value: Any) -> None:
    """Iterate over a value recursively: iterables of the SDKs are validated while they are read."""
    if isinstance(value, dict):
        for part in value.values():
            exhaust(part)
    elif not isinstance(value, str) and hasattr(value, "__iter__"):
        for part in value:
            exhaust(part)
