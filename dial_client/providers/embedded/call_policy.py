"""Decides which call of the embedded model is made, or which reply the program composes.

A model of half a billion parameters can pick a tool and fill in its arguments. It does not recognize that a call does
not help, that a value is missing, or that a result answers the question. These rules decide that:

* If most tools are found by a search, the words of the question are searched for first.
* A question gets one good call; its result is the answer. A failed call is decided once more without the failed tool,
  and then reported. A refused call is reported at once.
* Each required value has its source in the conversation: all its numbers, and half of its words by their first
  letters. A value that the argument's description quotes counts. Words of the request that only name the argument do
  not count. A folder without a source is the current one, and a city becomes the name of its time zone.
* A call without sources gives way once to another tool; then the reply asks for the missing values.
* An unlikely call (`decisions`) is made only if it looks up what shares a word with the question. If it shares none,
  one of the tools that do is tried.
* A call that writes must be surer than one that reads, and never replaces another call.
* A general question (how or why) is answered, unless the call has a value of the question.
"""

from __future__ import annotations

import re
import secrets
import zoneinfo
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache
from typing import Any

from dial_client.messages.message import NOT_ALLOWED, SEARCH_TOOLS, Message, Role, ToolCallRequest, ToolSpec
from dial_client.messages.model import ModelRequest
from dial_client.providers.embedded import answers
from dial_client.providers.embedded.decisions import (
    ToolDecision,
    build_decision_request,
    load_prompts,
    read_result_text,
)
from dial_client.runtime.json_fields import to_object
from dial_client.runtime.normalization import find_significant_stem, fold, split_name

# The minimum score of a call that reads.
READ_THRESHOLD = -5.5
# The minimum score of a call that writes.
WRITE_THRESHOLD = -3.0
# The minimum score of a call that looks up something that shares a word with the question.
LOOK_UP_THRESHOLD = -7.5
# Calls of a turn; a failure of the last one is reported.
MAX_CALLS = 2

# The verbs of tools that may change something.
_WRITES = frozenset(load_prompts()["writing_verbs"].split())
_ALLOWED_FOLDER = re.compile(r"""\boutside the allowed\b[^/\\'":]{0,40}['"]([^'"]+)['"]""")
_GENERAL = re.compile(
    r"\s*(?:how (?:do|does|can|could|should|would)|why|explain|what is the difference)\b", re.IGNORECASE
)


