"""The turn of a request of a model API: starts it, waits for it, and yields the parts of its answer.

A client sees one answer: this server executes the MCP servers' tool calls and sends the model as many requests as that
takes. A client's own tools are offered as well, and their calls are returned to the client. A client that disconnects
cancels its turn. No conversation is stored; the messages of a turn that returned calls are kept for a while. There is
no user to ask for approval: calls that need approval are denied.

Chat programs ask the model for titles, tags and follow-up questions, several times for each message of the person. With
tools, a model may call them again, and a call with a side effect would run several times: such a task gets the model
alone. A program that says so itself is safer than to recognize its texts: the name of a model with ``:plain``, or the
header ``X-Dial-Plain``.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio
from starlette.types import Receive

from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import OutputError
from dial_client.messages.events import (
    Event,
    Finished,
    ReasoningDelta,
    RoundStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, Role, ToolCallRequest
from dial_client.messages.model import ToolChoice
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.http_messages import HttpError
from dial_client.serve.model_api.answer_request import AnswerRequest, ShownActivity
from dial_client.serve.model_api.handoffs import HandoffStore
from dial_client.serve.sse_response import call_on_disconnect
from dial_client.serve.turns.turn_registry import TurnRegistry
from dial_client.stores.shared_values import SharedValues
from dial_client.turns.context_window import estimate_message_tokens, estimate_tool_tokens
from dial_client.turns.turn_handle import TurnHandle


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The next piece of the answer's text."""

    text: str
    separator: str = ""
    """The blank line between the text of a reply of the model and the text before it; empty within a reply."""


@dataclass(frozen=True, slots=True)
class AnswerReasoning:
    """The next piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of the answer."""

    turn: Turn
    calls: tuple[ToolCallRequest, ...]
    """The calls of the client's tools, under the client's names, with ids that are unique among all turns."""
    offset: int = 0
    """Characters of `AnswerText` before the text of the turn's last message."""


# The calls are those of the servers' tools, without the calls of the client's own tools.
AnswerPart = AnswerText | AnswerReasoning | ToolCallStarted | ToolCallFinished | AnswerEnd


# Characters of the arguments and of the error of a call that are shown.
_MAX_SHOWN = 200


