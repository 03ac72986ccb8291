"""The requests of the AI SDK's `DefaultChatTransport`: a chat with all its messages (`UIMessage`).

Only the last message is read: the service has the others. If it is the assistant's, its calls have the answers of the
user, and the turn goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.serve.front_ends.chat_request import ChatRequest, build_file_part, parse_parts
from dial_client.serve.http_messages import HttpError, read_flag, read_list, read_string


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
    if last.get("role") == "assistant":
        answers = dict(_find_answers(last))
        if not answers:
            message = "the last message must be the user's, or have decisions about calls that wait for approval"
            raise HttpError(400, message, "bad_messages", param="messages")
        return ChatRequest(chat, answers=answers, keeps_running=keeps_running)
    parts = [_to_part(part) for part in map(_to_object, read_list(last, "parts"))]
    return ChatRequest(
        chat,
        content=parse_parts([part for part in parts if part], "messages"),
        earlier=sum(message.get("role") == "user" for message in messages[:-1]),
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


def _find_answers(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in map(_to_object, read_list(message, "parts")):
        approval = part.get("approval")
        if part.get("state") != "approval-responded" or not isinstance(approval, Mapping):
            continue
        decision, reason = ("once" if approval.get("approved") is True else "deny"), approval.get("reason") or ""
        yield str(approval.get("id")), {"decision": decision, "reason": str(reason)}
