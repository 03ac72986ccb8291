"""Tools under the names one endpoint takes: given to it on the way out, taken off again on the way in.

A name that fits is left alone. Another one is made fit and ends in a hash of the tool's own name, so it depends on
nothing but that: it is the same in every request, and in a history whose tool is gone. It is never parsed back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from itertools import count

from dial_client.messages import Message, ToolCallRequest, ToolSpec
from dial_client.model import CallChunk, Delta, ModelRequest

_HASH_LENGTH = 8
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopabcdef")
"""A hash in letters only: there are endpoints that take no digits, or none at the beginning."""
_MAX_ATTEMPTS = 100


class ToolNameMapping:
    """The names of one endpoint's tools.

    Args:
        pattern: what a name must match as a whole; empty for anything.
        length: characters a name may have.
    """

    def __init__(self, pattern: str, length: int) -> None:
        self._pattern = re.compile(pattern) if pattern else None
        self._length = length
        self._tools: tuple[ToolSpec, ...] = ()
        self._renamed: tuple[ToolSpec, ...] = ()
        self._offered_as: dict[str, str] = {}
        self._meant_by: dict[str, str] = {}
        self.notes: list[str] = []
        """What the user should know of the tools on offer now; whoever tells it empties it."""

    @property
    def is_needed(self) -> bool:
        """Whether there can be a name that is offered elsewhere and does not fit here."""
        return self._pattern is not None or self._length < 64

    def to_endpoint(self, request: ModelRequest) -> ModelRequest:
        """Give the request under the endpoint's names: its tools, and the calls of its history.

        The same tuple of tools gives the same tuple again: what was written for it need not be written anew.
        """
        if request.tools is not self._tools:
            self._learn(request.tools)
        messages = tuple(self._message(message) for message in request.messages)
        return replace(request, tools=self._renamed, messages=messages)

    def from_endpoint(self, call: ToolCallRequest) -> ToolCallRequest:
        """Give a call under the name its tool is offered by; one of a tool that is not on offer as it is."""
        name = self._meant_by.get(call.name, call.name)
        return call if name == call.name else replace(call, name=name)

    def restore_names(self, note: str) -> str:
        """Give a note with the tools' own names in place of the endpoint's."""
        for name, own in self._meant_by.items():
            if name != own:
                note = note.replace(name, own)
        return note

    async def restore_calls(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        """Give a reply with its calls under the names of the tools on offer."""
        async with aclosing(deltas) as stream:
            async for delta in stream:
                yield CallChunk(self.from_endpoint(delta.call)) if isinstance(delta, CallChunk) else delta

    def _learn(self, tools: tuple[ToolSpec, ...]) -> None:
        self._tools = tools
        taken = {tool.name for tool in tools if self._fits(tool.name)}
        renamed: list[ToolSpec] = []
        self._offered_as, self._meant_by = {}, {}
        for tool in tools:
            name = tool.name if tool.name in taken else self._made_fit(tool.name, taken)
            if not name:
                self.notes.append(f"no name the endpoint takes can be made for the tool {tool.name}: it is left out")
                continue
            taken.add(name)
            self._offered_as[tool.name] = name
            self._meant_by[name] = tool.name
            renamed.append(tool if name == tool.name else replace(tool, name=name))
        self._renamed = tuple(renamed)

    def _message(self, message: Message) -> Message:
        if all(self._fits(call.name) for call in message.tool_calls):
            return message
        return replace(message, tool_calls=tuple(self._call(call) for call in message.tool_calls))

    def _call(self, call: ToolCallRequest) -> ToolCallRequest:
        if self._fits(call.name):
            return call
        name = self._offered_as.get(call.name) or self._made_fit(call.name, set())
        return replace(call, name=name) if name else call

    def _fits(self, name: str) -> bool:
        return 0 < len(name) <= self._length and (self._pattern is None or self._pattern.fullmatch(name) is not None)

    def _made_fit(self, name: str, taken: set[str]) -> str:
        """Give a name that fits and is not taken; empty where there is none."""
        for attempt in count():
            if attempt == _MAX_ATTEMPTS:
                return ""
            source = f"{name}\0{attempt}" if attempt else name
            digest = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:_HASH_LENGTH].translate(_LETTERS)
            fit = next((one for one in _candidate_names(name, digest, self._length) if self._fits(one)), "")
            if not fit or fit not in taken:
                return fit
        raise AssertionError("unreachable")


def _candidate_names(name: str, digest: str, length: int) -> list[str]:
    """Give names that most patterns have one of, the one that says most first."""
    room = length - len(digest) - 1
    plain = re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")
    bare = re.sub(r"[^a-zA-Z0-9]+", "", name)
    stems = [re.sub(r"[^a-zA-Z0-9_-]", "_", name), plain, plain.replace("_", "-"), bare, re.sub("[0-9]", "", bare)]
    variants = []
    for stem in dict.fromkeys(stems):
        for begun in (stem, f"t_{stem}", f"t{stem}"):
            joints = ("_", "-", "")
            variants += [f"{begun[:room]}{joint}{digest}" for joint in joints]
    return [*variants, *(variant.lower() for variant in variants), digest, digest.upper()]