class CallPolicy:
    """Chooses the next call of a turn, or a composed reply.

    Args:
        request: The request for the reply.
        decide: Asks the model for a decision, with a request of `build_decision_request`.
    """

    def __init__(self, request: ModelRequest, decide: Callable[[ModelRequest], Awaitable[ToolDecision]]) -> None:
        calls = find_completed_calls(request.messages)
        self._must_search = any(map(_is_search, request.tools)) and all(call.name != SEARCH_TOOLS for call, _ in calls)
        self._is_connected = bool(request.tools)
        self._request = request = _leave_out_searches(request)
        self._send = decide
        self._completed = find_completed_calls(request.messages)
        texts = [message.text for message in request.messages if message.role is not Role.ASSISTANT]
        self._sources = ArgumentSources((*(instruction.text for instruction in request.instructions), *texts))
        question = next((message.text for message in reversed(request.messages) if message.role is Role.USER), "")
        self._question = question
        self._is_general = _GENERAL.match(question) is not None
        self._tools = {tool.name: tool for tool in request.tools}
        words = _find_stems(WORD.findall(question))
        self._near = [tool for tool in request.tools if not words.isdisjoint(_find_tool_stems(tool))]

    async def choose(self) -> ToolCallRequest | str:
        """Return the call to make, or the reply; an empty reply if the model has to write the answer."""
        may_call = self._request.allows_calls
        if may_call and self._must_search and self._question.strip():
            return ToolCallRequest(f"call_{secrets.token_hex(16)}", SEARCH_TOOLS, {"query": self._question})
        if not self._completed:
            return await self._choose_first() if may_call else ""
        call, result = self._completed[-1]
        if result.text.startswith(NOT_ALLOWED):
            return answers.compose_denied_call(call.name, self.results)
        if not result.is_error:
            return answers.show_results(self.results)
        if may_call and len(self._completed) < MAX_CALLS and (replacement := await self._replace_failed(call, result)):
            return replacement
        call, result = next((call, result) for call, result in self._completed if result.is_error)
        return answers.compose_failed_call(call.name, result.text, self.results)

    @property
    def has_answer(self) -> bool:
        """True if the last call of this turn has a good result."""
        return bool(self._completed) and not self._completed[-1][1].is_error

    @property
    def results(self) -> list[str]:
        """The results of this turn, without errors."""
        return [read_result_text(result) for _, result in self._completed if not result.is_error]

    async def _choose_first(self) -> ToolCallRequest | str:
        decision = await self._decide(self._request.tools)
        if not decision.tool and not decision.is_unknown:
            return ""
        chosen = await self._choose_call(decision)
        if isinstance(chosen, ToolCallRequest):
            is_said = any(self._sources.has_value(str(value)) for value in chosen.arguments.values())
            return chosen if is_said or not self._is_general else ""
        if chosen or self._is_general or not decision.is_unknown:
            return "" if self._is_general else chosen
        # With tools, the model says too easily that it cannot know something.
        if self._request.tools and not (await self._decide(())).is_unknown:
            return ""
        return answers.NO_TOOL_FITS if self._is_connected else answers.NOT_CONNECTED

    async def _choose_call(self, decision: ToolDecision) -> ToolCallRequest | str:
        """Return the call of a decision or of another tool, or the request for its arguments; empty for neither."""
        tool, is_first = self._tools.get(decision.tool), True
        if tool not in self._near and not (tool is not None and _writes(tool) and self._is_likely(decision, tool)):
            second = await self._decide_reader(self._near)
            if second is not None:
                decision, tool, is_first = second, self._tools[second.tool], False
        if tool is None or not self._is_likely(decision, tool):
            return ""
        call = self._sources.correct(decision.call, tool) if decision.call is not None else None
        missing = self._sources.find_missing(call, tool) if call is not None else []
        if call is not None and not missing:
            return call
        if is_first and (replacement := await self._replace(tool, self._near or self._request.tools)):
            return replacement
        is_sure = decision.is_unknown or decision.score >= WRITE_THRESHOLD
        return answers.compose_missing_argument(tool, missing) if missing and is_sure else ""

    def _is_likely(self, decision: ToolDecision, tool: ToolSpec) -> bool:
        if _writes(tool):
            return decision.score >= WRITE_THRESHOLD
        return decision.score >= (LOOK_UP_THRESHOLD if tool in self._near else READ_THRESHOLD)

    async def _replace_failed(self, failed: ToolCallRequest, result: Message) -> ToolCallRequest | None:
        """Return a call that replaces a failed one: in the folder that the error allows, or of another tool."""
        if allowed := _ALLOWED_FOLDER.search(result.text):
            folders = {n: allowed[1] for n, value in failed.arguments.items() if value == CURRENT_FOLDER}
            if folders:
                arguments = {**failed.arguments, **folders}
                return ToolCallRequest(f"call_{secrets.token_hex(16)}", failed.name, arguments)
        return await self._replace(self._tools.get(failed.name), self._near)

    async def _replace(self, tool: ToolSpec | None, readers: Iterable[ToolSpec]) -> ToolCallRequest | None:
        """Return a likely call of another tool that reads, if all its values have a source; None without arguments."""
        decision = await self._decide_reader([reader for reader in readers if reader is not tool])
        if decision is None or decision.call is None:
            return None
        chosen = self._tools[decision.tool]
        call = self._sources.correct(decision.call, chosen)
        return call if call.arguments and not self._sources.find_missing(call, chosen) else None

    async def _decide_reader(self, tools: Iterable[ToolSpec]) -> ToolDecision | None:
        """Let the model choose one of the tools that read; return the decision for it if it is likely enough."""
        readers = [tool for tool in tools if not _writes(tool)]
        decision = await self._decide(readers, may_answer=False) if readers else None
        is_likely = decision is not None and decision.tool in self._tools and decision.score >= LOOK_UP_THRESHOLD
        return decision if is_likely else None

    async def _decide(self, tools: Sequence[ToolSpec], *, may_answer: bool = True) -> ToolDecision:
        # If the model sees a failed call, it repeats it, or calls another tool with the same arguments.
        hidden = frozenset(call.id for call, result in self._completed if result.is_error)
        return await self._send(build_decision_request(self._request, tools, may_answer=may_answer, hidden=hidden))


