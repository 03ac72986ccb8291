"""Finds the call that has to follow a good result, for questions that need two calls.

The embedded model cannot tell whether a result answers the question: with every prompt that was tried, it repeats the
call. The words of the question can tell. If the question has a word of another tool that occurs neither in the tools
called so far nor in their results, that tool is needed as well ("the air in the largest town of Velmark"). If the
question names a relation in the result and asks for a further detail, the same tool is needed for the related name
("the phone number of her manager").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.text_values import NUMBER
from dial_client.providers.embedded.vocabulary import ASKING, GENERIC, acts, find_kinds, find_tool_words, find_words

MAX_NUMBERS = 3
"""Numbers of a question, and of a result, from which expressions are built."""

_ROOT = 7
"""Letters that two forms of a word must share at their beginning."""
_NAMED = re.compile(r"([a-z]+):? ([A-Z][\w'-]*(?: [A-Z][\w'-]*){0,3})")
"""A detail of a result, followed by a name: ``manager: Jonas Brandt``, ``largest town Torsby``."""
_CAPITALIZED = re.compile(r"(?<=\s)[A-Z]\w*")
_EXPRESSION_WORDS = find_words("arithmetic expression")
_ASKING = ASKING - find_words("read")


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A call that has to follow the results."""

    tool: ToolSpec
    values: tuple[str, ...]
    """The possible values of its text arguments: names in the last result that the question refers to; may be empty."""


def find_follow_up(
    question: str, tools: Sequence[ToolSpec], called: Sequence[str], results: Sequence[str]
) -> FollowUp | None:
    """Return the call that has to follow; None if the question needs no further call.

    Args:
        question: The user's question.
        tools: The offered tools.
        called: The names of the tools called in this turn, in their order.
        results: The results of the calls; at least one.
    """
    details = _find_related(question, results)
    values = tuple(details.values())
    same = next((tool for tool in tools if tool.name == called[-1]), None)
    if same is not None and details and _asks_more(question, results[-1], details):
        return FollowUp(same, values)
    known = frozenset[str]().union(
        *(find_tool_words(tool) for tool in tools if tool.name in called), *map(find_words, results)
    )
    subject = find_words(question) - GENERIC - _ASKING - known
    subject = subject.union(*(kind for kind in find_kinds(question) if kind.isdisjoint(known)))
    for tool in sorted(tools, key=acts):
        if tool.name not in called and _share_word(subject, _find_naming_words(tool)):
            return FollowUp(tool, build_expressions(tool, question, results[-1]) or values)
    return None


def build_expressions(tool: ToolSpec, question: str, result: str) -> tuple[str, ...]:
    """Return expressions of a number of the question and a number of the result; empty if the tool does not compute.

    The model chooses an expression, so that it cannot invent a number.
    """
    if not find_tool_words(tool) >= _EXPRESSION_WORDS:
        return ()
    pairs = product(NUMBER.findall(question)[:MAX_NUMBERS], NUMBER.findall(result)[:MAX_NUMBERS])
    orders = ((left, right) for a, b in pairs for left, right in ((a, b), (b, a)))
    return tuple(dict.fromkeys(f"{left} {sign} {right}" for left, right in orders for sign in "*/+-"))


def _share_word(question_words: frozenset[str], tool_words: frozenset[str]) -> bool:
    """Return True if both sets share a word, or long words with the same root: "supervises" and "supervisor"."""
    roots = {word[:_ROOT] for word in tool_words if len(word) >= _ROOT}
    return not question_words.isdisjoint(tool_words) or any(word[:_ROOT] in roots for word in question_words)


def _find_naming_words(tool: ToolSpec) -> frozenset[str]:
    """Return the words that refer to a tool; for a tool that acts, only its name and the verb of its description."""
    if not acts(tool):
        return find_tool_words(tool)
    return find_words(f"{tool.name} {tool.description.split(' ', maxsplit=1)[0]}")


def _find_related(question: str, results: Sequence[str]) -> dict[str, str]:
    """Return the details of the last result that the question mentions, with their names; each is followed once."""
    question_words = find_words(question)
    for result in results[:-1]:
        question_words -= frozenset[str]().union(*(find_words(detail) for detail, _ in _NAMED.findall(result)))
    found = _NAMED.findall(results[-1])
    return {
        detail: name
        for detail, name in found
        if find_words(detail) & question_words and name.lower() not in question.lower()
    }


def _asks_more(question: str, result: str, details: dict[str, str]) -> bool:
    """Return True if a question asks for a detail of a result in addition to its relations."""
    phrases = (re.split(r"[,;\n]", result[: result.find(name)])[-1] for name in details.values())
    names = _CAPITALIZED.findall(question)
    shared = find_words(question) & find_words(result).union(*find_kinds(result))
    return bool(shared - find_words(" ".join((*details, *phrases, *names))) - GENERIC - _ASKING)
