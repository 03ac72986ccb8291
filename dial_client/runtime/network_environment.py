"""Proxies and certificates that the environment names: hosts without a proxy, and what is wrong with the variables."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
_PROXY_SCHEMES = ("all", "https", "http")


def needs_no_proxy(url: str) -> bool:
    """Return True if there is no proxy, or ``NO_PROXY`` names the host of a URL.

    A proxy that cannot be used does not matter to the host then.
    """
    from urllib.request import getproxies, proxy_bypass

    if getproxies().keys().isdisjoint(_PROXY_SCHEMES):
        return True
    parts = urlsplit(url)
    host = parts.hostname or ""
    if proxy_bypass(host) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return any(address in network for network in _list_networks(getproxies().get("no", "")))
    return False


def _list_networks(no_proxy: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for name in no_proxy.split(","):
        with suppress(ValueError):
            yield ipaddress.ip_network(name.strip(), strict=False)


def find_missing_folders(reason: str) -> str:
    """Return a remark if `reason` is about an unknown certificate, and ``SSL_CERT_DIR`` names no folder that exists.

    TLS ignores such folders without a word, and goes on with the authorities of the system. The remark begins with a
    semicolon; it is empty if there is nothing to remark.
    """
    folders = [name for name in os.environ.get("SSL_CERT_DIR", "").split(os.pathsep) if name]
    if not folders or "certificate verify failed" not in reason or any(Path(name).is_dir() for name in folders):
        return ""
    return f"; SSL_CERT_DIR names {', '.join(folders)}, which is no folder"


def describe_problem(error: Exception) -> str:
    """Return which variable of the environment names a proxy or certificates that cannot be used, and why.

    The value of a proxy is not returned, because it may contain a password.
    """
    certificates = os.environ.get("SSL_CERT_FILE", "")
    if isinstance(error, OSError) and certificates:
        why = "has no certificates that can be read" if Path(certificates).is_file() else "does not exist"
        return f"SSL_CERT_FILE names the file {certificates}, which {why}"
    for name in _PROXIES:
        scheme, separator, _ = (os.environ.get(name.lower()) or os.environ.get(name, "")).partition("://")
        if separator and scheme not in ("http", "https"):
            needs = "it needs the package socksio" if isinstance(error, ImportError) else "http:// and https:// can be"
            return f"{name} names a proxy with {scheme}://, which cannot be used: {needs}"
    return f"the proxy or the certificates that the environment names cannot be used: {type(error).__name__}"
