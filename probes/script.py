"""What the scripted model replies, in the names under which the host offers the tools."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from probes.model_endpoint import Answer, Call, Recorded, Say

DONE = "Done."


@dataclass(frozen=True, slots=True)
class Stubborn:
    """A reply that the model repeats until the host wants an answer: no tools, no choice of a tool, or a last word."""

    call: Call


Reply = Answer | Stubborn


class Script:
    """The replies, one for each request, then `DONE`. It is safe to use from any thread."""

    def __init__(self, replies: Sequence[Reply], turn: str = "a") -> None:
        self._replies = list(replies)
        self._turn = turn
        self._lock = threading.Lock()
        self._count = 0

    def __call__(self, request: Recorded) -> Answer:
        """Return the reply to a request."""
        with self._lock:
            self._count += 1
            reply = self._replies[0] if self._replies else Say(DONE)
            if isinstance(reply, Stubborn) and (self._count == 1 or not _wants_answer(request)):
                arguments = {name: f"{value} {self._count}" for name, value in reply.call.arguments.items()}
                return self._resolve(Say(calls=(replace(reply.call, arguments=arguments),)), request)
            if self._replies:
                self._replies.pop(0)
        if isinstance(reply, Stubborn):
            return Say(DONE)
        return self._resolve(reply, request) if isinstance(reply, Say) else reply

    def _resolve(self, say: Say, request: Recorded) -> Say:
        """Return the reply with the names that are offered, and with ids that no other call of the conversation has."""
        offered = offered_names(request)
        resolved = (
            replace(call, name=find_offered(call.name, offered), id=f"call_{self._turn}{self._count}_{at}")
            for at, call in enumerate(say.calls)
        )
        return replace(say, calls=tuple(resolved))


def offered_names(request: Recorded) -> list[str]:
    """Return the names of the tools that a request offers, in any of the wires."""
    return [tool.get("function", tool)["name"] for tool in request.json.get("tools") or ()]


def find_offered(wanted: str, offered: Sequence[str]) -> str:
    """Return the offered name of ``TOOL`` or ``SERVER::TOOL``, or the bare name if the tool is not offered.

    Hosts put prefixes before names, and replace characters that no provider takes.
    """
    server, _, tool = wanted.rpartition("::")
    plain = _plain(tool)
    found = [name for name in offered if name == tool or re.search(f"(^|[^a-zA-Z0-9]){plain}$", _plain(name))]
    if not found and len(tool) > 40:  # a name that is too long is cut somewhere
        found = [name for name in offered if plain[:30] in name]
    if server:
        found = [name for name in found if server in name.removesuffix(tool)] or found
    return min(found, key=len, default=tool)


def _plain(name: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "_", name)


def _wants_answer(request: Recorded) -> bool:
    body = request.json
    return not body.get("tools") or body.get("tool_choice") == "none" or body["messages"][-1]["role"] != "tool"
