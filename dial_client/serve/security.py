"""Who comes in, and with how much: looked at before anything of a request is read.

* ``Host`` names this server: a web page whose name leads here (DNS rebinding) has another one. An IP address is no
  name: where the server listens on all addresses, any is right.
* ``Origin``, and where browsers send it ``Sec-Fetch-Site``, is this server's own: no other page talks through a browser
  that is open here. There is no CORS.
* ``Authorization: Bearer TOKEN`` for all but the page's files and ``/healthz``.
* A body of bounded size, that arrives in bounded time, and for which there is room beside those of other requests.
* One length of a body: a request that tells two of them is taken for an attempt to smuggle another one in.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dial_client.logs import get_logger
from dial_client.serve.http_responses import HttpError, refusal_of
from dial_client.serve.request_bodies import MAX_BODIES, BodyBudget, BodyShare

log = get_logger(__name__)

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request's body: pictures and documents come in base64."""
BODY_PATIENCE = 60.0
"""Seconds in which a body has to be there."""

_CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_ALWAYS = {
    "content-security-policy": _CONTENT,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_AMBIGUOUS = "ambiguous_length"
ADMIT = "dial_client.admit"
"""Where the state of a request has what is called when its connection has shown the token."""
HEALTH = "/healthz"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - known, not bound to


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who comes in."""

    token: str | None = None
    """What everybody has to show; None for nothing."""
    hosts: frozenset[str] = frozenset(LOOPBACK)
    """The names of this server, in lower case, without ports."""
    any_address: bool = False
    """Any IP address is one of its names."""
    max_body: int = MAX_BODY
    max_bodies: int = MAX_BODIES
    patience: float = BODY_PATIENCE


def rules_for(host: str, token: str | None, allowed_hosts: Iterable[str] = ()) -> AccessPolicy:
    """Give the rules for a server that listens on `host`."""
    names = {*LOOPBACK, host.lower(), *(name.lower() for name in allowed_hosts)} - set(_EVERY_ADDRESS)
    return AccessPolicy(token, frozenset(names), any_address=host in _EVERY_ADDRESS)


class SecurityMiddleware:
    """The ASGI application around another, that lets in whom the rules let in.

    Whatever the other one raises is an answer of its own: nobody sees a traceback.
    """

    def __init__(self, app: ASGIApp, rules: AccessPolicy) -> None:
        self._app = app
        self._rules = rules
        self._bodies = BodyBudget(rules.max_bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self._look(scope)
            scope["app"] = self  # without one Starlette answers by itself where a method is wrong
            with self._bodies.share() as share:
                await self._app(scope, self._bounded(scope, receive, share), answer)
        except Exception as error:
            if begun:
                log.warning("answer_broke_off", error=type(error).__name__)
                raise
            refusal = refusal_of(error)
            if (
                refusal.status in (408, 413) or refusal.error["code"] == _AMBIGUOUS
            ):  # what is left of the body is not read
                refusal.headers["connection"] = "close"
            await refusal.answer()(scope, receive, answer)

    def _look(self, scope: Scope) -> None:
        path: str = scope["path"]
        headers = Headers(scope=scope)
        _look_at_length(headers, scope["http_version"])
        if path == HEALTH:
            return
        is_page = scope["method"] in ("GET", "HEAD") and (path == "/" or path.startswith("/assets/"))
        self._look_at_host(headers)
        _look_at_origin(headers, is_page=is_page)
        if not is_page:
            self._look_at_token(headers)
            admit: Callable[[], None] | None = scope.get("state", {}).get(ADMIT)
            if admit is not None:
                admit()

    def _look_at_host(self, headers: Headers) -> None:
        said = headers.getlist("host")
        name = _host(said[0]) if len(said) == 1 else ""
        if name not in self._rules.hosts and not (self._rules.any_address and _is_address(name)):
            raise HttpError(421, "this is not the host that was asked for; --allow-host adds a name", "wrong_host")

    def _look_at_token(self, headers: Headers) -> None:
        wanted = self._rules.token
        if wanted is None:
            return
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        # Compared as bytes: in text only ASCII may be compared so that the time taken tells nothing.
        fits = hmac.compare_digest(shown.strip().encode(), wanted.encode())
        if scheme.lower() != "bearer" or not fits:
            why = "give the token of `dial-chat serve`: Authorization: Bearer TOKEN"
            raise HttpError(
                401, why, "invalid_api_key", kind="authentication_error", headers={"www-authenticate": "Bearer"}
            )

    def _bounded(self, scope: Scope, receive: Receive, share: BodyShare) -> Receive:
        most = self._rules.max_body
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdigit() and int(said) > most:
            raise _too_much(most)
        expected = int(said) if said.isdigit() else 0
        until = anyio.current_time() + self._rules.patience
        came, is_whole = 0, False

        async def bounded() -> Message:
            nonlocal came, is_whole
            if is_whole:
                return await receive()
            share.grow(max(expected, came))
            with anyio.move_on_after(until - anyio.current_time()) as patience:
                message = await receive()
            if patience.cancelled_caught:
                raise HttpError(408, "the body took too long", "timeout")
            came += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if came > most:
                raise _too_much(most)
            share.grow(came)
            return message

        return bounded


def _look_at_length(headers: Headers, http_version: str) -> None:
    # RFC 9112, 6.1: such a request is refused, or read by its Transfer-Encoding; either way its connection is closed.
    if "transfer-encoding" in headers and ("content-length" in headers or http_version < "1.1"):
        raise HttpError(400, "give either Content-Length or Transfer-Encoding", _AMBIGUOUS)


def _look_at_origin(headers: Headers, *, is_page: bool) -> None:
    origin = headers.get("origin")
    is_other = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    # A link on another page may lead to this one; nothing else of another page may lead here.
    fetched = headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_page
    if is_other or fetched:
        raise HttpError(403, "pages of other origins are not let in", "wrong_origin")


def _host(said: str) -> str:
    """Give the name in a Host header without its port; empty where there is none."""
    try:
        return (urlsplit(f"//{said}").hostname or "").lower() if "@" not in said and "/" not in said else ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach a server that listens there."""
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _too_much(most: int) -> HttpError:
    return HttpError(413, f"the body is larger than {most // (1024 * 1024)} MiB", "request_too_large")


def headers_of_page(mime_type: str) -> Mapping[str, str]:
    """Give the headers of one of the page's files, which a browser may keep but asks about again."""
    return {"content-type": mime_type, "cache-control": "no-cache"}
