"""The console of a conversation: the screen, or plain lines in a terminal without a live area."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dial_client.cli.streams.tty import UserInput, can_move_cursor, read_sent_lines
from dial_client.cli.terminal.command_screen import PlainScreen
from dial_client.cli.terminal.screen import Screen, TakeAtOnce
from dial_client.runtime.safe_text import sanitize

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

T = TypeVar("T")


class LineConsole(PlainScreen):
    """A console that prints lines and reads lines."""

    def __init__(self) -> None:
        super().__init__()
        self._input_line: Any = None
        self._will_leave = False
        # Whether the user has pressed Ctrl-D during a turn, and leaves when it ends.
        self._will_end = False
        self._is_reading = False
        self._waiting: list[Callable[[], None]] = []
        # Held by what reads the keyboard during a turn: `follow_lines`, or a question.
        self._keyboard = anyio.Lock()
        # Cancelled when a question needs the keyboard.
        self._following = anyio.CancelScope()
        self.take_at_once: TakeAtOnce = lambda _, **__: False
        """Takes an input that need not wait for the end of the turn; returns False if it waits."""
        # What was sent during a turn: inputs, where the terminal edits the line; else the keys of the next prompt.
        self._sent_early: deque[UserInput | None] = deque()
        self._typed_early = ""
        self.on_enter: Callable[[], object] = lambda: None
        """Called for Enter in an empty line."""

    async def read_input(self) -> UserInput | None:
        """Return the next line; None for Ctrl-D, and for Ctrl-C twice in an empty line."""
        from prompt_toolkit.patch_stdout import patch_stdout

        if self._sent_early:
            return self._take_early()
        while True:
            try:
                with patch_stdout(raw=True) if can_move_cursor() else self._print_after_line():
                    user_input = await self._read()
            except KeyboardInterrupt:
                if self._input_line.was_empty:
                    if self._will_leave:
                        return None
                    self._will_leave = True
                    self.print("Press Ctrl-C again, or Ctrl-D, to exit.")
                continue
            except EOFError:
                return None
            self._will_leave = False
            if user_input.text:
                return user_input
            self.on_enter()

    async def _read(self) -> UserInput:
        typed, self._typed_early, self._will_end = self._typed_early, "", False
        read: Callable[[], Awaitable[UserInput]] = partial(self._input_line.read, typed)
        if not can_move_cursor():
            # Keys cannot be seen before Enter: the user may be typing.
            self.attention.settle()
            return await read()
        return await self.attention.notify_during(
            read, sys.__stderr__ or sys.stderr, lambda: bool(self._input_line.typed)
        )

    async def follow_lines(self) -> None:
        """Read the lines that are sent while a turn runs, and `read_input` does not: without an end.

        An empty line calls `on_enter`, a message for the turn is taken at once, and `read_input` later returns others.
        """
        while True:
            async with self._keyboard:
                with anyio.CancelScope() as self._following:
                    self._take_lines(await read_sent_lines())
            if self._will_end:
                await anyio.sleep_forever()

    def _take_lines(self, lines: list[str | None]) -> None:
        text = "\n".join(line or "" for line in lines).strip()
        is_marked = can_move_cursor() and "\x1b[200~" in text  # the next prompt knows itself what is pasted
        if is_marked or "\n" not in text:
            for line in lines:
                self._take_line(line)
            return
        if can_move_cursor():  # an escape character could end the paste
            self._typed_early += "\x1b[200~" + text.replace("\x1b", "") + "\x1b[201~"
        else:
            self._sent_early.append(self._input_line.take_pasted(text))
        if lines[-1] is None:
            self._take_line(None)

    def _take_line(self, text: str | None) -> None:
        if text is not None and not text.strip():
            self.on_enter()
        elif text is None or not self.take_at_once(self._input_line.to_input(text), steers=False):
            self._will_end = text is None
            if can_move_cursor():
                self._typed_early += "\x04" if text is None else f"{text}\n"
            else:
                self._sent_early.append(None if text is None else self._input_line.take(text))

    @asynccontextmanager
    async def hold_keyboard(self) -> AsyncGenerator[None, None]:
        """Reserve the keyboard for a question, or for an editor, while a turn runs."""
        self._following.cancel()
        async with self._keyboard:
            yield

    def _take_early(self) -> UserInput | None:
        from dial_client.cli.input.input_line import PROMPT

        if (user_input := self._sent_early.popleft()) is not None:
            self.print(f"{PROMPT}{sanitize(user_input.text)}")
        return user_input

    def print_between(self, print_lines: Callable[[], None]) -> None:
        """Print lines; while the user types in a terminal that cannot draw above the line, print them after it."""
        if self._is_reading:
            self._waiting.append(print_lines)
        else:
            print_lines()

    @contextmanager
    def _print_after_line(self) -> Iterator[None]:
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False
            while self._waiting:
                self._waiting.pop(0)()

    def echo(self, user_input: UserInput) -> None:
        """Do nothing, because the typed line stays on the screen."""

    def edit(self, text: str) -> None:
        """Put a text into the next line."""
        if self._input_line is not None:
            self._input_line.edit(text)

    def complete_with(self, completer: Completer) -> None:
        """Propose completions of the input."""
        from dial_client.cli.input.input_line import InputLine, find_history_path

        if self._input_line is None:
            self._input_line = InputLine(lambda _: None, history=find_history_path())
        self._input_line.complete_with(completer)

    def set_interrupt(self, on_interrupt: Callable[[], None]) -> None:
        """Do nothing, because Ctrl-C is a signal here."""

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`."""
        return await work()

    def close(self) -> None:
        """Do nothing, because this console does not control the terminal."""


# Prints text, asks questions, and reads the user's input.
Console = Screen | LineConsole
