"""Reads a profile of ``models`` as `ModelSettings`: the keys, and the flags for differences between endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dial_client.model import ToolFormat
from dial_client.settings.config_types import ModelSettings, Wire
from dial_client.settings.config_values import COMMENTS, check_name, read_headers, read_line, read_object, read_url
from dial_client.settings.jsonc import Node, one_of
from dial_client.settings.variables import Variables
from dial_client.text.similar_names import did_you_mean


def read_model(name: str, node: Node, variables: Variables) -> ModelSettings:
    """Read one profile; its variables are expanded.

    Raises:
        ConfigError: The profile is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    found, unknown = node.known(MODEL_KEYS, {})
    for key, child in unknown.items():
        if not key.startswith(COMMENTS):
            raise child.error("unknown setting of a model", did_you_mean(key, MODEL_KEYS), at_name=True)
    values = {key: MODEL_KEYS[key](variables.expanded(child)) for key, child in found.items()}
    quirks = {key: values.pop(key) for key in QUIRKS if key in values}
    return ModelSettings(name, quirks=quirks, **({"model": name} | values))


def _tool_list(node: Node) -> tuple[str | dict[str, Any], ...]:
    return tuple(read_object(tool) if isinstance(tool.value, dict) else tool.string() for tool in node.elements())


def _pattern(node: Node) -> str:
    try:
        re.compile(node.string())
    except (re.error, OverflowError, RecursionError):
        raise node.error("expected a regular expression") from None
    return node.string()


def _words(*words: str) -> Callable[[Node], str]:
    return one_of({word: word for word in words})


QUIRKS: Mapping[str, Callable[[Node], Any]] = {
    "tools": _words("native", "text"),
    "tool_content": _words("str", "parts"),
    "tool_name_re": _pattern,
    "tool_name_len": Node.count,
    "schema_dialect": _words("full", "openai", "gemini"),
    "parallel": _words("omit", "send_true", "false"),
    "constrain": _words("none", "grammar", "structured_outputs", "response_format"),
    "structured_output": _words("none", "without_tools", "with_tools"),
    "max_tokens_field": _words("max_tokens", "max_completion_tokens"),
    "reasoning_in": Node.strings,
    "reasoning_field": Node.string,
    "echo_reasoning": _words("none", "tool_turns", "always"),
    "idle_timeout": Node.positive,
    "key_header": Node.string,
    "api_version": Node.string,
    "headers": read_headers,
    "extra_body": read_object,
    "server_tools": _tool_list,
    **dict.fromkeys(
        ("documents", "echo_call_extra", "fenced_calls", "forced_choice", "images", "prompt_cache"), Node.boolean
    ),
    **dict.fromkeys(("sampling", "short_ids", "stream_usage", "strict", "tool_search"), Node.boolean),
    **dict.fromkeys(("tool_choice", "user_after_tool"), Node.boolean),
}
"""The flags for differences from OpenAI's Chat Completions, each with the reader of its value."""

MODEL_KEYS: Mapping[str, Callable[[Node], Any]] = {
    "preset": Node.string,
    "wire": one_of({wire: wire for wire in Wire}),
    "base_url": read_url,
    "model": Node.string,
    "api_key": read_line,
    "tool_format": one_of({**{kind: kind for kind in ToolFormat}, "auto": None}),
    "temperature": Node.number,
    "fallback_models": Node.strings,
    **dict.fromkeys(("max_tokens", "context_window"), Node.count),
    **QUIRKS,
}
