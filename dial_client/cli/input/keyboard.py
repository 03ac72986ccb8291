"""Keyboard input: keys that terminals report with their modifiers (Shift-Enter), and pasted text of any size.

Terminals use two formats of reports: ``CSI code ; modifiers u`` (fixterms, the kitty keyboard protocol), and ``CSI 27 ;
modifiers ; code ~`` (xterm's modifyOtherKeys). Both become the key that a terminal without such reports would have
sent, and Enter with Shift or Ctrl becomes Ctrl-J. `open_output` turns xterm's reports on if the terminal is known to
support them.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import StdoutProxy

_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"
_REPORT = re.compile(r"\x1b\[(?:(\d{1,7})(?::\d*)*(?:;(\d{0,3})(?::\d)?(?:;[\d:]*)?)?u|27;(\d{1,3});(\d{1,7})~)")
_UNFINISHED = re.compile(r"\x1b\[[\d;:]{1,40}\Z")
_SHIFT, _ALT, _CTRL, _OTHER_MODIFIERS = 1, 2, 4, 8 | 16 | 32
# Keys of the numeric keypad, which the kitty protocol numbers.
_KEYPAD = {57414: "\r"} | {57399 + digit: str(digit) for digit in range(10)}
# Values of ``TERM_PROGRAM`` whose terminals support reports. Some other terminals misread the request as a colour.
_REPORTING = ("iTerm.app", "WezTerm", "ghostty", "mintty", "tmux")
# The keys that end a line, by what a terminal makes of them that edits lines itself.
_ENDS: Mapping[Keys | str, KeyPress] = MappingProxyType(
    {Keys.ControlJ: KeyPress(Keys.ControlM, "\r"), Keys.ControlAt: KeyPress(Keys.ControlD, "\x04")}
)


def decode_reports(text: str) -> str:
    """Return the text with each report of a key and its modifiers replaced by the characters of the key."""
    return _REPORT.sub(_decode, text) if "\x1b[" in text else text


def _decode(found: re.Match[str]) -> str:
    code, modifiers = int(found[1] or found[4]), int(found[2] or found[3] or 1) - 1
    if code in _KEYPAD:
        return _KEYPAD[code]
    if modifiers & _OTHER_MODIFIERS or code > sys.maxunicode or 57344 <= code <= 63743 or 0xD800 <= code < 0xE000:
        return ""
    match code, modifiers & (_SHIFT | _ALT | _CTRL):
        case 13, held:
            return "\x1b\r" if held == _ALT else "\n" if held else "\r"
        case 9, held if held & _SHIFT:
            return "\x1b[Z"
        case 127, held:
            return "\x1b\x7f" if held & (_ALT | _CTRL) else "\x7f"
        case _, held:
            return _with_modifiers(chr(code), held)


def _with_modifiers(letter: str, held: int) -> str:
    if held & _CTRL:
        if not (letter.isascii() and letter.upper() in "@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_ "):
            return ""
        letter = "\x00" if letter == " " else chr(ord(letter.upper()) & 0x1F)
    elif held & _SHIFT:
        letter = letter.upper()
    return f"\x1b{letter}" if held & _ALT else letter


class KeyboardParser(Vt100Parser):
    """Parses the input of a terminal into keys; the time for pasted text is proportional to its length."""

    def reset(self, request: bool = False) -> None:  # noqa: FBT001, FBT002 - the signature of prompt_toolkit
        """Discard incomplete input."""
        super().reset(request)
        self._held = ""
        self._pasted: list[str] = []

    def feed(self, data: str) -> None:
        """Parse more input of the terminal."""
        if self._in_bracketed_paste:
            self._feed_pasted(data)
            return
        data, self._held = self._held + data, ""
        typed, begins, pasted = data.partition(_PASTE_BEGIN)
        unfinished = None if begins else _UNFINISHED.search(typed)
        if unfinished:
            typed, self._held = typed[: unfinished.start()], unfinished[0]
        super().feed(decode_reports(typed))
        if begins:
            super().feed(begins)
            self._feed_pasted(pasted)

    def flush(self) -> None:
        """Treat incomplete input as complete, because no more input came in time."""
        held, self._held = self._held, ""
        super().feed(held)
        super().flush()

    def _feed_pasted(self, data: str) -> None:
        # The end mark may arrive split into pieces, down to single characters.
        tail = 1 - len(_PASTE_END)
        kept_end = "".join(self._pasted[tail:])[tail:]
        self._pasted.append(data)
        if _PASTE_END not in kept_end + data:
            return
        text, _, rest = "".join(self._pasted).partition(_PASTE_END)
        self._pasted = []
        self._in_bracketed_paste = False
        self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))
        self.feed(rest)


def open_input() -> Input:
    """Return the keyboard input of the terminal, with decoded reports."""
    return with_decoded_keys(create_input())


def with_decoded_keys(keyboard: Input) -> Input:
    """Return the keyboard with a `KeyboardParser`; the console of Windows needs none."""
    if sys.platform != "win32" and hasattr(keyboard, "vt100_parser"):
        keyboard.vt100_parser = KeyboardParser(keyboard.vt100_parser.feed_key_callback)
    return keyboard


def read_early_lines(application: Application[Any], typed_before: str = "") -> None:
    """Pass on lines that were typed before the application ran, with what ended them turned into the key that did.

    The keyboard must be in raw mode already: a key that came between this function and the change of the mode would
    be another key. Linux turns Ctrl-D, which it has read as the end of a line, into a null character then, and this is
    Ctrl-Space.

    Args:
        application: The application that gets the keys.
        typed_before: What another reader has read from the terminal before.
    """
    keyboard: Any = application.input

    def pass_on() -> None:
        application.key_processor.feed_multiple([_ENDS.get(press.key, press) for press in keyboard.read_keys()])

    # The Windows console passes on early keys by itself.
    if typed_before and hasattr(keyboard, "vt100_parser"):
        keyboard.vt100_parser.feed(typed_before)
        pass_on()
    while sys.platform != "win32" and not keyboard.closed and select.select([keyboard.fileno()], [], [], 0)[0]:
        pass_on()
    if keyboard.closed:
        # Ctrl-D ends the input for the current reader only: reopen it, and pass on the key.
        if hasattr(keyboard, "stdin_reader"):
            keyboard.stdin_reader.closed = False
        application.key_processor.feed(KeyPress(Keys.ControlD, "\x04"))


class KeyReportingOutput(Vt100_Output):
    """A terminal output that requests reports of Shift-Enter while keys are read, if the terminal supports them."""

    def enable_bracketed_paste(self) -> None:
        """Request marks around pasted text, and reports of modified keys."""
        super().enable_bracketed_paste()
        if can_report_modified_keys():
            self.write_raw("\x1b[>4;1m")

    def disable_bracketed_paste(self) -> None:
        """Cancel both requests."""
        super().disable_bracketed_paste()
        if can_report_modified_keys():
            self.write_raw("\x1b[>4;0m")


def can_report_modified_keys(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the terminal is known to support xterm's reports of modified keys."""
    program, term = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    return "XTERM_VERSION" in environment or program in _REPORTING or term.startswith("foot")


def open_output(stream: TextIO | StdoutProxy, kind: type[Vt100_Output] = KeyReportingOutput) -> Output:
    """Return the terminal output of a stream, such as standard error, without queries of the cursor position.

    If a terminal does not answer such a query, prompt_toolkit prints a warning. The console of Windows has an output of
    its own, not of this `kind`.
    """
    terminal = stream.original_stdout if isinstance(stream, StdoutProxy) else stream
    if sys.platform == "win32" or terminal is None or not terminal.isatty():
        return create_output(terminal)
    output = kind.from_pty(terminal, term=os.environ.get("TERM"), default_color_depth=ColorDepth.from_env())
    output.enable_cpr = False
    return output
