"""Small operations on text: lone surrogates, numbers with their nouns, and the known name that was probably meant.

Surrogates are halves of a character of UTF-16, which no UTF-8 text may contain; JSON of models and servers has them.
"""

from __future__ import annotations

from collections.abc import Iterable


def replace_surrogates(text: str) -> str:
    """Return the text with pairs of surrogates joined, and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: "1 tool", "1,381 tools"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest known word; empty if no word is similar."""
    nearest = find_nearest(word, known)
    return f'did you mean "{nearest}"?' if nearest else ""


def find_nearest(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word, regardless of letter case, ``_`` and ``-``; empty if no word is similar."""
    from difflib import get_close_matches

    folded = {fold_name(key): key for key in known}
    matches = get_close_matches(fold_name(word[:60]), folded, 1, 0.7)
    return folded[matches[0]] if matches else ""


def fold_name(name: str) -> str:
    """Return the name in lower case, without ``_`` and ``-``."""
    return name.lower().replace("_", "").replace("-", "")
