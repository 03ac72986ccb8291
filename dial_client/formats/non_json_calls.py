"""Calls that are no JSON: as Python, as tags around names and values, in Gemma's braces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dial_client.formats.json_calls import Found, JsonCall, decode
from dial_client.schema.json_repair import Literals, Unreadable
from dial_client.schema.tool_arguments import value_of

MAX_LITERAL_CHARS = 16 * 1024
"""Characters of calls that are read value by value."""

_NEXT_CALL = re.compile(r"[\s;]{0,16}+[^\W\d][\w.-]{0,127}+\(")

Read = Callable[[str], Found]
"""Reads the calls a text begins with; raises `Unreadable` where there are none."""


def pythonic(text: str) -> Found:
    """Read ``[f(a=1), g()]``, or without the brackets a call a line; only keyword arguments can be told apart.

    Raises:
        Unreadable: this is something else.
    """
    if len(text) > MAX_LITERAL_CHARS:
        raise Unreadable("too long")
    source = Literals(text)
    bracketed = source.takes("[")
    calls = [_python_call(source)]
    while (source.takes(",") and source.peek() != "]") or (not bracketed and _NEXT_CALL.match(text, source.at)):
        calls.append(_python_call(source))
    if bracketed and not source.takes("]"):
        raise Unreadable("the list has no end")
    return Found(calls, text[source.at :])


def _python_call(source: Literals) -> JsonCall:
    source.takes(";")
    name = source.word()
    if not name or not source.takes("("):
        raise Unreadable("no call")
    arguments: dict[str, object] = {}
    while not source.takes(")"):
        if arguments and not source.takes(","):
            raise Unreadable("something is missing between two arguments")
        if source.takes(")"):
            break
        key = source.word()
        if not key or key in arguments or not source.takes("="):
            raise Unreadable("no keyword argument")
        arguments[key] = source.value()
    return JsonCall(name, arguments)


def braced(quote: str, text: str) -> Found:
    """Read ``call:n{k:<escape>v<escape>}``: FunctionGemma's and Gemma 4's, which differ in the quote.

    Raises:
        Unreadable: this is something else.
    """
    if len(text) > MAX_LITERAL_CHARS:
        raise Unreadable("too long")
    source = Literals(text, quote=quote)
    if source.word() != "call" or not source.takes(":") or not (name := source.word()):
        raise Unreadable("no call")
    arguments = source.value() if source.peek() == "{" else None
    if not isinstance(arguments, dict):
        raise Unreadable("no arguments")
    return Found([JsonCall(name, arguments)], text[source.at :])


class Tags:
    """A dialect with tags around each value.

    Args:
        pattern: the tags; the group that matched says which one it is: ``call`` and ``key`` hold the name of a call and
            of a value, ``typed`` stands in a key whose value is JSON, ``value`` ends a value.
        value_begin: what stands in the tag before a value.
        value_end: the tag behind a value.
    """

    def __init__(self, pattern: str, value_begin: str, value_end: str) -> None:
        self._tag = re.compile(rf"{pattern}|(?P<value>{value_end})")
        self._value_begin = value_begin
        self._value_end = value_end

    def is_open(self, text: str) -> bool:
        """Whether a text ends inside a value."""
        return text.rfind(self._value_begin) > text.rfind(self._value_end)

    def read(self, text: str, first: str | None = None) -> Found:
        """Read the calls of a text; a value may have a line break of its own before and behind it.

        Args:
            text: the tags, and what is between them.
            first: the name of the first call, where no tag has it.

        Raises:
            Unreadable: there are none, or a value has no end.
        """
        calls: list[JsonCall] = []
        values: dict[str, Any] = {}
        if first is not None:
            calls.append(JsonCall(first, values, are_texts=True))
        key: re.Match[str] | None = None
        end = 0
        for tag in self._tag.finditer(text):
            about, end = tag.groupdict(), tag.end()
            if key is not None:
                if about.get("call") is not None:
                    continue
                said = text[key.end() : tag.start()].removeprefix("\n").removesuffix("\n")
                values[key["key"].strip()] = _typed(said) if key.groupdict().get("typed") else said
            elif about.get("call") is not None:
                values = {}
                calls.append(JsonCall(tag["call"].strip(), values, are_texts=True))
            key = tag if about["key"] is not None else None
        if key is not None or not calls:
            raise Unreadable("a value without an end" if key else "no call")
        return Found(calls, text[end:])


def _typed(said: str) -> Any:
    value = value_of(said)
    return said if value is None and said.strip() != "null" else value


_NAME = r"[^<>\"'\n]{1,128}+"

QWEN = Tags(rf"<function=(?P<call>{_NAME})>|<parameter=(?P<key>{_NAME})>|</function>", "<parameter=", "</parameter>")
MINIMAX = Tags(
    rf'<invoke name="(?P<call>{_NAME})">|<parameter name="(?P<key>{_NAME})">|</invoke>',
    "<parameter name=",
    "</parameter>",
)
DSML = Tags(
    rf'<\uff5cDSML\uff5cinvoke name="(?P<call>{_NAME})">|</\uff5cDSML\uff5cinvoke>'
    rf'|<\uff5cDSML\uff5cparameter name="(?P<key>{_NAME})"(?: string="(?:true|(?P<typed>false))")?>',
    "<\uff5cDSML\uff5cparameter",
    "</\uff5cDSML\uff5cparameter>",
)
GLM = Tags(rf"<arg_key>(?P<key>{_NAME})</arg_key>\s{{0,8}}+<arg_value>", "<arg_value>", "</arg_value>")


def glm(text: str) -> Found:
    """Read a name, and ``<arg_key>`` and ``<arg_value>`` by turns.

    Raises:
        Unreadable: this is something else.
    """
    found = GLM.read(text, text.partition("<")[0].strip())
    if text.count("<arg_key>") > text.count("<arg_value>"):
        raise Unreadable("a key without a value")
    return found if "<arg_key>" in text else Found([JsonCall(found.calls[0].name, None, are_texts=True)])


_NAME_FIRST = re.compile(r"\s*+([\w.-]{1,128}+)(?:\[CALL_ID\][\w-]{0,64}+)?(?:\[ARGS\])?")
_NUMBERED = re.compile(r":\d{1,9}\Z")


def name_first(text: str) -> Found:
    """Read ``name{…}``, or ``name[ARGS]{…}``, as Mistral's tokenizers from the eleventh version on write it.

    Raises:
        Unreadable: this is something else.
    """
    found = _NAME_FIRST.match(text)
    if found is None:
        raise Unreadable("no name")
    return named(found.group(1), text[found.end() :])


def named(name: str, text: str) -> Found:
    """Read the arguments of a call whose name is known.

    Raises:
        Unreadable: these are none.
    """
    decoded = decode(text)
    if not isinstance(decoded.value, dict):
        raise Unreadable("no arguments")
    return Found([JsonCall(name.strip(), decoded.value)], decoded.rest)


def separated(separator: str, text: str) -> Found:
    """Read the name, the separator and the arguments: Kimi's and DeepSeek's.

    Raises:
        Unreadable: this is something else.
    """
    name, found, rest = text.partition(separator)
    if found and name.strip() == "function":
        name, found, rest = rest.lstrip().partition("\n")
    if not found:
        raise Unreadable("no arguments")
    return named(_NUMBERED.sub("", name.strip()), rest)


def function_tag(text: str) -> Found:
    """Read what stands behind ``<function=``: Qwen's tags, or Llama's JSON.

    Raises:
        Unreadable: this is something else.
    """
    name, found, rest = text.partition(">")
    if found and rest.lstrip()[:1] == "{":
        return named(name, rest)
    return QWEN.read(f"<function={text}")


def tagged(opener: str, tags: Tags, text: str) -> Found:
    """Read by tags what stands behind an opening that belongs to them.

    Raises:
        Unreadable: this is something else.
    """
    return tags.read(opener + text)
