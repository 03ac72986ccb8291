"""A model's endpoint on loopback: three wires, streamed and not, and everything that can go wrong there.

    with model_endpoint([Say("Hello"), refuse(429)]) as endpoint:
        ...  # a host with the base URL f"{endpoint.url}/v1"
        endpoint.requests[0].json["messages"]

It runs in threads of its own, so its user may be of any kind: plain, asyncio, trio, or one that starts processes.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

CHAT_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "x"}
"""What each response and each chunk of chat completions has; some clients refuse a response without it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call the model asks for."""

    name: str
    arguments: Any = field(default_factory=dict)
    id: str = "call_1"

    @property
    def text(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Say:
    """A reply, written in whatever wire the request was, streamed if the request wants it."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    finish: str | None = None
    """In the wire's own words; None for what follows from the calls."""
    usage: tuple[int, int] = (11, 7)
    """Tokens read and written."""
    pieces: int = 3
    """How many pieces the text of a stream comes in."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer, byte by byte."""

    chunks: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    cut: bool = False
    """The connection breaks behind the chunks."""
    hang: bool = False
    """Nothing comes behind the chunks until the client goes away."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What goes over the connection, its head too; then the connection is closed."""

    data: bytes = b""
    reset: bool = False
    """True to reset the connection instead of closing it; after data, only once `ModelEndpoint.heard` is set."""


def events(*payloads: Any, done: bool = True, **options: Any) -> Raw:
    """Return a stream of these events; strings go as they are."""
    chunks = [b"data: %s\n\n" % (part if isinstance(part, str) else json.dumps(part)).encode() for part in payloads]
    return Raw((*chunks, b"data: [DONE]\n\n") if done else tuple(chunks), **options)


def one_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Raw:
    """Return an answer of one JSON text."""
    kind = {"content-type": "application/json"}
    return Raw((json.dumps(value).encode(),), status, {**kind, **(headers or {})})


def refuse(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **error: Any) -> Raw:
    """Return a refusal as OpenAI and Anthropic word it."""
    return one_json({"error": {"message": message, "type": "an_error", **error}}, status, headers)


Answer = Say | Raw | Bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request, as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    head: bytes
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class ModelEndpoint:
    """What a test sees of the endpoint."""

    def __init__(self, answers: Sequence[Answer], described: Raw | Bytes | None) -> None:
        self.requests: list[Recorded] = []
        self.lookups: list[Recorded] = []
        """Requests of the method GET, apart from the others."""
        self.disconnected = threading.Event()
        """The client went away from an answer that hangs."""
        self.asked = threading.Event()
        """A request has come."""
        self.heard = threading.Event()
        """Set by the test when it has received the data."""
        self.connections = 0  # that have been opened
        self.url = ""
        self.answer_to: Callable[[Recorded], Answer] | None = None  # chooses the answer in place of their order
        self.answers_lookups = False  # whether `answer_to` chooses the answers to GET requests too
        self._answers = list(answers)
        self._described = described or refuse(404, "there is no such resource")
        self._lock = threading.Lock()

    def next_answer(self, request: Recorded) -> Answer:
        """Return the next answer; the last one again and again."""
        if request.method == "GET":
            self.lookups.append(request)
            return self.answer_to(request) if self.answer_to and self.answers_lookups else self._described
        with self._lock:
            self.requests.append(request)
            self.asked.set()
            following = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            return self.answer_to(request) if self.answer_to else following


@contextmanager
def model_endpoint(answers: Sequence[Answer], described: Raw | Bytes | None = None) -> Iterator[ModelEndpoint]:
    """Serve these answers, one for each request, the last one for all that follow; `described` for every GET."""
    endpoint = ModelEndpoint(answers, described)
    open_sockets: set[socket.socket] = set()

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            endpoint.connections += 1
            open_sockets.add(self.request)
            with suppress(OSError):
                while (request := _read(self.rfile)) is not None:
                    answer = endpoint.next_answer(request)
                    if isinstance(answer, Bytes):
                        _send_bytes(self.request, answer, endpoint)
                        break
                    raw = write_reply(answer, request) if isinstance(answer, Say) else answer
                    if not _send(self.request, raw, endpoint):
                        break
            open_sockets.discard(self.request)

    class Server(socketserver.ThreadingTCPServer):
        # A connection that does not fit in the queue is tried again after seconds.
        request_queue_size = 256

    with Server(("127.0.0.1", 0), Handler, bind_and_activate=True) as server:
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()
            for opened in tuple(open_sockets):
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)


