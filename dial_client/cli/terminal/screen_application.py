"""The prompt_toolkit application of the screen: its layout, its key bindings, and its painting."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.cli.terminal.live_application import LiveApplication
from dial_client.cli.terminal.question_line import QuestionLine

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.key_binding import KeyBindings

REDRAW = 0.02
"""Seconds between two paintings of the live area; with the time to paint, a piece of text is shown within 50 ms."""
ESCAPE, SEQUENCE = 0.1, 0.5
"""Seconds after which Esc counts as the key itself, not as the start of a key code; and after which no further key can
follow a key in a key sequence, as in readline."""
_STYLE = {"question": "bold", "hint": "italic"}


@dataclass(frozen=True, slots=True)
class KeyActions:
    """The actions of the screen's keys, in addition to those of the input line."""

    interrupt: Callable[[], None]
    leave: Callable[[], None]
    take_back: Callable[[], bool]
    """Puts the latest queued message into the input line; returns False if none is queued."""
    drop: Callable[[], object]
    """Removes the latest queued message, if there is one."""
    enter_empty: Callable[[], object]
    """Called for Enter in an empty line."""


def build_application(
    live_text: Callable[[], str], input_line: Any, question: QuestionLine, keys: KeyActions
) -> LiveApplication:
    """Return the application, which shows the live area and, below it, the input line or a question."""
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.key_binding import merge_key_bindings
    from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
    from prompt_toolkit.styles import Style

    from dial_client.cli.input.keyboard import open_input
    from dial_client.cli.terminal.live_application import open_output

    shown = Condition(lambda: question.is_shown)
    live = ConditionalContainer(
        Window(FormattedTextControl(lambda: ANSI(live_text())), dont_extend_height=True),
        Condition(lambda: bool(live_text())),
    )
    containers: list[Any] = [live, ConditionalContainer(question.container, shown)]
    bindings = [_build_bindings(input_line, question, keys), question.key_bindings]
    if input_line is not None:
        containers.append(ConditionalContainer(input_line.container, ~shown))
        bindings.append(input_line.key_bindings)
    else:
        containers.append(ConditionalContainer(Window(height=1, always_hide_cursor=True), ~shown))
    application = LiveApplication(
        layout=Layout(HSplit(containers), focused_element=None if input_line is None else input_line.buffer),
        key_bindings=merge_key_bindings(bindings),
        style=Style.from_dict(_STYLE),
        erase_when_done=True,
        min_redraw_interval=REDRAW,
        input=open_input(),
        output=open_output(),
        **({} if input_line is None else {"editing_mode": input_line.editing_mode, "cursor": input_line.cursor}),
    )
    application.ttimeoutlen, application.timeoutlen = ESCAPE, SEQUENCE
    application.after_render += _finish_painting
    application.key_processor.before_key_press += lambda _: question.note_key()
    return application


def paint_above(application: LiveApplication, printed: str) -> None:
    """Print final text in place of the live area, which is redrawn below it.

    Without text, the live area is erased only if it became lower, because prompt_toolkit would keep its old height.
    """
    from dial_client.cli.terminal.live_application import ScreenOutput

    renderer, output = application.renderer, application.output
    if isinstance(output, ScreenOutput) and not application.is_done:
        output.hold()
    application.follow_size()
    if printed:
        application.erase_area(prints=True)
        output.write_raw(printed.replace("\n", "\r\n"))
    elif (last := renderer.last_rendered_screen) is not None:
        size = output.get_size()
        rows = application.layout.container.preferred_height(size.columns, size.rows).preferred
        if rows < last.height:
            application.erase_area()


@contextmanager
def resume_drawing(application: Application[None]) -> Iterator[None]:
    """Restore the terminal modes and redraw after each SIGCONT, because a shell has changed the modes meanwhile."""
    if sys.platform == "win32":
        yield
        return
    loop = asyncio.get_running_loop()

    def redraw() -> None:
        if application._running_in_terminal:  # noqa: SLF001 - another program has the terminal; there is no public name
            return
        application.input.raw_mode().__enter__()
        application.renderer.erase(leave_alternate_screen=False)
        application.invalidate()

    loop.add_signal_handler(signal.SIGCONT, redraw)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)


def _finish_painting(application: Application[None]) -> None:
    """Write the output that `paint_above` has held back."""
    from dial_client.cli.terminal.live_application import ScreenOutput

    if isinstance(application.output, ScreenOutput):
        application.output.release()


def _build_bindings(input_line: Any, question: QuestionLine, keys: KeyActions) -> KeyBindings:
    from prompt_toolkit.filters import Condition, has_completions, is_searching
    from prompt_toolkit.key_binding import KeyBindings

    is_empty = Condition(lambda: input_line is not None and not input_line.buffer.text and not question.is_shown)
    has_only_keys = Condition(lambda: input_line is None and not question.is_shown)
    bindings = KeyBindings()

    @bindings.add("c-c", eager=True, filter=~is_searching)
    @bindings.add("<sigint>")
    def _(_: Any) -> None:
        keys.interrupt()

    @bindings.add("c-d", filter=is_empty, eager=True)
    def _(_: Any) -> None:
        keys.leave()

    @bindings.add("c-z", eager=True)
    def _(event: Any) -> None:
        event.app.suspend_to_background()

    @bindings.add("up", filter=is_empty & ~has_completions)
    def _(event: Any) -> None:
        if not keys.take_back():
            event.current_buffer.auto_up()

    @bindings.add("enter", filter=is_empty & ~is_searching & ~has_completions, eager=True)
    @bindings.add("enter", filter=has_only_keys, eager=True)
    def _(_: Any) -> None:
        keys.enter_empty()

    @bindings.add("escape", filter=is_empty)
    def _(_: Any) -> None:
        keys.drop()

    return bindings
