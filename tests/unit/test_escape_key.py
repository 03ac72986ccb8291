"""Esc on the screen: alone it acts as soon as it can be no other key; before another key it is Alt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.application.current import set_app
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding import KeyBindings, KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput

from tests.inner import SEQUENCE, LiveApplication, QuestionLine

ESC, CTRL_X = KeyPress(Keys.Escape, "\x1b"), KeyPress(Keys.ControlX, "\x18")


@pytest.mark.parametrize(
    ("keys", "pressed", "seconds"),
    [
        ([ESC], [], 0.0),
        ([ESC, KeyPress("b", "b")], ["alt-b"], SEQUENCE),
        ([CTRL_X], [], SEQUENCE),
        ([CTRL_X, ESC], [], SEQUENCE),
    ],
)
def test_esc_alone_waits_for_no_further_key(keys: list[KeyPress], pressed: list[str], seconds: float) -> None:
    made: list[str] = []
    bindings = KeyBindings()
    bindings.add("escape")(lambda _: made.append("esc"))
    bindings.add("escape", "b")(lambda _: made.append("alt-b"))
    bindings.add("c-x", "escape", "b")(lambda _: made.append("never"))

    async def press() -> float:
        with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
            question = QuestionLine(lambda _: None, lambda: None)
            application: Any = LiveApplication(lambda: "", lambda: "", None, question, bindings)
            with set_app(application):
                application.key_processor.feed_multiple(keys)
                application.key_processor.process_keys()
            return float(application.timeoutlen)

    assert asyncio.run(press()) == seconds
    assert made == pressed
