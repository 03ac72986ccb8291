"""The HTTP client of the MCP registry, for ``servers search`` and ``servers add``.

API: ``GET /v0.1/servers`` and ``GET /v0.1/servers/{name}/versions/{version}`` of the specification of registries
(docs/reference/api/openapi.yaml of modelcontextprotocol/registry, 2025-12-01). The base URL is an option, so that a
company's own registry can be used.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from dial_client.cli.options import ExitCode
from dial_client.cli.word_wrap import print_lines
from dial_client.messages.errors import ConfigError, DialError
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.registry_documents import RegistryServer, read_registry_document

if TYPE_CHECKING:
    import httpx2

URL = "https://registry.modelcontextprotocol.io"
VARIABLE = "DIAL_REGISTRY_URL"
"""The environment variable that names another registry."""
SECONDS = 15.0
"""Timeout of one request in seconds."""
LIMIT = 30
_MAX_BYTES = 8_000_000
_NAME = re.compile(r"[A-Za-z0-9-]+\.[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")


class RegistryError(DialError):
    """The registry cannot be reached, or its response is invalid."""


def is_registry_name(text: str) -> bool:
    """Return True if a text has the form of a server's name in the registry: ``io.github.owner/weather``."""
    return _NAME.fullmatch(text) is not None


async def search_registry(words: str, registry: str | None, *, as_json: bool) -> int:
    """Print the servers of the registry whose names contain a word; return the exit code.

    Raises:
        ConfigError: The URL of the registry is wrong.
        RegistryError: The registry cannot be reached, or its response is invalid.
    """
    base = _find_base_url(registry)
    answer = await _get(f"{base}/v0.1/servers?search={quote(words, safe='')}&version=latest&limit={LIMIT}", base)
    listed = answer.get("servers") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise RegistryError(f"{base} does not answer as an MCP registry: there is no list of servers")
    found = list(filter(None, map(_read, listed)))
    if as_json:
        rows = [
            {
                "name": server.name,
                "version": server.version,
                "description": server.description,
                "status": server.status,
                "kinds": [choice.kind for choice in server.choices],
            }
            for server in found
        ]
        print(json.dumps(rows, indent=2))
        return ExitCode.ANSWERED
    for server in found:
        kinds = ", ".join(dict.fromkeys(choice.kind for choice in server.choices)) or "cannot be used here"
        print_lines([f"{to_one_line(server.name, 100)}  {to_one_line(server.version, 20)}  ({kinds})"])
        print_lines((f"    {to_one_line(text, 200)}" for text in (server.description, server.warning) if text), 4)
    if _has_more(answer):
        print(f"There are more: only the first {len(listed)} are listed; use a longer search term.")
    print(
        "dial-chat servers add NAME adds a server."
        if found
        else f"{base} has no server with {to_one_line(words, 60)!r}."
    )
    return ExitCode.ANSWERED


async def fetch_server(name: str) -> RegistryServer:
    """Return the newest version of a server of the registry.

    Raises:
        ConfigError: The registry has no such server, or the URL of the registry is wrong.
        RegistryError: The registry cannot be reached, or its response is invalid.
    """
    base = _find_base_url(None)
    answer = await _get(f"{base}/v0.1/servers/{quote(name, safe='')}/versions/latest", base, name)
    return read_registry_document(answer)


def _find_base_url(registry: str | None) -> str:
    base = (registry or os.environ.get(VARIABLE) or URL).rstrip("/")
    if not re.match(r"https?://[^/\s]+", base):
        raise ConfigError(f"{base!r} is not the URL of a registry", "it begins with https://")
    return base


async def _get(url: str, base: str, name: str = "") -> Any:
    import httpx2

    try:
        with anyio.fail_after(SECONDS):
            async with (
                httpx2.AsyncClient(timeout=SECONDS, follow_redirects=True) as client,
                client.stream("GET", url, headers={"Accept": "application/json"}) as response,
            ):
                body = await _read_bounded(response)
        if response.status_code == 404 and name:
            raise ConfigError(f"{base} has no server {name!r}", "dial-chat servers search finds names")
        if not response.is_success:
            raise RegistryError(f"the MCP registry {base} answers with status {response.status_code}")
        if len(body) > _MAX_BYTES:
            raise RegistryError(f"the answer of the MCP registry {base} is too long")
        return json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        reason = str(error) or type(error).__name__
        raise RegistryError(f"the MCP registry {base} cannot be reached: {reason}; is this machine offline?") from None
    except (ValueError, RecursionError):
        raise RegistryError(f"{base} does not answer as an MCP registry: this is not JSON") from None


async def _read_bounded(response: httpx2.Response) -> bytes:
    """Return the body, cut off after the piece that exceeds `_MAX_BYTES`."""
    pieces, length = list[bytes](), 0
    async with aclosing(response.aiter_bytes()) as body:
        async for piece in body:
            pieces.append(piece)
            length += len(piece)
            if length > _MAX_BYTES:
                break
    return b"".join(pieces)


def _has_more(answer: dict[str, Any]) -> bool:
    metadata = answer.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("nextCursor"))


def _read(document: Any) -> RegistryServer | None:
    try:
        return read_registry_document(document)
    except ConfigError:
        return None
