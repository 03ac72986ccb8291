"""Decides what the embedded model may do next, and which of its calls are made.

A model of half a billion parameters can pick a tool and fill in its arguments. It does not recognize that a call does
not help, that a value has to be looked up first, or that the results answer the question. These rules decide that from
the question, the calls and the results. ADR 0044 lists the measured effect of each rule.

* A request that begins with the verb of a tool's name can call only such a tool.
* An unlikely call (`call_score`) is not made, unless it only looks up or computes something that the question names. If
  its tool shares no word with the question, the tools that share a word are tried first.
* A call is deferred if it was made before, or has numbers, addresses or paths that occur nowhere: the model chooses
  among the other tools. A call of another tool is made first, and the deferred tool is called next: the temperature of
  a room is measured before it is converted.
* A call of a tool that shares no word with the question is deferred if other tools share one.
* If a text is to be sent or written down and the question does not contain it, the tool that looks it up is called
  first.
* The units of a question determine the direction of its conversion (`units`).
* After a failed call, a tool is tried that shares a word with the question which the failed tool does not have, and
  then the failed tool again.
* After a good result, the words of the question tell whether another call has to follow (`follow_up`); otherwise the
  model answers.
* After a failed or refused call, the reply reports it and quotes the error (`fixed_replies`): the model would invent an
  answer.
* Arguments are corrected where their value is certain (`argument_values`). A call with a required argument that does
  not occur in the conversation is not made (`missing_arguments`): the reply asks for the argument.
* A call in the current folder that was refused, with an error that names the allowed folder, is made in that folder.
* If the model decides that the answer cannot be known, a tool that shares a word with the question is tried, or else
  any tool that looks things up, if its call is likely enough; otherwise the reply says that no connected tool knows it.
  A general question (how or why) is answered, even if arguments are missing.

A replacement call is made only if its tool looks things up, by its name, and its arguments occur in the conversation;
otherwise the first call is made.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dial_client.messages.message import Role, ToolCallRequest, ToolSpec
from dial_client.messages.model import ModelRequest
from dial_client.providers.embedded import fixed_replies, json_prompt_format
from dial_client.providers.embedded.argument_values import (
    CURRENT_FOLDER,
    correct_arguments,
    find_allowed_folder,
    find_fallback,
    is_folder,
)
from dial_client.providers.embedded.call_score import CODE_THRESHOLD, LOOK_UP_THRESHOLD, DecisionScore
from dial_client.providers.embedded.completed_calls import find_completed_calls, find_new_pieces
from dial_client.providers.embedded.decision_step import DecisionStep, build_decision_request
from dial_client.providers.embedded.follow_up import build_expressions, find_follow_up
from dial_client.providers.embedded.missing_arguments import find_missing
from dial_client.providers.embedded.provenance import (
    converts_to_itself,
    is_code,
    is_expression,
    is_invented,
    occurs_in,
)
from dial_client.providers.embedded.units import correct_conversion
from dial_client.providers.embedded.vocabulary import (
    ASKING,
    GENERIC,
    acts,
    find_kinds,
    find_named_by_verb,
    find_tool_words,
    find_words,
    gives_text,
    is_composed,
    is_general,
    names_file,
)

MAX_ROUNDS = 4
"""Rounds of calls in a turn; after them the model has to answer."""
MAX_FAILURES = 2
"""Failed calls in a turn; after them the model has to answer."""
MAX_DEFERRED = 2
"""Calls deferred in one reply."""


class CallPolicy:
    """Decides one reply: `step` is the next decision of the model; once it is None, there may be a `call` or a `reply`.

    If there is neither, the model has to write an answer.

    Args:
        request: The request for the reply, with tools.
        provider_name: The provider whose echoes carry the next tool from one round to the next.
    """

    def __init__(self, request: ModelRequest, provider_name: str) -> None:
        self.call: ToolCallRequest | None = None
        self.next_tool = ""
        """The tool to be called after `call`."""
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._completed = find_completed_calls(request.messages, provider_name)
        self._question = next((message.text for message in reversed(request.messages) if message.role is Role.USER), "")
        texts = [message.text for message in request.messages if message.role is not Role.ASSISTANT]
        self._conversation = "\n".join((*(instruction.text for instruction in request.instructions), *texts))
        subject = (find_words(self._question) - GENERIC).union(*find_kinds(self._question))
        self._near = {tool.name for tool in request.tools if not subject.isdisjoint(find_tool_words(tool))}
        self._argument_question = ""
        self._first_call: ToolCallRequest | None = None
        self._deferred = 0
        self._is_unknown = self._is_forced = self._is_narrowed = False
        self.step: DecisionStep | None = self._begin()

    @property
    def reply(self) -> str:
        """The text of a composed reply; empty if there is a `call`, or if the model has to write an answer."""
        if self.step is not None or self.call is not None:
            return ""
        if self._argument_question:
            return fixed_replies.append_results(self._argument_question, self._list_good_results())
        if self._completed and (self._completed[-1].failed or self._completed[-1].denied):
            return self._compose_failure_report()
        if self._is_unknown:
            return fixed_replies.NO_TOOL_FITS if self._request.tools else fixed_replies.NOT_CONNECTED
        return ""

    def request(self, step: DecisionStep) -> ModelRequest:
        """Return the request for a decision, with the grammar of the step."""
        # If the model sees a failed call, it repeats it, or calls another tool with the same arguments.
        hidden = frozenset(completed.call.id for completed in self._completed if completed.failed)
        conversation = json_prompt_format.format_conversation(self._request.messages, hidden)
        return build_decision_request(self._request, step, self._request.tools if step.tools else (), conversation)

    def take_unknown(self, score: DecisionScore | None = None) -> None:
        """Accept the decision that the answer cannot be known.

        The tools that share a word with the question are tried; if there are none and `score` is known, all tools that
        only look things up. The model makes this decision too easily if it has tools: if no tool is left to try, it
        decides again without tools.
        """
        step, self.step = self.step, None
        if step is None or is_general(self._question):
            return
        if not step.tools:
            self._is_unknown = True
            return
        tools = self._find_near_tools(step.tools)
        if score is not None and not tools:
            tools = tuple(tool for tool in step.tools if not acts(tool))
        if tools and not self._is_forced:
            self._is_forced = True
            self.step = replace(step, tools=tools, may_answer=False)
        else:
            self.step = DecisionStep()

    def take(self, tool: str, call: ToolCallRequest | None, score: DecisionScore | None = None) -> None:
        """Accept the decision for a call or an answer.

        Args:
            tool: The tool that is called, even if the call is incomplete; empty for an answer.
            call: The call, if it is complete.
            score: How likely the call was; None if that is not known.
        """
        if score is not None and not (score.is_call or self._is_worth_trying(call, score)) and self._may_decline():
            self._decline(tool, score)
            return
        step, self.step = self.step, None
        if step is None or not tool:
            self.step = self._begin_second_decision(step)
            return
        if call is not None:
            call = self._correct(call)
        if call is not None and self._is_good(step, call):
            self._make(call)
            self.next_tool = step.next_tool if self.call is not None else ""
        elif call is not None and self._is_repeated(call) and not step.values and (pieces := self._find_new_pieces()):
            self.step = replace(step, tools=(self._tools[tool],), may_answer=False, values=pieces)
        else:
            self._defer(step, tool, call)

    def _correct(self, call: ToolCallRequest) -> ToolCallRequest:
        tool = self._tools.get(call.name)
        if tool is None:
            return call
        arguments = correct_arguments(call.arguments, tool, self._conversation)
        return replace(call, arguments=correct_conversion(arguments, tool, self._question))

    def _begin(self) -> DecisionStep | None:
        completed = self._completed
        is_over = len(completed) >= MAX_ROUNDS or any(entry.denied for entry in completed)
        if not self._request.allows_calls or is_over:
            return None
        if not completed:
            return DecisionStep(find_named_by_verb(self._question, self._request.tools) or self._request.tools)
        if not completed[-1].failed:
            return self._begin_next()
        self.call = self._call_in_allowed_folder()
        return None if self.call is not None else self._begin_retry()

    def _call_in_allowed_folder(self) -> ToolCallRequest | None:
        """Return the failed call with the folder that its error allows, if the user has named none."""
        last = self._completed[-1]
        tool, folder = self._tools.get(last.call.name), find_allowed_folder(last.result)
        properties = tool.input_schema.get("properties", {}) if tool is not None else {}
        arguments = {
            name: folder if value == CURRENT_FOLDER and is_folder(name, properties.get(name, {})) else value
            for name, value in last.call.arguments.items()
        }
        if folder is None or arguments == last.call.arguments:
            return None
        return ToolCallRequest(f"call_{uuid.uuid4().hex}", last.call.name, arguments)

    def _begin_retry(self) -> DecisionStep | None:
        """Return the step for a call that replaces the failed one, if a tool has a word that the failed tool lacks."""
        failed = [entry.call.name for entry in self._completed if entry.failed]
        called = {entry.call.name for entry in self._completed}
        subject = find_words(self._question)
        if failed[-1] in self._tools:
            subject -= find_tool_words(self._tools[failed[-1]])
        tools = tuple(
            tool
            for tool in self._request.tools
            if tool.name not in called and not acts(tool) and not find_tool_words(tool).isdisjoint(subject)
        )
        return DecisionStep(tools, may_answer=False, is_retry=True) if tools and len(failed) < MAX_FAILURES else None

    def _begin_next(self) -> DecisionStep | None:
        """Return the step for the call that has to follow a successful call, if any."""
        good = [entry for entry in self._completed if not entry.failed]
        succeeded = {entry.call.name for entry in good}
        failed = (entry.call.name for entry in self._completed if entry.failed)
        unmet = (name for name in failed if name in self._near and name not in succeeded)
        next_tool = self._completed[-1].next_tool or next(unmet, "")
        if next_tool in self._tools:
            tool = self._tools[next_tool]
            return DecisionStep(
                (tool,), may_answer=False, values=build_expressions(tool, self._question, self._completed[-1].result)
            )
        called, results = [entry.call.name for entry in good], [entry.result for entry in good]
        follow_up = find_follow_up(self._question, self._request.tools, called, results)
        return (
            DecisionStep((follow_up.tool,), may_answer=False, values=follow_up.values)
            if follow_up is not None
            else None
        )

    def _may_decline(self) -> bool:
        """True if the step may end without a tool call."""
        return self.step is not None and (self.step.may_answer or (self._is_forced and not self._deferred))

    def _is_worth_trying(self, call: ToolCallRequest | None, score: DecisionScore) -> bool:
        """Return True if an unlikely call may be made: it only looks up or computes what the question names."""
        tool = self._tools.get(call.name) if call is not None else None
        if call is None or tool is None or acts(tool) or self._completed or not self._is_in_question(call):
            return False
        values = call.arguments.values()
        if any(is_code(value) or is_expression(value) for value in values):
            return score.call >= CODE_THRESHOLD
        return score.call >= LOOK_UP_THRESHOLD and tool.name in self._near and not is_general(self._question)

    def _is_in_question(self, call: ToolCallRequest) -> bool:
        """Return True if a call has all its required arguments and the question contains them."""
        required = self._list_required(call)
        return bool(required) and all(
            name in call.arguments and occurs_in(call.arguments[name], self._question) for name in required
        )

    def _decline(self, tool: str, score: DecisionScore) -> None:
        """Continue without an unlikely call: with the tools near the question, if the called tool is not near."""
        step = self.step
        assert step is not None
        near = self._find_near_tools(step.tools)
        if tool and tool not in self._near and near and not self._is_narrowed:
            self._is_narrowed = True
            self.step = replace(step, tools=near)
        elif score.is_unknown or not step.may_answer:
            self.take_unknown(score)
        else:
            self.step = self._begin_second_decision(step)

    def _begin_second_decision(self, step: DecisionStep | None) -> DecisionStep | None:
        """Return the step that decides again without tools, for a question that names a file.

        Among many tools, the model treats the content of "README.md" as something it knows.
        """
        is_first = step is not None and bool(step.tools) and not self._completed
        return DecisionStep() if is_first and names_file(self._question) else None

    def _defer(self, step: DecisionStep, tool: str, call: ToolCallRequest | None) -> None:
        """Ask for a call of another tool instead; if there is none, make the first call that was deferred."""
        sources = self._find_sources(call)
        alternatives = sources or self._find_alternatives(
            candidate for candidate in step.tools if candidate.name != tool
        )
        if not (self._deferred or step.is_retry):
            self._first_call = None if call is None or self._is_repeated(call) else call
            is_needed = tool in self._near and (call is None or self._is_made_up(call))
            is_needed = is_needed or bool(sources)
            is_needed = is_needed or (call is not None and converts_to_itself(call.arguments))
            step = replace(step, may_answer=False, next_tool=tool if is_needed else "")
        if alternatives and self._deferred < MAX_DEFERRED:
            self._deferred += 1
            self.step = replace(step, tools=alternatives)
        elif self._first_call is not None:
            self._make(self._first_call)

    def _make(self, call: ToolCallRequest) -> None:
        """Make a call, or ask for its missing arguments; a general question is answered instead."""
        tool = self._tools[call.name]
        missing = find_missing(call, tool, self._request.messages, self._conversation)
        fallbacks = {name: value for name, schema in missing.items() if (value := find_fallback(schema)) is not None}
        unknown = [name for name in missing if name not in fallbacks]
        if unknown and is_general(self._question) and not self._completed:
            return
        if unknown:
            self._argument_question = fixed_replies.compose_missing_argument(tool, unknown)
        else:
            self.call = replace(call, arguments={**call.arguments, **fallbacks})

    def _is_good(self, step: DecisionStep, call: ToolCallRequest) -> bool:
        if self._is_repeated(call):
            return False
        if self._deferred or step.is_retry:
            return bool(self._list_required(call)) and self._has_known_arguments(call)
        is_far = call.name not in self._near and bool(self._find_near_tools(step.tools))
        return not (is_far or self._is_made_up(call) or self._find_sources(call))

    def _find_sources(self, call: ToolCallRequest | None) -> tuple[ToolSpec, ...]:
        """Return the tools that look up the text of a first call that sends or writes, if the question has no text."""
        tool = self._tools.get(call.name) if call is not None else None
        if tool is None or self._completed or self._deferred or not acts(tool):
            return ()
        if gives_text(self._question) or not any(map(is_composed, tool.input_schema.get("required", ()))):
            return ()
        subject = find_words(self._question) - GENERIC - ASKING - find_tool_words(tool)
        return tuple(t for t in self._request.tools if not acts(t) and not subject.isdisjoint(find_tool_words(t)))

    def _is_repeated(self, call: ToolCallRequest) -> bool:
        """True if the same call was made before in this turn."""
        return call.name in self._tools and any(
            entry.call.name == call.name and entry.call.arguments == call.arguments for entry in self._completed
        )

    def _is_made_up(self, call: ToolCallRequest) -> bool:
        """True if a value of the call occurs nowhere, or the call converts a unit into itself."""
        properties = self._tools[call.name].input_schema.get("properties", {}) if call.name in self._tools else {}
        return converts_to_itself(call.arguments) or any(
            is_invented(name, value, properties.get(name), self._conversation) for name, value in call.arguments.items()
        )

    def _has_known_arguments(self, call: ToolCallRequest) -> bool:
        """True if the values of all required arguments occur in the conversation."""
        return all(occurs_in(call.arguments.get(name), self._conversation) for name in self._list_required(call))

    def _compose_failure_report(self) -> str:
        """Compose the reply after failed calls. It reports the first failure since the last good result."""
        last = first = self._completed[-1]
        if last.denied:
            return fixed_replies.compose_denied_call(last.call.name, self._list_good_results())
        for completed in reversed(self._completed):
            if not completed.failed:
                break
            first = completed
        return fixed_replies.compose_failed_call(first.call.name, first.result, self._list_good_results())

    def _list_good_results(self) -> list[str]:
        return [completed.result for completed in self._completed if not completed.failed]

    def _find_new_pieces(self) -> tuple[str, ...]:
        return find_new_pieces(self._request.messages, self._conversation)

    def _list_required(self, call: ToolCallRequest) -> Sequence[str]:
        return self._tools[call.name].input_schema.get("required", ()) if call.name in self._tools else ()

    def _find_near_tools(self, tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that share a word with the question."""
        return tuple(tool for tool in tools if tool.name in self._near)

    def _find_alternatives(self, tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that may replace another tool: none that acts; those near the question, or else all."""
        passive = tuple(tool for tool in tools if not acts(tool))
        return self._find_near_tools(passive) or passive
