"""The requests of AG-UI's `HttpAgent`: `RunAgentInput`.

Only the last message is read: the service has the others. The state of the front end, its tools and its context are
not: the model does not get them, and the status of the turn says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.front_ends.chat_request import ChatRequest, build_file_part, parse_parts
from dial_client.serve.http_messages import HttpError, read_flag, read_list, read_string

# What answers an approval that the front end cancelled.
_CANCELLED = {"decision": "deny", "reason": "the user cancelled the question", "action": "cancel"}


def parse_run_input(body: Mapping[str, Any]) -> ChatRequest:
    """Return what a run asks for.

    Raises:
        HttpError: The input is malformed.
    """
    chat, run = read_string(body, "threadId"), read_string(body, "runId")
    forwarded = body.get("forwardedProps")
    keeps_running = read_flag(forwarded if isinstance(forwarded, Mapping) else {}, "keepRunning", default=False)
    if answers := dict(map(_parse_answer, read_list(body, "resume"))):
        return ChatRequest(chat, run, answers=answers, keeps_running=keeps_running)
    messages = [message for message in read_list(body, "messages") if isinstance(message, Mapping)]
    if not messages or messages[-1].get("role") != "user":
        raise HttpError(400, "the last of messages must be the user's", "bad_messages", param="messages")
    content = messages[-1].get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(_to_parts(content))
    earlier = sum(message.get("role") == "user" for message in messages[:-1])
    notes = tuple(_find_unread(body))
    content = parse_parts(parts, "messages")
    return ChatRequest(chat, run, content=content, earlier=earlier, keeps_running=keeps_running, notes=notes)


def _find_unread(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the model does not get: a front end would wait for calls of its tools for ever."""
    if tools := read_list(body, "tools"):
        names = ", ".join(str(tool.get("name") if isinstance(tool, Mapping) else tool)[:80] for tool in tools[:10])
        more = f" and {len(tools) - 10} more" if len(tools) > 10 else ""
        yield f"The model does not get the tools of the front end: {to_one_line(names, 800)}{more}"
    if given := [name for name in ("state", "context") if body.get(name)]:
        yield f"The model does not get the {' and the '.join(given)} of the front end"


def _to_parts(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a user's message in the form of OpenAI's API."""
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        source = part.get("source") if isinstance(part, Mapping) else None
        if kind == "text":
            yield {"type": "text", "text": part.get("text")}
        elif isinstance(source, Mapping) and kind in ("image", "document"):
            mime_type, value = str(source.get("mimeType") or ""), source.get("value")
            url = f"data:{mime_type};base64,{value}" if source.get("type") == "data" else str(value)
            yield build_file_part(url, mime_type or f"{kind}/*")
        else:
            raise HttpError(400, "a part must be text, image or document", "bad_messages", param="messages")


def _parse_answer(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the id of an interrupt and its answer, which fits an approval and a question of a server."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("interruptId"), str):
        raise HttpError(400, "an entry of resume must have an interruptId", "bad_resume", param="resume")
    if entry.get("status") == "cancelled":
        return entry["interruptId"], _CANCELLED
    payload = entry.get("payload")
    given = payload if isinstance(payload, Mapping) else {"approved": payload}
    decision = given.get("decision") or ("once" if given.get("approved") is True else "deny")
    answer = {
        "decision": decision if given.get("approved") is not False else "deny",
        "reason": given.get("reason") or "",
        "arguments": given.get("editedArgs"),
        "action": "accept",
        "content": given,
    }
    return entry["interruptId"], answer
