"""Valid and invalid behaviour of endpoints for chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.deviations.case import BOTH, DONE, REFUSED, TRUNCATED, A, Case, Ran, same


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def events(*sent: Any, done: bool = True, **more: Any) -> dict[str, Any]:
    return {"wire": "chat", "events": [*sent, *(["[DONE]"] if done else [])], **more}


def message(content: Any = None, finish: Any = "stop", calls: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}
    return {"wire": "chat", "body": {"choices": [{"index": 0, "message": whole, "finish_reason": finish}]}}


def piece(index: Any = ..., id: Any = ..., name: Any = ..., args: Any = ...) -> dict[str, Any]:  # noqa: A002
    """Return a fragment of a call; it has only the given keys."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not ...}
    made = {key: value for key, value in (("index", index), ("id", id)) if value is not ...}
    return {**made, "type": "function", "function": function}


def args(text: str) -> str:
    return json.dumps({"text": text})


_WHOLE = (piece(0, "a", "echo", args("a")), piece(1, "b", "echo", args("b")))


def pieces(*sent: Any, finish: str | None = "tool_calls", whole: Sequence[Any] = _WHOLE, ran: Ran = BOTH) -> Case:
    """Return a reply with calls in fragments, one fragment for each chunk, or all fragments of a list in one chunk."""
    deltas = (chunk({"tool_calls": text if isinstance(text, list) else [text]}) for text in sent)
    return Case([events(*deltas, chunk(finish=finish)), DONE], [message(None, finish, whole), DONE], ran)


def answer(*deltas: Any, whole: Any = None, finish: str | None = "stop", **expected: Any) -> Case:
    """Return a reply without calls that consists of the given deltas."""
    sent = (chunk(delta) if isinstance(delta, dict) else chunk({"content": delta}) for delta in deltas)
    return Case([events(*sent, chunk(finish=finish))], [whole or message("".join(deltas), finish)], **expected)


def _split(text: str) -> tuple[str, str]:
    return text[:5], text[5:]


_A1, _A2 = _split(args("a"))
_B1, _B2 = _split(args("b"))
_TEXT_CALL = '<tool_call>{"name": "echo", "arguments": {"text": "a"}}</tool_call>'
_STREAM = "".join(
    f"data: {json.dumps(data)}\n\n" for data in (chunk({"content": "Caf\u00e9 \U0001f600"}), chunk(finish="stop"))
)
_TOLD = {"error": {"message": "out of memory", "code": "server_error"}}
_ERROR_LINE = 'error: {"message": "out of memory", "type": "InternalServerError", "code": 500}\n\n'


def beside(delta: Any, message: Any, finish: str | None = None) -> dict[str, Any]:
    """Return a choice that has both a delta and a message."""
    return {"choices": [{"index": 0, "finish_reason": finish, "delta": delta, "message": message}]}


