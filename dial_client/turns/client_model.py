"""The model of a client: its provider, its tool format, and the model that writes status texts."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import anyio
from anyio import to_thread

from dial_client.hooks.middleware import MiddlewareChain
from dial_client.messages.errors import ConfigError, NoModel, ProviderError
from dial_client.messages.message import Message
from dial_client.messages.model import (
    Downloading,
    Instruction,
    InstructionSource,
    ModelInfo,
    ModelRequest,
    ModelSettings,
    Preparable,
    Provider,
    ToolFormat,
    ToolFormatHandler,
)
from dial_client.messages.token_usage import Usage
from dial_client.providers import FallbackProvider, add_fallback_models, is_recording, open_provider
from dial_client.providers.formats import ActiveFormat, build_handler
from dial_client.providers.presets import writes_code
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.settings.argument_types import check_members, check_types, describe_type
from dial_client.settings.config_types import ModelProfile
from dial_client.turns import prices
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.model_call import generate_text

log = get_logger(__name__)

# Models with settings of conversations that stay open; beyond these the oldest is closed once no turn runs.
MAX_VARIANTS = 16


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text that a model wrote for the host."""

    text: str
    usage: Usage
    cost_usd: float | None
    """The price of the text in US dollars; None if unknown."""


@dataclass(frozen=True, eq=False, slots=True)
class ModelSelection:
    """The options that select a client's model."""

    model: str | Provider | None
    models: Mapping[str, ModelProfile] | None
    """The model profiles that `model`, `status_model` and `fallback_models` may name."""
    base_url: str | None = None
    tool_format: ToolFormat | ToolFormatHandler | str | None = None
    guidance: str | None = None
    status: Literal["template", "model"] = "template"
    status_model: str | Provider | None = None
    fallback_models: Sequence[str | Provider] = ()
    """The models to ask if `model` cannot answer; empty for the fallback models of its profile."""
    profile_name: str = ""
    """If `model` is a provider: the name of the profile that it was opened from; empty if there is none."""

    @property
    def profile(self) -> ModelProfile | None:
        """The profile that `model` names or was opened from; None for a model without a profile."""
        return (self.models or {}).get(self.model if isinstance(self.model, str) else self.profile_name)

    def open(self) -> Provider | None:
        """Open the model.

        Raises:
            ConfigError: The model is unknown, or its profile is wrong.
            TypeError: The model, a fallback model, a profile or another option has the wrong type.
        """
        check_models(self.models)
        check_types(guidance=(self.guidance, str), base_url=(self.base_url, str))
        model, models = self.model, self.models or {}
        # A recording replays its own errors. A model that `ClientModel.switch` keeps already has its fallback models.
        fallbacks = () if is_recording(model) or isinstance(model, FallbackProvider) else self.fallback_models
        if model is not None:
            check_model(model)
        check_fallback_models(fallbacks)
        if self.base_url is not None and not isinstance(model, str):
            raise ConfigError("base_url needs the name of a model", hint="a Provider has its own address")
        if fallbacks and model is None:
            raise ConfigError("fallback_models needs a model", hint="give DialClient a model")
        if isinstance(model, str):
            return open_provider(model, models=models, base_url=self.base_url, fallback_models=fallbacks)
        return add_fallback_models(model, fallbacks, models) if model is not None else None

    def open_status_provider(self, provider: Provider | None) -> Provider | None:
        """Open the model that writes the status texts of running calls; None if status texts are templates only.

        Raises:
            ConfigError: The value of `status` or the model is unknown, or `status_model` has no effect.
            TypeError: The model is neither a name nor a `Provider`.
        """
        if self.status_model is not None:
            check_model(self.status_model)
        if self.status not in ("template", "model"):
            raise ConfigError(f"unknown status {self.status!r}", hint='expected "template" or "model"')
        if self.status_model is not None and self.status != "model":
            raise ConfigError('status_model needs status="model"', hint="status texts are templates without it")
        model, models = self.status_model, self.models or {}
        named = open_provider(model, models=models) if isinstance(model, str) else model
        # A recording has no replies to requests for status texts.
        default = None if is_recording(provider) else provider
        return (named or default) if self.status == "model" else None


