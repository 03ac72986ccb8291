"""The probes: what fails, and what a host must have done about it at the end of the turn.

`sentence` is the first column of a row in docs/turns.md; there are twenty of them. Names of tools are ``TOOL`` or
``SERVER::TOOL``; each host offers them under names of its own.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.model_endpoint import CHAT_HEAD, Call, Recorded, Say, events, refuse
from probes.script import Reply, Stubborn, offered_names
from probes.servers import LONG_NAME, ODD_NAME, PNG

SLOW = 75.0
"""The seconds for what may take a minute: many servers and tools need one."""
LARGEST = 250_000
"""The largest request to a model of 128,000 tokens that leaves room for an answer, in bytes, by a wide margin."""


def build_entry(kind: str, **settings: Any) -> dict[str, Any]:
    """Return the entry of a server of `servers`."""
    script = str(Path(__file__).with_name("servers.py"))
    return {"command": sys.executable, "args": ["-I", "-S", script, kind], **settings}


@dataclass(frozen=True, slots=True)
class Seen:
    """A turn, as it was seen from outside of the host."""

    text: str
    """The answer; with an error, what was streamed before it."""
    error: str
    """The exception, or ''."""
    seconds: float
    requests: Sequence[Recorded]
    """The requests of the turn to the model."""
    log: Sequence[Mapping[str, Any]]
    """What servers recorded: their starts, calls and cancellations."""

    @property
    def results(self) -> list[str]:
        """The results of the calls in the last request."""
        messages = self.requests[-1].json["messages"] if self.requests else []
        return [_text_of(message.get("content")) for message in messages if message["role"] == "tool"]

    def count_calls(self, tool: str) -> int:
        """Return how often a tool was run."""
        return sum(entry["event"] == "call" and entry["tool"] == tool for entry in self.log)


Check = Callable[[Seen], str]
"""Returns what is wrong, or ''."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One failure: what the model replies, the servers, and what must be seen."""

    sentence: str
    replies: Sequence[Reply]
    """The replies of the model; after them it says `DONE`."""
    checks: Sequence[Check] = ()
    servers: Mapping[str, Any] = field(default_factory=lambda: {"awkward": build_entry("Awkward")})
    streamed: bool = False
    """Whether the failure exists in streams alone."""
    seconds: float = 30
    """The longest time for the start of the servers and the turn."""
    cancelled: bool = False
    """Whether the turn is cancelled once the tool ``never`` runs: then no answer is wanted."""


def calls(*names: str, **arguments: Any) -> Say:
    """Return a reply that calls tools at the same time."""
    return Say("", tuple(Call(name, arguments) for name in names))


def results(*wanted: str) -> Check:
    """Return a check that the model has read these texts, each in a result of its own."""

    def check(seen: Seen) -> str:
        if len(seen.results) < len(wanted):
            return f"the model has {len(seen.results)} results of {len(wanted)}"
        missing = [
            text for text, result in zip(wanted, seen.results[-len(wanted) :], strict=True) if text not in result
        ]
        return f"the model did not read {missing[0]!r} but {seen.results[-1][:80]!r}" if missing else ""

    return check


def told(*words: str, at: int = 0) -> Check:
    """Return a check that the model was told what failed in the result at a place: one of the words, in lower case."""

    def check(seen: Seen) -> str:
        if len(seen.results) <= at:
            return "the model was told nothing"
        said = seen.results[at].lower()
        return "" if any(word in said for word in words) else f"the model was not told what failed: {said[:80]!r}"

    return check


def runs(tool: str, times: int) -> Check:
    """Return a check that a tool ran so many times, no more and no less."""

    def check(seen: Seen) -> str:
        count = seen.count_calls(tool)
        return "" if count == times else f"{tool!r} ran {count} times"

    return check


def sends_at_most(size: int) -> Check:
    """Return a check of the largest request, in bytes."""

    def check(seen: Seen) -> str:
        largest = max((len(request.body) for request in seen.requests), default=0)
        return "" if largest <= size else f"a request has {largest:,} bytes"

    return check


