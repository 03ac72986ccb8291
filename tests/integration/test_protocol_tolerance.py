"""Tolerance for messages of servers: rate limits, repair of responses, bounds, and the last lines of their output."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, methods

from tests.inner import (
    BURST,
    MAX_BLOCKS,
    MAX_LINES,
    Notifications,
    RateLimiter,
    ResponseRepairer,
    StderrTail,
    ToolWatch,
    find_response,
    parse_messages,
    repair_content,
    response_repair,
)
from tests.support.fakes import virtual_time

PROGRESS = "notifications/progress"


def notification(method: str, **params: Any) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=method, params=params)


def test_a_flood_of_one_notification_is_dropped_with_one_note() -> None:
    notes: list[str] = []
    limiter = RateLimiter(notes.append)
    passed = [limiter.allows(notification(PROGRESS, progressToken=1, progress=n)) for n in range(100 * BURST)]
    assert all(passed[:BURST])
    assert passed.count(True) < 2 * BURST
    assert set(notes) == {"it sends a flood of progress; some of them are dropped"}
    assert limiter.allows(notification("notifications/tools/list_changed"))
    assert limiter.allows(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"))


def test_responses_are_never_dropped() -> None:
    limiter = RateLimiter(lambda _: None)
    assert all(limiter.allows(JSONRPCResponse(jsonrpc="2.0", id=n, result={})) for n in range(10 * BURST))


def test_unknown_methods_share_one_rate_limit() -> None:
    limiter = RateLimiter(lambda _: None)
    passed = [limiter.allows(notification(f"no/{number}")) for number in range(10 * BURST)]
    assert passed.count(True) < 2 * BURST


@pytest.mark.parametrize("about", [{"progress": 10**400}, {"progress": 1, "total": -(10**400)}])
def test_progress_that_the_sdk_cannot_process_is_dropped(about: dict[str, Any]) -> None:
    assert not RateLimiter(lambda _: None).allows(notification(PROGRESS, progressToken=1, **about))


@pytest.mark.parametrize(
    ("line", "number", "problem"),
    [
        (b'{"jsonrpc": "2.0", "id": 7, "result": {"a": ' + b'{"a":' * 100_000, 7, "nested too deeply"),
        (b'{"id":8,"result":{"n":1' + b"0" * 100_000 + b"}}", 8, "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":9,"error":{"code":1', 9, "not valid JSON"),
        (b'{"id":1,"result":{"a":' + b'{"a":' * 900 + b"1" + b"}" * 902, 1, "nested too deeply (more than 200 levels)"),
        (b'{"id":1,"result":{"a":' + b'{"a":' * 300 + b"1" + b"}" * 302, 1, "nested too deeply (more than 200 levels)"),
    ],
)
def test_an_unreadable_response_fails_its_request_at_once(line: bytes, number: int, problem: str) -> None:
    (message,) = parse_messages(line)
    assert isinstance(message.message, JSONRPCError)
    assert message.message.id == number
    assert message.message.error.message.startswith(f"the answer is {problem}")


@pytest.mark.parametrize(
    "line",
    [
        b"[" + b"{}," * response_repair.MAX_BATCH + b"{}]",
        b'{"id": 1, "method": "x"',
        b'{"result": {"id": 1}, "x": [',
        b'{"id": 1, "other": ',
    ],
)
def test_an_unreadable_line_without_a_response_id_fails_no_request(line: bytes) -> None:
    assert parse_messages(line) == []


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ({"id": 5, "result": {"a": 1}}, {"a": 1}),
        ({"id": 99, "result": {"a": 2}}, {"a": 2}),
        ([{"id": 4, "result": {}}, {"id": 5, "result": {"a": 3}}], {"a": 3}),
        ({"id": None, "result": {"a": 4}}, None),
        ("nothing", None),
    ],
)
def test_over_http_a_response_with_a_wrong_id_is_accepted(body: Any, result: Any) -> None:
    answer = json.loads(find_response(json.dumps(body).encode(), 5))
    assert answer["id"] == 5
    assert answer.get("result") == result
    assert ("error" in answer) is (result is None)


def test_a_valid_response_is_unchanged() -> None:
    body = b'{"jsonrpc":"2.0","id":5,"result":{"content":[]}}\n'
    assert find_response(body, 5) is body


def test_a_result_of_too_many_blocks_is_truncated_with_a_note() -> None:
    result: dict[str, Any] = {"content": [{"type": "text", "text": "x"}] * (MAX_BLOCKS + 3)}
    repair_content(result, "2026-07-28")
    assert len(result["content"]) == MAX_BLOCKS + 1
    assert result["content"][-1]["text"] == "[3 more blocks were left out]"


@pytest.mark.parametrize(
    ("method", "result", "last"),
    [
        (
            "resources/read",
            {"contents": [{"uri": "book://1", "blob": ""}] * (MAX_BLOCKS + 3)},
            {"uri": "book://1", "text": "[3 more contents were left out]"},
        ),
        (
            "resources/read",
            {"contents": [None] * (MAX_BLOCKS + 3)},
            {"uri": "", "text": "[3 more contents were left out]"},
        ),
        (
            "prompts/get",
            {"messages": [{"role": "user", "content": {"type": "text", "text": ""}}] * (MAX_BLOCKS + 3)},
            {"role": "user", "content": {"type": "text", "text": "[3 more messages were left out]"}},
        ),
    ],
)
def test_a_resource_or_prompt_of_too_many_parts_is_truncated_with_a_note(
    method: str, result: dict[str, Any], last: dict[str, Any]
) -> None:
    mender = ResponseRepairer(lambda _: None)
    mender.record_sent(JSONRPCRequest(jsonrpc="2.0", id=1, method=method))
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result=result)
    mender.repair(answer)
    (items,) = (value for name, value in answer.result.items() if name in ("contents", "messages"))
    assert len(items) == MAX_BLOCKS + 1
    assert items[-1] == last


def test_only_the_last_lines_of_standard_error_are_kept() -> None:
    tail = StderrTail()
    tail.feed(b"begun")
    tail.feed(b"".join(b"%d\n" % number for number in range(10_000)) + b"un")
    tail.feed(b"finished")
    assert tail.lines == (*(str(number) for number in range(10_001 - MAX_LINES, 10_000)), "unfinished")


@virtual_time
@pytest.mark.anyio
async def test_an_announced_change_without_a_new_list_delays_one_round_only() -> None:
    watch = ToolWatch(lambda _: None, Notifications("it"))
    watch.mark_changed()
    began = anyio.current_time()
    for _ in range(3):
        await watch.wait_until_read(2.0)
        assert anyio.current_time() - began == pytest.approx(2.0)


NODE = """node:internal/process/promises:394
      triggerUncaughtException(err, true /* fromPromise */);
      ^

