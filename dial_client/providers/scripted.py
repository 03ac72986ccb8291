r"""A model that plays replies from a file, for tests, demonstrations and bug reports.

The file is JSON: a list of replies, or an object::

    {"replies": [REPLY, …], "after": "error"}

After the last reply, further requests get an error (``"error"``, the default) or the last reply again (``"repeat"``).
A REPLY is a string, which is the text, or an object with any of these members::

    {"text": "…",
     "reasoning": "…",
     "tool_calls": [{"name": "…", "arguments": {…}, "id": "…"}],
     "finish": "stop" | "tool_calls" | "length" | "refused" | "cut",
     "usage": {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0,
               "cache_write_tokens": 0, "server_tool_calls": 0},
     "notes": ["…"],
     "echo": data that is sent back with the message,
     "chunks": ["…", "…"],
     "chunk_size": 8,
     "completion": true,
     "error": {"message": "…", "status": 503, "code": "overloaded", "retry_after": 2.5},
     "hang": true}

A reply streams its reasoning first, then its text, then its calls. ``arguments`` may be a string that contains the JSON
text as the model wrote it, even invalid JSON. A call without an id gets ``call_1``, ``call_2`` and so on. Calls may
share an id, have an empty id, name an unknown tool, or exist in a reply to a request that allows none. By default,
``finish`` is ``tool_calls`` if there are calls, and else ``stop``; with any other value the calls are dropped.
``chunk_size`` is the number of characters of each streamed piece of text, reasoning or arguments; by default each is
one piece. ``chunks`` lists the pieces of the text, and replaces ``text``. With ``"completion": false`` the reply ends
without a `Completion`. With ``error`` a `ProviderError` is raised after the text; with ``hang`` the reply blocks there
until it is cancelled.

A REPLY with ``wire`` is the HTTP response of an endpoint, which the parser of its API parses, streamed or not::

    {"wire": "chat" | "responses" | "messages",
     "body": "data: {…}\n\n…", or a JSON value for an unstreamed response,
     "events": [{…}, "[DONE]"], instead of "body": the events of a stream; strings are sent unchanged,
     "status": 400, if "body" is that of an error response,
     "break": true if the connection breaks after the body, or the message of the error,
     "hang": true if the response blocks after the body,
     "chunk_size": 8, in bytes,
     "notes": ["…"]}

A paused reply (``pause_turn`` of the Messages API) continues with the next REPLY.

A *recording* (``DialClient(record=FILE)``, ``dial-chat --record FILE``) is a script too, in JSON lines;
`recordings.recording` describes the format. It also contains the MCP servers, which `DialClient` replaces by mock
servers.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from dial_client.messages.errors import ProviderError
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    ModelInfo,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from dial_client.providers.http import provider_errors
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.response_stream import RawBody, Recordable, ResponseStream, StreamBroken, StreamParser
from dial_client.providers.request_adaptation import ToolNameMapping
from dial_client.providers.script_format import (
    ApiReply,
    RecordedServer,
    Script,
    ScriptedReply,
    read_file,
    read_replies,
    read_reply,
)
from dial_client.providers.tool_call_codec import to_json_text
from dial_client.settings.argument_types import describe_type
from dial_client.settings.config_types import Api
from dial_client.settings.endpoint_profile import CHAT, EndpointProfile

__all__ = ["RecordedServer", "ScriptedProvider", "ScriptedReply"]


class ScriptedProvider(Recordable):
    """A `Provider` that plays replies in order, or those of a function.

    Args:
        replies: The replies in any of the forms above, or a script; or a function that returns the reply to a
            `ModelRequest` in one of these forms, for turns that run at the same time.
        after: The response after the last reply: ``"error"``, or ``"repeat"`` to repeat the last reply.
        path: The file of the replies, for error messages.

    Raises:
        ConfigError: A reply is invalid; the message names the reply and the expected value. For a reply of a function,
            the turn raises it.
        TypeError: `replies` is neither a list nor a function without ``async``.
    """

    def __init__(
        self, replies: Sequence[Any] | Script | Callable[[ModelRequest], Any], *, after: str = "error", path: str = ""
    ) -> None:
        if isinstance(replies, str):
            raise TypeError(f"replies takes a list: replies=[{replies!r}]")
        self._reply: Callable[[ModelRequest], Any] | None = None
        self._path = path
        if isinstance(replies, Script):
            script = replies
        elif isinstance(replies, Sequence):
            script = read_replies(replies, after, path)
        elif inspect.isclass(replies) or inspect.iscoroutinefunction(replies) or not callable(replies):
            raise TypeError(f"replies takes a list, or a function of the ModelRequest, not {describe_type(replies)}")
        else:
            script, self._reply = Script(), replies
        self.requests: list[ModelRequest] = []
        """The requests that were received so far."""
        self.servers: Mapping[str, RecordedServer] | None = script.servers
        """The servers of a recording; None for a script that is not a recording."""
        self._script = script
        self._played = 0
        self._profile = replace(CHAT, **script.flags)
        self._names = ToolNameMapping(self._profile.tool_name_re, self._profile.tool_name_len)
        host = script.provider.rpartition("@")[2]
        self._info = ModelInfo(
            script.provider or "scripted",
            path or "scripted",
            tool_format=script.tool_format,
            fenced_calls=self._profile.fenced_calls,
        )
        self._endpoint = Endpoint(f"http://{host}" if _is_valid_host(host) else "http://scripted")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ScriptedProvider:
        """Return the provider that plays a file.

        Raises:
            ConfigError: The file is missing or invalid.
        """
        return cls(read_file(path), path=os.fspath(path))

    @property
    def info(self) -> ModelInfo:
        """The name and the tool format of the recording; defaults for a script that is not a recording."""
        return self._info

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags that affect the parsing of the recorded responses."""
        return self._script.flags

    async def generate_recorded(
        self, request: ModelRequest, bodies: list[RawBody] | None
    ) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""
        self.requests.append(request)
        reply = self._take_next_reply(request)
        await checkpoint()
        if isinstance(reply, ApiReply):
            self._names.to_endpoint(request)
            deltas = self._names.restore_calls(self._parse(reply, request, bodies))
        else:
            deltas = _play_reply(reply, request)
        async with aclosing(deltas) as stream:
            async for delta in stream:
                yield delta
                await checkpoint()

    async def aclose(self) -> None:
        """Do nothing: there are no connections to close."""

    def _take_next_reply(self, request: ModelRequest) -> ScriptedReply | ApiReply:
        if self._reply is not None:
            return read_reply(self._reply(request), self._path)
        index, replies = self._played, self._script.replies
        self._played += 1
        if index >= len(replies) and not (self._script.repeats and replies):
            raise ProviderError(f"the script ends after {len(replies)} replies", code="script_ended")
        return replies[min(index, len(replies) - 1)]

    def _parse(
        self, first: ApiReply, request: ModelRequest, bodies: list[RawBody] | None
    ) -> AsyncGenerator[Delta, None]:
        reply: ApiReply | None = first
        notes: list[str] = []

        async def send(refusal: ProviderError | None) -> AsyncGenerator[bytes, None]:
            nonlocal reply
            if refusal is not None:
                raise refusal
            response, reply = reply or self._take_next_reply(request), None
            if isinstance(response, ScriptedReply):
                raise response.error or ProviderError("the script does not continue a paused reply", code="cut")
            notes.extend(response.notes)
            if response.status >= 300:
                raise provider_errors.build_refusal_error(self._endpoint, response.status, {}, response.body)
            return self._play_body(response)

        parser = _make_parser(first.api, self._profile)
        parser.streams_arguments = request.streams_arguments
        return ResponseStream(first.api.value, parser, self._endpoint, notes, bodies).read_deltas(send)

    async def _play_body(self, response: ApiReply) -> AsyncGenerator[bytes, None]:
        size = response.chunk_size or len(response.body) or 1
        for start in range(0, len(response.body), size):
            yield response.body[start : start + size]
        if response.hang:
            await anyio.sleep_forever()
        if response.breaks is not None:
            message = response.breaks or f"the connection to {self._endpoint.host} broke"
            raise StreamBroken(ProviderError(message, code="connection"))


