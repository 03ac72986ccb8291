"""A model that plays replies from a file: for tests, demonstrations and bug reports.

The file is JSON: a list of replies, or an object::

    {"replies": [REPLY, …], "after": "error"}

``after`` says what follows the last reply: ``"error"`` (the default), or ``"repeat"``: the last one again and again.
A REPLY is a string, which is its text, or an object with any of::

    {"text": "…",
     "reasoning": "…",
     "tool_calls": [{"name": "…", "arguments": {…}, "id": "…"}],
     "finish": "stop" | "tool_calls" | "length" | "refused" | "cut",
     "usage": {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0},
     "notes": ["…"],
     "chunk_size": 8,
     "error": {"message": "…", "status": 503, "code": "overloaded", "retry_after": 2.5},
     "hang": true}

Reasoning comes first, then the text, then the calls. ``arguments`` that are a string stand for what a model wrote:
they may be no JSON. A call without an id gets ``call_1``, ``call_2`` and so on. ``finish`` is by default what follows
from the calls, and as with every provider only a whole reply has calls. ``chunk_size`` is the characters of one piece
of a stream; by default text comes whole. With ``error`` the reply breaks off in a `ProviderError` behind what it has
said; with ``hang`` it goes silent there until it is cancelled.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from dial_client.errors import ConfigError, ProviderError
from dial_client.messages import ToolCallRequest, Usage
from dial_client.model import CallChunk, Completion, Delta, FinishReason, ModelRequest, ReasoningChunk, TextChunk


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply, as the module's description has it."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallRequest, ...] = ()
    finish: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    notes: tuple[str, ...] = ()
    chunk_size: int = 0
    error: ProviderError | None = None
    hang: bool = False


class ScriptedProvider:
    """A `Provider` that plays replies in their order.

    Args:
        replies: in any of the forms the module's description has.
        after: what is played when all replies are: ``"error"`` or ``"repeat"``.
        path: the file they come from, for error messages.

    Raises:
        ConfigError: a reply is wrong; says which, and what was expected.
    """

    def __init__(self, replies: Sequence[Any], *, after: str = "error", path: str = "") -> None:
        if after not in ("error", "repeat"):
            raise ConfigError("after: this is not a value for it", hint='expected "error" or "repeat"', path=path)
        read = _Reader(path)
        self.name = "scripted"
        self.model = path or "scripted"
        self.requests: list[ModelRequest] = []
        """What was asked, in order."""
        self._replies = [read.reply(reply, f"replies[{at}]") for at, reply in enumerate(replies)]
        self._repeats = after == "repeat"

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ScriptedProvider:
        """Read a file.

        Raises:
            ConfigError: it is missing, or wrong.
        """
        name = os.fspath(path)
        try:
            script = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror or error}", path=name) from None
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"this is no JSON: {error.msg}", path=name, line=error.lineno, column=error.colno
            ) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is no JSON: {error}", path=name) from None
        if isinstance(script, list):
            script = {"replies": script}
        known = _Reader(name).checked(script, "the script", {"replies": list, "after": str})
        if "replies" not in known:
            raise ConfigError("there are no replies", hint='expected {"replies": […]}, or a list', path=name)
        return cls(known["replies"], after=known.get("after", "error"), path=name)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Play the next reply.

        Raises:
            ProviderError: the reply says so, or there is none left.
        """
        at = len(self.requests)
        self.requests.append(request)
        if at >= len(self._replies) and not (self._repeats and self._replies):
            raise ProviderError(f"the script ends after {len(self._replies)} replies", code="script_ended")
        reply = self._replies[min(at, len(self._replies) - 1)]
        await checkpoint()
        for delta in _spoken(reply, request):
            yield delta
            await checkpoint()
        if reply.hang:
            await anyio.sleep_forever()
        if reply.error is not None:
            error = reply.error
            raise ProviderError(str(error), status=error.status, code=error.code, retry_after=error.retry_after)
        finish = reply.finish or (FinishReason.TOOL_CALLS if reply.tool_calls else FinishReason.STOP)
        if finish in (FinishReason.STOP, FinishReason.TOOL_CALLS):
            for call in reply.tool_calls:
                yield CallChunk(call)
        yield Completion(finish, reply.usage, notes=reply.notes)

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def _spoken(reply: ScriptedReply, request: ModelRequest) -> Iterator[Delta]:
    size = reply.chunk_size if request.stream else 0
    yield from (ReasoningChunk(piece) for piece in _pieces(reply.reasoning, size))
    yield from (TextChunk(piece) for piece in _pieces(reply.text, size))


