"""A scripted model on loopback with OpenAI's Chat Completions API, in a separate process. It responds at once.

The URL determines the responses: ``/ROUNDS/CALLS/CHUNKS/v1``. In each of the first ROUNDS rounds of a conversation, the
model calls CALLS of the offered tools; then it replies with CHUNKS words, in as many chunks if it streams. It has no
state: the round is the number of the assistant's messages in the request. It uses plain asyncio and HTTP/1.1 with
keep-alive, with a write for each chunk, like inference servers.

``/task/SERVERS/TOOLS/ROUNDS/CALLS/CHUNKS/v1`` knows the tools of `server_entries`, and makes the same calls by name,
also if the host offers them with a prefix. If a host offers a search in their place, the model searches for each tool
that is not offered. It answers in words only if all results are right.

``/paced/MS/v1`` sends a chunk every MS milliseconds. Its first reply to a question is a few words and a call of the
first tool with the question as its text; then it replies with as many words as the last number in the question.

``/stamped/CHUNKS/MS/v1`` replies with a document in Markdown, a chunk every MS milliseconds. Each chunk has the time at
which it was sent: 10^15 and the microseconds of the monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from types import TracebackType
from typing import Any, Self

_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "x"}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STAMPED = (
    *("## Chapter {}\n\n", *["{} "] * 30),
    *("\n\n- a **first** item {} ", *["{} "] * 4, "\n- a second one {} ", *["{} "] * 4),
    *("\n\n| begin | end |\n|---|---|\n| {} ", "| {} |\n", "| {} ", "| {} |\n"),
    *("\n```python\nbegin = {}\n", "end = {}  # the end\n", "size = {}\n```\n\n"),
)
"""The chunks of a document, which is repeated. Each chunk has a placeholder for the time."""
_END_EVENTS = 4
"""The reason of the end, the usage, the mark and the last chunk, which no model takes a time for."""
_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def answer_of(chunks: int) -> str:
    """Return the last text of the model."""
    return " ".join(_list_words(chunks))


class Endpoint:
    """Starts and controls the process of the model."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._port = int(self._read_line())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)

    def url(self, rounds: int, calls: int = 1, chunks: int = 20) -> str:
        """Return the ``base_url`` of a script."""
        return f"http://127.0.0.1:{self._port}/{rounds}/{calls}/{chunks}/v1"

    def task_url(self, servers: int, tools: int, rounds: int, calls: int = 1, chunks: int = 20) -> str:
        """Return the ``base_url`` of a task with the tools of `servers` servers, each with `tools` tools."""
        return f"http://127.0.0.1:{self._port}/task/{servers}/{tools}/{rounds}/{calls}/{chunks}/v1"

    def paced_url(self, pace_ms: int) -> str:
        """Return the ``base_url`` of a model that takes `pace_ms` for each chunk, and calls a tool once a question."""
        return f"http://127.0.0.1:{self._port}/paced/{pace_ms}/v1"

    def stamped_url(self, chunks: int, pace_ms: int) -> str:
        """Return the ``base_url`` of a reply whose chunks contain the times at which they are sent."""
        return f"http://127.0.0.1:{self._port}/stamped/{chunks}/{pace_ms}/v1"

    def requests(self) -> int:
        """Return the number of requests that the model has answered."""
        return self.traffic()[0]

    def traffic(self) -> tuple[int, int]:
        """Return the number of requests that the model has answered, and the bytes of their bodies."""
        assert self._process.stdin is not None
        print("count", file=self._process.stdin, flush=True)
        requests, size = self._read_line().split()
        return int(requests), int(size)

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


