"""Tokens of an OpenID provider (Keycloak, Entra ID, Google, …) for the persons of a service: `OidcTokens`.

The provider signs the tokens and publishes its keys. The service itself checks the signature, issuer, audience, time
and subject of each token (OpenID Connect Core 1.0, 3.1.3.7; RFC 9068, 4): no request to the provider is needed for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from dial_client.messages.errors import ConfigError
from dial_client.runtime.logs import get_logger
from dial_client.serve.authentication import GroupScopes, Person, Refusal, ResourceMetadata, list_tokens
from dial_client.serve.http_messages import HttpError
from dial_client.stores.conversation_store import MAX_OWNER

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from jwt import PyJWK

log = get_logger(__name__)

# Only signatures with a private key. With HS256 a program that knows the public key could sign tokens, if a library
# took that key as the shared secret (RFC 8725, 3.1).
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
# Seconds after which keys are fetched again.
KEYS_SECONDS = 3600.0
REFETCH_SECONDS = 30.0
# Seconds by which the clocks of provider and service may differ.
LEEWAY = 30
_FETCH_SECONDS = 10.0
_MAX_DOCUMENT = 1024 * 1024
_NOT_VALID = "the token is not valid for this service"


class ProviderKeys:
    """The public keys of an OpenID provider, fetched when they are needed.

    Args:
        issuer: The URL of the provider, whose configuration is at ``/.well-known/openid-configuration`` below it.
        refetch_seconds: Seconds in which the provider is asked once for keys that are not known: tokens with invented
            key ids must not make this service send a flood.

    Raises:
        ConfigError: The URL is none, or sends what it fetches over a network without TLS.
    """

    def __init__(self, issuer: str, refetch_seconds: float = REFETCH_SECONDS) -> None:
        if not _is_safe(issuer) or set("?#@") & set(issuer):
            raise ConfigError(
                f"{issuer!r} is not the URL of an OpenID provider", hint="https://login.example.com/realm"
            )
        self.issuer = issuer
        self._refetch_seconds = refetch_seconds
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = self._tried_at = -KEYS_SECONDS
        self._lock = anyio.Lock()

    async def find(self, key_id: str) -> PyJWK | None:
        """Return the key with this id; None if the provider has none. Without an id, it is the provider's only key.

        Raises:
            HttpError: The provider does not answer, and no keys are known.
        """
        if self._is_fetch_due(key_id):
            async with self._lock:
                if self._is_fetch_due(key_id):  # no other request has fetched the keys meanwhile
                    await self._fetch()
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_fetch_due(self, key_id: str) -> bool:
        now = anyio.current_time()
        is_known = key_id in self._keys or not key_id
        is_old = now - self._fetched_at >= KEYS_SECONDS
        return (is_old or not is_known or not self._keys) and (
            now - self._tried_at >= self._refetch_seconds or not self._keys
        )

    async def _fetch(self) -> None:
        import httpx2
        import jwt

        self._tried_at = anyio.current_time()
        try:
            async with httpx2.AsyncClient(timeout=_FETCH_SECONDS) as http:
                with anyio.fail_after(_FETCH_SECONDS):
                    keys = jwt.PyJWKSet.from_dict(await _get(http, await self._find_keys_url(http)))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError, ValueError, jwt.PyJWTError) as error:
            log.warning("oidc_keys_not_fetched", issuer=self.issuer, error=type(error).__name__, text=str(error)[:200])
            if not self._keys:
                message = "the OpenID provider of this service does not answer: try again later"
                headers = {"retry-after": "5"}
                raise HttpError(503, message, "no_identity", kind="server_error", headers=headers) from None
            return
        signing = (key for key in keys if key.public_key_use in (None, "sig"))
        self._keys = {key.key_id or "": key for key in signing}
        self._fetched_at = self._tried_at

    async def _find_keys_url(self, http: AsyncClient) -> str:
        document = await _get(http, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        # A document of another issuer would bring another issuer's keys (OpenID Connect Discovery 1.0, 4.3).
        if document.get("issuer") != self.issuer:
            raise ValueError("the configuration names another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not _is_safe(url):
            raise ValueError("the configuration names no URL of keys with TLS")
        return url


class OidcTokens:
    """The persons of a service, by the tokens that an OpenID provider has signed for them.

    The name of a person is ``SUBJECT@ISSUER`` without the scheme, because subjects are unique at one issuer only.

    Args:
        issuer: The URL of the provider.
        audiences: What tokens must have been issued for: the ids of clients, or the URL of this service. A token for
            another service is not accepted, whoever signed it.
        scopes: What persons may do, by their groups.
        groups_claim: The claim with the groups of a person; a path such as ``realm_access.roles`` leads into objects.
        resource: The URL of ``/mcp`` as clients know it, which then learn the issuer from this service; empty for none.
        refetch_seconds: Seconds in which the provider is asked once for keys that are not known.

    Raises:
        ConfigError: The issuer is not a URL with TLS, or there is no audience.
    """

    def __init__(
        self,
        issuer: str,
        audiences: Sequence[str],
        scopes: GroupScopes,
        groups_claim: str = "groups",
        resource: str = "",
        *,
        refetch_seconds: float = REFETCH_SECONDS,
    ) -> None:
        self._keys = ProviderKeys(issuer, refetch_seconds)
        self._audiences = [*audiences, *([resource] if resource else [])]
        if not self._audiences:
            raise ConfigError("tokens of any audience would be accepted", hint="name the client id: --oidc-audience ID")
        self._scopes, self._groups_claim = scopes, groups_claim
        self.metadata = ResourceMetadata(resource, (issuer,)) if resource else None
        """The authorization servers that clients of ``/mcp`` get their tokens from."""

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the person whom the provider has signed the token of a request for.

        Raises:
            HttpError: The provider does not answer, and no keys are known.
        """
        import jwt

        refusal = Refusal("send your token of the OpenID provider: Authorization: Bearer TOKEN")
        for token in list_tokens(headers):
            try:
                header = jwt.get_unverified_header(token)
                key = await self._keys.find(str(header.get("kid") or "")) if header.get("alg") in ALGORITHMS else None
                if key is None:
                    refusal = Refusal(f"{_NOT_VALID}: it is not signed with a key of the OpenID provider")
                    continue
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=ALGORITHMS,
                    audience=self._audiences,
                    issuer=self._keys.issuer,
                    leeway=LEEWAY,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
            except jwt.ExpiredSignatureError:
                refusal = Refusal("the token has expired: get a new one from the OpenID provider")
            except (jwt.PyJWTError, ValueError, RecursionError) as error:
                refusal = Refusal(f"{_NOT_VALID} ({type(error).__name__})")
            else:
                return self._build_person(claims)
        return refusal

    def _build_person(self, claims: Mapping[str, Any]) -> Person | Refusal:
        subject = claims["sub"]
        name = f"{subject}@{self._keys.issuer.partition('://')[2]}"
        if not subject or not name.isprintable() or len(name) > MAX_OWNER:
            return Refusal(f"{_NOT_VALID}: its subject is no name")
        shown = next((text for key in ("preferred_username", "email") if isinstance(text := claims.get(key), str)), "")
        return Person(name, self._scopes.find(_read_groups(claims, self._groups_claim)), shown)


def _read_groups(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the groups in a claim; a claim whose name has dots, such as a URL, comes before a path."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    return [group for group in found if isinstance(group, str)] if isinstance(found, list) else []


def _is_safe(url: str) -> bool:
    """Return whether what is fetched from a URL cannot be changed on its way: it has TLS, or is on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1"))
    )


async def _get(http: AsyncClient, url: str) -> dict[str, Any]:
    from dial_client.servers.oauth.oauth_http_client import read_body

    async with http.stream("GET", url, headers={"accept": "application/json"}) as response:
        body = await read_body(response, _MAX_DOCUMENT) if response.status_code == 200 else None
    document = json.loads(body) if body is not None else None
    if not isinstance(document, dict):
        raise ValueError(f"{url} has no JSON object: HTTP {response.status_code}")  # noqa: TRY004 - as json.loads
    return document
