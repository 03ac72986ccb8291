"""Who sends a request, and what for: the one token of ``serve``, tokens of several persons, and the interface for all.

Persons of an OpenID provider are in `identity_provider`.

An `Authenticator` answers for the whole service, or for `/mcp` alone. It may name authorization servers: clients of
`/mcp` then find them as RFC 9728 says, by the header ``WWW-Authenticate`` of a refused request, or at
``/.well-known/oauth-protected-resource``.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from dial_client.serve.http_messages import HttpError
from dial_client.stores.access_tokens import AccessToken, AccessTokens
from dial_client.stores.conversation_store import MAX_OWNER

# The path of the MCP server, and the paths of the metadata: the second is for clients that append the resource's path.
MCP = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
METADATA_OF_MCP = f"{METADATA}{MCP}"

# The paths that front ends of other programs ask at.
AG_UI, AI_SDK = "/ag-ui", "/ai-sdk/chat"

# What a request may be for: to ask the model and change conversations, to read, to answer approvals and questions, to
# change servers and read the audit log, to use `/mcp`.
CHAT, READ, APPROVE, ADMIN, GATEWAY = SCOPES = ("chat", "read", "approve", "admin", "gateway")

# The scopes of which a request needs one, by the first part of its path: for GET, and for other methods.
NEEDED_SCOPES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "v1": ((CHAT, READ), (CHAT,)),
    "conversations": ((READ,), (CHAT,)),
    "ag-ui": ((READ,), (CHAT,)),
    "ai-sdk": ((READ,), (CHAT,)),
    "approvals": ((READ,), (APPROVE,)),
    "questions": ((READ,), (APPROVE,)),
    "waiting": ((READ,), (APPROVE,)),
    "grants": ((READ,), (APPROVE,)),
    "tools": ((READ,), (CHAT,)),
    "prompts": ((READ,), (CHAT,)),
    "skills": ((READ,), (CHAT,)),
    "resources": ((READ,), (CHAT,)),
    "completions": ((CHAT,), (CHAT,)),
    "apps": ((READ,), (CHAT,)),
    "models": ((CHAT, READ), (ADMIN,)),
    "servers": ((READ,), (ADMIN,)),
    "credentials": ((CHAT, READ), (CHAT,)),
    "audit": ((ADMIN,), (ADMIN,)),
    "metrics": ((ADMIN,), (ADMIN,)),
    "usage": ((CHAT, READ), (ADMIN,)),
    "me": (SCOPES, SCOPES),
    MCP.removeprefix("/"): ((GATEWAY,), (GATEWAY,)),
}


def find_needed_scopes(method: str, path: str) -> tuple[str, ...]:
    """Return the scopes of which a request needs one. A path that is not known here needs `ADMIN`, to be safe."""
    reading, writing = NEEDED_SCOPES.get(path.removeprefix("/").partition("/")[0], ((ADMIN,), (ADMIN,)))
    return reading if method in ("GET", "HEAD") else writing


@dataclass(frozen=True, slots=True)
class Person:
    """Who a request is for."""

    name: str = ""
    """What tells the persons apart, such as the subject of a token with its issuer; empty if there is only one, or for
    the operator, who sees the conversations of all. The conversations of a person have this name as their owner."""
    scopes: frozenset[str] = frozenset(SCOPES)
    """What the person may use the service for."""
    shown_name: str = ""
    """The name for people to read, such as an e-mail address; empty if it is `name`."""
    groups: frozenset[str] = frozenset()
    """The groups that an identity provider or a proxy names, for the limits of groups."""
    token_id: str = ""
    """The id of the token of the request, if that has a limit of its own."""
    requests_per_minute: int | None = None
    """The requests that this token may send in a minute; None for no limit."""
    id_token: str = field(default="", repr=False, compare=False)
    """The token of the request, if it is the person's ID token of an OpenID provider."""


@dataclass(frozen=True, slots=True)
class GroupScopes:
    """What persons may use the service for, by the groups that an identity provider or a proxy names.

    Without groups all may do everything but change servers and read the audit log.
    """

    by_group: Mapping[str, Collection[str]] = field(default_factory=lambda: {"*": (CHAT, READ, APPROVE, GATEWAY)})
    """The scopes of each group; those of ``*`` have all persons."""

    def find(self, groups: Collection[str]) -> frozenset[str]:
        """Return the scopes of a person in these groups."""
        return frozenset(scope for group in {*groups, "*"} for scope in self.by_group.get(group, ()))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not accepted."""

    message: str
    """For the user of the client."""
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs and this one does not have: 403. Without scopes the token is not valid: 401."""
    has_token: bool = False
    """Whether a token was sent, which is not valid."""


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


def list_tokens(headers: Mapping[str, str]) -> list[str]:
    """Return the tokens in the headers of a request: one, or two if the client sends both headers.

    Anthropic's SDKs send the token as ``x-api-key``. Pages of other origins can send neither header.
    """
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    tokens = [credentials.strip()] if scheme.lower() == "bearer" else []
    return [*tokens, *([headers["x-api-key"]] if "x-api-key" in headers else [])]


