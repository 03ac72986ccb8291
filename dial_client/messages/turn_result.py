"""The result of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from dial_client.messages.citations import Citation
from dial_client.messages.limits import StopReason
from dial_client.messages.mcp_apps import App
from dial_client.messages.message import (
    Failure,
    Message,
    PendingApproval,
    ToolCallRequest,
    ToolCallResult,
    content_to_json,
    describe_content,
    find_agent,
    find_pending_approvals,
)
from dial_client.messages.token_usage import Usage
from dial_client.runtime.foreign_names import refuse_attributes
from dial_client.runtime.value_summary import ValueSummary

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT_co = TypeVar("OutputT_co", default=object, covariant=True)
else:
    from typing import TypeVar

    OutputT_co = TypeVar("OutputT_co", covariant=True)

_NO_OUTPUT: Any = None
# The fields of a `ToolCallRecord` in JSON that are those of its result.
_RESULT_FIELDS = ("content", "error", "failure", "taint", "app", "pending", "citations")


@refuse_attributes(
    name="`record.tool`, or `record.call.name` as the model knows it",
    args="`record.arguments`",
    output="`record.result.content`",
    content="`record.result.content`",
)
@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One call of a turn, with its result."""

    call: ToolCallRequest
    result: ToolCallResult
    server: str
    """The server's name in the configuration; empty for a tool that no server offers."""
    tool: str
    """The tool's own name at that server. If a middleware changed the tool, `server` and `tool` name the tool that ran,
    and `call` has the name that the model called."""
    duration: float
    """The duration of the call in seconds, rounded to 0.1 ms, without the wait for approval."""
    by_endpoint: bool = False
    """Whether the model's endpoint ran the tool itself; `server` is then its name."""
    changed_arguments: Mapping[str, Any] | None = None
    """The arguments the call ran with, if an approver or a middleware has changed those of `call`; else None."""
    parent: str = ""
    """The id of the call that made this one, as in `ToolCallStarted`; empty for a call of the model."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments the call ran with."""
        return self.call.arguments if self.changed_arguments is None else self.changed_arguments

    def to_cells(self) -> tuple[str, str, str, str]:
        """Return the cells of a table: the tool, the arguments as JSON, the result's text, and the seconds."""
        name = f"{self.server}/{self.tool}" if self.server and self.tool else self.call.name
        text = describe_content(self.result.content)
        text_of_model = self.call.unreadable if self.changed_arguments is None else None
        arguments = text_of_model or json.dumps(dict(self.arguments), ensure_ascii=False, default=str)
        return name, arguments, text if self.result.success else f"failed: {text}", f"{self.duration:.2f}"

    @property
    def exception(self) -> BaseException | None:
        """The exception that made the call fail, as in `ToolCallResult.exception`."""
        return self.result.exception

    @property
    def denied(self) -> bool:
        """True if the call was not allowed."""
        return self.result.failure is Failure.DENIED

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON types, without empty fields; `from_dict` builds an equal record from it."""
        call, result = self.call, self.result
        rare = {
            "error": result.error,
            "failure": result.failure and result.failure.value,
            "taint": result.taint or None,
            "app": result.app and result.app.to_dict(),
            "pending": result.pending and result.pending.to_dict(),
            "citations": [citation.to_dict() for citation in result.citations] or None,
            "unreadable": call.unreadable,
            "tool_call_id": None if result.tool_call_id == call.id else result.tool_call_id,
            "by_endpoint": self.by_endpoint or None,
            "changed_arguments": None if self.changed_arguments is None else dict(self.changed_arguments),
            "parent": self.parent or None,
        }
        return {
            "id": call.id,
            "name": call.name,
            "server": self.server,
            "tool": self.tool,
            "arguments": dict(call.arguments),
            "is_error": not result.success,
            "content": content_to_json(result.content),
            "duration_s": self.duration,
            **{name: value for name, value in rare.items() if value is not None},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCallRecord:
        """Build a record from the form of `to_dict`.

        Raises:
            ValueError: `data` is not the record of a call.
        """
        try:
            changed = data.get("changed_arguments")
            result = {
                "tool_call_id": data.get("tool_call_id", data["id"]),
                "success": data["is_error"] is False,
                **{name: data[name] for name in _RESULT_FIELDS if name in data},
            }
            return cls(
                ToolCallRequest.from_dict(data),
                ToolCallResult.from_dict(result),
                server=str(data["server"]),
                tool=str(data["tool"]),
                duration=float(data["duration_s"]),
                by_endpoint=data.get("by_endpoint") is True,
                changed_arguments=None if changed is None else dict(changed),
                parent=str(data.get("parent", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the record of a call: {error!r}") from error


@refuse_attributes(
    final_output="`turn.text`, or `turn.output` with output_type",
    data="`turn.text`, or `turn.output` with output_type",
    content="`turn.text`",
    response="`turn.text`",
    new_items="`turn.messages`",
    all_messages="`turn.messages`",
    new_messages="`turn.messages`",
    cost="`turn.cost_usd`",
)
@dataclass(frozen=True, slots=True)
class Turn(Generic[OutputT_co]):
    """The result of one turn: its last message, and all messages and calls that led to it."""

    message: Message
    """The last message: an answer, or the text so far and the reason why the turn stopped."""
    messages: tuple[Message, ...]
    """All messages of this turn, in order: the question (the user's message, or the results of client-side tools), and
    the messages that the turn added. Appended to the conversation before the question, they form a valid history."""
    stop_reason: StopReason
    depth: int
    """Number of rounds of tool calls."""
    usage: Usage
    """The tokens of all requests to the model together, with those of turns that functions of the turn ran."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences for the user about what deviates: missing servers, tools that are not offered, shortened results."""
    request_usages: tuple[Usage, ...] = ()
    """The tokens of each request to the model, in the order of the requests."""
    cost_usd: float | None = None
    """The price of all requests in US dollars; None if it is unknown (see `prices`)."""
    client_tool_calls: tuple[ToolCallRequest, ...] = ()
    """Calls of client-side tools, for the caller to answer (`StopReason.CLIENT_TOOL_CALLS`); also in `messages`."""
    output: OutputT_co = _NO_OUTPUT
    """The answer as a value of the turn's ``output_type``; `text` is the same value as JSON. None without an
    ``output_type``, and if the turn ended without a valid answer."""

    @property
    def text(self) -> str:
        """The text of `message`."""
        return self.message.text

    @property
    def agent(self) -> str:
        """The agent that has the conversation after the turn (`Agent.handoff`); empty for the model of the turn."""
        return find_agent(self.messages)

    @property
    def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for approval, in the order of the calls; empty unless `stop_reason` says so.

        Of the waiting calls of a program (code mode) the first alone: the next is here after `resume` with its answer.
        """
        return find_pending_approvals(self.messages)

    @property
    def apps(self) -> tuple[App, ...]:
        """The MCP Apps of the calls, with their results; empty if the client does not show apps."""
        return tuple(record.result.app for record in self.tool_calls if record.result.app is not None)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of `text`, with the spans of `text` that they support; last those that functions cited."""
        return self.message.citations

    def usage_to_dict(self) -> dict[str, Any]:
        """Return the counts of `usage` and of each request, and ``cost_usd``, which is None if it is unknown."""
        rounds = [usage.to_dict() for usage in self.request_usages]
        return {**self.usage.to_dict(), "rounds": rounds, "cost_usd": self.cost_usd}

    def without_kept(self) -> Turn[OutputT_co]:
        """Return the turn without the names of its programs, as `Message.without_kept`, for others than its store."""
        return replace(self, messages=tuple(message.without_kept() for message in self.messages))

    def to_dict(self) -> dict[str, Any]:
        """Return the turn in JSON types, as in the output of ``dial-chat --output json``.

        `from_dict` builds an equal turn from it. ``message`` is included only if it is not the last of ``messages``.
        """
        client_tool_calls = [call.to_dict() for call in self.client_tool_calls]
        citations = [citation.to_dict() for citation in self.citations]
        is_last = bool(self.messages) and self.messages[-1] == self.message
        return {
            "text": self.text,
            "stop_reason": self.stop_reason.value,
            "depth": self.depth,
            "usage": self.usage_to_dict(),
            "tool_calls": [record.to_dict() for record in self.tool_calls],
            "messages": [message.to_dict() for message in self.messages],
            "notes": list(self.notes),
            **({} if is_last else {"message": self.message.to_dict()}),
            **({"citations": citations} if citations else {}),
            **({"client_tool_calls": client_tool_calls} if client_tool_calls else {}),
            **({"output": output_to_json(self.output)} if self.output is not None else {}),
        }

    def __rich__(self) -> Any:
        return self._summarize().to_rich()

    def _repr_html_(self) -> str:
        return self._summarize().to_html()

    def _summarize(self) -> ValueSummary:
        counts = [f"{self.depth} {'round' if self.depth == 1 else 'rounds'}"] if self.depth else []
        tokens = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out"
        cost = [] if self.cost_usd is None else [f"${self.cost_usd:.4f}"]
        reason = self.stop_reason.value.replace("_", " ")
        return ValueSummary(
            text=self.text,
            columns=("tool", "arguments", "result", "seconds"),
            rows=tuple(record.to_cells() for record in self.tool_calls),
            footer=" · ".join([reason, *counts, tokens, *cost, *self.notes]),
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Turn:
        """Build a turn from the form of `to_dict`. Unknown fields are ignored; `output` consists of JSON types.

        Raises:
            ValueError: `data` is not a turn.
        """
        try:
            messages = tuple(Message.from_dict(message) for message in data["messages"])
            usage = data["usage"]
            cost = usage.get("cost_usd")
            output: Any = data.get("output")
            return cls(
                message=Message.from_dict(data["message"]) if "message" in data else messages[-1],
                messages=messages,
                stop_reason=StopReason(data["stop_reason"]),
                depth=int(data["depth"]),
                usage=Usage.from_dict(usage),
                tool_calls=tuple(ToolCallRecord.from_dict(record) for record in data["tool_calls"]),
                notes=tuple(str(note) for note in data["notes"]),
                request_usages=tuple(Usage.from_dict(request) for request in usage["rounds"]),
                cost_usd=None if cost is None else float(cost),
                client_tool_calls=tuple(ToolCallRequest.from_dict(call) for call in data.get("client_tool_calls", ())),
                output=output,
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"not a turn: {error!r}") from error


def output_to_json(output: Any) -> Any:
    """Return a typed answer, such as a pydantic model or a dataclass, in JSON types only."""
    try:
        return json.loads(json.dumps(output))
    except TypeError:
        from pydantic_core import to_jsonable_python

    return to_jsonable_python(output, by_alias=True, fallback=str)
