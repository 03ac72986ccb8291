"""Masks a server's configured secrets in its output, before the output reaches a model, the user, a store or a log.

Servers quote their keys: an error may contain the requested URL, a log the headers. Each server has a `SecretMask`,
which is applied to its messages and its standard error (`transports.response_repair`, `transports.server_process`), and
to error texts.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit
from weakref import WeakSet

from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.settings.config_types import ServerSettings

# Minimum characters of a secret whose name says that it is secret.
MIN_NAMED = 4
# Minimum characters of a secret with any other name.
MIN_UNNAMED = 8
# Minimum characters of a random part of a URL, and of a random argument, that count as secrets.
_MIN_RANDOM, _MIN_RANDOM_ARGUMENT = 16, 20


def _list_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS = _list_words("""
    key keys apikey token secret secrets password passwords passwd pwd pass passphrase auth authorization
    credential credentials creds cookie bearer pat jwt sig signature
""")
_SECRET_ENDINGS = ("token", "secret", "password", "passwd", "apikey", "accesskey", "credentials")
# Last words of names that describe a secret without holding it: ``AUTH_TYPE``, ``TOKEN_FILE``.
_ABOUT_SECRETS = _list_words("""
    type mode method header name path file dir url uri host port enabled timeout ttl scheme provider endpoint
    domain user username email prefix expiry
""")
_PUBLIC_NAMES = _list_words("""
    id user username name email region zone host hostname port path dir file model locale lang language tz
    timezone version level format project org organization database db schema table bucket profile environment
    namespace cluster tenant workspace repo repository branch
""")
_NO_SECRETS = _list_words("""
    true false none null yes no on off default auto empty dummy undefined
""")
# The lengths of headers, schemes and names are limited to avoid quadratic matching time for long texts.
# The formats of vendors' tokens.
_KNOWN_FORMS = compile_lazily(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{16,}"
    r"|npm_[A-Za-z0-9]{16,}|pypi-[\w-]{16,}|ntn_[A-Za-z0-9]{16,}|secret_[A-Za-z0-9]{16,}|SG\.[\w-]{10,}\.[\w-]{10,}"
    r"|eyJ[\w-]{5,2000}\.[\w-]{5,}\.[\w-]{5,}"
    r")"
)
_WORDS_OF_NAME = compile_lazily(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SCHEME = compile_lazily(r"(?i:bearer|basic|token|apikey|api-key|key|digest|negotiate)\s+(?=\S)")
_URL = compile_lazily(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>]+")
_PAIR = compile_lazily(r"([A-Za-z][\w.-]{0,100})\s*=\s*([^;&\s,\"']+)")
_HEADER = compile_lazily(r"([A-Za-z][\w-]*):\s*(.+)", re.DOTALL)
_VARIABLE = compile_lazily(r"([A-Z][A-Z0-9_]*)=(.+)", re.DOTALL)
_PLAIN_WORD = compile_lazily(r"[A-Z]*[a-z]*(?:[A-Z][a-z]+){0,5}(?:\d{1,4}[A-Za-z]{0,6})?|\d+")
_MAX_WORD = 24
_BETWEEN_WORDS = compile_lazily(r"[^A-Za-z0-9]+")
_HOST = compile_lazily(r"(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?|[\d.]+(?::\d+)?|\[[0-9a-f:]+\](?::\d+)?")
_EMAIL = compile_lazily(r"[^@\s]+@[\w.-]+\.[A-Za-z]{2,}")
_PATH = compile_lazily(r"~|\.{0,2}[/\\]|[A-Za-z]:[/\\]")

# Maximum number of OAuth tokens that are masked; the oldest are dropped first.
MAX_TOKENS = 50


def find_secrets(settings: object) -> frozenset[str]:
    """Return the secrets in a server's variables, headers, URL, arguments and OAuth settings.

    Args:
        settings: A `ServerSettings`; a server object in this process has no secrets.
    """
    if not isinstance(settings, ServerSettings):
        return frozenset()
    found = set(find_in_arguments(settings.args))
    found.update(part for value in settings.user_secrets for part in split_secret(value))
    for name, value in (*settings.env.items(), *settings.headers.items()):
        found.update(find_in_variable(name, value))
    if settings.url is not None:
        found.update(find_in_url(settings.url))
    if settings.oauth is not None:
        oauth = settings.oauth
        for secret in filter(None, (oauth.client_secret, oauth.private_key, oauth.identity_client_secret)):
            found.update(split_secret(secret))
    return frozenset(found)


def find_literal_secrets(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the place of each literal secret in a server's entry of servers.json, and a name for a variable for it."""
    for kind in ("env", "headers"):
        values = entry.get(kind)
        for name, value in values.items() if isinstance(values, dict) else ():
            if "${" not in str(value) and any(find_in_variable(str(name), str(value))):
                yield f"{kind}.{name}", re.sub(r"\W+", "_", name).upper() if kind == "env" else "TOKEN"
    args, url = entry.get("args"), entry.get("url")
    in_args = find_in_arguments([str(arg) for arg in args]) if isinstance(args, list) else ()
    if any("${" not in secret for secret in in_args):
        yield "args", "TOKEN"
    if isinstance(url, str) and "${" not in url and any("${" not in secret for secret in find_in_url(url)):
        yield "url", "TOKEN"


