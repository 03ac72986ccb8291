"""Opens the client for a configuration and a model, and applies a changed configuration to it while it runs."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from dial_client.cli.approval.approval_modes import choose_mode
from dial_client.cli.audit_report import open_audit_log
from dial_client.cli.load_settings import find_fallback_models, find_model_name, open_model
from dial_client.cli.options import ACP, GATEWAY, SERVE, Options
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.trust.folder_texts import MAX_CHARS, FolderTexts, build_instructions
from dial_client.client.client_options import ApprovalPolicy, Logins
from dial_client.client.config_changes import change_servers
from dial_client.client.dial_client import DialClient
from dial_client.hooks.middleware import Middleware
from dial_client.hooks.owners import CredentialProvider
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.messages.model import Provider
from dial_client.servers.status import ServerStatus
from dial_client.settings.agent import Agent
from dial_client.settings.config_locations import find_user_config
from dial_client.settings.config_types import ModelProfile, Settings, SkillFolder
from dial_client.settings.policy_config import Policy, load_policy
from dial_client.tools.approval import Answer, Approval, ApprovalContext, Approver, Decision
from dial_client.tools.approval_mode import ApprovalMode


@asynccontextmanager
async def open_client(  # noqa: PLR0913 - what a command has to say of its client, the last three by name
    options: Options,
    settings: Settings,
    provider: Provider | None,
    approve: Approver | None,
    callbacks: Callbacks | None = None,
    *,
    at_once: bool = True,
    single_user: bool = True,
    middleware: Sequence[Middleware] = (),
    logins: Logins = True,
    credentials: CredentialProvider | None = None,
) -> AsyncGenerator[DialClient, None]:
    """Open a client. Its servers start in the background; `DialClient.ready` waits for them.

    Args:
        options: The options of the command line, which override the configuration.
        settings: The configuration.
        provider: The opened model; None for a client that only calls tools.
        approve: The approver; with ``--yes`` the answer is yes as long as the mode is ``auto``.
        callbacks: The callbacks for servers' requests.
        at_once: False to leave it to the caller when the client is opened.
        single_user: False if turns are for several persons, each with grants of their own.
        middleware: The middleware of the client.
        logins: Where logins to servers are kept.
        credentials: Knows what persons have given to a service; None for the one person of a terminal.

    Raises:
        ConfigError: The options or the configuration are wrong.
    """
    mode = choose_mode(options)

    async def answer_yes(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Answer:
        if approve is not None and dial.approvals.mode is not ApprovalMode.AUTO:
            return await approve(call, tool, context)
        return Approval(Decision.ONCE, decided_by="--yes")

    audit = open_audit_log(options, settings)
    chosen = replace(
        settings,
        default_model=None if provider is None else settings.default_model,
        skills=(),  # `use_skills` adds those that the user trusts
        agents=(),  # and `use_agents` these
        system=settings.system if options.system is None else options.system,
    )
    dial = DialClient.from_config(
        chosen,
        provider,
        tool_format=choose_tool_format(options, settings),
        limits=build_limits(options, settings),
        approve=answer_yes if options.yes else approve,
        approval=_CommandPolicy(
            allow=options.allow,
            deny=options.deny,
            rules=_load_own_rules(options, settings),
            grants=True,
            tool_pins=not options.yes and "*" not in options.allow,  # without approvals, none to pin
            concurrent=True,
            single_user=single_user,
            mode=mode,
        ),
        callbacks=callbacks,
        audit=audit,
        cache_dir=True,
        logins=logins,
        credentials=credentials,
        on_limit="answer",
        record=options.record,
        middleware=middleware,
    )
    set_profiles(dial, options, settings)
    try:
        if at_once:
            await dial.open()
        yield dial
    finally:
        await dial.aclose()
        if audit is not None:
            audit.close()


def use_instructions(dial: DialClient, texts: FolderTexts) -> None:
    """Let the turns of a client use the skills, call the agents and follow the instructions of files.

    The instructions fill at most a quarter of the context window.
    """
    tokens = dial.model.window_tokens
    room = MAX_CHARS if tokens is None else min(MAX_CHARS, tokens)  # a token has about four characters
    dial.file_instructions, cut = build_instructions(texts.instructions, room)
    if cut:
        warn_once(cut)
    use_skills(dial, texts.skills)
    use_agents(dial, texts.agents)


def use_skills(dial: DialClient, skills: Sequence[SkillFolder]) -> None:
    """Let the turns of a client use skills that were found; a warning says if one has changed in the meantime."""
    try:
        dial.use_skills(skills)
    except ConfigError as error:
        warn_once(f"no skill is used: {error}")


def use_agents(dial: DialClient, agents: Sequence[Agent]) -> None:
    """Let the turns of a client call agents that were found; a warning says why none is offered."""
    try:
        dial.use_agents(agents)
    except ConfigError as error:
        warn_once(f"no agent is offered: {error}")


class _CommandPolicy(ApprovalPolicy):
    # A pattern of ``--allow`` that allows nothing is a warning, which names the tool that it may mean.
    __slots__ = ()
    prefix = "--"


def choose_tool_format(options: Options, settings: Settings) -> str | None:
    """Return the tool format of ``--tool-format`` or of the model's profile; None for the API's native format."""
    profile = settings.models.get(find_model_name(options, settings))
    return options.tool_format or (profile.tool_format if profile is not None else None)


def set_profiles(dial: DialClient, options: Options, settings: Settings) -> None:
    """Set the model profiles that conversations can choose from, and the client's context window."""
    name = find_model_name(options, settings)
    if (profile := settings.models.get(name)) is not None:
        dial.model.set_context_window(profile.context_window)
    dial.model.set_profiles(build_profiles(options, settings), name)


