"""Access control: checks each request before its body is read.

* ``Host`` must name this server. A web page whose name resolves to this machine (DNS rebinding) sends another name.
  If the server listens on all addresses, any IP address is accepted.
* ``Origin`` and ``Sec-Fetch-Site`` must be of this server's own origin: pages of other origins cannot send requests
  through the user's browser. There is no CORS, except for `/mcp`, `/ag-ui` and `/ai-sdk/chat`, and the origins that
  are allowed to use them.
* ``Authorization: Bearer TOKEN`` or ``x-api-key: TOKEN`` is required for everything except the page's files, the
  redirects of OAuth logins, the login of persons (`oidc_login`), ``/healthz``, ``/readyz`` and shared conversations
  (`share_routes`), which need the key of their link.
  A token of a person may have only some scopes: 403 for what it may not be used for.
* The body is limited in size and time, and so are the bodies of all requests together.
* The length of the body must be unambiguous: a request with two lengths may smuggle a second request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial_client.messages.errors import ConfigError
from dial_client.runtime.logs import get_logger
from dial_client.serve.http_messages import HttpError, build_path_error, to_http_error
from dial_client.serve.people.authentication import (
    AG_UI,
    AI_SDK,
    MCP,
    METADATA,
    METADATA_OF_MCP,
    NEEDED_SCOPES,
    Authenticator,
    Person,
    Refusal,
    TokenAuthenticator,
    build_refusal,
    find_needed_scopes,
)
from dial_client.serve.people.oidc_login import CALLBACK, LOGIN, LOGOUT, REFRESH

log = get_logger(__name__)

# Bytes of a request body, which may contain images and documents in base64.
MAX_BODY = 32 * 1024 * 1024
# Bytes of the bodies of all requests in progress.
MAX_TOTAL = 64 * 1024 * 1024
# Bytes of each body that are not counted: small requests are accepted even while large bodies use up the limit.
UNCOUNTED = 64 * 1024
# Seconds in which the whole body must arrive.
BODY_TIMEOUT = 60.0

# The minimum characters of a token if other machines can reach the server, as many as 24 bytes have in base64.
MIN_TOKEN = 32

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dial-worker dial-service-worker"
)
# The headers of the frame that draws diagrams. Only the page may embed it; its origin is opaque, and it may send no
# requests except for its own scripts.
FRAME_HEADERS = {
    "content-security-policy": (
        "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "x-frame-options": "SAMEORIGIN",
}
_SECURITY_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# What pages of allowed origins may read of a response.
_EXPOSED_HEADERS = "mcp-session-id, mcp-protocol-version, www-authenticate, x-conversation-id, x-turn-id"
_AMBIGUOUS_LENGTH = "ambiguous_length"
# Key, in the scope's ``state``, of a function that is called when a request has passed all checks.
ON_AUTHENTICATED = "dial_client.on_authenticated"
# Key, in the scope's ``state``, of the `Person` that a request is for.
PERSON = "dial_client.person"
# Key, in the scope's ``state``, of the code of an error response, for the access log.
ERROR_CODE = "dial_client.error_code"
# Whether the process is alive, and whether it can do its work: for service managers and proxies, without a token.
HEALTH, READY = "/healthz", "/readyz"
# The paths of Anthropic's Messages API, whose clients read errors in another form.
MESSAGES = "/v1/messages"
ASSETS = "/assets/"
# The scripts of the frame that draws diagrams. Its origin is opaque: browsers send ``Origin: null`` for them.
FRAME_SCRIPTS = frozenset({f"{ASSETS}diagram_frame.js", f"{ASSETS}vendor/mermaid/mermaid.min.js"})
# The empty document of MCP Apps. It needs no token, which frames cannot send: it is the same for all users.
APP_FRAME = "/apps/frame"
# The page of shared conversations, and a shared conversation, which the key of its link opens in place of the token.
SHARED = "/shared"
SHARED_CONVERSATION = "/shared/conversation"
# The path to which authorization servers redirect browsers, without a token. The login validates the redirect.
OAUTH_CALLBACK = "/oauth/callback"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound to


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The requests that are accepted."""

    token: str | None = None
    """The token clients must send; None to require no token."""
    hosts: frozenset[str] = frozenset(LOOPBACK)
    """The names of this server, in lower case, without ports."""
    any_address: bool = False
    """True if ``Host`` may be any IP address."""
    origins: frozenset[str] = frozenset()
    """The other origins whose pages may use ``/mcp``, ``/ag-ui`` and ``/ai-sdk/chat``; ``vscode-webview://*`` stands
    for all of a scheme."""
    authenticator: Authenticator | None = None
    """Decides who sends a request; None for the token."""
    mcp_authenticator: Authenticator | None = None
    """Decides who sends a request to ``/mcp``; None for whoever decides about other requests."""
    max_body: int = MAX_BODY
    max_total_bodies: int = MAX_TOTAL
    body_timeout: float = BODY_TIMEOUT


