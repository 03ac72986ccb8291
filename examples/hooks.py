"""Run your code around turns and tool calls: hide e-mail addresses from the model, and limit the tokens of users."""

import os
import re
from dataclasses import replace

from dial_client import DialClient, ToolCallResult, Turn
from dial_client.extend import CallNext, Middleware, ToolCall, TurnRequest, refuse

MODEL = os.environ.get("DIAL_MODEL", "local")


class Redaction(Middleware):
    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        result = await call_next(call)
        return replace(result, content=re.sub(r"\S+@\S+", "[address]", str(result.content)))


class Budget(Middleware):
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    async def around_turn(self, request: TurnRequest, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        if self.tokens <= 0:
            refuse("The tokens of today are used up.")
        turn = await call_next(request)
        self.tokens -= turn.usage.input_tokens + turn.usage.output_tokens
        return turn


def find_customer(name: str) -> str:
    """Find a customer."""
    return f"{name}, ada@example.com, since 2019"


dial = DialClient(MODEL, tools=[find_customer], middleware=[Budget(10), Redaction()])
turn = dial.run_sync("Since when is Ada a customer?")
print(turn.tool_calls[0].result.content, turn.text, dial.run_sync("And Bob?").text, sep="\n")
