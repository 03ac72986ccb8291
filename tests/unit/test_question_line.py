"""A question in place of the input line, and the keys that answer the question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import DummyOutput

from tests.inner import QUIET, Question, QuestionLine, Unanswered

KEYS = {"y": "yes", "n": "no"}


class Harness:
    """A question line with a keyboard, and a clock that the test moves."""

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
        """Type keys, and wait until they are read; the application reads all of them at once."""
        pressed = asyncio.Event()
        self.app.key_processor.after_key_press += lambda _: pressed.set()
        self.keyboard.send_text(keys)
        await pressed.wait()


def run_with_keyboard(work: Callable[[Harness], Awaitable[None]]) -> Harness:
    """Run `work` while the application reads the keys."""
    harnesses: list[Harness] = []

    async def main() -> None:
        with create_pipe_input() as keyboard:
            harness = Harness(keyboard)
            harnesses.append(harness)
            running = asyncio.ensure_future(harness.app.run_async())
            await work(harness)
            harness.app.exit()
            await running

    asyncio.run(asyncio.wait_for(main(), 20))
    return harnesses[0]


def test_keys_with_long_meanings_are_named_without_their_meanings() -> None:
    async def work(harness: Harness) -> None:
        question = Question("Run it? ", dict.fromkeys("ynq", "a meaning that is explained above"))
        answer = asyncio.ensure_future(harness.line.ask(question))
        await harness.type("x")
        assert question.hint == "press y, n, q"
        harness.now += QUIET
        await harness.type("y")
        assert await answer == "y"

    run_with_keyboard(work)


def test_a_key_answers_and_an_unknown_key_repeats_the_question() -> None:
    async def work(harness: Harness) -> None:
        question = Question("Run it? ", KEYS)
        answer = asyncio.ensure_future(harness.line.ask(question))
        await harness.type("x")
        assert question.hint == "press y (yes), n (no)"
        await harness.type("y")
        assert not answer.done(), "x was perhaps the first key of a message"
        harness.now += QUIET
        await harness.type("\x1b[200~y\x1b[201~")
        assert not answer.done(), "a paste is no answer"
        harness.now += QUIET
        await harness.type("Y")
        assert await answer == "y"

    assert run_with_keyboard(work).strays == ["y", "y"]


def test_keys_of_a_message_being_typed_do_not_answer() -> None:
    async def work(harness: Harness) -> None:
        harness.line.note_key()
        harness.now += QUIET / 4
        answer = asyncio.ensure_future(harness.line.ask(Question("Run it? ", KEYS)))
        await asyncio.sleep(0)
        for key in "my\r":
            harness.now += QUIET / 2
            await harness.type(key)
        assert not answer.done()
        harness.now += QUIET
        await harness.type("n")
        assert await answer == "n"

    assert run_with_keyboard(work).strays == ["m", "y"]


def test_the_question_of_a_command_takes_keys_at_once_and_that_of_a_dialog_does_not() -> None:
    async def work(harness: Harness) -> None:
        for answered in (True, False):
            harness.line.note_key()
            harness.line.begin_command()
            if not answered:
                harness.line.begin_dialog()
            answer = asyncio.ensure_future(harness.line.ask(Question("Replace it? ", KEYS)))
            await asyncio.sleep(0)
            await harness.type("n")
            await asyncio.sleep(0)
            assert answer.done() is answered
        answer.cancel()

    assert run_with_keyboard(work).strays == ["n"]


def test_a_list_takes_arrows_and_letters_at_once_and_escape_closes_the_list() -> None:
    async def work(harness: Harness) -> None:
        changes: list[str | int] = []
        harness.line.note_key()
        chosen = asyncio.ensure_future(
            harness.line.ask(Question("Which?", on_text=changes.append, on_move=changes.append))
        )
        await asyncio.sleep(0)
        await harness.type("to\x1b[B\x10\r")
        assert await chosen == "to"
        assert changes == ["t", "to", 1, -1]
        left = asyncio.ensure_future(
            harness.line.ask(Question("Which?", on_text=changes.append, on_move=changes.append))
        )
        await asyncio.sleep(0)
        await harness.type("\x1b")
        with pytest.raises(Unanswered):
            await left

    assert run_with_keyboard(work).strays == []


def test_enter_answers_with_the_line_and_ctrl_d_with_no_answer() -> None:
    async def work(harness: Harness) -> None:
        line = asyncio.ensure_future(harness.line.ask(Question("Why? "), "because "))
        await asyncio.sleep(0)
        harness.line.buffer.cursor_position = len("because ")
        await harness.type("of you\r")
        assert await line == "because of you"
        nothing = asyncio.ensure_future(harness.line.ask(Question("Run it? ", KEYS)))
        await harness.type("\x04")
        with pytest.raises(Unanswered):
            await nothing

    run_with_keyboard(work)


def test_esc_answers_an_approval_only_after_a_pause_and_arrows_answer_nothing() -> None:
    async def work(harness: Harness) -> None:
        moves: list[int] = []
        harness.line.note_key()
        harness.now += QUIET / 4
        question = Question("", {"y": "yes", "\x1b": "no"}, on_move=moves.append)
        answer = asyncio.ensure_future(harness.line.ask(question))
        await asyncio.sleep(0)
        await harness.type("\x1b[B")
        assert moves == [1]
        await harness.type("y")
        assert not answer.done(), "it was typed before the question could be read"
        harness.now += QUIET
        await harness.type("\x1b")
        assert await answer == "\x1b"

    assert run_with_keyboard(work).strays == ["y"]
