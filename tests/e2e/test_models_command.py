"""``dial-chat models``: local models, and the models of endpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.inner import QWEN, LocalModel, list_local_models, measure_memory
from tests.support.model_endpoint import Say, model_endpoint, one_json
from tests.support.program import LONG, dial_chat, environment
from tests.support.screens import screen


def test_downloaded_and_available_models_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "hf" / "bartowski--Qwen_Qwen3-4B-GGUF" / "Qwen3-4B-Q4_K_M.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    found = {model.name: model for model in list_local_models(tmp_path)}
    assert not found["local"].installed
    fetched = found["local:hf:bartowski/Qwen_Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf"]
    assert (fetched.installed, fetched.size) == (True, 4)
    assert "local:hf:bartowski/Qwen_Qwen3-4B-GGUF" not in found, "it is there already"
    assert any(not model.installed and model.name.startswith("local:hf:") for model in found.values())


def test_the_embedded_model_is_installed_once_its_file_exists(tmp_path: Path) -> None:
    (tmp_path / QWEN.file).write_bytes(b"GGUF")
    assert list_local_models(tmp_path)[0].installed


@pytest.mark.once
def test_without_their_extra_the_list_says_what_the_embedded_models_need(tmp_path: Path) -> None:
    without = "import sys; sys.modules['xllamacpp'] = None; from dial_client.cli import main; main()"
    words = [sys.executable, "-c", without, "models"]
    ran = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert "\nModels that begin with local need the extra: pip install 'dial-client[local]'\n" in ran.stdout


def test_a_model_fits_if_it_leaves_memory_for_other_programs() -> None:
    four_billion = LocalModel("local:hf:x/y", 2_500_000_000, installed=False)
    assert four_billion.fits(8_000_000_000)
    assert not four_billion.fits(4_000_000_000)


def test_the_memory_of_the_machine_is_known() -> None:
    memory = measure_memory()
    assert memory is not None
    assert memory > 100_000_000


def test_the_command_prints_a_line_for_each_model_or_json() -> None:
    command = [sys.executable, "-m", "dial_client", "models"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONG).stdout.splitlines()
    assert lines[0].startswith("local ")
    assert "0.5 GB" in lines[0]
    report = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=LONG).stdout)
    assert report["models"][0]["name"] == "local"
    assert set(report["models"][0]) == {"name", "size", "installed", "about", "fits"}


ABLE = [
    "42",
    {"text": "one two three four five six", "chunk_size": 4},
    {"tool_calls": [{"name": "get_temperature", "arguments": {"city": "Oslo"}}]},
    "It is -17 degrees.",
    {"tool_calls": [{"name": "get_temperature", "arguments": {"city": city}} for city in ("Oslo", "Lima")]},
    "-17 and 23",
    '{"city": "Rome", "inhabitants": 2700000}',
    "Yellow, blue, red.",
]
UNABLE = ["42", "all at once", "About 5 degrees.", "Cold, both.", *["no JSON"] * 3, "red, blue, yellow"]


@pytest.mark.parametrize(("replies", "works"), [(ABLE, True), (UNABLE, False)])
def test_a_model_is_tested_with_short_questions(tmp_path: Path, replies: list[Any], *, works: bool) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    tried = dial_chat(tmp_path, "models", "test", "scripted:replies.json", "--json")
    trials = {trial["name"]: trial for trial in json.loads(tried.stdout)["trials"]}
    assert [*trials] == ["text", "streaming", "tool call", "parallel calls", "structured output", "image"]
    assert trials.pop("text")["works"]
    assert {trial["works"] for trial in trials.values()} == {works}, trials
    assert tried.returncode == 0


def test_a_model_that_cannot_be_reached_is_exit_code_3(tmp_path: Path) -> None:
    tried = dial_chat(tmp_path, "models", "test", "chat:x", "--base-url", "http://127.0.0.1:9/v1")
    assert tried.returncode == 3
    assert "127.0.0.1:9" in tried.stderr
    assert dial_chat(tmp_path, "models", "test").returncode == 2


@contextmanager
def endpoint(*ids: str, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve ``GET /v1/models``; yield the URL and the list of requests so far."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.path} {self.headers['Authorization']}")
            body = json.dumps({"data": [{"id": id_} for id_ in ids]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
        finally:
            server.shutdown()
            thread.join()


def test_the_models_of_an_endpoint_are_listed_and_cached_for_a_day(tmp_path: Path) -> None:
    with endpoint("b-2", "a-1", "esc\x1b[31m") as (url, requests):
        variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}
        listed = dial_chat(tmp_path, "models", "list", "1", **variables).stdout.splitlines()
        assert [line.split()[:1] for line in listed[1:2]] == [["chat:a-1"]]
        assert listed[0].endswith("1 of 2 models")
        every = json.loads(dial_chat(tmp_path, "models", "--json", **variables).stdout)["endpoints"][0]["models"]
        assert [model["name"] for model in every] == ["chat:a-1", "chat:b-2"]
        assert requests == ["/v1/models Bearer k"]
        dial_chat(tmp_path, "models", "--refresh", **variables)
        assert len(requests) == 2


def test_an_endpoint_that_refuses_the_key_is_named_and_other_models_are_listed(tmp_path: Path) -> None:
    with endpoint(status=401) as (refusing, _), endpoint("good") as (url, _):
        profiles = {"mine": {"base_url": url, "model": "good"}, "theirs": {"base_url": refusing}}
        (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {}, "models": profiles}))
        printed = dial_chat(tmp_path, "models", "--trust").stdout
    assert "mine: good, of your configuration" in printed
    assert "needs a key" in printed
    assert '1 model, each for the "model" of a profile\n  good' in printed


def test_the_models_of_an_address_are_listed_without_a_key(tmp_path: Path) -> None:
    with endpoint("b-2", "a-1") as (url, requests):
        lines = dial_chat(tmp_path, "models", "--base-url", url).stdout.splitlines()
        assert lines[0].endswith(f"2 models, each as -m chat:ID --base-url {url}")
        assert [line.strip() for line in lines[1:]] == ["a-1", "b-2"], "and nothing of other endpoints"
        assert dial_chat(tmp_path, "models", "--base-url", url, "--json").stdout.count('"a-1"') == 1
        assert requests[0] == "/v1/models Bearer not-needed"
        alone = dial_chat(tmp_path, "models", "list", "chat:", OPENAI_BASE_URL=url).stdout
        assert "chat:a-1" in alone
    refused = dial_chat(tmp_path, "models", "--base-url", "http://127.0.0.1:9/v1")
    assert "127.0.0.1:9: " in refused.stdout


def test_models_of_servers_on_this_machine_are_listed(tmp_path: Path) -> None:
    with endpoint("qwen3:8b") as (url, _):
        servers = f"vllm={url},lmstudio=http://127.0.0.1:9/v1"
        printed = dial_chat(tmp_path, "models", DIAL_LOCAL_SERVERS=servers).stdout
    assert "qwen3:8b" in printed and "vLLM" in printed
    assert "LM Studio" not in printed and "127.0.0.1:9" not in printed, "what does not run is not named"


@pytest.mark.once
def test_in_a_conversation_the_models_that_are_really_there_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["Hello."]')
    with model_endpoint([Say("I am good.")], one_json({"data": [{"id": "good-1"}, {"id": "other-2"}]})) as served:
        servers = f"vllm={served.url}/v1"
        with screen(tmp_path, "-m", "scripted:replies.json", columns=100, DIAL_LOCAL_SERVERS=servers) as shown:
            shown.until("no servers, no tools")
            shown.type("/models\r")
            shown.until("good-1 (vLLM on this machine)")
            shown.type("/model\r")
            shown.until("good-1", 2)
            shown.type("good\r")
            shown.until("Model: chat:good-1@127.0.0.1")
            shown.type("Who are you?\r")
            shown.until("I am good.")
            shown.type("\x04")
            assert shown.leave() == 0
