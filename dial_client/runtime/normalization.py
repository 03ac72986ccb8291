"""Stems, stop words and synonyms of English, chosen for the names and descriptions of tools.

No rule is specific to a server or product. Words of other languages only lose their diacritics.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dial_client.runtime.lazy_pattern import compile_lazily

# Maximum characters of a word; longer words are cut.
MAX_WORD = 40
# Maximum characters of a name that are read.
MAX_NAME = 200

WORD = compile_lazily(r"[^\W_]+")
# The boundaries between the words of ``camelCase``.
HUMP = compile_lazily(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# For ASCII, a table is several times faster than `WORD`: letters in lower case, and a space in place of all else.
_ASCII_WORDS = bytes(
    code if code > 127 else ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(256)
)
_MARKS = compile_lazily("[\u0300-\u036f]")

# Words that have a meaning after a verb, and mostly none elsewhere.
PARTICLES = frozenset({"back", "down", "off", "on", "out", "over", "up"})

# The first words of questions, which most likely need a tool that gets, lists or finds something.
QUESTIONS = frozenset(
    {"are", "did", "do", "does", "how", "is", "was", "were", "what", "when", "where", "which", "who", "whose", "why"}
)

# English endings, each with the minimum number of letters of the word without it.
_ENDINGS = (("ing", 3), ("ed", 3), ("ion", 3), ("ment", 3), ("er", 4), ("ly", 5))

# Abbreviations and phrases as stems, with the stems of their synonyms.
SAME_AS = {
    ("pull", "request"): ("pr",),
    ("merge", "request"): ("mr",),
    ("direct", "messag"): ("dm",),
    ("look", "up"): ("find",),
    ("get", "rid"): ("delet",),
    ("work", "out"): ("calculat",),
    ("pr",): ("pull", "request"),
    ("mr",): ("merg", "request"),
    ("dm",): ("direct", "messag"),
    ("db",): ("databas",),
    ("k8s",): ("kubernet",),
}


def find_significant_stem(word: str) -> str:
    """Return the stem of a word; empty for a stop word or a single letter."""
    is_letter = len(word) == 1 and word.isascii() and word.isalpha()
    return "" if is_letter or word in _read_stop_words() else stem(word[:MAX_WORD])


@cache
def _read_words() -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("search_words.toml").read_text(encoding="utf-8"))


@cache
def _read_stop_words() -> frozenset[str]:
    return frozenset(_read_words()["stop_words"].split())


@cache
def read_verbs() -> Mapping[str, bool]:
    """Return the stems of verbs, and whether they remove something."""
    return {stem(verb): kind == "remove" for kind, verbs in _read_words()["verbs"].items() for verb in verbs.split()}


@cache
def build_synonyms() -> Mapping[str, Iterable[str]]:
    """Return the synonyms of each stem that has any, as stems."""
    groups = [[stem(word) for word in line.split()] for line in _read_words()["synonyms"].splitlines()]
    by_stem: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for group in groups:
        for word in group:
            by_stem[word] |= dict.fromkeys(synonym for synonym in group if synonym != word)
    return by_stem


def split_name(name: str) -> list[str]:
    """Return the words of ``createIssue``, ``create_issue`` or ``create-issue``; for camel case also the whole word."""
    name = name[:MAX_NAME]
    if name.islower():
        return find_words(name)
    words: list[str] = []
    for chunk in WORD.findall(name):
        parts = HUMP.split(chunk)
        words += [fold(part) for part in parts]
        if len(parts) > 1:
            words.append(fold(chunk))
    return words


def find_words(text: str) -> list[str]:
    """Return the words of a text in lower case and without diacritics."""
    words = text.encode(errors="replace").translate(_ASCII_WORDS).decode().split()
    if text.isascii():
        return words
    # Most words of such a text are plain all the same.
    found: list[str] = []
    for word in words:
        if word.isascii():
            found.append(word)
        else:
            found += WORD.findall(fold(word))
    return found


def fold(text: str) -> str:
    """Return a text in lower case and without diacritics."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold()


def list_letter_pairs(word: str) -> set[str]:
    """Return the pairs of adjacent letters; the start and the end of the word count as letters."""
    framed = f"^{word}$"
    return {framed[index : index + 2] for index in range(len(framed) - 1)}


def stem(word: str) -> str:
    """Return an English word without its plural ``s``, its most common endings, and a final ``e``."""
    if not word.isascii() or len(word) < 4:
        return word
    word = _to_singular(word)
    for ending, least in _ENDINGS:
        base = word.removesuffix(ending)
        if len(base) >= least and base != word and not set("aeiouy").isdisjoint(base):
            if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
                base = base[:-1]
            return base.removesuffix("e") if len(base) > 3 else base
    return word.removesuffix("e") if len(word) > 3 else word


def _to_singular(word: str) -> str:
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