class ClientModel:
    """The provider that a client asks, with its tool format and its context window.

    Args:
        selection: The options that select the model.
        middleware: The middleware of model requests.

    Raises:
        ConfigError: The model, the tool format or the value of ``status`` is unknown.
    """

    def __init__(self, selection: ModelSelection, middleware: MiddlewareChain | None = None) -> None:
        self.middleware = middleware or MiddlewareChain()
        """The middleware of model requests, turns and tool calls."""
        self._is_fixed = False
        self._prepared = anyio.Event()
        self._is_postponed = False  # whether the first turn prepares the model
        self.retired: list[Provider] = []
        """The models that are no longer used, which `close_retired` closes."""
        self._variants: dict[tuple[str | int | None, str | None], ClientModel] = {}
        self.is_callers = False
        """True if the caller of a turn gave the provider, and closes it."""
        self.patience = 0.0
        """`ModelRequest.patience` of the requests of turns."""
        self._configure(selection)

    def _configure(self, selection: ModelSelection) -> None:
        if selection.tool_format is not None and not isinstance(selection.tool_format, str):
            expected = "the name of a tool format, or a ToolFormatHandler"
            check_members(selection.tool_format, ToolFormatHandler, expected)
        provider, profile = selection.open(), selection.profile or ModelProfile("")
        info = provider.info if provider is not None else ModelInfo("")
        asked = selection.tool_format or profile.tool_format
        tool_format = asked or info.tool_format or "auto"
        # Native calls stay the default: the name of a model decides only for those who ask for ``auto``.
        is_known = asked == "auto" and writes_code(info.model)
        is_code = is_known if info.writes_code is None else info.writes_code
        chosen_format = choose_format(tool_format, fenced_calls=info.fenced_calls, is_code=is_code)
        status_provider = selection.open_status_provider(provider)
        self.provider = provider
        """The provider; None for a client that only calls tools."""
        self.format_name = str(tool_format if isinstance(tool_format, str) else tool_format.format)
        """The name of the tool format, as in the options."""
        self.format = chosen_format
        self.window = ContextWindow(info.context_window if profile.context_window is None else profile.context_window)
        self.guidance = info.guidance if selection.guidance is None else selection.guidance
        self.status_provider = status_provider
        """Writes the status texts of running calls; None if status texts are templates only."""
        self._unrecorded = provider
        self._selection = selection

    @property
    def name(self) -> str:
        """The provider's name; empty for a client without a model."""
        return self.provider.info.name if self.provider is not None else ""

    @property
    def window_tokens(self) -> int | None:
        """The size of the context window in tokens, as configured or from the price list; None if unknown."""
        if self.window.tokens is not None or self.provider is None:
            return self.window.tokens
        return prices.find_context_window(self.provider.info)

    @property
    def profiles(self) -> Mapping[str, ModelProfile]:
        """The model profiles that turns may choose; empty while the client is recorded."""
        return {} if self._is_fixed else self._selection.models or {}

    @property
    def profile_name(self) -> str:
        """The name of the model's profile; empty for a model without a profile."""
        profile = self._selection.profile
        return profile.name if profile is not None else ""

    def select(self, model: str | Provider | None = None, tool_format: str | None = None) -> ClientModel:
        """Return the model for a turn: this model, or a variant that stays open beside it.

        Args:
            model: The name of a model, or a `Provider` that the caller closes; None for this model.
            tool_format: The tool format; None for the model's default.

        Raises:
            ConfigError: The model or the tool format is unknown, or the client is recorded.
        """
        is_own = model is None or model in (self.profile_name, self._selection.model, self.provider)
        if is_own and tool_format is None:
            return self
        key = (None if is_own else model if isinstance(model, str) else id(model), tool_format)
        if key not in self._variants:
            self._variants[key] = self._open_variant(None if is_own else model, tool_format)
            self._retire(keeps=MAX_VARIANTS)
        return self._variants[key]

    def _open_variant(self, model: str | Provider | None, tool_format: str | None) -> ClientModel:
        """Open another model; if it is None, this model with another tool format."""
        selection = replace(
            self._change_selection(model, tool_format), fallback_models=(), status="template", status_model=None
        )
        variant = ClientModel(selection, self.middleware)
        variant.is_callers = model is not None and not isinstance(model, str)
        if variant.provider is self.provider:
            variant.window = self.window
        variant._prepared.set()
        return variant

    def set_profiles(self, models: Mapping[str, ModelProfile], name: str | None = None) -> None:
        """Set the model profiles that the next turns may choose.

        Args:
            models: The profiles by name.
            name: The name of the profile that the current model was opened from; None if it has not changed.
        """
        name = self.profile_name if name is None else name
        self._selection = replace(self._selection, models=models)
        if not isinstance(self._selection.model, str):
            self._selection = replace(self._selection, profile_name=name)
        self._retire()

    def record_with(self, provider: Provider | None) -> None:
        """Set the provider that is asked. If it records the exchanges of the previous one, the model is now fixed."""
        self._is_fixed = provider is not self.provider
        self.provider = provider

    def switch(
        self, model: str | Provider | None = None, *, tool_format: ToolFormat | ToolFormatHandler | str | None = None
    ) -> None:
        """Use another model or tool format from the next turn on; running turns keep theirs.

        Data that messages hold for the previous provider (`Message.echo`) is not sent to another provider. The first
        request to the new model prepares it.

        Args:
            model: The name or `Provider`, as for `DialClient`, used at its own base URL; None to keep the model.
            tool_format: The tool format; None for the model's default.

        Raises:
            ConfigError: The model or the tool format is unknown, or the client is recorded.
        """
        selection = self._change_selection(model, tool_format)
        before, window = (self.provider, self.status_provider), self.window
        self._configure(selection)
        if model is None:
            self.window = window
        self._retire(*before)

    def reopen(self, model: str, models: Mapping[str, ModelProfile], fallback_models: Sequence[str]) -> None:
        """Use the model of a changed configuration from the next turn on; running turns keep theirs.

        Args:
            model: The name of the model.
            models: The profiles of the configuration.
            fallback_models: The models to ask if `model` cannot answer.

        Raises:
            ConfigError: The model is unknown, or the client is recorded.
        """
        selection = self._change_selection(model, self._selection.tool_format)
        before = (self.provider, self.status_provider)
        self._configure(replace(selection, models=models, fallback_models=fallback_models))
        self._retire(*before)

    def _change_selection(
        self, model: str | Provider | None, tool_format: ToolFormat | ToolFormatHandler | str | None
    ) -> ModelSelection:
        """Return the selection of another model, or if it is None, of this model with another tool format.

        Raises:
            ConfigError: The client is recorded.
        """
        if self._is_fixed:
            hint = "leave the recording out to change the model"
            raise ConfigError("the model cannot be changed while it is recorded", hint=hint)
        selection = replace(self._selection, tool_format=tool_format)
        if model is None:
            return replace(selection, model=self.provider, base_url=None, profile_name=self.profile_name)
        return replace(selection, model=model, base_url=None, profile_name="")

    def _retire(self, *providers: Provider | None, keeps: int = 0) -> None:
        """Mark providers to be closed once no turn runs, and with them the oldest variants.

        Args:
            providers: The providers that are no longer used.
            keeps: The number of variants that stay open.
        """
        oldest = list(self._variants)[: max(0, len(self._variants) - keeps)]
        variants = [self._variants.pop(key) for key in oldest]
        for provider in (*providers, *(variant.provider for variant in variants if not variant.is_callers)):
            if provider is not None and provider not in (self.provider, self.status_provider, *self.retired):
                self.retired.append(provider)

    def set_context_window(self, tokens: int | None) -> None:
        """Set the size of the model's context window in tokens; None changes nothing."""
        if tokens is not None:
            self.window = ContextWindow(tokens)

    async def close_retired(self) -> None:
        """Close the models that are no longer used. Call it only while no turn runs."""
        retired, self.retired = self.retired, []
        for provider in retired:
            await provider.aclose()

    def require(self) -> Provider:
        """Return the provider.

        Raises:
            NoModel: The client has no model.
        """
        if self.provider is None:
            raise NoModel("no model is named", hint="give DialClient a model")
        return self.provider

    def get_unrecorded(self) -> Provider:
        """Return the provider that does not record its exchanges. Raises as `require`."""
        self.require()
        assert self._unrecorded is not None
        return self._unrecorded

    async def prepare_at_start(self) -> None:
        """Prepare the model while the servers start, unless it has to be downloaded: `wait_prepared` does that."""
        provider = self.provider
        if provider is not None and isinstance(provider, Downloading) and provider.needs_download:
            self._is_postponed = True
        else:
            await self._prepare()

    async def _prepare(self) -> None:
        """Prepare the model for the first request. An error is only logged here: the first request raises it again."""
        provider = self.provider
        try:
            if provider is not None and isinstance(provider, Preparable):
                await provider.prepare()
        except Exception as error:  # noqa: BLE001 - the first request raises it again
            log.debug("prepare_failed", error=type(error).__name__)
        finally:
            self._prepared.set()
        if provider is not None and provider.info.url:  # loaded now, so that no turn waits for the price list
            await to_thread.run_sync(prices.load_prices, abandon_on_cancel=True)

    def reset(self) -> None:
        """Make `wait_prepared` wait for the next `prepare_at_start`, because the client was opened again."""
        self._prepared, self._is_postponed = anyio.Event(), False

    async def wait_prepared(self) -> None:
        """Wait until the model is prepared; a model that has to be downloaded is prepared now."""
        if self._is_postponed:
            self._is_postponed = False
            await self._prepare()
        await self._prepared.wait()

    async def write(self, name: str, prompt: str, material: str, *, max_tokens: int, timeout: float) -> WrittenText:
        """Return a text that the model writes for the host in one request without tools, such as a summary.

        Args:
            name: The kind of text, for errors: ``summary``.
            prompt: The instructions.
            material: The message that the text is written from.
            max_tokens: The most tokens of the reply.
            timeout: The timeout of the request in seconds.

        Raises:
            ProviderError: The model could not be reached, refused the request, wrote nothing, or took too long.
        """
        request = ModelRequest(
            (Message.user(material),),
            instructions=(Instruction(InstructionSource.HOST, prompt),),
            stream=False,
            settings=ModelSettings(max_tokens=max_tokens),
        )
        provider = self.require()
        with anyio.move_on_after(timeout) as scope:
            reply = await generate_text(provider, request, self.middleware)
        if scope.cancelled_caught:
            raise ProviderError(f"the {name} was not ready after {timeout:.0f} seconds", code="timeout")
        reader = self.format.handler.reader(())
        text = sanitize(reader.feed(reply.message.text) + reader.finish()[0]).strip()
        if not text:
            raise ProviderError(f"the model wrote no {name}")
        return WrittenText(text, reply.usage, prices.compute_cost(reply.usage, reply.info or provider.info))

    async def aclose(self) -> None:
        """Close the connections and processes of the models."""
        self._retire()
        await self.close_retired()
        for provider in (self.provider, self.status_provider):
            if provider is not None:
                await provider.aclose()


