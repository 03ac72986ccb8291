"""What the embedded model may do next, and which of its calls are made.

Half a billion parameters can pick a tool and fill in its arguments. They cannot see that a call gets nowhere, that
something has to be found out first, or that they are done: asked whether to go on behind a result, the model is right
no more often than a coin. So that much is decided here, by what was said, called and found:

* A call that was made before, or whose numbers, addresses or paths nobody has named, is put off, and the model chooses
  among the other tools. If one of those can be called with what was said, it is called first, and the other one behind
  it: the degrees of a room are measured before they are converted.
* A call of a tool that has no word in common with the question is put off if others have one.
* Behind a call that failed another tool is tried, and then the one that failed.
* Behind a good result the model answers, and behind a call that was not allowed.

A call in place of another one is made only of a tool that looks things up, by its name, and only with arguments that
stand in the conversation; else it is the first one after all: whether that makes sense is in the end the tool's to say.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial_client.local import object_form
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
MAX_HEARD_CHARS = 8_000
"""Characters of a conversation whose words a miscopied one is compared with."""
MAX_TOKENS = 384
"""Tokens of a reply where a request does not say: a small model that repeats itself would not stop."""


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


class Choosing:
    """One reply: `step` is what to ask for, until it is None; then `call` is to be made, if there is one.

    Args:
        request: what is asked, with tools.
        name: the provider's; its echoes carry `then` from one round to the next.
    """

    def __init__(self, request: ModelRequest, name: str) -> None:
        self.call: ToolCallRequest | None = None
        self.then = ""
        """The tool to be called behind `call`."""
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools}
        self._done = _done(request.messages, name)
        self._question = next((one.text for one in reversed(request.messages) if one.role is Role.USER), "")
        self._said = "\n".join(one.text for one in request.messages if one.role is not Role.ASSISTANT)
        self._near = {tool.name for tool in request.tools if not words(self._question).isdisjoint(_words_of(tool))}
        self._is_english = is_english(self._question)
        self._first: ToolCallRequest | None = None
        self._put_off = 0
        self.step: Step | None = self._begin()

    def request(self, step: Step) -> ModelRequest:
        """Give what the model is asked, held to what the step allows."""
        system = tuple(message for message in self._request.messages if message.role is Role.SYSTEM)
        instructions = Message.system(object_form.instructions(self._request.tools))
        # Shown a call that failed, the model goes on from it: it repeats it, or calls another tool with the same.
        hidden = frozenset(one.call.id for one in self._done if one.failed and step.tools)
        told = object_form.conversation(self._request.messages, hidden)
        if self._request.messages[-1].role is Role.TOOL and not step.tools:
            told = object_form.asked_again(told, self._question)
        return replace(
            self._request,
            messages=(*system, instructions, *object_form.EXAMPLES, *told),
            tools=(),
            tool_choice=ToolChoice.AUTO,
            grammar=object_form.grammar(_narrowed(step), may_answer=step.may_answer),
            max_tokens=self._request.max_tokens or MAX_TOKENS,
        )

    def take(self, tool: str, call: ToolCallRequest | None) -> None:
        """Take what the model wrote in this step.

        Args:
            tool: the tool it calls or began to call; empty for an answer.
            call: the call, if it came to its end.
        """
        step, self.step = self.step, None
        if step is None or not tool:
            return
        call = replace(call, arguments=spelt(call.arguments, self._said)) if call is not None else None
        if call is not None and self._is_good(step, call):
            self.call, self.then = call, step.then
            return
        again = call is not None and self._is_made(call) and tool in self._tools
        if again and not step.values and (values := self._news()):
            self.step = replace(step, tools=(self._tools[tool],), may_answer=False, values=values)
            return
        others = self._nearest(other for other in step.tools if other.name != tool)
        if not (self._put_off or step.anew):
            if call is not None and self._is_stray(call):
                self.step = Step()
                return
            self._first = None if call is None or self._is_made(call) else call
            is_wanted = tool in self._near and (call is None or self._is_made_up(call))
            step = replace(step, may_answer=False, then=tool if is_wanted else "")
        if others and self._put_off < MAX_PUT_OFF:
            self._put_off += 1
            self.step = replace(step, tools=others)
        elif self._first is not None:
            self.call = self._first
        else:
            self.step = Step()

    def _begin(self) -> Step:
        everything, done = self._request.tools, self._done
        if self._request.tool_choice is ToolChoice.NONE or len(done) >= MAX_ROUNDS or any(one.denied for one in done):
            return Step()
        if not done:
            return Step(everything)
        failed = [one.call.name for one in done if one.failed]
        if done[-1].failed:
            others = self._nearest(tool for tool in everything if tool.name not in failed)
            return Step(others, may_answer=False, anew=True) if others and len(failed) < MAX_FAILURES else Step()
        succeeded = {one.call.name for one in done if not one.failed}
        unmet = (name for name in failed if name in self._near and name not in succeeded)
        wanted = done[-1].then or next(unmet, "")
        return Step((self._tools[wanted],), may_answer=False) if wanted in self._tools else Step()

    def _is_good(self, step: Step, call: ToolCallRequest) -> bool:
        if self._is_made(call):
            return False
        if self._put_off or step.anew:
            return bool(self._required(call)) and self._is_grounded(call)
        is_far = call.name not in self._near and any(tool.name in self._near for tool in step.tools)
        return not (is_far or self._is_made_up(call) or self._is_stray(call))

    def _is_made(self, call: ToolCallRequest) -> bool:
        """Whether this very call was made in this turn."""
        return any(one.call.name == call.name and one.call.arguments == call.arguments for one in self._done)

    def _is_made_up(self, call: ToolCallRequest) -> bool:
        """Whether something in the call comes from nowhere."""
        properties = self._tools[call.name].input_schema.get("properties", {}) if call.name in self._tools else {}
        return any(is_made_up(value, properties.get(name), self._said) for name, value in call.arguments.items())

    def _is_stray(self, call: ToolCallRequest) -> bool:
        """Whether the question has nothing to do with any tool, nor with what this one is to be called with."""
        return self._is_english and not self._near and not self._is_grounded(call)

    def _is_grounded(self, call: ToolCallRequest) -> bool:
        """Whether all that the call must have stands in the conversation."""
        return all(is_said(call.arguments.get(name), self._said) for name in self._required(call))

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


_ACTS = frozenset(
    re.findall(
        r"\w+",
        "accept add append approve archive assign block book buy cancel change checkout clear close commit "
        "compose copy create delete deploy disable drop edit enable execute exec fill insert install invite "
        "invoke kill launch make merge modify move open patch pay play post publish push put reboot remove "
        "rename reply reset restart restore revert run save send set share shutdown start stop submit switch "
        "transfer turn type uninstall unset update upload vacuum write",
    )
)


def acts(tool: ToolSpec) -> bool:
    """Whether a tool does something, as far as its name tells; one that says of itself that it only reads does not."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", tool.name)
    return not tool.read_only and not _ACTS.isdisjoint(part.lower() for part in parts)


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
            done.append(_Done(call, message.is_error, message.text.startswith(NOT_ALLOWED), then))
    return done


