"""dial-chat as a program: arguments, output streams and exit codes."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_end_clients import needs_front_ends, read_printed
from tests.support.program import LONG, dial_chat, entry, python_server, started, write_config

ECHO = {"tool_calls": [{"name": "echo", "arguments": {"text": "hi"}}]}
TALK = [{"text": "Let me ask."} | ECHO, {"text": "It said hi.", "chunk_size": 4}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_config(tmp_path, {"raw": entry("Server", autoApprove=["*"])}, TALK)
    return tmp_path


def test_an_answer_goes_to_standard_output_and_the_rest_to_standard_error(folder: Path) -> None:
    ran = dial_chat(folder, "Say hi", DIAL_TEST_FRESH="1")
    assert (ran.returncode, ran.stdout) == (0, "It said hi.\n")
    lines = ran.stderr.splitlines()
    assert lines[-3:-1] == ["Let me ask.", '→ raw.echo(text="hi")'], "the text before a call is not part of the answer"
    assert "✓" in lines[-1]


@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_a_quiet_answer_is_printed_without_tool_calls(folder: Path, option: str) -> None:
    ran = dial_chat(folder, option, "Say hi")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "It said hi.\n", "")


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_quiet_answer_is_printed_without_what_was_changed_of_tools_but_with_failed_servers(
    tmp_path: Path, output: str
) -> None:
    servers = {"long": entry("LongDescription"), "gone": {"command": "no-such-program"}}
    write_config(tmp_path, servers, [{"text": "Hi."}])
    loud = dial_chat(tmp_path, "--output", output, "Say hi").stderr
    quiet = dial_chat(tmp_path, "--output", output, "-q", "Say hi").stderr
    assert ("is cut" in loud, "'gone' is not available" in loud) == (True, True)
    assert ("is cut" in quiet, "'gone' is not available" in quiet) == (False, True)


BROKEN = [{"text": "The beginning of", "error": {"message": "no such model", "status": 404, "code": "unknown"}}]


def test_the_text_up_to_an_error_goes_to_standard_output(folder: Path) -> None:
    write_config(folder, {}, BROKEN)
    ran = dial_chat(folder, "Tell me")
    assert (ran.returncode, ran.stdout) == (3, "The beginning of\n")


def test_a_refused_question_speaks_of_later_requests_only_in_a_conversation_that_goes_on(folder: Path) -> None:
    write_config(folder, {}, [{"error": {"message": "the prompt was filtered", "status": 400}}])
    ran = dial_chat(folder, "Tell me")
    assert (ran.returncode, ran.stderr) == (3, "dial-chat: error: the prompt was filtered\n")
    assert "later requests leave this question out" in dial_chat(folder, "--continue", "Tell me").stderr


@pytest.mark.parametrize(("form", "head"), [("json", {}), ("jsonl", {"type": "error"})])
def test_an_error_is_an_object_in_the_output_and_a_line_on_standard_error(
    folder: Path, form: str, head: dict[str, str]
) -> None:
    write_config(folder, {}, BROKEN)
    ran = dial_chat(folder, "--output", form, "Tell me")
    printed = json.loads(ran.stdout.splitlines()[-1])
    assert (ran.returncode, "no such model" in ran.stderr) == (3, True)
    error = printed.pop("error")
    assert "no such model" in error.pop("message")
    assert error == {"type": "ProviderError", "status": 404, "code": "unknown"}
    [conversation] = json.loads(dial_chat(folder, "conversations", "--all", "--json").stdout)
    assert printed == {**head, "conversation_id": conversation["id"]}


@pytest.mark.parametrize("words", [("-m", "scripted:missing.json", "Hi"), ("-p",), ("-f", "missing.txt")])
def test_an_error_before_the_question_is_an_object_in_the_output(folder: Path, words: tuple[str, ...]) -> None:
    ran = dial_chat(folder, "--output", "json", "--no-save", *words)
    printed = json.loads(ran.stdout)
    assert (ran.returncode, printed["conversation_id"], printed["error"]["type"]) == (2, None, "ConfigError")
    assert printed["error"]["message"] in " ".join(ran.stderr.split())


def test_json_output_is_the_turn(folder: Path) -> None:
    ran = dial_chat(folder, "--output", "json", "Say hi")
    turn = json.loads(ran.stdout)
    [call] = turn.pop("tool_calls")
    assert call.pop("duration_s") >= 0
    assert call == {
        "id": call["id"],
        "name": "echo",
        "server": "raw",
        "tool": "echo",
        "arguments": {"text": "hi"},
        "is_error": False,
        "content": call["content"],
    }
    [conversation] = json.loads(dial_chat(folder, "conversations", "--all", "--json").stdout)
    assert (turn.pop("conversation_id"), turn.pop("model")) == (conversation["id"], conversation["model"])
    assert 0 <= turn.pop("duration_s") < LONG
    assert sorted(turn) == ["depth", "messages", "notes", "stop_reason", "text", "usage"]
    assert (turn["text"], turn["stop_reason"], turn["depth"], ran.returncode) == ("It said hi.", "answered", 1, 0)


def test_jsonl_output_is_one_event_a_line_and_ends_in_the_turn(folder: Path) -> None:
    ran = dial_chat(folder, "--output", "jsonl", "Say hi")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {"type": "text_delta", "text": "It s"} in events
    assert events[-1]["type"] == "finished"
    assert events[-1]["turn"]["text"] == "It said hi."
    assert len(events[-1]["turn"]["conversation_id"]) == 32
    started = next(event for event in events if event["type"] == "tool_call_started")
    assert started["server"] == "raw"


def test_sse_output_ends_in_done(folder: Path) -> None:
    ran = dial_chat(folder, "--output", "sse", "Say hi")
    assert ran.stdout.endswith("data: [DONE]\n\n")
    assert "event: tool_call\n" in ran.stdout
    assert ran.returncode == 0


@needs_front_ends
def test_the_streams_of_other_front_ends_are_those_that_their_clients_read(folder: Path) -> None:
    chat = read_printed(dial_chat(folder, "--output", "ai-sdk", "Say hi").stdout, is_ag_ui=False)
    agent = read_printed(dial_chat(folder, "--output", "ag-ui", "Say hi").stdout, is_ag_ui=True)
    assert (chat["status"], chat["messages"][-1]["parts"][-1]["text"]) == ("ready", "It said hi.")
    assert (agent["failures"], agent["messages"][-1]["content"]) == ([], "It said hi.")


def test_without_streaming_the_answer_is_the_same(folder: Path) -> None:
    assert dial_chat(folder, "--no-stream", "Say hi").stdout == dial_chat(folder, "Say hi").stdout


def test_standard_input_is_added_to_the_prompt(folder: Path) -> None:
    ran = dial_chat(folder, "--output", "json", "--no-save", "Summarise", stdin="a long text\n")
    assert ran.returncode == 0
    saved = dial_chat(folder, "Summarise", stdin="a long text\n")
    assert saved.returncode == 0
    for word, hint in (("search", "dial-chat conversations --search WORDS"), ("exprot", 'did you mean "export"?')):
        assert f"unknown action '{word}' ({hint})" in dial_chat(folder, "conversations", word).stderr
    shown = dial_chat(folder, "conversations", "list", "--all", "--json")
    [conversation] = json.loads(shown.stdout)
    whole = dial_chat(folder, "conversations", "show", conversation["id"])
    assert whole.stdout.startswith("user: Summarise\n\na long text\n")


def test_a_prompt_may_be_only_standard_input(folder: Path) -> None:
    assert dial_chat(folder, stdin="Say hi").stdout == "It said hi.\n"


def test_a_conversation_is_continued(folder: Path) -> None:
    dial_chat(folder, "First")
    dial_chat(folder, "--continue", "Second")
    [conversation] = json.loads(dial_chat(folder, "conversations", "--all", "--json").stdout)
    assert conversation["title"] == "First"
    dial_chat(folder, "--resume", conversation["id"], "Third")
    shown = json.loads(dial_chat(folder, "conversations", "show", conversation["id"], "--json").stdout)
    texts = [message["content"] for message in shown["messages"] if message["role"] == "user"]
    assert texts == ["First", "Second", "Third"]
    assert dial_chat(folder, "conversations", "delete", conversation["id"]).returncode == 0
    assert json.loads(dial_chat(folder, "conversations", "--all", "--json").stdout) == []


def test_nothing_is_stored_with_no_save(folder: Path) -> None:
    dial_chat(folder, "--no-save", "Say hi")
    assert json.loads(dial_chat(folder, "conversations", "--all", "--json").stdout) == []


def test_stored_conversations_have_private_permissions(folder: Path) -> None:
    dial_chat(folder, "Say hi")
    [file] = (folder / "home").rglob("conversations.db")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    with sqlite3.connect(file) as database:
        counts = database.execute("select message_count, entry_count from conversations").fetchone()
        assert counts == (5, 1), "the question, a call, its result, the answer, and the details of the turn"
    database.close()


def test_without_a_terminal_a_tool_is_denied_with_a_hint_to_the_option(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, TALK)
    ran = dial_chat(tmp_path, "--output", "json", "Say hi")
    assert ran.returncode == 5
    assert "--allow raw/echo" in ran.stderr
    assert json.loads(ran.stdout)["tool_calls"][0]["is_error"] is True


@pytest.mark.parametrize("option", [("--allow", "raw/echo"), ("--allow", "raw/*"), ("-y",)])
def test_an_allowed_tool_runs(tmp_path: Path, option: tuple[str, ...]) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, TALK)
    assert dial_chat(tmp_path, *option, "Say hi").returncode == 0


def test_a_deny_option_overrides_the_option_yes(folder: Path) -> None:
    ran = dial_chat(folder, "-y", "--deny", "echo", "Say hi")
    assert ran.returncode == 5


def test_a_limit_ends_in_text_and_exit_code_4(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        {"raw": entry("Server", autoApprove=["*"])},
        {"replies": [{"text": "Again."} | ECHO], "after": "repeat"},
    )
    ran = dial_chat(tmp_path, "--max-depth", "2", "--output", "json", "Say hi")
    turn = json.loads(ran.stdout)
    assert (ran.returncode, turn["stop_reason"], turn["text"]) == (4, "max_depth", "Again.")
    [line] = [line for line in ran.stderr.splitlines() if "limits." in line]
    assert line.startswith("dial-chat: stopped: too many rounds of tool calls (limits.maxDepth); `dial-chat --continue")


def test_a_limit_is_set_by_a_command_and_overridden_by_an_option(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        {"raw": entry("Server", autoApprove=["*"])},
        {"replies": [{"text": "Again."} | ECHO], "after": "repeat"},
    )
    assert dial_chat(tmp_path, "config", "set", "limits.maxDepth", "1").returncode == 0
    for words, depth in (((), 1), (("--max-depth", "2"), 2)):
        ran = dial_chat(tmp_path, *words, "--output", "json", "Say hi")
        assert (ran.returncode, json.loads(ran.stdout)["depth"]) == (4, depth)
    refused = dial_chat(tmp_path, "config", "set", "limits.maxDepth", "1000")
    assert refused.returncode == 2
    assert "max_depth must be from 0 to 100" in refused.stderr


def test_tools_that_always_fail_end_in_text_and_exit_code_4(tmp_path: Path) -> None:
    call = {"text": "Again.", "tool_calls": [{"name": "no_such_tool", "arguments": {}}]}
    write_config(tmp_path, {"raw": entry("Server")}, {"replies": [call], "after": "repeat"})
    ran = dial_chat(tmp_path, "--output", "json", "Say hi")
    turn = json.loads(ran.stdout)
    assert (ran.returncode, turn["stop_reason"], turn["depth"]) == (4, "consecutive_errors", 3)


def test_a_model_that_cannot_be_reached_is_exit_code_3(tmp_path: Path) -> None:
    write_config(tmp_path)
    ran = dial_chat(tmp_path, "-m", "chat:x", "--base-url", "http://127.0.0.1:9/v1", "Hi")
    assert ran.returncode == 3
    assert ran.stderr.count("\n") == 1
    assert "127.0.0.1:9" in ran.stderr


def test_after_two_dashes_a_prompt_may_be_the_name_of_a_command(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    assert dial_chat(tmp_path, "--", "tools").stdout == "Hello.\n"


def test_options_may_precede_a_command(folder: Path) -> None:
    ran = dial_chat(folder, "-c", "servers.json", "tools")
    assert ran.stdout.startswith("echo  raw: Says it again.")


def test_tools_and_servers_are_listed(folder: Path) -> None:
    tools = json.loads(dial_chat(folder, "tools", "--json").stdout)
    assert [(tool["name"], tool["server"], tool["tool"]) for tool in tools] == [("echo", "raw", "echo")]
    servers = json.loads(dial_chat(folder, "servers", "--json").stdout)
    assert [(server["name"], server["state"], server["protocol_version"]) for server in servers] == [
        ("raw", "ready", "2025-11-25")
    ]
    assert dial_chat(folder, "servers").stdout == "raw: ready, MCP 2025-11-25, 1 tool\n"


def test_the_reason_of_a_server_that_does_not_start_is_printed_once(tmp_path: Path) -> None:
    script = "import sys; sys.exit('looked for the key\\nno key was found')"
    write_config(tmp_path, {"raw": {"command": sys.executable, "args": ["-c", script]}})
    printed = dial_chat(tmp_path, "servers").stdout
    assert (printed.count("no key was found"), printed.count("looked for the key")) == (1, 1), printed


def test_a_tool_can_be_called_by_a_command(folder: Path) -> None:
    ran = dial_chat(folder, "call", "echo", '{"text": "hi"}', "--json")
    assert json.loads(ran.stdout)["success"] is True
    assert ran.returncode == 0


def _files(folder: Path) -> None:
    (folder / "broken.json").write_text('{"mcpServers": {\n  "a": {"command": 3}}}')
    (folder / "cut.json").write_text('{"mcpServers": {')
    (folder / "unset.json").write_text('{"mcpServers": {"a": {"command": "x", "env": {"T": "${NOT_SET_ANYWHERE}"}}}}')
    (folder / "latin.json").write_bytes(b'{"a": "\xff"}')


BAD_USAGE: list[tuple[list[str], str]] = [
    (["-c", "missing.json", "Hi"], "missing.json: there is no such file"),
    (["-c", "broken.json", "Hi"], "broken.json:2:20"),
    (["-c", "cut.json", "Hi"], "cut.json:1:17"),
    (["-c", "unset.json", "Hi"], "NOT_SET_ANYWHERE"),
    (["-c", "latin.json", "Hi"], "latin.json"),
    (["-m", "opanai:gpt", "Hi"], "did you mean openai:gpt?"),
    (["-m", "nonsense", "Hi"], "there is no model 'nonsense'"),
    (["-m", "openai:gpt-6-luna", "Hi"], "set OPENAI_API_KEY"),
    (["-m", "anthropic:claude-sonnet-5-5", "Hi"], "set ANTHROPIC_API_KEY"),
    (["-m", "local:nothing.gguf", "Hi"], "nothing.gguf"),
    (["-m", "scripted:nothing.json", "Hi"], "nothing.json"),
    (["--max-depth", "-1", "Hi"], "max-depth"),
    (["--timeout", "0", "Hi"], "timeout"),
    (["--resume", "no-such-id", "Hi"], "no-such-id"),
    (["--continue", "Hi"], "no conversation to continue"),
    (["--no-save", "--continue", "Hi"], "--no-save"),
    (["call", "nothing", "{}"], "nothing"),
    (["call", "echo", "{"], "not JSON"),
    (["call", "echo", "[]"], "not a JSON object"),
    (["conversations", "show"], "needs the id"),
    (["conversations", "show", "no-such-id"], "no-such-id"),
    (["conversations", "burn"], "burn"),
    (["diagnose"], "dial-chat -- diagnose"),
    ([], "no prompt given"),
]


@pytest.mark.parametrize(
    ("words", "error"), BAD_USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_usage_is_an_error_in_one_line_and_exit_code_2(folder: Path, words: list[str], error: str) -> None:
    _files(folder)
    ran = dial_chat(folder, *words)
    assert ran.returncode == 2
    assert error in ran.stderr
    assert ran.stdout == ""
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "Traceback" not in ran.stderr


def test_an_unknown_option_is_exit_code_2(folder: Path) -> None:
    ran = dial_chat(folder, "--modle", "x", "Hi")
    assert ran.returncode == 2
    assert "--model" in ran.stderr


def test_failed_servers_are_named_and_the_question_is_answered(tmp_path: Path) -> None:
    servers: dict[str, Any] = {
        "good": entry("Server"),
        "missing": {"command": "no-such-program-anywhere"},
        "hanging": entry("Hangs", startupTimeout=2),
        "dying": entry("DiesInCall"),
        "garbling": entry("Chatty"),
        "exiting": entry("ExitsAtOnce"),
    }
    calls: list[dict[str, Any]] = [
        {"name": name, "arguments": {}} for name in ("good__echo", "dying__echo", "garbling__echo")
    ]
    write_config(tmp_path, servers, [{"tool_calls": calls}, "Done."])
    ran = dial_chat(tmp_path, "-y", "--output", "json", "Say hi")
    turn = json.loads(ran.stdout)
    assert (turn["text"], turn["stop_reason"], ran.returncode) == ("Done.", "answered", 0)
    results = {call["name"]: call["is_error"] for call in turn["tool_calls"]}
    assert results == {"good__echo": False, "dying__echo": True, "garbling__echo": False}
    for name in ("missing", "hanging", "dying", "garbling", "exiting"):
        assert f"server '{name}'" in ran.stderr
        assert any(f"server '{name}'" in note for note in turn["notes"])
    assert "'good'" not in ran.stderr


def test_escape_sequences_are_removed_from_foreign_text(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jhello\u202e"
    call = {"tool_calls": [{"name": f"x{evil}", "arguments": {evil: evil}}]}
    write_config(tmp_path, {}, [call, {"text": evil, "chunk_size": 1}])
    ran = dial_chat(tmp_path, "Say hi")
    assert ran.stdout == "hello\n"
    assert "\x1b" not in ran.stderr
    assert "\u202e" not in ran.stderr


def test_verbose_prints_actions_and_no_content(folder: Path) -> None:
    ran = dial_chat(folder, "--debug", "--output", "json", "A secret question")
    for event in ("server_ready", "model_request", "tool_call", "turn"):
        assert event in ran.stderr
    assert "secret" not in ran.stderr
    assert json.loads(ran.stdout)["text"] == "It said hi."


@pytest.mark.parametrize(
    "words", [("what", "time", "is", "it"), ("-p", "what time is it"), ("--print", "what", "time", "is it")]
)
def test_words_without_quotes_are_one_question(folder: Path, words: tuple[str, ...]) -> None:
    ran = dial_chat(folder, "--json", *words)
    assert json.loads(ran.stdout)["messages"][0]["content"] == "what time is it"


def test_a_misspelled_command_is_not_sent_unless_it_is_marked_as_a_question(folder: Path) -> None:
    for words in (["modles"], ["modles", "list"]):
        ran = dial_chat(folder, *words)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert f"did you mean: dial-chat {' '.join(['models', *words[1:]])};" in ran.stderr.replace("\n", " ")
    assert dial_chat(folder, "-p", "modles").stdout == "It said hi.\n"
    assert dial_chat(folder, "-p", "tools").stdout == "It said hi.\n"


def test_the_option_print_needs_a_question(folder: Path) -> None:
    ran = dial_chat(folder, "-p")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "dial-chat" in ran.stderr


def test_an_option_of_another_program_is_answered_with_what_to_type(folder: Path) -> None:
    ran = dial_chat(folder, "--dangerously-skip-permissions", "Say hi")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.endswith("--dangerously-skip-permissions is not an option here; type -y\n")


PRESS = """
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("press")


