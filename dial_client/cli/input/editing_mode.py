"""The editing mode of the input line, emacs or vi, as the user has set it for readline."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit.enums import EditingMode

VARIABLE = "DIAL_EDITING_MODE"
"""The environment variable that sets the mode: ``vi`` or ``emacs``."""
MAX_BYTES = 100_000
_SETTING = re.compile(r"set\s+editing-mode\s+(vi|emacs)\b", re.IGNORECASE)
_APPLICATION = "dial-chat"


def find_editing_mode(environment: Mapping[str, str] = os.environ) -> EditingMode:
    """Return the mode that `VARIABLE` sets, else the mode of readline's ``inputrc``, else emacs."""
    chosen = environment.get(VARIABLE, "").strip().lower()
    if chosen not in ("vi", "emacs"):
        chosen = _from_inputrc(_read_inputrc(environment))
    return EditingMode.VI if chosen == "vi" else EditingMode.EMACS


def _read_inputrc(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or environment.get("USERPROFILE") or ""
    for name in (environment.get("INPUTRC"), str(Path(home, ".inputrc")) if home else None, "/etc/inputrc"):
        if name and Path(name).is_file():
            try:
                with Path(name).open("rb") as file:
                    return file.read(MAX_BYTES).decode(errors="replace")
            except OSError:
                return ""
    return ""


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
