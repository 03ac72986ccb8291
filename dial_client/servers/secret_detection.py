"""Detection of secrets in a server's settings.

The values of variables, headers and options with names such as key, token or password count as secrets. A value with
any other name counts as a secret unless it looks like a usual setting: a word, a number, a path, a host or a URL.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from dial_client.settings.config_types import OAuthSettings, ServerSettings, Transport

MIN_NAMED = 4
"""Minimum characters of a secret whose name says that it is secret."""
MIN_UNNAMED = 8
"""Minimum characters of a secret with any other name."""
_MIN_RANDOM, _MIN_RANDOM_ARGUMENT = 16, 20
"""Minimum characters of a random part of a URL, and of a random argument, that count as secrets."""

_SECRET_WORDS = frozenset(
    (
        *("key", "keys", "apikey", "token", "secret", "secrets", "password", "passwords", "passwd", "pwd", "pass"),
        *(
            "passphrase",
            "auth",
            "authorization",
            "credential",
            "credentials",
            "creds",
            "cookie",
            "bearer",
            "pat",
            "jwt",
        ),
        *("sig", "signature"),
    )
)
_SECRET_ENDINGS = ("token", "secret", "password", "passwd", "apikey", "accesskey", "credentials")
_ABOUT_SECRETS = frozenset(
    (
        *("type", "mode", "method", "header", "name", "path", "file", "dir", "url", "uri", "host", "port", "enabled"),
        *(
            "timeout",
            "ttl",
            "scheme",
            "provider",
            "endpoint",
            "domain",
            "user",
            "username",
            "email",
            "prefix",
            "expiry",
        ),
    )
)
"""Last words of names that describe a secret without holding it: ``AUTH_TYPE``, ``TOKEN_FILE``."""
_PUBLIC_NAMES = frozenset(
    (
        *(
            "id",
            "user",
            "username",
            "name",
            "email",
            "region",
            "zone",
            "host",
            "hostname",
            "port",
            "path",
            "dir",
            "file",
        ),
        *("model", "locale", "lang", "language", "tz", "timezone", "version", "level", "format", "project", "org"),
        *("organization", "database", "db", "schema", "table", "bucket", "profile", "environment", "namespace"),
        *("cluster", "tenant", "workspace", "repo", "repository", "branch"),
    )
)
_NO_SECRETS = frozenset(
    ("true", "false", "none", "null", "yes", "no", "on", "off", "default", "auto", "empty", "dummy", "undefined")
)
# The lengths of headers, schemes and names are limited to avoid quadratic matching time for long texts.
_KNOWN_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{16,}"
    r"|npm_[A-Za-z0-9]{16,}|pypi-[\w-]{16,}|ntn_[A-Za-z0-9]{16,}|secret_[A-Za-z0-9]{16,}|SG\.[\w-]{10,}\.[\w-]{10,}"
    r"|eyJ[\w-]{5,2000}\.[\w-]{5,}\.[\w-]{5,}"
    r")"
)
"""The formats of vendors' tokens."""
_WORDS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SCHEME = re.compile(r"(?i:bearer|basic|token|apikey|api-key|key|digest|negotiate)\s+(?=\S)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>]+")
_PAIR = re.compile(r"([A-Za-z][\w.-]{0,100})\s*=\s*([^;&\s,\"']+)")
_HEADER = re.compile(r"([A-Za-z][\w-]*):\s*(.+)", re.DOTALL)
_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=(.+)", re.DOTALL)
_PLAIN_WORD = re.compile(r"[A-Z]*[a-z]*(?:[A-Z][a-z]+){0,5}(?:\d{1,4}[A-Za-z]{0,6})?|\d+")
_MAX_WORD = 24
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")
_HOST = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?|[\d.]+(?::\d+)?|\[[0-9a-f:]+\](?::\d+)?")
_EMAIL = re.compile(r"[^@\s]+@[\w.-]+\.[A-Za-z]{2,}")
_PATH = re.compile(r"~|\.{0,2}[/\\]|[A-Za-z]:[/\\]")


