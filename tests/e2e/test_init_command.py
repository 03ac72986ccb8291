"""`dial-chat init` in a folder without configuration."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.model_endpoint import Call, ModelEndpoint, Recorded, Say, model_endpoint, one_json, refuse
from tests.support.program import dial_chat
from tests.support.screens import screen

pytestmark = pytest.mark.once


def test_a_first_configuration_is_written_trusted_and_works(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    written = dial_chat(tmp_path, "init")
    assert written.returncode == 0, written.stderr
    assert '"What time is it in Tokyo?"' in written.stdout.partition("Next:")[2]
    assert '"local"' not in (tmp_path / "servers.json").read_text(), "490 MB are not downloaded unasked"
    used = dial_chat(tmp_path, "call", "get_current_time", '{"timezone": "Asia/Tokyo"}')
    assert used.returncode == 0 and '"timezone": "Asia/Tokyo"' in used.stdout, used.stderr
    again = dial_chat(tmp_path, "init")
    assert again.returncode == 2 and "there is a configuration already" in again.stderr


def test_options_replace_the_prompts(tmp_path: Path) -> None:
    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    linear = {"url": "https://linear.example/mcp"}
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"linear": linear}}))
    words = ("init", "--yes", "--user", "--model", "ollama:qwen3", "--server", "time", "--server", "linear")
    assert dial_chat(tmp_path, *words).returncode == 0
    shown = json.loads(dial_chat(tmp_path, "servers", "export", "--to", "cursor").stdout)
    assert shown["mcpServers"]["linear"] == linear
    assert not (tmp_path / "servers.json").exists()
    both = dial_chat(tmp_path, "init", "--user", "--folder")
    assert (both.returncode, "different files" in both.stderr) == (2, True)
    wrong = dial_chat(tmp_path, "init", "--model", "local", "--server", "tiem")
    assert (wrong.returncode, 'did you mean "time"' in wrong.stderr) == (2, True)


def test_three_prompts_write_a_file_that_is_tested_with_one_question(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]}
    (tmp_path / "replies.json").write_text(json.dumps([call, "It is noon in Tokyo."]))
    with screen(tmp_path, "init", columns=120) as shown:
        shown.until("the name of any model")
        shown.type("scriptd:replies.json\r")
        shown.until("the name of any model", 2)
        shown.type("scripted:replies.json\r")
        shown.until("or Enter for time")
        shown.type("9\r")
        shown.until("Please name numbers")
        shown.until("or Enter for time", 2)
        shown.type("\r")
        shown.until("or Enter for this folder")
        shown.type("1\r")
        shown.until("time: 2 tools")
        shown.until("now? [Y]es, [n]o:")
        shown.type("\r")
        shown.until("It is noon in Tokyo.")
        assert shown.leave() == 0
    text = (tmp_path / "servers.json").read_text()
    assert '"defaultModel": "scripted:replies.json"' in text and "// The current time" in text


def test_only_a_yes_asks_the_first_question(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(["It is noon in Tokyo."]))
    with screen(tmp_path, "init", "--model", "scripted:replies.json", "--server", "time", "--folder") as shown:
        shown.until("now? [Y]es, [n]o:")
        shown.type("later\r")
        shown.until("Next:")
        assert shown.leave() == 0
        assert "noon" not in shown.text


def test_the_server_none_is_no_server(tmp_path: Path) -> None:
    done = dial_chat(tmp_path, "init", "--yes", "--model", "local", "--server", "none", "--folder")
    assert (done.returncode, "servers.json has 0 servers" in done.stdout) == (0, True)
    assert "local" in (tmp_path / "servers.json").read_text(encoding="utf-8")


def test_leaving_at_a_prompt_writes_nothing(tmp_path: Path) -> None:
    with screen(tmp_path, "init", "--model", "local") as shown:
        shown.until("Which servers?")
        shown.until("Numbers such as")
        shown.type("\x04")
        shown.until("Nothing was written.")
        assert shown.leave() == 2
    assert not (tmp_path / "servers.json").exists()


def test_servers_of_other_hosts_in_the_folder_are_named_and_not_used(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    entry = {"command": "touch", "args": ["ran"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": entry, "b": entry}}))
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"c": entry}}))
    (tmp_path / "crush.json").write_text("{")
    commands = (("servers",), ("doctor",), ("init", "--yes"))
    for ran in [dial_chat(tmp_path, *words) for words in commands]:
        printed = " ".join((ran.stdout + ran.stderr).split())
        assert ".mcp.json has 2 servers (dial-chat servers import claude-code asks" in printed
        assert "mcp.json has 1 server (dial-chat servers import cursor asks" in printed
    assert not (tmp_path / "ran").exists()
    assert "ran" not in (tmp_path / "servers.json").read_text()


def test_a_conversation_with_the_users_own_servers_names_those_of_other_hosts_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["Hello."]')
    words = ("init", "--yes", "--user", "--model", f"scripted:{tmp_path / 'replies.json'}", "--server", "time")
    assert dial_chat(tmp_path, *words).returncode == 0
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "touch", "args": ["ran"]}}}))
    with screen(tmp_path, columns=150) as shown:
        shown.until(".mcp.json has 1 server (dial-chat servers import claude-code asks before it adds them)")
        shown.until("1 server ready")
        shown.type("\x04")
        assert shown.leave() == 0
    assert not (tmp_path / "ran").exists()


CLOCK = Say(calls=(Call("get_current_time", {"timezone": "Asia/Tokyo"}),))
LISTED = one_json({"data": [{"id": "good-1"}, {"id": "good-2"}]})


@contextmanager
def endpoint_with_a_clock(key: str = "") -> Iterator[ModelEndpoint]:
    """Serve chat completions that call a tool for the time, and then tell it; without the right key nothing."""
    with model_endpoint([CLOCK], LISTED if not key else None) as endpoint:

        def answer(request: Recorded) -> Say | object:
            if key and request.headers.get("authorization") != f"Bearer {key}":
                return refuse(401, "no such key")
            if request.method == "GET":
                return LISTED
            if not request.path.endswith("/chat/completions"):
                return refuse(404)
            messages = request.json.get("messages")
            if not messages:
                return refuse(400, "model is missing")
            return Say("It is noon in Tokyo.") if messages[-1]["role"] == "tool" else CLOCK

        endpoint.answer_to = answer  # type: ignore[assignment]
        endpoint.answers_lookups = True
        yield endpoint


def test_init_finds_an_endpoint_on_this_machine_and_the_first_answer_is_right(tmp_path: Path) -> None:
    with (
        endpoint_with_a_clock() as endpoint,
        screen(tmp_path, "init", columns=80, DIAL_LOCAL_SERVERS=f"vllm={endpoint.url}/v1") as shown,
    ):
        shown.until("1  good-1")
        shown.until("vLLM on this machine")
        shown.until("or Enter for good-1")
        shown.type("\r")
        shown.until("or Enter for time")
        shown.type("\r")
        shown.until("or Enter for this folder")
        shown.type("\r")
        shown.until("now? [Y]es, [n]o:")
        shown.type("\r")
        shown.until("It is noon in Tokyo.")
        shown.until("Next:")
        assert shown.leave() == 0
        asked_again = dial_chat(tmp_path, "What time is it in Tokyo?")
    assert asked_again.stdout == "It is noon in Tokyo.\n", "the next shell has no variable"


def test_an_endpoint_of_the_user_is_tried_and_written_without_its_key(tmp_path: Path) -> None:
    with endpoint_with_a_clock("sesame") as endpoint:
        with screen(tmp_path, "init", "--server", "time", "--folder", columns=100) as shown:
            shown.until("another endpoint")
            shown.type("another endpoint\r")
            shown.until("Its address")
            shown.type("ftp://nowhere\r")
            shown.until("is not an address")
            shown.until("Its address", 2)
            shown.type(f"{endpoint.url}/v1\r")
            shown.until("Enter if it needs none")
            shown.type("\r")
            shown.until("needs a key")
            shown.until("Enter goes back):", 3)
            shown.type("sesame\r")
            shown.until("Please give the name of a variable")
            shown.type("BOX_KEY\r")
            shown.until("BOX_KEY is not set here")
            shown.type("sesame\r")
            shown.until("or Enter for good-1")
            shown.type("2\r")
            shown.until("now? [Y]es, [n]o:")
            shown.type("\r")
            shown.until("It is noon in Tokyo.")
            shown.until("The key stays in BOX_KEY")
            assert shown.leave() == 0
        text = (tmp_path / "servers.json").read_text()
        assert "${BOX_KEY}" in text and "sesame" not in text
        answered = dial_chat(tmp_path, "What time is it in Tokyo?", BOX_KEY="sesame")
    assert answered.stdout == "It is noon in Tokyo.\n"


def test_an_address_in_an_option_or_a_variable_works_in_the_next_shell(tmp_path: Path) -> None:
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["--base-url", "URL"], {}),
        (["--base-url", "URL", "--model", "good-1"], {}),
        (["--model", "chat:good-1"], {"OPENAI_BASE_URL": "URL"}),
        ([], {"OPENAI_BASE_URL": "URL"}),
    ]
    with endpoint_with_a_clock() as endpoint:
        for number, (words, variables) in enumerate(ways):
            folder = tmp_path / str(number)
            folder.mkdir()
            url = f"{endpoint.url}/v1"
            arguments = [word.replace("URL", url) for word in words]
            named = {name: value.replace("URL", url) for name, value in variables.items()}
            written = dial_chat(folder, "init", "--yes", "--server", "time", *arguments, **named)
            assert (written.returncode, written.stderr) == (0, ""), words
            answered = dial_chat(folder, "What time is it in Tokyo?")
            assert answered.stdout == "It is noon in Tokyo.\n", (words, answered.stderr)


def test_an_address_that_needs_a_key_is_refused_until_its_variable_is_named(tmp_path: Path) -> None:
    with endpoint_with_a_clock("sesame") as endpoint:
        words = ("init", "--yes", "--server", "time", "--base-url", f"{endpoint.url}/v1")
        refused = dial_chat(tmp_path, *words)
        assert refused.returncode == 2 and "needs a key" in refused.stderr and "--key-variable" in refused.stderr
        assert not (tmp_path / "servers.json").exists()
        assert dial_chat(tmp_path, *words, "--key-variable", "BOX", BOX="sesame").returncode == 0
    assert '"api_key": "${BOX}"' in (tmp_path / "servers.json").read_text()


def test_a_model_that_cannot_answer_yet_is_a_warning(tmp_path: Path) -> None:
    written = dial_chat(tmp_path, "init", "--yes", "--model", "openai:gpt-6-luna", "--server", "time")
    assert written.returncode == 0
    assert "openai:gpt-6-luna needs a key (set OPENAI_API_KEY" in written.stderr


def test_the_demonstration_says_what_it_is_and_loads_nothing_unasked(tmp_path: Path) -> None:
    written = dial_chat(tmp_path, "init", "--yes", "--model", "local", "--server", "time")
    assert "a demonstration that needs no key" in written.stdout and "491 MB" in written.stdout
    assert not (tmp_path / "home" / "xdg_cache_home" / "dial-client" / "models").exists()


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_the_tables_of_init_line_up(tmp_path: Path, columns: int) -> None:
    with screen(tmp_path, "init", columns=columns) as shown:
        shown.until("or Enter for")
        column = next(line.index("needs ANTHROPIC_API_KEY") for line in shown.lines if "needs ANTHROPIC" in line)
        continued = [line for line in shown.lines if line.startswith(" " * 9)]
        assert {len(line) - len(line.lstrip()) for line in continued} <= {column} and not shown.overrun
        shown.type("\x04")
        assert shown.leave() == 2
