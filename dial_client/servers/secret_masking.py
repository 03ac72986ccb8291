"""Masks a server's own secrets in what it sends, before a model, a person, a store or a log gets it.

Servers quote their keys: an error contains the requested URL, a log the headers. One `SecretMask` for each server is
applied to its messages and its standard error (`transports.response_repair`, `transports.stderr_tail`), and to the
sentences that are made of errors.
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

from dial_client.servers.secret_detection import MIN_NAMED, MIN_UNNAMED, find_secrets, lines_of
from dial_client.settings.config_types import ServerSettings

MAX_TOKENS = 50
"""Tokens of logins that are masked; older ones are forgotten."""
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
"""Members that belong to the protocol, are sent back to the server unchanged, or are binary."""
_FREE = frozenset(("structuredContent", "data"))
"""Members in which all names belong to the server: of a result, and of a log message."""


class SecretMask:
    """Replaces the secrets of one server.

    Args:
        server: its name in the configuration.
        secrets: texts to mask; those of fewer than `MIN_NAMED` characters are not masked.
    """

    def __init__(self, server: str = "", *secrets: str) -> None:
        self._replacement = self.replacement_of(server)
        self._secrets: dict[str, None] = {}
        self._tokens: dict[str, None] = {}
        self._forms: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._add(self._secrets, *secrets)
        _masks.add(self)

    @staticmethod
    def replacement_of(server: str) -> str:
        """Return what stands in the place of a server's secret."""
        return f"[secret of {server}]"

    @classmethod
    def of(cls, settings: ServerSettings) -> SecretMask:
        """Return the mask for a server's settings."""
        return cls(settings.name, *sorted(find_secrets(settings)))

    def add_tokens(self, *tokens: Any) -> None:
        """Mask tokens of a login from now on; values that are no text are ignored."""
        self._add(self._tokens, *(token for token in tokens if isinstance(token, str)))

    def add_login(self, *parts: Mapping[str, Any] | None) -> None:
        """Mask the secrets in OAuth's answers: tokens, and a client that was registered."""
        for part in parts:
            fields = part or {}
            names = ("access_token", "refresh_token", "id_token", "client_secret", "registration_access_token")
            self.add_tokens(*(fields.get(name) for name in names))

    def text(self, text: str) -> str:
        """Return a text without the secrets, as they are or as they are encoded in addresses, JSON and base64."""
        if not any(form in text for form in self._forms):
            return text
        if self._pattern is None:  # not before it is needed: compiling it delays the start of servers
            self._pattern = re.compile("|".join(map(_as_pattern, self._forms)))
        return self._pattern.sub(lambda _: self._replacement, text)

    def cut_text(self, text: str) -> str:
        """Return a text that was cut, without the secrets and without the beginning of a secret at its end."""
        masked = self.text(text)
        for secret in (*self._secrets, *self._tokens):
            size = min(len(secret) - 1, len(masked))
            while size >= MIN_NAMED and not masked.endswith(secret[:size]):
                size -= 1
            if size >= MIN_NAMED:
                return masked[:-size] + self._replacement
        return masked

    def message(self, message: Any) -> None:
        """Mask a JSON-RPC message of the SDK's, in place."""
        from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

        if not self._forms:
            return
        match message:
            case JSONRPCResponse(result=body) | JSONRPCRequest(params=body) | JSONRPCNotification(params=body):
                self.data(body or {})
            case JSONRPCError(error=error):
                error.message = self.text(error.message)
                error.data = self._masked(error.data)

    def data(self, root: dict[str, Any] | list[Any], *, is_free: bool = False) -> None:
        """Mask parsed JSON, in place, in time linear in its size, however deep it is.

        Args:
            root: the JSON, which is changed.
            is_free: it is data of the server, in which no name has a meaning in the protocol.
        """
        if not self._forms:
            return
        pending: list[tuple[Any, bool]] = [(root, is_free)]
        while pending:
            node, is_free = pending.pop()
            unmasked = frozenset() if is_free or isinstance(node, list) else _unmasked_members(node)
            for key, value in tuple(node.items()) if isinstance(node, dict) else enumerate(node):
                if isinstance(value, dict | list):
                    pending.append((value, is_free or key in _FREE))
                elif isinstance(value, str) and key not in unmasked:
                    node[key] = self.text(value)
                if is_free and isinstance(key, str) and (masked := self.text(key)) != key:
                    node[masked] = node.pop(key)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict | list):
            self.data(value)
        return value

    def _add(self, known: dict[str, None], *secrets: str) -> None:
        before = len(known)
        known.update((line, None) for secret in secrets for line in lines_of(secret) if len(line) >= MIN_NAMED)
        if len(known) == before:
            return
        while len(self._tokens) > MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        forms = {form for secret in (*self._secrets, *self._tokens) for form in _forms(secret)}
        self._forms, self._pattern = tuple(sorted(forms, key=len, reverse=True)), None


def _unmasked_members(node: dict[str, Any]) -> frozenset[str]:
    """Return the members of an object in a message that are not masked."""
    names = _STRUCTURE
    if node.get("type") in ("image", "audio"):
        names |= {"data"}
    if node.get("mode") == "url":  # a person opens it as it is, or not at all
        names |= {"url"}
    if not node.keys() & {"uri", "uriTemplate", "version"}:  # tools and prompts are identified by it
        names |= {"name"}
    return names


def _forms(secret: str) -> Iterator[str]:
    yield secret
    escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    quoted = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    lower = (re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in quoted)
    yield from {*escaped, *quoted, *lower}
    if len(secret) >= MIN_UNNAMED:
        yield from _in_base64(secret.encode("utf-8", "surrogatepass"))


def _in_base64(secret: bytes) -> Iterator[str]:
    """Yield bytes in base64 at any position in other bytes: without the characters shared with those."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        end = len(text) if (before + len(secret)) % 3 == 0 else -1
        core = text[(before * 8 + 5) // 6 : end]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _as_pattern(form: str) -> str:
    # A short secret is masked only as a word of its own: the letters of "pass" are in many words.
    return re.escape(form) if len(form) >= MIN_UNNAMED else rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])"


_masks: WeakSet[SecretMask] = WeakSet()


def mask_log_record(record: logging.LogRecord) -> bool:
    """Mask the secrets of all servers in a log record of another package, in place; used as a logging filter."""
    message = masked = record.getMessage()
    for mask in tuple(_masks):
        masked = mask.text(masked)
    if masked != message:
        record.msg, record.args = masked, None
    return True