Error: getaddrinfo ENOTFOUND mcp.test
    at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {
  errno: -3008,
  code: 'ENOTFOUND',
  [cause]: undefined,
  hostname: 'mcp.test'
}

Node.js v20.20.2
"""
NODE_ON_ONE_LINE = "TypeError [ERR_INVALID_URL]: Invalid URL {\n  code: 'ERR_INVALID_URL',\n  input: 'x'\n}\n"
PYTHON = "Traceback (most recent call last):\n  File x\nValueError: the key is missing\n"


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        (NODE, "Error: getaddrinfo ENOTFOUND mcp.test"),
        (NODE_ON_ONE_LINE, "TypeError [ERR_INVALID_URL]: Invalid URL"),
        (PYTHON, "ValueError: the key is missing"),
        ("Missing API key\n}\nNode.js v22.1.0\n", "Missing API key"),
        ("error: port 80 is taken\n", "error: port 80 is taken"),
        ("}\n", "}"),
        ("", ""),
    ],
)
def test_the_last_error_message_of_a_program_is_found(text: str, telling: str) -> None:
    tail = StderrTail()
    tail.feed(text.encode())
    assert tail.last == telling


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize(
    ("sent", "flag"), [(None, False), (True, True), (False, False), ("true", True), ("False", False), ("no", "no")]
)
def test_a_result_that_ran_is_no_error_if_its_flag_is_null(version: str, sent: Any, flag: Any) -> None:
    result: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}], "isError": sent}
    repair_content(result, version)

    assert result["isError"] == flag
    if flag != "no":
        methods.validate_server_result("tools/call", version, result)
