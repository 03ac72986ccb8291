"""The commands about approval: rules for this session, and grants."""

from __future__ import annotations

from dial_client.cli.chat_commands.chat_session import ChatSession
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.policy_config import Effect
from dial_client.settings.tool_patterns import matches, restricts
from dial_client.tools.approval import ApprovalChecker

_MAX_NAMED = 6
"""The maximum number of tools that are named after a new rule."""


async def approve(session: ChatSession, arguments: str) -> None:
    """Allow tools without asking until the end of this session."""
    _add_rule(session, Effect.ALLOW, arguments)


async def deny(session: ChatSession, arguments: str) -> None:
    """Deny tools until the end of this session."""
    _add_rule(session, Effect.DENY, arguments)


async def show_grants(session: ChatSession, arguments: str) -> None:
    """List rules and grants, or revoke some of them."""
    action, _, which = arguments.partition(" ")
    if action == "revoke" and which.strip():
        revoked = session.dial.approvals.revoke(which.strip())
        if not revoked:
            raise ConfigError(f"there is no rule and no grant {to_one_line(which, 60)!r}", hint="/grants lists them")
        session.print("\n".join(f"revoked: {to_one_line(name, 120)}" for name in revoked))
        return
    if arguments:
        raise ConfigError(f"unknown argument {to_one_line(arguments, 60)!r}", hint="/grants, or /grants revoke PATTERN")
    lines = _describe_rules(session.dial.approvals)
    hint = "/grants revoke PATTERN revokes the rules and grants of a tool."
    session.print("\n".join([*lines, hint]) if lines else _NOTHING)


def _describe_rules(approvals: ApprovalChecker) -> list[str]:
    rules = approvals.rules
    granted = [f"{server}/{tool}" for server, tool in approvals.session_grants]
    stored = [(f"{grant.server}/{grant.tool}", grant.since[:10], grant.id) for grant in approvals.stored_grants]
    rows = [
        *(("deny", pattern, "this session") for pattern in rules.deny),
        *(("allow", pattern, "this session") for pattern in rules.allow),
        *(("allow", tool, "approved for this session") for tool in granted),
        *(("allow", tool, f"approved always, since {since}; {id_}") for tool, since, id_ in stored),
        *((rule.effect.value, ", ".join(rule.tools), f"{rule.name}: `dial-chat policy`") for rule in rules.policy),
    ]
    return [to_one_line(f"{effect} {tools} ({why})", 200) for effect, tools, why in rows]


_NOTHING = "There are no rules and no grants. /approve SERVER/TOOL and /deny PATTERN add rules for this session."


def _add_rule(session: ChatSession, effect: Effect, pattern: str) -> None:
    """Add a rule, and print the current tools that it matches.

    Raises:
        ConfigError: The pattern is missing, or can match no tool.
    """
    command = "approve" if effect is Effect.ALLOW else "deny"
    if not pattern or len(pattern.split()) > 1:
        raise ConfigError("which tools?", hint=f"/{command} SERVER/TOOL, or a pattern: time/*")
    if effect is Effect.ALLOW and "/" not in pattern and pattern != "*":
        servers = [tool.server for tool in session.dial.tools if pattern in (tool.tool, tool.name, tool.server)]
        near = f"{servers[0]}/{'*' if pattern == servers[0] else pattern}" if servers else f"SERVER/{pattern}"
        raise ConfigError(
            f"{to_one_line(pattern, 60)!r} names no server", hint=f"did you mean {to_one_line(near, 80)}?"
        )
    session.dial.approvals.add_rule(effect, pattern)
    is_named = matches if effect is Effect.ALLOW else restricts
    named = [f"{tool.server}/{tool.tool}" for tool in session.dial.tools if is_named(pattern, tool.server, tool.tool)]
    result = "runs without a question" if effect is Effect.ALLOW else "is denied"
    if not named:
        session.print(f"{to_one_line(pattern, 80)} {result}; it matches no tool at the moment.")
        return
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    tools = ", ".join(to_one_line(name, 60) for name in named[:_MAX_NAMED])
    session.print(f"{to_one_line(pattern, 80)} {result} until you leave: {tools}{more}")
