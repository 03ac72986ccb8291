"""The policy for URLs that a server names during a login.

A server names the URLs that the client fetches, and the URL to which it posts secrets. It must not make the client
reach hosts that the server cannot reach itself (MCP security best practices, "Server-Side Request Forgery"), and must
not have codes or tokens sent to another origin.
"""

from __future__ import annotations

import ipaddress
import socket
from enum import IntEnum
from urllib.parse import quote, urlsplit

import anyio

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line

RESOLVE_SECONDS = 10.0
_OTHER_TOKEN_ORIGINS = {"https://accounts.google.com": "https://oauth2.googleapis.com"}
"""Known issuers whose token endpoint has another origin, with that origin."""

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
        own_scope = await self._find_own_scope()
        scope = max((classify(address) for address in addresses), default=NetworkScope.PUBLIC)
        if scope > own_scope or (scope is NetworkScope.FORBIDDEN and not is_own_host):
            raise LoginFailed(f"the server's login leads into a private network: {to_display(url)}{TRUST_HINT}")
        # Authorization servers must be served over https (MCP, "Communication Security"); within a private network, and
        # on this machine, http is usual, and as safe as the server's own URL.
        if parts.scheme == "http" and scope is NetworkScope.PUBLIC:
            raise LoginFailed(f"the server's login is not encrypted: {to_display(url)}")
        return addresses

    def is_trusted(self, url: str) -> bool:
        """Return True if the user trusts the origin of a URL."""
        return find_origin(url) in self._trusted

    async def _find_own_scope(self) -> NetworkScope:
        if self._scope is None:
            addresses = await resolve(urlsplit(self._url).hostname or "")
            self._scope = max((classify(address) for address in addresses), default=NetworkScope.PUBLIC)
        return self._scope

    def check_token_endpoint(self, issuer: str, endpoint: str) -> None:
        """Check that codes and tokens are sent to the issuer's own origin, or to a trusted origin.

        Raises:
            LoginFailed: They would be sent to another origin.
        """
        # The code, its PKCE verifier and the client's secret go to the token endpoint, which the metadata names.
        # Metadata that a malicious server forwards from a real issuer could name its own endpoint, and so collect the
        # login of a user who has checked the issuer's address in the browser.
        target, own = find_origin(endpoint), find_origin(issuer)
        if target != own and target not in self._trusted and _OTHER_TOKEN_ORIGINS.get(own) != target:
            raise LoginFailed(
                f"{to_display(own)} wants the login's code sent to another origin: {to_display(target)}{TRUST_HINT}"
            )