def split_secret(secret: str) -> Iterator[str]:
    """Yield a secret and, if it has several lines (a PEM key), each line long enough to be masked on its own."""
    yield secret
    lines = secret.splitlines()
    if len(lines) > 1:
        # Logs quote keys line by line. The first and last line of a PEM key are the same in all keys.
        yield from (line.strip() for line in lines if len(line.strip()) >= _MIN_RANDOM and not line.startswith("---"))


def find_in_variable(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in a variable of the environment, a header, or another named value."""
    # A name that says nothing is no proof that the value is public: whatever looks random, counts. A word that is
    # masked without need is a nuisance, a key that is not masked goes to the model's endpoint.
    if names_secret(name):
        yield from _find_named(name, value)
    elif len(value) >= MIN_UNNAMED and not _is_public(name, value):
        yield from split_secret(value.strip())
    yield from _find_in_text(value)


def find_in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the secrets in the arguments of a program."""
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        option, has_value, value = argument.partition("=")
        if option.startswith("-") and names_secret(option):
            if has_value:
                yield from _find_named(option, value)
            elif not following.startswith("-"):
                yield from _find_named(option, following)
        text = value if option.startswith("-") and has_value else argument
        if (variable := _VARIABLE.fullmatch(text)) is not None:
            yield from find_in_variable(variable[1], variable[2])
        # A key may be a positional argument, without any name.
        if re.fullmatch(r"[A-Za-z0-9_-]+", argument) and _is_random(argument, _MIN_RANDOM_ARGUMENT):
            yield argument
        yield from _find_in_text(text)


def names_secret(name: str) -> bool:
    """Return True if a name says that its value is a secret: ``API_TOKEN``, ``apiKey``."""
    words = [word.lower() for word in _WORDS_OF_NAME.findall(name)]
    if not words or words[-1] in _ABOUT_SECRETS:
        return False
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)


