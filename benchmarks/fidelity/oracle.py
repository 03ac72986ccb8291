"""A model on loopback with OpenAI's Chat Completions API that knows the solution of a turn, for any host.

It does what the host's way needs and no more. If a request does not have the definition of a tool, the model searches
in the user's words, once a turn, and then calls by the exact name; where an unknown name cannot be called, it searches
for the name. So nothing is searched for that an earlier turn has found, as long as the host sends it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from benchmarks.fidelity.tasks import Call, TaskTurn

ANSWER = "It is done."
_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}

Search = Callable[[int, str, Sequence[str]], tuple[str, dict[str, Any]] | None]
"""The next call that finds out about tools, or None if there is none: how many were made for them, the user's words,
the names of the tools."""


def _search_once(tried: int, words: str, _names: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    return None if tried else ("search_tools", {"query": words})


def _search_until_found(tried: int, words: str, names: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    if tried > 1 + len(names):
        return None
    queries = [[words], list(names)][tried] if tried < 2 else [names[0]]
    return "search_tools", {"queries": queries}


def _search_with_parameters(tried: int, words: str, _names: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    return None if tried else ("search", {"query": words, "detail": "detailed", "limit": 10})


def _search_and_get_schemas(tried: int, words: str, names: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    if tried == 0:
        return "search", {"query": words}
    return ("get_schema", {"tools": list(names)}) if tried == 1 else None


@dataclass(frozen=True, slots=True)
class Way:
    """How a host offers tools."""

    host: str
    title: str
    code: bool
    search: bool
    find: Search = _search_once


WAYS = (
    Way("dial_client", "all tools", code=False, search=False),
    Way("pydantic_ai", "all tools", code=False, search=False),
    Way("dial_client", "search", code=False, search=True),
    Way("pydantic_ai", "search", code=False, search=True, find=_search_until_found),
    Way("dial_client", "code", code=True, search=False),
    Way("pydantic_ai", "code", code=True, search=False),
    Way("dial_client", "code, search", code=True, search=True),
    Way("pydantic_ai", "code, search", code=True, search=True, find=_search_until_found),
    Way("fastmcp", "code, search", code=True, search=True, find=_search_with_parameters),
    Way("fastmcp", "code, search by its defaults", code=True, search=True, find=_search_and_get_schemas),
)


@dataclass(slots=True)
class Oracle:
    """What the model knows, and what it was sent.

    Args:
        way: How the host offers tools.
        names: The host's name of each tool, by server and tool.
    """

    way: Way
    names: Mapping[tuple[str, str], str]
    turn: TaskTurn = field(default_factory=lambda: TaskTurn("", ()))
    done: int = 0
    """The calls of the turn that were made."""
    tried: int = 0
    """The searches of the turn for tools that are still unknown."""
    called: bool = False
    """True if the last reply was one of the turn's calls, so that the next request brings its result."""
    results: list[str] = field(default_factory=list)
    """What came back from the turn's calls, as the model was sent it: for programs one text for all."""
    parts: Counter[str] = field(default_factory=Counter)
    """Each message and each definition of a tool, and how often it was sent."""
    sent_bytes: int = 0
    requests: int = 0

    def begin(self, turn: TaskTurn) -> None:
        """Prepare for the requests of a turn."""
        self.turn, self.done, self.tried, self.called, self.results = turn, 0, 0, False, []

    def receive(self, body: bytes) -> dict[str, Any]:
        """Count a request, and return the reply as a message."""
        request = json.loads(body)
        tools = request.get("tools") or []
        self.parts.update(json.dumps(part, ensure_ascii=False) for part in (*request["messages"], *tools))
        self.sent_bytes += len(body)
        self.requests += 1
        if self.called:
            self.results.append(_text_of(request["messages"][-1]))
        calls = self.turn.calls[self.done :]
        self.called = False
        if not calls:
            return {"role": "assistant", "content": ANSWER}
        name, arguments = self._next_call(calls if self.way.code else calls[:1], request["messages"], tools)
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        call = {"id": f"call_{self.requests}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def _next_call(
        self, calls: Sequence[Call], messages: Sequence[Any], tools: Sequence[Any]
    ) -> tuple[str, dict[str, Any]]:
        functions = [tool["function"] for tool in tools]
        names = [self.names[call.server, call.tool] for call in calls]
        if self.way.code:
            descriptions = [function["description"] for function in functions]
            known = "\n".join([*descriptions, *map(_text_of, messages)])
            unknown = [name for name in names if not _is_defined(name, known)]
        else:
            unknown = [name for name in names if name not in {function["name"] for function in functions}]
        search = self.way.find(self.tried, self.turn.text, list(dict.fromkeys(unknown))) if unknown else None
        if search is not None and search[0] in {function["name"] for function in functions}:
            self.tried += 1
            return search
        self.done, self.called = self.done + len(calls), True
        # The user's words are not searched for again in this turn.
        self.tried = min(self.tried, 1)
        if not self.way.code:
            return names[0], calls[0].arguments
        return self._write_program(names, calls)

    def _write_program(self, names: Sequence[str], calls: Sequence[Call]) -> tuple[str, dict[str, Any]]:
        # Some solutions have calls that fail, and go on: a failed call raises in a program.
        lines = ["results = []"]
        for name, call in zip(names, calls, strict=True):
            keywords = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
            made = f"call_tool({name!r}, {call.arguments!r})" if self.way.host == "fastmcp" else f"{name}({keywords})"
            lines.append(f"try:\n    results.append(await {made})\nexcept Exception as error:")
            lines.append("    results.append(str(error))")
        if self.way.host == "fastmcp":
            return "execute", {"code": "\n".join([*lines, "return results"])}
        return "run_code", {"code": "\n".join([*lines, "results"])}

    def find_fault(self, expected: Sequence[str]) -> str:
        """Return the first difference between what the model was sent and what the calls return without a host."""
        try:
            results = json.loads("".join(self.results) or "[]") if self.way.code else self.results
        except ValueError:
            results = self.results
        results = results["result"] if isinstance(results, dict) and "result" in results else results
        for call, result, should_be in zip(self.turn.calls, results, expected, strict=False):
            # A host may say more about a failure than its text.
            if _parse(result) != _parse(should_be) and should_be not in str(result):
                return f"{call.server}.{call.tool}({call.arguments}): {str(result)[:200]!r}, not {should_be[:200]!r}"
        return "" if len(results) == len(expected) else f"{len(results)} results, not {len(expected)}: {results!r:.400}"


class OracleServer:
    """Serves the replies of an oracle over HTTP."""

    oracle: Oracle

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                message = server.oracle.receive(body)
                kind, content = _write(message, streamed=bool(json.loads(body).get("stream")))
                head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
                self.wfile.write(head.encode() + content)

            def log_message(self, *_: object) -> None:
                """Write no log."""

        return Handler


def _write(message: dict[str, Any], *, streamed: bool) -> tuple[str, bytes]:
    """Return the content type and the body of a reply."""
    head = {"id": "chatcmpl-1", "created": 1, "model": "x"}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    if not streamed:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        completion = {**head, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
        return "application/json", json.dumps(completion).encode()
    calls = [{"index": 0, **call} for call in message.get("tool_calls", ())]
    delta = {**message, "tool_calls": calls} if calls else message
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": _USAGE},
    ]
    lines = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _is_defined(name: str, text: str) -> bool:
    """Return True if a text has the signature of a function, or FastMCP's description of its parameters."""
    return f"def {name}(" in text or f"### {name}\n" in text


def _parse(result: Any) -> Any:
    """Return a result as data: hosts give JSON to programs as values, and write it in their own way."""
    try:
        return json.loads(result) if isinstance(result, str) else result
    except ValueError:
        return result
