"""Process and provider of the embedded model, with the real runtime."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.inner import (
    TEMPLATE,
    VARIABLE,
    CallChunk,
    Completion,
    ConfigError,
    FinishReason,
    LocalProvider,
    Message,
    ModelProcess,
    ModelRequest,
    ProviderError,
    TextChunk,
    ToolFormat,
    ToolSpec,
)
from tests.support.real_weights import WEIGHTS, with_weights

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the extra 'local' is not installed"),
]
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="asks the system for a process by its id")

TIMEZONE = {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]}
CLOCK = ToolSpec("get_current_time", "Get the current time in a timezone, such as Europe/Paris", TIMEZONE)
QUESTION = Message.user("What time is it in Tokyo?")


@asynccontextmanager
async def local(path: str | None = None) -> AsyncGenerator[LocalProvider, None]:
    provider = LocalProvider(path)
    try:
        yield provider
    finally:
        await provider.aclose()


async def ask(provider: LocalProvider, *messages: Message, **how: Any) -> tuple[str, list[CallChunk], Completion, int]:
    """Return the text, the calls, the completion, and the number of text chunks."""
    texts: list[str] = []
    calls: list[CallChunk] = []
    async for delta in provider.generate(ModelRequest(messages, **how)):
        match delta:
            case TextChunk(text):
                texts.append(text)
            case CallChunk():
                calls.append(delta)
            case Completion():
                return "".join(texts), calls, delta, len(texts)
    raise AssertionError("there was no completion")


async def wait_for_end(pid: int) -> None:
    """Wait until the process has ended; a zombie that its new parent has not reaped counts as ended."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if is_zombie(pid):
            return
        await anyio.sleep(0.05)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:  # it has ended meanwhile, or the system has no such files
        return False


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\xff" * 100)
    return file


def test_without_the_extra_the_error_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['xllamacpp'] = None; from dial_client.cli.commands.program_commands import run; "
        "sys.exit(run(['-m', 'local', 'Hello']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "the embedded model needs the extra: pip install 'dial-client[local]'" in ended.stderr


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read: No such file"), (b"PK\x03\x04", "is not a GGUF file")]
)
def test_a_path_without_a_valid_model_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^local:PATH: .*model.gguf {problem}"):
        LocalProvider(str(file))
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(ConfigError, match=f"^{VARIABLE}: .*model.gguf {problem}"):
        LocalProvider()


@pytest.mark.parametrize(
    ("metadata", "tool_format"), [(b"tokenizer.chat_template", None), (b"tokenizer.ggml.model", ToolFormat.REACT)]
)
def test_a_file_without_a_chat_template_uses_the_react_format(
    tmp_path: Path, metadata: bytes, tool_format: ToolFormat | None
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(64) + metadata + bytes(64))
    assert LocalProvider(str(file)).info.tool_format is tool_format


async def test_a_model_that_does_not_start_is_reported_with_the_reason_and_its_file(broken: Path) -> None:
    async with local(str(broken)) as provider:
        with pytest.raises(ProviderError, match=r"could not be started: RuntimeError: .* \(model: .*broken\.gguf\)"):
            await provider.prepare()


@with_weights
async def test_a_model_that_is_not_ready_in_time_is_stopped_with_an_error() -> None:
    with pytest.raises(ProviderError, match="not ready within 0 s"):
        await ModelProcess.start(WEIGHTS, None, timeout=0)


async def test_a_closed_provider_starts_nothing(broken: Path) -> None:
    async with local(str(broken)) as provider:
        await provider.aclose()
        with pytest.raises(ProviderError, match="is closed"):
            await provider.prepare()


@with_weights
async def test_closing_a_provider_while_it_starts_is_an_error_for_waiters() -> None:
    async with local() as provider, anyio.create_task_group() as group:

        async def warm() -> None:
            with pytest.raises(ProviderError, match="was closed"):
                await provider.prepare()

        group.start_soon(warm)
        await anyio.wait_all_tasks_blocked()
        await provider.aclose()


@with_weights
@asyncio_only
async def test_two_providers_use_the_model_concurrently_and_a_dead_model_is_restarted() -> None:
    async with local() as first, local() as second:
        await second.prepare()
        assert second._process is not None
        os.kill(second._process.pid, signal.SIGTERM)
        async with anyio.create_task_group() as group:
            group.start_soon(call_a_prepared_tool, first)
            group.start_soon(stream_an_answer, second)


