"""Plays what an editor sends to ``dial-chat acp``, line by line, as `tests/recordings/editors` has it.

A line ``{"send": MESSAGE}`` is sent as it is, and its response awaited. ``{"permission": KIND}`` says which option the
person takes from then on, and ``{"cancel": true}`` that the person cancels the next turn when it asks. The words
``$CWD``, ``$QUOTED`` (the same with ``%2F``), ``$PYTHON`` and ``$SESSION`` stand for what differs between two runs.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.support.editors import build_command
from tests.support.program import LONG, environment

_WORD = re.compile(r"\$[A-Z]+")
RECORDINGS = Path(__file__).parents[1] / "recordings" / "editors"


@dataclass
class PlayedSession:
    """What an editor got."""

    responses: list[dict[str, Any]] = field(default_factory=list)
    """The responses in the order of the requests."""
    updates: list[dict[str, Any]] = field(default_factory=list)
    """The updates of the session."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The parameters of the requests for permission."""
    unexpected: list[dict[str, Any]] = field(default_factory=list)
    """Requests that a client of this editor does not know."""
    errors: str = ""
    """What the program has printed on standard error."""

    def find(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of a kind, such as ``agent_message_chunk``."""
        return [update for update in self.updates if update["sessionUpdate"] == kind]


async def play(folder: Path, recording: str) -> PlayedSession:
    """Play a recording; the program ends when the editor closes its standard input."""
    lines = (RECORDINGS / f"{recording}.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    words = {
        "$CWD": folder.as_posix(),
        "$QUOTED": quote(folder.as_posix(), safe=""),
        "$PYTHON": Path(sys.executable).as_posix(),
    }
    played, permission, cancels = PlayedSession(), "", False
    variables = environment(folder)
    command = build_command(["-m", "dial_client", "acp"], variables)
    with anyio.fail_after(LONG):
        async with await anyio.open_process(command, env=variables) as program:
            assert program.stdout is not None and program.stdin is not None and program.stderr is not None
            output = BufferedByteReceiveStream(program.stdout)
            for line in lines:
                step = json.loads(_WORD.sub(lambda found: words[found[0]], line))
                permission, cancels = step.get("permission", permission), step.get("cancel", cancels)
                if "send" in step:
                    await _send(program, step["send"])
                    response = await _read(program, output, step["send"]["id"], played, permission, cancels=cancels)
                    cancels = cancels and step["send"]["method"] != "session/prompt"
                    played.responses.append(response)
                    if session := response.get("result", {}).get("sessionId"):
                        words["$SESSION"] = session
            await program.stdin.aclose()
            played.errors = b"".join([part async for part in program.stderr]).decode()
        assert program.returncode == 0, played.errors
    return played


async def _send(program: Process, message: dict[str, Any]) -> None:
    assert program.stdin is not None
    await program.stdin.send(json.dumps(message).encode() + b"\n")


async def _read(
    program: Process, output: BufferedByteReceiveStream, id_: Any, played: PlayedSession, kind: str, *, cancels: bool
) -> dict[str, Any]:
    """Return the response to a request; answer what comes before it as the editor does."""
    while True:
        message: dict[str, Any] = json.loads(await output.receive_until(b"\n", 2**24))
        match message.get("method"):
            case None:
                assert (message["jsonrpc"], message["id"]) == ("2.0", id_)
                return message
            case "session/update":
                played.updates.append(message["params"]["update"])
            case "session/request_permission":
                played.asked.append(message["params"])
                outcome = {"outcome": "cancelled"}
                if cancels:
                    ids = {"sessionId": message["params"]["sessionId"]}
                    await _send(program, {"jsonrpc": "2.0", "method": "session/cancel", "params": ids})
                else:
                    options = {option["kind"]: option["optionId"] for option in message["params"]["options"]}
                    outcome = {"outcome": "selected", "optionId": options[kind]}
                await _send(program, {"jsonrpc": "2.0", "id": message["id"], "result": {"outcome": outcome}})
            case _:
                played.unexpected.append(message)
                error = {"code": -32601, "message": "Method not found"}
                await _send(program, {"jsonrpc": "2.0", "id": message["id"], "error": error})
