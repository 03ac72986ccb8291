"""The names of models that a person may want to complete."""

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
"""What begins the name of a model, behind which its id follows."""


def known_model_names(profiles: Iterable[str]) -> dict[str, str]:
    """Return the names of models that are known without asking anybody, with descriptions.

    Args:
        profiles: the names of the configuration's models.
    """
    from dial_client.cli.model_list_cache import cached_names
    from dial_client.local.inventory import local_models
    from dial_client.local.weights import cache_folder

    local = {model.name: "on this machine" for model in local_models(cache_folder()) if model.installed}
    own = dict.fromkeys(profiles, "of your configuration")
    listed = dict.fromkeys(cached_names(), "of your endpoint")
    return own | {"local": "the embedded model"} | local | listed | PREFIXES
