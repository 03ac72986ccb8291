"""The policy for URLs that a server names during a login.

A server names the URLs that the client then fetches, and the one it posts secrets to. It must not make the client reach
what the server cannot reach itself (MCP security best practices, "Server-Side Request Forgery"), nor have a code or a
token sent to another origin.
"""

from __future__ import annotations

import ipaddress
import socket
from enum import IntEnum
from urllib.parse import quote, urlsplit

import anyio

from dial_client.errors import LoginFailed
from dial_client.text.safe_text import one_line

RESOLVE_SECONDS = 10.0
_OTHER_TOKEN_ORIGINS = {"https://accounts.google.com": "https://oauth2.googleapis.com"}
"""Issuers that are known to have their token endpoint at another origin."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NetworkScope(IntEnum):
    """How far inside the network an IP address lies."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    FORBIDDEN = 3
    """Link-local (the metadata services of clouds), multicast, and unspecified addresses."""


def classify(address: Address) -> NetworkScope:
    """Classify an IP address as public, private or loopback; a mapped IPv4 address counts as itself."""
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped or address.sixtofour or _nat64(address)
        if mapped is not None:
            return classify(mapped)
    if address.is_loopback:
        return NetworkScope.LOOPBACK
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return NetworkScope.FORBIDDEN
    return NetworkScope.PUBLIC if address.is_global else NetworkScope.PRIVATE


def _nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def resolve(host: str) -> tuple[Address, ...]:
    """Return the IP addresses of a host in the order to try them; none if it cannot be resolved in time."""
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


def origin(url: str) -> str:
    """Return the origin of a URL, such as ``https://auth.example``; a default port is left out."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    is_default = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{host}" + ("" if is_default else f":{parts.port}")


def to_display(url: str) -> str:
    """Return a URL for a message: without query and fragment, and cut to 200 characters."""
    return one_line(url.partition("?")[0].partition("#")[0], 200)


def to_browser_url(url: str) -> str:
    """Return a URL without anything that a shell or a terminal would act on.

    Raises:
        LoginFailed: a browser should not open it.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise LoginFailed(f"the server names no web address to log in at: {to_display(url)}")
    return quote(url, safe=":/?#[]@!*,=%&+~-._")


class UrlPolicy:
    """Allows URLs as far inside the network as the server lies itself, and the origins the user trusts.

    Args:
        url: of the server.
        trusted: origins that the user trusts.
    """

    def __init__(self, url: str, trusted: tuple[str, ...] = ()) -> None:
        self._url = url
        self._trusted = {origin(trusted_url) for trusted_url in trusted}
        self._scope: NetworkScope | None = None

    async def resolve_allowed(self, url: str) -> tuple[Address, ...]:
        """Return the IP addresses to connect to for this URL; none if only a proxy may be able to resolve it.

        Raises:
            LoginFailed: the URL is not allowed.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise LoginFailed(f"the server's login leads to what is no web address: {to_display(url)}")
        addresses = await resolve(parts.hostname)
        if self.is_trusted(url):
            return addresses
        is_own_host = parts.hostname == urlsplit(self._url).hostname
        own_scope = await self._own_scope()
        scope = max((classify(address) for address in addresses), default=NetworkScope.PUBLIC)
        if scope > own_scope or (scope is NetworkScope.FORBIDDEN and not is_own_host):
            raise LoginFailed(f"the server's login leads into a private network: {to_display(url)}{TRUST_IT}")
        if parts.scheme == "http" and scope is NetworkScope.PUBLIC:
            raise LoginFailed(f"the server's login is not encrypted: {to_display(url)}")
        return addresses

    def is_trusted(self, url: str) -> bool:
        """True if the user trusts the origin of a URL."""
        return origin(url) in self._trusted

    async def _own_scope(self) -> NetworkScope:
        if self._scope is None:
            addresses = await resolve(urlsplit(self._url).hostname or "")
            self._scope = max((classify(address) for address in addresses), default=NetworkScope.PUBLIC)
        return self._scope

    def check_token_endpoint(self, issuer: str, endpoint: str) -> None:
        """Require that codes and tokens go to the issuer itself.

        Raises:
            LoginFailed: they would go to another origin that the user does not trust.
        """
        target, own = origin(endpoint), origin(issuer)
        if target != own and target not in self._trusted and _OTHER_TOKEN_ORIGINS.get(own) != target:
            raise LoginFailed(
                f"{to_display(own)} wants the login's code sent to another origin: {to_display(target)}{TRUST_IT}"
            )


TRUST_IT = '; if that is right, name its origin in "oauth": {"trustedOrigins": […]}'
