"""MCP Apps: HTML pages of servers that show results of tools (extension ``io.modelcontextprotocol/ui``, 2026-01-26).

A tool names a resource ``ui://…`` in its ``_meta.ui``. The resource is HTML, which runs in a sandbox, receives the
arguments and the result of a call, and may call tools of its own server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.runtime.json_fields import expect_object, expect_text, find_object, find_text
from dial_client.runtime.lazy_pattern import compile_lazily

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
URI_SCHEME = "ui://"

# The most characters of an app's HTML.
MAX_HTML = 5_000_000
# The most characters of a result, as JSON, that is passed to an app.
MAX_RESULT = 2_000_000
MAX_URI = 2_000
# The most origins that an app may declare for one purpose.
MAX_SOURCES = 64

# An allowed origin: encrypted, or on this machine. Paths, keywords and bare schemes do not match.
_SOURCE = compile_lazily(
    r"(?:(?:https|wss)://(?:\*\.[a-z0-9-]+\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*|(?:https?|wss?)://(?:localhost|127\.0\.0\.1))"
    r"(?::(?:\d{1,5}|\*))?/?",
    re.IGNORECASE | re.ASCII,
)
_MODEL, _APP = "model", "app"


@dataclass(frozen=True, slots=True)
class App:
    """The MCP App of one tool call: the resource to render, and the data to pass to it."""

    call_id: str
    server: str
    """The server's name in the configuration."""
    tool: str
    """The tool's own name at that server."""
    uri: str
    """The URI ``ui://…`` of the resource with the HTML; `Apps.read` reads it."""
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The arguments of the call, for ``ui/notifications/tool-input``."""
    result: Mapping[str, Any] | None = field(default=None, repr=False)
    """The ``CallToolResult`` as the server sent it, for ``ui/notifications/tool-result``; None while the call runs."""

    def with_result(self, result: Mapping[str, Any]) -> App:
        """Return the app with the result of its call, or with an error if the result is longer than `MAX_RESULT`."""
        try:
            size = len(json.dumps(result))
        except (TypeError, ValueError, RecursionError):
            return replace(self, result=build_error_result("The result is not valid JSON."))
        if size > MAX_RESULT:
            result = build_error_result(f"The result is too large for an app: {size:,} characters.")
        return replace(self, result=result)

    def to_dict(self) -> dict[str, Any]:
        """Return the app as JSON; `from_dict` restores an equal app."""
        ids = {"call_id": self.call_id, "server": self.server, "tool": self.tool, "uri": self.uri}
        result = None if self.result is None else dict(self.result)
        return {**ids, "arguments": dict(self.arguments), "result": result}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> App:
        """Read the form of `to_dict`.

        Raises:
            ValueError: This is not an app.
        """
        try:
            texts = {name: expect_text(data[name]) for name in ("call_id", "server", "tool", "uri")}
            result = data.get("result")
            result = None if result is None else expect_object(result)
            return cls(**texts, arguments=expect_object(data.get("arguments", {})), result=result)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an app: {error!r}") from error

    @classmethod
    def from_optional(cls, data: Any) -> App | None:
        """Read the form of `to_dict`; None if `data` is None or invalid, since a message is usable without its app."""
        try:
            return None if data is None else cls.from_dict(data)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class AppPolicy:
    """The origins that an app may reach, as its server declares them, such as ``https://*.example.com``."""

    connect: tuple[str, ...] = ()
    """The origins for requests (fetch, WebSocket)."""
    resource: tuple[str, ...] = ()
    """The origins of scripts, styles, images, fonts and media."""
    frame: tuple[str, ...] = ()
    """The origins of frames within the app."""
    base_uri: tuple[str, ...] = ()
    """The origins that may be the base of relative URLs."""

    @property
    def origins(self) -> tuple[str, ...]:
        """All origins, each once, sorted."""
        return tuple(sorted({*self.connect, *self.resource, *self.frame, *self.base_uri}))

    @property
    def header(self) -> str:
        """The value of ``Content-Security-Policy`` for the app's document, which has its own origin."""
        resource = " ".join(self.resource)
        directives = {
            "default-src": "'none'",
            "script-src": f"'unsafe-inline' blob: {resource}",
            "style-src": f"'unsafe-inline' {resource}",
            "img-src": f"data: blob: {resource}",
            "font-src": f"data: {resource}",
            "media-src": f"data: blob: {resource}",
            "worker-src": "blob:",
            "connect-src": " ".join(self.connect) or "'none'",
            "frame-src": " ".join(self.frame) or "'none'",
            "object-src": "'none'",
            "base-uri": " ".join(self.base_uri) or "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'self'",
            "sandbox": "allow-scripts allow-forms",
        }
        return "; ".join(f"{name} {value}".strip() for name, value in directives.items())

    @property
    def connection_allowlist(self) -> str:
        """The value of ``Connection-Allowlist``: the same origins, and no WebRTC, which `header` does not restrict."""
        patterns = (f'"{origin.removesuffix("/")}/*"' for origin in self.origins)
        return f"({' '.join(('response-origin', *patterns))}); webrtc=block"