class _Model(asyncio.Protocol):
    """A connection to the model."""

    answered = 0
    received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (request := self._next_request()) is not None:
            self._respond(*request)

    def _next_request(self) -> tuple[str, bytes] | None:
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(body) < length:
            return None
        self._buffer = body[length:]
        return first.split(" ")[1], body[:length]

    def _respond(self, path: str, body: bytes) -> None:
        _Model.received += len(body)
        match path.strip("/").split("/"):
            case ["stamped", chunks, pace, "v1", "chat", "completions"]:
                _Model.answered += 1
                self._transport.write(_STREAM_HEAD)
                now = asyncio.get_running_loop().time()
                self._write_stamped(0, int(chunks), int(pace) / 1000, now)
            case ["paced", pace, "v1", "chat", "completions"]:
                _Model.answered += 1
                self._transport.write(_STREAM_HEAD)
                events = _build_paced_events(json.loads(body))
                self._write_paced(events, 0, int(pace) / 1000, asyncio.get_running_loop().time())
            case [*task, rounds, calls, chunks, "v1", "chat", "completions"] if not task or task[0] == "task":
                _Model.answered += 1
                request = json.loads(body)
                if task:
                    reply = _build_task_reply(request, _list_tools(*task[1:]), int(rounds), int(calls), int(chunks))
                else:
                    reply = _build_reply(request, int(rounds), int(calls), int(chunks))
                if request.get("stream"):
                    self._write_stream(request, *reply)
                else:
                    self._write_whole(*reply)
            case _:
                self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    def _write_whole(self, words: list[str], calls: list[dict[str, Any]]) -> None:
        message = {"role": "assistant", "content": " ".join(words) or None} | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        body = _to_json(_HEAD | {"object": "chat.completion", "choices": [choice], "usage": _USAGE})
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _write_stream(self, request: dict[str, Any], words: list[str], calls: list[dict[str, Any]]) -> None:
        self._transport.write(_STREAM_HEAD)
        with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        if calls:
            events = _build_call_events(calls, with_usage=with_usage)
        else:
            events = _build_text_events(len(words), with_usage=with_usage)
        for event in events:
            self._transport.write(event)

    def _write_paced(self, events: list[bytes], at: int, pace: float, started_at: float) -> None:
        """Write an event after each pace, and the end of the stream at once; a late event does not delay the next."""
        if self._transport.is_closing():
            return
        if at == len(events) - _END_EVENTS:
            self._transport.write(b"".join(events[at:]))
            return
        due = started_at + (at + 1) * pace
        asyncio.get_running_loop().call_at(due, self._write_next, events, at, pace, started_at)

    def _write_next(self, events: list[bytes], at: int, pace: float, started_at: float) -> None:
        if not self._transport.is_closing():
            self._transport.write(events[at])
        self._write_paced(events, at + 1, pace, started_at)

    def _write_stamped(self, at: int, chunks: int, pace: float, started_at: float) -> None:
        """Write a chunk with the time, and schedule the next chunk; a late chunk does not delay the next ones."""
        if self._transport.is_closing():
            return
        if at == chunks:
            self._transport.write(b"".join(_build_events([], "stop", with_usage=False)))
            return
        text = _STAMPED[at % len(_STAMPED)].format(10**15 + int(time.monotonic() * 1e6))
        [event, *_] = _build_events([{"content": text}], "stop", with_usage=False)
        self._transport.write(event)
        due = started_at + (at + 1) * pace
        asyncio.get_running_loop().call_at(due, self._write_stamped, at + 1, chunks, pace, started_at)


def _build_reply(
    request: dict[str, Any], rounds: int, calls: int, chunks: int
) -> tuple[list[str], list[dict[str, Any]]]:
    round_ = sum(message["role"] == "assistant" for message in request["messages"])
    if round_ >= rounds:
        return list(_list_words(chunks)), []
    offered = [tool["function"]["name"] for tool in request["tools"]]
    return [], [_build_call(round_ * calls + number, offered) for number in range(calls)]