def build_profiles(options: Options, settings: Settings) -> Mapping[str, ModelProfile]:
    """Return the model profiles of a configuration. The client's model gets the fallback models in effect."""
    name = find_model_name(options, settings)
    if (profile := settings.models.get(name)) is None:
        return settings.models
    return {**settings.models, name: replace(profile, fallback_models=find_fallback_models(options, settings))}


def combine_rules(options: Options, settings: Settings) -> Policy:
    """Return all approval rules in effect: of ``--policy``, of the user's own configuration, and of the files in use.

    Raises:
        ConfigError: A file cannot be read, or something in it is wrong.
    """
    return (*_load_own_rules(options, settings), *settings.policy)


def _load_own_rules(options: Options, settings: Settings) -> Policy:
    """Return the rules that are not in the files in use: of ``--policy``, and of the user's own configuration.

    With ``-c FILE`` the user's own file is not in use, but its rules still hold: another file cannot lift them.
    """
    own = find_user_config()
    is_in_use = own is None or own.absolute() in [path.absolute() for path in settings.sources]
    rules = load_policy(options.policy)
    if options.policy is not None and not rules:
        hint = 'expected a list of rules, or an object with such a list under "policy"'
        raise ConfigError("this file has no rules", hint, str(options.policy))
    return (*rules, *(() if is_in_use else load_policy(own)))


# The rounds of tool calls in a turn of a program, which the user can watch and stop.
_MAX_DEPTH = 50
# Seconds for a call through the gateway: the other host has a timeout of its own, and cancels the call. These end calls
# that nobody waits for any more.
_GATEWAY_SECONDS, _GATEWAY_SECONDS_MAX = 600.0, 6 * 3600.0


def build_limits(options: Options, settings: Settings) -> Limits:
    """Return the limits of turns: those of the options, else of the configuration, else the usual ones of programs.

    Raises:
        ConfigError: An option is out of range.
    """
    usual = Limits(max_depth=_MAX_DEPTH)
    if options.command == GATEWAY:
        usual = replace(usual, tool_timeout=_GATEWAY_SECONDS, tool_timeout_max=_GATEWAY_SECONDS_MAX)
    if options.command in (SERVE, ACP) or sys.stderr.isatty():
        usual = replace(usual, timeout=math.inf)  # a person can stop the turn
    values = {"max_depth": options.max_depth, "timeout": options.timeout, "tool_timeout": options.tool_timeout}
    try:
        chosen = {name: value for name, value in values.items() if value is not None}
        return replace(usual, **{**settings.limits, **chosen})
    except ValueError as error:
        raise ConfigError(str(error).replace("_", "-")) from None


async def apply_configuration(
    dial: DialClient,
    options: Options,
    before: Settings,
    after: Settings,
    report: Callable[[str, ServerStatus | DialError], None],
) -> str:
    """Apply a configuration, and return the changes in one line. Running turns keep their model.

    Args:
        dial: The client, which was opened with `before`.
        options: The options of the command line, which override the file.
        before: The configuration in effect.
        after: The configuration to apply.
        report: Gets the name of each added or changed server with its status, or with the error if it cannot be added.

    Raises:
        ConfigError: The model cannot be opened, or a file of rules is wrong; nothing was changed.
    """
    if not find_model_name(options, after):  # the model that was found at the start stays
        kept = {name: profile for name, profile in before.models.items() if name == before.default_model}
        after = replace(after, default_model=before.default_model, models={**kept, **after.models})
    is_model_changed = list_models(options, before) != list_models(options, after)
    policy = combine_rules(options, after)
    if is_model_changed:
        await switch_model(dial, options, after)
    elif before.models != after.models:
        dial.model.set_profiles(build_profiles(options, after))
    dial.approvals.set_policy(policy)  # before servers start: their tools can be called at once
    changes = await change_servers(dial, before.servers, after.servers, report)
    dial.limits = build_limits(options, after)
    if options.system is None and before.system != after.system:
        dial.system = after.system
    model = "another model answers" if is_model_changed else "the model is the same"
    same = f"{len(changes.unchanged)} unchanged and still running"
    counts = f"{len(changes.added)} added, {len(changes.changed)} changed, {len(changes.removed)} removed"
    return f"Servers: {counts}, {same}; {model}; the rules were read again, without parts that are not in use."


async def switch_model(dial: DialClient, options: Options, settings: Settings) -> None:
    """Switch to the model that the options or a configuration name.

    Raises:
        ConfigError: The model cannot be opened.
    """
    provider = open_model(options, settings)
    try:
        dial.model.switch(provider, tool_format=choose_tool_format(options, settings))
    except BaseException:
        with anyio.CancelScope(shield=True):
            await provider.aclose()
        raise
    set_profiles(dial, options, settings)


def list_models(options: Options, settings: Settings) -> list[tuple[str, ModelProfile | None]]:
    """Return the names of the model and of its fallback models, each with its entry in ``models``."""
    names = (find_model_name(options, settings), *find_fallback_models(options, settings))
    return [(name, settings.models.get(name)) for name in names]
