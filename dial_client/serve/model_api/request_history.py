"""The conversation in a request of a model API whose answers show the calls of the servers' tools.

Clients send back what they were shown. A shown call becomes a round of its own: the call and its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dial_client.messages.message import Content, Message, Part, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.serve.model_api.answer_request import to_tool_name
from dial_client.serve.model_api.handoffs import SHOWN_CALL

# Shown as the server of a tool that is the host's own.
HOST = "dial-client"


class RequestHistory:
    """Builds the messages of a conversation from the pieces of a request.

    Args:
        server_tools: The tools of the servers.
    """

    def __init__(self, server_tools: Sequence[ToolSpec]) -> None:
        self._offered = {(tool.server or HOST, tool.tool): tool.name for tool in server_tools}
        self._messages: list[Message] = []
        self._reply: list[Part] = []
        self._calls: list[ToolCallRequest] = []
        self._shown = 0

    def add_message(self, message: Message) -> None:
        """Add a message that is not the model's."""
        self._end_reply()
        self._messages.append(message)

    def add_reply(self, content: Content) -> None:
        """Add content of the model's reply."""
        parts = (TextPart(content),) if isinstance(content, str) else content
        if self._reply and parts:
            self._reply.append(TextPart("\n\n"))
        self._reply += parts

    def add_call(self, call: ToolCallRequest) -> None:
        """Add a call of one of the client's own tools to the model's reply."""
        self._calls.append(call)

    def add_result(self, call_id: str, content: Content, *, is_error: bool = False) -> None:
        """Add the result of a call of one of the client's own tools."""
        self.add_message(Message(Role.TOOL, content, tool_call_id=call_id, is_error=is_error))

    def add_shown_call(
        self, server: str, tool: str, arguments: Mapping[str, Any], result: Content, *, is_error: bool
    ) -> None:
        """Add a call of a server's tool that the client was shown, with its result.

        The tool's name decides whether the result counts as untrusted, as in all histories of other programs.
        """
        if self._calls:
            self._end_reply()
        name = self._offered.get((server, tool)) or to_tool_name(tool)
        # The same ids in each request of a conversation: prompt caches need an unchanged beginning.
        self._shown += 1
        call = ToolCallRequest(f"{SHOWN_CALL}{self._shown}", name, arguments)
        self._calls.append(call)
        self._end_reply()
        self._messages.append(Message(Role.TOOL, result, tool_call_id=call.id, name=name, is_error=is_error))

    def build(self) -> tuple[Message, ...]:
        """Return the messages."""
        self._end_reply()
        return tuple(self._messages)

    def _end_reply(self) -> None:
        if not self._reply and not self._calls:
            return
        texts = [part.text for part in self._reply if isinstance(part, TextPart)]
        is_text = len(texts) == len(self._reply)
        content: Content = "".join(texts) if is_text else tuple(self._reply)
        self._messages.append(Message(Role.ASSISTANT, content, tuple(self._calls)))
        self._reply, self._calls = [], []