@server.tool()
async def print_book() -> str:
    while not Path(sys.argv[1]).exists():
        await anyio.sleep(0.01)
    return "120 pages"


server.run("stdio")
"""
BOOK = [{"tool_calls": [{"name": "print_book", "arguments": {}}]}, "It is being printed.", "It has 120 pages."]
AWAITED = "dial-chat: waiting for print_book, which runs in the background; Ctrl-C stops it"


@pytest.fixture
def press(tmp_path: Path) -> Path:
    """A folder whose server has a call that goes to the background, and ends once there is the file `printed`."""
    (tmp_path / "book_press.py").write_text(PRESS)
    settings = {"autoApprove": ["*"], "backgroundAfter": 0}
    write_config(
        tmp_path, {"press": python_server(tmp_path / "book_press.py", str(tmp_path / "printed"), **settings)}, BOOK
    )
    return tmp_path


def ask_press(
    press: Path, *words: str, end: Callable[[subprocess.Popen[str]], object] | None = None
) -> tuple[str, list[str], int]:
    """Ask a question, and once the program waits let the book be printed, or call `end`; return what was printed."""
    with started(press, *words, "Print it") as asked:
        assert asked.stderr is not None
        lines = [*takewhile(lambda line: line != f"{AWAITED}\n", asked.stderr)]
        (press / "printed").touch() if end is None else end(asked)
        out, err = asked.communicate(timeout=LONG)
    return out, [*(line.rstrip() for line in lines), *err.splitlines()], asked.returncode


def test_a_question_waits_for_its_calls_in_the_background_and_only_the_answer_is_on_standard_output(
    press: Path,
) -> None:
    out, err, code = ask_press(press)
    assert (out, code) == ("It has 120 pages.\n", 0), err
    assert err[-2:] == ["It is being printed.", "✓ print_book(…): 120 pages"], "the text before it is not the answer"


def test_the_json_of_a_question_is_that_of_the_whole_turn(press: Path) -> None:
    out, _, code = ask_press(press, "--output", "json")
    answer = json.loads(out)
    assert (answer["text"], answer["stop_reason"], code) == ("It has 120 pages.", "answered", 0)
    assert [message["role"] for message in answer["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


@needs_front_ends
@pytest.mark.parametrize("form", ["ai-sdk", "ag-ui"])
def test_the_clients_of_other_front_ends_read_the_answer_after_the_wait(press: Path, form: str) -> None:
    out, _, code = ask_press(press, "--output", form)
    read = read_printed(out, is_ag_ui=form == "ag-ui")
    answer = read["messages"][-1]
    assert code == 0
    assert (answer["content"] if form == "ag-ui" else answer["parts"][-1]["text"]) == "It has 120 pages."


def test_a_question_waits_no_longer_than_its_timeout(press: Path) -> None:
    replies = [*BOOK[:2], "It was not printed in time."]
    (press / "replies.json").write_text(json.dumps(replies))
    ended = dial_chat(press, "--timeout", "4", "Print it")
    assert ended.stdout == "It was not printed in time.\n"
    assert AWAITED in ended.stderr.splitlines()
    assert "dial-chat: the call of 'print_book' was stopped in the background: the time was over" in ended.stderr
    assert ended.returncode == 4


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals of this kind")
def test_whoever_does_not_want_to_wait_for_the_background_leaves_with_ctrl_c(press: Path) -> None:
    out, err, code = ask_press(press, end=lambda asked: asked.send_signal(signal.SIGINT))
    assert (out, code) == ("It is being printed.\n", 130)
    assert err[-1] == "dial-chat: the call of 'print_book' was stopped in the background when the turn ended"
