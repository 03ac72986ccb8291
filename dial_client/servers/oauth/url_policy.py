"""Which addresses a server may send us to in the course of a login.

A server names the addresses we then fetch, and the one we post secrets to. It is not to make us reach what it cannot
reach itself (MCP security best practices, "Server-Side Request Forgery"), nor to have a code or a token sent elsewhere.
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
_TOKENS_ELSEWHERE = {"https://accounts.google.com": "https://oauth2.googleapis.com"}
"""Issuers that are known to give tokens at another origin than their own."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NetworkScope(IntEnum):
    """How far inside an address lies."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    NEVER = 3
    """Link-local (the metadata services of clouds), multicast, and what is no address of a host."""


def reach_of(address: Address) -> NetworkScope:
    """Say how far inside an address lies; one of IPv6 that stands for one of IPv4 is taken for that one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or _nat64(address)
        if inner is not None:
            return reach_of(inner)
    if address.is_loopback:
        return NetworkScope.LOOPBACK
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return NetworkScope.NEVER
    return NetworkScope.PUBLIC if address.is_global else NetworkScope.PRIVATE


def _nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def resolve(host: str) -> tuple[Address, ...]:
    """Give the addresses of a name, in the order in which to try them; none where it cannot be resolved in time."""
    try:
        return (ipaddress.ip_address(host),)
    except ValueError:
        pass
    found: list[Address] = []
    with anyio.move_on_after(RESOLVE_SECONDS):
        try:
            places = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in places]
        except (OSError, ValueError):
            pass
    return tuple(dict.fromkeys(found))


def origin(url: str) -> str:
    """Give scheme, host and port of an address, such as ``https://auth.example``; a usual port is left out."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{host}" + ("" if usual else f":{parts.port}")


def shown(url: str) -> str:
    """Give an address for a message: without what stands behind its path, and cut where it is long."""
    return one_line(url.partition("?")[0].partition("#")[0], 200)


def for_a_browser(url: str) -> str:
    """Give an address with nothing in it that a shell or a terminal would act on.

    Raises:
        LoginFailed: it is none that a browser should open.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise LoginFailed(f"the server names no web address to log in at: {shown(url)}")
    return quote(url, safe=":/?#[]@!*,=%&+~-._")


class UrlPolicy:
    """Where one server may send us: as far inside as it lies itself, and wherever the user says.

    Args:
        url: of the server.
        trusted: origins that the user vouches for.
    """

    def __init__(self, url: str, trusted: tuple[str, ...] = ()) -> None:
        self._url = url
        self._trusted = {origin(address) for address in trusted}
        self._reach: NetworkScope | None = None

    async def admit(self, url: str) -> tuple[Address, ...]:
        """Give the addresses that may be connected to for this URL; none where only a proxy may know them.

        Raises:
            LoginFailed: the server may not send us there.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise LoginFailed(f"the server's login leads to what is no web address: {shown(url)}")
        addresses = await resolve(parts.hostname)
        if self.is_trusted(url):
            return addresses
        is_own_host = parts.hostname == urlsplit(self._url).hostname
        most = await self._own_reach()
        reach = max((reach_of(address) for address in addresses), default=NetworkScope.PUBLIC)
        if reach > most or (reach is NetworkScope.NEVER and not is_own_host):
            raise LoginFailed(f"the server's login leads into a private network: {shown(url)}{TRUST_IT}")
        if parts.scheme == "http" and reach is NetworkScope.PUBLIC:
            raise LoginFailed(f"the server's login is not encrypted: {shown(url)}")
        return addresses

    def is_trusted(self, url: str) -> bool:
        """Return whether the user vouches for the origin of an address."""
        return origin(url) in self._trusted

    async def _own_reach(self) -> NetworkScope:
        if self._reach is None:
            addresses = await resolve(urlsplit(self._url).hostname or "")
            self._reach = max((reach_of(address) for address in addresses), default=NetworkScope.PUBLIC)
        return self._reach

    def check_token_endpoint(self, issuer: str, endpoint: str) -> None:
        """See that codes and tokens go to the issuer itself.

        Raises:
            LoginFailed: they would go to another origin that the user does not vouch for.
        """
        to, own = origin(endpoint), origin(issuer)
        if to != own and to not in self._trusted and _TOKENS_ELSEWHERE.get(own) != to:
            raise LoginFailed(f"{shown(own)} wants the login's code sent elsewhere: {shown(to)}{TRUST_IT}")


TRUST_IT = '; if that is right, name its origin in "oauth": {"trustedOrigins": […]}'