def names_fit(seen: Seen) -> str:
    """Check that providers take the names of the tools, which are different."""
    offered = offered_names(seen.requests[0]) if seen.requests else []
    wrong = [name for name in offered if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)]
    if wrong:
        return f"providers refuse the name {wrong[0][:80]!r}"
    return "" if len(set(offered)) == len(offered) else "two tools have the same name"


def ran_both_processes(seen: Seen) -> str:
    """Check that the calls reached two servers."""
    return "" if len(set(seen.results)) == 2 else "one of two servers was not reached"


def shows_image(seen: Seen) -> str:
    """Check that the model sees the image, as an image of a user's message: others are refused in this wire."""
    if not seen.requests:
        return "there was no request"
    messages = seen.requests[-1].json["messages"]
    shown = [message["role"] for message in messages if "image_url" in json.dumps(message.get("content"))]
    if shown == ["user"]:
        return ""
    if shown:
        return f"the image is in a message of the role {shown[0]!r}, which the API refuses"
    return "the image was left out" if PNG not in json.dumps(messages) else "the image is text"


def was_cancelled(seen: Seen) -> str:
    """Check that the server was notified."""
    return "" if any(entry["event"] == "cancelled" for entry in seen.log) else "the server was not notified"


NOBODY_THERE = "a server asks a question"
NOT_STARTED = "a server does not start, or never answers"
NO_SUCH_FORM = "a schema is recursive, a name is too long or has odd characters"
OTHER_CONTENT = "a result has no text, but structured content, resources or links"
FAILING = "a tool keeps failing"
BAD_ARGUMENTS = "the arguments are incomplete or invalid"
NOTHING_SAID = "the model returns an empty answer"
NEVER_RETURNS = "a tool never returns"
INTERRUPTED = "Ctrl-C is pressed while a tool runs"
AGAIN = calls("echo", text="Hi")
BUSY = {"retry-after-ms": "1"}
HALF = {"index": 0, "delta": {"role": "assistant", "content": "Half an ans"}, "finish_reason": None}
CUT = events({**CHAT_HEAD, "object": "chat.completion.chunk", "choices": [HALF]}, done=False, cut=True)

LATER = (calls("still_there"), Say("It is."))
"""The replies in the second turn."""
OTHER = {"other": build_entry("Other")}
"""The server that is well, in each probe."""

