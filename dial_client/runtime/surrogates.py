"""Surrogates in texts: halves of a character of UTF-16, which no UTF-8 text may contain."""

from __future__ import annotations


def replace_surrogates(text: str) -> str:
    """Return the text with pairs of surrogates joined, and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
