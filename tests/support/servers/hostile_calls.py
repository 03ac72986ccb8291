"""What goes wrong in a call, and behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.support.servers.hostile import MOVES, Hostile, Move, at, deep, die, line_of, live_on, raw_result, text, write

MANY = 2_000
"""Messages of a flood: four times the burst that passes."""
MB = 1_000_000
BLOCK = b"x" * MB

MOVES["dies_in_the_call"] = Move("call", die)


@at("call")
def dies_behind_the_answer(server: Hostile) -> None:
    server.answer(text("done"))
    die(server)


@at("call")
def never_answers(server: Hostile) -> None:
    pass


@at("call")
def answers_under_another_id(server: Hostile) -> None:
    server.send({"id": 987_654, "result": text("done")})


@at("call")
def answers_under_no_id(server: Hostile) -> None:
    server.send({"id": None, "error": {"code": -32603, "message": "no"}})


@at("call")
def answers_under_its_id_as_text(server: Hostile) -> None:
    server.id = str(server.id)
    server.answer(text("done"))


@at("call")
def answers_many_times(server: Hostile) -> None:
    write(server.result_line(text("done")) * 1_000)


@at("call")
def answers_what_nobody_asked(server: Hostile) -> Any:
    write(line_of({"id": 987_654, "result": {}}) * MANY)
    return text("done")


@at("call")
def answers_with_a_list(server: Hostile) -> None:
    server.send({"id": server.id, "result": [1, 2]})


@at("call")
def answers_with_neither_result_nor_error(server: Hostile) -> None:
    server.send({"id": server.id})


@at("call")
def answers_in_a_batch(server: Hostile) -> None:
    write(b"[" + server.result_line(text("done")).strip() + b", 7]\n")


@at("call")
def answers_over_many_lines(server: Hostile) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": server.id, "result": text("done")}, indent=2).encode() + b"\n")


@at("call")
def writes_words_between(server: Hostile) -> Any:
    write(b"[INFO] {not json\n" * 100 + b"y\n" * 100_000)
    return text("done")


@at("call")
def writes_words_without_an_end(server: Hostile) -> None:
    write(b"Loading... " + BLOCK * 5 + server.result_line(text("done")))


@at("call")
def writes_what_is_no_text(server: Hostile) -> None:
    write(server.result_line(text("d?ne")).replace(b"d?ne", b"d\xffne \\ud800"))


@at("call")
def writes_a_line_beyond_the_limit(server: Hostile) -> None:
    for _ in range(70):
        write(BLOCK)
    write(b"\n")


@at("call")
def writes_long_lines(server: Hostile) -> Any:
    note = server.notification("notifications/message", {"level": "info", "data": "?"})
    for _ in range(40):
        write(note.replace(b"?", BLOCK))
    return text("done")


@at("call")
def writes_a_batch_of_millions(server: Hostile) -> Any:
    write(b"[" + b"1," * (10 * MB) + b"1]\n")
    return text("done")


@at("call")
def floods_with_progress(server: Hostile) -> Any:
    write(server.progress(message="on") * MANY)
    return text("done")


@at("call")
def floods_with_logs(server: Hostile) -> Any:
    write(server.notification("notifications/message", {"level": "info", "data": "x"}) * MANY)
    return text("done")


@at("call")
def floods_with_changes(server: Hostile) -> Any:
    write(server.notification("notifications/tools/list_changed") * MANY)
    return text("done")


@at("call")
def floods_with_pings(server: Hostile) -> Any:
    """Ask, and read no answer until all is asked."""
    write(b"".join(line_of({"id": f"p{number}", "method": "ping"}) for number in range(MANY)))
    return text("done")


@at("call")
def floods_with_requests_nobody_knows(server: Hostile) -> Any:
    write(b"".join(line_of({"id": f"r{number}", "method": "no/such", "params": {}}) for number in range(MANY)))
    return text("done")


@at("call")
def asks_for_what_was_not_offered(server: Hostile) -> Any:
    write(line_of({"id": "s", "method": "sampling/createMessage", "params": {"messages": 5}}))
    write(line_of({"id": "e", "method": "elicitation/create", "params": None}))
    write(line_of({"id": "e", "method": "roots/list"}))
    return text("done")


@at("call")
def sends_notifications_that_are_none(server: Hostile) -> Any:
    odd: list[dict[str, Any]] = [{"progressToken": []}, {"progress": "x"}, {"progress": True}, {"total": "all"}]
    for params in odd:
        write(server.progress(**params))
    write(server.progress().replace(b'"progress": 1', b'"progress": 1' + b"0" * 400))
    write(server.progress().replace(b'"progress": 1', b'"progress": NaN'))
    write(server.progress(progress=1, total=10**400))
    for method in ("notifications/cancelled", "notifications/message", "notifications/tools/list_changed", "no/such"):
        write(line_of({"method": method, "params": {"requestId": [], "level": 7, "_meta": "x"}}))
        write(line_of({"method": method, "params": [1]}))
    return text("done")


@at("call")
def cancels_our_own_call(server: Hostile) -> Any:
    write(server.notification("notifications/cancelled", {"requestId": server.id}))
    return text("done")


@at("call")
def answers_far_too_deep(server: Hostile) -> None:
    raw_result(server, f'"content":[],"structuredContent":{deep(900)}')


@at("call")
def answers_deep(server: Hostile) -> None:
    raw_result(server, f'"content":[],"structuredContent":{deep(150)}')


@at("call")
def answers_beyond_all_depth(server: Hostile) -> None:
    raw_result(server, f'"content":[],"structuredContent":{deep(100_000)}')


@at("call")
def answers_with_deep_unknown_blocks(server: Hostile) -> None:
    raw_result(server, f'"content":[{{"type":"?","x":{deep(150)}}}]')


@at("call")
def answers_with_far_too_many_blocks(server: Hostile) -> None:
    raw_result(server, f'"content":[{"{}," * 200_000}{{}}]')


@at("call")
def leaves_out_the_type_of_its_result(server: Hostile) -> None:
    server.send({"id": server.id, "result": text("done")})


@at("call")
def gives_its_result_an_unknown_type(server: Hostile) -> None:
    server.send({"id": server.id, "result": text("done", resultType="banana")})


@at("call")
def gives_its_result_a_type_that_is_none(server: Hostile) -> None:
    server.send({"id": server.id, "result": text("done", resultType=["complete"])})


@at("call")
def answers_with_what_is_no_content(server: Hostile) -> Any:
    return {"content": {"type": "text", "text": "done"}, "structuredContent": "?", "_meta": 5}


@at("call")
def answers_with_numbers_that_are_none(server: Hostile) -> None:
    raw_result(server, '"content":[],"structuredContent":{"n":NaN,"i":Infinity,"h":1e999,"big":1%s}' % ("0" * 4_000))


@at("call")
def answers_with_a_number_beyond_all_size(server: Hostile) -> None:
    raw_result(server, f'"content":[],"structuredContent":{{"n":1{"0" * 100_000}}}')


# How it goes on, and ends


@at("call")
def closes_its_output(server: Hostile) -> None:
    os.close(1)
    live_on()


@at("call")
def closes_its_input(server: Hostile) -> None:
    os.close(0)
    server.answer(text("done"))
    live_on()


@at("call")
def reads_no_more(server: Hostile) -> None:
    live_on()


@at("call")
def floods_its_standard_error(server: Hostile) -> Any:
    sys.stderr.buffer.write(b"\n" * (20 * MB) + BLOCK * 20 + b"\n" + b"0123456789\n" * (5 * MB) + b"the last line\n")
    sys.stderr.flush()
    return text("done")


@at("call")
def leaves_a_child_with_its_pipes(server: Hostile) -> None:
    subprocess.Popen(["sleep", "60"])
    die(server)
