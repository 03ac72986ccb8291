"""What the embedded model may do next, and which of its calls are made.

Half a billion parameters can pick a tool and fill in its arguments. They cannot see that a call gets nowhere, that
something has to be found out first, or that they are done: asked whether to go on behind a result, the model is right
no more often than a coin. So that much is decided here, by what was said, called and found:

* A call that was made before, or whose numbers, addresses or paths nobody has named, is put off, and the model chooses
  among the other tools. If one of those can be called with what was said, it is called first, and the other one behind
  it: the degrees of a room are measured before they are converted.
* A call of a tool that has no word in common with the question is put off if others have one.
* Behind a call that failed another tool is tried if it knows a word of the question that the failed one does not, and
  then the one that failed.
* Behind a good result the model answers. Behind a failed call, or one that was not allowed, the reply says so and
  quotes the error (`fixed_replies`): what this model writes there is invented.
* A call whose required argument nobody has said is not made: the reply asks for the argument.
* Where the model decides that it cannot know and a tool is near the question, that tool is called; else the reply says
  that nothing connected can tell.

A call in place of another one is made only of a tool that looks things up, by its name, and only with arguments that
stand in the conversation; else it is the first one after all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial_client.local import fixed_replies, json_prompt_format
from dial_client.local.call_score import DecisionScore
from dial_client.local.follow_up import find_follow_up
from dial_client.local.provenance import has_strange_digits, is_made_up, is_said, spelt
from dial_client.local.vocabulary import ASKING, GENERIC, acts, kinds, words, words_of
from dial_client.messages import NOT_ALLOWED, Message, Role, ToolCallRequest, ToolSpec
from dial_client.model import ModelRequest, ToolChoice

MAX_ROUNDS = 4
"""Rounds of calls in a turn; then the model has to answer."""
MAX_FAILURES = 2
"""Failed calls in a turn; then it has to answer."""
MAX_PUT_OFF = 2
"""Calls put off in one reply."""
MAX_NEWS = 40
"""Pieces of a result that a call may be made with."""
MAX_NEWS_CHARS = 4_000
"""Characters of a result that are looked through for them."""
MAX_TOKENS = 384
"""Tokens of a decision where a request does not say: a small model that repeats itself would not stop."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the model may do next."""

    tools: tuple[ToolSpec, ...] = ()
    """What it may call."""
    may_answer: bool = True
    then: str = ""
    """The tool to be called once this step's call has told what that one needs."""
    anew: bool = False
    """The last call has failed: one in place of it is wanted."""
    values: tuple[str, ...] = ()
    """What the required arguments that are texts must be one of; empty for any text."""


@dataclass(frozen=True, slots=True)
class _Done:
    """A call of this turn, and what came of it."""

    call: ToolCallRequest
    failed: bool
    denied: bool
    then: str
    result: str


