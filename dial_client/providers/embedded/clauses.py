"""The requests of a question that asks for two or more things, and the requests for which a call was made.

For "What is the price of ORBT, and is flight LM77 on time?", the embedded model makes the call for one request and
invents the answer to the other. If it gets each request separately, it makes both calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.providers.embedded.vocabulary import ACTS, find_tool_words, find_words

MAX_QUESTION_CHARS = 500
"""Characters of a question that is split. A longer question has pasted text, whose requests are not the user's."""
MAX_CLAUSES = 4
"""Requests of a question. A question with more is not split."""

_QUOTED = re.compile(r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|(?<!\w)'[^']*'(?!\w)")
_LOOKS_UP = (
    "tell|show|find|look|check|read|list|search|compare|convert|count|get|give|say|note|remind|translate|calculate"
    "|compute|track|lock|unlock|email|mail|measure|fetch|name"
)
_IMPERATIVES = "|".join((*sorted(ACTS), _LOOKS_UP))
_ASKS = "what|which|who|whom|whose|when|where|why|how|is|are|was|were|does|do|did|can|could|has|have|will"
_POLITE = r"(?:also |please |finally |on |in |at |for |to )?"
_BOUNDARY = re.compile(
    rf"(?:[.?!;]\s+(?:and |then )?(?={_POLITE}(?:{_IMPERATIVES}|{_ASKS})\b)"
    rf"|,?\s+(?:and then|and|then)\s+(?={_POLITE}(?:{_IMPERATIVES}|{_ASKS})\b)"
    rf"|,\s+(?=(?:{_IMPERATIVES})\b))",
    re.IGNORECASE,
)
_ELLIPSIS = re.compile(
    rf"\s*(?:{_ASKS})\b.*(,\s+and\s+)(?:any|on|in|at|for|of|from|with|that of)\s+\S+(?:\s+\S+){{0,3}}", re.IGNORECASE
)
"""A question followed by a second question that is shortened to its value: "and on Oak Lane?"."""
_REQUEST = re.compile(rf"\s*{_POLITE}(?:you )?(?:{_IMPERATIVES}|{_ASKS})\b", re.IGNORECASE)
_OWN_VALUE = re.compile(r"(?<=\W)[A-Z][a-z]|\d|[\"\u201c]|(?<!\w)/\w")
_JOINED = r",? (?:and|or|and also|as well as)"
_COMPARED = r",? (?:and|or|with|to|than|versus|vs\.?)"
_COMPARES = re.compile(r"\b(?:compare|than|versus|vs)\b", re.IGNORECASE)
_BETWEEN = r"(?:(?:that of|in|of|at|for|from|on|to|with) )?(?:the |a |an )?"
_LEADING = re.compile(rf"^{_BETWEEN}", re.IGNORECASE)
_CONTINUED = r"(?: (?!(?:and|or|today|tomorrow|now|is|are|with|than|in|on|at|to|for|of)\b)[\w'-]*\w){0,3}"
_PHRASE = rf"[\w/~.@'-]*\w{_CONTINUED}"
_NO_NAME = re.compile(
    r"(?:it|its|he|she|they|her|his|their|me|my|i|you|we|us|that|this|these|those|there|here|not|both|then|today"
    r"|tomorrow|same|other)\b",
    re.IGNORECASE,
)


def split_clauses(question: str) -> tuple[str, ...]:
    """Return the requests of a question in order; a statement stays with the request that follows it.

    Returns:
        The requests, at most `MAX_CLAUSES`; the whole question if it has one request, or more than `MAX_CLAUSES`.
    """
    if len(question) > MAX_QUESTION_CHARS:
        return (question,)
    masked = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), question)
    cuts = [(found.start(), found.end()) for found in _BOUNDARY.finditer(masked)]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(question)]
    clauses: list[str] = []
    statement = ""
    for start, end in zip(starts, ends, strict=True):
        piece = f"{statement}{question[start:end].strip()}"
        if _REQUEST.match(masked[start:end]) or (end == len(question) and not clauses):
            clauses.append(piece)
            statement = ""
        else:
            statement = f"{piece}. "
    clauses = clauses if 1 < len(clauses) <= MAX_CLAUSES else [question]
    found = _ELLIPSIS.fullmatch(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), clauses[-1]))
    if found is not None and len(clauses) < MAX_CLAUSES:
        clauses[-1:] = [clauses[-1][: found.start(1)], clauses[-1][found.end(1) :]]
    return tuple(clauses)


_SAME = re.compile(
    r"\s*(?:(?:what|how) about|any|on|in|at|for|of|from|with|that of)\s+\S+(?:\s+\S+){0,3}", re.IGNORECASE
)


def repeats_request(clause: str) -> bool:
    """Return True if a clause repeats the previous request for another value: "what about KX204?"."""
    return _SAME.fullmatch(clause) is not None


def find_open(
    clauses: Sequence[str], tools: Sequence[ToolSpec], calls: Sequence[ToolCallRequest]
) -> tuple[list[int], list[int]]:
    """Return the indexes of the clauses without a call, and of the clauses with one.

    A call belongs to the clause that contains most of its values and of its tool's words.
    """
    specs = {tool.name: tool for tool in tools}
    question = " ".join(clauses).lower()
    served: set[int] = set()
    for call in calls:
        values = [str(value).lower() for value in call.arguments.values() if not isinstance(value, bool)]
        quoted = [value for value in values if value and value in question]
        about = find_tool_words(specs[call.name]) if call.name in specs else frozenset()
        scores = [2 * len(find_words(clause) & about) + _score_values(clause, quoted) for clause in clauses]
        scores = [count - 2 * (at in served) for at, count in enumerate(scores)]
        served.add(scores.index(max(scores)))
    return [at for at in range(len(clauses)) if at not in served], sorted(served)


def _score_values(clause: str, quoted: Sequence[str]) -> int:
    """Return how well a clause matches the values of a call. A clause without a value of its own may refer to one."""
    if any(value in clause.lower() for value in quoted):
        return 5
    return 4 if quoted and _OWN_VALUE.search(clause[1:]) is None else 0


def find_sibling(question: str, call: ToolCallRequest, made: Sequence[ToolCallRequest]) -> str:
    """Return the name that a question joins with a value of a call: "Oslo" after "Rome and"; empty if there is none.

    Args:
        question: The user's question.
        call: A call of a tool with one text argument.
        made: The calls of the turn; a name that is one of their values is skipped.
    """
    if len(question) > MAX_QUESTION_CHARS:
        return ""
    joined = _COMPARED if _COMPARES.search(question) else _JOINED
    used = {str(value).lower() for entry in made for value in entry.arguments.values()}
    for value in (value for value in call.arguments.values() if isinstance(value, str) and len(value) > 1):
        value_first = re.search(rf"(?<!\w){re.escape(value)}{joined} {_BETWEEN}({_PHRASE})", question, re.IGNORECASE)
        value_last = re.search(rf"({_PHRASE}){joined} {_BETWEEN}{re.escape(value)}(?!\w)", question, re.IGNORECASE)
        for found in filter(None, (value_first, value_last)):
            name = _LEADING.sub("", found[1].strip(" .,'"))
            if name.lower() not in used and not _NO_NAME.match(name) and not _REQUEST.match(name):
                return name
    return ""
