"""Mapping of tool names to names that an endpoint accepts, in requests, and back to the tools' own names, in replies.

A name that the endpoint accepts is not changed. Any other name is replaced by one that ends with a hash of the tool's
own name. So the new name is the same in every request, even in the history of a tool that no longer exists. The new
name is never parsed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from itertools import count

from dial_client.messages.message import Message, ToolCallRequest, ToolSpec
from dial_client.messages.model import ArgumentsChunk, CallChunk, Delta, ModelRequest

_HASH_LENGTH = 8
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopabcdef")
"""Converts a hash to letters only: some endpoints accept no digits, or none at the beginning."""
_MAX_ATTEMPTS = 100


class ToolNameMapping:
    """Maps the names of tools for one endpoint.

    Args:
        pattern: A regular expression that must match the whole name; empty to allow any name.
        length: The most characters of a name.
    """

    def __init__(self, pattern: str, length: int) -> None:
        self._pattern = re.compile(pattern) if pattern else None
        self._length = length
        self._tools: tuple[ToolSpec, ...] = ()
        self._renamed: tuple[ToolSpec, ...] = ()
        self._name_at_endpoint: dict[str, str] = {}
        self._own_name: dict[str, str] = {}
        self.notes: list[str] = []
        """Notes for the user on the tools of the last request; the caller clears the list."""

    @property
    def is_needed(self) -> bool:
        """True if the endpoint refuses names that most endpoints accept."""
        return self._pattern is not None or self._length < 64

    def to_endpoint(self, request: ModelRequest) -> ModelRequest:
        """Return the request with mapped names of its tools, and of the calls in its messages.

        The same tuple of tools always yields the same tuple of mapped tools, so encoded tools can be cached.
        """
        if request.tools is not self._tools:
            self._map_tools(request.tools)
        messages = tuple(self._map_message(message) for message in request.messages)
        choice = request.settings.tool_choice
        settings = replace(request.settings, tool_choice=self._name_at_endpoint.get(choice or "", choice))
        return replace(request, tools=self._renamed, messages=messages, settings=settings)

    def from_endpoint(self, call: ToolCallRequest) -> ToolCallRequest:
        """Return a call with the tool's own name. A call of an unknown tool is returned unchanged."""
        name = self._own_name.get(call.name, call.name)
        return call if name == call.name else replace(call, name=name)

    def restore_names(self, note: str) -> str:
        """Return a note in which mapped names are replaced by the tools' own names."""
        for name, own in self._own_name.items():
            if name != own:
                note = note.replace(name, own)
        return note

    async def restore_calls(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of a reply, with the tools' own names in the calls."""
        async with aclosing(deltas) as stream:
            async for delta in stream:
                match delta:
                    case CallChunk(call):
                        yield CallChunk(self.from_endpoint(call))
                    case ArgumentsChunk(index, name, text):
                        yield ArgumentsChunk(index, self._own_name.get(name, name), text)
                    case _:
                        yield delta

    def _map_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        self._tools = tools
        used_names = {tool.name for tool in tools if self._is_accepted(tool.name)}
        renamed: list[ToolSpec] = []
        self._name_at_endpoint, self._own_name = {}, {}
        for tool in tools:
            name = tool.name if tool.name in used_names else self._find_unused_name(tool.name, used_names)
            if not name:
                self.notes.append(f"the endpoint accepts no name for the tool {tool.name}: it is left out")
                continue
            used_names.add(name)
            self._name_at_endpoint[tool.name] = name
            self._own_name[name] = tool.name
            renamed.append(tool if name == tool.name else replace(tool, name=name))
        self._renamed = tuple(renamed)

    def _map_message(self, message: Message) -> Message:
        if all(self._is_accepted(call.name) for call in message.tool_calls):
            return message
        return replace(message, tool_calls=tuple(self._map_call(call) for call in message.tool_calls))

    def _map_call(self, call: ToolCallRequest) -> ToolCallRequest:
        if self._is_accepted(call.name):
            return call
        name = self._name_at_endpoint.get(call.name) or self._find_unused_name(call.name, set())
        return replace(call, name=name) if name else call

    def _is_accepted(self, name: str) -> bool:
        return 0 < len(name) <= self._length and (self._pattern is None or self._pattern.fullmatch(name) is not None)

    def _find_unused_name(self, name: str, used_names: set[str]) -> str:
        """Return a name that the endpoint accepts and no other tool has; empty if there is none."""
        for attempt in count():
            if attempt == _MAX_ATTEMPTS:
                return ""
            source = f"{name}\0{attempt}" if attempt else name
            digest = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:_HASH_LENGTH].translate(_LETTERS)
            candidate = next(
                (text for text in _list_candidates(name, digest, self._length) if self._is_accepted(text)), ""
            )
            if not candidate or candidate not in used_names:
                return candidate
        raise AssertionError("unreachable")


def _list_candidates(name: str, digest: str, length: int) -> list[str]:
    """Return candidate names, the most readable first. Most patterns accept one of them."""
    room = length - len(digest) - 1
    plain = re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")
    bare = re.sub(r"[^a-zA-Z0-9]+", "", name)
    stems = [re.sub(r"[^a-zA-Z0-9_-]", "_", name), plain, plain.replace("_", "-"), bare, re.sub("[0-9]", "", bare)]
    variants = []
    for stem in dict.fromkeys(stems):
        for start in (stem, f"t_{stem}", f"t{stem}"):
            joints = ("_", "-", "")
            variants += [f"{start[:room]}{joint}{digest}" for joint in joints]
    return [*variants, *(variant.lower() for variant in variants), digest, digest.upper()]
