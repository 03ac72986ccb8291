"""The key bindings of the input line, in addition to those of readline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus, is_searching, vi_insert_mode, vi_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from dial_client.cli.input.dropped_paths import build_mentions
from dial_client.cli.input.pasted_text import PastedTexts, normalize_newlines

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer


def build_key_bindings(pasted: PastedTexts, open_editor: Callable[[Buffer], None]) -> KeyBindings:
    """Return the key bindings of the input line; they are active only while the default buffer has the focus.

    Args:
        pasted: Stores the long texts that are pasted.
        open_editor: Opens the text of a buffer in an editor.
    """
    keys = KeyBindings()
    has_input_focus = has_focus(DEFAULT_BUFFER)
    inserts = has_input_focus & (~vi_mode | vi_insert_mode)

    @keys.add("enter", filter=has_input_focus & ~is_searching)
    def _send(event: KeyPressEvent) -> None:
        send_or_continue(event.current_buffer)

    # Not in vi mode, where Esc ends insert mode, and Enter after it sends the line.
    @keys.add("escape", "enter", filter=has_input_focus & ~vi_mode)
    @keys.add("c-j", filter=has_input_focus)
    def _insert_line_break(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add(Keys.BracketedPaste, filter=has_input_focus)
    def _paste(event: KeyPressEvent) -> None:
        text = normalize_newlines(event.data)
        event.current_buffer.insert_text(build_mentions(text) or pasted.to_insertion(text))

    @Condition
    def follows_pasted_text() -> bool:
        return bool(pasted.find_placeholder_before(get_app().current_buffer.document.text_before_cursor))

    @keys.add("backspace", filter=inserts & follows_pasted_text)
    def _delete_pasted_text(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.delete_before_cursor(len(pasted.find_placeholder_before(buffer.document.text_before_cursor)))

    @keys.add("c-x", "c-e", filter=has_input_focus)
    def _edit(event: KeyPressEvent) -> None:
        open_editor(event.current_buffer)

    return keys


def send_or_continue(buffer: Buffer) -> None:
    r"""Send the text of the buffer; if a single ``\`` is before the cursor, replace it with a line break instead."""
    if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
        buffer.complete_state = None  # this Enter accepts the completion; the next Enter sends
        return
    text_before = buffer.document.text_before_cursor
    if text_before.endswith("\\") and not text_before.endswith("\\\\"):
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
    else:
        buffer.validate_and_handle()
