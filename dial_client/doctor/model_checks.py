"""Checks of the model: its name, its key, and what its endpoint says."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import anyio

from dial_client.doctor.findings import Finding
from dial_client.doctor.subject import Subject
from dial_client.errors import ConfigError, ProviderError
from dial_client.model import Provider
from dial_client.providers import open_provider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.text.safe_text import one_line

if TYPE_CHECKING:
    import httpx2

MAX_CLOCK_SECONDS = 300.0
"""Seconds that the clock may differ from that of the endpoint."""
SECONDS = 8.0
"""For the request."""


@dataclass(frozen=True, slots=True)
class ModelListing:
    """What an endpoint answered when it was asked for its models."""

    status: int
    ids: tuple[str, ...] = ()
    """The models; empty where the answer has none."""
    date: datetime | None = None
    """When the answer was made, by the clock of the endpoint."""


async def fetch_models(endpoint: Endpoint) -> ModelListing:
    """Ask an endpoint for its models (``GET /models``).

    Raises:
        ProviderError: it cannot be reached, or a proxy cannot be used; the code is ``connection`` or ``certificate``.
    """
    import httpx2

    from dial_client.providers.http.http_client import make_client

    is_secure = endpoint.base_url.startswith("https")
    async with make_client(is_local=endpoint.is_local, is_secure=is_secure) as client:
        url = f"{endpoint.base_url}{_models_path(endpoint)}"
        try:
            query = dict(endpoint.query) | ({"limit": "1000"} if _is_anthropic(endpoint) else {})  # else a page of 20
            with anyio.fail_after(SECONDS):  # the timeout of a client counts from one read to the next
                answer = await client.get(url, headers=dict(endpoint.headers), params=query, timeout=SECONDS)
        except TimeoutError:
            raise ProviderError(f"{endpoint.host}: no whole answer in {SECONDS:g} s", code="connection") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            problem = one_line(str(error) or type(error).__name__, 200)
            code = "certificate" if "certificate" in problem.lower() else "connection"
            raise ProviderError(f"{endpoint.host}: {problem}", code=code) from None
    return ModelListing(answer.status_code, tuple(_ids(answer)), _date(answer))


def _models_path(endpoint: Endpoint) -> str:
    return "/v1/models" if _is_anthropic(endpoint) and not endpoint.base_url.endswith("/v1") else "/models"


def _is_anthropic(endpoint: Endpoint) -> bool:
    return "anthropic-version" in endpoint.headers


def _ids(answer: httpx2.Response) -> Iterator[str]:
    try:
        body = json.loads(answer.content[:4_000_000])
    except ValueError:
        return
    for model in body.get("data", ()) if isinstance(body, dict) and isinstance(body.get("data"), list) else ():
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            yield model["id"]


def _date(answer: httpx2.Response) -> datetime | None:
    try:
        date = parsedate_to_datetime(answer.headers.get("date", ""))
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


async def check_model(subject: Subject) -> AsyncIterator[Finding]:
    """Yield what is wrong with the model that is used, and with its key."""
    name = subject.model_name
    if name is None:
        if importlib.util.find_spec("xllamacpp") is None:
            yield Finding(
                "DC513", "no model is named, and no key is set", 'give -m NAME, or "defaultModel" in the file'
            )
        return
    if name.partition(":")[0] == "local" and name not in subject.models:
        for finding in _local(name):
            yield finding
        return
    try:
        provider = open_provider(name, models=subject.models, base_url=subject.target.base_url, environ=subject.environ)
    except ConfigError as error:
        code = "DC502" if "needs a key" in error.problem else "DC501"
        yield Finding(code, error.problem, error.hint, error.path, error.line, error.column)
        return
    try:
        for finding in await _ask(provider):
            yield finding
    finally:
        await provider.aclose()


def _local(name: str) -> Iterator[Finding]:
    from dial_client.local.inventory import local_models, memory_bytes
    from dial_client.local.weights import cache_folder

    if any(importlib.util.find_spec(part) is None for part in ("xllamacpp", "huggingface_hub")):
        yield Finding("DC510", "the embedded model is not installed", "pip install 'dial-client[local]'")
        return
    model = next((model for model in local_models(cache_folder()) if model.name == name), None)
    memory = memory_bytes()
    if model is not None and not model.installed:
        yield Finding("DC511", f"{name}: {model.size / 1e9:.1f} GB are to be downloaded with the first question")
    if model is not None and memory is not None and not model.fits(memory):
        text = f"{name} needs about {model.size / 1e9:.1f} GB, and this machine has {memory / 1e9:.1f} GB of memory"
        yield Finding("DC512", text, "`dial-chat models` lists those that fit")


async def _ask(provider: Provider) -> list[Finding]:
    if not isinstance(provider, HttpProvider):
        return []
    endpoint, model = provider.endpoint, provider.info.model
    try:
        listing = await fetch_models(endpoint)
    except ProviderError as error:
        code = {"certificate": "DC508"}.get(error.code or "", "DC509" if "proxy" in str(error).lower() else "DC505")
        return [Finding(code, str(error), _connection_hint(code, endpoint))]
    findings = list(_clock(listing, endpoint))
    if listing.status in (401, 403):
        findings.append(Finding("DC503", f"{endpoint.host} refuses the key (HTTP {listing.status})", endpoint.hint))
    elif listing.status == 404:
        text = f"{endpoint.host} has no {_models_path(endpoint)} below the address that is named (HTTP 404)"
        hint = 'an address ends before /chat/completions, mostly in /v1; "wire" names the API'
        findings.append(Finding("DC506", text, hint))
    elif listing.ids and model not in listing.ids and not _is_alias(model, listing.ids):
        near = _nearest(model, listing.ids)
        text = f"{endpoint.host} has no model {model!r}"
        findings.append(
            Finding("DC504", text, f"did you mean {near!r}?" if near else f"it has {', '.join(listing.ids[:5])}")
        )
    return findings


def _connection_hint(code: str, endpoint: Endpoint) -> str:
    if code == "DC508":
        return "SSL_CERT_FILE names a file with the certificate authorities of your organisation"
    if code == "DC509":
        return "HTTPS_PROXY, HTTP_PROXY and ALL_PROXY name it; NO_PROXY lists hosts without one"
    return "is it started, and on this port?" if endpoint.is_local else "is there a network, or a proxy to be named?"


def _clock(listing: ModelListing, endpoint: Endpoint) -> Iterator[Finding]:
    if listing.date is not None:
        seconds = (datetime.now(UTC) - listing.date).total_seconds()
        if abs(seconds) > MAX_CLOCK_SECONDS:
            way = "fast" if seconds > 0 else "slow"
            text = f"the clock of this machine is {abs(seconds) / 60:,.0f} minutes {way}, by that of {endpoint.host}"
            yield Finding("DC507", text, "logins and certificates fail with a wrong clock")


def _is_alias(model: str, ids: tuple[str, ...]) -> bool:
    """Return True if an endpoint has the model under a longer name: with a date, or a tag as Ollama's ``:latest``."""
    return any(name.startswith((f"{model}-", f"{model}:", f"{model}@")) for name in ids)


def _nearest(model: str, ids: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(model, ids, 1, 0.5)), "")
