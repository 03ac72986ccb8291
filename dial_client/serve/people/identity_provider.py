"""An OpenID provider (Keycloak, Entra ID, Google, …): its configuration, its keys, its tokens as those of persons.

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
from dial_client.serve.http_messages import HttpError
from dial_client.serve.people.authentication import GroupScopes, Person, Refusal, ResourceMetadata, list_tokens
from dial_client.stores.conversation_store import MAX_OWNER

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response
    from jwt import PyJWK

log = get_logger(__name__)

# Only signatures with a private key. With HS256 a program that knows the public key could sign tokens, if a library
# took that key as the shared secret (RFC 8725, 3.1).
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
# Seconds after which keys are fetched again.
KEYS_SECONDS = 3600.0
REFETCH_SECONDS = 30.0
# Seconds in which a provider whose keys are not known yet is asked once: while it is away, requests that wait for it
# would else ask it one after the other, ten seconds each.
_RETRY_SECONDS = 1.0
# Seconds by which the clocks of provider and service may differ.
LEEWAY = 30
# Seconds for a request to the provider.
REQUEST_SECONDS = 10.0
_MAX_DOCUMENT = 1024 * 1024


class InvalidToken(Exception):
    """A token that the provider has not signed for this service and this time; the text is for the user."""


class IdentityProvider:
    """An OpenID provider. Its configuration and keys are fetched when they are needed.

    Args:
        issuer: The URL of the provider, whose configuration is at ``/.well-known/openid-configuration`` below it.
        refetch_seconds: Seconds in which the provider is asked once for keys that are not known: tokens with invented
            key ids must not make this service send a flood.

    Raises:
        ConfigError: The URL is none, or what is fetched from it could be changed on its way.
    """

    def __init__(self, issuer: str, refetch_seconds: float = REFETCH_SECONDS) -> None:
        if not is_safe(issuer) or set("?#@") & set(issuer):
            raise ConfigError(
                f"{issuer!r} is not the URL of an OpenID provider", hint="https://login.example.com/realm"
            )
        self.issuer = issuer
        self._refetch_seconds = refetch_seconds
        self._configuration: Mapping[str, Any] = {}
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = self._tried_at = -KEYS_SECONDS
        self._lock = anyio.Lock()

    async def verify(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
        """Return the claims of a token that was issued for one of the audiences.

        Raises:
            InvalidToken: It was not, or it has expired, or the provider has not signed it.
            HttpError: The provider does not answer, and no keys are known.
        """
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            is_signed = header.get("alg") in ALGORITHMS
            key = await self._find_key(str(header.get("kid") or "")) if is_signed else None
            if key is None:
                raise InvalidToken("the token is not signed with a key of the OpenID provider")
            return jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=audiences,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidToken("the token has expired: get a new one from the OpenID provider") from None
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise InvalidToken(f"the token is not valid for this service ({type(error).__name__})") from None

    async def find_endpoint(self, name: str) -> str:
        """Return the URL of an endpoint, such as ``token_endpoint``; empty if the provider has none with TLS.

        Raises:
            HttpError: The provider does not answer.
        """
        await self._find_key("")
        url = self._configuration.get(name)
        return url if isinstance(url, str) and is_safe(url) else ""

    async def _find_key(self, key_id: str) -> PyJWK | None:
        """Return the key with this id; None if the provider has none. Without an id, it is the provider's only key."""
        if self._is_fetch_due(key_id):
            async with self._lock:
                if self._is_fetch_due(key_id):  # no other request has fetched the keys meanwhile
                    await self._fetch()
        if not self._keys:
            raise build_outage()
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_fetch_due(self, key_id: str) -> bool:
        now = anyio.current_time()
        if not self._keys:
            return now - self._tried_at >= min(_RETRY_SECONDS, self._refetch_seconds)
        is_known = key_id in self._keys or not key_id
        is_old = now - self._fetched_at >= KEYS_SECONDS
        return (is_old or not is_known) and now - self._tried_at >= self._refetch_seconds

    async def _fetch(self) -> None:
        import httpx2
        import jwt

        self._tried_at = anyio.current_time()
        try:
            async with httpx2.AsyncClient(timeout=REQUEST_SECONDS) as http:
                with anyio.fail_after(REQUEST_SECONDS):
                    configuration = await self._read_configuration(http)
                    keys = jwt.PyJWKSet.from_dict(await _get(http, configuration["jwks_uri"]))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError, ValueError, jwt.PyJWTError) as error:
            log.warning("oidc_keys_not_fetched", issuer=self.issuer, error=type(error).__name__, text=str(error)[:200])
            return
        self._configuration = configuration
        self._keys = {key.key_id or "": key for key in keys if key.public_key_use in (None, "sig")}
        self._fetched_at = self._tried_at

    async def _read_configuration(self, http: AsyncClient) -> dict[str, Any]:
        document = await _get(http, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        # A document of another issuer would bring another issuer's keys (OpenID Connect Discovery 1.0, 4.3).
        if document.get("issuer") != self.issuer:
            raise ValueError("the configuration names another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_safe(url):
            raise ValueError("the configuration names no URL of keys with TLS")
        return document


def build_outage() -> HttpError:
    """Return the error of a request that needs the provider while it is away."""
    message = "the OpenID provider of this service does not answer: try again later"
    return HttpError(503, message, "no_identity", kind="server_error", headers={"retry-after": "5"})


def is_safe(url: str) -> bool:
    """Return whether what is fetched from a URL cannot be changed on its way: it has TLS, or is on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    is_local = parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")
    return bool(host) and (parts.scheme == "https" or is_local)


async def _get(http: AsyncClient, url: str) -> dict[str, Any]:
    async with http.stream("GET", url, headers={"accept": "application/json"}) as response:
        return await read_document(response)


async def read_document(response: Response) -> dict[str, Any]:
    """Return the JSON object of a successful response.

    Raises:
        ValueError: The response is an error, is larger than a MiB, or has no JSON object.
    """
    from dial_client.servers.oauth.oauth_http_client import read_body

    body = await read_body(response, _MAX_DOCUMENT) if response.status_code == 200 else None
    document = json.loads(body) if body is not None else None
    if not isinstance(document, dict):
        raise ValueError(f"HTTP {response.status_code}, and no JSON object")  # noqa: TRY004 - as json.loads
    return document


class OidcTokens:
    """The persons of a service, by the tokens that an OpenID provider has signed for them.

    The name of a person is ``SUBJECT@ISSUER`` without the scheme, because subjects are unique at one issuer only.

    Args:
        provider: The provider.
        audiences: What tokens must have been issued for: the ids of clients, that of the page's login first, or the URL
            of this service. A token for another service is not accepted, whoever signed it.
        scopes: What persons may do, by their groups.
        groups_claim: The claim with the groups of a person; a path such as ``realm_access.roles`` leads into objects.
        resource: The URL of ``/mcp`` as clients know it, which then learn the issuer from this service; empty for none.

    Raises:
        ConfigError: There is no audience.
    """

    def __init__(
        self,
        provider: IdentityProvider,
        audiences: Sequence[str],
        scopes: GroupScopes,
        groups_claim: str = "groups",
        resource: str = "",
    ) -> None:
        self._provider = provider
        self._audiences = [*audiences, *([resource] if resource else [])]
        if not self._audiences:
            raise ConfigError("tokens of any audience would be accepted", hint="name the client id: --oidc-audience ID")
        self._scopes, self._groups_claim = scopes, groups_claim
        self.metadata = ResourceMetadata(resource, (provider.issuer,)) if resource else None
        """The authorization servers that clients of ``/mcp`` get their tokens from."""

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the person whom the provider has signed the token of a request for.

        Raises:
            HttpError: The provider does not answer, and no keys are known.
        """
        refusal = Refusal("send your token of the OpenID provider: Authorization: Bearer TOKEN")
        for token in list_tokens(headers):
            try:
                return self._build_person(token, await self._provider.verify(token, self._audiences))
            except InvalidToken as error:
                refusal = Refusal(str(error), has_token=True)
        return refusal

    def _build_person(self, token: str, claims: Mapping[str, Any]) -> Person:
        subject = claims["sub"]
        name = f"{subject}@{self._provider.issuer.partition('://')[2]}"
        if not subject or not name.isprintable() or len(name) > MAX_OWNER:
            raise InvalidToken("the subject of the token is no name")
        shown = next((text for key in ("preferred_username", "email") if isinstance(text := claims.get(key), str)), "")
        groups = frozenset(_read_groups(claims, self._groups_claim))
        audience = claims["aud"]
        # What was issued for other programs is no proof of a login here, and nothing to exchange.
        is_of_login = self._audiences[0] in ([audience] if isinstance(audience, str) else audience)
        return Person(name, self._scopes.find(groups), shown, groups, id_token=token if is_of_login else "")


def _read_groups(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the groups in a claim; a claim whose name has dots, such as a URL, comes before a path."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    return [group for group in found if isinstance(group, str)] if isinstance(found, list) else []
