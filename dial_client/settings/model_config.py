"""Reads a profile of ``models`` as `ModelProfile`: the keys, and the flags for differences between endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dial_client.messages.model import ToolFormat
from dial_client.runtime.text import did_you_mean
from dial_client.settings.config_types import Api, ModelProfile
from dial_client.settings.config_values import COMMENTS, check_name, read_headers, read_line, read_object, read_url
from dial_client.settings.jsonc import Node, build_choice_reader
from dial_client.settings.variables import Variables


def read_model(name: str, node: Node, variables: Variables) -> ModelProfile:
    """Read one profile; its variables are expanded.

    Raises:
        ConfigError: The profile is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    found, unknown = node.split_members(MODEL_KEYS, MODEL_ALIASES)
    for key, child in unknown.items():
        if not key.startswith(COMMENTS):
            raise child.build_error("unknown setting of a model", did_you_mean(key, MODEL_KEYS), at_name=True)
    values = {key: MODEL_KEYS[key](variables.expand(child)) for key, child in found.items()}
    quirks = {key: values.pop(key) for key in QUIRKS if key in values}
    return ModelProfile(name, quirks=quirks, **({"model": name} | values))


def _read_tool_list(node: Node) -> tuple[str | dict[str, Any], ...]:
    return tuple(
        read_object(tool) if isinstance(tool.value, dict) else tool.read_string() for tool in node.read_elements()
    )


def _read_pattern(node: Node) -> str:
    try:
        re.compile(node.read_string())
    except (re.error, OverflowError, RecursionError):
        raise node.build_error("expected a regular expression") from None
    return node.read_string()


def _build_word_reader(*words: str) -> Callable[[Node], str]:
    return build_choice_reader({word: word for word in words})


QUIRKS: Mapping[str, Callable[[Node], Any]] = {
    "tools": _build_word_reader("native", "text"),
    "tool_content": _build_word_reader("str", "parts"),
    "tool_name_re": _read_pattern,
    "tool_name_len": Node.read_count,
    "schema_dialect": _build_word_reader("full", "openai", "gemini"),
    "parallel": _build_word_reader("omit", "send_true", "false"),
    "constrain": _build_word_reader("none", "grammar", "structured_outputs", "response_format"),
    "structured_output": _build_word_reader("none", "without_tools", "with_tools"),
    "max_tokens_field": _build_word_reader("max_tokens", "max_completion_tokens"),
    "reasoning_in": Node.read_strings,
    "reasoning_field": Node.read_string,
    "echo_reasoning": _build_word_reader("none", "tool_turns", "always"),
    "idle_timeout": Node.read_positive,
    "key_header": Node.read_string,
    "api_version": Node.read_string,
    "headers": read_headers,
    "extra_body": read_object,
    "server_tools": _read_tool_list,
    **dict.fromkeys(
        ("documents", "echo_call_extra", "fenced_calls", "forced_choice", "images", "prompt_cache"), Node.read_boolean
    ),
    **dict.fromkeys(("sampling", "short_ids", "stream_usage", "strict", "tool_search"), Node.read_boolean),
    **dict.fromkeys(("tool_choice", "user_after_tool"), Node.read_boolean),
}
"""The flags for differences from OpenAI's Chat Completions, each with the reader of its value."""

MODEL_KEYS: Mapping[str, Callable[[Node], Any]] = {
    "preset": Node.read_string,
    "api": build_choice_reader({api: api for api in Api}),
    "base_url": read_url,
    "model": Node.read_string,
    "api_key": read_line,
    "tool_format": build_choice_reader({**{kind: kind for kind in ToolFormat}, "auto": None}),
    "temperature": Node.read_number,
    "fallback_models": Node.read_strings,
    **dict.fromkeys(("max_tokens", "context_window"), Node.read_count),
    **QUIRKS,
}
MODEL_ALIASES = {"wire": "api"}
"""Former names of keys, which existing files use."""
