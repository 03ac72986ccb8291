"""Small operations on text: lone surrogates, numbers with their nouns, and the known name that was probably meant.

Surrogates are halves of a character of UTF-16, which no UTF-8 text may contain; JSON of models and servers has them.
"""

from __future__ import annotations

import re
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


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return a hint for a name that does not exist: the nearest known name, or which names there are."""
    names = list(known)
    return did_you_mean(word, names) or list_names(names)


def list_names(known: Iterable[str]) -> str:
    """Return which names there are, the first 20 of them: "there are big and small", "the only one is big"."""
    names = list(dict.fromkeys(known))
    if len(names) < 2:
        return f"the only one is {names[0]}" if names else "there is none"
    shown = ", ".join(names[:20])
    return f"there are {shown}, and {len(names) - 20:,} more" if names[20:] else f"there are {shown}"


def find_nearest(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word, regardless of letter case, ``_`` and ``-``; empty if no word is similar."""
    from difflib import get_close_matches

    folded = {fold_name(key): key for key in known}
    matches = get_close_matches(fold_name(word[:60]), folded, 1, 0.7)
    return folded[matches[0]] if matches else ""


def fold_name(name: str) -> str:
    """Return the name in lower case, without ``_`` and ``-``."""
    return name.lower().replace("_", "").replace("-", "")


def find_nearest_by_words(name: str, known: Iterable[str]) -> str:
    """Return the known name that has the most words of a name, such as ``get_current_time`` for ``get_time``.

    Of several such names it is the one with the most similar letters. Without a common word it is the name with similar
    letters alone; empty if there is none.
    """
    from difflib import SequenceMatcher, get_close_matches

    names, words = list(known), _split_words(name)
    shared = {candidate: len(words & _split_words(candidate)) for candidate in names}
    most_shared = max(shared.values(), default=0)
    if most_shared * 2 >= len(words) and most_shared:
        best = (candidate for candidate in names if shared[candidate] == most_shared)
        return max(best, key=lambda candidate: SequenceMatcher(None, name[:60], candidate[:60]).ratio())
    return next(iter(get_close_matches(name[:60], names, n=1, cutoff=0.6)), "")


def _split_words(name: str) -> set[str]:
    """Return the words of a name in lower case, separated by other characters than letters or by capitals."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+", name[:200])}
