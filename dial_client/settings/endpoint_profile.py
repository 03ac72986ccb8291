"""The flags that say how an endpoint deviates from its API: defaults, then presets, then the user's own flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dial_client.messages.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EndpointProfile:
    """The flags of an endpoint. The defaults suit most endpoints with OpenAI's Chat Completions API."""

    tools: str = ""
    """``native``: use the API's own tool calls, even if the endpoint says that it has none; ``text``: use tool calls as
    text; empty for the default."""
    fenced_calls: bool = False
    """A code fence with a call, at the end of a reply, is a tool call: models on local servers write calls so."""
    tool_name_re: str = ""
    """A regular expression that must match a tool's whole name; names that do not match are mapped to new names."""
    tool_name_len: int = 64
    """The most characters of a tool's name; longer names are mapped to new names."""
    schema_dialect: str = "full"
    """How much of JSON Schema a tool's parameters may use: ``full``, ``openai`` or ``gemini`` (`provider_schema`)."""
    key_header: str = "authorization"
    """The header that carries the key: ``authorization`` (as ``Bearer KEY``), or another header (the key alone)."""
    api_version: str = ""
    """The version of the API: sent in a header in the Messages API, in the query string in the others."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Additional headers of every request."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of every request's body."""
    idle_timeout: float = 120.0
    """The longest time between two reads of a stream, in seconds."""
    max_tokens: int | None = None
    """The most tokens of a reply if no other limit is set. The Messages API requires a limit."""
    max_tokens_field: str = "max_tokens"
    """The field for the limit of a reply's tokens in chat completions; empty if the endpoint accepts no limit."""
    sampling: bool = True
    """The endpoint accepts a temperature."""
    stream_usage: bool = True
    """The endpoint reports usage in a stream on request (``stream_options``)."""
    parallel: str = "omit"
    """The field ``parallel_tool_calls``: ``omit``, ``send_true`` (llama.cpp needs it), or ``false``."""
    tool_choice: bool = True
    """The endpoint obeys ``tool_choice``; if not, a request for a reply without calls offers no tools."""
    forced_choice: bool = True
    """The endpoint accepts a ``tool_choice`` that forces a call; if not, the model chooses whether to call a tool."""
    prompt_cache: bool = False
    """The endpoint caches the beginning of the conversation on request (Anthropic's ``cache_control``)."""
    images: bool = True
    """The model accepts images; if not, images are replaced by descriptions."""
    documents: bool = False
    """The endpoint accepts PDF documents; if not, documents are replaced by descriptions."""
    user_after_tool: bool = True
    """A user message may directly follow a tool message; if not, a placeholder is sent between the two."""
    short_ids: bool = False
    """Ids of calls must be nine letters and digits (Mistral)."""
    tool_search: bool = False
    """The endpoint itself searches the tools with ``defer_loading`` (Responses and Messages only)."""
    strict: bool = False
    """The endpoint makes calls conform to their schemas (strict mode); the schemas are written for strict mode."""
    tool_content: str = "str"
    """The form of a tool message's content: ``str`` or ``parts``."""
    constrain: str = "none"
    """The field that constrains replies: ``grammar`` (llama.cpp) or ``structured_outputs`` (vLLM) for a GBNF grammar,
    ``response_format`` (Ollama and most others) for a JSON Schema, or ``none``."""
    structured_output: str = "none"
    """Whether the endpoint makes answers conform to a JSON Schema: ``none``, ``without_tools`` (in requests without
    tools) or ``with_tools`` (in all requests)."""
    reasoning_in: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The fields that may contain the model's reasoning."""
    echo_reasoning: str = "tool_turns"
    """The assistant messages whose reasoning is sent back: ``none``, those with tool calls (``tool_turns``), or all
    (``always``)."""
    reasoning_field: str = ""
    """The field for reasoning that every assistant message with calls must have, even if it is empty (DeepSeek)."""
    echo_call_extra: bool = True
    """The signed fields of a call are sent back (Gemini's thought signatures)."""
    unsigned_call: Mapping[str, Any] = field(default_factory=dict)
    """Fields to add to the first call of a message that the endpoint did not sign, such as another model's (Gemini)."""
    server_tools: tuple[str | Mapping[str, Any], ...] = ()
    """Tools that the endpoint runs itself: names of `server_tools`, or definitions that are sent unchanged."""

    def get_parser_flags(self) -> dict[str, Any]:
        """Return the flags that affect the parsing of responses, without those that have their default value."""
        flags = {
            "fenced_calls": self.fenced_calls,
            "reasoning_in": self.reasoning_in,
            "tool_name_re": self.tool_name_re,
            "tool_name_len": self.tool_name_len,
        }
        return {name: value for name, value in flags.items() if value != _DEFAULTS[name]}


