"""Opens the client for a configuration and a model, with its servers, limits, approver and audit log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from dial_client.cli.audit_setup import open_audit_log
from dial_client.cli.options import Options
from dial_client.client.client_options import ApprovalPolicy
from dial_client.client.dial_client import DialClient
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.messages.model import Provider
from dial_client.providers import is_recording
from dial_client.servers.server_manager import STARTUP_PATIENCE
from dial_client.settings import configuration
from dial_client.settings.config_locations import find_user_config
from dial_client.settings.config_types import ModelProfile
from dial_client.settings.policy_config import Policy, load_policy
from dial_client.tools.approval import Approval, ApprovalContext, Approver, Decision


@asynccontextmanager
async def open_client(
    options: Options,
    settings: configuration.Settings,
    provider: Provider | None,
    approve: Approver | None,
    callbacks: Callbacks | None = None,
) -> AsyncGenerator[DialClient, None]:
    """Open a client. Its servers start in the background; `DialClient.ready` waits for them."""
    name = options.model or settings.default_model or ""
    profile = settings.models.get(name)
    audit = open_audit_log(options, settings)
    dial = DialClient(
        provider,
        servers={} if is_recording(provider) else settings.servers,
        tool_format=options.tool_format or (profile.tool_format if profile else None),
        limits=_build_limits(options),
        approve=_allow_all if options.yes else approve,
        approval=ApprovalPolicy(
            allow=options.allow,
            deny=options.deny,
            rules=combine_rules(options, settings),
            grants=True,
            tool_pins=not options.yes and "*" not in options.allow,  # without approvals, none to pin
            concurrent=True,
        ),
        callbacks=callbacks,
        audit=audit,
        cache_dir=True,
        on_limit="answer",
        system=options.system if options.system is not None else settings.system,
        record=options.record,
        startup_patience=STARTUP_PATIENCE if settings.startup_patience is None else settings.startup_patience,
    )
    set_profiles(dial, options, settings)
    try:
        await dial.open()
        yield dial
    finally:
        await dial.aclose()
        if audit is not None:
            audit.close()


def set_profiles(dial: DialClient, options: Options, settings: configuration.Settings) -> None:
    """Set the model profiles that conversations can choose from, and the client's context window."""
    name = options.model or settings.default_model or ""
    if (profile := settings.models.get(name)) is not None:
        dial.model.set_context_window(profile.context_window)
    dial.model.set_profiles(build_profiles(options, settings), name, options.base_url)


def build_profiles(options: Options, settings: configuration.Settings) -> Mapping[str, ModelProfile]:
    """Return the model profiles of a configuration. The client's model gets the fallback models in effect."""
    name = options.model or settings.default_model or ""
    if (profile := settings.models.get(name)) is None:
        return settings.models
    fallbacks = options.fallback_model or settings.find_fallback_models(name)
    return {**settings.models, name: replace(profile, fallback_models=fallbacks)}


def combine_rules(options: Options, settings: configuration.Settings) -> Policy:
    """Return all approval rules in effect: of ``--policy``, of the user's own configuration, and of the files in use.

    Raises:
        ConfigError: A file cannot be read, or something in it is wrong.
    """
    own = find_user_config()
    is_in_use = own is None or own.absolute() in [path.absolute() for path in settings.sources]
    return (*load_policy(options.policy), *(() if is_in_use else load_policy(own)), *settings.policy)


async def _allow_all(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:  # noqa: ARG001 - an approver
    """Approve every call, because ``--yes`` was given."""
    return Approval(Decision.ONCE, decided_by="--yes")


def _build_limits(options: Options) -> Limits:
    values = {"max_depth": options.max_depth, "timeout": options.timeout, "tool_timeout": options.tool_timeout}
    try:
        return replace(Limits(), **{name: value for name, value in values.items() if value is not None})  # type: ignore[arg-type]  # each has its field's type
    except ValueError as error:
        raise ConfigError(str(error).replace("_", "-")) from None
