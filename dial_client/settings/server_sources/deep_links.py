"""Deep links that install a server in another host: ``cursor://…/mcp/install?…`` and ``vscode:mcp/install?…``."""

from __future__ import annotations

import base64
import binascii
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.settings.hosts.host_documents import HostServer, read_servers
from dial_client.settings.hosts.host_files import HostName

_LINK = re.compile(
    r"(?P<cursor>cursor://[\w.-]+/mcp/install\?|https://cursor\.com/(?:[a-z-]+/)?install-mcp\?)"
    r"|(?:vscode|vscode-insiders):/*mcp/install\?|https://(?:insiders\.)?vscode\.dev/redirect(?:/mcp/install)?\?",
    re.IGNORECASE,
)

_APPROVALS = frozenset(("autoApprove", "alwaysAllow", "trusted", "trust"))
"""Keys that let calls run without approval; they are ignored, because a link is not trusted."""


def is_deep_link(text: str) -> bool:
    """Return True if a text is a deep link that installs a server."""
    return _LINK.match(text) is not None


def read_deep_link(text: str) -> HostServer:
    """Return the server of a deep link, with an entry for ``servers.json``.

    Raises:
        ConfigError: The link does not contain a server.
    """
    found = _LINK.match(text)
    if found is None:
        raise ConfigError("this is not a link that installs a server")
    is_cursor = found["cursor"] is not None
    name, config = _parse_cursor_link(text) if is_cursor else _parse_vscode_link(text)
    inputs = config.pop("inputs", [])
    if not name:
        raise ConfigError("the link does not name its server", "dial-chat servers add NAME LINK")
    if is_cursor and isinstance(config.get("command"), str) and "args" not in config:
        config["command"], *config["args"] = config["command"].split() or [""]
    host = HostName.CURSOR if is_cursor else HostName.VS_CODE
    for key in _APPROVALS & config.keys():
        del config[key]
    (server, *_) = read_servers(host, {"mcpServers": {name: config}, "inputs": inputs}, Path())
    return server


def _parse_cursor_link(text: str) -> tuple[str, dict[str, Any]]:
    query = parse_qs(urlsplit(text).query)
    encoded = (query.get("config") or [""])[0].replace(" ", "+")
    try:
        data = base64.b64decode(
            encoded + "=" * (-len(encoded) % 4), altchars=b"-_" if re.search("[-_]", encoded) else None
        )
        config = _parse_object(data.decode())
    except (binascii.Error, ValueError):
        raise ConfigError("the link's config is not JSON in base64") from None
    return (query.get("name") or [""])[0], config


def _parse_vscode_link(text: str) -> tuple[str, dict[str, Any]]:
    query = text.partition("?")[2]
    if query.startswith(("%7B", "%7b", "{")):
        config = _parse_object(unquote(query))
        return str(config.pop("name", "")), config
    fields = parse_qs(query)
    if "url" in fields and is_deep_link(fields["url"][0]):
        return _parse_vscode_link(fields["url"][0])
    config = _parse_object((fields.get("config") or [""])[0])
    if "inputs" in fields:
        try:
            config["inputs"] = json.loads(fields["inputs"][0])
        except ValueError:
            raise ConfigError("the link's inputs are not JSON") from None
    return (fields.get("name") or [""])[0], config


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise ConfigError("the link does not contain JSON") from None
    if not isinstance(value, dict):
        raise ConfigError("the link does not contain an object")
    return value
