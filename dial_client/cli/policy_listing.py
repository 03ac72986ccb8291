"""The work of ``dial-chat policy`` and ``dial-chat grants``, and of ``dial-chat trust SERVER --read-only``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.cli.approval.approval_modes import choose_mode
from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import combine_rules
from dial_client.cli.options import ConfigChoice, ExitCode, Options
from dial_client.cli.servers.tool_call import parse_arguments
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.trust.changed_config import change_config, find_holder
from dial_client.client.client_setup import CACHE, STATE, open_cache, open_grants
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import ToolSpec
from dial_client.runtime.safe_text import escape_line, to_one_line
from dial_client.runtime.text import suggest_name
from dial_client.servers.server_cache import ServerCache, ToolPins
from dial_client.settings import config_editor
from dial_client.settings.config_types import ServerSettings, Settings
from dial_client.settings.policy_config import Effect, PolicyRule, matches
from dial_client.tools import policy
from dial_client.tools.approval import find_reason_to_ask
from dial_client.tools.approval_mode import DECIDED_BY, ApprovalMode, may_run, must_wait_for_plan
from dial_client.tools.catalog import assign_names, build_exact_spec
from dial_client.tools.grants import Grant, GrantStore
from dial_client.tools.policy import PolicyRules, ProposedCall, Verdict

if TYPE_CHECKING:
    from mcp_types import Tool

_TAINTED = ("--tainted",)
_CODES = {Effect.ALLOW: ExitCode.ANSWERED, Effect.DENY: ExitCode.DENIED, Effect.ASK: ExitCode.ASKS}


@dataclass(frozen=True, slots=True)
class _ApprovalState:
    """The rules of a configuration, and the tools that its servers had at the last run."""

    settings: Settings
    rules: PolicyRules
    tools: Mapping[str, tuple[Tool, ...] | None]

    @property
    def enabled(self) -> dict[str, ServerSettings]:
        return {name: entry for name, entry in self.settings.servers.items() if entry.enabled}


async def _read_approval_state(options: Options) -> _ApprovalState:
    settings = await read_settings(options)
    rules = PolicyRules(options.allow, options.deny, combine_rules(options, settings), prefix="--")
    cache = open_cache(True, CACHE)  # noqa: FBT003 - the user's own
    tools = {name: ServerCache(entry, cache).read_tools() for name, entry in settings.servers.items() if entry.enabled}
    return _ApprovalState(settings, rules, tools)


# The last row of the list of rules, by mode.
_EVERYTHING_ELSE = {
    ApprovalMode.ASK: "ask everything else",
    ApprovalMode.READ: "allow everything else that is known to be read-only, ask the rest (--mode read)",
    ApprovalMode.PLAN: "deny what is not known to be read-only, whatever is allowed above (--mode plan)",
    ApprovalMode.AUTO: "allow everything else (--mode auto)",
}


async def list_rules(options: Options, *, as_json: bool) -> None:
    """Print all rules in order, other sources of approval, and warnings about patterns that match nothing."""
    known = await _read_approval_state(options)
    names = {name: None if tools is None else tuple(tool.name for tool in tools) for name, tools in known.tools.items()}
    warnings = list(policy.check_patterns(known.rules, names, known.enabled, all_servers=True))
    if as_json:
        listed = {
            "policy": [rule.to_dict() for rule in known.rules.policy],
            "allow": list(known.rules.allow),
            "deny": list(known.rules.deny),
            "autoApprove": {name: list(entry.auto_approve) for name, entry in known.enabled.items()},
            "untrusted": {name: list(entry.untrusted) for name, entry in known.enabled.items()},
            "mode": choose_mode(options).value,
            "warnings": warnings,
        }
        print(json.dumps(listed, indent=2))
        return
    for rule in known.rules.policy:
        print(_format_rule(rule))
    for effect, patterns in (("deny", known.rules.deny), ("allow", known.rules.allow)):
        for pattern in patterns:
            print(to_one_line(f"{effect} {pattern} (--{effect})", 400))
    for name, entry in known.enabled.items():
        if entry.auto_approve:
            print(to_one_line(f"allow {', '.join(f'{name}/{tool}' for tool in entry.auto_approve)} (autoApprove)", 400))
        if entry.untrusted:
            print(to_one_line(f"taint {', '.join(f'{name}/{tool}' for tool in entry.untrusted)} (untrusted)", 400))
    print(_EVERYTHING_ELSE[choose_mode(options)])
    for warning in warnings:
        warn(warning)


def _format_rule(rule: PolicyRule) -> str:
    written = rule.to_dict()
    conditions = {key: value for key, value in written.items() if key not in ("rule", rule.effect.value, "reason")}
    conditions_text = f"  {json.dumps(conditions, ensure_ascii=False)}" if conditions else ""
    why = f"  {rule.reason}" if rule.reason else ""
    return to_one_line(f"{rule.effect.value} {', '.join(rule.tools)}{conditions_text}{why}  ({rule.name})", 400)


async def test_call(options: Options, name: str, arguments: str, *, is_tainted: bool, as_json: bool) -> int:
    """Print the decision of the rules about a call, and return the exit code of that decision.

    Raises:
        ConfigError: The arguments are not a JSON object, or there is no such tool.
    """
    call_arguments = parse_arguments(arguments)
    known = await _read_approval_state(options)
    server, tool = _resolve_tool(name, known)
    entry = known.settings.servers[server]
    found = next((spec for spec in known.tools.get(server) or () if spec.name == tool), None)
    call = ProposedCall(_build_spec(server, tool, found), call_arguments, entry, _TAINTED if is_tainted else ())
    effect, decided_by, reason = _decide(call, known.rules.find_verdict(call), choose_mode(options))
    decision: dict[str, Any] = {"decision": effect.value, "decided_by": decided_by, "reason": reason}
    decision |= {"server": server, "tool": tool, "is_known": found is not None}
    if as_json:
        print(json.dumps(decision, indent=2))
    else:
        print(to_one_line(f"{effect.value} {server}/{tool}: {decided_by}{f': {reason}' if reason else ''}", 600))
        for rule in known.rules.policy:
            if decided_by == f"policy {rule.name}":
                print(_format_rule(rule))
        if found is None:
            warn(f"the annotations of this tool are not known: `dial-chat tools` asks {server} for them")
    return _CODES[effect]


async def trust_read_only_tools(server: str) -> None:
    """Let the tools that a server calls read-only run without a question, in the file that has the server.

    Raises:
        ConfigError: There is no such server, or the file cannot be written.
    """
    before = find_holder(server, ConfigChoice())
    shown = escape_line(server)
    change_config(
        before,
        lambda text: config_editor.trust_read_only_tools(text, server),
        f"{shown} is trusted, and its read-only tools are allowed",
    )
    known = await _read_approval_state(Options())
    entry, tools = known.settings.servers.get(server), known.tools.get(server)
    if tools is None:
        print(f"Its tools are not known yet: `dial-chat tools` asks {shown} for them.")
        return
    decided: dict[Effect, list[str]] = {effect: [] for effect in Effect}
    for tool in tools:
        call = ProposedCall(_build_spec(server, tool.name, tool), {}, entry)
        decided[_decide(call, known.rules.find_verdict(call))[0]].append(to_one_line(tool.name, 60))
    for effect, meaning in ((Effect.ALLOW, "without a question"), (Effect.ASK, "asked about"), (Effect.DENY, "denied")):
        if decided[effect]:
            print(f"{meaning}: {', '.join(decided[effect])}")


def _decide(
    call: ProposedCall, verdict: Verdict | None, mode: ApprovalMode = ApprovalMode.ASK
) -> tuple[Effect, str, str]:
    if verdict is not None and verdict.effect is Effect.DENY:
        return Effect.DENY, verdict.decided_by, verdict.reason
    if must_wait_for_plan(mode, call, verdict):
        return Effect.DENY, f"{DECIDED_BY}{mode}", "it is not known to be read-only"
    if why := find_reason_to_ask(call, verdict):
        is_rule = verdict is not None and verdict.effect is Effect.ASK
        return Effect.ASK, verdict.decided_by if is_rule and verdict is not None else "taint", why
    if verdict is not None:
        return verdict.effect, verdict.decided_by, verdict.reason
    store = open_grants(True)  # noqa: FBT003 - the user's own
    grant = store.find(call.settings, call.spec) if store is not None and call.settings is not None else None
    if grant is not None:
        return Effect.ALLOW, f"grant {grant.id}", ""
    if may_run(mode, call, verdict):
        return Effect.ALLOW, f"{DECIDED_BY}{mode}", ""
    return Effect.ASK, "no rule", "nothing allows it"


def _resolve_tool(name: str, known: _ApprovalState) -> tuple[str, str]:
    """Return server and tool of ``server/tool``, or of the name under which a tool was offered at the last run."""
    server, slash, tool = name.partition("/")
    if slash:
        if server not in known.settings.servers:
            raise ConfigError(f"there is no server {server!r}", suggest_name(server, known.settings.servers))
        return server, tool
    keys = [(server, spec.name) for server, tools in known.tools.items() for spec in tools or ()]
    found = next((key for key, offered in assign_names(keys).items() if offered == name), None)
    if found is None:
        raise ConfigError(f"no tool is known by the name {name!r}", "write SERVER/TOOL; `dial-chat tools` lists them")
    return found


def _build_spec(server: str, name: str, tool: Tool | None) -> ToolSpec:
    return ToolSpec(name, "", {}, server, name) if tool is None else build_exact_spec(name, server, tool)


async def manage_grants(options: Options, allowed: str | None, revoked: str | None, *, as_json: bool) -> None:
    """Print all grants; or grant a tool; or revoke grants. What was granted or revoked is printed.

    Args:
        options: The options that name the configuration.
        allowed: The tool to grant, ``SERVER/TOOL``; None to grant nothing.
        revoked: The id or the pattern of the grants to revoke, or ``--all``; None to revoke nothing.
        as_json: Print JSON.

    Raises:
        ConfigError: There is no such grant, or no such tool is known.
    """
    store = open_grants(True)  # noqa: FBT003 - the user's own
    assert store is not None
    if allowed is not None:
        found = await _grant_tool(store, options, allowed)
    else:
        found = store.list_grants() if revoked is None else _revoke_grants(store, revoked)
    if as_json:
        print(json.dumps([grant.to_dict() for grant in found], indent=2))
        return
    for grant in found:
        target = f"{grant.reached} in {grant.cwd}" if grant.cwd else grant.reached
        verb = "allowed: " if allowed is not None else "" if revoked is None else "revoked: "
        print(to_one_line(f"{verb}{grant.id}  {grant.server}/{grant.tool}  since {grant.since}: {target}", 400))
    if not found:
        warn("no grants")


async def _grant_tool(store: GrantStore, options: Options, name: str) -> tuple[Grant, ...]:
    """Grant a tool with the definition that it had when its server was last ready, and return the grant.

    That is the definition of a server that runs now in another program, such as the gateway, which reads the grant at
    the next call. If another definition was approved before, the difference is printed.
    """
    known = await _read_approval_state(options)
    server, tool = _resolve_tool(name, known)
    entry = known.settings.servers[server]
    definition = next((found for found in known.tools.get(server) or () if found.name == tool), None)
    if definition is None:
        raise ConfigError(f"the tool {server}/{tool} is not known", f"`dial-chat tools` asks {server} for its tools")
    spec = _build_spec(server, tool, definition)
    state = open_cache(True, STATE)  # noqa: FBT003 - the user's own
    assert state is not None
    pins = ToolPins(state, {server: entry})
    if difference := pins.describe_change(spec) or store.describe_change(entry, spec):
        print(f"The definition of {to_one_line(f'{server}/{tool}', 200)} that is approved now, beside the one before:")
        print("\n".join(map(escape_line, difference.splitlines())))
    pins.pin(spec)
    if not store.add(entry, spec):
        raise ConfigError("the grant could not be written", "is there space on the disk?")
    grant = store.find(entry, spec)
    return (grant,) if grant is not None else ()


def _revoke_grants(store: GrantStore, which: str) -> tuple[Grant, ...]:
    grants = [
        grant
        for grant in store.list_grants()
        if which in ("--all", grant.id) or matches(which, grant.server, grant.tool)
    ]
    if not grants and which != "--all":
        raise ConfigError(f"there is no grant {which!r}", "`dial-chat grants` lists them")
    return store.revoke({grant.id for grant in grants})