def build_policy(
    host: str,
    token: str | None,
    allowed_hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    authenticator: Authenticator | None = None,
    mcp_authenticator: Authenticator | None = None,
) -> AccessPolicy:
    """Return the policy for a server that listens on `host`."""
    names = {*LOOPBACK, host.lower(), *(name.lower() for name in allowed_hosts)} - set(_ALL_ADDRESSES)
    is_any = host in _ALL_ADDRESSES
    allowed = frozenset(origin.lower() for origin in origins)
    return AccessPolicy(token, frozenset(names), is_any, allowed, authenticator, mcp_authenticator)


def check_origin(origin: str) -> None:
    """Check an origin whose pages are to be allowed to use ``/mcp``.

    Raises:
        ConfigError: It is not an origin, or it stands for all pages of the web.
    """
    scheme, separator, name = origin.partition("://")
    is_address = bool(scheme and separator and name) and not set('/?#@ "') & set(name)
    if not is_address or not origin.isascii() or not origin.isprintable() or ("*" in name and name != "*"):
        raise ConfigError(
            f"{origin!r} is not an origin", hint="such as http://localhost:6274, or vscode-webview://* for a scheme"
        )
    if name == "*" and scheme.lower() in ("http", "https", "ws", "wss", "file"):
        raise ConfigError(f"{origin!r} stands for every page", hint="name each origin, such as http://localhost:6274")


def check_token(token: str, host: str) -> None:
    """Check a token for a server that listens on `host`.

    Raises:
        ConfigError: It is empty, has other characters than printable ASCII, or is too short for other machines.
    """
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("a token is made of printable ASCII without spaces")
    if len(token) < MIN_TOKEN and not is_loopback(host):
        raise ConfigError(
            f"beyond loopback a token needs at least {MIN_TOKEN} characters, and this one has {len(token)}",
            hint='python -c "import secrets; print(secrets.token_urlsafe(32))" makes one; by default one is generated',
        )


def find_person(request: Request) -> Person:
    """Return whom a request is for, which passed the checks."""
    person: Person = request.scope["state"][PERSON]
    return person


class _Divisible(Protocol):
    def for_owner(self, owner: str) -> Self: ...


DivisibleT = TypeVar("DivisibleT", bound=_Divisible)


def select_owned(whole: DivisibleT, request: Request) -> DivisibleT:
    """Return the part of a manager of conversations that the person of a request may see."""
    name = find_person(request).name
    return whole.for_owner(name) if name else whole