@dataclass(frozen=True, slots=True)
class AppResource:
    """The resource of an app, as `Apps.read` returns it."""

    server: str
    uri: str
    html: str = field(repr=False)
    """The HTML as the server sent it. Run it only in a sandbox with its own origin, and under `policy`."""
    policy: AppPolicy = AppPolicy()
    left_out: tuple[str, ...] = ()
    """The declared origins that are not allowed, such as ``*`` or origins without encryption."""
    prefers_border: bool | None = None
    """True if the server asks for a border around the app, False for none; None if it states no preference."""


def parse_app_uri(meta: Mapping[str, Any] | None) -> str:
    """Return the URI of a tool's app from the tool's ``_meta``; empty if there is none."""
    # The second name is the one before the extension was stable.
    uri = find_text(find_object(meta, "ui"), "resourceUri") or find_text(meta, "ui/resourceUri")
    return uri if is_app_uri(uri) else ""


def is_app_uri(uri: str) -> bool:
    """Return True for a URI with the scheme of apps and a permitted length."""
    return uri.startswith(URI_SCHEME) and len(uri) <= MAX_URI


def is_for_model(meta: Mapping[str, Any] | None) -> bool:
    """Return True if a tool may be offered to models, by its ``_meta``."""
    return _MODEL in _parse_visibility(meta)


def is_for_app(meta: Mapping[str, Any] | None) -> bool:
    """Return True if apps of the tool's own server may call the tool, by its ``_meta``."""
    return _APP in _parse_visibility(meta)


def _parse_visibility(meta: Mapping[str, Any] | None) -> tuple[str, ...]:
    visibility = find_object(meta, "ui").get("visibility")
    if not isinstance(visibility, list | tuple):
        return (_MODEL, _APP)
    return tuple(name for name in visibility if isinstance(name, str))


def parse_resource(server: str, uri: str, html: str, meta: Mapping[str, Any] | None) -> AppResource:
    """Return the resource of an app.

    Args:
        server: The server's name in the configuration.
        uri: The URI of the resource.
        html: The content of the resource.
        meta: The ``_meta`` of the resource; invalid parts count as missing.
    """
    section = find_object(meta, "ui")
    declared = find_object(section, "csp")
    names = {"connect": "connectDomains", "resource": "resourceDomains", "frame": "frameDomains"}
    lists = {name: _read_texts(declared.get(key)) for name, key in {**names, "base_uri": "baseUriDomains"}.items()}
    policy = parse_policy(lists)
    left_out = sorted({source for sources in lists.values() for source in sources} - set(policy.origins))
    border = section.get("prefersBorder")
    return AppResource(server, uri, html, policy, tuple(left_out), border if isinstance(border, bool) else None)


def parse_policy(lists: Mapping[str, Iterable[str]]) -> AppPolicy:
    """Return the policy with the allowed origins among `lists`, whose keys are the fields of `AppPolicy`."""
    return AppPolicy(**{name: tuple(filter(_is_allowed, sources)) for name, sources in lists.items()})


def _is_allowed(source: str) -> bool:
    return _SOURCE.fullmatch(source) is not None and len(source) <= 255


def _read_texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list | tuple) else ()
    return tuple(text for text in values if isinstance(text, str))[:MAX_SOURCES]


def build_error_result(text: str) -> dict[str, Any]:
    """Return a ``CallToolResult`` that is an error with this text."""
    return {"content": [{"type": "text", "text": text}], "isError": True}