def _read(stream: Any) -> Recorded | None:
    lines = []
    while (line := stream.readline()) not in (b"\r\n", b""):
        lines.append(line)
    if not lines:
        return None
    method, path, _ = lines[0].decode("latin-1").split(" ", 2)
    pairs = (line.decode("latin-1").partition(":") for line in lines[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Recorded(method, path, headers, b"".join(lines), stream.read(int(headers.get("content-length", 0))))


def _send_bytes(client: socket.socket, answer: Bytes, endpoint: ModelEndpoint) -> None:
    client.sendall(answer.data)
    if answer.reset:
        if answer.data:
            endpoint.heard.wait(10)
        linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.close()


def _send(client: socket.socket, raw: Raw, endpoint: ModelEndpoint) -> bool:
    """Send an answer, and return True if the connection can be used again."""
    head = [f"HTTP/1.1 {raw.status} X", *(f"{name}: {value}" for name, value in raw.headers.items())]
    client.sendall("\r\n".join([*head, "transfer-encoding: chunked", "", ""]).encode("latin-1"))
    for chunk in raw.chunks:
        if chunk:
            client.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    if raw.hang:
        with suppress(OSError):
            while client.recv(4096):
                pass
        endpoint.disconnected.set()
        return False
    if raw.cut:
        return False
    client.sendall(b"0\r\n\r\n")
    return True


def write_reply(say: Say, request: Recorded) -> Raw:
    """Return a reply in the wire of a request."""
    stream = bool(request.json.get("stream"))
    write = {"messages": write_messages, "responses": write_responses}.get(
        request.path.split("?")[0].rsplit("/", 1)[-1], write_chat
    )
    return write(say, stream=stream)


def _split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]


def write_chat(say: Say, *, stream: bool) -> Raw:
    """Return a reply of chat completions."""
    calls: list[dict[str, Any]] = [
        {"index": at, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
        for at, call in enumerate(say.calls)
    ]
    finish = say.finish or ("tool_calls" if calls else "stop")
    usage = {"prompt_tokens": say.usage[0], "completion_tokens": say.usage[1], "total_tokens": sum(say.usage)}
    if not stream:
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
        if say.reasoning:
            message["reasoning_content"] = say.reasoning
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return one_json({**CHAT_HEAD, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[Any] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _split(say.reasoning, say.pieces)]
    deltas += [{"content": piece} for piece in _split(say.text, say.pieces)]
    for call in calls:
        function = call["function"]
        begin, *rest = _split(say.calls[call["index"]].text, say.pieces) or [""]
        deltas.append({"tool_calls": [call | {"function": function | {"arguments": begin}}]})
        deltas += [{"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]} for piece in rest]
    head = {**CHAT_HEAD, "object": "chat.completion.chunk"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return events(*chunks, last, {**head, "choices": [], "usage": usage})


def write_responses(say: Say, *, stream: bool) -> Raw:
    """Return a reply of the Responses API."""
    items: list[dict[str, Any]] = []
    if say.reasoning:
        summary = [{"type": "summary_text", "text": say.reasoning}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2VjcmV0"})
    if say.text:
        content = [{"type": "output_text", "text": say.text, "annotations": []}]
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content})
    items.extend(
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.text,
            "status": "completed",
        }
        for call in say.calls
    )
    incomplete: Any = {"reason": say.finish} if say.finish else None
    status = "incomplete" if incomplete else "completed"
    usage = {"input_tokens": say.usage[0], "output_tokens": say.usage[1]}
    response: dict[str, Any] = {"object": "response", "status": status, "incomplete_details": incomplete, "error": None}
    whole = response | {"output": items, "usage": usage}
    if not stream:
        return one_json(whole)
    body: list[Any] = [{"type": "response.created", "response": response | {"status": "in_progress"}}]
    for at, item in enumerate(items):
        body.append({"type": "response.output_item.added", "output_index": at, "item": item | {"content": []}})
        if item["type"] == "reasoning":
            kind, text = "response.reasoning_summary_text.delta", say.reasoning
        elif item["type"] == "message":
            kind, text = "response.output_text.delta", say.text
        else:
            kind, text = "response.function_call_arguments.delta", str(item["arguments"])
        body += [{"type": kind, "output_index": at, "delta": piece} for piece in _split(text, say.pieces)]
        body.append({"type": "response.output_item.done", "output_index": at, "item": item})
    return events(*body, {"type": f"response.{status}", "response": whole}, done=False)


def write_messages(say: Say, *, stream: bool) -> Raw:
    """Return a reply of the Messages API."""
    blocks: list[dict[str, Any]] = []
    if say.reasoning:
        blocks.append({"type": "thinking", "thinking": say.reasoning, "signature": "c2lnbmF0dXJl"})
    if say.text:
        blocks.append({"type": "text", "text": say.text})
    blocks.extend({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in say.calls)
    finish = say.finish or ("tool_use" if say.calls else "end_turn")
    usage = {"input_tokens": say.usage[0], "output_tokens": say.usage[1]}
    message: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": finish,
        "usage": usage,
    }
    if not stream:
        return one_json(message)
    begin = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    body: list[Any] = [{"type": "message_start", "message": begin}, {"type": "ping"}]
    for at, block in enumerate(blocks):
        start, deltas = _block_events(block, say)
        body.append({"type": "content_block_start", "index": at, "content_block": start})
        body += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        body.append({"type": "content_block_stop", "index": at})
    body.append({"type": "message_delta", "delta": {"stop_reason": finish}, "usage": {"output_tokens": say.usage[1]}})
    return events(*body, {"type": "message_stop"}, done=False)


def _block_events(block: dict[str, Any], say: Say) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in _split(say.text, say.pieces)]
    if block["type"] == "thinking":
        deltas: list[dict[str, Any]]
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _split(say.reasoning, say.pieces)]
        return block | {"thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
    return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in _split(text, say.pieces)]
