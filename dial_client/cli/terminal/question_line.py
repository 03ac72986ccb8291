"""A question in place of the input line, which the user answers with one key, with a line, or from a list.

Keys that were typed before the question was shown do not answer it, and neither do keys that follow them without a
pause: a user who is writing a message when a question appears would answer it unread. A question is expected if it
follows another question of the same dialog, or a command: it accepts keys at once, but not the same key twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.cli.markdown.themes import Theme, style
from dial_client.cli.streams.tty import Escaped, Unanswered
from dial_client.cli.streams.word_wrap import fit
from dial_client.cli.terminal.command_screen import MAX_FOUND, Choice, Search
from dial_client.messages.errors import DialError
from dial_client.runtime.safe_text import sanitize, to_one_line

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyBindings

# Seconds without a key after which the next key counts as an answer.
QUIET = 0.4
# Seconds since the last key within which the user counts as typing when a question is shown.
BUSY = 1.0
# The maximum characters of a hint that explains the keys; a longer hint only names the keys.
MAX_HINT = 40

# The keys that move through a list, each with the number of items to move by.
_MOVES = {"up": -1, "down": 1, "c-p": -1, "c-n": 1, "s-tab": -1, "tab": 1, "pageup": -10, "pagedown": 10}
# The keys that also move the rows above a question.
_SCROLLING = ("up", "down", "pageup", "pagedown")
# The maximum number of items that are shown at once.
MAX_ITEMS = 12
HINT = "type to search · ↑ ↓ choose · Enter takes · Esc leaves"


@dataclass
class Question:
    """A question that waits for its answer."""

    text: str
    keys: Mapping[str, str] | None = None
    """The meaning of each key, for a question that one key answers; None for a question that a line answers."""
    is_hidden: bool = False
    hint: str = ""
    """Shown after the question, once a key was pressed that is not an answer."""
    on_text: Callable[[str], None] | None = None
    """Called with the line whenever it changes; only for a list."""
    on_move: Callable[[int], None] | None = None
    """For a list, or for rows above a question: called with the number of items or rows to move down."""
    answer: str | None = None
    """The answer, once there is one."""
    has_escaped: bool = False
    """Whether Esc has ended the question."""
    is_over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_list(self) -> bool:
        """Whether the answer is chosen from a list."""
        return self.on_text is not None

    def settle(self, answer: str | None) -> None:
        """End the question with an answer, or with None if there is none."""
        if not self.is_over.is_set():
            self.answer = answer
            self.is_over.set()


class QuestionLine:
    """Shows one question at a time.

    Args:
        on_stray: Is called with typed text that is not an answer.
        on_change: Is called when the line must be redrawn.
        clock: Returns the time in seconds, like `time.monotonic`.
    """

    def __init__(
        self,
        on_stray: Callable[[str], None],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from prompt_toolkit.buffer import Buffer
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.layout import BufferControl, Window
        from prompt_toolkit.layout.processors import BeforeInput, ConditionalProcessor, PasswordProcessor

        self.current: Question | None = None
        self._on_stray, self._on_change, self._clock = on_stray, on_change, clock
        self._last_key = self._answered = float("-inf")
        self._last_answer = ""
        self._is_armed = True
        self.buffer = Buffer(multiline=False, accept_handler=self._accept, on_text_changed=self._pass_on_text)
        hidden = Condition(lambda: self.current is not None and self.current.is_hidden)
        self.container = Window(
            BufferControl(
                self.buffer,
                input_processors=[ConditionalProcessor(PasswordProcessor(), hidden), BeforeInput(self._format_prompt)],
            ),
            wrap_lines=True,
            dont_extend_height=True,
        )
        self.key_bindings = self._bind_keys()

    @property
    def is_shown(self) -> bool:
        """Whether a question waits for its answer."""
        return self.current is not None

    def note_key(self) -> None:
        """Record that a key was pressed now."""
        now = self._clock()
        if not self._is_armed and now - self._last_key >= QUIET:
            self._is_armed = True
        self._last_key = now

    def begin_dialog(self) -> None:
        """Forget the latest answer, so that the next question does not count as a follow-up."""
        self._answered = float("-inf")

    def begin_command(self) -> None:
        """Expect a question of the command that was sent now, so that the next keys answer it at once."""
        self._answered, self._last_answer = self._clock(), ""

    async def ask(self, question: Question, default: str = "") -> str:
        """Show a question, and return its answer: the key, or the line.

        Raises:
            Escaped: The answer is a line, and the user pressed Esc.
            Unanswered: The user pressed Ctrl-C or Ctrl-D.
        """
        from prompt_toolkit.document import Document

        self.buffer.set_document(Document(default), bypass_readonly=True)
        is_expected = question.is_list or self._last_key <= self._answered
        self._is_armed = is_expected or self._clock() - self._last_key > BUSY
        self.current = question
        self._on_change()
        try:
            await question.is_over.wait()
        finally:
            self.current = None
            self._answered, self._last_answer = self._clock(), question.answer or ""
            self._on_change()
        if question.has_escaped:
            raise Escaped("the user pressed Esc")
        if question.answer is None:
            raise Unanswered("the user did not answer")
        return question.answer

    def _format_prompt(self) -> StyleAndTextTuples:
        if self.current is None:
            return []
        hint = f"({self.current.hint}) " if self.current.hint else ""
        text = f"{self.current.text.rstrip()} " if self.current.text else ""
        return [("class:question", text), ("class:hint", hint)]

    def _pass_on_text(self, buffer: Any) -> None:
        if self.current is not None and self.current.on_text is not None:
            self.current.on_text(buffer.text)

    def _accept(self, buffer: Any) -> bool:
        if self.current is not None:
            self.current.settle(buffer.text)
        return False

    def _bind_keys(self) -> KeyBindings:
        from prompt_toolkit.filters import Condition, vi_insert_mode
        from prompt_toolkit.key_binding import KeyBindings

        shown = Condition(lambda: self.is_shown)
        by_key = Condition(lambda: self.current is not None and (self.current.keys is not None or not self._is_armed))
        is_list = Condition(lambda: self.current is not None and self.current.is_list)
        is_line = Condition(lambda: self.current is not None and self.current.keys is None and self._is_armed)
        can_move = Condition(lambda: self.current is not None and self.current.on_move is not None)
        bindings = KeyBindings()

        @bindings.add("<any>", filter=by_key, eager=True)
        @bindings.add("enter", filter=by_key, eager=True)
        def _(event: Any) -> None:
            if self._is_armed:
                self._answer_by_key(event.data)
            elif event.data.isprintable():
                self._on_stray(event.data)

        @bindings.add("<bracketed-paste>", filter=by_key, eager=True)
        def _(event: Any) -> None:
            self._on_stray(event.data)

        @bindings.add("c-d", filter=shown, eager=True)
        @bindings.add("escape", filter=is_list, eager=True)
        def _(_: Any) -> None:
            if self.current is not None:
                self.current.settle(None)

        # Not eager: Esc is also the first character of Alt with a key. In vi mode it ends the insertion first.
        @bindings.add("escape", filter=is_line & ~is_list & ~vi_insert_mode)
        def _(_: Any) -> None:
            if self.current is not None:
                self.current.has_escaped = True
                self.current.settle(None)

        for key, items in _MOVES.items():
            is_bound = can_move if key in _SCROLLING else is_list
            bindings.add(key, filter=is_bound, eager=True)(partial(self._move, items))
        return bindings

    def _move(self, items: int, _: Any) -> None:
        if self.current is not None and self.current.on_move is not None:
            self.current.on_move(items)
            self._last_answer = ""  # the next key is not the last one, held too long
            self._on_change()

    def _answer_by_key(self, key: str) -> None:
        question = self.current
        if question is None or question.keys is None:
            return
        if key == self._last_answer and self._clock() - self._answered < QUIET:
            return
        answer = next((known for known in (key, key.lower()) if known in question.keys), None)
        if answer is None:
            keys = {name: what for name, what in question.keys.items() if name.isprintable()}
            names = ", ".join(f"{name} ({what})" for name, what in keys.items())
            self._is_armed = False  # the user may be typing a message: the next key must not answer
            question.hint = f"press {names}" if len(names) <= MAX_HINT else f"press {', '.join(keys)}"
            self._on_change()
        else:
            question.settle(answer)


@dataclass(eq=False)
class Picker:
    """The items that were found, and the marked item.

    Args:
        search: Finds the items.
        theme: The colours.
        on_change: Is called when the list must be redrawn.
    """

    search: Search
    theme: Theme
    on_change: Callable[[], None]
    found: Sequence[Choice] = ()
    words: str = ""
    """The words that were typed last."""
    marked: int = 0
    problem: str = ""
    """The reason why the last search failed; empty if it did not."""
    # The words of the items in `found`.
    _searched: str | None = None
    _typed: anyio.Event = field(default_factory=anyio.Event)

    def type(self, words: str) -> None:
        """Search for other words."""
        self.words = words
        self._typed.set()

    def move(self, items: int) -> None:
        """Move the mark down by `items`; a single step wraps around at the ends of the list."""
        count = len(self.found)
        if count:
            index = self.marked + items
            self.marked = index % count if abs(items) == 1 else max(0, min(count - 1, index))
            self.on_change()

    async def follow(self) -> None:
        """Search whenever other words are typed, until cancelled."""
        while True:
            self._typed = anyio.Event()
            await self.update()
            await self._typed.wait()

    async def update(self) -> None:
        """Search for the words that were typed last, unless `found` has their items already."""
        while self._searched != self.words:
            words = self.words
            try:
                found, self.problem = await self.search(words), ""
            except DialError as error:
                found, self.problem = (), to_one_line(str(error), 200)
            self.found, self._searched, self.marked = found, words, 0
            self.on_change()

    @property
    def value(self) -> str | None:
        """The value of the marked item; None if nothing was found."""
        return self.found[self.marked].value if self.found else None

    def format_lines(self, columns: int, rows: int) -> list[str]:
        """Return the list in at most `rows` rows, with a hint on the last row."""
        limit = max(1, min(MAX_ITEMS, rows - 1))
        first = max(0, min(self.marked - limit // 2, len(self.found) - limit))
        lines = []
        for index, choice in enumerate(self.found[first : first + limit], first):
            is_marked = index == self.marked
            label = re.sub(r"\s", " ", sanitize(choice.label[:500]))  # spaces stay, because they align columns
            line = fit(f"{'→ ' if is_marked else '  '}{label}", columns - 1)
            lines.append(style(line, self.theme.strong) if is_marked else line)
        if not lines and self._searched is not None:
            lines = [fit(self.problem or f"  nothing contains {to_one_line(self._searched, 60)!r}", columns - 1)]
        more = " or more" if len(self.found) >= MAX_FOUND else ""
        count = f"{self.marked + 1} of {len(self.found)}{more} · " if len(self.found) > limit else ""
        return [*lines, style(fit(f"{count}{HINT}", columns - 1), self.theme.faint)][-rows:]
