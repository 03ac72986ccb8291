"""English words in questions and tools: they tell which tool a question is about, and which tools act.

A tool acts if it may change something; other tools only look things up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dial_client.messages.message import ToolSpec
from dial_client.runtime.normalization import stem

ACTS = frozenset(
    re.findall(
        r"\w+",
        "accept add append approve archive assign block book buy cancel change checkout clear close commit "
        "compose copy create delete deploy disable drop edit enable execute exec fill insert install invite "
        "invoke kill launch make merge modify move open patch pay play post publish push put reboot remove "
        "rename reply reset restart restore revert run save send set share shutdown start stop submit switch "
        "transfer turn type uninstall unset update upload vacuum write",
    )
)

_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def acts(tool: ToolSpec) -> bool:
    """Return True if a tool acts, by its name. A tool with the read-only hint does not act."""
    return not tool.read_only and not ACTS.isdisjoint(part.lower() for part in _NAME_PART.findall(tool.name))


_IMPERATIVE = re.compile(r"\s*(?:please |can you |could you )?([a-z]+)", re.IGNORECASE)


def find_named_by_verb(request: str, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools whose names contain the verb of a request, so that "create a branch" does not list branches."""
    found = _IMPERATIVE.match(request)
    verb = found[1].lower() if found else ""
    if verb not in ACTS:
        return ()
    return tuple(tool for tool in tools if verb in (part.lower() for part in _NAME_PART.findall(tool.name)))


_WORD = re.compile(r"[^\W\d_]{2,}")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "current currently day today tomorrow now "
        "a all an and any are as at be but by can could did do does for from get give had has have how i if "
        "in into is it its like many may me much my need new no not now of on one or other our out over "
        "please right say should show so some tell than that the their them then there these they this to two "
        "up us use used was we were what when where which who whose why will with would you your"
    )
)


def find_words(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning, in lower case."""
    found = (word.lower() for word in _WORD.findall(text))
    return frozenset(stem(word) for word in found if word not in _STOP_WORDS)


def is_english(text: str) -> bool:
    """Return True if a text is English, by its share of common English words."""
    found = [word.lower() for word in _WORD.findall(text)]
    return sum(word in _STOP_WORDS for word in found) * 4 >= len(found)


_GENERAL = re.compile(r"\s*(?:how (?:do|does|can|could|should)|why|explain|what is the difference)\b", re.IGNORECASE)
_LIVE = re.compile(r"\b(?:my|our|now|today|tonight|tomorrow|yesterday|currently|this|latest|last)\b", re.IGNORECASE)


_FILE = re.compile(r"\b[\w-]+\.(?:md|txt|py|json|csv|pdf|toml|ya?ml|log|ini|docx?|xlsx?|html|js|ts)\b", re.IGNORECASE)


def names_file(question: str) -> bool:
    """Return True if a question names a file with a common extension."""
    return _FILE.search(question) is not None


def is_general(question: str) -> bool:
    """Return True if a question asks how or why in general, and not about the present or the user's own things."""
    return _GENERAL.match(question) is not None and _LIVE.search(question) is None


_GIVEN_TEXT = re.compile(r"[\"\u201c:]|(?<!\w)'|\b(?:that|saying|to say)\b")


def gives_text(question: str) -> bool:
    """Return True if a request to write or send a text contains that text: in quotes, or after "that"."""
    return _GIVEN_TEXT.search(question) is not None


def find_tool_words(tool: ToolSpec) -> frozenset[str]:
    """Return the stems of the words that carry meaning in a tool's name, description and arguments."""
    properties = tool.input_schema.get("properties", {})
    about = [f"{name} {schema.get('enum', '')}" for name, schema in properties.items() if isinstance(schema, Mapping)]
    return find_words(" ".join((tool.name, tool.description, *about)))


ASKING = find_words("find look check search tell show list read number name status information details help mean")
"""Words that ask for something, and do not name the subject."""
GENERIC = find_words("name number text value type example query")
"""Words in the descriptions of many tools that do not name their purpose."""

_COMPOSED = find_words("text message body content note task query subject description comment expression prompt code")


def is_composed(name: str) -> bool:
    """Return True if an argument is a text that the model composes, by the argument's name."""
    return not find_words(name).isdisjoint(_COMPOSED)


_KINDS = (
    (
        re.compile(r"(?:^|\s)[~.]?/?(?:[\w.-]+/)+[\w.-]*|(?:^|\s)/[\w.-]+|\b[\w-]+\.[a-z]{2,4}\b"),
        find_words("path file directory folder"),
    ),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), find_words("date")),
    (re.compile(r"\bhttps?://", re.IGNORECASE), find_words("url page")),
    (re.compile(r"[\w.-]+@[\w.-]+"), find_words("email mail address")),
    (
        re.compile(
            r"\d\s+[-/x]\s+\d|\d\s*(?:[+*^]|plus|minus|times|divided by)\s*\d"
            r"|\b(?:multiply|subtract|divide)\b.*\d|\d.*\b(?:altogether|in total)\b",
            re.IGNORECASE,
        ),
        find_words("calculate compute arithmetic"),
    ),
)


def find_kinds(text: str) -> tuple[frozenset[str], ...]:
    """Return the words for the kinds of values in a text: "path" and "file" for a path, which some tools take."""
    return tuple(about for pattern, about in _KINDS if pattern.search(text))
