"""What the options of a `DialClient` come to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from dial_client.audit.call_audit import TurnAudit
from dial_client.audit.entries import AuditRecorder
from dial_client.callbacks.oauth_callbacks import Login
from dial_client.callbacks.server_callbacks import LOG_LEVELS, Callbacks, Elicit, OnLog, Sample, Sampler
from dial_client.errors import ConfigError
from dial_client.formats import handler_for
from dial_client.formats.format_selection import ActiveFormat
from dial_client.limits import Limits
from dial_client.model import Provider, ToolFormat
from dial_client.providers import open_provider
from dial_client.recordings import replay
from dial_client.recordings.recording import Recording
from dial_client.servers.json_cache import JsonCache
from dial_client.servers.server_manager import AutoApproved, Connect, ServerManager
from dial_client.servers.tool_pins import ToolPins
from dial_client.settings import configuration
from dial_client.settings.policy_config import Policy, policy_from
from dial_client.tools.approval import ApprovalChecker, Approver, PolicyRules
from dial_client.tools.grants import GrantStore
from dial_client.turns.sampling import ModelSampler, by_callback


def target(name: str, entry: Any) -> Any:
    """Give how a server is reached.

    Raises:
        ConfigError: the entry is wrong, or the name holds a ``/``.
    """
    if isinstance(entry, Mapping):
        return configuration.server_from_mapping(name, entry)
    if "/" in name:
        raise ConfigError(f"{name!r}: the name of a server holds no /", "patterns of tools are SERVER/TOOL")
    return entry


@dataclass(frozen=True, slots=True)
class RecordingSetup:
    """A client's edges, with stand-ins for the servers of a recording that is played, or with what writes one."""

    provider: Provider | None
    targets: Mapping[str, Any]
    approve: Approver | None
    connect: Connect = replay.connect
    recording: Recording | None = None


def taped(
    provider: Provider | None,
    servers: Mapping[str, Any],
    approve: Approver | None,
    record: str | os.PathLike[str] | None,
    tool_format: str,
) -> RecordingSetup:
    """Read the entries, play what the provider plays, and record what is to be recorded.

    Raises:
        ConfigError: an entry is wrong, or the provider plays a recording that is to be recorded.
    """
    targets = {name: target(name, entry) for name, entry in servers.items()}
    if provider is not None and replay.is_recording(provider):
        _, mock_servers, approve = replay.load_recording(provider, targets, approve)
        targets = {**mock_servers, **targets}
    if record is None:
        return RecordingSetup(provider, targets, approve)
    recording = Recording(record, targets, provider, tool_format)
    return RecordingSetup(
        recording.record_provider(provider), targets, recording.record_approver(approve), recording.connect, recording
    )


CACHE, STATE = "servers", "approved-tools"
"""Folders of the user's own: for what can be found out again, and for what cannot."""


def drawer(where: bool | str | os.PathLike[str], usual: str) -> JsonCache | None:  # noqa: FBT001 - as people give it
    """Open the folder that is named, or for True the user's own; None for none."""
    if where is not True:
        return JsonCache(where) if where else None
    import platformdirs

    parent = platformdirs.user_cache_dir if usual == CACHE else platformdirs.user_state_dir
    return JsonCache(Path(parent("dial-client"), usual))


def pinned(where: bool | str | os.PathLike[str], servers: Mapping[str, Any]) -> ToolPins | None:  # noqa: FBT001 - ditto
    """Open what was approved of the tools of these servers; None where nothing is pinned."""
    kept = drawer(where, STATE)
    return None if kept is None else ToolPins(kept, servers)


def approvals(
    servers: ServerManager,
    approve: Approver | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    pins: bool | str | os.PathLike[str],  # noqa: FBT001 - as people give it
    chosen: ClientOptions,
) -> ApprovalChecker:
    """Return what every call passes before it runs.

    Raises:
        ConfigError: the policy cannot be read, or something in it is wrong.
    """
    rules = PolicyRules(allow, deny, AutoApproved(servers), policy_from(chosen.get("policy")))
    entries = servers.targets
    return ApprovalChecker(rules, approve, pinned(pins, entries), entries, grant_store(chosen.get("grants", False)))


def grant_store(where: bool | str | os.PathLike[str]) -> GrantStore | None:  # noqa: FBT001 - ditto
    """Return the grants that are kept in a folder, or for True those of the user; None for none."""
    if where is not True:
        return GrantStore(where) if where else None
    import platformdirs

    return GrantStore(Path(platformdirs.user_data_dir("dial-client"), "grants"))


def model_named(
    model: str | Provider | None, models: Mapping[str, configuration.ModelSettings], base_url: str | None
) -> tuple[Provider | None, ToolFormat | str | None]:
    """Open a model, and say how calls ride there; None where its profile and its provider do not say.

    Raises:
        ConfigError: there is no such model, or its profile is wrong.
    """
    provider = open_provider(model, models=models, base_url=base_url) if isinstance(model, str) else model
    profile = models.get(model) if isinstance(model, str) else None
    said = profile.tool_format if profile else None
    return provider, said or (provider.info.tool_format if provider is not None else None)


