"""``${user.NAME}`` in an entry: what each person fills in, with a secret of theirs.

The configuration keeps the references. They are replaced for one session with the server, which serves one person.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from dial_client.messages.errors import ConfigError
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.config_values import USER_REFERENCE

# Maximum characters of a value.
MAX_VALUE = 8_000

_IN_HEADER = compile_lazily(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")


def find_user_variables(settings: ServerSettings) -> tuple[str, ...]:
    """Return the names that each person fills in, sorted."""
    texts = (*settings.args, *settings.env.values(), *settings.headers.values(), settings.url or "")
    return tuple(sorted({name for text in texts for name in USER_REFERENCE.findall(str(text))}))


def serves_persons(settings: object) -> bool:
    """Return whether each person has a session of their own: ``perUser``, or each fills in credentials of their own."""
    return isinstance(settings, ServerSettings) and (settings.per_user or bool(find_user_variables(settings)))


def check_value(value: str) -> None:
    """Check that a value can be filled in anywhere.

    Raises:
        ConfigError: The value is empty, too long, or has characters that no header and no argument can have.
    """
    if not value or len(value) > MAX_VALUE:
        raise ConfigError(f"a credential has 1 to {MAX_VALUE:,} characters")
    if not "".join(value.split()).isprintable():  # lines are for keys in PEM
        raise ConfigError("a credential has printable characters")


def fill_in(settings: ServerSettings, values: Mapping[str, str]) -> ServerSettings:
    """Return the settings with the references replaced; the values are known as secrets, which are masked.

    Nobody who fills in a value decides more than that value: neither another header or option, nor the host of the URL.

    Args:
        settings: The settings with references.
        values: The values by their names; each name of `find_user_variables` has one.

    Raises:
        ConfigError: A value does not fit its place. The value is not in the message.
    """
    return replace(
        settings,
        args=tuple(_fill_argument(text, values) for text in settings.args),
        env={name: _fill(text, values) for name, text in settings.env.items()},
        headers={name: _fill_header(text, values) for name, text in settings.headers.items()},
        url=settings.url and USER_REFERENCE.sub(lambda found: _quote(found[1], values), settings.url),
        user_secrets=tuple(sorted(values.values())),
    )


def fill_from_environment(settings: ServerSettings) -> ServerSettings:
    """Return the settings for a program of one person, who fills in the variables of the environment.

    Without all of these variables, the settings keep their references.

    Raises:
        ConfigError: As `fill_in`.
    """
    names = find_user_variables(settings)
    values = {name: os.environ[name] for name in names if name in os.environ}
    return fill_in(settings, values) if len(values) == len(names) else settings


def describe_missing(settings: ServerSettings) -> str:
    """Return what the one person of a program has to do, for a server whose references were not replaced."""
    missing = [name for name in find_user_variables(settings) if name not in os.environ]
    return f"it needs credentials: set the variables {', '.join(missing)} in the environment"


def _fill(text: str, values: Mapping[str, str]) -> str:
    return USER_REFERENCE.sub(lambda found: values[found[1]], text)


def _fill_argument(text: str, values: Mapping[str, str]) -> str:
    filled = _fill(text, values)
    if filled.startswith("-") and not text.startswith("-"):
        raise ConfigError(f"{_name(text)} must not begin with a hyphen: the program would read an option")
    return filled


def _fill_header(text: str, values: Mapping[str, str]) -> str:
    filled = _fill(text, values)
    if filled != text and _IN_HEADER.fullmatch(filled) is None:
        raise ConfigError(f"{_name(text)} must be one line of printable ASCII")
    return filled


def _quote(name: str, values: Mapping[str, str]) -> str:
    if values[name] in (".", ".."):
        raise ConfigError(f"{name} must be no path of its own")
    return quote(values[name], safe="")


def _name(text: str) -> str:
    return ", ".join(USER_REFERENCE.findall(text))
