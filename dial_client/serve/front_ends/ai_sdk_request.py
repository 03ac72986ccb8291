"""The requests of the AI SDK's `DefaultChatTransport`: a chat with all its messages (`UIMessage`).

Only the last message of each is read: the service has the others. The assistant's has the answers of the user about its
calls, or the results of calls of the front end's own tools. These tools are our extension of the request: the AI SDK
itself has no place for them, and assistant-ui sends them there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.messages.message import Message, Role, ToolSpec
from dial_client.serve.front_ends.chat_request import ChatRequest, build_file_part, parse_parts
from dial_client.serve.http_messages import HttpError, read_flag, read_list, read_string
from dial_client.serve.model_api.answer_request import build_error, collect_tools, parse_tool


def parse_ai_sdk_request(body: Mapping[str, Any]) -> ChatRequest:
    """Return what a request asks for.

    Raises:
        HttpError: The request is malformed.
    """
    chat, messages = read_string(body, "id"), [_to_object(message) for message in read_list(body, "messages")]
    if not messages:
        raise HttpError(400, "messages must not be empty", "bad_messages", param="messages")
    keeps_running = read_flag(body, "keepRunning", default=False)
    last = messages[-1]
    tools = _parse_tools(body.get("tools"))
    if last.get("role") == "assistant":
        answers, results = dict(_find_answers(last)), dict(_find_results(last))
        if not answers and not results:
            message = "the last message must be the user's, or have decisions or results for calls that wait for them"
            raise HttpError(400, message, "bad_messages", param="messages")
        earlier = sum(message.get("role") == "user" for message in messages)
        return ChatRequest(
            chat, earlier=earlier, tools=tools, results=results, answers=answers, keeps_running=keeps_running
        )
    parts = [_to_part(part) for part in map(_to_object, read_list(last, "parts"))]
    before = messages[-2:-1]
    return ChatRequest(
        chat,
        content=parse_parts([part for part in parts if part]),
        earlier=sum(message.get("role") == "user" for message in messages[:-1]),
        tools=tools,
        results={id_: result for message in before for id_, result in _find_results(message)},
        replaces=bool(body.get("messageId")) and body.get("messageId") == last.get("id"),
        regenerates=body.get("trigger") == "regenerate-message",
        keeps_running=keeps_running,
    )


def _to_object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise HttpError(400, "messages and their parts must be objects", "bad_messages", param="messages")
    return value


def _to_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a user's message in the form of OpenAI's API; empty for parts that the model does not get."""
    match part.get("type"):
        case "text":
            return {"type": "text", "text": part.get("text")}
        case "file":
            return build_file_part(str(part.get("url")), str(part.get("mediaType")), str(part.get("filename") or ""))
        case _:
            return {}


def _parse_tools(tools: Any) -> tuple[ToolSpec, ...]:
    """Return the front end's tools: ``{name: {"description", "parameters"}}``."""
    if tools is None:
        return ()
    if not isinstance(tools, Mapping):
        raise build_error("tools", "must be an object of tools by their names")
    return collect_tools(_parse_tool(str(name), tool) for name, tool in tools.items())


def _parse_tool(name: str, tool: Any) -> ToolSpec:
    if not isinstance(tool, Mapping):
        raise build_error(f"tools.{name[:80]}", "must be an object")
    schema = tool.get("parameters") or tool.get("inputSchema")
    return parse_tool(name, tool.get("description"), schema, f"tools.{name[:80]}")


def _find_results(message: Mapping[str, Any]) -> Iterator[tuple[str, Message]]:
    """Yield the results of calls that the front end has run."""
    for part in map(_to_object, read_list(message, "parts")):
        if part.get("providerExecuted") or not isinstance(part.get("toolCallId"), str):
            continue
        if part.get("state") == "output-available":
            output = part.get("output")
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
            yield part["toolCallId"], Message(Role.TOOL, text)
        elif part.get("state") == "output-error":
            yield part["toolCallId"], Message(Role.TOOL, str(part.get("errorText") or ""), is_error=True)


def _find_answers(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in map(_to_object, read_list(message, "parts")):
        approval = part.get("approval")
        if part.get("state") != "approval-responded" or not isinstance(approval, Mapping):
            continue
        decision, reason = ("once" if approval.get("approved") is True else "deny"), approval.get("reason") or ""
        yield str(approval.get("id")), {"decision": decision, "reason": str(reason)}