def find_secrets(settings: object) -> frozenset[str]:
    """Return the secrets in a server's variables, headers, URL, arguments and OAuth settings.

    Args:
        settings: A `ServerSettings`; a server object in this process has no secrets.
    """
    if not isinstance(settings, ServerSettings):
        return frozenset()
    found = {*_find_in_variables(settings.env.items()), *_find_in_variables(settings.headers.items())}
    found.update(_find_in_arguments(settings.args))
    if settings.url is not None:
        found.update(_find_in_url(settings.url))
    if settings.oauth is not None:
        found.update(_find_in_oauth(settings.oauth))
    return frozenset(found)


def find_literal_secrets(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the place of each literal secret in a server's entry of servers.json, and a name for a variable for it."""
    for kind in ("env", "headers"):
        values = entry.get(kind)
        for name, value in values.items() if isinstance(values, dict) else ():
            settings = ServerSettings("new", Transport.STDIO, env={str(name): str(value)})
            if "${" not in str(value) and find_secrets(settings):
                yield f"{kind}.{name}", re.sub(r"\W+", "_", name).upper() if kind == "env" else "TOKEN"
    args, url = entry.get("args"), entry.get("url")
    texts = tuple(str(arg) for arg in args) if isinstance(args, list) else ()
    address = url if isinstance(url, str) and "${" not in url else None
    for place, settings in (
        ("args", ServerSettings("new", Transport.STDIO, args=texts)),
        ("url", ServerSettings("new", Transport.HTTP, url=address)),
    ):
        if any("${" not in secret for secret in find_secrets(settings)):
            yield place, "TOKEN"


def split_secret(secret: str) -> Iterator[str]:
    """Yield a secret and, if it has several lines (a PEM key), each line long enough to be masked on its own."""
    yield secret
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _MIN_RANDOM and not line.startswith("---"))


def _find_in_oauth(oauth: OAuthSettings) -> Iterator[str]:
    for secret in (oauth.client_secret, oauth.private_key):
        yield from split_secret(secret) if secret else ()


def _find_in_variables(variables: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in variables:
        yield from _find_in_variable(name, value)


def _find_in_variable(name: str, value: str) -> Iterator[str]:
    if names_secret(name):
        yield from _find_named(name, value)
    elif len(value) >= MIN_UNNAMED and not _is_public(name, value):
        yield from split_secret(value.strip())
    yield from _find_in_text(value)


def _find_in_arguments(arguments: tuple[str, ...]) -> Iterator[str]:
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        option, has_value, value = argument.partition("=")
        if option.startswith("-") and names_secret(option):
            if has_value:
                yield from _find_named(option, value)
            elif not following.startswith("-"):
                yield from _find_named(option, following)
        text = value if option.startswith("-") and has_value else argument
        if (variable := _VARIABLE.fullmatch(text)) is not None:
            yield from _find_in_variable(variable[1], variable[2])
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
    value = _SCHEME.sub("", value.strip(), count=1) if _SCHEME.match(value.strip()) else value.strip()
    if value.lower() in _NO_SECRETS or (_PATH.match(value) and _is_plain(value)):
        return
    if name.lower().endswith("cookie"):
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
        yield from _find_in_url(url)
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
            yield from _find_in_variable(name, value)
        case dict():
            for key, inner in value.items():
                yield from _find_in_json(str(key), inner)
        case list():
            for inner in value:
                yield from _find_in_json(name, inner)


def _find_in_url(url: str) -> Iterator[str]:
    """Yield the password, secrets in query parameters, by their names, and random parts of path and query."""
    try:
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        return
    if password:
        yield password
    if len(user) >= MIN_UNNAMED and not _is_plain(user):
        yield user
    for name, value in parse_qsl(parts.query):
        if names_secret(name) and value.lower() not in _NO_SECRETS:
            yield from _find_named(name, value)
        elif _is_random(value, _MIN_RANDOM):
            yield value
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
