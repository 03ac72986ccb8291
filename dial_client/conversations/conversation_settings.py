"""The settings of a conversation, stored with it: its model, instructions, tools and limits.

They are a JSON object that contains only settings that differ from the client's: ``{"model", "tool_format", "system",
"temperature", "max_tokens", "disabled_servers", "disabled_tools", "limits": {"max_depth", "timeout",
"max_tokens_total"}}``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import Limits
from dial_client.messages.model import ModelSettings, ToolFormat
from dial_client.turns.client_model import ClientModel, choose_format
from dial_client.turns.turn_keywords import TurnKeywords, merge_keywords

# The most characters of a conversation's instructions.
MAX_SYSTEM = 100_000
_MAX_NAMES = 2_000
# The limits that a conversation may set, with the least and the greatest value of each.
_LIMITS = {"max_depth": (0, 100), "timeout": (1, 3_600), "max_tokens_total": (1, 100_000_000)}
_TEXTS = {"model": 200, "tool_format": 20, "system": MAX_SYSTEM}
# The names of all settings.
KEYS = frozenset({*_TEXTS, "temperature", "max_tokens", "disabled_servers", "disabled_tools", "limits"})


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
            raise ConfigError(f"unknown tool format {value!r}", hint="one of native, react, xml, code, auto")
        if name == "tool_format" and value == ToolFormat.CODE:
            choose_format(value)  # where the extra is missing, no turn would begin
    elif name in ("disabled_servers", "disabled_tools"):
        is_list = isinstance(value, list) and len(value) <= _MAX_NAMES
        if not is_list or not all(isinstance(entry, str) for entry in value):
            raise ConfigError(f"{name} is a list of names")
    elif name == "limits":
        if not isinstance(value, Mapping) or value.keys() - _LIMITS.keys():
            raise ConfigError("limits has an unknown name", hint=f"one of {', '.join(_LIMITS)}")
        for limit, number in value.items():
            _check_number(f"limits.{limit}", number, *_LIMITS[limit], is_whole=limit != "timeout")
    else:
        _check_number(name, value, *((0, 2) if name == "temperature" else (1, 10_000_000)))


def _check_number(name: str, value: Any, least: float, limit: float, *, is_whole: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= limit:
        raise ConfigError(f"{name} is a number from {least:g} to {limit:,.0f}")
    if is_whole and not isinstance(value, int):
        raise ConfigError(f"{name} is a whole number")


def check_limits(settings: Mapping[str, Any], limits: Limits) -> None:
    """Check that settings, which `check_settings` returned, do not exceed the client's limits.

    Raises:
        ConfigError: A limit is greater than the client's.
    """
    for name, value in settings.get("limits", {}).items():
        if (limit := asdict(limits)[name]) is not None and value > limit:
            raise ConfigError(f"limits.{name} is at most {limit:,g} here")


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The settings of a conversation in the form in which its turns take them."""

    keywords: TurnKeywords
    tool_format: str | None
    hidden_tools: tuple[str, ...]
    """The offered names of tools that the model cannot call."""

    def select_model(self, model: ClientModel, keywords: TurnKeywords) -> tuple[ClientModel, TurnKeywords]:
        """Return the model of a turn, and all keywords of the turn.

        Args:
            model: The model of the client.
            keywords: The keywords of the turn, which precede the settings of its conversation.

        Raises:
            ConfigError: The conversation's model is not, or not any more, a profile of the client. The user has to
                choose another model: messages written for one model, such as a local one, are not sent to another
                without consent.
        """
        name = self.keywords.get("model")
        if keywords.get("model") is None and name not in (None, model.profile_name, *model.profiles):
            raise ConfigError(
                f"the model {name!r} of this conversation is not available any more",
                hint="choose another one: /model NAME in the terminal, the settings of the conversation on the page",
            )
        merged = merge_keywords(self.keywords, keywords)
        if (denied := self.keywords.get("tools")) and keywords.get("tools"):
            merged["tools"] = [*(keywords.get("tools") or ()), *denied]
        return model.select(merged.get("model"), self.tool_format), merged


def read_settings(stored: Mapping[str, Any], limits: Limits, locked: Collection[str] = ()) -> StoredSettings:
    """Return the settings of a conversation for its turns.

    Args:
        stored: The settings as JSON; wrong values and unknown settings are ignored.
        limits: The limits of the client, which a conversation can only lower.
        locked: The names of settings to ignore.
    """
    found: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in locked:
            with suppress(ConfigError):
                found |= check_settings({name: value})
    lowered: dict[str, Any] = {
        name: value if (limit := asdict(limits)[name]) is None else min(value, limit)
        for name, value in found.get("limits", {}).items()
    }
    max_tokens = found.get("max_tokens")
    keywords: TurnKeywords = {
        "model": found.get("model"),
        "system": found.get("system"),
        "limits": replace(limits, **lowered) if lowered else None,
        "tools": [f"!{server}/*" for server in found.get("disabled_servers", ())] or None,
        "settings": ModelSettings(
            temperature=found.get("temperature"), max_tokens=None if max_tokens is None else int(max_tokens)
        ),
    }
    return StoredSettings(keywords, found.get("tool_format"), tuple(found.get("disabled_tools", ())))