def choose_format(
    tool_format: ToolFormat | ToolFormatHandler | str, *, fenced_calls: bool = False, is_code: bool = False
) -> ActiveFormat:
    """Return the format of tool calls. The format ``auto`` is the API's own while the endpoint supports that.

    Args:
        tool_format: A handler, or the name of a format.
        fenced_calls: The value of `ModelInfo.fenced_calls`.
        is_code: Whether ``auto`` is code mode, if the extra is installed.

    Raises:
        ConfigError: The format is unknown, or needs an extra that is not installed.
    """
    if not isinstance(tool_format, str):
        return ActiveFormat(tool_format)
    if tool_format == "auto":
        handler = build_handler(ToolFormat.NATIVE, fenced_calls=fenced_calls)
        return ActiveFormat(handler, automatic=True, is_code=is_code and _load_sandbox().is_installed())
    if tool_format == ToolFormat.CODE:
        _load_sandbox().require_installed()
        return ActiveFormat(build_handler(ToolFormat.CODE, fenced_calls=fenced_calls), is_code=True)
    try:
        return ActiveFormat(build_handler(ToolFormat(tool_format), fenced_calls=fenced_calls))
    except ValueError:
        hint = "one of native, react, xml, code, auto"
        raise ConfigError(f"unknown tool format {tool_format!r}", hint=hint) from None


