"""The input line: the buffer that the user edits, and the conversion of its text to a `UserInput`.

Long pasted texts are folded in the line (`pasted_texts`), and unfolded when the line is sent.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import Condition, has_completions, has_focus, is_searching, vi_insert_mode, vi_mode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.widgets import SearchToolbar

from dial_client.cli.input import user_programs
from dial_client.cli.input.clipboard_image import save_clipboard_image
from dial_client.cli.input.file_mentions import build_mention, build_mentions
from dial_client.cli.input.keyboard import open_input, open_output, read_early_lines
from dial_client.cli.input.pasted_texts import PastedTexts, normalize_newlines
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.streams.tty import UserInput, can_move_cursor, has_pasted_line, read_line
from dial_client.runtime.safe_text import sanitize
from dial_client.turns.mentions import MENTION

# The maximum number of entries that are offered, the latest first.
MAX_ENTRIES = 2000
# The maximum characters of a stored entry; a longer entry is offered in this run only.
MAX_ENTRY = 20_000
# The environment variable that sets the mode: ``vi`` or ``emacs``.
VARIABLE = "DIAL_EDITING_MODE"
MAX_BYTES = 100_000
_SETTING = re.compile(r"set\s+editing-mode\s+(vi|emacs)\b", re.IGNORECASE)
_APPLICATION = "dial-chat"
PROMPT = "> "
MENU_ROWS = 8
_SURROGATES = re.compile("[\ud800-\udfff]")


class InputHistory(FileHistory):
    """A history without lines that begin with a space, and without repeated lines.

    Args:
        path: The file, which only its owner can read; None to keep the entries of this run only.
        stored: Converts an entry to the text to store; an empty text is not stored.
    """

    def __init__(self, path: Path | None, stored: Callable[[str], str] = str) -> None:
        super().__init__(path or os.devnull)
        self._path = path
        self._stored = stored

    def append_string(self, string: str) -> None:
        """Add an entry, unless it begins with a space or repeats the latest one."""
        if string.strip() and not string.startswith(" ") and self._loaded_strings[:1] != [string]:
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored entries, the latest first, each once. Errors of the file system are ignored."""
        with suppress(OSError):
            return list(dict.fromkeys(super().load_history_strings()))[:MAX_ENTRIES]
        return []

    def store_string(self, string: str) -> None:
        """Append an entry to the file. Errors of the file system are ignored."""
        text = self._stored(string)
        if self._path is None or not text or len(text) > MAX_ENTRY:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            super().store_string(text)


def find_editing_mode(environment: Mapping[str, str] = os.environ) -> EditingMode:
    """Return the mode that `VARIABLE` sets, else the mode of readline's ``inputrc``, else emacs."""
    mode = environment.get(VARIABLE, "").strip().lower()
    if mode not in ("vi", "emacs"):
        home = environment.get("HOME") or environment.get("USERPROFILE")
        names = [environment.get("INPUTRC"), home and f"{home}/.inputrc", "/etc/inputrc"]
        found = next((Path(name) for name in names if name and Path(name).is_file()), None)
        text = ""
        if found is not None:
            with suppress(OSError), found.open("rb") as file:
                text = file.read(MAX_BYTES).decode(errors="replace")
        mode = _from_inputrc(text)
    return EditingMode.VI if mode == "vi" else EditingMode.EMACS


def _from_inputrc(text: str) -> str:
    """Return the last mode that is set for all programs or for dial-chat; blocks of other programs are ignored."""
    mode, blocks = "emacs", list[bool]()
    for line in map(str.strip, text.splitlines()):
        word, _, rest = line.partition(" ")
        match word.lower():
            case "$if":
                blocks.append(rest.strip().lower() == _APPLICATION)
            case "$else" if blocks:
                blocks[-1] = not blocks[-1]
            case "$endif" if blocks:
                blocks.pop()
            case _ if all(blocks) and (found := _SETTING.match(line)):
                mode = found[1].lower()
    return mode


def build_key_bindings(
    pasted: PastedTexts,
    open_editor: Callable[[Buffer], None],
    steer: Callable[[Buffer], bool],
    paste_image: Callable[[Buffer], None],
) -> KeyBindings:
    """Return the key bindings of the input line; they are active only while the default buffer has the focus.

    Args:
        pasted: Stores the long texts that are pasted.
        open_editor: Opens the text of a buffer in an editor.
        steer: Sends the text of a buffer to the running turn; returns False if there is no turn or no text.
        paste_image: Inserts a mention of the image in the clipboard into a buffer.
    """
    keys = KeyBindings()
    has_input_focus = has_focus(DEFAULT_BUFFER)
    inserts = has_input_focus & (~vi_mode | vi_insert_mode)

    @keys.add("enter", filter=has_input_focus & ~is_searching)
    def _send(event: KeyPressEvent) -> None:
        send_or_continue(event.current_buffer)

    # Not in vi mode, where Esc ends insert mode, and Enter after it sends the line.
    @keys.add("escape", "enter", filter=has_input_focus & ~vi_mode)
    def _steer(event: KeyPressEvent) -> None:
        if not steer(event.current_buffer):
            event.current_buffer.newline(copy_margin=False)

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

    # Terminals keep Ctrl-V or pass it on; text is pasted by the terminal.
    @keys.add("c-v", filter=inserts)
    def _paste_image(event: KeyPressEvent) -> None:
        paste_image(event.current_buffer)

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


