"""Free requests to endpoints: for the list of models, for the APIs that there are, for the credit behind a key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import anyio

from dial_client.messages.errors import ProviderError
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.provider_errors import build_refusal_error
from dial_client.providers.http.transport import FetchedResponse, HttpTransport
from dial_client.settings.config_types import Api

# Timeout in seconds of one request and its response.
SECONDS = 8.0
# Statuses of an address that does not exist.
MISSING_STATUSES = (404, 405, 501)
# What the errors of OpenAI, Anthropic, OpenRouter and others say if nobody pays for the request.
_NO_CREDIT = re.compile(
    r"credit balance|\b(?:insufficient|no|out of)[ _](?:quota|credits?|balance|funds)\b|current quota|\bbilling\b",
    re.IGNORECASE,
)
_PATHS = {Api.MESSAGES: "/messages", Api.RESPONSES: "/responses", Api.CHAT: "/chat/completions"}


@dataclass(frozen=True, slots=True)
class ModelListing:
    """The response of an endpoint to the request for its models."""

    status: int
    ids: tuple[str, ...] = ()
    """The models; empty if the response has none."""
    is_page: bool = False
    """True if the response is a web page instead of JSON."""
    date: datetime | None = None
    """The time of the response, by the clock of the endpoint."""
    problem: str = ""
    """What the endpoint says if it refuses the request; empty if it does not."""
    has_no_credit: bool = False
    """True if the endpoint refuses the request because nobody pays for it."""


async def fetch_models(endpoint: Endpoint) -> ModelListing:
    """Request an endpoint's models (``GET /models``).

    Raises:
        ProviderError: The endpoint cannot be reached, or a proxy cannot be used.
    """
    query = dict(endpoint.query) | ({"limit": "1000"} if _is_anthropic(endpoint) else {})  # the default is a page of 20
    response = await _fetch(replace(endpoint, query=query), "GET", find_models_path(endpoint))
    date = _parse_date(response.headers.get("date", ""))
    problem = _describe_refusal(endpoint, response)
    has_no_credit = _is_about_credit(response.status, problem)
    return ModelListing(
        response.status, tuple(_parse_ids(response.body)), _is_page(response), date, problem, has_no_credit
    )


async def find_credit_problem(endpoint: Endpoint, model: str, *, has_key_limits: bool = False) -> str:
    """Return why an account cannot pay for an answer, if a free request shows it; else an empty text.

    Anthropic refuses to count tokens for an account without credit, and OpenRouter tells what is left of the limit of
    a key. No free request of other vendors is known to show it: their first answer does.

    Args:
        endpoint: The endpoint, whose list of models has shown that the key is accepted.
        model: The ID of a model.
        has_key_limits: Whether the endpoint is OpenRouter's.
    """
    try:
        if has_key_limits:
            response = await _fetch(endpoint, "GET", "/key")
            return f"{endpoint.host}: the limit of the key is used up" if _is_used_up(response.body) else ""
        if not _is_anthropic(endpoint):
            return ""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).encode()
        path = "/messages/count_tokens" if endpoint.base_url.endswith("/v1") else "/v1/messages/count_tokens"
        response = await _fetch(endpoint, "POST", path, body)
    except ProviderError:
        return ""
    problem = _describe_refusal(endpoint, response)
    return problem if _is_about_credit(response.status, problem) else ""


def _describe_refusal(endpoint: Endpoint, response: FetchedResponse) -> str:
    if response.status < 400:
        return ""
    return str(build_refusal_error(endpoint, response.status, response.headers, response.body))


def _is_about_credit(status: int, problem: str) -> bool:
    return status == 402 or (status >= 400 and _NO_CREDIT.search(problem) is not None)


def _is_used_up(body: bytes) -> bool:
    """Return True if the details of a key (``{"data": {"limit_remaining": 0}}``) say that nothing is left of it."""
    try:
        left = json.loads(body)["data"]["limit_remaining"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
    return isinstance(left, int | float) and left <= 0


async def find_wires(endpoint: Endpoint) -> Mapping[Api, str]:
    """Return the APIs that an endpoint has, each with its base URL: the configured URL, or this URL with ``/v1``.

    Each API gets a request without content, which it rejects: no model runs.
    """
    found: dict[Api, str] = {}

    async def probe(wire: Api) -> None:
        path = _PATHS[wire]
        bases = [endpoint.base_url]
        if not endpoint.base_url.endswith("/v1"):
            if wire is Api.MESSAGES:
                path = f"/v1{path}"
            else:
                bases.append(f"{endpoint.base_url}/v1")
        for base in bases:
            if await _has_api(replace(endpoint, base_url=base), path):
                found[wire] = base
                return

    async with anyio.create_task_group() as group:
        for wire in Api:
            group.start_soon(probe, wire)
    return {wire: found[wire] for wire in Api if wire in found}


def find_models_path(endpoint: Endpoint) -> str:
    """Return the path of the list of models, relative to the endpoint's base URL."""
    return "/v1/models" if _is_anthropic(endpoint) and not endpoint.base_url.endswith("/v1") else "/models"


async def _has_api(endpoint: Endpoint, path: str) -> bool:
    """Return True if an API responds at a path. A 404 whose text mentions a model is a response of an API."""
    try:
        response = await _fetch(endpoint, "POST", path, b"{}")
    except ProviderError:
        return False
    if _is_page(response):
        return False
    return response.status not in MISSING_STATUSES or b"model" in response.body.lower()


def _is_page(response: FetchedResponse) -> bool:
    """Return True if a successful response is a web page; error pages of proxies and servers do not count."""
    return response.status < 300 and response.body.lstrip()[:1] == b"<"


async def _fetch(endpoint: Endpoint, method: str, path: str, body: bytes | None = None) -> FetchedResponse:
    transport = HttpTransport(endpoint)
    try:
        return await transport.fetch(method, path, body=body, timeout=SECONDS)
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()


def _is_anthropic(endpoint: Endpoint) -> bool:
    return "anthropic-version" in endpoint.headers


def _parse_ids(body: bytes) -> Iterator[str]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    for model in value.get("data", ()) if isinstance(value, dict) and isinstance(value.get("data"), list) else ():
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            yield model["id"]


def _parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
