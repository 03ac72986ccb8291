"""Who sends a request: the interface for services that know several persons, and the token of ``serve``.

An `Authenticator` answers for `/mcp`. It may name authorization servers: clients then find them as RFC 9728 says, by
the header ``WWW-Authenticate`` of a refused request, or at ``/.well-known/oauth-protected-resource``.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dial_client.serve.http_messages import HttpError

# The path of the MCP server, and the paths of the metadata: the second is for clients that append the resource's path.
MCP = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
METADATA_OF_MCP = f"{METADATA}{MCP}"


@dataclass(frozen=True, slots=True)
class Person:
    """Who a request is for."""

    name: str = ""
    """What tells the persons apart, such as the subject of a token with its issuer; empty if there is only one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not accepted."""

    message: str
    """For the user of the client."""
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs and this one does not have: 403. Without scopes the token is not valid: 401."""


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """The metadata of a protected resource (RFC 9728)."""

    resource: str
    """The URL of ``/mcp`` as clients know it; tokens have to be issued for it."""
    authorization_servers: tuple[str, ...]
    """The issuers whose tokens are accepted."""
    scopes: tuple[str, ...] = ()
    """The scopes that a client should request."""

    @property
    def url(self) -> str:
        """The URL of this document, below the same prefix as the resource."""
        return f"{self.resource.removesuffix(MCP)}{METADATA}"

    def to_dict(self) -> dict[str, Any]:
        """Return the document that clients read."""
        document: dict[str, Any] = {
            "resource": self.resource,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
        }
        return document | ({"scopes_supported": list(self.scopes)} if self.scopes else {})


class Authenticator(Protocol):
    """Decides who sends a request, by its headers."""

    @property
    def metadata(self) -> ResourceMetadata | None:
        """The authorization servers that clients get their tokens from; None if there are none."""

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return who sends a request with these headers, whose names are in lower case.

        An authorization server's token is valid only if it was issued for `ResourceMetadata.resource`: a token for
        another service must not be accepted, and never be passed on.
        """
        ...


class TokenAuthenticator:
    """The one person of a service with one token.

    Args:
        token: The token clients must send; None to require no token.
    """

    metadata = None

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the person if the headers have the token."""
        if self._token is None:
            return Person()
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        # Compared as bytes: only ASCII strings can be compared in constant time.
        is_equal = hmac.compare_digest(credentials.strip().encode(), self._token.encode())
        if scheme.lower() != "bearer" or not is_equal:
            return Refusal("send the token of this service: Authorization: Bearer TOKEN")
        return Person()


def build_refusal(refusal: Refusal, metadata: ResourceMetadata | None = None) -> HttpError:
    """Return the error of a request that was not accepted (RFC 6750, section 3).

    Args:
        refusal: Why.
        metadata: The authorization servers that give tokens; None if there are none.
    """
    parameters = [] if metadata is None else [f'resource_metadata="{metadata.url}"']
    if refusal.scopes:
        parameters = ['error="insufficient_scope"', f'scope="{" ".join(refusal.scopes)}"', *parameters]
    challenge = f"Bearer {', '.join(parameters)}".strip()
    status, code = (403, "insufficient_scope") if refusal.scopes else (401, "invalid_api_key")
    return HttpError(
        status, refusal.message, code, kind="authentication_error", headers={"www-authenticate": challenge}
    )