def find_history_path() -> Path:
    """Return the path of the history file of the input line."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dial-client"), "history")


class InputLine:
    """The input line of a conversation. Enter sends its text as a `UserInput`.

    Args:
        on_submit: Is called with each input that is sent.
        on_steer: Is called with an input for the running turn; returns False if no turn is running.
        history: The file of the history; None to keep the history for this run only.
    """

    def __init__(
        self,
        on_submit: Callable[[UserInput], None],
        history: Path | None = None,
        on_steer: Callable[[UserInput], bool] = lambda _: False,
    ) -> None:
        self.on_submit, self.on_steer = on_submit, on_steer
        self.pasted = PastedTexts()
        self._sent: set[str] = set()
        self.editing_mode = find_editing_mode()
        self.cursor = ModalCursorShapeConfig()
        self.buffer = Buffer(
            name=DEFAULT_BUFFER,
            history=InputHistory(history, self.pasted.unfold_for_history),
            complete_while_typing=Condition(self._completes_while_typing),
            enable_history_search=False,
            multiline=True,
            accept_handler=self._accept,
        )
        self.key_bindings = build_key_bindings(self.pasted, self.open_editor, self._steer, self._paste_image)
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
        self.container = HSplit(
            [
                self.window,
                self._search,
                CompletionsMenu(MENU_ROWS, scroll_offset=1),
                ConditionalContainer(
                    Window(FormattedTextControl(self._count_completions), height=1, style="class:hint"),
                    has_completions & Condition(lambda: bool(self._count_completions())),
                ),
            ]
        )

    def _count_completions(self) -> str:
        """Return the place in a menu that does not show all its rows, as ``3 of 33``; else empty."""
        state = self.buffer.complete_state
        if state is None or len(state.completions) <= MENU_ROWS:
            return ""
        place = "" if state.complete_index is None else f"{state.complete_index + 1} of "
        return f" {place}{len(state.completions)}"

    def complete_with(self, completer: Completer) -> None:
        """Propose completions of the input."""
        self.buffer.completer = completer
        if self._session is not None:
            self._session.completer = completer

    @property
    def typed(self) -> str:
        """The text of the line that `read` reads."""
        return "" if self._session is None else self._session.default_buffer.text

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

    def take_pasted(self, text: str) -> UserInput:
        """Convert lines that the terminal has got at once: nobody has typed them, so they run and attach nothing."""
        return UserInput(text, self.pasted.to_insertion(text, is_draft=True), "")

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

    async def read(self, typed_before: str = "") -> UserInput:
        """Return the next input of a terminal without a screen.

        A terminal that cannot move its cursor gets no escape sequences; its own line input is read.

        Args:
            typed_before: What the terminal has received before, and another reader has read; it counts as typed now.

        Raises:
            EOFError: Ctrl-D in an empty line.
            KeyboardInterrupt: Ctrl-C.
        """
        draft = self.buffer.text
        self.buffer.reset()
        if not can_move_cursor():
            if draft:
                print(f"An empty line sends this:\n{sanitize(draft)}", flush=True)
            text, is_pasted = await self._read_cooked()
            if is_pasted:
                return self.take_pasted(text)
            return self.take(text) if text else self.to_input(draft)
        if self._session is None:
            self._session = self._create_prompt_session()
        try:
            with self._session.input.raw_mode():
                text = await self._session.prompt_async(
                    PROMPT,
                    default=draft,
                    handle_sigint=False,
                    pre_run=lambda: read_early_lines(get_app(), typed_before),
                )
        finally:
            self.was_empty = not self._session.default_buffer.text
        return self.to_input(text)

    async def _read_cooked(self) -> tuple[str, bool]:
        """Return a line, or all lines that arrive at once, and whether these were pasted."""
        text, is_pasted = await read_line(PROMPT, sys.stdout), False
        while (goes_on := text.endswith("\\") and not text.endswith("\\\\")) or await has_pasted_line():
            is_pasted |= not goes_on
            line = await read_line(" " * len(PROMPT) if goes_on else "", sys.stdout)
            text = f"{text[:-1] if goes_on else text}\n{line}"
        return text.strip() if is_pasted else text, is_pasted

    def _create_prompt_session(self) -> PromptSession[str]:
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
            output=open_output(sys.stdout),
        )

    async def _open_editor(self, buffer: Buffer) -> None:
        edited = await run_in_terminal(lambda: user_programs.edit(self.pasted.unfold(buffer.text)), in_executor=True)
        if edited is not None:
            text = self.pasted.fold(edited)
            buffer.document = Document(text, len(text))

    def _accept(self, buffer: Buffer) -> bool:
        user_input = self.to_input(buffer.text)
        get_app().vi_state.reset()  # the next line begins in insert mode, as in readline
        if user_input.text:
            self.on_submit(user_input)
        return False

    def _steer(self, buffer: Buffer) -> bool:
        is_sent = bool(buffer.text.strip()) and self.on_steer(self.to_input(buffer.text))
        if is_sent:
            buffer.reset(append_to_history=True)
        return is_sent

    def _paste_image(self, buffer: Buffer) -> None:
        get_app().create_background_task(self._insert_image(buffer))

    async def _insert_image(self, buffer: Buffer) -> None:
        try:
            path = await asyncio.to_thread(save_clipboard_image)
        except (OSError, ValueError) as error:
            warn(f"no image is pasted: {error}")
            return
        if path is None:
            warn("there is no image in the clipboard, or no program that returns it (dial-chat help terminal-input)")
        else:
            buffer.insert_text(f"{build_mention(str(path))} ")

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
