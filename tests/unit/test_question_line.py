"""A question in place of the input line: which keys answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import DummyOutput

from dial_client.cli.terminal.question_line import QUIET, Question, QuestionLine
from dial_client.cli.tty import Unanswered

KEYS = {"y": "yes", "n": "no"}


class Desk:
    """A question line with a keyboard, and a clock that moves when it is told to."""

    def __init__(self, keyboard: PipeInput) -> None:
        self.strays: list[str] = []
        self.now = 100.0
        self.line = QuestionLine(self.strays.append, lambda: None, lambda: self.now)
        self.keyboard = keyboard
        self.app: Application[None] = Application(
            Layout(self.line.container), key_bindings=self.line.key_bindings, input=keyboard, output=DummyOutput()
        )
        self.app.key_processor.before_key_press += lambda _: self.line.note_key()

    async def type(self, keys: str) -> None:
        """Type keys, and wait until the first of them was read: in this test all are read at once."""
        pressed = asyncio.Event()
        self.app.key_processor.after_key_press += lambda _: pressed.set()
        self.keyboard.send_text(keys)
        await pressed.wait()


def at_a_desk(work: Callable[[Desk], Awaitable[None]]) -> Desk:
    """Run `work` while the application reads the keys."""
    desks: list[Desk] = []

    async def main() -> None:
        with create_pipe_input() as keyboard:
            desk = Desk(keyboard)
            desks.append(desk)
            running = asyncio.ensure_future(desk.app.run_async())
            await work(desk)
            desk.app.exit()
            await running

    asyncio.run(asyncio.wait_for(main(), 20))
    return desks[0]


def test_keys_with_long_meanings_are_only_named_behind_the_question() -> None:
    async def work(desk: Desk) -> None:
        question = Question("Run it? ", dict.fromkeys("ynq", "a meaning that is explained above"))
        answer = asyncio.ensure_future(desk.line.ask(question))
        await desk.type("x")
        assert question.hint == "press y, n, q"
        desk.now += QUIET
        await desk.type("y")
        assert await answer == "y"

    at_a_desk(work)


def test_a_key_answers_and_unknown_keys_ask_again() -> None:
    async def work(desk: Desk) -> None:
        question = Question("Run it? ", KEYS)
        answer = asyncio.ensure_future(desk.line.ask(question))
        await desk.type("x")
        assert question.hint == "press y (yes), n (no)"
        await desk.type("y")
        assert not answer.done(), "x was perhaps the first key of a message"
        desk.now += QUIET
        await desk.type("\x1b[200~y\x1b[201~")
        assert not answer.done(), "a paste is no answer"
        desk.now += QUIET
        await desk.type("Y")
        assert await answer == "y"

    assert at_a_desk(work).strays == ["y", "y"]


def test_somebody_who_is_typing_does_not_answer() -> None:
    async def work(desk: Desk) -> None:
        desk.line.note_key()
        desk.now += QUIET / 4
        answer = asyncio.ensure_future(desk.line.ask(Question("Run it? ", KEYS)))
        await asyncio.sleep(0)
        for key in "my\r":
            desk.now += QUIET / 2
            await desk.type(key)
        assert not answer.done()
        desk.now += QUIET
        await desk.type("n")
        assert await answer == "n"

    assert at_a_desk(work).strays == ["m", "y"]


def test_the_question_of_a_command_takes_keys_at_once_but_not_those_of_a_message() -> None:
    async def work(desk: Desk) -> None:
        for answered in (True, False):
            desk.line.note_key()
            desk.line.begin_command()
            if not answered:
                desk.line.begin_dialog()
            answer = asyncio.ensure_future(desk.line.ask(Question("Replace it? ", KEYS)))
            await asyncio.sleep(0)
            await desk.type("n")
            await asyncio.sleep(0)
            assert answer.done() is answered
        answer.cancel()

    assert at_a_desk(work).strays == ["n"]


def test_a_list_takes_arrows_and_letters_at_once_and_esc_leaves_it() -> None:
    async def work(desk: Desk) -> None:
        heard: list[str | int] = []
        desk.line.note_key()
        chosen = asyncio.ensure_future(desk.line.ask(Question("Which?", on_text=heard.append, on_move=heard.append)))
        await asyncio.sleep(0)
        await desk.type("to\x1b[B\x10\r")
        assert await chosen == "to"
        assert heard == ["t", "to", 1, -1]
        left = asyncio.ensure_future(desk.line.ask(Question("Which?", on_text=heard.append, on_move=heard.append)))
        await asyncio.sleep(0)
        await desk.type("\x1b")
        with pytest.raises(Unanswered):
            await left

    assert at_a_desk(work).strays == []


def test_a_line_answers_with_enter_and_ctrl_d_with_nothing() -> None:
    async def work(desk: Desk) -> None:
        line = asyncio.ensure_future(desk.line.ask(Question("Why? "), "because "))
        await asyncio.sleep(0)
        desk.line.buffer.cursor_position = len("because ")
        await desk.type("of you\r")
        assert await line == "because of you"
        nothing = asyncio.ensure_future(desk.line.ask(Question("Run it? ", KEYS)))
        await desk.type("\x04")
        with pytest.raises(Unanswered):
            await nothing

    at_a_desk(work)