async def call_a_prepared_tool(provider: LocalProvider) -> None:
    """Ask a question that needs a tool, with the tools processed before. `.ci/run` asserts the answer of the demo."""
    await provider.prepare(ModelRequest((Message.user("Hello"),), tools=(CLOCK,)))
    _, calls, end, _ = await ask(provider, QUESTION, tools=(CLOCK,))
    assert end.usage.cached_tokens > end.usage.input_tokens / 2
    call = calls[0].call
    assert (call.name, call.arguments, end.finish) == (CLOCK.name, {"timezone": "Asia/Tokyo"}, FinishReason.TOOL_CALLS)


async def stream_an_answer(provider: LocalProvider) -> None:
    """Ask a question without tools, whose answer streams from its first token."""
    text, calls, end, pieces = await ask(provider, Message.user("What is the capital of France?"))
    assert ("Paris" in text, calls, end.finish) == (True, [], FinishReason.STOP)
    assert pieces > 3


HOST = """
import sys
from pathlib import Path

import anyio
from dial_client.providers.embedded import process
from dial_client.providers.embedded.local_provider import LocalProvider

process._SERVER = Path(sys.argv[1])

async def main():
    provider = LocalProvider(sys.argv[2])
    await provider.prepare()
    print(provider._process.pid, flush=True)
    await anyio.sleep(600)

anyio.run(main)
"""
RECORDED_MODEL = Path(__file__).parents[1] / "support" / "servers" / "recorded_model.py"


@posix_only
@asyncio_only
async def test_a_killed_host_leaves_no_model_process(tmp_path: Path) -> None:
    # The recorded model reads its standard input as llama.cpp's server does, whose end `server` asserts.
    (tmp_path / "model.gguf").write_bytes(b"GGUFtokenizer.chat_template")
    variables = os.environ | {"DIAL_TEST_RECORDED_MODEL": str(tmp_path / "nothing.jsonl")}
    command = [sys.executable, "-c", HOST, str(RECORDED_MODEL), str(tmp_path / "model.gguf")]
    async with await anyio.open_process(command, env=variables) as host:
        assert host.stdout is not None
        pid = int(await host.stdout.receive())
        os.kill(pid, 0)
        host.kill()
        await host.wait()
        with anyio.fail_after(60):
            await wait_for_end(pid)


class Server:
    """A client for the HTTP interface of the running model process."""

    def __init__(self, address: str, key: str) -> None:
        self.address = address
        self.key = key

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.address}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answered: dict[str, Any] = json.load(answer)
            return answered

    def prompt(self, messages: list[dict[str, Any]]) -> str:
        return str(self.post("/apply-template", {"messages": messages})["prompt"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start the model process as the host does; closing its standard input ends it."""
    program = Path(TEMPLATE).with_name("llama_server.py")
    command = [sys.executable, "-P", str(program), str(WEIGHTS), str(TEMPLATE), "8192", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"the key\n")
        child.stdin.flush()
        yield Server(child.stdout.readline().decode().strip(), "the key")
        child.stdin.close()
        assert child.wait(60) == 0


CALLED = {
    "id": "1",
    "type": "function",
    "function": {"name": "get_current_time", "arguments": '{"timezone": "Asia/Tokyo"}'},
}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What time is it in Tokyo?"},
    {"role": "assistant", "content": None, "tool_calls": [CALLED, CALLED]},
    {"role": "tool", "tool_call_id": "1", "content": "08:25"},
    {"role": "tool", "tool_call_id": "2", "content": "08:26"},
    {"role": "assistant", "content": "It is 8:25."},
    {"role": "user", "content": "Thanks"},
]


@with_weights
def test_the_template_formats_the_conversation(server: Server) -> None:
    assert server.prompt(TALK) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat time is it in Tokyo?<|im_end|>\n"
        '<|im_start|>assistant\n```json\n{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}\n```\n'
        '```json\n{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}\n```<|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n08:25\n</tool_response>\n<tool_response>\n08:26\n</tool_response>\n"
        "Now say what this tells, in a sentence, "
        "with its names, times and numbers just as they are written here.<|im_end|>\n"
        "<|im_start|>assistant\nIt is 8:25.<|im_end|>\n"
        "<|im_start|>user\nThanks<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@with_weights
def test_requests_without_the_key_are_refused(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        Server(server.address, "another").post("/v1/chat/completions", {"messages": TALK[1:2]})
