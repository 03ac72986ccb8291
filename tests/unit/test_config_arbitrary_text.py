"""Any content of a configuration file gives settings, or a ConfigError with a place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import ConfigError, ServerSettings, Settings, parse, read_server_mapping
from tests.support.config_files import CLAUDE_CODE, CLINE, CURSOR, GEMINI, VS_CODE

KEYS = st.sampled_from(
    [
        *("command", "args", "env", "envFile", "cwd", "url", "httpUrl", "headers", "type", "transport", "disabled"),
        *("enabled", "autoApprove", "alwaysAllow", "enabledTools", "timeout", "toolTimeout", "startupTimeout", "wire"),
        *("protocol", "required", "trusted", "base_url", "api_key", "tool_format", "temperature", "tool_name_re"),
        *("mcpServers", "servers", "models", "defaultModel", "inputs", "reasoning_in", "parallel", "strict"),
    ]
)
WORDS = st.sampled_from(
    [
        *("x", "http://h/sse", "https://[", "http", "sse", "stdio", "${A}", "${B:-x}", "${userHome}", "${", "~/x", "~"),
        *("chat", "auto", "legacy", "native", "(", "a\0b", "a\nb", "", "..", "/"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)


def settings_or_config_error(text: str | bytes) -> None:
    try:
        assert isinstance(parse(text, path="servers.json", folder="/conf", environ={"A": "a\n"}), Settings)
    except ConfigError as error:
        assert error.path
        assert error.line >= 1
        assert error.column >= 1


@given(st.text() | st.binary())
@settings(deadline=None)
def test_any_text_and_any_bytes_give_settings_or_a_config_error(text: str | bytes) -> None:
    settings_or_config_error(text)


@given(st.sampled_from(["mcpServers", "servers", "models", "defaultModel", "other"]), VALUES)
@settings(max_examples=150, deadline=None)
def test_any_json_under_the_top_key_gives_settings_or_a_config_error(key: str, value: Any) -> None:
    settings_or_config_error(json.dumps({key: value}))
    settings_or_config_error(json.dumps({key: {"name": value}}))


@given(st.dictionaries(KEYS, VALUES, max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_entry_gives_settings_or_a_config_error(entry: dict[str, Any]) -> None:
    settings_or_config_error(json.dumps({"mcpServers": {"a": entry}, "models": {"m": entry}}))
    settings_or_config_error(json.dumps({"mcpServers": {"a": {"command": "x"} | entry}}))
    try:
        assert isinstance(read_server_mapping("a", entry, environ={}), ServerSettings)
    except ConfigError as error:
        assert error.problem.startswith("a")


@given(st.sampled_from([CLAUDE_CODE, VS_CODE, CURSOR, CLINE, GEMINI]), st.data())
@settings(max_examples=150, deadline=None)
def test_a_valid_file_with_a_mistake_gives_settings_or_a_config_error(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 10)))
    settings_or_config_error(text[:begin] + data.draw(st.text(max_size=3) | WORDS) + text[end:])
