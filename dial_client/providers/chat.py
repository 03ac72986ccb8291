"""Chat Completions: OpenAI's older wire, and everybody else's.

The shape of requests and answers: https://platform.openai.com/docs/api-reference/chat. What endpoints make of it is
another matter: see `chat_reply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from dial_client.messages import ImagePart, Message, Part, TextPart, ToolCallRequest, ToolSpec
from dial_client.model import ModelRequest, ToolChoice
from dial_client.providers.calls import json_text
from dial_client.providers.chat_reply import ChatReply
from dial_client.providers.exchange import HttpProvider
from dial_client.providers.history import Asked, Result, Said, tidy, without_images
from dial_client.providers.profile import CHAT, Profile

NO_ANSWER = "(no answer)"

_ANY_ID = r"[!-~]{1,40}"
_SHORT_ID = r"[a-zA-Z0-9]{9}"


class ChatProvider(HttpProvider):
    """Asks an endpoint that speaks OpenAI's chat completions."""

    wire = "chat"

    def _path(self) -> str:
        return "/chat/completions"

    def _reply(self) -> ChatReply:
        return ChatReply(self._lessons.profile)

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        function: dict[str, Any] = {"name": tool.name, "parameters": dict(tool.input_schema)}
        if tool.description:
            function["description"] = tool.description
        if self._lessons.profile.strict:
            function["strict"] = True
        return {"type": "function", "function": function}

    def _fields(self, request: ModelRequest, *, has_tools: bool) -> dict[str, Any]:
        profile = self._lessons.profile
        fields: dict[str, Any] = {"model": self.model, "messages": to_wire(request.messages, self.name, profile)}
        fields["stream"] = request.stream
        if request.stream and profile.stream_usage:
            fields["stream_options"] = {"include_usage": True}
        if has_tools and request.tool_choice is ToolChoice.NONE:
            fields["tool_choice"] = "none"
        if has_tools and profile.parallel != "omit":
            fields["parallel_tool_calls"] = profile.parallel == "send_true"
        if request.stop:
            fields["stop"] = list(request.stop)
        if limit := self._limit(request):
            fields[profile.max_tokens_field] = limit
        return fields | self._sampled()


class DialProvider(ChatProvider):
    """Asks a DIAL core, where each model is a deployment with a path of its own, as at Azure."""

    def _path(self) -> str:
        return f"/openai/deployments/{quote(self.model, safe='')}/chat/completions"


def to_wire(messages: Sequence[Message], provider_name: str, profile: Profile = CHAT) -> list[dict[str, Any]]:
    """Give the conversation as ``messages``: valid whatever it is.

    Args:
        messages: any messages.
        provider_name: whose echoes go back.
        profile: what the endpoint takes.
    """
    instructions, steps = tidy(messages, provider_name, _SHORT_ID if profile.short_ids else _ANY_ID)
    wire: list[dict[str, Any]] = []
    if instructions:
        wire.append({"role": "system", "content": instructions})
    for step in steps:
        if isinstance(step, Asked):
            _add_user(wire, _content(step.parts, images=profile.images), profile)
            continue
        _add_assistant(wire, _assistant(step, profile))
        wire.extend(_tool_messages(step, profile))
        if profile.images and profile.user_after_tool and (images := _shown_apart(step)):
            _add_user(wire, images, profile)
    return wire


def _content(parts: Sequence[Part], *, images: bool) -> str | list[dict[str, Any]]:
    if not images or not any(isinstance(part, ImagePart) for part in parts):
        return without_images(parts)
    return [_part(part) for part in parts]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}


def _assistant(step: Said, profile: Profile) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.calls:
        extras = _echoed(step, "calls") if profile.echo_call_extra else {}
        message["tool_calls"] = [
            _call(call, extras.get(asked_as)) for call, asked_as in zip(step.calls, step.asked_as, strict=True)
        ]
    if profile.echo_reasoning == "always" or (profile.echo_reasoning == "tool_turns" and step.calls):
        message |= _echoed(step, "reasoning")
    if profile.reasoning_field and step.calls:
        message.setdefault(profile.reasoning_field, "")
    return message | _echoed(step, "message")


def _echoed(step: Said, part: str) -> dict[str, Any]:
    found = step.echo.get(part) if isinstance(step.echo, dict) else None
    return found if isinstance(found, dict) else {}


def _call(call: ToolCallRequest, extra: Any) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json_text(call.arguments)}
    return (extra if isinstance(extra, dict) else {}) | {"id": call.id, "type": "function", "function": function}


def _tool_messages(step: Said, profile: Profile) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": call.id, "content": _result(result, profile)}
        for call, result in zip(step.calls, step.results, strict=True)
    ]


def _result(result: Result, profile: Profile) -> str | list[dict[str, Any]]:
    """Give what a tool message can hold, which is text: an image is shown right behind the results, or described."""
    text = result.text
    if result.images:
        if profile.images and profile.user_after_tool:
            note = f"[{len(result.images)} image(s): shown below]"
        else:
            note = without_images(result.images)
        text = f"{text}\n{note}" if any(isinstance(part, TextPart) for part in result.parts) else note
    return [{"type": "text", "text": text}] if profile.tool_content == "parts" else text


def _shown_apart(step: Said) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for call, result in zip(step.calls, step.results, strict=True):
        if result.images:
            shown.append({"type": "text", "text": f"[the result of {call.name}:]"})
            shown.extend(_part(image) for image in result.images)
    return shown


def _add_user(wire: list[dict[str, Any]], content: str | list[dict[str, Any]], profile: Profile) -> None:
    """Add what a person says; to the message before, if that is theirs too: many templates want turns to alternate."""
    if wire and wire[-1]["role"] == "tool" and not profile.user_after_tool:
        wire.append({"role": "assistant", "content": NO_ANSWER})
    if wire and wire[-1]["role"] == "user":
        wire[-1]["content"] = _both(wire[-1]["content"], content)
    else:
        wire.append({"role": "user", "content": content})


def _add_assistant(wire: list[dict[str, Any]], message: dict[str, Any]) -> None:
    before = wire[-1] if wire else {}
    if before.get("role") == "assistant" and "tool_calls" not in before:
        text = "\n\n".join(text for text in (before["content"], message["content"]) if text)
        wire[-1] = message | {"content": text or None}
    else:
        wire.append(message)


def _both(one: Any, other: Any) -> Any:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    lists = ([{"type": "text", "text": said}] if isinstance(said, str) else said for said in (one, other))
    return [part for said in lists for part in said]
