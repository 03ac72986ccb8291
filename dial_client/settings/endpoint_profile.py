"""The flags that say how an endpoint deviates from its API: defaults, then presets, then the user's own flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import suggest_name
from dial_client.settings.config_values import Node, build_readers, read_headers, read_pattern, read_prices, read_tools


@dataclass(frozen=True, slots=True)
class EndpointProfile:
    """The flags of an endpoint. The defaults suit most endpoints with OpenAI's Chat Completions API."""

    tools: Literal["native", "text"] | None = None
    """``native``: use the API's own tool calls, even if the endpoint says that it has none; ``text``: use tool calls as
    text; None for the default."""
    fenced_calls: bool = False
    """A code fence with a call, at the end of a reply, is a tool call: models on local servers write calls so."""
    writes_code: bool | None = None
    """The model calls tools by programs (code mode) unless a tool format is named, if the extra ``code`` is there.
    None: a large model of `presets.writes_code` does so if the format is ``auto``."""
    tool_name_re: Annotated[str, read_pattern] = ""
    """A regular expression that must match a tool's whole name; names that do not match are mapped to new names."""
    tool_name_len: Annotated[int, (16, 128)] = 64
    """The most characters of a tool's name; longer names are mapped to new names. Less than 16 would leave no room for
    a hash that makes the new names unique."""
    schema_dialect: Literal["full", "openai", "gemini"] = "full"
    """How much of JSON Schema a tool's parameters may use (`provider_schema`)."""
    key_header: str = "authorization"
    """The header that carries the key: ``authorization`` (as ``Bearer KEY``), or another header (the key alone)."""
    api_version: str = ""
    """The version of the API: sent in a header in the Messages API, in the query string in the others."""
    headers: Annotated[Mapping[str, str], read_headers] = field(default_factory=dict, repr=False)
    """Additional headers of every request."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of every request's body."""
    idle_timeout: float = 120.0
    """The longest time between two reads of a stream, in seconds."""
    max_tokens: int | None = None
    """The most tokens of a reply if no other limit is set. The Messages API requires a limit."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = "max_tokens"
    """The field for the limit of a reply's tokens in chat completions; None if the endpoint accepts no limit."""
    sampling: bool = True
    """The endpoint accepts a temperature."""
    stream_usage: bool = True
    """The endpoint reports usage in a stream on request (``stream_options``)."""
    parallel: Literal["omit", "send_true", "false"] = "omit"
    """The field ``parallel_tool_calls``; llama.cpp needs ``send_true``."""
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
    tool_content: Literal["str", "parts"] = "str"
    """The form of a tool message's content."""
    constrain: Literal["none", "grammar", "structured_outputs", "response_format"] = "none"
    """The field that constrains replies: ``grammar`` (llama.cpp) or ``structured_outputs`` (vLLM) for a GBNF grammar,
    ``response_format`` (Ollama and most others) for a JSON Schema, or ``none``."""
    structured_output: Literal["none", "without_tools", "with_tools"] = "none"
    """Whether the endpoint makes answers conform to a JSON Schema: ``none``, ``without_tools`` (in requests without
    tools) or ``with_tools`` (in all requests)."""
    reasoning_in: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The fields that may contain the model's reasoning."""
    echo_reasoning: Literal["none", "tool_turns", "always"] = "tool_turns"
    """The assistant messages whose reasoning is sent back: ``none``, those with tool calls (``tool_turns``), or all
    (``always``)."""
    reasoning_field: str = ""
    """The field for reasoning that every assistant message with calls must have, even if it is empty (DeepSeek)."""
    echo_call_extra: bool = True
    """The signed fields of a call are sent back (Gemini's thought signatures)."""
    unsigned_call: Mapping[str, Any] = field(default_factory=dict)
    """Fields to add to the first call of a message that the endpoint did not sign, such as another model's (Gemini)."""
    server_tools: Annotated[tuple[str | Mapping[str, Any], ...], read_tools] = ()
    """Tools that the endpoint runs itself: names of `server_tools`, or definitions that are sent unchanged."""
    prices: Annotated[Mapping[str, float], read_prices] = field(default_factory=dict)
    """US dollars for a million tokens: ``input`` and ``output``, and ``cached_input`` and ``cache_write`` if they
    differ from ``input``; empty for those of the price list."""

    def get_parser_flags(self) -> dict[str, Any]:
        """Return the flags that affect the parsing of responses, without those that have their default value."""
        names = ("fenced_calls", "reasoning_in", "tool_name_re", "tool_name_len")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(CHAT, name)}


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
# The ``anthropic-version`` to send: the newest of https://platform.claude.com/docs/en/api/versioning, which the SDK
# ``anthropic`` 2.12 sends too. Gateways may not know it yet.
NEWEST_MESSAGES_VERSION = "2026-10-21"
# The previous ``anthropic-version``, which every endpoint of the Messages API knows.
OLDER_MESSAGES_VERSION = "2023-06-01"
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
    keys = tuple(where.split("."))
    flags = {}
    for name, value in quirks.items():
        if name not in _READERS:
            raise ConfigError(f"{where}: there is no flag {name!r}", hint=suggest_name(name, _READERS))
        flags[name] = _READERS[name](Node(value, (*keys, name)))
    return replace(profile, **flags)


_READERS = build_readers(EndpointProfile)
# The flags that a profile of ``models`` may set, each with the reader of its value.
FLAGS = {name: reader for name, reader in _READERS.items() if name not in ("max_tokens", "unsigned_call")}
