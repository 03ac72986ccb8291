"""Checks answers from results against the results.

Sometimes the embedded model answers only that it has looked, without the result; stops at the first of two results; or
writes a number, a time or a name from the worked examples that no result has. The results replace such an answer. For
this check, the beginning of an answer is held back until, at the end of a sentence or line, it has new content from the
results, from a later result if there is one. A later sentence is shown once it is complete, and left out if it has such
a number, time or name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dial_client.messages.message import NO_OUTPUT
from dial_client.providers.embedded.answer_prompt import EXAMPLE_NAMES
from dial_client.providers.embedded.text_values import find_addresses, find_numbers, join_groups
from dial_client.providers.embedded.vocabulary import find_words

MAX_RESULT_CHARS = 1_500
"""Characters of the results that replace an answer."""
MAX_HELD_CHARS = 300
"""Characters of an answer to hold back until a sentence ends."""

_DIGITS = re.compile(r"[0-9]+")
_TIME = re.compile(r"(?<![\d:+-])(\d{1,2})(?::(\d\d))?(?::\d\d)?(?:\s*([ap])\.?m\b)?", re.IGNORECASE)
_NUMBERING = re.compile(r"^[^\S\n]*\d+[.)]\s", re.MULTILINE)
_END = re.compile(r"[.!?:](?=\s)|\n")
# Possessive quantifiers: results may be long, and backtracking would never find a longer match.
_VALUE = r"(?<![^\s,;])[^\s,;\d]*+\d[^\s,;]*+"
_LIST = re.compile(rf"{_VALUE}(?>(?:, {_VALUE})*)(?P<last>,? (?:and|or) {_VALUE})?")
_SHOWS = re.compile(r"\s*(?:please |can you |could you )?(?:show|list|print|display|read)\b", re.IGNORECASE)
_ASKS_MORE = re.compile(r"\b(?:and|then|tell|which|what|how|who|when|where|why|explain|summari[sz]e)\b", re.IGNORECASE)


class ResultCheck:
    """Holds back the beginning of an answer until it has new content and only known numbers.

    Args:
        question: The user's question. Its words do not count as new content.
        results: The results of the turn, each prefixed with its tool's name. Without results, nothing is held back.
    """

    def __init__(self, question: str, results: Sequence[str]) -> None:
        self._results = _extract_texts(results)
        question_text = f"{question} {' '.join(_find_times(question))}"
        first = _find_content("\n".join((question_text, *self._results[:1])))
        later = _find_content("\n".join(self._results[1:]))
        everything = _find_content("\n".join(self._results))
        self._news = (later - first) or (everything - _find_content(question_text))
        known = "\n".join((question_text, *self._results))
        self._known = _format_numbers(known) | _derive_numbers("\n".join(self._results))
        self._times = _find_times(known)
        self._strange_names = tuple(name for name in EXAMPLE_NAMES if name not in known)
        self._held = ""
        self._shown = ""
        self._is_open = not self._news
        self._has_no_results = not self._results
        self._is_shortened = False

    def feed(self, text: str) -> str:
        """Add a piece of the answer, and return the text that can be shown."""
        if self._has_no_results:
            return text
        self._held += text
        visible = "" if self._is_open else self._take_beginning()
        if self._is_open:
            visible += "".join(map(self._take_sentence, self._take_whole_sentences()))
        self._shown += visible
        return visible

    def _take_beginning(self) -> str:
        """Return the beginning up to the first end of a sentence at which it passes the checks; empty before that."""
        ends = [found.end() for found in _END.finditer(self._held)]
        ends += [len(self._held)] if len(self._held) > MAX_HELD_CHARS else []
        end = next((end for end in ends if self._is_good(self._held[:end])), None)
        if end is None:
            return ""
        self._is_open, visible, self._held = True, self._held[:end], self._held[end:]
        return visible

    def _take_whole_sentences(self) -> list[str]:
        """Remove the complete sentences from the held text and return them."""
        ends = [found.end() for found in _END.finditer(self._held)]
        sentences = [self._held[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        self._held = self._held[ends[-1] :] if ends else self._held
        return sentences

    def _take_sentence(self, sentence: str) -> str:
        """Return a later sentence; without its text if it has an unknown number, time or name."""
        if self._is_known(sentence):
            return sentence
        self._is_shortened = True
        return "\n" if sentence.endswith("\n") else ""

    def finish(self) -> str:
        """Return the text for the end of the answer: the rest of the answer, or the results if they replace it.

        The results follow an answer that has only some of the values that a result joins by "and". If sentences of the
        answer were left out, the results whose numbers it lacks follow.
        """
        if self._has_no_results:
            return ""
        if not self._is_open and not self._is_good(self._held):
            return quote(self._results)
        rest = self._take_sentence(self._held) if self._is_open else self._held
        answer = self._shown + rest
        groups = [group for text in self._results for group in _find_groups(text)]
        cut = [
            group for group in groups if 0 < sum(v in answer for v in _find_values(group)) < len(_find_values(group))
        ]
        if self._news and cut:
            return f"{rest}\n\n{quote(self._results)}"
        unreported = [
            text
            for text in self._results
            if _format_numbers(text) and _format_numbers(text).isdisjoint(_format_numbers(answer))
        ]
        return f"{rest}\n\n{quote(unreported)}" if self._is_shortened and unreported else rest

    def _is_good(self, text: str) -> bool:
        is_news = not self._news.isdisjoint(_find_content(f"{text} {' '.join(_find_times(text))}"))
        return is_news and self._is_known(text)

    def _is_known(self, text: str) -> bool:
        plain = _NUMBERING.sub("", text)
        has_strange_name = any(name in plain for name in self._strange_names)
        return not has_strange_name and _format_numbers(plain) <= self._known and _find_times(plain) <= self._times


def quote(results: Sequence[str]) -> str:
    """Return results as a reply; several lines are put into a code fence."""
    text = "\n".join(results).strip()
    text = text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS].rstrip()}…"
    return f"```\n{text}\n```" if "\n" in text and "```" not in text else text


def find_shown_result(question: str, results: Sequence[str]) -> str | None:
    """Return the only result if the user just asks to see it, so that it is the answer; None otherwise."""
    texts = _extract_texts(results)
    if len(texts) != 1 or not _SHOWS.match(question) or _ASKS_MORE.search(question):
        return None
    return quote(texts)


def _extract_texts(results: Sequence[str]) -> list[str]:
    return [text for text in (result.partition(": ")[2] for result in results) if text != NO_OUTPUT]


def _find_content(text: str) -> frozenset[str]:
    addresses = frozenset(address.lower() for address in find_addresses(text))
    return find_words(text) | addresses | frozenset(_DIGITS.findall(join_groups(text)))


def _find_groups(text: str) -> list[str]:
    """Return the lists of values that end in "and" or "or" and a last value."""
    return [found[0] for found in _LIST.finditer(text) if found["last"]]


def _find_values(group: str) -> list[str]:
    return re.findall(_VALUE, group)


def _format_numbers(text: str) -> frozenset[str]:
    return frozenset(f"{number:g}" for number in find_numbers(text))


def _find_times(text: str) -> frozenset[str]:
    """Return the times of day in a text, on the 24-hour clock."""
    found = ((match, (match[3] or "").lower()) for match in _TIME.finditer(text) if match[2] or match[3])
    return frozenset(
        f"{int(match[1]) % 12 + 12 * (half == 'p') if half else int(match[1]):02}:{match[2] or '00'}"
        for match, half in found
    )


def _derive_numbers(results: str) -> frozenset[str]:
    """Return numbers that may describe results without being in them: hours on a 12-hour clock, and counts."""
    hours = {f"{int(time[:2]) % 12 or 12}" for time in _find_times(results)}
    digits = {number.lstrip("0") or "0" for number in _DIGITS.findall(results)}
    lines = sum(bool(line.strip()) for line in results.splitlines())
    return frozenset(hours | digits | {"1", str(lines)})
