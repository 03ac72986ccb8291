"""Masks a server's configured secrets in its output, before the output reaches a model, the user, a store or a log.

Servers quote their keys: an error may contain the requested URL, a log the headers. Each server has a `SecretMask`,
which is applied to its messages and its standard error (`transports.response_repair`, `transports.stderr_tail`), and to
error texts.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus
from weakref import WeakSet

from dial_client.servers.secret_masking import MIN_NAMED, MIN_UNNAMED, find_secrets, split_secret
from dial_client.settings.config_types import ServerSettings

MAX_TOKENS = 50
"""Maximum number of OAuth tokens that are masked; the oldest are dropped first."""
_STRUCTURE = frozenset(
    (
        *("type", "role", "mimeType", "method", "mode", "level", "resultType", "protocolVersion", "cacheScope"),
        *(
            "requestId",
            "progressToken",
            "taskId",
            "elicitationId",
            "nextCursor",
            "requestState",
            "blob",
            "$schema",
            "$ref",
        ),
    )
)
"""Unmasked members: they belong to the protocol, are sent back to the server unchanged, or are binary."""
_FREE = frozenset(("structuredContent", "data"))
"""Members (of a result, of a log message) whose content is defined by the server alone, including all member names."""


class SecretMask:
    """Replaces the secrets of one server in texts and messages.

    Args:
        server: The server's name in the configuration.
        secrets: The secrets to mask; secrets of fewer than `MIN_NAMED` characters are ignored.
    """

    def __init__(self, server: str = "", *secrets: str) -> None:
        self._replacement = self.build_replacement(server)
        self._secrets: dict[str, None] = {}
        self._tokens: dict[str, None] = {}
        self._forms: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._add(self._secrets, *secrets)
        _masks.add(self)

    @staticmethod
    def build_replacement(server: str) -> str:
        """Return the text that replaces a server's secret."""
        return f"[secret of {server}]"

    @classmethod
    def from_settings(cls, settings: ServerSettings) -> SecretMask:
        """Return the mask for a server's settings."""
        return cls(settings.name, *sorted(find_secrets(settings)))

    def add_tokens(self, *tokens: Any) -> None:
        """Mask OAuth tokens from now on; values that are not strings are ignored."""
        self._add(self._tokens, *(token for token in tokens if isinstance(token, str)))

    def add_login(self, *parts: Mapping[str, Any] | None) -> None:
        """Mask the secrets of OAuth responses from now on: tokens, and the secrets of a registered client."""
        for part in parts:
            fields = part or {}
            names = ("access_token", "refresh_token", "id_token", "client_secret", "registration_access_token")
            self.add_tokens(*(fields.get(name) for name in names))

    def mask_text(self, text: str) -> str:
        """Return a text with the secrets replaced, whether plain or encoded for URLs, JSON or base64."""
        if not any(form in text for form in self._forms):
            return text
        if self._pattern is None:  # compiled when first needed: compiling would delay the start of servers
            self._pattern = re.compile("|".join(map(_as_pattern, self._forms)))
        return self._pattern.sub(lambda _: self._replacement, text)

    def cut_text(self, text: str) -> str:
        """Return a cut text with the secrets replaced, including a secret that was cut off at the end."""
        masked = self.mask_text(text)
        for secret in (*self._secrets, *self._tokens):
            size = min(len(secret) - 1, len(masked))
            while size >= MIN_NAMED and not masked.endswith(secret[:size]):
                size -= 1
            if size >= MIN_NAMED:
                return masked[:-size] + self._replacement
        return masked

    def mask_message(self, message: Any) -> None:
        """Mask a JSON-RPC message of the SDK, in place."""
        from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

        if not self._forms:
            return
        match message:
            case JSONRPCResponse(result=body) | JSONRPCRequest(params=body) | JSONRPCNotification(params=body):
                self.mask_json(body or {})
            case JSONRPCError(error=error):
                error.message = self.mask_text(error.message)
                error.data = self._mask_value(error.data)

    def mask_json(self, root: dict[str, Any] | list[Any], *, is_free: bool = False) -> None:
        """Mask parsed JSON in place, in linear time and at any depth.

        Args:
            root: The parsed JSON, which is changed.
            is_free: The JSON is the server's own data, in which member names have no protocol meaning.
        """
        if not self._forms:
            return
        pending: list[tuple[Any, bool]] = [(root, is_free)]
        while pending:
            node, is_free = pending.pop()
            unmasked = frozenset() if is_free or isinstance(node, list) else _find_unmasked_members(node)
            for key, value in tuple(node.items()) if isinstance(node, dict) else enumerate(node):
                if isinstance(value, dict | list):
                    pending.append((value, is_free or key in _FREE))
                elif isinstance(value, str) and key not in unmasked:
                    node[key] = self.mask_text(value)
                if is_free and isinstance(key, str) and (masked := self.mask_text(key)) != key:
                    node[masked] = node.pop(key)

    def _mask_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, dict | list):
            self.mask_json(value)
        return value

    def _add(self, known: dict[str, None], *secrets: str) -> None:
        before = len(known)
        known.update((line, None) for secret in secrets for line in split_secret(secret) if len(line) >= MIN_NAMED)
        if len(known) == before:
            return
        while len(self._tokens) > MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        forms = {form for secret in (*self._secrets, *self._tokens) for form in _list_forms(secret)}
        self._forms, self._pattern = tuple(sorted(forms, key=len, reverse=True)), None


def _find_unmasked_members(node: dict[str, Any]) -> frozenset[str]:
    """Return the names of members that are not masked in this object of a message."""
    names = _STRUCTURE
    if node.get("type") in ("image", "audio"):
        names |= {"data"}
    if node.get("mode") == "url":  # URL elicitation: a masked URL could not be opened
        names |= {"url"}
    if not node.keys() & {"uri", "uriTemplate", "version"}:  # tools and prompts are identified by their name
        names |= {"name"}
    return names


def _list_forms(secret: str) -> Iterator[str]:
    yield secret
    escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    quoted = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    lower = (re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in quoted)
    yield from {*escaped, *quoted, *lower}
    if len(secret) >= MIN_UNNAMED:
        yield from _list_base64_forms(secret.encode("utf-8", "surrogatepass"))


def _list_base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the base64 forms of bytes inside longer data, without the characters that encode neighboring bytes too."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        end = len(text) if (before + len(secret)) % 3 == 0 else -1
        core = text[(before * 8 + 5) // 6 : end]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _as_pattern(form: str) -> str:
    # A short secret is masked only as a separate word, because it may be part of many words.
    return re.escape(form) if len(form) >= MIN_UNNAMED else rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])"


_masks: WeakSet[SecretMask] = WeakSet()


def mask_log_record(record: logging.LogRecord) -> bool:
    """Mask the secrets of all servers in a log record of another package, in place; used as a logging filter."""
    message = masked = record.getMessage()
    for mask in tuple(_masks):
        masked = mask.mask_text(masked)
    if masked != message:
        record.msg, record.args = masked, None
    return True