def spoken(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


CHAT: dict[str, Case] = {
    "index always 0": pieces(piece(0, "a", "echo", args("a")), piece(0, "b", "echo", args("b"))),
    "no index": pieces(piece(..., "a", "echo", args("a")), piece(..., "b", "echo", args("b"))),
    "index null": pieces(piece(None, "a", "echo", args("a")), piece(None, "b", "echo", args("b"))),
    "index from 1": pieces(piece(1, "a", "echo", args("a")), piece(2, "b", "echo", args("b"))),
    "gaps": pieces(piece(3, "a", "echo", args("a")), piece(7, "b", "echo", args("b"))),
    "reversed": pieces(piece(1, "b", "echo", args("b")), piece(0, "a", "echo", args("a"))),
    "id and name repeated": pieces(
        piece(0, "a", "echo", _A1), piece(0, "a", "echo", _A2), piece(1, "b", "echo", _B1), piece(1, "b", "echo", _B2)
    ),
    "empty id and name": pieces(
        piece(0, "a", "echo", _A1), piece(0, "", "", _A2), piece(1, "b", "echo", _B1), piece(1, None, None, _B2)
    ),
    "all in one chunk": pieces(list(_WHOLE)),
    "interleaved": pieces(
        piece(0, "a", "echo", _A1), piece(1, "b", "echo", _B1), piece(0, ..., ..., _A2), piece(1, ..., ..., _B2)
    ),
    "no ids": pieces(
        piece(0, ..., "echo", args("a")),
        piece(1, ..., "echo", args("b")),
        whole=(piece(0, ..., "echo", args("a")), piece(1, ..., "echo", args("b"))),
    ),
    "empty ids": pieces(
        piece(0, "", "echo", args("a")),
        piece(1, "", "echo", args("b")),
        whole=(piece(0, "", "echo", args("a")), piece(1, "", "echo", args("b"))),
    ),
    "the same id": pieces(
        piece(0, "x", "echo", args("a")),
        piece(1, "x", "echo", args("b")),
        whole=(piece(0, "x", "echo", args("a")), piece(1, "x", "echo", args("b"))),
    ),
    "a late id": pieces(
        piece(0, ..., "echo", _A1), piece(0, "a", ..., _A2), piece(1, ..., "echo", _B1), piece(1, "b", ..., _B2)
    ),
    "arguments as an object": pieces(
        piece(0, "a", "echo", {"text": "a"}),
        piece(1, "b", "echo", {"text": "b"}),
        whole=(piece(0, "a", "echo", {"text": "a"}), piece(1, "b", "echo", {"text": "b"})),
    ),
    "no arguments": pieces(piece(0, "a", "now"), whole=(piece(0, "a", "now"),), ran=(("now", {}),)),
    "empty arguments": pieces(piece(0, "a", "now", ""), whole=(piece(0, "a", "now", ""),), ran=(("now", {}),)),
    "finish stop": pieces(*_WHOLE, finish="stop"),
    "finish end_turn": pieces(*_WHOLE, finish="end_turn"),
    "finish function_call": pieces(*_WHOLE, finish="function_call"),
    "finish in the chunk of the call": Case(
        [events(chunk({"tool_calls": list(_WHOLE)}, "tool_calls")), DONE],
        [message(None, "tool_calls", _WHOLE), DONE],
        BOTH,
    ),
    "no finish but [DONE]": Case(
        [events(chunk({"tool_calls": list(_WHOLE)})), DONE], [message(None, "tool_calls", _WHOLE), DONE], BOTH
    ),
    "no finish and no [DONE]": same(
        events(chunk({"content": "Half", "tool_calls": list(_WHOLE)}), done=False), text="Half", stop=TRUNCATED
    ),
    "finish null in one JSON text (OpenRouter)": same(message(None, None, _WHOLE), DONE, ran=BOTH),
    "finish empty in one JSON text (Snowflake)": same(message("", "", _WHOLE), message(DONE, ""), ran=BOTH),
    "no answer and no finish in one JSON text": same(message(None, None), text="sent no reply", stop=None),
    "a whole message beside an empty delta (Perplexity)": same(
        {"wire": "chat", "body": beside(spoken(""), spoken(DONE), "stop")}
    ),
    "a message that grows beside the deltas (Perplexity)": same(
        events(
            beside(spoken("Do"), spoken("Do")),
            beside(spoken("ne."), spoken(DONE)),
            beside(spoken(""), spoken(DONE), "stop"),
        )
    ),
    "a whole message in the last event only": same(events(beside({}, spoken(DONE), "stop"))),
    "calls of a message beside an empty delta": same(
        {"wire": "chat", "body": beside(spoken(""), spoken("") | {"tool_calls": list(_WHOLE)}, "tool_calls")},
        DONE,
        ran=BOTH,
    ),
    "cut in a call": same(
        events(
            chunk({"content": "Half"}),
            chunk({"tool_calls": [piece(0, "a", "echo", _A1)]}),
            done=False,
            **{"break": True},
        ),
        text="Half",
        stop=TRUNCATED,
    ),
    "cut behind whole calls": same(
        events(chunk({"content": "Half", "tool_calls": list(_WHOLE)}), done=False, **{"break": True}),
        text="Half",
        stop=TRUNCATED,
    ),
    "cut before a word": same(events(done=False, **{"break": "it broke"}), text="it broke", stop=None),
    "length in a call": Case(
        [events(chunk({"content": "Half", "tool_calls": [piece(0, "a", "echo", _A1)]}), chunk(finish="length"))],
        [message("Half", "length", [piece(0, "a", "echo", _A1)])],
        text="Half",
        stop=TRUNCATED,
    ),
    "length": answer("Half", finish="length", text="Half", stop=TRUNCATED),
    "an unknown finish": answer("Half", finish="tired", text="Half", stop=TRUNCATED),
    "content_filter": answer("No", finish="content_filter", text="No", stop=REFUSED),
    "content_filter behind calls": Case(
        [events(chunk({"content": "No", "tool_calls": list(_WHOLE)}), chunk(finish="content_filter"))],
        [message("No", "content_filter", _WHOLE)],
        text="No",
        stop=REFUSED,
    ),
    "a refusal": answer(
        {"refusal": "I will not."}, whole=message(refusal="I will not."), text="I will not.", stop=REFUSED
    ),
    "choices empty or null": Case(
        [
            events(
                {"choices": []},
                {"choices": None},
                chunk({"content": DONE}),
                chunk(finish="stop"),
                {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            )
        ],
        [{"wire": "chat", "body": message(DONE)["body"] | {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}}],
    ),
    "a call printed as text": Case(
        [events(*(chunk({"content": text}) for text in _TEXT_CALL), chunk(finish="stop")), DONE],
        [message(_TEXT_CALL), DONE],
        (A,),
    ),
    "content in parts": answer(
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                {"type": "text", "text": DONE},
            ]
        },
        whole=message(
            [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": DONE}]
        ),
    ),
    "reasoning beside the text": Case(
        [events(chunk({"reasoning_content": "Hm"}), chunk({"content": DONE}), chunk(finish="stop"))],
        [message(DONE, reasoning_content="Hm")],
    ),
    "extra fields of a call": Case(
        [events(chunk({"tool_calls": [_WHOLE[0] | {"extra_content": {"sig": "x"}}]}), chunk(finish="stop")), DONE],
        [message(None, "stop", [_WHOLE[0] | {"extra_content": {"sig": "x"}}]), DONE],
        (A,),
    ),
    "an error with a good status": Case(
        [events(_TOLD)], [{"wire": "chat", "body": _TOLD}], text="out of memory", stop=None
    ),
    "a line of an error (GPUStack)": same({"wire": "chat", "body": _ERROR_LINE}, text="out of memory", stop=None),
    "a line of an error behind calls (GPUStack)": same(
        {"wire": "chat", "body": f"data: {json.dumps(chunk({'tool_calls': list(_WHOLE)}))}\n\n{_ERROR_LINE}"},
        text="out of memory",
        stop=None,
    ),
    "an error behind text": same(events(chunk({"content": "Half"}), _TOLD), text="out of memory", stop=None),
    "JSON in place of a stream": same(message(DONE)),
    "a refusal of HTTP": same({"wire": "chat", "status": 400, "body": _TOLD}, text="answered 400", stop=None),
    "a web page": same({"wire": "chat", "body": "<html><title>Welcome"}, text="a web page", stop=None),
    "nothing at all": same({"wire": "chat", "body": ""}, text="sent no reply", stop=None),
    "split bytes": same({"wire": "chat", "body": _STREAM, "chunk_size": 1}, text="Caf\u00e9 \U0001f600"),
    "comments, CRLF, no space": same(
        {
            "wire": "chat",
            "body": ": hi\r\n" + _STREAM.replace("\n", "\r\n").replace("data: ", "data:"),
            "chunk_size": 3,
        },
        text="Caf\u00e9 \U0001f600",
    ),
    "events that are no JSON": same(events("{no", chunk({"content": DONE}), "", chunk(finish="stop"))),
    "an unknown tool": pieces(piece(0, "a", "ecko", args("a")), whole=(piece(0, "a", "ecko", args("a")),), ran=()),
    "arguments that are no JSON": pieces(
        piece(0, "a", "echo", "{'tex"), whole=(piece(0, "a", "echo", "{'tex"),), ran=()
    ),
}
