"""The requests of AG-UI's `HttpAgent`: `RunAgentInput`.

Only the last message of the user is read, and results of the front end's tools: the service has the others. The model
reads the context of the front end and its state with the message, as untrusted text. It cannot change the state: tools
of the front end do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from dial_client.messages.message import Message, Role, ToolSpec
from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.added_contexts import MAX_CONTEXT, AddedContext, build_context
from dial_client.serve.front_ends.chat_request import ChatRequest, build_file_part, parse_parts
from dial_client.serve.http_messages import HttpError, read_flag, read_list, read_string
from dial_client.serve.model_api.answer_request import build_error, collect_tools, parse_tool
from dial_client.serve.model_api.message_parts import parse_content

_MAX_CONTEXTS, _MAX_NAME = 32, 200
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
    role = messages[-1].get("role") if messages else None
    if role not in ("user", "tool"):
        problem = "the last of messages must be the user's, or the result of a tool of the front end"
        raise HttpError(400, problem, "bad_messages", param="messages")
    earlier, question = (messages[:-1], messages[-1]) if role == "user" else (messages, None)
    results, (contexts, notes) = dict(_find_results(earlier)), _read_contexts(body)
    if question is None and not results:
        raise HttpError(400, "a message of the role tool must have a toolCallId", "bad_messages", param="messages")
    return ChatRequest(
        chat,
        run,
        content="" if question is None else parse_parts(_to_parts(question.get("content"))),
        earlier=sum(message.get("role") == "user" for message in earlier),
        tools=collect_tools(_parse_tools(read_list(body, "tools"))),
        results=results,
        keeps_running=keeps_running,
        contexts=contexts,
        notes=notes,
    )


def _parse_tools(tools: Sequence[Any]) -> Iterator[ToolSpec]:
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if not isinstance(tool, Mapping):
            raise build_error(path, "must be an object")
        yield parse_tool(tool.get("name"), tool.get("description"), tool.get("parameters"), path)


def _find_results(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Message]]:
    """Yield the results after the last message of the user; of two with one id the first counts."""
    latest = takewhile(lambda message: message.get("role") != "user", reversed(messages))
    for message in latest:
        id_ = message.get("toolCallId")
        if message.get("role") == "tool" and isinstance(id_, str):
            content, error = message.get("content"), message.get("error")
            content = parse_content(content if isinstance(content, str) else _to_parts(content), "messages")
            yield id_, Message(Role.TOOL, content or str(error or ""), is_error=bool(error))


def _read_contexts(body: Mapping[str, Any]) -> tuple[tuple[AddedContext, ...], tuple[str, ...]]:
    """Return the context and the state of the front end, and notes on what the model does not get of them."""
    texts: dict[str, str] = {}
    if state := body.get("state"):
        texts["state of the front end, which only the front end's own tools change"] = json.dumps(
            state, ensure_ascii=False
        )
    for at, entry in enumerate(read_list(body, "context")):
        name, value = (entry.get("description"), entry.get("value")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(name, str) or not isinstance(value, str):
            message = f"context[{at}] must have a description and a value, which are strings"
            raise HttpError(400, message, "bad_context", param="context")
        texts[f"context of the front end: {to_one_line(name, _MAX_NAME)}"] = value
    fitting = {name: text for name, text in texts.items() if text.strip() and len(text) <= MAX_CONTEXT}
    notes = [
        f"The model does not get the {name}: it has more than {MAX_CONTEXT:,} characters"
        for name, text in texts.items()
        if len(text) > MAX_CONTEXT
    ]
    if len(fitting) > _MAX_CONTEXTS:
        notes.append(f"The model gets only the first {_MAX_CONTEXTS} contexts of the front end")
    given = list(fitting.items())[:_MAX_CONTEXTS]
    return tuple(build_context("the front end", name, text) for name, text in given), tuple(notes)


def _to_parts(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a message in the form of OpenAI's API."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(_convert_parts(content))


def _convert_parts(content: Any) -> Iterator[dict[str, Any]]:
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