class CallPolicy:
    """One reply: `step` is the decision to ask for, until it is None; then there is a `call`, a `reply`, or neither.

    With neither of them the model is to write an answer.

    Args:
        request: what is asked, with tools.
        name: the provider's; its echoes carry `then` from one round to the next.
    """

    def __init__(self, request: ModelRequest, name: str) -> None:
        self.call: ToolCallRequest | None = None
        self.then = ""
        """The tool to be called behind `call`."""
        self._question_back = ""
        self._is_unknown = False
        self._is_forced = self._is_narrowed = False
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._done = _done(request.messages, name)
        self._question = next((one.text for one in reversed(request.messages) if one.role is Role.USER), "")
        texts = [one.text for one in request.messages if one.role is not Role.ASSISTANT]
        self._said = "\n".join((*(instruction.text for instruction in request.instructions), *texts))
        about = (words(self._question) - GENERIC).union(*kinds(self._question))
        self._near = {tool.name for tool in request.tools if not about.isdisjoint(words_of(tool))}
        self._first: ToolCallRequest | None = None
        self._put_off = 0
        self.step: Step | None = self._begin()

    @property
    def reply(self) -> str:
        """What the reply says; empty where there is a `call`, or the model is to write an answer."""
        if self.step is not None or self.call is not None:
            return ""
        if self._question_back:
            return fixed_replies.with_results(
                self._question_back, [entry.result for entry in self._done if not entry.failed]
            )
        if self._done and (self._done[-1].failed or self._done[-1].denied):
            return self._told_failure()
        if self._is_unknown:
            return fixed_replies.NO_TOOL_FITS if self._request.tools else fixed_replies.NOT_CONNECTED
        return ""

    def _told_failure(self) -> str:
        """Compose what is said of the failed calls behind the last good one: the first of them is what was wanted."""
        found = [one.result for one in self._done if not one.failed]
        if (last := self._done[-1]).denied:
            return fixed_replies.not_allowed(last.call.name, found)
        first = last
        for one in reversed(self._done):
            if not one.failed:
                break
            first = one
        return fixed_replies.call_failed(first.call.name, first.result, found)

    def request(self, step: Step) -> ModelRequest:
        """Give what the model is asked, held to what the step allows."""
        # Shown a call that failed, the model goes on from it: it repeats it, or calls another tool with the same.
        hidden = frozenset(one.call.id for one in self._done if one.failed)
        told = json_prompt_format.conversation(self._request.messages, hidden)
        tools = self._request.tools if step.tools else ()
        return replace(
            self._request,
            instructions=(*self._request.instructions, json_prompt_format.instruction(tools)),
            messages=(*json_prompt_format.examples(tools), *told),
            tools=(),
            tool_choice=ToolChoice.AUTO,
            grammar=json_prompt_format.grammar(_narrowed(step), may_answer=step.may_answer),
            max_tokens=min(self._request.max_tokens or MAX_TOKENS, MAX_TOKENS),
            stream=False,
        )

    def take_unknown(self) -> None:
        """Take the decision that the reply cannot be known.

        A tool near the question is tried first. Beside other tools the decision is made too easily: there it is made
        once more, as if there were none.
        """
        step, self.step = self.step, None
        if step is None or not step.tools:
            self._is_unknown = step is not None
            return
        near = tuple(tool for tool in step.tools if tool.name in self._near)
        if near and not self._is_forced:
            self._is_forced = True
            self.step = replace(step, tools=near, may_answer=False)
        else:
            self.step = Step()

    def take(self, tool: str, call: ToolCallRequest | None, score: DecisionScore | None = None) -> None:
        """Take the decision for a call or an answer.

        Args:
            tool: the tool it calls or began to call; empty for an answer.
            call: the call, if it came to its end.
            score: how likely the call was; None if that is not known.
        """
        if score is not None and not score.is_call and self._may_decline():
            self._decline(tool, score)
            return
        step, self.step = self.step, None
        if step is None or not tool:
            return
        call = replace(call, arguments=spelt(call.arguments, self._said)) if call is not None else None
        if call is not None and self._is_good(step, call):
            self._make(call)
            self.then = step.then if self.call is not None else ""
            return
        again = call is not None and self._is_made(call) and tool in self._tools
        if again and not step.values and (values := self._news()):
            self.step = replace(step, tools=(self._tools[tool],), may_answer=False, values=values)
            return
        others = self._nearest(other for other in step.tools if other.name != tool)
        if not (self._put_off or step.anew):
            self._first = None if call is None or self._is_made(call) else call
            is_wanted = tool in self._near and (call is None or self._is_made_up(call))
            step = replace(step, may_answer=False, then=tool if is_wanted else "")
        if others and self._put_off < MAX_PUT_OFF:
            self._put_off += 1
            self.step = replace(step, tools=others)
        elif self._first is not None:
            self._make(self._first)

    def _may_decline(self) -> bool:
        """Return whether the step leaves open if a tool is called."""
        return self.step is not None and (self.step.may_answer or (self._is_forced and not self._put_off))

    def _decline(self, tool: str, score: DecisionScore) -> None:
        """Go on without an unlikely call: with the tools near the question, if the call was of another one."""
        step = self.step
        assert step is not None
        near = tuple(near for near in step.tools if near.name in self._near)
        if tool and tool not in self._near and near and not self._is_narrowed:
            self._is_narrowed = True
            self.step = replace(step, tools=near)
        elif score.is_unknown or not step.may_answer:
            self.take_unknown()
        else:
            self.step = None

    def _make(self, call: ToolCallRequest) -> None:
        """Make a call, or ask for what it lacks."""
        if missing := self._missing(call):
            self._question_back = fixed_replies.argument_missing(self._tools[call.name], missing)
        else:
            self.call = call

    def _begin(self) -> Step | None:
        everything, done = self._request.tools, self._done
        if self._request.tool_choice is ToolChoice.NONE or len(done) >= MAX_ROUNDS or any(one.denied for one in done):
            return None
        if not done:
            return Step(everything)
        failed = [one.call.name for one in done if one.failed]
        if done[-1].failed:
            called = {one.call.name for one in done}
            explained = words_of(self._tools[failed[-1]]) if failed[-1] in self._tools else frozenset()
            asked = words(self._question) - explained
            others = tuple(
                tool
                for tool in everything
                if tool.name not in called and not acts(tool) and not words_of(tool).isdisjoint(asked)
            )
            return Step(others, may_answer=False, anew=True) if others and len(failed) < MAX_FAILURES else None
        succeeded = {one.call.name for one in done if not one.failed}
        unmet = (name for name in failed if name in self._near and name not in succeeded)
        wanted = done[-1].then or next(unmet, "")
        if wanted in self._tools:
            return Step((self._tools[wanted],), may_answer=False)
        return self._follow_up([entry for entry in done if not entry.failed])

    def _follow_up(self, good: Sequence[_Done]) -> Step | None:
        """Return the step for the call that has to follow the good ones, if any."""
        called, results = [entry.call.name for entry in good], [entry.result for entry in good]
        follow_up = find_follow_up(self._question, self._request.tools, called, results)
        return Step((follow_up.tool,), may_answer=False, values=follow_up.values) if follow_up is not None else None

    def _is_good(self, step: Step, call: ToolCallRequest) -> bool:
        if self._is_made(call):
            return False
        if self._put_off or step.anew:
            return bool(self._required(call)) and self._is_grounded(call)
        is_far = call.name not in self._near and any(tool.name in self._near for tool in step.tools)
        return not (is_far or self._is_made_up(call))

    def _is_made(self, call: ToolCallRequest) -> bool:
        """Whether this very call was made in this turn."""
        return any(one.call.name == call.name and one.call.arguments == call.arguments for one in self._done)

    def _is_made_up(self, call: ToolCallRequest) -> bool:
        """Whether something in the call comes from nowhere."""
        properties = self._tools[call.name].input_schema.get("properties", {}) if call.name in self._tools else {}
        return any(is_made_up(value, properties.get(name), self._said) for name, value in call.arguments.items())

    def _is_grounded(self, call: ToolCallRequest) -> bool:
        """Whether all that the call must have stands in the conversation."""
        return all(is_said(call.arguments.get(name), self._said) for name in self._required(call))

    def _missing(self, call: ToolCallRequest) -> list[str]:
        """Return the required arguments of a call whose values nobody has said, nor anything they follow from."""
        properties = self._tools[call.name].input_schema.get("properties", {})
        told = "\n".join(one.text for one in self._request.messages if one.role in (Role.USER, Role.TOOL))
        has_source = bool(words(told) - ASKING - words_of(self._tools[call.name]))
        missing = []
        for name in self._required(call):
            schema, value = properties.get(name), call.arguments.get(name)
            is_free = isinstance(schema, Mapping) and "enum" not in schema and "default" not in schema
            if not is_free or isinstance(value, bool) or is_said(value, self._said):
                continue
            if not has_source or is_made_up(value, schema, self._said) or has_strange_digits(value, self._said):
                missing.append(name)
        return missing

    def _news(self) -> tuple[str, ...]:
        """Give the pieces of the last result that were not said before it."""
        last = next((one for one in reversed(self._request.messages) if one.role is not Role.ASSISTANT), None)
        if last is None or last.role is not Role.TOOL or last.is_error:
            return ()
        before = self._said[: self._said.rfind(last.text)].lower()
        found = dict.fromkeys(piece.strip(" .") for piece in _PIECE.findall(last.text[:MAX_NEWS_CHARS]))
        return tuple(piece for piece in found if piece and piece.lower() not in before)[:MAX_NEWS]

    def _required(self, call: ToolCallRequest) -> Sequence[str]:
        return self._tools[call.name].input_schema.get("required", ()) if call.name in self._tools else ()

    def _nearest(self, tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Give the tools that may be called in place of one: those near the question, else all; none that acts."""
        every = tuple(tool for tool in tools if not acts(tool))
        return tuple(tool for tool in every if tool.name in self._near) or every


_PIECE = re.compile(r"(?:[A-Z][\w'&-]*(?: [A-Z][\w'&-]*){1,4})|[^\s\"',;:(){}\[\]]{2,200}")


def _narrowed(step: Step) -> tuple[ToolSpec, ...]:
    """Give the tools of a step as they may be called in it."""
    return tuple(_narrowed_to(tool, step.values) for tool in step.tools) if step.values else step.tools


def _narrowed_to(tool: ToolSpec, values: tuple[str, ...]) -> ToolSpec:
    schema = tool.input_schema
    required = schema.get("required", ())
    properties = {
        name: {"enum": list(values)} if name in required and _is_text(about) else about
        for name, about in schema.get("properties", {}).items()
    }
    return replace(tool, input_schema={**schema, "properties": properties})


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema


def _done(messages: Sequence[Message], name: str) -> list[_Done]:
    """Give the calls that have a result since the user last spoke."""
    done: list[_Done] = []
    calls: dict[str, tuple[ToolCallRequest, str]] = {}
    for message in messages:
        if message.role is Role.USER:
            done, calls = [], {}
        elif message.role is Role.ASSISTANT:
            echo = message.echo.data if message.echo is not None and message.echo.provider == name else None
            then = str(echo.get("then", "")) if isinstance(echo, Mapping) else ""
            calls |= {call.id: (call, then) for call in message.tool_calls}
        elif message.role is Role.TOOL and message.tool_call_id in calls:
            call, then = calls[message.tool_call_id]
            done.append(_Done(call, message.is_error, message.text.startswith(NOT_ALLOWED), then, message.text))
    return done