def find_completed_calls(messages: Sequence[Message]) -> list[tuple[ToolCallRequest, Message]]:
    """Return the calls since the last message of the user, each with its result."""
    start = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=0)
    calls = {call.id: call for message in messages[start:] for call in message.tool_calls}
    results = (message for message in messages[start:] if message.role is Role.TOOL)
    return [(calls[id_], result) for result in results if (id_ := result.tool_call_id or "") in calls]


def _is_search(tool: ToolSpec) -> bool:
    return tool.name == SEARCH_TOOLS and not tool.server


def _leave_out_searches(request: ModelRequest) -> ModelRequest:
    """Return the request without the tool that searches for tools, its calls and their results.

    The model would take what a search has found for the answer, or for the source of a value.
    """
    if not any(map(_is_search, request.tools)):
        return request
    searches = {call.id for message in request.messages for call in message.tool_calls if call.name == SEARCH_TOOLS}
    messages = []
    for message in request.messages:
        calls = tuple(call for call in message.tool_calls if call.id not in searches)
        is_only_search = bool(message.tool_calls) and not calls and not message.text
        if message.tool_call_id not in searches and not is_only_search:
            messages.append(replace(message, tool_calls=calls))
    tools = tuple(tool for tool in request.tools if not _is_search(tool))
    return replace(request, messages=tuple(messages), tools=tools)


def _writes(tool: ToolSpec) -> bool:
    """Return True if a tool may change something, by its name. A tool with the read-only hint does not."""
    return not tool.read_only and not _WRITES.isdisjoint(split_name(tool.name))


def _find_stems(words: Iterable[str]) -> set[str]:
    return {find_significant_stem(fold(word)) for word in words} - {""}


