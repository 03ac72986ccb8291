"""The pytest plugin in other projects: with pytest-asyncio in strict mode, with AnyIO's plugin, and without both."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.model_endpoint import Call, Say, model_endpoint
from tests.support.program import LONG, PIPES, run_to_end, start_python

pytestmark = pytest.mark.once

SERVER = Path(__file__).parents[1] / "support" / "servers" / "raw.py"
KEY = "sk-0123456789abcdef"
TESTS = """
import os
import sys

import pytest

from dial_client import ModelProfile
from dial_client.testing import DialRecording, ScriptedProvider, assert_answered, assert_called, block_network, calls

QUESTION = "Echo hello."


@pytest.fixture(autouse=True)
def offline():
    with block_network():
        yield


def client(dial_recording: DialRecording):
    servers = {"raw": {"command": sys.executable, "args": [SERVER]}}
    model = ModelProfile("m", api="chat", base_url=os.environ.get("MODEL_URL", ""), api_key=KEY, model="m")
    return dial_recording.client("m", servers=servers, models={"m": model}, system=f"The key is {KEY}.")


@MARK
@pytest.mark.parametrize("word", ["hello", "a/b"])
async def test_echo(dial_recording, word):
    async with client(dial_recording) as dial:
        turn = await dial.run(QUESTION)
    assert_answered(turn)
    assert assert_called(turn, "echo", text="hello").result.content == '{"text": "hello"}'
    assert calls(turn) == [("echo", {"text": "hello"})]


class TestMore:
    @MARK
    async def test_two_clients(self, dial_recording):
        for _ in range(2):
            async with client(dial_recording) as dial:
                assert (await dial.run(QUESTION)).text == "It said hello."
"""
REPLIES = [Say(calls=(Call("echo", {"text": "hello"}),)), Say("It said hello.")]
PLUGINS = {
    "pytest-asyncio": (
        "addopts = -p pytest_asyncio.plugin\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function",
        "pytest.mark.asyncio",
    ),
    "anyio": ("addopts = -p anyio.pytest_plugin", "pytest.mark.anyio"),
}
# Importing all installed plugins takes a second of processor time: each run loads only the plugins that it needs.
NAMED_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def write_tests(folder: Path, plugin: str) -> None:
    options, mark = PLUGINS[plugin]
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{options}\n")
    head = f"SERVER, KEY = {str(SERVER)!r}, {KEY!r}\n"
    (folder / "test_echo.py").write_text(head + TESTS.replace("@MARK", f"@{mark}"))


def run_pytest(folder: Path, *options: str, **environ: str) -> str:
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "dial_client.testing.pytest_plugin", *options]
    ended = run_to_end(start_python(folder, arguments, env=os.environ | NAMED_PLUGINS | environ, **PIPES))
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("plugin", PLUGINS)
def test_clients_are_recorded_once_and_replayed_without_servers_and_network(plugin: str, tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio")
    write_tests(tmp_path, plugin)
    loops = 1 if plugin == "pytest-asyncio" else 2
    with model_endpoint(REPLIES * 4 * loops) as endpoint:
        recorded = run_pytest(tmp_path, "--dial-record", MODEL_URL=endpoint.url)
    assert f"{3 * loops} passed" in recorded, recorded
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("recordings/**/*.*"))
    [hashed] = [name for name in files if "a_b" in name]
    assert files == sorted(
        [
            "recordings/test_echo/TestMore.test_two_clients+2.jsonl",
            "recordings/test_echo/TestMore.test_two_clients.jsonl",
            "recordings/test_echo/test_echo-hello.jsonl",
            hashed,
        ]
    )
    assert KEY not in "".join((tmp_path / name).read_text() for name in files)

    replayed = run_pytest(tmp_path)
    assert f"{3 * loops} passed" in replayed, replayed


def test_an_unrecorded_question_fails_and_a_failed_run_keeps_the_old_recording(tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio")
    write_tests(tmp_path, "pytest-asyncio")
    with model_endpoint(REPLIES) as endpoint:
        recorded = run_pytest(tmp_path, "--dial-record", "-k", "hello", MODEL_URL=endpoint.url)
    assert "1 passed" in recorded, recorded
    [file] = tmp_path.rglob("*.jsonl")
    before = file.read_text()
    missing = run_pytest(tmp_path, "-k", "two_clients")
    assert "there is no recording of this test (run pytest --dial-record)" in missing

    module = tmp_path / "test_echo.py"
    module.write_text(module.read_text().replace("Echo hello.", "Echo something."))
    changed = run_pytest(tmp_path, "-k", "hello")
    assert "the user says 'Echo something.', and 'Echo hello.' in the recording" in changed
    assert "1 passed, 2 deselected, 1 error" in changed

    with model_endpoint([Say("No.")]) as endpoint:
        failed = run_pytest(tmp_path, "--dial-record", "-k", "hello", MODEL_URL=endpoint.url)
    assert "echo was not called with {'text': 'hello'}. No tool was called." in failed
    assert ([*tmp_path.rglob("recordings/**/*.*")], file.read_text()) == ([file], before)


ENDINGS = """
import pytest


def record(dial_recording, text):
    path = dial_recording._add_file()
    path.write_text(text)


@pytest.mark.parametrize("word", ["a", "A", "1"])
def test_kept(dial_recording, word):
    record(dial_recording, word)


def test_skipped(dial_recording):
    record(dial_recording, "half")
    pytest.skip("no")


def test_expected(dial_recording):
    record(dial_recording, "half")
    pytest.xfail("no")


def test_interrupted(dial_recording):
    record(dial_recording, "half")
    raise KeyboardInterrupt
"""


def test_only_passed_tests_keep_a_recording_and_each_test_has_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_endings.py").write_text(ENDINGS)
    run_pytest(tmp_path, "--dial-record")
    files = {path.name: path.read_text() for path in (tmp_path / "recordings" / "test_endings").iterdir()}
    assert sorted(files.values()) == ["1", "A", "a"]
    assert len({name.lower() for name in files}) == 3
    assert files["test_kept-a.jsonl"] == "a"


def test_an_unused_plugin_loads_no_heavy_modules(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:asyncio\n")
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n"
        "def test_own():\n"
        "    loaded = {name for name in sys.modules if name.startswith('dial_client')}\n"
        "    names = {'dial_client.runtime', 'dial_client.runtime.public_names'}\n"
        "    assert loaded == names | {'dial_client', 'dial_client.testing', 'dial_client.testing.pytest_plugin'}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    [plugin] = [entry for entry in entry_points(group="pytest11") if entry.name == "dial_client"]
    assert plugin.value == "dial_client.testing.pytest_plugin"
