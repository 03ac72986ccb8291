"""Assertions about turns; their messages list the tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.messages.limits import StopReason
from dial_client.messages.turn_result import ToolCallRecord, Turn


def calls(turn: Turn) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the calls of a turn in order, with the names offered to the model: ``[("add", {"a": 1, "b": 2})]``."""
    return [(record.call.name, dict(record.call.arguments)) for record in turn.tool_calls]


def assert_called(turn: Turn, name: str, /, **arguments: Any) -> ToolCallRecord:
    """Check that a tool was called, and return the first such call with its result.

    Args:
        turn: The turn.
        name: The name that is offered to the model, or the tool's own name at its server.
        arguments: Arguments that the call must have; it may have other arguments too.

    Raises:
        AssertionError: There is no such call; the message lists all calls.
    """
    for record in _find_calls(turn, name):
        if all(key in record.call.arguments and record.call.arguments[key] == arguments[key] for key in arguments):
            return record
    with_arguments = f" with {arguments}" if arguments else ""
    raise AssertionError(f"{name} was not called{with_arguments}. {_describe_calls(turn)}")


def assert_not_called(turn: Turn, name: str, /) -> None:
    """Check that a tool was not called; a failed call counts as a call.

    Raises:
        AssertionError: The tool was called; the message lists all calls.
    """
    if _find_calls(turn, name):
        raise AssertionError(f"{name} was called. {_describe_calls(turn)}")


def assert_answered(turn: Turn) -> None:
    """Check that the model answered, and that no limit, refusal or cancellation ended the turn.

    Raises:
        AssertionError: The turn ended without an answer; the message has the reason, the text and the calls.
    """
    if turn.stop_reason is not StopReason.ANSWERED:
        raise AssertionError(
            f"the turn was not answered: {turn.stop_reason.sentence}. Text: {turn.text!r}. {_describe_calls(turn)}"
        )


def _find_calls(turn: Turn, name: str) -> list[ToolCallRecord]:
    return [record for record in turn.tool_calls if name in (record.call.name, record.tool)]


def _describe_calls(turn: Turn) -> str:
    if not turn.tool_calls:
        return "No tool was called."
    lines = [
        f"  {record.call.name}({', '.join(f'{key}={value!r}' for key, value in record.call.arguments.items())})"
        f"{'' if record.result.success else f' failed: {record.result.error}'}"
        for record in turn.tool_calls
    ]
    return "\n".join(["Calls:", *lines])
