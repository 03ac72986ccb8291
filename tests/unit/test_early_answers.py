"""Answers to the first requests of a client, before the libraries that answer requests are loaded."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.inner import AnswerRecord, EarlyAnswers, FirstAnswers, StandardFiles

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there a thread cannot wait for a pipe")

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}
LIST: dict[str, Any] = {"_meta": {"progressToken": 7}}


class Host:
    """The other end of standard input and output."""

    def __init__(self) -> None:
        self.input, self.writes = os.pipe()
        self.reads, self.output = os.pipe()

    def send(self, **message: Any) -> None:
        os.write(self.writes, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def read(self) -> Any:
        """Return the next message; one line is read at a time."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.reads, 1)
        return json.loads(line)

    def close(self) -> None:
        for file in (self.input, self.writes, self.reads, self.output):
            os.close(file)


@contextmanager
def started(folder: Path) -> Iterator[tuple[Host, EarlyAnswers]]:
    host = Host()
    early = EarlyAnswers(StandardFiles(host.input, host.output), AnswerRecord(["gateway"], folder))
    try:
        yield host, early
    finally:
        early.stop()
        host.close()


def keep(folder: Path, *paths: Path, variables: tuple[str, ...] = ()) -> None:
    """Store the answers of a first run, as the SDK's server gave them."""
    with started(folder) as (_, early):
        first = FirstAnswers(early, paths, variables)
        first.begin()
        for id_, method, params, result in (
            (1, "initialize", HELLO, {"is": 1}),
            (2, "tools/list", None, {"tools": []}),
            (3, "prompts/list", {}, {"prompts": []}),
        ):
            first.receive(id_, method, params)
            assert first.answer(id_, result) is None, "the client does not have it yet"
        first.keep()


def test_the_answers_of_the_last_run_are_given_and_what_the_server_answers_then_is_not_written_twice(
    tmp_path: Path,
) -> None:
    keep(tmp_path)
    with started(tmp_path) as (host, early):
        host.send(id="a", method="initialize", params=HELLO)
        assert host.read() == {"jsonrpc": "2.0", "id": "a", "result": {"is": 1}}
        host.send(method="notifications/initialized")
        host.send(id=2, method="resources/list")  # was not asked for in the last run
        host.send(id=3, method="tools/list", params=LIST)
        host.send(id=4, method="prompts/list")
        assert host.read() == {"jsonrpc": "2.0", "id": 3, "result": {"tools": []}}
        assert host.read() == {"jsonrpc": "2.0", "id": 4, "result": {"prompts": []}}
        first = FirstAnswers(early)
        beginning = first.begin()
        sent = [json.loads(line) for line in beginning.received.splitlines()]
        assert [message.get("id") for message in sent] == ["a", None, 2, 3, 4], "the SDK's server gets all of it"
        for message in sent:
            if "id" in message:
                first.receive(message["id"], message["method"], message.get("params"))
        assert first.answer(2, {"resources": []}) is None
        assert first.answer("a", {"is": 1}) == b""
        for id_, kind in ((4, "prompts"), (3, "tools")):
            assert AnswerRecord(["gateway"], tmp_path).read(), "prompts depend on more than files"
            changed = first.answer(id_, {kind: [{"name": "new"}]})
            assert changed is not None
            assert json.loads(changed) == {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}
        assert not AnswerRecord(["gateway"], tmp_path).read(), "it was wrong"
        first.receive(3, "tools/list", LIST)
        assert first.answer(3, {"tools": []}) is None, "an id that comes again is another request"


def test_a_client_of_2026_07_28_need_not_greet_before_it_lists_the_tools(tmp_path: Path) -> None:
    named = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    with started(tmp_path) as (_, early):
        first = FirstAnswers(early)
        first.begin()
        first.receive(1, "tools/list", named)
        assert first.answer(1, {"tools": []}) is None
        first.keep()
    with started(tmp_path) as (host, _):
        host.send(id=5, method="tools/list", params=named)
        assert host.read() == {"jsonrpc": "2.0", "id": 5, "result": {"tools": []}}


def test_a_client_that_says_something_else_gets_no_early_answer(tmp_path: Path) -> None:
    keep(tmp_path)
    older = HELLO | {"protocolVersion": "2025-06-18"}
    for params, method in ((older, "initialize"), (LIST, "tools/list")):
        with started(tmp_path) as (host, early):
            host.send(id=1, method=method, params=params)
            host.send(id=2, method="initialize", params=HELLO)
            for thread in threading.enumerate():
                if thread.name == "early answers":
                    thread.join(10)
            beginning = early.stop()
            assert (beginning.answered, beginning.unwritten) == ({}, b"")
            assert beginning.received, "the SDK's server answers it"


def test_a_list_is_for_clients_alone_that_say_the_same_of_themselves(tmp_path: Path) -> None:
    """Servers have other tools for a client that can answer their questions."""
    asking = HELLO | {"capabilities": {"elicitation": {}}}
    with started(tmp_path) as (_, early):
        first = FirstAnswers(early)
        first.begin()
        for hello, tools in ((HELLO, ["plain"]), (asking, ["plain", "asks"])):
            for id_, method, params in ((1, "initialize", hello), (2, "tools/list", None)):
                first.receive(id_, method, params)
                first.answer(id_, {"tools": tools})
        first.keep()
    for hello, tools in ((HELLO, ["plain"]), (asking, ["plain", "asks"])):
        with started(tmp_path) as (host, _):
            host.send(id=1, method="initialize", params=hello)
            assert host.read()["result"] == {"tools": tools}
            host.send(id=2, method="tools/list")
            assert host.read()["result"] == {"tools": tools}


@pytest.mark.parametrize("change", ["nothing", "a file", "a missing file", "a variable", "a broken record"])
def test_answers_hold_as_long_as_what_they_depend_on_is_the_same(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, missing = tmp_path / "servers.json", tmp_path / "missing.json"
    there.write_text("{}")
    monkeypatch.setenv("A_TOKEN", "secret-value")
    keep(tmp_path / "records", there, missing, variables=("A_TOKEN",))
    (record,) = (tmp_path / "records").iterdir()
    assert "secret-value" not in record.read_text()
    match change:
        case "a file":
            there.write_text("{ }")
        case "a missing file":
            missing.write_text("{}")
        case "a variable":
            monkeypatch.setenv("A_TOKEN", "another")
        case "a broken record":
            record.write_text(record.read_text().replace('"names"', '"other"'))
    assert len(AnswerRecord(["gateway"], tmp_path / "records").read()) == (3 if change == "nothing" else 0)


def test_a_client_that_does_not_read_gets_the_rest_of_its_answer_later(tmp_path: Path) -> None:
    large = {"tools": ["x" * 300_000]}
    with started(tmp_path) as (_, early):
        first = FirstAnswers(early)
        first.begin()
        first.receive(1, "initialize", HELLO)
        first.answer(1, large)
        first.keep()
    with started(tmp_path) as (host, early):
        host.send(id=1, method="initialize", params=HELLO)
        begun = os.read(host.reads, 1)
        beginning = early.stop()
        os.set_blocking(host.reads, False)
        while True:
            try:
                begun += os.read(host.reads, 65_536)
            except BlockingIOError:
                break
        assert beginning.unwritten
        assert json.loads(begun + beginning.unwritten)["result"] == large
