"""`servers.json`: the places where it is searched, and the meaning of its keys."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    FLAGS,
    Api,
    ConfigError,
    ModelProfile,
    ModelSettings,
    Protocol,
    ServerSettings,
    Settings,
    ToolFormat,
    Transport,
    find_config,
    load_config,
    parse,
)
from tests.support.config_files import RUN, server


def test_the_example_of_the_contract_is_read() -> None:
    text = """{
      "mcpServers": {
        "time": {"command": "mcp-server-time", "args": ["--local-timezone", "${TZ:-UTC}"], "autoApprove": ["*"]},
        "docs": {"url": "https://example.test/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}},
        "old": {"url": "https://example.test/sse", "type": "sse", "disabled": true}
      },
      "models": {
        "qwen": {"api": "chat", "base_url": "http://127.0.0.1:11434/v1", "model": "qwen3.5",
                 "api_key": "${QWEN_KEY:-none}"}
      },
      "defaultModel": "qwen"
    }"""
    assert parse(text, path="servers.json", environ={"DOCS_TOKEN": "abc"}) == Settings(
        servers={
            "time": ServerSettings(
                "time",
                Transport.STDIO,
                command="mcp-server-time",
                args=("--local-timezone", "UTC"),
                auto_approve=("*",),
            ),
            "docs": ServerSettings(
                "docs", Transport.HTTP, url="https://example.test/mcp", headers={"Authorization": "Bearer abc"}
            ),
            "old": ServerSettings("old", Transport.SSE, url="https://example.test/sse", enabled=False),
        },
        models={"qwen": ModelProfile("qwen", Api.CHAT, "http://127.0.0.1:11434/v1", "qwen3.5", "none")},
        default_model="qwen",
        path=Path("servers.json"),
    )


ENTRY = '{"command": "x"}'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f'{{"mcpServers": {{"b": {ENTRY}, "a": {ENTRY}}}}}', ["b", "a"]),
        (f'{{"servers": {{"b": {ENTRY}}}, "inputs": []}}', ["b"]),
        (f'{{"b": {ENTRY}, "a": {ENTRY}}}', ["b", "a"]),
        (f'{{"$schema": "…", "_comment": "mine", "//": "mine", "b": {ENTRY}}}', ["b"]),
        (f'{{"theme": "dark", "mcpServers": {{"b": {ENTRY}}}, "model": {{}}}}', ["b"]),
        ('{"models": {}, "defaultModel": "local"}', []),
        ('{"mcpServers": {}}', []),
        ("{}", []),
    ],
)
def test_servers_are_read_from_either_of_two_keys_or_from_the_top_level(text: str, names: list[str]) -> None:
    read = parse(text, environ={})
    assert list(read.servers) == names
    assert read.warnings == ()


HTTP = {"url": "http://h/mcp"}


@pytest.mark.parametrize(
    ("entry", "name", "value"),
    [
        (RUN, "transport", Transport.STDIO),
        (RUN | {"type": "stdio"}, "transport", Transport.STDIO),
        (RUN | {"transport": "stdio"}, "transport", Transport.STDIO),
        (RUN | {"type": "local"}, "transport", Transport.STDIO),
        (RUN | {"url": None}, "transport", Transport.STDIO),
        (HTTP, "transport", Transport.HTTP),
        (HTTP | {"type": "http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "streamable-http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "streamableHttp"}, "transport", Transport.HTTP),
        (HTTP | {"transport": "streamable_http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "http", "transport": "http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "sse"}, "transport", Transport.SSE),
        ({"url": "http://h/sse"}, "transport", Transport.SSE),
        ({"url": "http://h/a/sse/?x=1"}, "transport", Transport.SSE),
        ({"url": "http://h/sse", "type": "http"}, "transport", Transport.HTTP),
        ({"url": "http://sse"}, "transport", Transport.HTTP),
        ({"url": "http://h/mcp?next=/sse"}, "transport", Transport.HTTP),
        ({"url": "http://h/asse"}, "transport", Transport.HTTP),
        ({"httpUrl": "http://h/sse"}, "transport", Transport.HTTP),
        ({"httpUrl": "http://h/mcp"}, "url", "http://h/mcp"),
        ({"url": "HTTPS://user:word@[::1]:8443/ü?a=b#c"}, "url", "HTTPS://user:word@[::1]:8443/ü?a=b#c"),
        ({"command": Path("bin") / "x"}, "command", str(Path("bin") / "x")),
        (RUN | {"args": ["-a", "", "b c"]}, "args", ("-a", "", "b c")),
        (RUN | {"args": ("a",)}, "args", ("a",)),
        (RUN | {"args": None}, "args", ()),
        (
            RUN | {"env": {"A": "x", "B": 1, "C": 1.5, "D": True, "E": None}},
            "env",
            {"A": "x", "B": "1", "C": "1.5", "D": "true"},
        ),
        (RUN | {"cwd": "sub"}, "cwd", str(Path("/conf/sub").absolute())),
        (RUN | {"cwd": "/abs"}, "cwd", str(Path("/conf", "/abs").absolute())),
        (RUN, "cwd", None),
        (HTTP | {"headers": {"X-A": "  b c\t", "X-B": 2, "X-C": None}}, "headers", {"X-A": "b c", "X-B": "2"}),
        (RUN, "enabled", True),
        (RUN | {"disabled": True}, "enabled", False),
        (RUN | {"disabled": False}, "enabled", True),
        (RUN | {"enabled": False}, "enabled", False),
        (RUN | {"enabled": True, "disabled": False}, "enabled", True),
        (RUN | {"autoApprove": ["a", "b*"]}, "auto_approve", ("a", "b*")),
        (RUN | {"alwaysAllow": ["a"]}, "auto_approve", ("a",)),
        (RUN | {"auto_approve": ["a"]}, "auto_approve", ("a",)),
        (RUN | {"autoApprove": ["a"], "alwaysAllow": ["a"]}, "auto_approve", ("a",)),
        (RUN, "enabled_tools", None),
        (RUN | {"enabledTools": []}, "enabled_tools", ()),
        (RUN | {"includeTools": ["a"]}, "enabled_tools", ("a",)),
        (RUN | {"enabled_tools": ["a"]}, "enabled_tools", ("a",)),
        (RUN | {"disabledTools": ["a"]}, "disabled_tools", ("a",)),
        (RUN | {"excludeTools": ["a"]}, "disabled_tools", ("a",)),
        (RUN | {"disabled_tools": ["a"]}, "disabled_tools", ("a",)),
        (RUN, "startup_timeout", 60.0),
        (RUN | {"startupTimeout": 5}, "startup_timeout", 5.0),
        (RUN | {"startup_timeout_sec": 0.5}, "startup_timeout", 0.5),
        (RUN, "tool_timeout", None),
        (RUN | {"toolTimeout": 7.5}, "tool_timeout", 7.5),
        (RUN | {"tool_timeout_sec": 7}, "tool_timeout", 7.0),
        (RUN | {"timeout": 30000}, "tool_timeout", 30.0),
        (RUN | {"timeout": 30000, "toolTimeout": 7}, "tool_timeout", 7.0),
        (RUN, "protocol", Protocol.AUTO),
        (RUN | {"protocol": "legacy"}, "protocol", Protocol.LEGACY),
        (RUN | {"protocol": "2026-07-28"}, "protocol", Protocol.MODERN),
        (RUN, "resources", "user"),
        (RUN | {"resources": "tools"}, "resources", "tools"),
        (RUN | {"required": True}, "required", True),
        (RUN | {"trusted": True}, "trusted", True),
    ],
)
def test_every_key_of_a_server_is_read(entry: dict[str, Any], name: str, value: object) -> None:
    read = server(entry)
    assert getattr(read, name) == value
    assert read.warnings == ()


def test_the_former_name_of_the_api_is_read_without_a_warning() -> None:
    settings = parse('{"models": {"m": {"wire": "responses"}}}', environ={})
    assert (settings.models["m"].api, settings.warnings) == (Api.RESPONSES, ())
    with pytest.raises(ConfigError, match="contradicts api"):
        parse('{"models": {"m": {"api": "chat", "wire": "responses"}}}', environ={})


def test_every_key_of_a_model_is_read_and_has_a_default() -> None:
    text = """{"models": {
      "gpt-6": {},
      "full": {
        "api": "messages", "baseUrl": "https://${H}/v1", "model": "m-${H}", "apiKey": "${K}\\t",
        "tool_format": "react", "temperature": 0, "max_tokens": 10, "top_p": 0.5, "seed": 0, "thinking": "low",
        "contextWindow": 4096, "_comment": "mine",
        "tools": "text", "reasoning_in": ["reasoning", "${H}"], "echo_reasoning": "tool_turns",
        "reasoning_field": "reasoning_content", "idle_timeout": 30, "key_header": "x-key", "api_version": "v1",
        "headers": {"X-A": "${K}"}, "extra_body": {"a": {"b": ["${K}", 1]}}, "images": false, "prompt_cache": true,
        "documents": true, "short_ids": true, "tool_choice": false, "echo_call_extra": true, "tool_content": "str",
        "user_after_tool": false, "forced_choice": false, "fenced_calls": true, "sampling": false, "parallel": false,
        "max_tokens_field": "max_tokens", "stream_usage": true, "tool_name_re": "^[a-z]+$", "tool_name_len": 32,
        "constrain": "grammar", "writes_code": true,
        "structured_output": "without_tools", "server_tools": ["web_search", {"type": "x", "of": ["${K}"]}],
        "prices": {"input": 2, "output": 10, "cached_input": 0.5},
        "schema_dialect": "gemini", "strict": false, "tool_search": true
      },
      "known": {"preset": "${P:-groq}"},
      "auto": {"tool_format": "auto", "api": "${W:-responses}", "api_key": null}
    }}"""
    models = parse(text, environ={"H": "host", "K": "key"}).models
    assert models["gpt-6"] == ModelProfile("gpt-6", model="gpt-6")
    assert models["known"] == ModelProfile("known", model="known", preset="groq")
    assert models["auto"] == ModelProfile("auto", Api.RESPONSES, model="auto", tool_format="auto")
    quirks = dict(models["full"].quirks)
    settings = ModelSettings(temperature=0, max_tokens=10, top_p=0.5, seed=0, thinking="low")
    assert models["full"] == ModelProfile(
        "full", Api.MESSAGES, "https://host/v1", "m-host", "key", ToolFormat.REACT, settings, 4096, quirks
    )
    assert quirks == {
        "tools": "text",
        "reasoning_in": ("reasoning", "host"),
        "echo_reasoning": "tool_turns",
        "reasoning_field": "reasoning_content",
        "idle_timeout": 30.0,
        "key_header": "x-key",
        "api_version": "v1",
        "headers": {"X-A": "key"},
        "extra_body": {"a": {"b": ["key", 1]}},
        "images": False,
        "documents": True,
        "prompt_cache": True,
        "short_ids": True,
        "tool_choice": False,
        "tool_content": "str",
        "parallel": "false",
        "max_tokens_field": "max_tokens",
        "tool_name_re": "^[a-z]+$",
        "tool_name_len": 32,
        "constrain": "grammar",
        "structured_output": "without_tools",
        "server_tools": ("web_search", {"type": "x", "of": ["key"]}),
        "prices": {"input": 2.0, "output": 10.0, "cached_input": 0.5},
        "schema_dialect": "gemini",
        "echo_call_extra": True,
        "user_after_tool": False,
        "fenced_calls": True,
        "writes_code": True,
        "forced_choice": False,
        "sampling": False,
        "stream_usage": True,
        "strict": False,
        "tool_search": True,
    }
    assert quirks.keys() == FLAGS.keys()


@pytest.mark.parametrize(
    ("key", "value", "name", "expected"),
    [
        ("defaultModel", "local", "default_model", "local"),
        ("fallbackModels", ["spare"], "fallback_models", ("spare",)),
        ("startupPatience", 2, "startup_patience", 2.0),
        ("notify", "osc9", "notify", "osc9"),
        ("notify", "none", "notify", "none"),
        ("limits", {"maxDepth": 3, "timeout": "none"}, "limits", {"max_depth": 3, "timeout": math.inf}),
        ("inputs", [{"id": "x"}], "servers", {}),
    ],
)
def test_every_other_key_at_the_top_is_read(key: str, value: Any, name: str, expected: object) -> None:
    settings = parse(json.dumps({key: value}), environ={})
    assert (getattr(settings, name), settings.warnings) == (expected, ())


def test_a_value_of_notify_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="notify"):
        parse('{"notify": "horn"}', environ={})


def test_limits_of_a_profile_replace_those_of_the_file() -> None:
    text = """{"limits": {"maxDepth": 3, "timeout": 9}, "profiles": {
      "long": {"limits": {"timeout": "none"}}, "wrong": {"limits": {"maxDepht": 1}}
    }}"""
    assert parse(text).limits == {"max_depth": 3, "timeout": 9.0}
    assert parse(text, profile="long").limits == {"max_depth": 3, "timeout": math.inf}
    with pytest.raises(ConfigError, match='did you mean "maxDepth"'):
        parse(text, profile="wrong")


def test_unknown_keys_give_one_warning_for_each_entry() -> None:
    text = """{"mcpServers": {
      "time": {"command": "x", "autoAprove": ["*"], "frob": 1},
      "more": {"command": "y", "q1": 1, "q2": 1, "q3": 1, "q4": 1, "q5": 1, "q6": 1},
      "fine": {"command": "z"}
    }}"""
    read = parse(text, path="servers.json", environ={})
    first, second = read.warnings
    assert first == (
        "servers.json:2:32: mcpServers.time.autoAprove: unknown keys have no effect: "
        "'autoAprove' (did you mean \"autoApprove\"?), 'frob'"
    )
    assert second.endswith("unknown keys have no effect: 'q1', 'q2', 'q3', 'q4', 'q5' and 1 more")
    assert read.servers["time"].warnings == (first,)
    assert read.servers["time"].auto_approve == ()


def test_a_misspelt_key_at_the_top_gives_a_warning_and_a_key_of_another_host_none() -> None:
    servers = '"mcpServers": {"time": {"command": "x"}}'
    read = parse(f'{{{servers}, "polcy": [{{"deny": "time/*"}}], "globalShortcut": "x", "defautModel": "m"}}')
    [warning] = read.warnings
    assert warning.endswith(
        "polcy: unknown keys have no effect: "
        "'polcy' (did you mean \"policy\"?), 'defautModel' (did you mean \"defaultModel\"?)"
    )
    assert (
        parse(f'{{{servers}, "globalShortcut": "x", "projects": {{}}, "model": {{}}, "// policy": 1}}').warnings == ()
    )


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "conf" / "servers.json"
    path.parent.mkdir()
    path.write_text('{"t": {"command": "x", "cwd": "work", "args": ["${workspaceFolder}"]}}')
    expected = (str(path.parent / "work"), (str(path.parent),))
    read = load_config(path)
    assert (read.path, read.servers["t"].cwd, read.servers["t"].args) == (path, *expected)
    monkeypatch.chdir(tmp_path)
    read = load_config("conf/servers.json")
    assert (read.path, read.servers["t"].cwd, read.servers["t"].args) == (Path("conf/servers.json"), *expected)


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read: ") as caught:
        load_config(path)
    assert caught.value.path == path


def test_a_named_configuration_file_is_used_and_must_exist(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    assert find_config(str(tmp_path / "mine.json")) == tmp_path / "mine.json"
    with pytest.raises(ConfigError) as caught:
        find_config(str(tmp_path / "missing.json"))
    assert str(caught.value) == f"{tmp_path / 'missing.json'}: there is no such file"
    with pytest.raises(ConfigError):
        find_config("a\0b")


def test_the_current_folder_precedes_the_users_configuration_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import platformdirs

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda name: str(tmp_path / "user" / name))
    assert find_config(None) is None
    own = tmp_path / "user" / "dial-client" / "servers.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert find_config(None) == own
    (tmp_path / "servers.json").write_text("{}")
    assert find_config() == Path("servers.json")


def test_a_start_with_a_known_file_loads_nothing_that_shows_or_compares_changes() -> None:
    names = [
        f"dial_client.{name}"
        for name in ("settings.config_comparison", "cli.trust.trust_summary", "cli.trust.trust_prompt")
    ]
    program = (
        "import sys; import dial_client.cli.load_settings, dial_client.cli.trust.folder_texts; "
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_a_configuration_loads_no_heavy_library() -> None:
    heavy = ["mcp", "openai", "anthropic", "pydantic", "httpx2", "sqlalchemy", "structlog", "anyio", "platformdirs"]
    program = (
        "import sys; from dial_client.settings import configuration as c; c.parse('{}'); "
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
