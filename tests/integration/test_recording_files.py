"""Files of recordings: no secrets, truncated long texts, complete lines, and errors with their place."""

from __future__ import annotations

import json
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dial_client import DialClient, Message, Turn
from tests.inner import (
    Api,
    CallChunk,
    Completion,
    ConfigError,
    FinishReason,
    ModelProfile,
    ScriptedProvider,
    TextChunk,
    ToolCallRequest,
)
from tests.support.fakes import Model
from tests.support.model_endpoint import Call, Say, hear, model_endpoint
from tests.support.program import entry, started, write_config

SDK = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "servers" / "sdk.py"), "stdio"]}
QUESTION = [Message.user("Hello?")]

pytestmark = pytest.mark.anyio


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def played(path: Path, servers: Mapping[str, Any] | None = None, **options: Any) -> Turn:
    async with DialClient(f"scripted:{path}", servers=servers or {}, **options) as dial:
        return await dial.run(QUESTION)


def calling(*calls: ToolCallRequest) -> list[Any]:
    """Return the deltas of a reply with the tool calls."""
    return [*(CallChunk(call) for call in calls), Completion(FinishReason.TOOL_CALLS)]


def saying(text: str) -> list[Any]:
    return [TextChunk(text), Completion(FinishReason.STOP)]


async def test_a_recording_contains_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    key, token = "sk-very-secret-key", "tok-very-secret"
    server = entry("ShowsItself", env={"MY_TOKEN": token})
    with model_endpoint([Say(f"Your key is {key}.", (Call("echo"),)), Say("Bye.")]) as endpoint:
        profile = ModelProfile("m", api=Api.CHAT, base_url=endpoint.url, model="m", api_key=key)
        async with DialClient("m", servers={"raw": server}, models={"m": profile}, record=file) as dial:
            turn = await dial.run([Message.user(f"Is {key} my key?")])
    written = file.read_text(encoding="utf-8")

    assert "[secret of raw]" in str(turn.tool_calls[0].result.content), "the server shows its environment"
    assert key in turn.messages[1].text
    assert [secret for secret in (key, token, "Bearer", server["args"][-2]) if secret in written] == []
    assert "Your key is [secret]." in written


async def test_long_texts_are_truncated_with_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    call = ToolCallRequest("c", "big", {"size": 5_000_000})
    async with DialClient(Model(calling(call), saying("Much.")), servers={"sdk": SDK}, record=file) as dial:
        await dial.run(QUESTION)
    with model_endpoint([Say("x" * 5_000_000)]) as endpoint:
        profile = ModelProfile("m", api=Api.CHAT, base_url=endpoint.url, model="m")
        async with DialClient("m", models={"m": profile}, record=tmp_path / "long.json") as dial:
            await dial.start(QUESTION, stream_events=False).result()

    [call_line] = [line for line in lines_of(file) if "called" in line]
    assert "more characters are not recorded" in call_line["result"]["content"][0]["text"]
    assert len((tmp_path / "long.json").read_bytes()) < 5_000_000
    assert "is not recorded" in "".join((await played(tmp_path / "long.json")).notes)


async def test_each_message_is_recorded_once(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    model = Model(calling(ToolCallRequest("c", "echo", {})), saying("Done."))
    async with DialClient(model, servers={"raw": entry("Server")}, record=file, system="Be brief.") as dial:
        await dial.run(QUESTION)
    head, server, first, call, second = lines_of(file)

    assert head["provider"] == "stand-in"
    assert [tool["name"] for tool in server["tools"]] == ["echo"]
    assert [message["role"] for message in first["asked"]["messages"]] == ["user"]
    sources = [instruction["source"] for instruction in first["asked"]["instructions"]]
    assert sources == ["conversation", "servers"]
    assert (first["asked"]["tools"], first["asked"]["tool_choice"]) == (["echo"], "auto")
    assert call["called"] == {"server": "raw", "tool": "echo", "arguments": {}}
    assert second["asked"]["after"] == 1
    assert "instructions" not in second["asked"]
    assert [message["role"] for message in second["asked"]["messages"]] == ["assistant", "tool"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither SIGKILL nor modes")
async def test_a_killed_program_leaves_a_readable_recording(tmp_path: Path) -> None:
    say = [{"text": "I look.", "tool_calls": [{"name": "echo"}]}, {"text": "Half", "hang": True}]
    write_config(tmp_path, {"raw": entry("Server", autoApprove=["*"])}, say)
    # As text, the answer is printed when it is complete.
    with started(tmp_path, "--no-save", "--record", "r.json", "--output", "sse", "Hello?") as process:
        assert process.stdout is not None
        assert any("Half" in line for line in process.stdout)
        process.send_signal(signal.SIGKILL)
        process.wait()
    file = tmp_path / "r.json"
    with file.open("ab") as torn:
        torn.write(b'{"asked": {"aft')

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    provider = ScriptedProvider.from_file(file)
    assert provider.servers is not None
    assert len(provider.servers["raw"].calls) == 1
    assert (await hear(provider)).text == "I look."


async def test_a_turn_continues_if_its_recording_fails(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    echo: list[Any] = []
    for _ in range(5000):
        echo = [echo]
    model = Model([TextChunk("Hi"), Completion(FinishReason.STOP, echo=echo)], saying("Hello"))
    async with DialClient(model, record=file) as dial:
        texts = [(await dial.run(QUESTION)).text for _ in range(2)]

    assert texts == ["Hi", "Hello"]
    assert len(lines_of(file)) == 1, "what comes behind a gap would be played wrong"


async def test_only_an_existing_recording_is_overwritten(tmp_path: Path) -> None:
    file, config = tmp_path / "r.json", tmp_path / "servers.json"
    config.write_text("{}")
    for _ in range(2):
        async with DialClient(Model(saying("Hi")), record=file) as dial:
            await dial.run(QUESTION)
    with pytest.raises(ConfigError, match="exists already, and is not a recording"):
        await DialClient(Model(), record=config).open()
    with pytest.raises(ConfigError, match="cannot be written"):
        await DialClient(Model(), record=tmp_path / "nowhere" / "r.json").open()
    with pytest.raises(ConfigError, match="cannot be recorded"):
        DialClient(f"scripted:{file}", record=tmp_path / "again.json")

    assert len(lines_of(file)) == 2
    assert config.read_text() == "{}"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        pytest.param('{"recording": 2}', "line 1.recording: wrong value (expected version 1)", id="a newer one"),
        pytest.param('{"recording": 1}\n{no\n{}\n', "r.json:2:2: this is not JSON", id="a line that is no JSON"),
        pytest.param('{"recording": 1}\n{"what": 1}\n', "line 2.what", id="an unknown line"),
        pytest.param('{"recording": 1}\n{"called": {}}\n', "line 2.server", id="a call of nobody"),
        pytest.param('{"recording": 1}\n{"replies": [7]}\n', "line 2.replies[0]", id="a reply that is none"),
    ],
)
async def test_mistakes_in_a_recording_are_reported_with_their_place(lines: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(lines)

    with pytest.raises(ConfigError) as caught:
        ScriptedProvider.from_file(tmp_path / "r.json")

    assert problem in str(caught.value)
