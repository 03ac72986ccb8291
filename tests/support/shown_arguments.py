"""The arguments of a call as the terminal shows them, for tests that compare them with the page."""

from __future__ import annotations

from tests.inner import ToolCallRequest, format_argument


def format_arguments(call: ToolCallRequest) -> str:
    return "\n".join(line for name, value in call.arguments.items() for line in format_argument(str(name), value))