class SecurityMiddleware:
    """ASGI middleware that passes on only the requests the policy accepts.

    It also adds the security headers, and turns exceptions of the application into error responses without a traceback.
    """

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy
        self._authenticator = policy.authenticator or TokenAuthenticator(policy.token)
        # The bytes of the bodies of all requests in progress.
        self._reserved_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["type"] != "http":
            return
        if scope.get("root_path"):  # the routes below see the path under the mount, as the checks do
            scope = {**scope, "path": _find_path(scope), "root_path": ""}
        foreign_origin = self._find_foreign_origin(scope)
        response = _Response(send, foreign_origin)
        body = _BodyReader(receive, self._policy, self._reserve_bytes)
        try:
            await self._check(scope, is_allowed_origin=bool(foreign_origin))
            body.announce(Headers(scope=scope).get("content-length", "0"))
            await self._app(scope, body.receive, response.send)
        except Exception as error:
            if response.has_started:
                log.warning("response_interrupted", error=type(error).__name__)
                raise
            refusal = to_http_error(error)
            scope.get("state", {})[ERROR_CODE] = refusal.error["code"]
            if refusal.status in (408, 413) or refusal.error["code"] == _AMBIGUOUS_LENGTH:
                refusal.headers["connection"] = "close"  # the rest of the body will not be read
            wants_page = scope["path"] in ("/", LOGIN, CALLBACK) and "text/html" in Headers(scope=scope).get(
                "accept", ""
            )
            if wants_page:
                refused = refusal.to_page()
            elif scope["path"].startswith(MESSAGES):
                refused = refusal.to_messages_response()
            else:
                refused = refusal.to_response()
            await refused(scope, receive, response.send)
        finally:
            body.release()

    async def _check(self, scope: Scope, *, is_allowed_origin: bool) -> None:
        path: str = scope["path"]
        headers = Headers(scope=scope)
        _check_length(headers, scope["http_version"])
        if path in (HEALTH, READY):
            return
        is_page = scope["method"] in ("GET", "HEAD") and (
            path in ("/", APP_FRAME, OAUTH_CALLBACK, SHARED, LOGIN, CALLBACK) or path.startswith(ASSETS)
        )
        self._check_host(headers)
        if not is_allowed_origin:
            _check_origin(headers, is_page=is_page, is_frame_script=is_page and path in FRAME_SCRIPTS)
        # A browser asks without a token whether a page may send a request with one.
        is_preflight = is_allowed_origin and scope["method"] == "OPTIONS"
        is_open = path in (METADATA, METADATA_OF_MCP, SHARED_CONVERSATION, REFRESH, LOGOUT)
        if is_page or is_preflight or is_open:
            return
        await self._authenticate(scope, headers)

    def _find_foreign_origin(self, scope: Scope) -> str:
        """Return the origin of another page that may send this request; empty if there is none."""
        path: str = scope["path"]
        if path not in (MCP, METADATA, METADATA_OF_MCP, AG_UI) and not path.startswith(AI_SDK):
            return ""
        values = Headers(scope=scope).getlist("origin")
        origin = values[0] if len(values) == 1 else ""
        scheme, separator, _ = origin.lower().partition("://")
        is_allowed = bool(separator) and not {origin.lower(), f"{scheme}://*"}.isdisjoint(self._policy.origins)
        return origin if is_allowed else ""

    async def _authenticate(self, scope: Scope, headers: Headers) -> None:
        """Find out whom a request is for, and whether this person may send it."""
        authenticator = self._authenticator
        if scope["path"] == MCP and self._policy.mcp_authenticator is not None:
            authenticator = self._policy.mcp_authenticator
        person = await authenticator.authenticate(headers)
        if isinstance(person, Person) and person.scopes.isdisjoint(
            needed := find_needed_scopes(scope["method"], scope["path"])
        ):
            if scope["path"].removeprefix("/").partition("/")[0] not in NEEDED_SCOPES:  # mistyped
                raise build_path_error(scope["path"])
            person = Refusal(f"this needs a token with the scope {' or '.join(needed)}", needed[:1])
        if isinstance(person, Refusal):
            raise build_refusal(person, authenticator.metadata)
        state = scope.setdefault("state", {})
        state[PERSON] = person
        on_authenticated: Callable[[], None] | None = state.get(ON_AUTHENTICATED)
        if on_authenticated is not None:
            on_authenticated()

    def _check_host(self, headers: Headers) -> None:
        values = headers.getlist("host")
        name = _parse_host(values[0]) if len(values) == 1 else ""
        if name not in self._policy.hosts and not (self._policy.any_address and _is_address(name)):
            message = (
                "this server does not have the host name of the request: a proxy has to pass on the Host header "
                "(nginx: proxy_set_header Host $http_host;), and dial-chat serve --allow-host NAME adds a name, "
                "as create_app(allow_hosts=[NAME]) does in a program"
            )
            raise HttpError(421, message, "wrong_host")

    def _reserve_bytes(self, size: int) -> None:
        if size > 0 and self._reserved_bytes + size > self._policy.max_total_bodies:
            message = "other requests with large bodies are in progress: try again later"
            headers = {"retry-after": "5"}
            raise HttpError(503, message, "too_many_bodies", kind="server_error", headers=headers)
        self._reserved_bytes += size