class HostCallbacks(TypedDict, total=False):
    """What a client does for servers that ask for it. What is not given is not offered to any server."""

    elicit: Elicit | None
    """Asks the person what a server wants to know."""
    sample: Sample | Literal["model"] | None
    """Answers what a server asks of a model. With ``"model"`` the client's own does: while a call is under way, each
    time with the approver's consent, and no more often and for no more tokens than `Limits` has it."""
    roots: Iterable[str | os.PathLike[str]]
    """Folders, or file URIs, servers are told they may use; an entry's own ``roots`` are told in their place."""
    on_log: OnLog | None
    """Is told of the servers' log messages."""
    log_level: str | None
    """The least level of those messages; ``info`` where there is an `on_log`."""
    login: Login | None
    """Lets the person log in to a server behind a URL that asks for it; without it such a server is not available,
    unless somebody has logged in before (``dial-chat servers login NAME``)."""
    audit: AuditRecorder | None
    """Keeps each decision and each call: `audit.log.AuditLog`. None for nobody."""


class ClientOptions(HostCallbacks, total=False):
    """The options of a `DialClient` that its constructor does not spell out."""

    policy: Policy | str | os.PathLike[str] | list[Any]
    """Rules for calls: a file, or a list as ``"policy"`` in servers.json has it. They come before those of the file
    that `DialClient.from_config` reads."""
    grants: bool | str | os.PathLike[str]
    """A folder for what a person allows for always; True for the user's own. Without it that holds as for a session."""


def host_callbacks(chosen: ClientOptions) -> HostCallbacks:
    """Return those of the options that are callbacks."""
    return cast("HostCallbacks", {name: chosen[name] for name in HostCallbacks.__annotations__ if name in chosen})  # type: ignore[literal-required]  # names of keys


def callbacks(  # noqa: PLR0913 - what `HostCallbacks` has, each by its name
    provider: Provider | None,
    approve: Approver | None,
    allow: tuple[str, ...],
    limits: Limits,
    *,
    elicit: Elicit | None = None,
    sample: Sample | Literal["model"] | None = None,
    roots: Iterable[str | os.PathLike[str]] = (),
    on_log: OnLog | None = None,
    log_level: str | None = None,
    login: Login | None = None,
    audit: AuditRecorder | None = None,
) -> Callbacks:
    """Give what is done for servers that ask for it.

    Raises:
        ConfigError: there is no such level, or no model.
    """
    level = log_level or ("info" if on_log is not None else None)
    if level not in (None, *LOG_LEVELS):
        raise ConfigError(f"unknown log level {level!r}", hint=f"one of {', '.join(LOG_LEVELS)}")
    if sample == "model" and provider is None:
        raise ConfigError('sample="model" needs a model', hint="give DialClient a model")
    sampler: Sampler | None = None
    if sample == "model" and provider is not None:
        sampler = ModelSampler(provider, approve, allow, limits, audit)
    elif sample is not None and not isinstance(sample, str):
        sampler = by_callback(sample, audit)
    return Callbacks(elicit, sampler, tuple(os.fspath(root) for root in roots), on_log, level, login, TurnAudit(audit))


def narrator(
    status: str,
    model: str | Provider | None,
    models: Mapping[str, configuration.ModelSettings],
    provider: Provider | None,
) -> Provider | None:
    """Give what words the status of running calls; None for the templates alone.

    Raises:
        ConfigError: there is no such way to word it, or no such model.
    """
    if status not in ("template", "model"):
        raise ConfigError(f"unknown status {status!r}", hint='expected "template" or "model"')
    named, _ = model_named(model, models, None)
    # A recording has no replies to spare for sentences.
    own = None if replay.is_recording(provider) else provider
    return (named or own) if status == "model" else None


def context_window(
    model: str | Provider | None, models: Mapping[str, configuration.ModelSettings], provider: Provider | None
) -> int | None:
    """Give the tokens the model can take: as its profile says, else as its provider knows; None where nobody does."""
    profile = models.get(model) if isinstance(model, str) else None
    said = profile.context_window if profile is not None else None
    if said is None and provider is not None:
        return provider.info.context_window
    return said


def format_chosen(wanted: ToolFormat | str | None) -> ActiveFormat:
    """Give how calls ride; where nothing is wanted the wire's own calls, for as long as the endpoint has them.

    Raises:
        ConfigError: there is no such format.
    """
    if wanted is None or wanted == "auto":
        return ActiveFormat(handler_for(ToolFormat.NATIVE), automatic=True)
    try:
        return ActiveFormat(handler_for(ToolFormat(wanted)))
    except ValueError:
        raise ConfigError(f"unknown tool format {wanted!r}", hint="one of native, react, xml, auto") from None
