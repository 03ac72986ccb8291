"""Presets for known endpoints: their addresses, and the flags that say how they deviate from their APIs.

An endpoint is recognized by its host name, by the prefix of a model's name, or by ``preset`` in a profile. A port does
not identify an endpoint, because any program may listen on it. docs/models.md describes the presets for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.text import find_nearest
from dial_client.settings.config_types import Api
from dial_client.settings.endpoint_profile import ANTHROPIC, CHAT, DIAL, MESSAGES, OLLAMA, OPENAI, EndpointProfile

# The flags of local servers, which may process a long prompt for minutes, and often run small models.
_LOCAL = EndpointProfile(idle_timeout=600.0, fenced_calls=True, structured_output="without_tools")


@dataclass(frozen=True, slots=True)
class Preset:
    """The preset of a vendor's endpoint, or of a server program such as Ollama."""

    api: Api = Api.CHAT
    """The API to use if a profile does not name one."""
    url: str = ""
    """The default address; empty if there is none."""
    hosts: tuple[str, ...] = ()
    """Host names of the endpoint; their subdomains match too."""
    profile: EndpointProfile = CHAT
    """The flags of the Chat Completions and Responses APIs."""
    messages: EndpointProfile | None = None
    """The flags of the Messages API; None for those of `profile` with the API version and token limit of `MESSAGES`."""

    def get_profile(self, api: Api) -> EndpointProfile:
        """Return the flags of an API."""
        if api is Api.CHAT:
            return self.profile
        own = replace(self.profile, documents=True)  # both APIs accept documents, unlike most Chat Completions APIs
        if api is Api.RESPONSES:
            return own
        return self.messages or replace(own, api_version=MESSAGES.api_version, max_tokens=MESSAGES.max_tokens)


# The preset of an unknown endpoint.
UNKNOWN = Preset()

PRESETS: Mapping[str, Preset] = {
    "openai": Preset(
        Api.RESPONSES, "https://api.openai.com/v1", ("api.openai.com",), replace(OPENAI, tool_search=True)
    ),
    "anthropic": Preset(Api.MESSAGES, "https://api.anthropic.com", ("api.anthropic.com",), messages=ANTHROPIC),
    "azure": Preset(
        hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        profile=replace(OPENAI, key_header="api-key"),
        messages=replace(MESSAGES, key_header="x-api-key"),
    ),
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
            structured_output="without_tools",
            tool_name_re="[a-zA-Z_][a-zA-Z0-9_.-]*",
            unsigned_call={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
        ),
    ),
    "mistral": Preset(
        url="https://api.mistral.ai/v1",
        hosts=("api.mistral.ai",),
        # The endpoint refuses unknown fields in the body and in messages, and reports usage without a request.
        profile=EndpointProfile(
            short_ids=True, stream_usage=False, echo_reasoning="none", structured_output="without_tools"
        ),
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


# Large models, which can write programs that call tools, by their ids at any endpoint; not their small variants.
_LARGE_MODELS = compile_lazily(
    r"claude-(?:fable|mythos|opus|sonnet)-[4-9]"
    r"|gpt-(?:5\.[4-9]|[6-9])(?!.*(?:mini|nano|luna))"
    r"|gemini-(?:[3-9][\d.]*-(?:pro|ultra)|[4-9][\d.]*-argon)"
    r"|deepseek-v[4-9][\d.]*-pro"
)


def writes_code(model: str) -> bool:
    """Return whether a model is known to be large enough for code mode, by its id at its endpoint."""
    return _LARGE_MODELS.search(model.lower()) is not None


# Prefixes and presets of models that are asked through the vendors' clients (`vendor_clients.open_cloud_model`).
CLOUDS = ("azure", "bedrock", "vertex", "foundry")


def find_preset(name: str, where: str) -> Preset:
    """Return the preset of this name.

    Args:
        name: A key of `PRESETS`.
        where: The setting that an error names: ``models.NAME``.

    Raises:
        ConfigError: There is no such preset.
    """
    if name in PRESETS:
        return PRESETS[name]
    names = dict.fromkeys((*PRESETS, *CLOUDS))
    nearest = find_nearest(name, names)
    hint = f"did you mean {nearest!r}?" if nearest else f"the presets are {', '.join(names)}"
    raise ConfigError(f"{where}: there is no preset {name!r}", hint=hint)


def find_preset_by_url(url: str) -> Preset:
    """Return the preset of an address, found by its host name; `UNKNOWN` if there is none."""
    host = f".{(urlsplit(url).hostname or '').rstrip('.')}"
    named = ((name, preset) for preset in PRESETS.values() for name in preset.hosts)
    return next((preset for name, preset in named if host.endswith(f".{name}")), UNKNOWN)


# The default model if no model is named and the environment contains one of these keys.
MODELS_OF_KEYS = {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5", "OPENAI_API_KEY": "openai:gpt-6-luna"}

# The environment variables with the keys of vendors, by the name of the preset; the first ones have a usual model.
KEYS_OF_PRESETS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "moonshot": "MOONSHOT_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "groq": "GROQ_API_KEY",
}
