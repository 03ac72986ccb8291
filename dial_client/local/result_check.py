"""Answers from results, checked against the results.

Half a billion parameters now and then answer that they have looked, and leave out what they found; stop at the first of
two results; or write a number, a time or a name of the worked examples that no result has. Such an answer is replaced
by the results. For this its beginning is held back until it has something of the results behind the first, up to the
end of a sentence or a line. A later sentence is shown when it is whole, and left out if it has such a number or name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dial_client.local.answer_prompt import EXAMPLE_NAMES
from dial_client.local.text_values import find_addresses, find_numbers, join_groups
from dial_client.local.vocabulary import words
from dial_client.messages.message import NO_OUTPUT

MAX_RESULT_CHARS = 1_500
"""Characters of the results that replace an answer."""
MAX_HELD_CHARS = 300
"""Characters of an answer that are held back for the end of a sentence."""

_DIGITS = re.compile(r"[0-9]+")
_TIME = re.compile(r"(?<![\d:+-])(\d{1,2})(?::(\d\d))?(?::\d\d)?(?:\s*([ap])\.?m\b)?", re.IGNORECASE)
_NUMBERING = re.compile(r"^[^\S\n]*\d+[.)]\s", re.MULTILINE)
_END = re.compile(r"[.!?:](?=\s)|\n")
# Possessive: the results are of any length, and no shorter match of a value or of a list leads to a longer group.
_VALUE = r"(?<![^\s,;])[^\s,;\d]*+\d[^\s,;]*+"
_LIST = re.compile(rf"{_VALUE}(?:, {_VALUE})*+(?P<last>,? (?:and|or) {_VALUE})?")
_SHOWS = re.compile(r"\s*(?:please |can you |could you )?(?:show|list|print|display|read)\b", re.IGNORECASE)
_ASKS_MORE = re.compile(r"\b(?:and|then|tell|which|what|how|who|when|where|why|explain|summari[sz]e)\b", re.IGNORECASE)


class ResultCheck:
    """The beginning of an answer, held back until it has something new, and no number from nowhere.

    Args:
        question: the user's question; its words count for nothing.
        results: the results of the turn, each behind the name of its tool. Without any, nothing is held back.
    """

    def __init__(self, question: str, results: Sequence[str]) -> None:
        self._results = _texts(results)
        asked = f"{question} {' '.join(_times(question))}"
        first = _content("\n".join((asked, *self._results[:1])))
        later = _content("\n".join(self._results[1:]))
        everything = _content("\n".join(self._results))
        self._news = (later - first) or (everything - _content(asked))
        known = "\n".join((asked, *self._results))
        self._known = _numbers(known) | _derived("\n".join(self._results))
        self._times = _times(known)
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
        begun = "" if self._is_open else self._take_beginning()
        if self._is_open:
            begun += "".join(map(self._take_sentence, self._whole_sentences()))
        self._shown += begun
        return begun

    def _take_beginning(self) -> str:
        """Take what can be shown of the beginning, if it is good up to the end of one of its sentences."""
        ends = [found.end() for found in _END.finditer(self._held)]
        ends += [len(self._held)] if len(self._held) > MAX_HELD_CHARS else []
        end = next((end for end in ends if self._is_good(self._held[:end])), None)
        if end is None:
            return ""
        self._is_open, begun, self._held = True, self._held[:end], self._held[end:]
        return begun

    def _whole_sentences(self) -> list[str]:
        """Take the whole sentences from what is held back."""
        ends = [found.end() for found in _END.finditer(self._held)]
        sentences = [self._held[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        self._held = self._held[ends[-1] :] if ends else self._held
        return sentences

    def _take_sentence(self, sentence: str) -> str:
        """Return a later sentence, or nothing in place of one with a number or a time from nowhere."""
        if self._is_known(sentence):
            return sentence
        self._is_shortened = True
        return "\n" if sentence.endswith("\n") else ""

    def finish(self) -> str:
        """Return the text that follows at the answer's end: the rest of the answer, or the results in its place.

        Behind an answer with only one of several values that a result joins by "and" stands that result.
        """
        if self._has_no_results:
            return ""
        if not self._is_open and not self._is_good(self._held):
            return quote(self._results)
        rest = self._take_sentence(self._held) if self._is_open else self._held
        answer = self._shown + rest
        groups = [group for text in self._results for group in _groups(text)]
        cut = [group for group in groups if 0 < sum(v in answer for v in _values(group)) < len(_values(group))]
        if self._news and cut:
            return f"{rest}\n\n{quote(self._results)}"
        untold = [text for text in self._results if _numbers(text) and _numbers(text).isdisjoint(_numbers(answer))]
        return f"{rest}\n\n{quote(untold)}" if self._is_shortened and untold else rest

    def _is_good(self, text: str) -> bool:
        is_news = not self._news.isdisjoint(_content(f"{text} {' '.join(_times(text))}"))
        return is_news and self._is_known(text)

    def _is_known(self, text: str) -> bool:
        plain = _NUMBERING.sub("", text)
        has_strange_name = any(name in plain for name in self._strange_names)
        return not has_strange_name and _numbers(plain) <= self._known and _times(plain) <= self._times


def quote(results: Sequence[str]) -> str:
    """Return results as a reply: several lines as they are, in a fence."""
    text = "\n".join(results).strip()
    text = text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS].rstrip()}…"
    return f"```\n{text}\n```" if "\n" in text and "```" not in text else text


def find_shown_result(question: str, results: Sequence[str]) -> str | None:
    """Return the result that is the answer as it is, or None: where a user only asks to see it."""
    texts = _texts(results)
    if len(texts) != 1 or not _SHOWS.match(question) or _ASKS_MORE.search(question):
        return None
    return quote(texts)


def _texts(results: Sequence[str]) -> list[str]:
    return [text for text in (result.partition(": ")[2] for result in results) if text != NO_OUTPUT]


def _content(text: str) -> frozenset[str]:
    addresses = frozenset(address.lower() for address in find_addresses(text))
    return words(text) | addresses | frozenset(_DIGITS.findall(join_groups(text)))


def _groups(text: str) -> list[str]:
    """Return the lists of values that end in "and" or "or" and one more."""
    return [found[0] for found in _LIST.finditer(text) if found["last"]]


def _values(group: str) -> list[str]:
    return re.findall(_VALUE, group)


def _numbers(text: str) -> frozenset[str]:
    return frozenset(f"{number:g}" for number in find_numbers(text))


def _times(text: str) -> frozenset[str]:
    """Return the times of day of a text, by the clock of 24 hours."""
    found = ((match, (match[3] or "").lower()) for match in _TIME.finditer(text) if match[2] or match[3])
    return frozenset(
        f"{int(match[1]) % 12 + 12 * (half == 'p') if half else int(match[1]):02}:{match[2] or '00'}"
        for match, half in found
    )


def _derived(results: str) -> frozenset[str]:
    """Return the numbers that may be said of results which do not have them: hours on a 12-hour clock, and a count."""
    hours = {f"{int(time[:2]) % 12 or 12}" for time in _times(results)}
    digits = {number.lstrip("0") or "0" for number in _DIGITS.findall(results)}
    lines = sum(bool(line.strip()) for line in results.splitlines())
    return frozenset(hours | digits | {"1", str(lines)})
