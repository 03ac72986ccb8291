"""Detects answers that only repeat the question: the embedded model repeats one in ten "how do I" questions."""

from __future__ import annotations

import re

MAX_ECHO_CHARS = 240
"""Characters of an opening that is held back because it may repeat the question."""
ANSWER_NOW = "{question}\n\nYour answer:"
"""The prompt of a second attempt. As the first prompt, it would make the model answer everything in one sentence."""

_WORD = re.compile(r"\w+")
_ASKS_USER = re.compile(r"(?:can|could|would|will) you\b", re.IGNORECASE)


class Opening:
    """The opening of an answer, held back for as long as it may only repeat the question.

    Args:
        question: The user's question.
    """

    def __init__(self, question: str) -> None:
        self._is_question = question.rstrip().endswith(("?", "\N{FULLWIDTH QUESTION MARK}"))
        self._words = {word.lower() for word in _WORD.findall(question)}
        self._held = ""
        self._is_open = not self._is_question

    def feed(self, text: str) -> str:
        """Add a piece of the answer, and return the text that can be shown."""
        if self._is_open:
            return text
        self._held += text
        if self._may_be_echo():
            return ""
        self._is_open = True
        return self._held

    @property
    def is_echo(self) -> bool:
        """True if the complete answer only repeats the question."""
        return not self._is_open and self._held.rstrip().endswith("?")

    def finish(self) -> str:
        """Return the text that is still held back, at the end of an answer that is not an echo."""
        return "" if self._is_open else self._held

    def _may_be_echo(self) -> bool:
        opening = self._held.strip()
        if len(opening) > MAX_ECHO_CHARS or re.search(r"[.!:\n]", opening):
            return False
        if _ASKS_USER.match(opening):
            return True
        words = [word.lower() for word in _WORD.findall(opening)]
        shared = sum(word in self._words for word in words)
        return len(words) <= 3 or shared * 2 >= len(words)
