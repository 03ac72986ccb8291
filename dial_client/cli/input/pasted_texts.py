"""Pasted texts: a long one is folded in the input line, ``[pasted 200 lines]``, and unfolded when it is sent."""

from __future__ import annotations

import re

from dial_client.turns.mentions import MENTION

# The number of lines from which a pasted text is folded.
FOLDED_LINES = 6
# The number of characters from which a pasted text is folded.
FOLDED_CHARS = 800
_PLACEHOLDER = re.compile(r"\[pasted [^\[\]\n]{1,60}\]")


def normalize_newlines(text: str) -> str:
    """Return the text with a line feed for each line break; terminals send carriage returns."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class PastedTexts:
    """The folded texts of one program run, by their placeholders."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def to_insertion(self, text: str, *, is_draft: bool = False) -> str:
        """Return the text to insert into the input line for a pasted text: the text itself, or a placeholder.

        A text with a reference to a file or a resource (``@``) is folded whatever its length, so that pasted text
        cannot attach anything. With `is_draft`, the text is the whole line, and it is also folded if it would be a
        command.
        """
        lines = text.count("\n") + (not text.endswith("\n"))
        is_command = is_draft and text.lstrip().startswith(("!", "/"))
        is_plain = not (is_command or _has_mention(text) or _PLACEHOLDER.search(text))
        if lines < FOLDED_LINES and len(text) < FOLDED_CHARS and is_plain:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        number = 1
        placeholder = f"[pasted {size}]"
        while self._texts.setdefault(placeholder, text) != text:
            number += 1
            placeholder = f"[pasted {size}, no. {number}]"
        return placeholder

    def unfold(self, text: str) -> str:
        """Return the text with the pasted texts in place of their placeholders."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def unfold_for_history(self, text: str) -> str:
        """Return the unfolded text, as the history stores it.

        The result is empty if pasted text in it would be a reference or a command, because text that a later run
        recalls counts as typed.
        """
        texts = [self._texts[found[0]] for found in _PLACEHOLDER.finditer(text) if found[0] in self._texts]
        begins_folded = bool(texts) and self.find_placeholder_before(text.lstrip().partition("]")[0] + "]") != ""
        whole = self.unfold(text)
        is_command = begins_folded and whole.lstrip().startswith(("!", "/"))
        return "" if is_command or any(map(_has_mention, texts)) else whole

    def fold(self, text: str) -> str:
        """Return the text with each pasted text in it replaced by its placeholder, the longest first."""
        for placeholder, pasted in sorted(self._texts.items(), key=lambda item: -len(item[1])):
            text = text.replace(pasted, placeholder)
        return text

    def without(self, text: str) -> str:
        """Return the text without its placeholders."""
        return _PLACEHOLDER.sub(lambda found: " " if found[0] in self._texts else found[0], text)

    def find_placeholder_before(self, text: str) -> str:
        """Return the placeholder that the text ends with; empty if there is none."""
        found = next((found for found in _PLACEHOLDER.finditer(text[-80:]) if text.endswith(found[0])), None)
        return found[0] if found and found[0] in self._texts else ""


def _has_mention(text: str) -> bool:
    return MENTION.search(text) is not None
