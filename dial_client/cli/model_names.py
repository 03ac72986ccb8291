"""The names of models, for completion."""

from __future__ import annotations

from collections.abc import Iterable

PREFIXES = {
    "anthropic:": "Anthropic's Messages API",
    "azure:": "a deployment of Azure",
    "bedrock:": "Amazon Bedrock",
    "chat:": "any OpenAI-compatible endpoint",
    "dial:": "a DIAL core",
    "foundry:": "Microsoft Foundry",
    "ollama:": "Ollama on this machine",
    "openai:": "OpenAI's Responses API",
    "scripted:": "a file of replies, or a recording",
    "vertex:": "Google Vertex AI",
}
"""The prefixes of model names, before the model's id, with descriptions."""


def list_known_models(profiles: Iterable[str]) -> dict[str, str]:
    """Return the names of models that are known without a request, with descriptions.

    Args:
        profiles: The names of the configuration's models.
    """
    from dial_client.cli.model_list_cache import read_cached_names
    from dial_client.providers.embedded.inventory import list_local_models
    from dial_client.providers.embedded.weights import find_cache_folder

    local = {model.name: "on this machine" for model in list_local_models(find_cache_folder()) if model.installed}
    own = dict.fromkeys(profiles, "of your configuration")
    listed = dict.fromkeys(read_cached_names(), "of your endpoint")
    return own | {"local": "the embedded model"} | local | listed | PREFIXES