def _pieces(text: str, size: int) -> Iterator[str]:
    step = size or len(text) or 1
    return (text[at : at + step] for at in range(0, len(text), step))


@dataclass(slots=True)
class _Reader:
    """Reads replies, and says what is wrong with them."""

    path: str
    calls: int = 0

    def reply(self, said: Any, where: str) -> ScriptedReply:
        if isinstance(said, ScriptedReply):
            return said
        if isinstance(said, str):
            return ScriptedReply(text=said)
        known = self.checked(said, where, _REPLY)
        calls = known.get("tool_calls", [])
        known["tool_calls"] = tuple(self.call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls))
        if "finish" in known:
            if known["finish"] not in list(FinishReason):
                raise self.wrong(f"{where}.finish", " or ".join(FinishReason))
            known["finish"] = FinishReason(known["finish"])
        usage = dict.fromkeys((count.name for count in fields(Usage)), int)
        known["usage"] = Usage(**self.checked(known.get("usage", {}), f"{where}.usage", usage))
        known["notes"] = tuple(str(note) for note in known.get("notes", ()))
        if known.get("chunk_size", 0) < 0:
            raise self.wrong(f"{where}.chunk_size", "a number of characters")
        if "error" in known:
            error = self.checked(known["error"], f"{where}.error", _ERROR)
            known["error"] = ProviderError(error.pop("message", "the script says so"), **error)
        return ScriptedReply(**known)

    def call(self, said: Any, where: str) -> ToolCallRequest:
        if isinstance(said, ToolCallRequest):
            return said
        known = self.checked(said, where, _CALL)
        if "name" not in known:
            raise self.wrong(f"{where}.name", "the name of a tool")
        self.calls += 1
        call_id, arguments = known.get("id") or f"call_{self.calls}", known.get("arguments", {})
        if isinstance(arguments, dict):
            return ToolCallRequest(call_id, known["name"], arguments)
        try:
            value = json.loads(arguments)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return ToolCallRequest(call_id, known["name"], value)
        return ToolCallRequest(call_id, known["name"], {}, unreadable=arguments)

    def checked(self, said: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Give a copy of an object, if it has no other keys than these, with values of these types."""
        if not isinstance(said, Mapping):
            raise self.wrong(where, f"an object with {', '.join(kinds)}")
        for key, value in said.items():
            if key not in kinds:
                raise self.wrong(f"{where}.{key}", f"only {', '.join(kinds)}")
            if not isinstance(value, kinds[key]) or (isinstance(value, bool) and kinds[key] is not bool):
                raise self.wrong(f"{where}.{key}", _kind(kinds[key]))
        return dict(said)

    def wrong(self, where: str, expected: str) -> ConfigError:
        return ConfigError(f"{where}: this cannot be", hint=f"expected {expected}", path=self.path)


def _kind(kind: Any) -> str:
    names = {
        str: "a string",
        int: "a number",
        float: "a number",
        bool: "true or false",
        list: "a list",
        dict: "an object",
    }
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(dict.fromkeys(names[one] for one in kinds if one in names))


_REPLY: Mapping[str, Any] = {
    "text": str,
    "reasoning": str,
    "tool_calls": (list, tuple),
    "finish": str,
    "usage": Mapping,
    "notes": (list, tuple),
    "chunk_size": int,
    "error": Mapping,
    "hang": bool,
}
_CALL: Mapping[str, Any] = {"name": str, "arguments": (dict, str), "id": str}
_ERROR: Mapping[str, Any] = {"message": str, "status": int, "code": str, "retry_after": (int, float)}
