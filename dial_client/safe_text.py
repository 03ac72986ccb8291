"""Foreign text made safe: no escapes, no control characters, nothing invisible.

A terminal would act on it, and a model would read what the person beside it does not see: both get the same text.

What is removed: ECMA-48 control sequences (CSI, OSC, DCS, APC, PM, SOS, in 7 and 8 bit), C0 and C1 controls but for
line feed and tab, carriage returns, bidirectional overrides, zero-width and TAG characters, and lone surrogates. A
string (OSC, DCS, …) that does not end soon and on its line is no string: mere text in a wrong encoding often looks like
the beginning of one, and what it says must not get lost.
"""

from __future__ import annotations

import re

MAX_HELD = 4096
"""Characters of a string that are waited for."""

_CSI = r"(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,16}+"
_STRING = r"(?:\x1b[\]P_^X]|[\x9d\x90\x9f\x9e\x98])"
_PAYLOAD = rf"[^\x00-\x1f\x7f-\x9f]{{0,{MAX_HELD}}}+"
_OTHER = r"\x1b[ -/]{0,16}+"
_SEQUENCE = re.compile(rf"{_CSI}[@-~]?|{_STRING}(?:{_PAYLOAD}(?:\x07|\x1b\\|\x9c))?|{_OTHER}[0-~]?")
_OPEN = re.compile(rf"{_CSI}\Z|{_STRING}{_PAYLOAD}\x1b?\Z|{_OTHER}\Z")
_UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)  # what begins a sequence is among them


def safe(text: str) -> str:
    """Give the text without anything a terminal would act on, or that nobody sees."""
    if _UNWANTED.search(text) is None:
        return text
    return _UNWANTED.sub("", _SEQUENCE.sub("", text))


def one_line(text: str, most: int) -> str:
    """Give the text on one line, cut to at most `most` characters, for a name or a message among others."""
    flat = " ".join(safe(text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


class SafeStream:
    """`safe` for text that comes in pieces: a sequence that is split over two pieces is removed too."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Take more, give what can be shown."""
        text = self._held + text
        unfinished = _OPEN.search(text)
        start = unfinished.start() if unfinished else len(text)
        self._held = text[start:]
        return safe(text[:start])

    def finish(self) -> str:
        """Take the end, give the rest of what can be shown."""
        held, self._held = self._held, ""
        return safe(held)
