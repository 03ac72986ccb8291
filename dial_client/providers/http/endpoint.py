"""Where a model is: the address, and what goes to it and nowhere else."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dial_client.errors import ConfigError

NO_KEY = "not-needed"
"""Sent where there is no key: some servers refuse a request without any."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and the headers that every request to it carries; no others leave the host."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    key: str = field(default="", repr=False)
    """The key in `headers`, so that it can be taken out of what the endpoint says; empty where there is none."""
    hint: str = ""
    """What to do when the key is refused."""

    @property
    def host(self) -> str:
        """The host and, where the address has one, the port."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no recording may contain: the key."""
        return (self.key,) if self.key else ()

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.base_url)


def checked_url(url: str, where: str) -> str:
    """Give an address without blanks and slashes at its end.

    Raises:
        ConfigError: it is not an http or https address, or has a password in it.
    """
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{where} has a password in it", hint="a key has a place of its own")
    if not fine or any(not " " < char < "\x7f" for char in url):
        raise ConfigError(f"{where} is not an address", hint="an address begins with http:// or https://")
    return url


def checked_key(key: str, where: str) -> str:
    """Give a key without the blanks and line ends that come with copying.

    Raises:
        ConfigError: it has a character that no header can carry.
    """
    key = key.strip()
    if any(not " " <= char < "\x7f" for char in key):
        raise ConfigError(f"{where} has a character that no key has", hint="was it copied whole, and nothing else?")
    return key


def ollama_url(host: str) -> str:
    """Read OLLAMA_HOST as Ollama does: scheme, name and port may be missing, and "any interface" means this machine.

    Raises:
        ConfigError: it leads to no address.
    """
    scheme, colon, _ = host.partition("://")
    usual = {"http": 80, "https": 443}.get(scheme) if colon else 11434
    try:
        parts = urlsplit(host if colon else f"http://{host}")
        name = _reachable(parts.hostname or "127.0.0.1")
        address = f"{parts.scheme}://{name}:{parts.port or usual}{parts.path}"
    except ValueError:
        address = host
    url = checked_url(address, "OLLAMA_HOST")
    return url if url.endswith("/v1") else f"{url}/v1"


def _reachable(name: str) -> str:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{name}]" if address.version == 6 else name


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def same_origin(one: str, other: str) -> bool:
    """Whether two addresses have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url.strip())
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
