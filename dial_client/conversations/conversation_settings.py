"""The settings of a conversation, stored with it: its model, instructions, tools and limits.

They are a JSON object that contains only settings that differ from the client's: ``{"model", "tool_format", "system",
"temperature", "max_tokens", "disabled_servers", "disabled_tools", "limits": {"max_depth", "timeout",
"max_tokens_total"}}``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from dial_client.client.client_model import ClientModel
from dial_client.client.turn_settings import TurnSettings
from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import Limits
from dial_client.messages.model import ToolFormat

MAX_SYSTEM = 100_000
"""The most characters of a conversation's instructions."""
_MAX_NAMES = 2_000
_LIMITS = {"max_depth": (0, 100), "timeout": (1, 3_600), "max_tokens_total": (1, 100_000_000)}
"""The limits that a conversation may set, with the least and the greatest value of each."""
_TEXTS = {"model": 200, "tool_format": 20, "system": MAX_SYSTEM}
KEYS = frozenset({*_TEXTS, "temperature", "max_tokens", "disabled_servers", "disabled_tools", "limits"})
"""The names of all settings."""


def check_settings(data: Any) -> dict[str, Any]:
    """Check settings, and return those that are not null or empty.

    Raises:
        ConfigError: A setting is unknown, or its value is wrong.
    """
    if not isinstance(data, Mapping):
        raise ConfigError("settings must be an object")
    if unknown := sorted(map(str, data.keys() - KEYS)):
        raise ConfigError(f"unknown setting {unknown[0]!r}", hint=f"one of {', '.join(sorted(KEYS))}")
    settings = {name: value for name, value in data.items() if value not in (None, "", [], {})}
    for name, value in settings.items():
        _check(name, value)
    return settings


def _check(name: str, value: Any) -> None:
    if name in _TEXTS:
        if not isinstance(value, str) or len(value) > _TEXTS[name]:
            raise ConfigError(f"{name} is a text of at most {_TEXTS[name]:,} characters")
        if name == "tool_format" and value not in ("auto", *ToolFormat):
            raise ConfigError(f"unknown tool format {value!r}", hint="one of native, react, xml, auto")
    elif name in ("disabled_servers", "disabled_tools"):
        is_list = isinstance(value, list) and len(value) <= _MAX_NAMES
        if not is_list or not all(isinstance(entry, str) for entry in value):
            raise ConfigError(f"{name} is a list of names")
    elif name == "limits":
        _check_limits(value)
    else:
        _check_number(name, value, *((0, 2) if name == "temperature" else (1, 10_000_000)))


def _check_limits(limits: Any) -> None:
    if not isinstance(limits, Mapping) or limits.keys() - _LIMITS.keys():
        raise ConfigError("limits has an unknown name", hint=f"one of {', '.join(_LIMITS)}")
    for name, value in limits.items():
        _check_number(f"limits.{name}", value, *_LIMITS[name])
        if name != "timeout" and not isinstance(value, int):
            raise ConfigError(f"limits.{name} is a whole number")


def _check_number(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{name} is a number from {least:g} to {most:,.0f}")


def check_limits(settings: Mapping[str, Any], limits: Limits) -> None:
    """Check that settings, which `check_settings` returned, do not exceed the client's limits.

    Raises:
        ConfigError: A limit is greater than the client's.
    """
    for name, value in settings.get("limits", {}).items():
        if (most := asdict(limits)[name]) is not None and value > most:
            raise ConfigError(f"limits.{name} is at most {most:,g} here")


def _lower(value: float, most: float | None) -> float:
    return value if most is None else min(value, most)


def to_turn_settings(
    stored: Mapping[str, Any], limits: Limits, locked: Collection[str] = ()
) -> tuple[TurnSettings, int | None]:
    """Return the turn settings for stored settings, and the most tokens of each reply (None for no setting).

    Args:
        stored: The settings as JSON; wrong values and unknown settings are ignored.
        limits: The limits of the client, which a conversation can only lower.
        locked: The names of settings to ignore.
    """
    found: dict[str, Any] = {}
    for name, value in stored.items():
        if name in locked:
            continue
        try:
            found |= check_settings({name: value})
        except ConfigError:
            continue
    lowered_limits: dict[str, Any] = {
        name: _lower(value, asdict(limits)[name]) for name, value in found.get("limits", {}).items()
    }
    max_tokens = found.get("max_tokens")
    return TurnSettings(
        model=found.get("model"),
        tool_format=found.get("tool_format"),
        temperature=found.get("temperature"),
        limits=replace(limits, **lowered_limits) if lowered_limits else None,
        system=found.get("system"),
        disabled_servers=frozenset(found.get("disabled_servers", ())),
        disabled_tools=frozenset(found.get("disabled_tools", ())),
    ), int(max_tokens) if max_tokens is not None else None


def leave_out_missing(settings: TurnSettings, model: ClientModel) -> tuple[TurnSettings, str]:
    """Return the settings that the client can apply, and a note for the user; the note is empty if none is left out.

    A temperature is left out if the model has no profile.

    Raises:
        ConfigError: The profile of the model does not exist any more. The user has to choose another model: messages
            written for one model, such as a local one, are not sent to another without consent.
    """
    profile_name = model.profile_name
    if settings.model not in (None, profile_name, *model.profiles):
        raise ConfigError(
            f"the model {settings.model!r} of this conversation is not available any more",
            hint="choose another one: /model NAME in the terminal, the settings of the conversation on the page",
        )
    if settings.temperature is not None and not (settings.model or profile_name):
        note = "the temperature of this conversation has no effect: it needs a model that is a profile"
        return replace(settings, temperature=None), note
    return settings, ""
