"""Tries an endpoint that the user names: its address, its key, its API and its models, by requests that are free."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from dial_client.cli.models.model_proposals import ModelProposal, is_embedding, name_profile
from dial_client.cli.models.model_search import fetch_models, find_wires
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.providers import open_provider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.settings.config_types import Api, ModelProfile

# Timeout in seconds of a whole trial.
TRIAL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class EndpointTrial:
    """What the requests to an endpoint showed."""

    endpoint: Endpoint
    """The endpoint, with the base URL at which it has its API."""
    api: Api = Api.CHAT
    ids: tuple[str, ...] = ()
    """The models; empty if the endpoint has no list of them."""
    problem: str = ""
    """The reason why the endpoint cannot be used; empty if it can."""
    refuses_key: bool = False
    """Whether the problem is the key, or that there is none."""

    def propose(self, model: str, variable: str = "") -> ModelProposal:
        """Return a model of the endpoint; `variable` is the environment variable of the key, empty for none."""
        return propose(self.endpoint.base_url, model, self.api, variable)


def propose(base_url: str, model: str, api: Api = Api.CHAT, variable: str = "") -> ModelProposal:
    """Return a model at an address; `variable` is the environment variable of the key, empty for none."""
    profile = {} if api is Api.CHAT else {"api": api.value}
    profile |= {"base_url": base_url, "model": model} | ({"api_key": f"${{{variable}}}"} if variable else {})
    return ModelProposal(name_profile(model), f"of {Endpoint(base_url).host}", profile)


async def try_endpoint(url: str, key: str = "") -> EndpointTrial:
    """Request the models of an endpoint, and find the API that it has.

    Args:
        url: The base URL, with or without ``/v1``.
        key: The key; empty for none.

    Raises:
        ConfigError: The URL is not an address, or the key has a character that no key has.
    """
    endpoint = await _open(url, key, Api.CHAT)
    with anyio.move_on_after(TRIAL_SECONDS):
        return await _request(endpoint, key)
    return EndpointTrial(endpoint, problem=f"{endpoint.host} did not answer within {TRIAL_SECONDS:g} s")


async def _request(endpoint: Endpoint, key: str) -> EndpointTrial:
    wires = await find_wires(endpoint)
    api = next((api for api in (Api.CHAT, Api.RESPONSES, Api.MESSAGES) if api in wires), Api.CHAT)
    endpoint = await _open(wires.get(api, endpoint.base_url), key, api)
    try:
        listing = await fetch_models(endpoint)
    except ProviderError as error:
        return EndpointTrial(endpoint, api, problem=str(error))
    if listing.status in (401, 403):
        problem = f"{endpoint.host} {'refuses the key' if key else 'needs a key'} (HTTP {listing.status})"
        return EndpointTrial(endpoint, api, problem=problem, refuses_key=True)
    if listing.has_no_credit:
        return EndpointTrial(endpoint, api, problem=listing.problem)
    ids = tuple(sorted(model for model in listing.ids if model.isprintable() and not is_embedding(model)))
    if not ids and not wires:
        problem = f"{endpoint.host} has no API there (HTTP {listing.status}): the address usually ends in /v1"
        return EndpointTrial(endpoint, api, problem=problem)
    return EndpointTrial(endpoint, api, ids)


async def _open(url: str, key: str, api: Api) -> Endpoint:
    profile = ModelProfile("its address", api=api, base_url=url, model="-", api_key=key or None)
    provider = open_provider(profile.name, models={profile.name: profile}, environ={})
    assert isinstance(provider, HttpProvider)
    await provider.aclose()
    return provider.endpoint


def split_model_name(name: str) -> tuple[Api, str]:
    """Return the API and the id of a model that is named for an address: ``ID``, ``chat:ID`` or another prefix.

    Raises:
        ConfigError: The name has no id.
    """
    prefix, colon, model = name.partition(":")
    apis = {"chat": Api.CHAT, "openai": Api.RESPONSES, "anthropic": Api.MESSAGES}
    api, model = (apis[prefix], model) if colon and prefix in apis else (Api.CHAT, name)
    if not model.strip():
        raise ConfigError(f"{name!r} has no model ID", hint="expected ID, chat:ID, openai:ID or anthropic:ID")
    return api, model.strip()
