"""Decides which call of the embedded model is made, or which reply the program composes.

A model of half a billion parameters can pick a tool and fill in its arguments. It does not recognize that a call does
not help, that a value is missing, or that a result answers the question. These rules decide that:

* A question gets one good call; its result is the answer. A failed call is decided once more without the failed tool,
  and then reported. A refused call is reported at once.
* Each required value has its source in the conversation (`argument_sources`).
* A call without sources gives way once to another tool; then the reply asks for the missing values.
* An unlikely call (`decisions`) is made only if it looks up what shares a word with the question. If it shares none,
  one of the tools that do is tried.
* A call that writes must be surer than one that reads, and never replaces another call.
* A general question (how or why) is answered, unless the call has a value of the question.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from dial_client.messages.message import NOT_ALLOWED, Message, Role, ToolCallRequest, ToolSpec
from dial_client.messages.model import ModelRequest
from dial_client.providers.embedded import answers
from dial_client.providers.embedded.argument_sources import CURRENT_FOLDER, WORD, ArgumentSources
from dial_client.providers.embedded.decisions import (
    ToolDecision,
    build_decision_request,
    load_prompts,
    read_result_text,
)
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
        self._request = request
        self._send = decide
        self._completed = find_completed_calls(request.messages)
        texts = [message.text for message in request.messages if message.role is not Role.ASSISTANT]
        self._sources = ArgumentSources((*(instruction.text for instruction in request.instructions), *texts))
        question = next((message.text for message in reversed(request.messages) if message.role is Role.USER), "")
        self._is_general = _GENERAL.match(question) is not None
        self._tools = {tool.name: tool for tool in request.tools}
        words = _find_stems(WORD.findall(question))
        self._near = [tool for tool in request.tools if not words.isdisjoint(_find_tool_stems(tool))]

    async def choose(self) -> ToolCallRequest | str:
        """Return the call to make, or the reply; an empty reply if the model has to write the answer."""
        may_call = self._request.allows_calls
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
        return answers.NO_TOOL_FITS if self._request.tools else answers.NOT_CONNECTED

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
