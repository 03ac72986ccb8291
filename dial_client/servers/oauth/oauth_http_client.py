"""The HTTP client for OAuth requests, and its policy for the URLs that a server names during a login.

A server names the URLs that the client fetches, and the URL to which it posts secrets. It must not make the client
reach hosts that the server cannot reach itself (MCP security best practices, "Server-Side Request Forgery"), and must
not have codes or tokens sent to another origin.

The client sends only to URLs that the policy allows, and limits the time and the size. It is separate from the client
for MCP requests, so that headers and cookies meant for the MCP server are not sent to the authorization server. It
connects to the IP address that was checked, which prevents DNS rebinding.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
from collections.abc import Container, Iterable
from contextlib import aclosing
from enum import IntEnum
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line

RESOLVE_SECONDS = 10.0
# Known issuers whose token endpoint has another origin, with that origin.
_OTHER_TOKEN_ORIGINS = {"https://accounts.google.com": "https://oauth2.googleapis.com"}

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

TRUST_HINT = '; if you trust it, name its origin in "oauth": {"trustedOrigins": […]}'


class NetworkScope(IntEnum):
    """The scope of an IP address, from public to private networks to this machine."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    FORBIDDEN = 3
    """Link-local (the metadata services of clouds), multicast, and unspecified addresses."""


def classify(address: Address) -> NetworkScope:
    """Return the scope of an IP address; an IPv6 address that embeds an IPv4 address has the scope of the latter."""
    if isinstance(address, ipaddress.IPv6Address):
        # ::ffff:127.0.0.1 (mapped) and 64:ff9b::7f00:1 (NAT64) reach 127.0.0.1, but are global addresses for Python: a
        # check of the IPv6 form alone would let them pass.
        nat64 = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        mapped = address.ipv4_mapped or address.sixtofour or nat64
        if mapped is not None:
            return classify(mapped)
    if address.is_loopback:
        return NetworkScope.LOOPBACK
    # 169.254.169.254 hands out the credentials of the machine in most clouds; 0.0.0.0 is this machine on Linux.
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return NetworkScope.FORBIDDEN
    return NetworkScope.PUBLIC if address.is_global else NetworkScope.PRIVATE


def find_scope(addresses: Iterable[Address]) -> NetworkScope:
    """Return the most private scope of some addresses; public if there are none."""
    return max(map(classify, addresses), default=NetworkScope.PUBLIC)


async def resolve(host: str) -> tuple[Address, ...]:
    """Return the IP addresses of a host in the order to try them; empty if it cannot be resolved in time."""
    try:
        return (ipaddress.ip_address(host),)
    except ValueError:
        pass
    found: list[Address] = []
    with anyio.move_on_after(RESOLVE_SECONDS):
        try:
            infos = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in infos]
        except (OSError, ValueError):
            pass
    return tuple(dict.fromkeys(found))


def find_origin(url: str) -> str:
    """Return the origin of a URL, such as ``https://auth.example``, without a default port."""
    # Origins are compared, not hosts: another port, or http in place of https, is another server.
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    is_default = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{host}" + ("" if is_default else f":{parts.port}")


def to_display(url: str) -> str:
    """Return a URL to show in a message: without query and fragment, cut to 200 characters."""
    return to_one_line(url.partition("?")[0].partition("#")[0], 200)


def to_browser_url(url: str) -> str:
    """Return a URL with all characters quoted that are special to a shell or a terminal.

    Raises:
        LoginFailed: The URL is not a plain http(s) URL, and must not be opened in a browser.
    """
    # Any other scheme could open a file or a program. A user name looks like the host
    # (https://bank.example@evil.example).
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise LoginFailed(f"the URL to log in at is not a valid web address: {to_display(url)}")
    # The URL becomes an argument of a program (xdg-open, on Windows a shell), and is printed: quotes, spaces,
    # backquotes, `$`, `;`, `|`, `^` and escape sequences lose their meaning. mcp-remote ran commands this way
    # (CVE-2025-6514).
    return quote(url, safe=":/?#[]@!*,=%&+~-._")


