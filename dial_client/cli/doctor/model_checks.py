"""Checks of the model: its name, its key, and the responses of its endpoint."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches

import anyio

from dial_client.cli.doctor.findings import Finding, Level
from dial_client.cli.doctor.subject import Subject
from dial_client.cli.models.model_search import (
    ModelListing,
    fetch_models,
    find_credit_problem,
    find_models_path,
    find_wires,
)
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.providers import open_provider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.settings.config_types import Api, ModelProfile

# Seconds by which this machine's clock may differ from the endpoint's clock.
MAX_CLOCK_SECONDS = 300.0


async def check_model(subject: Subject) -> AsyncIterator[Finding]:
    """Yield the problems of the model in use, and of its key."""
    name = subject.model_name
    if name is None:
        # A file that needs trust may name one: the finding about the file says what to do first.
        if not subject.untrusted:
            yield Finding(
                "DC513", "no model is named, and no key is set", 'give -m NAME, or "defaultModel" in the file'
            )
    elif name.partition(":")[0] == "local" and name not in subject.models:
        for finding in _check_local_model(name):
            yield finding
    else:
        for finding in await find_model_problems(name, subject.models, subject.environ, subject.base_url):
            yield finding


async def check_other_models(subject: Subject) -> AsyncIterator[Finding]:
    """Yield a warning for each other model of the configuration that does not work, or whose endpoint is not there."""
    found: dict[str, list[Finding]] = {}

    async def ask(name: str) -> None:
        problems = await find_model_problems(name, subject.models, subject.environ)
        found[name] = [finding for finding in problems if finding.level is Level.ERROR]

    async with anyio.create_task_group() as group:
        for name in subject.other_model_names:
            group.start_soon(ask, name)
    for name in sorted(found):
        for finding in found[name]:
            yield Finding("DC515", f"the model {name!r} does not work: {finding.text}", finding.hint)


async def find_model_problems(
    name: str, models: Mapping[str, ModelProfile], environ: Mapping[str, str], base_url: str | None = None
) -> list[Finding]:
    """Return the reasons why a model cannot answer: its name, its key, its address, or what its endpoint says.

    Args:
        name: The name of the model.
        models: The profiles of the configuration.
        environ: The environment variables.
        base_url: The address of ``--base-url``; None for that of the model.
    """
    try:
        # Fallback models are checked by themselves.
        models = {key: replace(profile, fallback_models=None) for key, profile in models.items()}
        provider = open_provider(name, models=models, base_url=base_url, environ=environ)
    except ConfigError as error:
        code = "DC502" if "needs a key" in error.problem else "DC501"
        return [Finding(code, error.problem, error.hint, error.path, error.line, error.column)]
    try:
        # Clouds whose requests a vendor's client signs have no list of models at this URL.
        if isinstance(provider, HttpProvider) and not provider.endpoint.sign_in:
            return await _ask(provider)
    finally:
        await provider.aclose()
    return []


def _check_local_model(name: str) -> Iterator[Finding]:
    from dial_client.cli.models.model_names import list_local_models, measure_memory
    from dial_client.providers.embedded.weights import find_cache_folder

    if any(importlib.util.find_spec(part) is None for part in ("xllamacpp", "huggingface_hub")):
        yield Finding("DC510", "the embedded model is not installed", "pip install 'dial-client[local]'")
        return
    model = next((model for model in list_local_models(find_cache_folder()) if model.name == name), None)
    memory = measure_memory()
    if model is not None and not model.installed:
        yield Finding("DC511", f"{name}: the first question downloads {model.size / 1e9:.1f} GB")
    if model is not None and memory is not None and not model.fits(memory):
        text = f"{name} needs about {model.size / 1e9:.1f} GB, and this machine has {memory / 1e9:.1f} GB of memory"
        yield Finding("DC512", text, "`dial-chat models` lists the models that fit")


async def _ask(provider: HttpProvider) -> list[Finding]:
    endpoint, model = provider.endpoint, provider.info.model
    try:
        listing = await fetch_models(endpoint)
    except ProviderError as error:
        problem = str(error).lower()
        is_about_certificates = "certificate" in problem or "ssl_cert_file" in problem
        code = "DC509" if "proxy" in problem else "DC508" if is_about_certificates else "DC505"
        return [Finding(code, str(error), _find_connection_hint(code, endpoint))]
    findings = list(_check_clock(listing, endpoint))
    if listing.status in (401, 403):
        findings.append(Finding("DC503", f"{endpoint.host} refuses the key (HTTP {listing.status})", endpoint.hint))
        return findings
    credit_problem = listing.problem if listing.has_no_credit else await find_credit_problem(endpoint, model)
    if credit_problem:
        findings.append(Finding("DC516", credit_problem, "the vendor's pages on billing show the balance"))
    if listing.ids and model not in listing.ids and not _is_alias(model, listing.ids):
        nearest = get_close_matches(model, listing.ids, 1, 0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(listing.ids[:5])}"
        findings.append(Finding("DC504", f"{endpoint.host} has no model {model!r}", hint))
    return [*findings, *await _check_wire(endpoint, Api(provider.api), listing)]


async def _check_wire(endpoint: Endpoint, wire: Api, listing: ModelListing) -> list[Finding]:
    """Return the finding for an endpoint that does not have the API, or has it at another address."""
    wires = await find_wires(endpoint)
    if wires.get(wire) == endpoint.base_url:
        return []
    if wire in wires:
        text = f"{endpoint.host} has {API_NAMES[wire]} at another address than {endpoint.base_url}"
        return [Finding("DC506", text, f"write {wires[wire]}")]
    if wires:
        available = " and ".join(API_NAMES[found] for found in wires)
        text = f"{endpoint.host} does not have {API_NAMES[wire]}; it has {available}"
        found = next(iter(wires))
        prefixes = f"-m {_PREFIXES[found]}:ID instead of {_PREFIXES[wire]}:ID"
        hint = f'write "api": "{found.value}" in the profile, or {prefixes}'
        return [Finding("DC514", text, hint)]
    if listing.status == 404 or listing.is_page:
        text = f"{endpoint.host} has no {find_models_path(endpoint)} below the configured address (HTTP 404)"
        if listing.is_page:
            text = f"{endpoint.host} answers {find_models_path(endpoint)} with a web page"
        hint = 'write the address without /chat/completions, usually up to /v1; "api" names the API'
        return [Finding("DC506", text, hint)]
    return []


API_NAMES = {Api.CHAT: "chat completions", Api.RESPONSES: "the Responses API", Api.MESSAGES: "the Messages API"}
_PREFIXES = {Api.CHAT: "chat", Api.RESPONSES: "openai", Api.MESSAGES: "anthropic"}


def _find_connection_hint(code: str, endpoint: Endpoint) -> str:
    if code == "DC508":
        return "set SSL_CERT_FILE to a file with the certificate authorities of your organisation"
    if code == "DC509":
        return "HTTPS_PROXY, HTTP_PROXY and ALL_PROXY name the proxy; NO_PROXY lists hosts without a proxy"
    if not endpoint.is_local:
        return "is this machine online, or does it need a proxy?"
    is_ollama = endpoint.base_url.endswith(":11434/v1")
    return "`ollama serve` starts Ollama" if is_ollama else "is the server running, and is this its port?"


def _check_clock(listing: ModelListing, endpoint: Endpoint) -> Iterator[Finding]:
    if listing.date is not None:
        seconds = (datetime.now(UTC) - listing.date).total_seconds()
        if abs(seconds) > MAX_CLOCK_SECONDS:
            way = "fast" if seconds > 0 else "slow"
            text = f"this machine's clock is {abs(seconds) / 60:,.0f} minutes {way}, compared with {endpoint.host}"
            yield Finding("DC507", text, "logins and certificates fail with a wrong clock")


def _is_alias(model: str, ids: tuple[str, ...]) -> bool:
    """Return True if an endpoint has the model under a longer name: with a date, or a tag such as ``:latest``."""
    return any(name.startswith((f"{model}-", f"{model}:", f"{model}@")) for name in ids)