class AnswerTurns:
    """Runs the turns of the requests of all model APIs.

    Args:
        dial: The client, entered.
        turns: The running turns of this process.
        values: Shares the turns that returned calls with other processes; None without a database.
    """

    def __init__(self, dial: DialClient, turns: TurnRegistry, values: SharedValues | None) -> None:
        self._dial = dial
        self._turns = turns
        self._handoffs = HandoffStore(values)

    async def start(self, request: AnswerRequest, owner: str) -> TurnHandle:
        """Start the turn of a request.

        Args:
            request: The request.
            owner: The person who sent it; empty if the service knows only one.

        Raises:
            HttpError: The server shuts down, or too many turns are running.
        """
        # With the choice `none` no tool is offered at all: a model that ignores the choice would call one, and it
        # would run.
        has_tools = request.settings.tool_choice != ToolChoice.NONE
        with self._turns.reserve(owner):
            turn = self._dial.start(
                await self._handoffs.restore(request.messages, owner),
                stream=request.stream,
                stream_events=request.stream,
                client_tools=request.tools if has_tools else (),
                observers=(self._turns,),
                tools=None if has_tools else [],
                hidden_tools=request.hidden_tools,
                settings=request.settings,
                output_type=request.schema,
                model=request.model.profile,
                owner=owner or None,
                plain=request.is_plain or request.model.is_plain or is_task_request(request.messages),
            )
            self._turns.add(turn)
        return turn

    def estimate_tokens(self, request: AnswerRequest) -> int:
        """Return a conservative estimate of the tokens of the first request to the model."""
        tokens = sum(estimate_tool_tokens(tool) for tool in request.tools)
        if request.is_plain or request.model.is_plain:
            return tokens + sum(map(estimate_message_tokens, request.messages))
        tools: list[Any] | None = [] if request.settings.tool_choice == ToolChoice.NONE else None
        return tokens + self._dial.measure_context(request.messages, model=request.model.profile, tools=tools).tokens

    async def wait(self, turn: TurnHandle, request: AnswerRequest, receive: Receive) -> list[AnswerPart]:
        """Return the parts of the answer, once it is complete. A client that disconnects cancels the turn.

        Raises:
            HttpError: The answer does not match the schema that the client requested.
            DialError: The turn failed.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(call_on_disconnect, receive, turn.cancel)
                with suppress(Exception):  # raised below: the task group would wrap it
                    await turn.result()
                group.cancel_scope.cancel()
        finally:
            await turn.stop()
        async with aclosing(self.read(turn, request)) as parts:
            return [part async for part in parts]

    async def read(self, turn: TurnHandle, request: AnswerRequest) -> AsyncGenerator[AnswerPart, None]:
        """Yield the parts of the answer as they arrive; the last one is an `AnswerEnd`. Stopping cancels the turn.

        Raises:
            HttpError: The answer does not match the schema that the client requested.
            DialError: The turn failed.
        """
        # With a schema only the answer is sent: with earlier text before it, the content would not be JSON.
        has_schema = request.schema is not None
        shows_calls = request.activity is ShownActivity.ALL
        length = 0
        is_new_round = False
        async with aclosing(_read_events(turn)) as events:
            async for event in events:
                match event:
                    case RoundStarted():
                        is_new_round = True
                    case TextDelta(text) if not has_schema:
                        separator = "\n\n" if is_new_round and length else ""
                        is_new_round = False
                        length += len(separator) + len(text)
                        yield AnswerText(text, separator)
                    case ReasoningDelta(text) if request.activity is not ShownActivity.NONE:
                        yield AnswerReasoning(text)
                    case ToolCallStarted() | ToolCallFinished() if shows_calls:
                        yield event
                    case Finished(result):
                        end = await self._end(result, request, turn.owner)
                        if has_schema and result.text:
                            length = len(result.text)
                            yield AnswerText(result.text)
                        yield replace(end, offset=max(0, length - len(result.text)))

    async def _end(self, turn: Turn, request: AnswerRequest, owner: str) -> AnswerEnd:
        if turn.stop_reason is StopReason.INVALID_OUTPUT:
            message = f"the model's answer does not satisfy the schema of response_format: {turn.notes[-1]}"
            raise HttpError(502, message, "invalid_output", param="response_format")
        names = {tool.name: tool.tool for tool in request.tools}
        calls = await self._handoffs.issue_calls(turn, owner)
        return AnswerEnd(turn, tuple(replace(call, name=names.get(call.name, call.name)) for call in calls))


def describe_call(event: ToolCallStarted | ToolCallFinished) -> str:
    """Return a line on the start or the failure of a call of a server's tool; empty for a success."""
    if isinstance(event, ToolCallStarted):
        name = f"{event.server}/{event.tool}" if event.server and event.tool else event.call.name
        arguments = event.call.unreadable or json.dumps(dict(event.call.arguments), ensure_ascii=False, default=str)
        return f"\n[{to_one_line(name, _MAX_SHOWN)} {to_one_line(arguments, _MAX_SHOWN)}]\n"
    if event.result.success:
        return ""
    return f"\n[failed: {to_one_line(event.result.error or '', _MAX_SHOWN)}]\n"


async def _read_events(turn: TurnHandle) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn. The last event is `Finished`, even if the answer does not match the schema."""
    try:
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event
    except OutputError as error:
        yield Finished(error.turn)


# The beginnings of instructions, by program: opencode, Crush, Qwen Code, Open WebUI.
_INSTRUCTIONS = re.compile(
    r"You are a title generator\. You output ONLY"
    r"|You will generate a short title based on the first message a user begins a conversation with"
    r"|You are selecting memories that will be useful to an AI coding assistant"
    r"|You are now acting as the managed memory extraction subagent"
    r"|You are performing a managed memory dream"
    r"|Generate a concise, sentence-case title \(3-7 words\) that captures what this programming-assistant session"
    r"|Generate a short kebab-case name \(2-4 words\) that captures the main topic of this conversation"
    r"|Available Tools: .{0,200000}?Your task is to choose and return the correct tool\(s\) from the list",
    re.DOTALL,
)
# The whole conversation of a task of Open WebUI is one message. That of a question about documents begins with
# "### Task:" too, but has no history of the chat in it.
_QUESTIONS = re.compile(
    r"### Task:\n(?=.*<chat_history>)"
    r"|Your task is to reflect the speaker's likely facial expression through a fitting emoji\."
    r"|You have been provided with a set of responses from various models to the latest user query:",
    re.DOTALL,
)


def is_task_request(messages: Sequence[Message]) -> bool:
    """Return whether a conversation is a task that a program gives the model, and not the turn of a person."""
    instructions = next((message.text for message in messages if message.role is Role.SYSTEM), "")
    if _INSTRUCTIONS.match(instructions.lstrip()):
        return True
    conversation = [message for message in messages if message.role is not Role.SYSTEM]
    return len(conversation) == 1 and bool(_QUESTIONS.match(conversation[0].text.lstrip()))
