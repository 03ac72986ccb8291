"""What a front end asks for, whichever its protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.conversations.client_calls import ClientCalls
from dial_client.messages.message import Content, Message, ToolSpec
from dial_client.serve.added_contexts import AddedContext
from dial_client.serve.http_messages import HttpError
from dial_client.serve.model_api.message_parts import parse_content
from dial_client.sinks.turn_frames import build_call_id


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A message in a chat, or the answers to what the chat's turn waits for."""

    chat: str
    """The id of the chat, which the front end has chosen."""
    run: str = ""
    """The id of the request; empty if the protocol has none."""
    content: Content = ""
    """The new message of the user."""
    earlier: int = 0
    """The number of the user's messages before it that the front end has."""
    replaces: bool = False
    """Whether the message is a new version of an earlier one."""
    regenerates: bool = False
    """Whether the message is there already, and gets a new answer."""
    tools: tuple[ToolSpec, ...] = ()
    """The front end's own tools. `ToolSpec.tool` is the name that the front end uses, `ToolSpec.name` the model's."""
    results: Mapping[str, Message] = field(default_factory=dict)
    """What can be results of calls of these tools, by the ids under which the calls were shown."""
    contexts: tuple[AddedContext, ...] = ()
    """What the front end shows the user, for the model to read with the message."""
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The answers, by the ids that `turn_frames.Waiting` gave the requests: ``decision`` or ``action``, and more."""
    keeps_running: bool = False
    """Whether the turn goes on when the front end closes the connection, which else stops the turn."""
    notes: tuple[str, ...] = ()
    """What of the request has no effect, for the status of the turn."""

    @property
    def tool_names(self) -> Mapping[str, str]:
        """The front end's names of its tools, by the model's names, for those that differ."""
        return {tool.name: tool.tool for tool in self.tools if tool.name != tool.tool}

    def select_results(self, calls: ClientCalls | None) -> tuple[Message, ...]:
        """Return the results of these calls."""
        if calls is None:
            return ()
        shown = {call.id: self.results.get(build_call_id(calls.turn, calls.depth, call.id)) for call in calls.calls}
        return tuple(replace(result, tool_call_id=id_) for id_, result in shown.items() if result is not None)


def parse_parts(parts: Sequence[Mapping[str, Any]]) -> Content:
    """Parse the parts of a message, in the form of OpenAI's API; one text alone is a string.

    Raises:
        HttpError: They are not valid, or empty.
    """
    content = parse_content(parts, "messages")
    if not content:
        raise HttpError(400, "messages must not be empty", "empty_message", param="messages")
    is_text = len(parts) == 1 and parts[0].get("type") == "text"
    return str(parts[0]["text"]) if is_text else content


def build_file_part(url: str, mime_type: str, name: str = "") -> dict[str, Any]:
    """Return an image or a file in the form of OpenAI's API."""
    if mime_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url, "filename": name}}