def _find_tool_stems(tool: ToolSpec) -> set[str]:
    """Return the stems of the words in a tool's name, description and arguments."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
    words = [*split_name(tool.name), *WORD.findall(tool.description)]
    for name, schema in properties.items():
        words += split_name(name)
        if isinstance(schema, Mapping):
            words += WORD.findall(str(schema.get("enum", "")))
    return _find_stems(words)


# The folder that a server runs in: the user's current folder, unless its entry in servers.json has a ``cwd``.
CURRENT_FOLDER = "."

# Two or more letters.
WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_AFTERNOON = re.compile(r"\b(\d{1,2})(?::\d\d)?\s*p\.?m\b", re.IGNORECASE)
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|per ?cent)", re.IGNORECASE)
# The words for 0, 1, 2 and so on.
_NUMBER_WORDS = load_prompts()["number_words"].split()
# Values that must occur as they are: paths, URLs and addresses.
_WHOLE = re.compile(r"[/~]|[a-z]:\\|[a-z]+://|.*@", re.IGNORECASE)
_PATH = re.compile(r"(?:^|[\s'\"])(?:[~.]?/|[A-Z]:\\)[\w.-]", re.MULTILINE)
_QUOTED = re.compile(r"""["'`]([^"'`\s]{1,60})["'`]""")
_EXAMPLES = re.compile(r"\b(?:e\.g\.|for example|for instance|such as|like)[^)]*\)?", re.IGNORECASE)
_FOLDERS = {"repo", "repository", "dir", "directory", "folder", "workspace", "cwd"}
_FIRST_LETTERS = 3


class ArgumentSources:
    """Finds the sources of the values of a call, and corrects the values that are certain.

    Args:
        texts: The texts of the conversation that are not the model's own.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(texts)

    def correct(self, call: ToolCallRequest, tool: ToolSpec) -> ToolCallRequest:
        """Return the call with the values that are certain: time zones, the current folder, the only quoted value."""
        arguments = dict(call.arguments)
        for name, value in arguments.items():
            about = str(to_object(tool.input_schema.get("properties", {}).get(name)).get("description", ""))
            if isinstance(value, str) and re.search(r"\bIANA\b|time[ _]?zone", f"{name} {about}", re.IGNORECASE):
                arguments[name] = _load_zones().get(value) or _load_zones().get(_get_city(value), value)
            if not self._has_source(name, arguments[name], tool):
                if _is_folder(name) and "absolute" not in about.lower() and not _PATH.search(self._text):
                    arguments[name] = CURRENT_FOLDER
                elif len(quoted := _find_quoted(about)) == 1:
                    arguments[name] = quoted[0]
        return replace(call, arguments=arguments)

    def find_missing(self, call: ToolCallRequest, tool: ToolSpec) -> list[str]:
        """Return the required arguments whose values have no source."""
        required = tool.input_schema.get("required", ())
        return [name for name in required if not self._has_source(name, call.arguments.get(name), tool)]

    def _has_source(self, name: str, value: Any, tool: ToolSpec) -> bool:
        schema = tool.input_schema.get("properties", {}).get(name)
        if not isinstance(schema, Mapping) or "enum" in schema or isinstance(value, bool):
            return True
        if (value == CURRENT_FOLDER and _is_folder(name)) or ("default" in schema and value == schema["default"]):
            return True
        about, text = str(schema.get("description", "")), fold(str(value))
        if text in map(fold, _find_quoted(about)):
            return True
        if _WHOLE.match(text):
            return text.rstrip("/") in fold(self._text)
        naming = (*split_name(name), *split_name(tool.name), *WORD.findall(_EXAMPLES.sub("", about)))
        return self.has_value(text, {fold(word) for word in naming})

    def has_value(self, value: str, naming: AbstractSet[str] = frozenset()) -> bool:
        """Return True if the conversation has a value's numbers and half of its words, without those in `naming`."""
        numbers = {float(number) for number in _NUMBER.findall(value)}
        words = [word for word in WORD.findall(fold(value)) if word not in naming and find_significant_stem(word)]
        beginnings = {word[:_FIRST_LETTERS] for word in WORD.findall(fold(self._text)) if word not in naming}
        known = sum(word[:_FIRST_LETTERS] in beginnings for word in words)
        return bool(words or numbers) and numbers <= self._numbers() and known * 2 >= len(words)

    def _numbers(self) -> set[float]:
        """Return the numbers of the conversation, with percentages as fractions, and hours on the 24-hour clock."""
        text = re.sub(r"(?<=\d),(?=\d{3})", "", self._text)
        found = {float(number) for number in _NUMBER.findall(text)} | {0.0, 100.0}
        found |= {float(percentage) / 100 for percentage in _PERCENTAGE.findall(text)}
        found |= {float(hour) % 12 + 12 for hour in _AFTERNOON.findall(text)}
        words = set(WORD.findall(text.lower()))
        return found | {float(number) for number, word in enumerate(_NUMBER_WORDS) if word in words}


def _is_folder(name: str) -> bool:
    return not _FOLDERS.isdisjoint(split_name(name))


def _find_quoted(description: str) -> list[str]:
    """Return the values that the description of an argument quotes, but not as examples."""
    return _QUOTED.findall(_EXAMPLES.sub("", description))


@cache
def _load_zones() -> Mapping[str, str]:
    """Return the IANA names, keyed by themselves and by their cities without accents; empty without time zones."""
    regions = ("Etc/", "US/", "Canada/", "Brazil/", "Mexico/", "Chile/", "SystemV/", "posix/", "right/")
    names = sorted(zoneinfo.available_timezones(), key=lambda name: ("/" in name, name), reverse=True)
    return {_get_city(name): name for name in names if not name.startswith(regions)} | {name: name for name in names}


def _get_city(name: str) -> str:
    return fold(name.rpartition("/")[2].split(",")[0].strip().replace(" ", "_"))
