"""What goes wrong before a server is ready, and when it has to leave."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from tests.support.servers.hostile import ANY, MOVES, Hostile, Move, at, deep, die, live_on, raw_result, say, write

# As it starts


@at("start")
def silent(server: Hostile) -> None:
    say("still thinking")
    live_on()


@at("start")
def slow(server: Hostile) -> None:
    time.sleep(0.2)


@at("start")
def exits_at_once(server: Hostile) -> None:
    say("the database is missing")
    sys.exit(3)


@at("start")
def echoes(server: Hostile) -> None:
    for line in sys.stdin.buffer:
        write(line)


@at("start")
def closes_its_output_at_once(server: Hostile) -> None:
    os.close(1)
    live_on()


@at("start")
def floods_before_the_handshake(server: Hostile) -> None:
    write(server.notification("notifications/message", {"level": "info", "data": "x"}) * 2_000)


MOVES["dies_in_the_handshake"] = Move("greet", die)


@at("greet")
def refuses(server: Hostile) -> None:
    server.send({"id": server.id, "error": {"code": -32603, "message": "go away"}})


@at("greet")
def speaks_an_unknown_version(server: Hostile) -> Any:
    versions = {"supportedVersions": ["1999-01-01"], "protocolVersion": "1999-01-01"}
    return versions | {"capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}


@at("greet")
def greets_with_nonsense(server: Hostile) -> Any:
    return {"protocolVersion": 5, "supportedVersions": {}, "capabilities": "all"}


# When it is asked for its tools

MOVES["dies_in_the_list"] = Move("list", die)


@at("list")
def never_lists(server: Hostile) -> None:
    say("counting my tools")


@at("list")
def lists_nonsense(server: Hostile) -> Any:
    return {"tools": "none"}


@at("list")
def lists_the_same_page_for_ever(server: Hostile) -> Any:
    return {"tools": [server.tool], "nextCursor": "again"}


@at("list")
def lists_new_pages_for_ever(server: Hostile) -> Any:
    page = int(server.params.get("cursor", "0"))
    return {"tools": [server.tool, server.tool | {"name": f"tool{page}"}], "nextCursor": str(page + 1)}


@at("list")
def gives_an_empty_cursor(server: Hostile) -> Any:
    return {"tools": [server.tool], "nextCursor": ""}


@at("list")
def gives_a_cursor_that_is_none(server: Hostile) -> Any:
    return {"tools": [server.tool], "nextCursor": {"page": 2}}


@at("list")
def lists_far_too_many(server: Hostile) -> Any:
    return {"tools": [server.tool, *(server.tool | {"name": f"tool{number}"} for number in range(1_200))]}


@at("list")
def lists_single_bad_tools(server: Hostile) -> Any:
    bad = [{"name": "no_schema"}, {"name": "text", "inputSchema": "x"}, 7, None, {"inputSchema": ANY}, {"name": 5}]
    return {"tools": [*bad, server.tool]}


@at("list")
def lists_a_deep_schema(server: Hostile) -> None:
    tools = [json.dumps(server.tool)]
    tools += [
        f'{{"name":"deep{levels}","inputSchema":{{"type":"object","properties":{deep(levels)}}}}}'
        for levels in (60, 180)
    ]
    raw_result(server, f'"ttlMs":0,"cacheScope":"private","tools":[{",".join(tools)}]')


@at("list")
def lists_a_schema_beyond_all_depth(server: Hostile) -> None:
    bad = f'{{"name":"deep","inputSchema":{{"type":"object","properties":{deep(5_000)}}}}}'
    raw_result(server, f'"ttlMs":0,"cacheScope":"private","tools":[{json.dumps(server.tool)},{bad}]')


# When it has to leave


@at("start")
def will_not_leave(server: Hostile) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.ended = live_on  # type: ignore[method-assign]
