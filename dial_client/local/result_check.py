"""Answers from results that say nothing of the results.

Half a billion parameters now and then answer that they have looked, and leave out what they found. Such an answer is
replaced by the results. For this its beginning is held back until a word or a number of the results occurs in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dial_client.local.vocabulary import words
from dial_client.messages import NO_OUTPUT

MAX_RESULT_CHARS = 1_500
"""Characters of the results that replace an answer."""
_NUMBER = re.compile(r"\d+")


class ResultCheck:
    """The beginning of an answer, held back until it has something of the results.

    Args:
        question: the user's question; its words count for nothing.
        results: the results of the turn, each behind the name of its tool. Without any, nothing is held back.
    """

    def __init__(self, question: str, results: Sequence[str]) -> None:
        self._results = [text for text in (result.partition(": ")[2] for result in results) if text != NO_OUTPUT]
        self._news = frozenset[str]().union(*map(_content, self._results)) - _content(question)
        self._held = ""
        self._is_open = not self._news

    def feed(self, text: str) -> str:
        """Add a piece of the answer, and return the text that can be shown."""
        if self._is_open:
            return text
        self._held += text
        if self._news.isdisjoint(_content(self._held)):
            return ""
        self._is_open = True
        return self._held

    def finish(self) -> str:
        """Return the text that follows at the answer's end: the results, if the answer has nothing of them."""
        return "" if self._is_open else "\n".join(self._results).strip()[:MAX_RESULT_CHARS]


def _content(text: str) -> frozenset[str]:
    return words(text) | frozenset(_NUMBER.findall(text))