PROBES: Mapping[str, Probe] = {
    "a command does not exist": Probe(
        NOT_STARTED,
        [calls("still_there")],
        [results("still there")],
        {"missing": {"command": "no-such-command", "args": []}},
    ),
    "initialize is never answered": Probe(
        NOT_STARTED, [calls("still_there")], [results("still there")], {"mute": build_entry("Mute")}, seconds=SLOW
    ),
    "other text on standard output": Probe(
        "a server writes text that is not a message to its standard output",
        [AGAIN],
        [results("Hi")],
        {"chatty": build_entry("Chatty")},
    ),
    "a server dies during a call": Probe(
        "a server dies during a call",
        [calls("dies"), AGAIN],
        [told("lost", "closed", "died", "ended", "exit", "disconnect", "terminated"), results("Hi"), runs("dies", 1)],
    ),
    "a server adds a tool": Probe(
        "a server adds a tool during a turn",
        [calls("grow"), calls("grown")],
        [results("there is one more", "grown ran")],
    ),
    "two tools with one name": Probe(
        "two servers have tools with the same name",
        [calls("one::who", "two::who")],
        [names_fit, ran_both_processes],
        {"one": build_entry("Who"), "two": build_entry("Who")},
    ),
    "a recursive schema": Probe(
        NO_SUCH_FORM,
        [calls("recursive", root={"children": [{}]})],
        [results("recursive ran")],
        {"awkward": build_entry("Recursive")},
    ),
    "names that no provider takes": Probe(
        NO_SUCH_FORM,
        [calls(LONG_NAME), calls(ODD_NAME)],
        [names_fit, results(f"{LONG_NAME} ran", f"{ODD_NAME} ran")],
        {"awkward": build_entry("OddNames")},
    ),
    "a result of 2 MB": Probe(
        "a result has 2,000,000 characters", [calls("huge")], [sends_at_most(LARGEST), results("the head")]
    ),
    "structured content alone": Probe(OTHER_CONTENT, [calls("structured")], [results("42")]),
    "a resource and a link": Probe(
        OTHER_CONTENT, [calls("resources")], [results("the notes"), results("https://docs.example/report.pdf")]
    ),
    "an image": Probe("a tool returns an image", [calls("picture")], [shows_image]),
    "a question in a call": Probe(
        NOBODY_THERE,
        [calls("asks")],
        [told("declin", "cancel", "no user", "not supported", "question", "not found"), runs("asks", 1)],
        {"asking": build_entry("Asks")},
    ),
    "a failing call": Probe(FAILING, [calls("fails")], [told("the disk is full"), runs("fails", 1)]),
    "calls that always fail": Probe(FAILING, [Stubborn(Call("fails"))], [told("the disk is full")]),
    "a tool that never returns": Probe(
        NEVER_RETURNS,
        [calls("never"), calls("itself")],
        [told("timed out", "timeout", "no result", "cancel", "seconds"), results("1 cancelled"), runs("never", 1)],
        seconds=SLOW,
    ),
    "a tool that does not exist": Probe(
        "the model calls a tool that does not exist",
        [calls("ecko", text="Hi"), AGAIN],
        [told("ecko", "unknown", "no tool", "not a valid tool", "not available"), results("Hi")],
    ),
    "arguments that are cut off": Probe(
        BAD_ARGUMENTS,
        [Say(calls=(Call("echo", '{"text": "H'),)), AGAIN],
        [told("json", "argument", "pars", "delimiter", "unterminated"), results("Hi"), runs("echo", 1)],
    ),
    "arguments of other names": Probe(
        BAD_ARGUMENTS,
        [calls("echo", words="Hi"), AGAIN],
        [told("'text'", "text", "required", "missing"), results("Hi")],
    ),
    "three calls at once": Probe(
        "the model makes several calls at once", [calls(*["three_at_once"] * 3)], [results(*["all three are here"] * 3)]
    ),
    "calls without end": Probe("the model never stops calling", [Stubborn(Call("echo", {"text": "round"}))]),
    "one empty answer": Probe(NOTHING_SAID, [AGAIN, Say("")], [results("Hi")]),
    "empty answers alone": Probe(NOTHING_SAID, [AGAIN, *[Say("")] * 20], [results("Hi")]),
    "errors 500 and 429": Probe(
        "the model's endpoint is overloaded, limits requests or has an error (429, 5xx)",
        [refuse(500, headers=BUSY), refuse(429, headers=BUSY), AGAIN],
        [results("Hi")],
    ),
    "a stream that breaks": Probe("the stream breaks", [AGAIN, CUT], [results("Hi"), runs("echo", 1)], streamed=True),
    "an interrupted call": Probe(INTERRUPTED, [calls("never")], [was_cancelled, runs("never", 1)], cancelled=True),
}


def find_invalid(request: Recorded) -> str:
    """Return what OpenAI's API would refuse in a request for chat completions: calls without results, results alone."""
    open_ids: list[str] = []
    for message in request.json["messages"]:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_ids:
                return "a request has a result without its call"
            open_ids.remove(message["tool_call_id"])
        elif open_ids:
            return "a request has a call without its result"
        elif message["role"] == "assistant":
            open_ids = [call["id"] for call in message.get("tool_calls") or ()]
    return "a request has a call without its result" if open_ids else ""


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or json.dumps(part) for part in content)
    return content or ""