_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_GROUPING = re.compile(r"(?<=\d),(?=\d{3})")
_SUM = re.compile(r"[\d\s.+*/()%^-]+")
_NO_SUM = re.compile(r"[\d\s.-]+")
_NUMBER_WORD = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million"
    r"|(?:twen|thir|for|four|fif|six|seven|eigh|nine)(?:ty|teen)|dozen|half|quarter|third|twice|double|couple)\b",
    re.IGNORECASE,
)
_USUAL = frozenset({0.0, 1.0, 2.0, 100.0})
"""Numbers that need not be named: the last one, a percentage."""


def is_made_up(value: Any, schema: Any, said: str) -> bool:
    """Whether a value comes from nowhere: a number, an address or a path that nobody has named.

    Args:
        value: an argument.
        schema: its schema.
        said: all that was said and found. Where it has numbers as words, no number counts as made up.
    """
    if isinstance(schema, Mapping) and ("enum" in schema or value == schema.get("default")):
        return False
    if isinstance(value, str) and (value.startswith("/") or "@" in value):
        return value.rstrip("/").lower() not in said.lower()
    if isinstance(value, bool) or _NUMBER_WORD.search(said):
        return False
    if isinstance(value, int | float):
        return abs(value) not in _USUAL | _numbers(said)
    if isinstance(value, str) and _SUM.fullmatch(value) and not _NO_SUM.fullmatch(value):
        return not _numbers(value) <= _USUAL | _numbers(said)
    return False


def is_said(value: Any, said: str) -> bool:
    """Whether a value stands in what was said: as it is, its last part (``Asia/Tokyo``), or all numbers of a sum."""
    if isinstance(value, bool):
        return True
    text = str(value).strip().lower()
    if _SUM.fullmatch(text):
        return _numbers(text) <= _USUAL | _numbers(said)
    part = re.split(r"[/_]", text.rstrip("/"))[-1]
    return text in said.lower() or (len(part) >= 3 and part in said.lower())


def _numbers(text: str) -> set[float]:
    return {float(found) for found in _NUMBER.findall(_GROUPING.sub("", text))}


_COPIED = re.compile(r"[^\s\"'?!,;:()]{4,64}")


def spelt(arguments: Mapping[str, Any], said: str) -> dict[str, Any]:
    """Give the arguments, with words that were all but copied from the conversation spelt as they are there."""
    heard = {word.lower(): word for word in _COPIED.findall(said[:MAX_HEARD_CHARS])}
    return {name: _spelt(value, heard, said.lower()) for name, value in arguments.items()}


def _spelt(value: Any, heard: Mapping[str, str], said: str) -> Any:
    if not isinstance(value, str) or not 5 <= len(value) <= 64 or " " in value or value.lower() in said:
        return value
    near = difflib.get_close_matches(value.lower(), heard, n=1, cutoff=0.8)
    if not near or near[0].startswith(value.lower()) or value.lower().startswith(near[0]):
        return value
    return heard[near[0]]


_WORD = re.compile(r"[^\W\d_]{2,}")
_SAYS_NOTHING = frozenset(
    _WORD.findall(
        "current currently day today tomorrow now "
        "a all an and any are as at be but by can could did do does for from get give had has have how i if "
        "in into is it its like many may me much my need new no not now of on one or other our out over "
        "please right say should show so some tell than that the their them then there these they this to two "
        "up us use used was we were what when where which who whose why will with would you your"
    )
)


def words(text: str) -> frozenset[str]:
    """Give the words that say something, in lower case and without their commonest endings."""
    found = (word.lower() for word in _WORD.findall(text))
    return frozenset(_stem(word) for word in found if word not in _SAYS_NOTHING)


def is_english(text: str) -> bool:
    """Whether a text is English, as far as can be seen: only then do words tell which tool is meant."""
    found = [word.lower() for word in _WORD.findall(text)]
    return sum(word in _SAYS_NOTHING for word in found) * 3 >= max(1, len(found))


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _words_of(tool: ToolSpec) -> frozenset[str]:
    properties = tool.input_schema.get("properties", {})
    about = [f"{name} {schema.get('enum', '')}" for name, schema in properties.items() if isinstance(schema, Mapping)]
    return words(" ".join((tool.name, tool.description, *about)))
