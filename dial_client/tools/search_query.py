"""The terms of a search for tools: the words of a query, with their synonyms and similar spellings.

Models write the queries, so each is read only up to a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from dial_client.runtime.normalization import (
    HUMP,
    PARTICLES,
    QUESTIONS,
    SAME_AS,
    WORD,
    build_synonyms,
    find_significant_stem,
    fold,
    list_letter_pairs,
    read_verbs,
)

# Maximum characters of a query that are read.
MAX_QUERY = 500
# Maximum number of different words of a query; later words are ignored.
MAX_TERMS = 24
# Maximum number of unknown words of a query for which similar spellings are searched.
MAX_UNKNOWN = 6
# Maximum number of similar words that match an unknown word.
MAX_ALIKE = 5

# The weight of a synonym of a query word.
_SYNONYM = 0.7
# The weight of a word that may be part of a verb ("turn on") or have no meaning of its own ("on Monday").
_PARTICLE = 0.3
# The weight of words such as get, list or find, which are added if the query is a question.
_ASKED = 0.5
# The minimum similarity of two words with different spellings: Dice's coefficient of their pairs of letters.
_LIKENESS = 0.55
# The maximum difference in length of two similar words.
_MAX_DIFFERENCE = 4

# A word of a query with its synonyms and similar words, and the weight of each, from 0 to 1.
Term = Mapping[str, float]


class Vocabulary:
    """The words of all tools, which decide how the words of a query are read.

    Args:
        words: The stems of all tools.
    """

    def __init__(self, words: Collection[str]) -> None:
        self._words = words
        # The words by their first letters: a misspelled word mostly begins with the right one. Built on first use.
        self._by_letter: dict[str, list[str]] | None = None

    def find_terms(self, query: str) -> list[Term]:
        """Return for each word of a query the word itself and its synonyms and similar words, with their weights."""
        return list(self._find_terms(query[:MAX_QUERY]))

    def _find_terms(self, query: str) -> Iterator[Term]:
        unknown = 0
        if QUESTIONS.intersection(WORD.findall(query.casefold())[:1]):
            yield dict.fromkeys(("get", "list", "search", "find", "read"), _ASKED)
        for word in self._find_stems(query)[:MAX_TERMS]:
            alternatives = dict.fromkeys(build_synonyms().get(word, ()), _SYNONYM)
            alternatives[word] = _PARTICLE if word in PARTICLES else 1.0
            if unknown < MAX_UNKNOWN and all(known not in self._words for known in alternatives):
                unknown += 1
                alternatives |= self._find_similar(word)
            yield alternatives

    def _find_stems(self, query: str) -> list[str]:
        """Return the different stems of a query, and the stems of synonyms of its phrases."""
        parts = (part for chunk in WORD.findall(query) for part in self._split(chunk))
        stems = [word for part in parts if (word := find_significant_stem(part)) and not word.isdigit()]
        words = dict.fromkeys(stems)
        for word in stems:
            words |= dict.fromkeys(SAME_AS.get((word,), ()))
        for pair in pairwise(stems):
            words |= dict.fromkeys(SAME_AS.get(pair, ()))
            if (joined := "".join(pair)) in self._words:
                words[joined] = None
        return list(words)

    def _split(self, chunk: str) -> list[str]:
        """Return the parts of a word such as ``GitHub``; the whole word if a tool contains it."""
        whole = fold(chunk)
        return [whole] if find_significant_stem(whole) in self._words else [fold(part) for part in HUMP.split(chunk)]

    def _find_similar(self, word: str) -> dict[str, float]:
        """Return the known words most similar to an unknown word, which may be misspelled or inflected."""
        if len(word) < 5:
            return {}
        if self._by_letter is None:
            self._by_letter = {}
            for known in self._words:
                self._by_letter.setdefault(known[0], []).append(known)
        pairs = list_letter_pairs(word)
        alike = []
        for known in self._by_letter.get(word[0], ()):
            if abs(len(known) - len(word)) <= _MAX_DIFFERENCE:
                # A word has one pair more than it has letters, because its start and end count as letters.
                likeness = 2 * len(pairs & list_letter_pairs(known)) / (len(word) + len(known) + 2)
                if likeness >= _LIKENESS:
                    alike.append((-likeness, known))
        return {known: value**2 for value, known in sorted(alike)[:MAX_ALIKE]}


def find_verbs(terms: Iterable[Term]) -> set[bool]:
    """Return whether the verbs of a query remove something: both, one or none of True and False."""
    verbs = read_verbs()
    return {verbs[word] for term in terms for word, part in term.items() if part == 1.0 and word in verbs}