def _load_sandbox() -> Any:
    from dial_client.tools.snippets import sandbox  # loaded only for code mode

    return sandbox


def check_model(model: Any) -> None:
    """Check that an argument can be a client's model.

    Args:
        model: The name of a model, or a `Provider`.

    Raises:
        TypeError: The argument is neither a name nor a `Provider`.
    """
    if isinstance(model, str):
        return
    hint = ": servers are given by name, DialClient(…, servers={…})" if isinstance(model, Mapping) else ""
    check_members(model, Provider, "the name of a model, or a Provider", hint)
    if inspect.iscoroutinefunction(model.generate):
        name = type(model).__name__
        raise TypeError(f"{name}.generate returns its whole reply: it has to `yield` the deltas, a Completion last")


def check_models(models: Any) -> None:
    """Check that an argument is a mapping of names to model profiles; None is accepted.

    Raises:
        TypeError: The argument is no mapping, or a profile is no `ModelProfile`.
    """
    if models is None:
        return
    if not isinstance(models, Mapping):
        raise TypeError(f"models takes a mapping of names to profiles, not {describe_type(models)}")
    for name, profile in models.items():
        if not isinstance(profile, ModelProfile):
            raise TypeError(
                f"model {name!r}: expected an entry as in servers.json or a ModelProfile, not {describe_type(profile)}"
            )


def check_fallback_models(models: Any) -> None:
    """Check that an argument is a list of models; a string is accepted, because `open_provider` refuses it.

    Raises:
        TypeError: The argument is no list, or an item is neither a name nor a `Provider`.
    """
    if isinstance(models, str):
        return
    if not isinstance(models, Collection) or isinstance(models, Mapping):
        raise TypeError(f"fallback_models takes a list of models, not {describe_type(models)}")
    for model in models:
        check_model(model)
