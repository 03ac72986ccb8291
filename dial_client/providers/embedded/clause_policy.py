"""Decides the calls for the open requests of a question that asks for several things.

`call_policy` makes the call for the first request. After its result, the model decides on each request that has no call
yet (`clauses`), as if the user made that request now. If the question joins a name with the value of a call ("in Oslo
and in Nairobi"), the same tool is called with that name. A quantity in another unit than the question asks for is
converted (`units`). The answer ends with the requests whose calls could not be made.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial_client.messages.message import Message, Role, ToolCallRequest, ToolSpec
from dial_client.messages.model import ModelRequest
from dial_client.providers.embedded import json_prompt_format
from dial_client.providers.embedded.argument_values import correct_arguments
from dial_client.providers.embedded.call_policy import MAX_ROUNDS
from dial_client.providers.embedded.call_score import DecisionScore
from dial_client.providers.embedded.clauses import find_open, find_sibling, repeats_request, split_clauses
from dial_client.providers.embedded.completed_calls import find_completed_calls, find_new_pieces
from dial_client.providers.embedded.decision_step import DecisionStep, build_decision_request
from dial_client.providers.embedded.follow_up import find_follow_up
from dial_client.providers.embedded.missing_arguments import find_missing
from dial_client.providers.embedded.provenance import is_invented, occurs_in
from dial_client.providers.embedded.units import Conversion, find_conversion, find_conversion_call
from dial_client.providers.embedded.vocabulary import find_tool_words, find_words, is_composed

_CODE = re.compile(r"[A-Z]{2,5}|[A-Z]\w+/\w+|\d\d?:\d\d|\d{4}-\d\d-\d\d|\.")
_NAME_OR_NUMBER = re.compile(r"(?<=\s)[A-Z]\w+|\d+")
_NOT_LOOKED_UP = "I have not looked up: {clauses}."

_NOT_CONVERTED = "The result is in {unit}: no connected tool converts it to {target}."


@dataclass(frozen=True, slots=True)
class _Ask:
    """A decision that the model still has to make."""

    clause: int | None
    """The index of the clause; None for a name that is joined with a value."""
    step: DecisionStep


class ClausePolicy:
    """Decides one reply after good results: `step` is the model's next decision; once None, there may be a `call`.

    Args:
        request: The request for the reply, with tools.
        provider_name: The provider whose echoes carry the next tool from one round to the next.
    """

    def __init__(self, request: ModelRequest, provider_name: str) -> None:
        self.call: ToolCallRequest | None = None
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._completed = find_completed_calls(request.messages, provider_name)
        self._calls = [entry.call for entry in self._completed]
        self._start = max((at for at, m in enumerate(request.messages) if m.role is Role.USER), default=0)
        self._question = request.messages[self._start].text if request.messages else ""
        texts = [message.text for message in request.messages if message.role is not Role.ASSISTANT]
        self._conversation = "\n".join((*(instruction.text for instruction in request.instructions), *texts))
        self._clauses = split_clauses(self._question)
        self._served: list[int] = []
        self._unmet: list[int] = []
        self._conversion = self._convert()
        self._asks = self._find_open_asks()

    @property
    def step(self) -> DecisionStep | None:
        """The next decision of the model; None if none is left."""
        return self._asks[0].step if self._asks and self.call is None else None

    @property
    def note(self) -> str:
        """The sentences after the answer: the requests without a result, and the unit that no result has."""
        quoted = " and ".join(f"\u201c{self._clauses[at].strip(' .?!')}\u201d" for at in self._unmet)
        sentences = [_NOT_LOOKED_UP.format(clauses=quoted)] if quoted else []
        if found := self._conversion:
            sentences.append(_NOT_CONVERTED.format(unit=found.unit, target=found.target_name))
        return " ".join(sentences)

    def request(self, step: DecisionStep) -> ModelRequest:
        """Return the request for a decision, in which the clause is the user's last message."""
        ask = self._asks[0]
        earlier, turn = self._request.messages[: self._start], self._request.messages[self._start + 1 :]
        if ask.clause is None:
            messages = (self._request.messages[self._start], *turn)
        else:
            request = ", and ".join(self._clauses[at] for at in self._served)
            messages = (
                Message.user(request),
                *turn,
                Message.assistant("Done."),
                Message.user(self._clauses[ask.clause]),
            )
        conversation = json_prompt_format.format_conversation((*earlier, *messages))
        return build_decision_request(self._request, step, self._request.tools, conversation)

    def take_unknown(self, _score: DecisionScore | None = None) -> None:
        """Accept the decision that the answer to a request cannot be known."""
        self._close(is_unmet=True)

    def take(self, tool: str, call: ToolCallRequest | None, score: DecisionScore | None = None) -> None:
        """Accept the decision for a call or an answer.

        Args:
            tool: The tool that is called, even if the call is incomplete; empty for an answer.
            call: The call, if it is complete.
            score: How likely the call was; None if that is not known.
        """
        ask = self._asks[0]
        is_likely = not ask.step.may_answer or score is None or score.is_call
        if not tool or not is_likely or tool not in self._tools:
            self._close()
            return
        spec = self._tools[tool]
        if call is not None:
            arguments = correct_arguments(call.arguments, spec, self._conversation)
            call = replace(call, arguments=self._with_paths(arguments, spec))
        if call is not None and any(call.name == c.name and call.arguments == c.arguments for c in self._calls):
            self._close()
        elif call is not None and self._is_grounded(call, spec):
            self.call = call
        elif not ask.step.values and (values := self._find_values(spec)):
            step = DecisionStep((spec,), may_answer=False, values=values)
            self._asks = [replace(ask, step=step), *self._asks[1:]]
        else:
            self._close(is_unmet=True)

    def _with_paths(self, arguments: Mapping[str, Any], tool: ToolSpec) -> dict[str, Any]:
        """Return the arguments with file names replaced by the paths that a result lists for them."""
        paths = {f"{value}".rpartition("/")[2]: value for value in self._find_values(tool) if value.startswith("/")}
        return {n: paths.get(value, value) if isinstance(value, str) else value for n, value in arguments.items()}

    def _find_values(self, tool: ToolSpec) -> tuple[str, ...]:
        """Return the possible values of a call's text arguments: values of earlier calls, and pieces of the results."""
        names = _list_text_arguments(tool)
        earlier = [str(call.arguments[name]) for call in self._calls for name in names if name in call.arguments]
        pieces = find_new_pieces(self._request.messages, self._conversation)
        return tuple(dict.fromkeys((*earlier, *(piece for piece in pieces if len(piece) > 2 or not piece.isalpha()))))

    def _close(self, *, is_unmet: bool = False) -> None:
        ask, *self._asks = self._asks
        if is_unmet and ask.clause is not None:
            self._unmet.append(ask.clause)

    def _convert(self) -> Conversion | None:
        """Make the call that converts a result to the question's unit; return the conversion if no tool can do it."""
        if not self._completed or self._completed[-1].failed or self._completed[-1].denied:
            return None
        results = [entry.result for entry in self._completed if not entry.failed]
        conversion = find_conversion(self._question, results)
        found = find_conversion_call(conversion, self._request.tools) if conversion is not None else None
        if found is None:
            return conversion
        is_over = len(self._completed) >= MAX_ROUNDS or not self._request.allows_calls
        if not is_over and all((call.name, call.arguments) != found for call in self._calls):
            self.call = ToolCallRequest(f"call_{secrets.token_hex(16)}", *found)
        return None

    def _find_open_asks(self) -> list[_Ask]:
        completed = self._completed
        is_over = not 1 <= len(completed) < MAX_ROUNDS or any(entry.failed or entry.denied for entry in completed)
        if is_over or not self._request.allows_calls or completed[-1].next_tool:
            return []
        called, results = [entry.call.name for entry in completed], [entry.result for entry in completed]
        follow_up = find_follow_up(self._question, self._request.tools, called, results)
        if follow_up is not None and follow_up.values:
            return []  # the question needs a call with a name from the result: `call_policy` makes that call
        asks = list(self._build_sibling_asks())
        if len(self._clauses) > 1:
            unserved, self._served = find_open(self._clauses, self._request.tools, self._calls)
            asks += [_Ask(at, DecisionStep(self._choose_tools(self._clauses[at]))) for at in unserved]
        return asks

    def _choose_tools(self, clause: str) -> tuple[ToolSpec, ...]:
        last = self._tools.get(self._calls[-1].name)
        return (last,) if last is not None and repeats_request(clause) else self._request.tools

    def _build_sibling_asks(self) -> Sequence[_Ask]:
        for entry in self._completed:
            tool = self._tools.get(entry.call.name)
            if tool is None or len(_list_text_arguments(tool)) != 1:
                continue
            if name := find_sibling(self._question, entry.call, self._calls):
                return [_Ask(None, DecisionStep((tool,), may_answer=False, values=(name,)))]
        return []

    def _is_grounded(self, call: ToolCallRequest, tool: ToolSpec) -> bool:
        """Return True if every value of a call comes from the conversation or its results, or may follow from them."""
        properties: Mapping[str, object] = tool.input_schema.get("properties", {})
        values = self._find_values(tool)
        arguments = {name: value for name, value in call.arguments.items() if value not in values}
        made_up = any(
            is_invented(name, value, properties.get(name), self._conversation)
            or (name in _list_text_arguments(tool) and not self._has_source(name, str(value), tool))
            for name, value in arguments.items()
        )
        missing = find_missing(call, tool, self._request.messages, self._conversation)
        return not made_up and missing.keys().isdisjoint(arguments)

    def _has_source(self, name: str, value: str, tool: ToolSpec) -> bool:
        """Return True if a text comes from the conversation. A text that the model composes needs a word of it."""
        if is_composed(name):
            is_new = not (find_words(value) - find_tool_words(tool)).isdisjoint(find_words(self._conversation))
            return is_new and all(occurs_in(found, self._conversation) for found in _NAME_OR_NUMBER.findall(value))
        return occurs_in(value, self._conversation) or _CODE.fullmatch(value) is not None


def find_first_request(request: ModelRequest) -> ModelRequest | None:
    """Return the request for a reply to the first of a question's several requests; None if it has only one.

    After a result, it is None, too: the first request has a call.
    """
    *earlier, question = request.messages or (Message.user(""),)
    if question.role is not Role.USER or not request.tools or not request.allows_calls:
        return None
    clauses = split_clauses(question.text)
    return replace(request, messages=(*earlier, replace(question, content=clauses[0]))) if len(clauses) > 1 else None


def _list_text_arguments(tool: ToolSpec) -> list[str]:
    properties = tool.input_schema.get("properties", {})
    required = tool.input_schema.get("required", ())
    return [name for name in required if properties.get(name, {}).get("type") == "string"]
