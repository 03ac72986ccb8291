"""The model of a client: its provider, the format of its tool calls, and the model that words the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import anyio
from anyio import to_thread

from dial_client.client.argument_types import check_model
from dial_client.client.turn_settings import TurnSettings
from dial_client.errors import ConfigError
from dial_client.formats import handler_for
from dial_client.formats.format_selection import ActiveFormat
from dial_client.middleware import MiddlewareChain
from dial_client.model import Preparable, Provider, ToolFormat, ToolFormatHandler
from dial_client.providers import add_fallback_models, open_provider
from dial_client.providers.fallback_provider import FallbackProvider
from dial_client.recordings.detection import is_recording
from dial_client.runtime.logs import get_logger
from dial_client.settings.config_types import ModelSettings
from dial_client.turns import prices
from dial_client.turns.context_window import ContextWindow

log = get_logger(__name__)

MAX_VARIANTS = 16
"""Models with settings of conversations that are kept open; the oldest is closed once no turn runs."""


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The model a client is asked to use, as its options name it."""

    model: str | Provider | None
    models: Mapping[str, ModelSettings] | None
    """Profiles that `model`, `status_model` and `fallback_models` may name."""
    base_url: str | None = None
    tool_format: ToolFormat | ToolFormatHandler | str | None = None
    guidance: str | None = None
    status: Literal["template", "model"] = "template"
    status_model: str | Provider | None = None
    fallback_models: Sequence[str | Provider] = ()
    """The models that are asked where `model` cannot answer; empty for those of its profile."""
    profile_name: str = ""
    """The profile that `model` was opened by, where that is a provider; empty for none."""

    @property
    def profile(self) -> ModelSettings | None:
        """The profile that `model` names or was opened by; None where there is none."""
        return (self.models or {}).get(self.model if isinstance(self.model, str) else self.profile_name)

    def open(self) -> Provider | None:
        """Open the model.

        Raises:
            ConfigError: there is no such model, or its profile is wrong.
            TypeError: the model, or a fallback model, is no model.
        """
        model, models = self.model, self.models or {}
        # A recording has its own errors, and a model that `ClientModel.switch` keeps has its fallback models.
        fallbacks = () if is_recording(model) or isinstance(model, FallbackProvider) else self.fallback_models
        for given in (*([] if model is None else [model]), *([] if isinstance(fallbacks, str) else fallbacks)):
            check_model(given)
        if isinstance(model, str):
            return open_provider(model, models=models, base_url=self.base_url, fallback_models=fallbacks)
        return add_fallback_models(model, fallbacks, models) if model is not None else None

    def open_status_provider(self, provider: Provider | None) -> Provider | None:
        """Open the model that words the status of running calls; None for the templates alone.

        Raises:
            ConfigError: there is no such `status`, or no such model.
        """
        if self.status not in ("template", "model"):
            raise ConfigError(f"unknown status {self.status!r}", hint='expected "template" or "model"')
        model, models = self.status_model, self.models or {}
        named = open_provider(model, models=models) if isinstance(model, str) else model
        # A recording has no replies to spare for sentences.
        default = None if is_recording(provider) else provider
        return (named or default) if self.status == "model" else None


