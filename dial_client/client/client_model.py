"""The model of a client: its provider, the format of its tool calls, and the model that words the status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio import to_thread

from dial_client.errors import ConfigError
from dial_client.formats import handler_for
from dial_client.formats.format_selection import ActiveFormat
from dial_client.logs import get_logger
from dial_client.model import Preparable, Provider, ToolFormat, ToolFormatHandler
from dial_client.providers import open_provider
from dial_client.recordings import replay
from dial_client.settings.config_types import ModelSettings
from dial_client.turns import prices
from dial_client.turns.context_window import ContextWindow

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The model a client is asked to use, as its options name it."""

    model: str | Provider | None
    models: Mapping[str, ModelSettings]
    """Profiles that `model` and `status_model` may name."""
    base_url: str | None = None
    tool_format: ToolFormat | ToolFormatHandler | str | None = None
    guidance: str | None = None
    status: Literal["template", "model"] = "template"
    status_model: str | Provider | None = None

    @property
    def profile(self) -> ModelSettings | None:
        """The profile that `model` names; None where it names no profile."""
        return self.models.get(self.model) if isinstance(self.model, str) else None

    def open(self) -> Provider | None:
        """Open the model.

        Raises:
            ConfigError: there is no such model, or its profile is wrong.
        """
        return self._open(self.model, self.base_url)

    def open_status_provider(self, provider: Provider | None) -> Provider | None:
        """Open the model that words the status of running calls; None for the templates alone.

        Raises:
            ConfigError: there is no such `status`, or no such model.
        """
        if self.status not in ("template", "model"):
            raise ConfigError(f"unknown status {self.status!r}", hint='expected "template" or "model"')
        named = self._open(self.status_model, None)
        # A recording has no replies to spare for sentences.
        default = None if replay.is_recording(provider) else provider
        return (named or default) if self.status == "model" else None

    def _open(self, model: str | Provider | None, base_url: str | None) -> Provider | None:
        return open_provider(model, models=self.models, base_url=base_url) if isinstance(model, str) else model


class ClientModel:
    """The provider a client asks, with the format of its tool calls and its context window.

    Args:
        selection: the options.

    Raises:
        ConfigError: there is no such model, no such tool format, or no such status.
    """

    def __init__(self, selection: ModelSelection) -> None:
        self.provider = selection.open()
        """The provider; None for a client that only calls tools."""
        profile = selection.profile
        info = self.provider.info if self.provider is not None else None
        tool_format = (
            selection.tool_format
            or (profile.tool_format if profile is not None else None)
            or (info.tool_format if info is not None else None)
            or "auto"
        )
        self.format_name = str(tool_format if isinstance(tool_format, str) else tool_format.format)
        """The tool format as options name it."""
        self.format = active_format(tool_format, fenced_calls=info is not None and info.fenced_calls)
        own_window = profile.context_window if profile is not None else None
        if own_window is None and info is not None:
            own_window = info.context_window
        self.window = ContextWindow(own_window)
        self.guidance = selection.guidance
        if self.guidance is None and info is not None:
            self.guidance = info.guidance
        self.status_provider = selection.open_status_provider(self.provider)
        """Words the status of running calls; None for the templates alone."""
        self._prepared = anyio.Event()

    @property
    def name(self) -> str:
        """The provider's name; empty for a client without a model."""
        return self.provider.info.name if self.provider is not None else ""

    def replace_provider(self, provider: Provider | None) -> None:
        """Ask this provider from now on: the same one, with its exchanges recorded."""
        self.provider = provider

    def required(self) -> Provider:
        """Return the provider.

        Raises:
            ConfigError: the client has no model.
        """
        if self.provider is None:
            raise ConfigError("no model is named", hint="give DialClient a model")
        return self.provider

    async def prepare(self) -> None:
        """Prepare the model for the first request; an error here appears again, in words, in that request."""
        provider = self.provider
        try:
            if provider is not None and isinstance(provider, Preparable):
                await provider.prepare()
        except Exception as error:  # noqa: BLE001 - whatever it is, the first request meets it
            log.debug("prepare_failed", error=type(error).__name__)
        finally:
            self._prepared.set()
        if provider is not None and provider.info.url:  # no turn waits for its price
            await to_thread.run_sync(prices.preload, abandon_on_cancel=True)

    def reset(self) -> None:
        """Make `ready` wait for the next `prepare`: the client was opened again."""
        self._prepared = anyio.Event()

    async def ready(self) -> None:
        """Wait until the model is prepared."""
        await self._prepared.wait()

    async def aclose(self) -> None:
        """Close the connections and processes of the models."""
        for provider in (self.provider, self.status_provider):
            if provider is not None:
                await provider.aclose()


def active_format(tool_format: ToolFormat | ToolFormatHandler | str, *, fenced_calls: bool = False) -> ActiveFormat:
    """Return the format of tool calls; for ``auto`` the API's own, for as long as the endpoint supports it.

    Args:
        tool_format: a handler, or the name of a format.
        fenced_calls: of `ModelInfo`.

    Raises:
        ConfigError: there is no such format.
    """
    if not isinstance(tool_format, str):
        return ActiveFormat(tool_format)
    if tool_format == "auto":
        return ActiveFormat(handler_for(ToolFormat.NATIVE, fenced_calls=fenced_calls), automatic=True)
    try:
        return ActiveFormat(handler_for(ToolFormat(tool_format), fenced_calls=fenced_calls))
    except ValueError:
        hint = "one of native, react, xml, auto"
        raise ConfigError(f"unknown tool format {tool_format!r}", hint=hint) from None