class UrlPolicy:
    """Allows URLs whose hosts are no more private than the server's own host, and trusted origins.

    Args:
        url: The server's URL.
        trusted: The origins that the user trusts.
    """

    def __init__(self, url: str, trusted: tuple[str, ...] = ()) -> None:
        self._url = url
        self._trusted = {find_origin(trusted_url) for trusted_url in trusted}
        self._scope: NetworkScope | None = None

    async def resolve_allowed(self, url: str) -> tuple[Address, ...]:
        """Return the IP addresses to connect to for this URL; empty if the host cannot be resolved here.

        Behind a proxy, the proxy may still be able to resolve the host.

        Raises:
            LoginFailed: The URL is not allowed.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise LoginFailed(f"the server's login leads to an invalid web address: {to_display(url)}")
        addresses = await resolve(parts.hostname)
        if self.is_trusted(url):
            return addresses
        # A server may lead the client to hosts that it can reach itself, not to more private ones: a public server not
        # into the home or company network, a server of that network not to this machine (SSRF). All addresses count,
        # because the connection may be made to any of them.
        is_own_host = parts.hostname == urlsplit(self._url).hostname
        if self._scope is None:
            self._scope = find_scope(await resolve(urlsplit(self._url).hostname or ""))
        scope = find_scope(addresses)
        if scope > self._scope or (scope is NetworkScope.FORBIDDEN and not is_own_host):
            raise LoginFailed(f"the server's login leads into a private network: {to_display(url)}{TRUST_HINT}")
        # Authorization servers must be served over https (MCP, "Communication Security"); within a private network, and
        # on this machine, http is usual, and as safe as the server's own URL.
        if parts.scheme == "http" and scope is NetworkScope.PUBLIC:
            raise LoginFailed(f"the server's login is not encrypted: {to_display(url)}")
        return addresses

    def is_trusted(self, url: str) -> bool:
        """Return True if the user trusts the origin of a URL."""
        return find_origin(url) in self._trusted

    def check_token_endpoint(self, issuer: str, endpoint: str) -> None:
        """Check that codes and tokens are sent to the issuer's own origin, or to a trusted origin.

        Args:
            issuer: The issuer, as its metadata name it.
            endpoint: The token endpoint or the revocation endpoint of the metadata.

        Raises:
            LoginFailed: They would be sent to another origin.
        """
        # The code, its PKCE verifier and the client's secret go to the token endpoint, which the metadata names.
        # Metadata that a malicious server forwards from a real issuer could name its own endpoint, and so collect the
        # login of a user who has checked the issuer's address in the browser.
        target, own = find_origin(endpoint), find_origin(issuer)
        if target != own and target not in self._trusted and _OTHER_TOKEN_ORIGINS.get(own) != target:
            raise LoginFailed(
                f"{to_display(own)} wants codes or tokens sent to another origin: {to_display(target)}{TRUST_HINT}"
            )


# Maximum bytes of a response; metadata and tokens have a few thousand bytes.
MAX_BODY = 1024 * 1024
# Maximum characters kept of an authorization server's error description.
MAX_WORDS = 200
ANSWER_SECONDS, CONNECT_SECONDS = 30.0, 10.0
_SECRET_FIELDS = (
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "refresh_token",
    "subject_token",
    "token",
)


class OAuthHttpClient:
    """Sends the OAuth requests for the login to one server."""

    def __init__(self, url_policy: UrlPolicy) -> None:
        self._url_policy = url_policy
        self._client: httpx2.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request without following redirects, and return the response with its body read.

        The body of an error response is reduced to OAuth's error fields.

        Raises:
            LoginFailed: The URL is not allowed, nothing answers in time, or the response is too large.
        """
        response = await self._exchange(request)
        return _shorten_error(request, response) if response.status_code >= 400 else response

    async def is_client_refused(self, url: str, errors: Container[str]) -> bool:
        """Return True if an authorization endpoint refuses the client of a request, as a browser would show it.

        It redirects nobody to an unknown client (RFC 6749, 4.1.2.1): the user would see an error page, and the client
        would wait in vain. A known client gets a page to log in at, or a redirect to one.

        Args:
            url: The URL that the user would open.
            errors: The errors of OAuth that say so in a redirect.
        """
        try:
            response = await self._exchange(httpx2.Request("GET", url, headers={"Accept": "text/html"}))
        except LoginFailed:  # the user's browser may reach it
            return False
        if response.status_code in (401, 403, 404):  # also of gateways that know browsers by their cookies
            return b"client" in response.content.lower()
        query = dict(parse_qsl(urlsplit(response.headers["location"]).query))
        return response.status_code == 400 or query.get("error") in errors

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        addresses = await self._url_policy.resolve_allowed(str(request.url))
        place = to_display(str(request.url))
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                return await self._connect_and_send(request, addresses)
        except TimeoutError:
            raise LoginFailed(f"{place} does not answer") from None
        except (httpx2.HTTPError, OSError) as error:
            reason = to_one_line(str(error) or type(error).__name__, MAX_WORDS)
            raise LoginFailed(f"{place} cannot be reached: {reason}") from None

    async def _connect_and_send(self, request: httpx2.Request, addresses: tuple[Address, ...]) -> httpx2.Response:
        proxies, url = getproxies(), request.url
        if (proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(url.host):
            return await self._read(request, request)  # the proxy connects; the name may be resolvable only there
        for address in addresses:
            # With the name in place of the address, it would be resolved again, and could now lead into a private
            # network (DNS rebinding; MCP security best practices, "Server-Side Request Forgery").
            try:
                return await self._read(request, pin_request(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        raise LoginFailed(f"the name of {to_display(str(request.url))} cannot be resolved")

    async def _read(self, request: httpx2.Request, pinned: httpx2.Request) -> httpx2.Response:
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS))
        # A redirect could lead where the policy does not allow, and would take a POST with its secrets along.
        response = await self._client.send(pinned, stream=True, follow_redirects=False)
        try:
            body = await read_body(response, MAX_BODY)
        finally:
            await response.aclose()
        if body is None:
            raise LoginFailed(f"{to_display(str(request.url))} answers with more than {MAX_BODY:,} bytes")
        # The flow needs no other header. Cookies stay in the client, which is used for this login alone.
        headers = {name: response.headers.get(name, "") for name in ("content-type", "location")}
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def read_body(response: httpx2.Response, max_bytes: int) -> bytes | None:
    """Return the body of a response; None if it is larger than `max_bytes`."""
    # The length may be missing or false, and a compressed body may be much longer than announced: count, too.
    length, body = response.headers.get("content-length", ""), bytearray()
    if length.isdecimal() and int(length) > max_bytes:
        return None
    async with aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > max_bytes:
                return None
    return bytes(body)


def pin_request(request: httpx2.Request, address: Address) -> httpx2.Request:
    """Return the same request for one IP address of its host; TLS still verifies the host name."""
    url = request.url.copy_with(host=str(address))
    extensions = {**request.extensions, "sni_hostname": request.url.host}
    return httpx2.Request(request.method, url, headers=request.headers, content=request.content, extensions=extensions)


def _shorten_error(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return an error response with only OAuth's two error fields (RFC 6749, 5.2), and without the sent secrets.

    The SDK quotes the whole body of an error response in its message.
    """
    fields = read_oauth_error(response)
    for secret in _find_secrets(request):
        fields = {name: text.replace(secret, "…") for name, text in fields.items()}
    fields = {name: to_one_line(text, MAX_WORDS) for name, text in fields.items()}
    return httpx2.Response(response.status_code, json=fields, request=request)


def read_oauth_error(response: httpx2.Response) -> dict[str, str]:
    """Return ``error`` and ``error_description`` of a response, if present."""
    try:
        body: Any = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(body, dict):
        return {}
    fields = ((name, body.get(name)) for name in ("error", "error_description"))
    return {name: text for name, text in fields if isinstance(text, str) and text}


def _find_secrets(request: httpx2.Request) -> list[str]:
    # An authorization server may quote the request in its error, which is shown and logged.
    sent = [value for name, value in parse_qsl(request.content.decode("utf-8", "replace")) if name in _SECRET_FIELDS]
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        password = base64.b64decode(credentials).decode("utf-8", "replace").partition(":")[2]
        sent += [credentials, password, unquote(password)]
    return [secret for secret in sent if secret]