def _find_named(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in a value whose name says that it is secret."""
    # "Bearer abc": the server may quote "abc" alone, so the scheme does not belong to the secret.
    value = _SCHEME.sub("", value.strip(), count=1) if _SCHEME.match(value.strip()) else value.strip()
    # TOKEN=none, or a path in PASSWORD_STORE: masking such a word would garble each output of the server.
    if value.lower() in _NO_SECRETS or (_PATH.match(value) and _is_plain(value)):
        return
    if name.lower().endswith("cookie"):  # "session=abc; theme=dark": each value may be quoted alone
        parts = [part.partition("=")[2].strip() or part.strip() for part in value.split(";")]
    else:
        parts = [*split_secret(value), *_find_basic_password(value)]
    yield from (part for part in parts if len(part) >= MIN_NAMED)


def _find_basic_password(value: str) -> Iterator[str]:
    """Yield the password if a value is ``user:password`` in base64 (RFC 7617)."""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    _, colon, password = decoded.partition(":")
    if colon and decoded.isprintable():
        yield password


def _find_in_text(text: str) -> Iterator[str]:
    """Yield the secrets inside a text, including a text that is JSON."""
    yield from _KNOWN_FORMS.findall(text)
    for url in _URL.findall(text):
        yield from find_in_url(url)
    for name, value in _PAIR.findall(text):
        if names_secret(name):
            yield from _find_named(name, value)
    header = _HEADER.fullmatch(text)
    if header is not None and names_secret(header[1]) and "://" not in text:
        yield from _find_named(header[1], header[2])
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _find_in_json("", json.loads(text))
        except (ValueError, RecursionError):
            return


def _find_in_json(name: str, value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from find_in_variable(name, value)
        case dict():
            for key, inner in value.items():
                yield from _find_in_json(str(key), inner)
        case list():
            for inner in value:
                yield from _find_in_json(name, inner)


def find_in_url(url: str) -> Iterator[str]:
    """Yield the password, secrets in query parameters, by their names, and random parts of path and query."""
    try:
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        return
    if password:  # of any length: nobody chooses it by chance
        yield password
    if len(user) >= MIN_UNNAMED and not _is_plain(user):
        yield user
    for name, value in parse_qsl(parts.query):
        if names_secret(name) and value.lower() not in _NO_SECRETS:
            yield from _find_named(name, value)
        elif _is_random(value, _MIN_RANDOM):
            yield value
    # Hosted servers put the key into the path (https://mcp.example/s/KEY/mcp).
    yield from (part for part in map(unquote, parts.path.split("/")) if _is_random(part, _MIN_RANDOM))


def _is_public(name: str, value: str) -> bool:
    """Return True if a value as a whole is unlikely to be a secret; secrets inside it are detected separately."""
    words = _WORDS_OF_NAME.findall(name)
    if words and words[-1].lower() in _PUBLIC_NAMES:
        return True
    has_structure = bool(_URL.match(value)) or value.lstrip()[:1] in ("{", "[") or any(map(str.isspace, value.strip()))
    is_location = _PATH.match(value) or _HOST.fullmatch(value) or _EMAIL.fullmatch(value)
    return has_structure or bool(is_location) or _is_plain(value)


def _is_plain(value: str) -> bool:
    """Return True if a text consists of words and numbers: ``Europe/Berlin``, ``us-east-1``, ``--max-size=4096``."""
    words = _BETWEEN_WORDS.split(value)
    return all(word.isdecimal() or (len(word) <= _MAX_WORD and _PLAIN_WORD.fullmatch(word)) for word in words if word)


def _is_random(value: str, least: int) -> bool:
    return len(value) >= least and not _is_plain(value) and any(map(str.isdigit, value))


# Unmasked members: they belong to the protocol, are sent back to the server unchanged, or are binary.
_STRUCTURE = _list_words("""
    type role mimeType method mode level resultType protocolVersion cacheScope requestId progressToken taskId
    elicitationId nextCursor requestState blob $schema $ref
""")
# Members (of a result, of a log message) whose content is defined by the server alone, including all member names.
_FREE = frozenset(("structuredContent", "data"))


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

    def add_login(self, *parts: Mapping[str, Any] | None) -> None:
        """Mask the secrets of OAuth responses from now on: tokens, and the secrets of a registered client."""
        names = ("access_token", "refresh_token", "id_token", "client_secret", "registration_access_token")
        found = [part.get(name) for part in parts if part is not None for name in names]
        self._add(self._tokens, *(token for token in found if isinstance(token, str)))

    def mask_text(self, text: str) -> str:
        """Return a text with the secrets replaced, whether plain or encoded for URLs, JSON or base64."""
        # Most texts have no secret: searching for plain strings is many times faster than the pattern.
        if not any(form in text for form in self._forms):
            return text
        if self._pattern is None:  # compiled when first needed: compiling would delay the start of servers
            self._pattern = re.compile("|".join(map(_as_pattern, self._forms)))
        return self._pattern.sub(lambda _: self._replacement, text)

    def cut_text(self, text: str) -> str:
        """Return a cut text with the secrets replaced, including a secret that was cut off at the end."""
        # The text was cut at a limit, perhaps within a secret: its first half is a secret, too, and matches no pattern.
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
        if not self._forms:
            return
        from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

        match message:
            case JSONRPCResponse(result=body) | JSONRPCRequest(params=body) | JSONRPCNotification(params=body):
                self.mask_json(body or {})
            case JSONRPCError(error=error):
                members = [error.message, error.data]
                self.mask_json(members)
                error.message, error.data = members

    def mask_json(self, root: dict[str, Any] | list[Any]) -> None:
        """Mask parsed JSON in place, in linear time and at any depth.

        Args:
            root: The parsed JSON, which is changed.
        """
        if not self._forms:
            return
        # With a list in place of recursion: a server decides how deep its messages are nested.
        # In a server's own data (`is_free`), member names have no meaning in the protocol.
        pending: list[tuple[Any, bool]] = [(root, False)]
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

    def _add(self, known: dict[str, None], *secrets: str) -> None:
        before = len(known)
        known.update((line, None) for secret in secrets for line in split_secret(secret) if len(line) >= MIN_NAMED)
        if len(known) == before:
            return
        # Tokens are renewed every few minutes in a process that runs for weeks, and each text is searched for all of
        # them.
        while len(self._tokens) > MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        # The longest first: a form that contains another one must not be masked in part only.
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
    # A server quotes a secret as it stands in a URL, in JSON, or in a Basic header, whatever it received.
    yield secret
    escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    quoted = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    lower = (re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in quoted)
    yield from {*escaped, *quoted, *lower}
    if len(secret) >= MIN_UNNAMED:
        yield from _list_base64_forms(secret.encode("utf-8", "surrogatepass"))


def _list_base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the base64 forms of bytes inside longer data, without the characters that encode neighboring bytes too."""
    # Base64 encodes three bytes at a time: what a secret looks like depends on how many bytes stand before it.
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