def _build_token_refusal(headers: Mapping[str, str], request: str) -> Refusal:
    """Return why no token of a request is accepted: what to send if there is none."""
    if not any(list_tokens(headers)):
        return Refusal(request)
    return Refusal("this token is not accepted: it is wrong, has expired or was revoked", has_token=True)


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
        # Compared as bytes: only ASCII strings can be compared in constant time.
        are_equal = [hmac.compare_digest(token.encode(), self._token.encode()) for token in list_tokens(headers)]
        if not any(are_equal):
            return _build_token_refusal(headers, "send the token of this service: Authorization: Bearer TOKEN")
        return Person()


# Seconds for which a token that was found is not looked up again; for as long a revoked token may be accepted.
_KNOWN_SECONDS = 5.0
# Maximum number of tokens that are remembered.
_MAX_KNOWN = 10_000


@dataclass(slots=True)
class _KnownToken:
    token: AccessToken
    found_at: float


class PersonalTokens:
    """The persons of a service, by their tokens in its database (``dial-chat tokens``).

    Args:
        tokens: The stored tokens.
    """

    metadata = None

    def __init__(self, tokens: AccessTokens) -> None:
        self._tokens = tokens
        # The tokens that were found, the latest at the end.
        self._known: OrderedDict[str, _KnownToken] = OrderedDict()

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the owner of the token in the headers.

        Raises:
            DialError: The database failed.
        """
        known = None
        for text in list_tokens(headers):
            known = known or await self._find(text)
        if known is None:
            return _build_token_refusal(headers, "send your token for this service: Authorization: Bearer TOKEN")
        token = known.token
        return Person(token.owner, token.scopes, token_id=token.id, requests_per_minute=token.requests_per_minute)

    async def _find(self, text: str) -> _KnownToken | None:
        now, known = anyio.current_time(), self._known.get(text)
        if known is None or now - known.found_at >= _KNOWN_SECONDS:
            token = await self._tokens.find(text)
            self._known.pop(text, None)
            if token is None:
                return None
            known = self._known[text] = _KnownToken(token, now)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return None if known.token.has_expired else known


class ProxyUsers:
    """The persons of a service whom a proxy names in headers of each request, after it has logged them in.

    Such a header is worth as much as the way that it came: `HttpServer` removes it from each request that does not come
    from the address of a proxy, and a header that is there twice, because the proxy then passed on what the client
    sent. A program that runs `create_app` in another server has to remove the headers there: clients could be anybody
    otherwise.

    Args:
        scopes: What persons may do, by their groups.
        user_header: The header with the name of the person, such as an e-mail address.
        groups_header: The header with the groups of the person, with commas between them.
    """

    metadata = None

    def __init__(
        self, scopes: GroupScopes, user_header: str = "X-Forwarded-User", groups_header: str = "X-Forwarded-Groups"
    ) -> None:
        self._scopes = scopes
        self._user_header, self._groups_header = user_header.lower(), groups_header.lower()

    @property
    def header_names(self) -> frozenset[str]:
        """The headers, in lower case, that `HttpServer` accepts from proxies only."""
        return frozenset({self._user_header, self._groups_header})

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the person whom the proxy names."""
        name = headers.get(self._user_header, "").strip()
        if not name:
            return Refusal("this service is used through its proxy, which logs persons in")
        if len(name) > MAX_OWNER or not name.isprintable():
            return Refusal("the proxy names a person whose name is too long, or cannot be shown")
        groups = [group.strip() for group in headers.get(self._groups_header, "").split(",")]
        return Person(name, self._scopes.find(groups), groups=frozenset(groups))


class FirstOf:
    """The person whom the first of several authenticators knows, such as the operator's token before all others.

    Args:
        authenticators: The authenticators; if none knows the person, the refusal is the last one that is about the
            token of the request, else that of the last authenticator.
    """

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators = authenticators

    @property
    def metadata(self) -> ResourceMetadata | None:
        """The authorization servers that clients get their tokens from."""
        return next((each.metadata for each in self._authenticators if each.metadata is not None), None)

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return who sends a request.

        Raises:
            HttpError: A token's requests of this minute are used up, or an identity provider does not answer.
            DialError: The database failed.
        """
        refusals = [Refusal("nobody may use this service")]
        for authenticator in self._authenticators:
            if isinstance(found := await authenticator.authenticate(headers), Person):
                return found
            refusals.append(found)
        return next((each for each in reversed(refusals) if each.has_token), refusals[-1])


def build_refusal(refusal: Refusal, metadata: ResourceMetadata | None = None) -> HttpError:
    """Return the error of a request that was not accepted (RFC 6750, section 3).

    Args:
        refusal: Why.
        metadata: The authorization servers that give tokens; None if there are none.
    """
    parameters = [] if metadata is None else [f'resource_metadata="{metadata.url}"']
    if refusal.scopes:
        parameters = ['error="insufficient_scope"', f'scope="{" ".join(refusal.scopes)}"', *parameters]
    elif refusal.has_token:  # a request without a token gets no error code
        parameters = ['error="invalid_token"', *parameters]
    challenge = f"Bearer {', '.join(parameters)}".strip()
    status, code = (403, "insufficient_scope") if refusal.scopes else (401, "invalid_api_key")
    return HttpError(
        status, refusal.message, code, kind="authentication_error", headers={"www-authenticate": challenge}
    )