_DEFAULTS: Mapping[str, Any] = {flag.name: flag.default for flag in fields(EndpointProfile)}
CHAT = EndpointProfile()
OLLAMA = EndpointProfile(
    tool_choice=False,
    idle_timeout=600.0,
    constrain="response_format",
    fenced_calls=True,
    structured_output="without_tools",
)
OPENAI = EndpointProfile(max_tokens_field="max_completion_tokens", documents=True, structured_output="with_tools")
DIAL = EndpointProfile(key_header="api-key", api_version="2025-04-01-preview")
NEWEST_MESSAGES_VERSION = "2026-10-21"
"""The ``anthropic-version`` to send: the newest of https://platform.claude.com/docs/en/api/versioning, which the SDK
``anthropic`` 2.12 sends too. Gateways may not know it yet."""
OLDER_MESSAGES_VERSION = "2023-06-01"
"""The previous ``anthropic-version``, which every endpoint of the Messages API knows."""
ANTHROPIC = EndpointProfile(
    api_version=NEWEST_MESSAGES_VERSION,
    max_tokens=16_384,
    sampling=False,
    prompt_cache=True,
    documents=True,
    tool_search=True,
    structured_output="with_tools",
)
MESSAGES = EndpointProfile(api_version=NEWEST_MESSAGES_VERSION, max_tokens=8_192, documents=True)


def apply_quirks(profile: EndpointProfile, quirks: Mapping[str, Any], where: str) -> EndpointProfile:
    """Return the profile with the user's flags applied to it.

    Args:
        profile: The known flags of the endpoint.
        quirks: The user's flags by name, which is a field of `EndpointProfile`.
        where: The setting that an error names: ``models.NAME``.

    Raises:
        ConfigError: There is no such flag, or it cannot have this value.
    """
    flag_names = [flag.name for flag in fields(EndpointProfile)]
    for name, value in quirks.items():
        if name not in flag_names:
            from difflib import get_close_matches

            similar = get_close_matches(name, flag_names, n=1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"the flags are {', '.join(flag_names)}"
            raise ConfigError(f"{where}: there is no flag {name!r}", hint=hint)
        if not is_valid_flag(name, value):
            expected = _CHOICES.get(name) or (type(_DEFAULTS[name]).__name__,)
            raise ConfigError(f"{where}.{name}: invalid value", hint=f"expected {' or '.join(expected)}")
    lists = {name: tuple(value) for name, value in quirks.items() if isinstance(value, list)}
    return replace(profile, **(dict(quirks) | lists))


_MIN_NAME_LENGTH = 16
"""The lowest `tool_name_len`. Shorter names would leave no room for a hash that makes them unique."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "tools": ("native", "text"),
    "schema_dialect": ("full", "openai", "gemini"),
    "tool_name_len": (f"a number from {_MIN_NAME_LENGTH} to 128",),
    "tool_name_re": ("a regular expression",),
    "parallel": ("omit", "send_true", "false"),
    "tool_content": ("str", "parts"),
    "constrain": ("none", "grammar", "structured_outputs", "response_format"),
    "structured_output": ("none", "without_tools", "with_tools"),
    "echo_reasoning": ("none", "tool_turns", "always"),
    "max_tokens_field": ("max_tokens", "max_completion_tokens"),
    "max_tokens": ("a number above 0",),
    "idle_timeout": ("seconds above 0",),
    "reasoning_in": ("a list of fields' names",),
    "server_tools": ("a list of names of tools, or of their definitions",),
}


def is_valid_flag(name: str, value: Any) -> bool:
    """Return True if the value is valid for the flag."""
    match name:
        case "max_tokens":
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case "idle_timeout":
            return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        case "reasoning_in" | "server_tools":
            kinds = str if name == "reasoning_in" else str | Mapping
            return isinstance(value, list | tuple) and all(isinstance(item, kinds) for item in value)
        case "headers":
            return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())
        case "extra_body" | "unsigned_call":
            return isinstance(value, Mapping)
        case "tool_name_len":
            return isinstance(value, int) and not isinstance(value, bool) and _MIN_NAME_LENGTH <= value <= 128
        case "tool_name_re":
            return isinstance(value, str) and _is_pattern(value)
        case "tools" | "schema_dialect" | "parallel" | "tool_content" | "echo_reasoning" | "max_tokens_field":
            return value in _CHOICES[name]
        case "constrain" | "structured_output":
            return value in _CHOICES[name]
    return isinstance(value, type(_DEFAULTS[name]))


def _is_pattern(value: str) -> bool:
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