def _build_task_reply(
    request: dict[str, Any], tools: list[str], rounds: int, calls: int, chunks: int
) -> tuple[list[str], list[dict[str, Any]]]:
    results = " ".join(json.dumps(message["content"]) for message in request["messages"] if message["role"] == "tool")
    found = {int(number) for number in re.findall(r"What was found for question (\d+)", results)}
    if len(found) >= rounds * calls:
        return list(_list_words(chunks)), []
    if found != set(range(len(found))) or len(found) % calls:
        return [f"The results are wrong: {sorted(found)}"], []
    offered = {name[name.rindex("server") :]: name for name in _list_offered(request) if "_tool_" in name}
    wanted = [(number, tools[number * 61 % len(tools)]) for number in range(len(found), len(found) + calls)]
    if all(tool in offered for _, tool in wanted):
        return [], [_build_named_call(number, offered[tool]) for number, tool in wanted]
    asked = len([message for message in request["messages"] if message["role"] == "assistant"])
    if "search_tools" not in _list_offered(request) or asked > 3 * rounds:
        return ["The tools are not offered."], []
    return [], [_build_search(f"{asked}_{number}", tool) for number, tool in wanted if tool not in offered]


def _list_offered(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools") or ()]


@cache
def _list_tools(servers: str, tools: str) -> list[str]:
    return [f"server{server}_tool_{number:03}" for server in range(int(servers)) for number in range(int(tools))]


def _build_search(call: str, tool: str) -> dict[str, Any]:
    function = {"name": "search_tools", "arguments": json.dumps({"query": tool})}
    return {"id": f"call_search_{call}", "type": "function", "function": function}


def _build_paced_events(request: dict[str, Any]) -> list[bytes]:
    messages = request["messages"]
    asked = max(at for at, message in enumerate(messages) if message["role"] == "user")
    question = messages[asked]["content"]
    if any(message["role"] == "assistant" for message in messages[asked:]):
        return _build_text_events(int(re.findall(r"\d+", question)[-1]), with_usage=True)
    arguments = json.dumps({"text": question})
    function = {"name": request["tools"][0]["function"]["name"], "arguments": ""}
    deltas: list[dict[str, Any]] = [{"content": word} for word in ("Let", " me", " look.")]
    deltas.append({"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": function}]})
    deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]})
    return _build_events(deltas, "tool_calls", with_usage=True)


def _build_call(number: int, offered: list[str]) -> dict[str, Any]:
    # A step of 61 visits every server of the case with many tools.
    return _build_named_call(number, offered[number * 61 % len(offered)])


def _build_named_call(number: int, name: str) -> dict[str, Any]:
    arguments = json.dumps({"text": f"What was found for question {number}.", "count": 3})
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _build_call_events(calls: list[dict[str, Any]], *, with_usage: bool) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for index, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": index, **call, "function": {"name": name, "arguments": ""}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
    return _build_events(deltas, "tool_calls", with_usage=with_usage)


@cache
def _build_text_events(chunks: int, *, with_usage: bool) -> list[bytes]:
    words = [{"content": f" {word}" if at else word} for at, word in enumerate(_list_words(chunks))]
    return _build_events([{"role": "assistant", "content": ""}, *words], "stop", with_usage=with_usage)


def _build_events(deltas: list[dict[str, Any]], finish: str, *, with_usage: bool) -> list[bytes]:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    head = _HEAD | {"object": "chat.completion.chunk"}
    data = [_to_json(head | {"choices": [choice]}) for choice in choices]
    data += [_to_json(head | {"choices": [], "usage": _USAGE})] if with_usage else []
    events = [b"data: " + line + b"\n\n" for line in (*data, b"[DONE]")]
    return [*(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"]


def _list_words(chunks: int) -> Iterator[str]:
    return (f"word{number % 100:02}" for number in range(chunks))


def _to_json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def listen_to_the_parent() -> None:
        for _ in sys.stdin:
            print(_Model.answered, _Model.received, flush=True)
        loop.call_soon_threadsafe(ended.set)

    server = await loop.create_server(_Model, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    threading.Thread(target=listen_to_the_parent, daemon=True).start()
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