class _Response:
    """The response of a request, with the security headers added.

    Args:
        send: Sends the response.
        foreign_origin: The origin of another page that may read the response; empty if there is none.
    """

    def __init__(self, send: Send, foreign_origin: str) -> None:
        self._send = send
        self._foreign_origin = foreign_origin
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
            if self._foreign_origin:
                headers["access-control-allow-origin"] = self._foreign_origin
                headers["access-control-expose-headers"] = _EXPOSED_HEADERS
                headers.add_vary_header("origin")
        await self._send(message)


class _BodyReader:
    """Receives a request's body within the limits of the policy."""

    def __init__(self, receive: Receive, policy: AccessPolicy, reserve: Callable[[int], None]) -> None:
        self._receive = receive
        self._policy = policy
        self._reserve_bytes = reserve
        self._reserved = 0
        self._deadline = anyio.current_time() + policy.body_timeout
        self._announced = 0
        self._received = 0
        self._is_complete = False

    def announce(self, content_length: str) -> None:
        """Set the length of the body as its header announces it."""
        self._announced = int(content_length) if content_length.isdigit() else 0
        self._check_size(self._announced)

    def receive(self) -> Awaitable[Message]:
        return self._receive() if self._is_complete else self._receive_part()

    async def _receive_part(self) -> Message:
        self._reserve(max(self._announced, self._received))
        with anyio.move_on_after(self._deadline - anyio.current_time()) as timeout:
            message = await self._receive()
        if timeout.cancelled_caught:
            raise HttpError(408, "the body did not arrive in time", "timeout")
        self._received += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        self._check_size(self._received)
        self._reserve(self._received)
        return message

    def release(self) -> None:
        """Release what the body has reserved of the bytes of all bodies."""
        self._reserve_bytes(-self._reserved)

    def _check_size(self, size: int) -> None:
        if size > self._policy.max_body:
            problem = f"the body is larger than {self._policy.max_body // (1024 * 1024)} MiB"
            raise HttpError(413, problem, "request_too_large")

    def _reserve(self, size: int) -> None:
        missing = max(0, size - UNCOUNTED - self._reserved)
        self._reserve_bytes(missing)
        self._reserved += missing


def _find_path(scope: Scope) -> str:
    """Return the path of a request without the prefix that the application is mounted under."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path


def _check_length(headers: Headers, http_version: str) -> None:
    # RFC 9112, 6.1: a server rejects such a request or reads Transfer-Encoding, and closes the connection.
    if "transfer-encoding" in headers and ("content-length" in headers or http_version < "1.1"):
        raise HttpError(400, "send either Content-Length or Transfer-Encoding", _AMBIGUOUS_LENGTH)


def _check_origin(headers: Headers, *, is_page: bool, is_frame_script: bool) -> None:
    origin = headers.get("origin")
    if is_frame_script and origin == "null":
        return
    is_cross_origin = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    # Pages of other origins may link only to the web page.
    is_cross_site = headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_page
    if is_cross_origin or is_cross_site:
        raise HttpError(403, "requests of other origins are not allowed", "wrong_origin")


def _parse_host(value: str) -> str:
    """Return the name in a Host header, without its port; empty if the header is invalid."""
    try:
        return (urlsplit(f"//{value}").hostname or "").lower() if "@" not in value and "/" not in value else ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if only programs on this machine can reach a server that listens on `host`."""
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
