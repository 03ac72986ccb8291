"""The address of a model, with the headers that are sent only to this address."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.runtime.network_environment import is_loopback

# The key that is sent if there is none: some servers refuse requests without a key.
NO_KEY = "not-needed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and the headers of every request to it."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    key: str = field(default="", repr=False)
    """The key in `headers`, which error messages mask; empty if there is none."""
    hint: str = ""
    """Advice for the user if the key is refused."""
    sign_in: str = ""
    """Advice for the user if a vendor's client cannot authenticate."""

    @property
    def host(self) -> str:
        """The host name, with the port if the address has one."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no recording may contain: the key."""
        return (self.key,) if self.key else ()

    @property
    def is_local(self) -> bool:
        """True if the address is on this machine."""
        return is_loopback(self.base_url)


def normalize_url(url: str, where: str) -> str:
    """Return an address without surrounding white space and trailing slashes.

    Args:
        url: The address.
        where: The name of the setting, for the error message.

    Raises:
        ConfigError: The address is not an http or https URL, or contains a password.
    """
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    # Errors and logs name the address, so they would show the password.
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{where} contains a password", hint="set the key separately")
    # Other characters could imitate another host in a message, or end the line of a request.
    if not is_valid or any(not " " < char < "\x7f" for char in url):
        raise ConfigError(f"{where} is not an address", hint="an address begins with http:// or https://")
    return url


def normalize_key(key: str, where: str) -> str:
    """Return an API key without surrounding white space, such as a copied line end.

    Args:
        key: The key.
        where: The name of the setting, for the error message.

    Raises:
        ConfigError: The key contains a character that is not allowed in a header.
    """
    key = key.strip()
    # A line break would begin another header, and other characters come from a bad copy.
    if any(not " " <= char < "\x7f" for char in key):
        raise ConfigError(f"{where} contains a character that no key has", hint="copy the whole key, and nothing else")
    return key


def parse_ollama_host(host: str) -> str:
    """Return the address in OLLAMA_HOST. As in Ollama, parts may be missing, and 0.0.0.0 means this machine.

    Raises:
        ConfigError: The value is not an address.
    """
    scheme, colon, _ = host.partition("://")
    usual = {"http": 80, "https": 443}.get(scheme) if colon else 11434
    try:
        parts = urlsplit(host if colon else f"http://{host}")
        name = _to_reachable_host(parts.hostname or "127.0.0.1")
        address = f"{parts.scheme}://{name}:{parts.port or usual}{parts.path}"
    except ValueError:
        address = host
    url = normalize_url(address, "OLLAMA_HOST")
    return url if url.endswith("/v1") else f"{url}/v1"


def _to_reachable_host(name: str) -> str:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    # Ollama listens at 0.0.0.0, but nothing can be sent to it.
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{name}]" if address.version == 6 else name


def is_same_origin(url: str, second_url: str) -> bool:
    """Return True if two addresses have the same scheme, host and port."""
    return _get_origin(url) == _get_origin(second_url)


def _get_origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url.strip())
    # The scheme counts too: a key must not follow its host from https to http.
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
