"""Images and documents of tool results: from a real server to the request of each model API."""

from __future__ import annotations

import base64
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent

from dial_client import ConversationManager, DialClient, FilePart, ImagePart, Message, Role, SQLStore, TextPart, Turn
from tests.inner import Api, Conversation
from tests.support.images import PIXEL
from tests.support.model_endpoint import Call, ModelEndpoint, Say, model_endpoint, provider_of

pytestmark = pytest.mark.anyio

PNG = PIXEL
PDF = base64.b64encode(b"%PDF-1.7\n, and so on").decode()
DATA_URL = f"data:application/pdf;base64,{PDF}"


def printer() -> MCPServer:
    server = MCPServer("printer")

    @server.tool()
    def preview() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Show the report."""
        document = BlobResourceContents(uri="file:///tmp/report.pdf", mime_type="application/pdf", blob=PDF)
        return [
            TextContent(text="Page one:"),
            ImageContent(data=PNG, mime_type="image/png"),
            EmbeddedResource(resource=document),
        ]

    return server


async def previewed(endpoint: ModelEndpoint, wire: Api, **settings: Any) -> Turn:
    provider = provider_of(endpoint, wire, **settings)
    async with DialClient(provider, servers={"printer": printer()}) as dial:
        return await dial.run([Message.user("Show me")])


ANSWERS = (Say(calls=(Call("preview"),)), Say("I see a report."))


async def test_the_messages_api_gets_images_and_documents_in_the_result() -> None:
    with model_endpoint(ANSWERS) as endpoint:
        await previewed(endpoint, Api.MESSAGES)

    (result,) = endpoint.requests[1].json["messages"][2]["content"]
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    assert result["type"] == "tool_result"
    assert result["content"] == [
        {"type": "text", "text": "Page one:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "document", "source": source, "title": "report.pdf"},
    ]


async def test_the_responses_api_gets_images_and_documents_in_the_output() -> None:
    with model_endpoint(ANSWERS) as endpoint:
        await previewed(endpoint, Api.RESPONSES)

    result = endpoint.requests[1].json["input"][-1]
    assert result["type"] == "function_call_output"
    assert result["output"] == [
        {"type": "input_text", "text": "Page one:"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_file", "filename": "report.pdf", "file_data": DATA_URL},
    ]


async def test_chat_completions_get_images_after_the_results() -> None:
    with model_endpoint(ANSWERS) as endpoint:
        turn = await previewed(endpoint, Api.CHAT, quirks={"documents": True})

    tool, shown = endpoint.requests[1].json["messages"][-2:]
    assert (tool["role"], shown["role"]) == ("tool", "user")
    assert tool["content"] == "Page one:\n[1 image(s), 1 document(s): shown below]"
    assert shown["content"][1:] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": DATA_URL}},
    ]
    assert turn.notes == ()


async def test_an_unsupported_document_is_a_placeholder_for_the_model_and_a_note_for_the_user() -> None:
    with model_endpoint(ANSWERS) as endpoint:
        turn = await previewed(endpoint, Api.CHAT)

    placeholder = "report.pdf, application/pdf, about 1 kB: it cannot be shown to the model"
    tool, shown = endpoint.requests[1].json["messages"][-2:]
    assert tool["content"] == f"Page one:\n[{placeholder}]\n[1 image(s): shown below]"
    assert len(shown["content"]) == 2
    assert turn.notes == (placeholder,)


async def test_the_turn_has_the_complete_documents() -> None:
    document = {"type": "file", "data": PDF, "mime_type": "application/pdf", "name": "report.pdf"}
    with model_endpoint(ANSWERS * 2) as endpoint:
        turn = await previewed(endpoint, Api.RESPONSES)
        async with DialClient(provider_of(endpoint, Api.RESPONSES), servers={"printer": printer()}) as dial:
            streamed = [event async for event in dial.stream_response([Message.user("Show me")])]

    assert json.loads(json.dumps(turn.to_dict()))["tool_calls"][0]["content"][2] == document
    (result,) = (event for event in streamed if event.startswith("event: tool_result"))
    assert json.loads(result.partition("data: ")[2])["content"][2] == document


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # the database needs asyncio
async def test_documents_are_stored_with_the_conversation_and_sent_again_unchanged(tmp_path: Path) -> None:
    conversation: Conversation | None = None
    with model_endpoint(ANSWERS) as endpoint:
        for text in ("Show me", "What was it?"):
            provider = provider_of(endpoint, Api.RESPONSES)
            async with (
                aclosing(SQLStore.sqlite(tmp_path / "kept.db")) as store,
                DialClient(provider, servers={"printer": printer()}) as dial,
            ):
                manager = ConversationManager(dial, store)
                conversation = conversation or await manager.create()
                await manager.chat(conversation.id, text)
                conversation = await manager.get(conversation.id)

    assert conversation is not None
    results = [message.content for message in conversation.messages if message.role is Role.TOOL]
    image, document = ImagePart(PNG, "image/png"), FilePart(PDF, "application/pdf", "report.pdf")
    assert results == [(TextPart("Page one:"), image, document)]
    before, after = (request.json["input"] for request in endpoint.requests[1:])
    assert after[: len(before)] == before
