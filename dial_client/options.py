"""What the options of a `DialClient` come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client import config
from dial_client.errors import ConfigError
from dial_client.formats import handler_for
from dial_client.formats.choice import ChosenFormat
from dial_client.model import Provider, ToolFormat
from dial_client.providers import open_provider


def target(name: str, entry: Any) -> Any:
    """Give how a server is reached.

    Raises:
        ConfigError: the entry is wrong.
    """
    return config.server_from_mapping(name, entry) if isinstance(entry, Mapping) else entry


def model_named(
    model: str | Provider | None, models: Mapping[str, config.ModelSettings], base_url: str | None
) -> tuple[Provider | None, ToolFormat | str | None]:
    """Open a model, and say how calls ride there; None where its profile and its provider do not say.

    Raises:
        ConfigError: there is no such model, or its profile is wrong.
    """
    provider = open_provider(model, models=models, base_url=base_url) if isinstance(model, str) else model
    profile = models.get(model) if isinstance(model, str) else None
    said = profile.tool_format if profile else None
    return provider, said or getattr(provider, "tool_format", None)


def context_window(
    model: str | Provider | None, models: Mapping[str, config.ModelSettings], provider: Provider | None
) -> int | None:
    """Give the tokens the model can take: as its profile says, else as its provider knows; None where nobody does."""
    profile = models.get(model) if isinstance(model, str) else None
    said = profile.context_window if profile is not None else None
    return said if said is not None else getattr(provider, "context_window", None)


def format_chosen(wanted: ToolFormat | str | None) -> ChosenFormat:
    """Give how calls ride; where nothing is wanted the wire's own calls, for as long as the endpoint has them.

    Raises:
        ConfigError: there is no such format.
    """
    if wanted is None or wanted == "auto":
        return ChosenFormat(handler_for(ToolFormat.NATIVE), automatic=True)
    try:
        return ChosenFormat(handler_for(ToolFormat(wanted)))
    except ValueError:
        raise ConfigError(f"unknown tool format {wanted!r}", hint="one of native, react, xml, auto") from None