class ClientModel:
    """The provider a client asks, with the format of its tool calls and its context window.

    Args:
        selection: the options.
        middleware: is around each request to the models.

    Raises:
        ConfigError: there is no such model, no such tool format, or no such status.
    """

    def __init__(self, selection: ModelSelection, middleware: MiddlewareChain | None = None) -> None:
        self.middleware = middleware or MiddlewareChain()
        """Is around turns and tool calls too."""
        self._is_fixed = False
        self._prepared = anyio.Event()
        self._retired: list[Provider] = []
        self._variants: dict[tuple[str | None, str | None, float | None], ClientModel] = {}
        self._configure(selection)

    def _configure(self, selection: ModelSelection) -> None:
        provider = selection.open()
        profile = selection.profile
        info = provider.info if provider is not None else None
        tool_format = (
            selection.tool_format
            or (profile.tool_format if profile is not None else None)
            or (info.tool_format if info is not None else None)
            or "auto"
        )
        chosen_format = active_format(tool_format, fenced_calls=info is not None and info.fenced_calls)
        status_provider = selection.open_status_provider(provider)
        own_window = profile.context_window if profile is not None else None
        if own_window is None and info is not None:
            own_window = info.context_window
        self.provider = provider
        """The provider; None for a client that only calls tools."""
        self.format_name = str(tool_format if isinstance(tool_format, str) else tool_format.format)
        """The tool format as options name it."""
        self.format = chosen_format
        self.window = ContextWindow(own_window)
        self.guidance = selection.guidance
        if self.guidance is None and info is not None:
            self.guidance = info.guidance
        self.status_provider = status_provider
        """Words the status of running calls; None for the templates alone."""
        self._unrecorded = provider
        self._selection = selection

    @property
    def name(self) -> str:
        """The provider's name; empty for a client without a model."""
        return self.provider.info.name if self.provider is not None else ""

    @property
    def window_tokens(self) -> int | None:
        """The tokens of the context window: as configured, or by the price list; None where they are not known."""
        if self.window.tokens is not None or self.provider is None:
            return self.window.tokens
        return prices.find_context_window(self.provider.info)

    @property
    def profiles(self) -> Mapping[str, ModelSettings]:
        """The profiles of models that turns may choose from; none while the client is recorded."""
        return {} if self._is_fixed else self._selection.models or {}

    @property
    def profile_name(self) -> str:
        """The name of the profile of the model; empty for a model without a profile."""
        profile = self._selection.profile
        return profile.name if profile is not None else ""

    def select(self, settings: TurnSettings) -> ClientModel:
        """Return the model of a turn with these settings: this one, or another one that is kept open beside it.

        Raises:
            ConfigError: there is no such profile or tool format, or a temperature is set without a profile.
        """
        if not settings.changes_model:
            return self
        name = settings.model if settings.model != self.profile_name else None
        key = (name, settings.tool_format, settings.temperature)
        if key == (None, None, None):
            return self
        if key not in self._variants:
            self._variants[key] = self._open_variant(*key)
            self._retire(keeps=MAX_VARIANTS)
        return self._variants[key]

    def _open_variant(self, name: str | None, tool_format: str | None, temperature: float | None) -> ClientModel:
        """Return another model, or for no name this one with another tool format or temperature."""
        if self._is_fixed:
            raise ConfigError("a recording is of one model", hint="leave the recording out to change the model")
        models, own = self._selection.models or {}, self.profile_name
        if name is not None and name not in models:
            raise ConfigError(f"there is no model {name!r}", hint=f"one of {', '.join(models) or 'none'}")
        selection = replace(self._selection, tool_format=tool_format, status="template", profile_name=own)
        if name is not None:
            selection = replace(selection, model=name, base_url=None, fallback_models=())
        elif temperature is None:
            selection = replace(selection, model=self.provider)
        else:
            selection = replace(selection, model=own, tool_format=tool_format or self._selection.tool_format)
        if temperature is not None:
            if not (chosen := name or own):
                raise ConfigError("a temperature needs a model that is a profile", hint='add it to "models"')
            selection = replace(selection, models={**models, chosen: replace(models[chosen], temperature=temperature)})
        variant = ClientModel(selection, self.middleware)
        if variant.provider is self.provider:
            variant.window = self.window
        variant._prepared.set()
        return variant

    def set_profiles(
        self, models: Mapping[str, ModelSettings], name: str | None = None, base_url: str | None = None
    ) -> None:
        """Let the next turns choose from these profiles.

        Args:
            models: the profiles.
            name: the profile that the model was opened by, if there is one of this name; None for the one before.
            base_url: the address that the model was opened with, in place of that of its profile.
        """
        if name is None:
            name, base_url = self.profile_name, self._selection.base_url
        self._selection = replace(self._selection, models=models, base_url=base_url)
        if not isinstance(self._selection.model, str):
            self._selection = replace(self._selection, profile_name=name)
        self._retire()

    def record_with(self, provider: Provider | None) -> None:
        """Ask this provider from now on: the same one, with its exchanges recorded. It cannot be switched any more."""
        self._is_fixed = provider is not self.provider
        self.provider = provider

    def switch(
        self, model: str | Provider | None = None, *, tool_format: ToolFormat | ToolFormatHandler | str | None = None
    ) -> None:
        """Answer the next turns with another model, or in another tool format. Turns that run keep theirs.

        What messages carry for the model before is not sent to another one. Where the model is not prepared yet, its
        first request does that.

        Args:
            model: as for `DialClient`; None for the same as before. It is asked at its own address.
            tool_format: the tool format; by default that of the model.

        Raises:
            ConfigError: there is no such model or tool format, or the client is being recorded.
        """
        if self._is_fixed:
            raise ConfigError("a recording is of one model", hint="leave the recording out to change the model")
        before = (self.provider, self.status_provider)
        window = self.window
        if model is None:
            own = replace(self._selection, model=self.provider, profile_name=self.profile_name)
            self._configure(replace(own, tool_format=tool_format))
            self.window = window
        else:
            chosen = replace(self._selection, model=model, base_url=None, profile_name="")
            self._configure(replace(chosen, tool_format=tool_format))
        self._retire(*before)

    def _retire(self, *providers: Provider | None, keeps: int = 0) -> None:
        """Set providers aside, to be closed once no turn runs: these, and the oldest models of conversations.

        Args:
            providers: are no longer asked.
            keeps: models of conversations that stay.
        """
        oldest = list(self._variants)[: max(0, len(self._variants) - keeps)]
        for provider in (*providers, *(self._variants.pop(key).provider for key in oldest)):
            if provider is not None and provider not in (self.provider, self.status_provider, *self._retired):
                self._retired.append(provider)

    def set_context_window(self, tokens: int | None) -> None:
        """Set the tokens of the model's context window; None leaves it as it is."""
        if tokens is not None:
            self.window = ContextWindow(tokens)

    async def close_retired(self) -> None:
        """Close the models that were switched away from; no turn may be under way."""
        retired, self._retired = self._retired, []
        for provider in retired:
            await provider.aclose()

    def required(self) -> Provider:
        """Return the provider.

        Raises:
            ConfigError: the client has no model.
        """
        if self.provider is None:
            raise ConfigError("no model is named", hint="give DialClient a model")
        return self.provider

    def get_unrecorded(self) -> Provider:
        """Return the provider, without the recording of its exchanges. Raises as `required`."""
        self.required()
        assert self._unrecorded is not None
        return self._unrecorded

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
        await self.close_retired()
        variants = [variant.provider for variant in self._variants.values() if variant.provider is not self.provider]
        self._variants.clear()
        for provider in (*variants, self.provider, self.status_provider):
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
