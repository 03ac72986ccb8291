"""Test a program without a model: its replies are scripted, the rest is real. ``pytest examples/program_test.py``."""

from dial_client import DialClient
from dial_client.testing import ScriptedProvider, assert_called


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_the_model_adds_with_the_function() -> None:
    call = {"name": "add", "arguments": {"a": 17, "b": 25}}
    model = ScriptedProvider([{"tool_calls": [call]}, "It is 42."])
    turn = DialClient(model, tools=[add]).run_sync("What is 17 + 25?")
    assert_called(turn, "add", a=17, b=25)
    assert turn.tool_calls[0].result.content == "42"
    assert turn.text == "It is 42."
