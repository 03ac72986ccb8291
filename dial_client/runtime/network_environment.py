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


def is_loopback(url: str) -> bool:
    """Return True if an address is on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def needs_no_proxy(url: str) -> bool:
    """Return True if there is no proxy, ``NO_PROXY`` names the host of a URL, or the host is this machine.

    A proxy that cannot be used does not matter to the host then. No proxy can reach the loopback of this machine, and
    it would read what stays local.
    """
    from urllib.request import getproxies, proxy_bypass

    if getproxies().keys().isdisjoint(_PROXY_SCHEMES):
        return True
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(url) or proxy_bypass(host) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return any(address in network for network in _list_networks(getproxies().get("no", "")))
    return False


def _list_networks(no_proxy: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for name in no_proxy.split(","):
        with suppress(ValueError):
            yield ipaddress.ip_network(name.strip(), strict=False)


def remark_on_network(reason: str, url: str) -> str:
    """Return what in the environment may explain why a URL cannot be reached: folders of certificates, or a proxy.

    The remark begins with a semicolon; it is empty if there is nothing to remark. Of a proxy it has no password.

    Args:
        reason: The message of the failure.
        url: The URL; empty if it is not known.
    """
    if missing := find_missing_folders(reason):
        return missing
    from urllib.request import getproxies

    proxies, kind = getproxies(), urlsplit(url).scheme
    kind = kind if kind in proxies else "all"
    if not url or kind not in proxies or needs_no_proxy(url):
        return ""
    variable = next((name for name in (f"{kind}_proxy", f"{kind.upper()}_PROXY") if os.environ.get(name)), "")
    place = proxies[kind].rpartition("://")[2].rpartition("@")[2].partition("/")[0]
    return f"; it was asked for through the proxy {place} of {variable or 'the system'}"


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
