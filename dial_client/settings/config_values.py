"""Readers of values that servers and models have in common: names, URLs, headers, environment variables.

No message shows a value, because it may be a secret.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from dial_client.settings.jsonc import Node

TOP_KEYS = (
    *("mcpServers", "servers", "models", "defaultModel", "fallbackModels"),
    *("inputs", "policy", "startupPatience", "profiles"),
)
"""The keys at the top level of a configuration."""
COMMENTS = ("_", "$", "//")
"""Prefixes of keys that are comments."""


def check_name(name: str, node: Node) -> None:
    """Raise `ConfigError` if the name of a server or model is blank, or has characters that are not printable."""
    if not name.strip() or not name.isprintable():
        raise node.build_error("expected a name of printable characters", at_name=True)


def read_url(node: Node) -> str:
    """Return an http or https URL."""
    text = node.read_string()
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isprintable() or " " in text:
        raise node.build_error("expected an http:// or https:// address")
    return text


def read_env(node: Node) -> dict[str, str]:
    """Return environment variables; members that are null are left out."""
    for name, child in node.read_members().items():
        if not name or "=" in name or "\0" in name:
            raise child.build_error("expected the name of a variable", at_name=True)
    return node.read_scalars()


def read_line(node: Node) -> str:
    """Return the value of a header without leading and trailing blanks."""
    line = node.read_scalar().strip(" \t")
    if not re.fullmatch(r"[\t\x20-\x7e]*", line):
        raise node.build_error("expected one line of printable ASCII", "does a variable in it end with a line break?")
    return line


def read_headers(node: Node) -> dict[str, str]:
    """Return HTTP headers: names are tokens (RFC 9110, section 5.6.2), values printable ASCII on one line."""
    children = {name: child for name, child in node.read_members().items() if child.value is not None}
    for name, child in children.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise child.build_error("expected the name of a header", at_name=True)
    return {name: read_line(child) for name, child in children.items()}


def read_object(node: Node) -> dict[str, Any]:
    """Return an object with any members."""
    return {key: child.value for key, child in node.read_members().items()}
