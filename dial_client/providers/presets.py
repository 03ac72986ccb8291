"""The endpoints that are known: where each is, and what is different about it.

An endpoint is known by its host's name, by the prefix of a model's name, or because a profile says ``preset``; never by
its port, which anything may listen on. docs/models.md is the same table in words.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from dial_client.errors import ConfigError
from dial_client.providers.endpoint_profile import ANTHROPIC, CHAT, DIAL, MESSAGES, OLLAMA, OPENAI, EndpointProfile
from dial_client.settings.config_types import Wire

_LOCAL = EndpointProfile(idle_timeout=600.0)
"""A server on a machine of one's own may read a long prompt for minutes before it says a word."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known of one vendor's endpoint, or of one server program."""

    wire: Wire = Wire.CHAT
    """What it is asked through where a profile does not say."""
    url: str = ""
    """Its usual address; empty where it has none."""
    hosts: tuple[str, ...] = ()
    """Names it is known by, each with all names below it."""
    profile: EndpointProfile = CHAT
    """Its flags behind chat completions and Responses."""
    messages: EndpointProfile | None = None
    """Its flags behind the Messages API; None for `profile`'s, with a version and a limit."""

    def on(self, wire: Wire) -> EndpointProfile:
        """Give its flags behind one wire."""
        if wire is Wire.CHAT:
            return self.profile
        own = replace(self.profile, documents=True)  # both wires have a place for them, unlike most chat completions
        if wire is Wire.RESPONSES:
            return own
        return self.messages or replace(own, api_version=MESSAGES.api_version, max_tokens=MESSAGES.max_tokens)


UNKNOWN = Preset()
"""An endpoint nothing is known of."""

PRESETS: Mapping[str, Preset] = {
    "openai": Preset(
        Wire.RESPONSES, "https://api.openai.com/v1", ("api.openai.com",), replace(OPENAI, tool_search=True)
    ),
    "anthropic": Preset(Wire.MESSAGES, "https://api.anthropic.com", ("api.anthropic.com",), messages=ANTHROPIC),
    "azure": Preset(hosts=("openai.azure.com",), profile=replace(OPENAI, key_header="api-key")),
    "dial": Preset(profile=DIAL),
    "ollama": Preset(url="http://127.0.0.1:11434/v1", profile=OLLAMA),
    "vllm": Preset(url="http://127.0.0.1:8000/v1", profile=replace(_LOCAL, constrain="response_format")),
    "llama.cpp": Preset(
        url="http://127.0.0.1:8080/v1", profile=replace(_LOCAL, parallel="send_true", constrain="grammar")
    ),
    "lmstudio": Preset(url="http://127.0.0.1:1234/v1", profile=replace(_LOCAL, constrain="response_format")),
    "gemini": Preset(
        url="https://generativelanguage.googleapis.com/v1beta/openai",
        hosts=("generativelanguage.googleapis.com",),
        profile=EndpointProfile(
            schema_dialect="gemini",
            tool_name_re="[a-zA-Z_][a-zA-Z0-9_.-]*",
            unsigned_call={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
        ),
    ),
    "mistral": Preset(
        url="https://api.mistral.ai/v1",
        hosts=("api.mistral.ai",),
        # It refuses what it does not know, in the body as in a message; usage comes unasked.
        profile=EndpointProfile(user_after_tool=False, short_ids=True, stream_usage=False, echo_reasoning="none"),
    ),
    "deepseek": Preset(
        url="https://api.deepseek.com",
        hosts=("api.deepseek.com",),
        profile=EndpointProfile(reasoning_field="reasoning_content"),
    ),
    "moonshot": Preset(
        url="https://api.moonshot.ai/v1",
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        profile=EndpointProfile(
            reasoning_field="reasoning_content", tool_name_re="[a-zA-Z][a-zA-Z0-9_-]*", schema_dialect="openai"
        ),
    ),
    "openrouter": Preset(url="https://openrouter.ai/api/v1", hosts=("openrouter.ai",)),
    "groq": Preset(url="https://api.groq.com/openai/v1", hosts=("api.groq.com",)),
}


def find_preset(name: str, where: str) -> Preset:
    """Give the preset of this name.

    Args:
        name: a key of `PRESETS`.
        where: what to name in an error: ``models.NAME``.

    Raises:
        ConfigError: there is none.
    """
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name.lower(), PRESETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(PRESETS)}"
    raise ConfigError(f"{where}: there is no preset {name!r}", hint=hint)


def preset_of_url(url: str) -> Preset:
    """Give what is known of an address by its host's name; `UNKNOWN` where that is nothing."""
    host = f".{(urlsplit(url).hostname or '').rstrip('.')}"
    return next((one for one in PRESETS.values() if any(host.endswith(f".{name}") for name in one.hosts)), UNKNOWN)
