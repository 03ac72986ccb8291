"""The input line: the buffer that the user edits, and the conversion of its text to a `UserInput`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition
from prompt_toolkit.layout.containers import HSplit, Window
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.widgets import SearchToolbar

from dial_client.cli.cooked_line import can_move_cursor, read_line
from dial_client.cli.input import editor
from dial_client.cli.input.editing_mode import find_editing_mode
from dial_client.cli.input.input_history import InputHistory
from dial_client.cli.input.key_bindings import build_key_bindings
from dial_client.cli.input.keyboard import open_input, open_output, read_early_lines
from dial_client.cli.input.pasted_text import PastedTexts
from dial_client.cli.input.user_input import UserInput
from dial_client.runtime.safe_text import sanitize
from dial_client.turns.mentions import MENTION

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.output import Output

PROMPT = "> "
MENU_ROWS = 8
_SURROGATES = re.compile("[\ud800-\udfff]")


def find_history_path() -> Path:
    """Return the path of the history file of the input line."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dial-client"), "history")


class InputLine:
    """The input line of a conversation. Enter sends its text as a `UserInput`.

    Args:
        on_submit: Is called with each input that is sent.
        completer: Proposes completions.
        history: The file of the history; None to keep the history for this run only.
    """

    def __init__(
        self,
        on_submit: Callable[[UserInput], None],
        completer: Completer | None = None,
        history: Path | None = None,
    ) -> None:
        self.on_submit = on_submit
        self.pasted = PastedTexts()
        self._sent: set[str] = set()
        self.editing_mode = find_editing_mode()
        self.cursor = ModalCursorShapeConfig()
        self.buffer = Buffer(
            name=DEFAULT_BUFFER,
            history=InputHistory(history, self.pasted.unfold_for_history),
            completer=completer,
            complete_while_typing=Condition(self._completes_while_typing),
            enable_history_search=False,
            multiline=True,
            accept_handler=self._accept,
        )
        self.key_bindings = build_key_bindings(self.pasted, self.open_editor)
        self.was_empty = True
        """Whether the line was empty when `read` ended."""
        self._session: PromptSession[str] | None = None
        self._search = SearchToolbar(ignore_case=True)
        self.window = Window(
            BufferControl(self.buffer, search_buffer_control=self._search.control, preview_search=True),
            height=self._limit_height,
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._build_prefix,
            style="class:input",
        )
        self.container = HSplit([self.window, self._search, CompletionsMenu(MENU_ROWS, scroll_offset=1)])

    def to_input(self, text: str) -> UserInput:
        """Convert a text of the input line to the input to send."""
        # Bytes that are not valid text arrive as lone surrogates, which cannot be stored or sent.
        text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text).strip()
        whole = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", self.pasted.unfold(text))
        self._sent.add(whole)
        return UserInput(whole, text, self.pasted.without(text).strip())

    def take(self, text: str) -> UserInput:
        """Convert a line that the terminal itself has read to the input to send, and add it to the history."""
        if text.strip():
            self.buffer.history.append_string(text)
        return self.to_input(text)

    def edit(self, text: str) -> None:
        """Put a text into the input line, such as a queued message, or a question to ask again.

        A text that was not sent from this line, such as the text of a server's prompt, counts as pasted.
        """
        is_own = text in self._sent
        self.buffer.document = Document(
            self.pasted.fold(text) if is_own else self.pasted.to_insertion(text, is_draft=True)
        )

    def open_editor(self, buffer: Buffer) -> None:
        """Open the text of a buffer in the user's editor, and replace it with the saved text."""
        get_app().create_background_task(self._open_editor(buffer))

    async def read(self, output: Output | None = None) -> UserInput:
        """Return the next input of a terminal without a screen.

        A terminal that cannot move its cursor gets no escape sequences; its own line input is read.

        Raises:
            EOFError: Ctrl-D in an empty line.
            KeyboardInterrupt: Ctrl-C.
        """
        draft = self.buffer.text
        self.buffer.reset()
        if not can_move_cursor():
            if draft:
                print(f"An empty line sends this:\n{sanitize(draft)}", flush=True)
            text = await self._read_cooked()
            return self.take(text) if text else self.to_input(draft)
        if self._session is None:
            self._session = self._create_prompt_session(output)
        try:
            text = await self._session.prompt_async(
                PROMPT, default=draft, handle_sigint=False, pre_run=lambda: read_early_lines(get_app())
            )
        finally:
            self.was_empty = not self._session.default_buffer.text
        return self.to_input(text)

    async def _read_cooked(self) -> str:
        text = await read_line(PROMPT, sys.stdout)
        while text.endswith("\\") and not text.endswith("\\\\"):
            text = f"{text[:-1]}\n{await read_line(' ' * len(PROMPT), sys.stdout)}"
        return text

    def _create_prompt_session(self, output: Output | None) -> PromptSession[str]:
        from prompt_toolkit import PromptSession

        return PromptSession(
            multiline=True,
            history=self.buffer.history,
            completer=self.buffer.completer,
            complete_while_typing=False,
            key_bindings=self.key_bindings,
            editing_mode=self.editing_mode,
            prompt_continuation=" " * len(PROMPT),
            reserve_space_for_menu=MENU_ROWS,
            input=open_input(),
            output=output or open_output(sys.stdout),
        )

    async def _open_editor(self, buffer: Buffer) -> None:
        edited = await run_in_terminal(lambda: editor.edit(self.pasted.unfold(buffer.text)), in_executor=True)
        if edited is not None:
            text = self.pasted.fold(edited)
            buffer.document = Document(text, len(text))

    def _accept(self, buffer: Buffer) -> bool:
        user_input = self.to_input(buffer.text)
        get_app().vi_state.reset()  # the next line begins in insert mode, as in readline
        if user_input.text:
            self.on_submit(user_input)
        return False

    def _completes_while_typing(self) -> bool:
        """Return True if proposals are shown without Tab: in the name of a command, and in a mention."""
        text_before = self.buffer.document.text_before_cursor
        if text_before.startswith("/"):
            return " " not in text_before
        mention = max((found.end() for found in MENTION.finditer(text_before)), default=None)
        return mention is not None and not re.search(r"\s", text_before[mention:])

    def _limit_height(self) -> Dimension:
        """Return the rows of the input line: as many as the text has, at most half of the terminal's."""
        return Dimension(min=1, max=max(1, get_app().output.get_size().rows // 2))

    @staticmethod
    def _build_prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", PROMPT if line == 0 and wrapped == 0 else " " * len(PROMPT))]