async def _play_reply(reply: ScriptedReply, request: ModelRequest) -> AsyncGenerator[Delta, None]:
    for delta in _split_content(reply, request):
        yield delta
    if reply.hang:
        await anyio.sleep_forever()
    if reply.error is not None:
        error = reply.error
        raise ProviderError(str(error), status=error.status, code=error.code, retry_after=error.retry_after)
    finish = reply.finish or (FinishReason.TOOL_CALLS if reply.tool_calls else FinishReason.STOP)
    if finish in (FinishReason.STOP, FinishReason.TOOL_CALLS):
        for call in reply.tool_calls:
            yield CallChunk(call)
    if reply.completion:
        yield Completion(finish, reply.usage, reply.echo, reply.notes)


def _split_content(reply: ScriptedReply, request: ModelRequest) -> Iterator[Delta]:
    size = reply.chunk_size if request.stream else 0
    chunks = reply.chunks if request.stream else ("".join(reply.chunks),)
    yield from (ReasoningChunk(piece) for piece in _split(reply.reasoning, size))
    yield from (TextChunk(piece) for piece in _split(reply.text, size))
    yield from (TextChunk(piece) for piece in chunks if piece or (request.stream and reply.chunks))
    for index, call in enumerate(reply.tool_calls if request.streams_arguments else ()):
        arguments = to_json_text(call.arguments) if call.unreadable is None else call.unreadable
        yield from (ArgumentsChunk(index, call.name, piece) for piece in _split(arguments, size))


def _split(text: str, size: int) -> Iterator[str]:
    step = size or len(text) or 1
    return (text[position : position + step] for position in range(0, len(text), step))


def _make_parser(api: Api, profile: EndpointProfile) -> StreamParser:
    if api is Api.MESSAGES:
        from dial_client.providers.messages_api import MessagesStreamParser

        return MessagesStreamParser()
    if api is Api.RESPONSES:
        from dial_client.providers.responses_api import ResponsesStreamParser

        return ResponsesStreamParser()
    from dial_client.providers.chat_api import ChatStreamParser

    return ChatStreamParser(profile)


def _is_valid_host(host: str) -> bool:
    try:
        return bool(host) and Endpoint(f"http://{host}").host == host
    except ValueError:
        return False
