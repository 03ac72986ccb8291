"""The code and the configurations of the documentation work."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.inner import FLAGS, MODEL_KEYS, SERVER_ALIASES, SERVER_KEYS, configuration, jsonc, open_provider
from tests.support.program import dial_chat, run_example, write_config

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "configuration.md"]
TIME = {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "autoApprove": ["*"]}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def clock(zone: str) -> dict[str, object]:
    return {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": zone}}]}


def test_the_example_of_the_readme_runs_unchanged(tmp_path: Path) -> None:
    [example] = blocks(ROOT / "README.md", "python")
    assert len([line for line in example.splitlines() if line]) <= 10
    write_config(tmp_path, {"time": TIME}, [clock("Asia/Tokyo"), "It is late in Tokyo."])
    ran = run_example(tmp_path, example)
    assert (ran.stdout, ran.stderr) == ("It is late in Tokyo. ['get_current_time']\n", "")


def test_the_example_of_conversations_runs_unchanged(tmp_path: Path) -> None:
    chat_loop, example, *_ = blocks(ROOT / "docs" / "conversations.md", "python")
    assert run_example(tmp_path, chat_loop).stdout == "Hello, Ada.\nYou are Ada. 4\n"
    (tmp_path / "talk.db").unlink()
    write_config(tmp_path, {}, ["It is noon.", "It is early."])
    ran = run_example(tmp_path, example)
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[1]) == ("It is noon.", "1 RoundStarted")
    assert "# What time is it in Tokyo?" in lines
    assert lines[-1] == "['What time is it in Tokyo?', 'What time is it in Tokyo?']"


EXAMPLES_IN = (
    "audit.md",
    "code-mode.md",
    "errors.md",
    "events.md",
    "extending.md",
    "functions.md",
    "library.md",
    "memory.md",
    "messages.md",
    "middleware.md",
    "testing.md",
    "traces.md",
    "turns.md",
    "typed-answers.md",
    "users.md",
)
EXAMPLES = [block for name in EXAMPLES_IN for block in blocks(ROOT / "docs" / name, "python")]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_of_reference_pages_run_unchanged(example: str, tmp_path: Path) -> None:
    ran = run_example(tmp_path, example)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, re.findall("# prints: (.*)", example)), ran.stderr


CALL = {"tool_calls": [{"name": "count_words", "arguments": {"text": "to be or not to be"}}]}
STOCK = {"tool_calls": [{"name": "stock", "arguments": {"article": "tea"}}]}
ORDER = '{"article": "tea", "count": 3}'
PROGRAMS: list[tuple[str, int, list[object], list[str]]] = [
    (
        "start-library.md",
        0,
        [clock("Asia/Tokyo"), "Noon."],
        [
            "tools: convert_time, get_current_time",
            "answer: Noon.",
            "call: time get_current_time {'timezone': 'Asia/Tokyo'}",
        ],
    ),
    ("start-library.md", 1, [clock("Asia/Tokyo"), "Noon."], ["[time: get_current_time]", "[done]", "Noon."]),
    ("start-library.md", 2, [CALL, "Six."], ["Six."]),
    ("start-library.md", 3, ['{"name": "Tokyo", "country": "Japan"}'], ["Tokyo Japan"]),
    ("start-library.md", 4, ["Hello, Ada.", "Ada."], ["Hello, Ada.", "Ada."]),
    ("conversations.md", 2, [], ["Hello, Ann.", "['Trip'] ()", "not found", "{'project': 8}"]),
    ("conversations.md", -1, [], ["Numbers: 3 messages None", "['Count to three.', 'One, two,', ' three.']"]),
    (
        "resources-and-prompts.md",
        1,
        [],
        ["docs://guide docs://pages/{name}", "Begin with a plan. ()", "Review a.py.", "docs://guide"],
    ),
    ("elicitation-sampling-roots.md", 0, [], ["True", "shop asks: How many packets of tea?", "3 packets"]),
    ("elicitation-sampling-roots.md", 1, [], ["shop ('restock',)", "True"]),
    ("durable.md", 0, [clock("Asia/Tokyo"), "Noon."], ["Noon."]),
    ("migrate-openai-agents.md", 0, [clock("Asia/Tokyo"), "Noon."], ["Noon."]),
    ("migrate-openai-agents.md", 1, [STOCK, ORDER], ["called", "3"]),
    ("migrate-pydantic-ai.md", 0, [clock("Asia/Tokyo"), "Noon."], ["Noon."]),
    ("migrate-pydantic-ai.md", 1, [STOCK, ORDER], ["3"]),
    ("migrate-mcp-use.md", 0, [clock("Asia/Tokyo"), "Noon."], ["Noon."]),
    ("migrate-mcp-use.md", 1, [], ["True"]),
]
"""Programs of pages that use a servers.json: page, number of the code block, replies, printed lines."""


@pytest.mark.once
@pytest.mark.parametrize(
    ("page", "number", "replies", "printed"), PROGRAMS, ids=[f"{page}-{number}" for page, number, *_ in PROGRAMS]
)
def test_programs_that_use_a_configuration_file_run_unchanged(
    page: str, number: int, replies: list[object], printed: list[str], tmp_path: Path
) -> None:
    example = blocks(ROOT / "docs" / page, "python")[number]
    example = example.replace('"openai:gpt-6-luna"', '"scripted:replies.json"')
    write_config(tmp_path, {"time": TIME}, replies)
    ran = run_example(tmp_path, example)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, printed), ran.stderr


def test_every_program_of_the_first_steps_is_run() -> None:
    count = len(blocks(ROOT / "docs" / "start-library.md", "python"))
    assert [number for page, number, *_ in PROGRAMS if page == "start-library.md"] == list(range(count))


@pytest.mark.once
def test_the_fastapi_applications_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    stream, conversations, _ = blocks(ROOT / "docs" / "fastapi.md", "python")
    write_config(tmp_path, {}, ["It is noon.", "It is early."])
    monkeypatch.chdir(tmp_path)
    answers = []
    for number, code in enumerate((stream, conversations)):
        (tmp_path / f"app_{number}.py").write_text(code, encoding="utf-8")
        with testclient.TestClient(runpy.run_path(f"app_{number}.py")["app"]) as browser:
            if number:
                path = f"/conversations/{browser.post('/conversations').json()['id']}"
                answers.append(browser.post(f"{path}/messages", json={"text": "What time is it?"}).json())
                answers.append(browser.post(f"{path}/stream", json={"text": "And now?"}).text)
            else:
                answers.append(browser.post("/chat", json={"question": "What time is it?"}).text)
    assert "noon" in answers[0]
    assert answers[1] == {"text": "It is noon.", "stop_reason": "answered"}
    assert "early" in answers[2]


@pytest.mark.once
def test_the_fastapi_application_with_the_page_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    write_config(tmp_path, {}, ["It is noon."])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(blocks(ROOT / "docs" / "fastapi.md", "python")[2], encoding="utf-8")
    program = runpy.run_path("app.py")
    headers = {"Authorization": f"Bearer {program['TOKEN']}"}
    with testclient.TestClient(program["app"], base_url="http://127.0.0.1", headers=headers) as browser:
        assert "<title>dial-chat</title>" in browser.get("/assistant").text
        path = f"/assistant/conversations/{browser.post('/assistant/conversations').json()['id']}"
        assert browser.post(f"{path}/chat", json={"text": "Now?", "stream": False}).json()["text"] == "It is noon."


FIRST_STEPS = (
    ("init", "--yes", "--model", "local", "--server", "time"),
    ("servers",),
    ("tools",),
    ("call", "time/get_current_time", "timezone=Asia/Tokyo"),
)


@pytest.mark.once
def test_the_first_steps_work_in_an_empty_folder(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "start-terminal.md").read_text(encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in page.splitlines() if line.startswith("dial-chat ")]
    assert [list(words) for words in FIRST_STEPS] == commands[: len(FIRST_STEPS)]
    printed = [dial_chat(tmp_path, *words) for words in FIRST_STEPS]
    assert [ran.returncode for ran in printed] == [0] * len(FIRST_STEPS), [ran.stderr for ran in printed]
    assert printed[1].stdout.startswith("time: ready")
    [shown] = blocks(ROOT / "docs" / "start-terminal.md", "json")
    assert jsonc.read((tmp_path / "servers.json").read_text(encoding="utf-8")).value == json.loads(shown)


def test_every_configuration_in_the_documentation_is_valid() -> None:
    shown = [(path.name, text) for path in DOCUMENTS for text in blocks(path, "json") if "mcpServers" in text]
    for name, text in shown:
        settings = configuration.parse(text, environ={"DOCS_TOKEN": "t", "GITHUB_TOKEN": "t"})
        assert settings.warnings == (), f"{name}: {text}"
    assert "README.md" in dict(shown)


def test_the_documented_scripted_replies_work(tmp_path: Path) -> None:
    [shown] = [text for text in blocks(ROOT / "docs" / "configuration.md", "json") if "replies" in text]
    write_config(tmp_path, {"time": TIME}, json.loads(shown))
    ran = dial_chat(tmp_path, "--no-save", "What time is it in Tokyo?")
    assert (ran.returncode, ran.stdout) == (0, "It is noon in Tokyo.\n")


def test_the_documented_keys_are_the_keys_that_are_read() -> None:
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("configuration.md", "models.md"))
    known = {*SERVER_KEYS, *SERVER_ALIASES, *MODEL_KEYS} - {"startup_timeout_sec", "tool_timeout_sec"}
    assert [key for key in sorted(known) if f"`{key}`" not in text] == []


def test_every_documented_flag_of_an_endpoint_can_be_set() -> None:
    flags = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").partition("## Flags")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", flags, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall("`([^`]+)`", row)) == sorted(FLAGS)


def test_the_documented_profiles_can_be_opened(tmp_path: Path) -> None:
    environ = {"GROQ_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    opened = [
        open_provider(name, models=models, environ=environ).info.name
        for shown in blocks(ROOT / "docs" / "models.md", "json")
        for models in [configuration.parse(shown, environ=environ).models]
        for name in models
    ]
    assert opened == [
        "chat:openai/gpt-oss-120b@api.groq.com",
        "chat:qwen3@10.0.0.7:8080",
        "messages:claude-sonnet-5-5@api.anthropic.com",
        "responses:gpt-6-luna@api.openai.com",
    ]


def test_the_servers_json_of_the_repository_is_valid() -> None:
    assert sorted(configuration.load_config(ROOT / "servers.json").servers) == ["git", "time"]


def test_every_option_of_the_program_is_in_its_help_and_every_command_in_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    help_text = dial_chat(tmp_path, "--help").stdout
    for command in ("tools", "servers", "call", "conversations"):
        assert f"dial-chat {command}" in readme
        assert command in help_text
