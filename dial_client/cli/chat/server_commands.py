"""The commands about servers, their tools, the rules for tools, and the configuration."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from dial_client.cli.approval.approval_modes import MEANINGS, find_reason_against_auto
from dial_client.cli.chat.chat_session import ChatSession, CommandResult
from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import apply_configuration
from dial_client.cli.servers import server_features
from dial_client.cli.servers.server_features import count_tools
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.trust.folder_texts import FolderTexts, read_folder_texts
from dial_client.messages.errors import ConfigError, DialError
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.policy_config import Effect, matches, restricts
from dial_client.tools.approval_mode import ApprovalMode


async def show_tools(session: ChatSession, arguments: str) -> None:
    """List the tools by server, or those that have all words of `arguments` in their name, server or description."""
    words = arguments.lower().split()
    found = [
        tool
        for tool in session.dial.tools
        if all(word in f"{tool.name} {tool.server} {tool.description}".lower() for word in words)
    ]
    width = min(40, max((len(tool.name) for tool in found), default=0))
    lines: list[str] = []
    for server, tools in groupby(sorted(found, key=attrgetter("server", "name")), attrgetter("server")):
        lines.append(to_one_line(server, 60))
        lines += [f"  {tool.name:<{width}}  {to_one_line(tool.description, 100)}" for tool in tools]
    states = {to_one_line(name, 60): status.state for name, status in session.dial.servers.items()}
    if starting := [name for name, state in states.items() if state is ServerState.STARTING]:
        lines.append(f"Still starting: {', '.join(starting)}.")
    session.print("\n".join(lines) or ("No tool has these words." if words else "There are no tools."))


async def show_servers(session: ChatSession, arguments: str) -> None:
    """List the servers, or restart one."""
    action, _, name = arguments.partition(" ")
    if action == "restart":
        await restart(session, name.strip())
    elif action:
        session.print("/servers lists the servers; /servers restart NAME restarts a server.")
    else:
        dial = session.dial
        lines = [describe_status(status, count_tools(dial, status)) for status in dial.servers.values()]
        session.print("\n".join(lines) or "No servers are configured.")


async def show_resources(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """List the resources of the servers."""
    await server_features.show(session.dial, "resources")


async def show_prompts(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """List the prompts of the servers."""
    await server_features.show(session.dial, "prompts")


async def show_skills(session: ChatSession, arguments: str) -> None:
    """List the skills, show one, or trust one of a server as it is now.

    Raises:
        ConfigError: There is no such action, or no such skill.
    """
    from dial_client.cli import skill_features

    skills = session.dial.skills
    action, _, name = arguments.partition(" ")
    if action in ("show", "trust") and name.strip():
        review = await (skills.review(name.strip()) if action == "show" else skills.trust(name.strip()))
        trusted = "\nTrusted, until it changes." if action == "trust" else ""
        session.print(f"{skill_features.format_review(review)}{trusted}")
    elif arguments:
        raise ConfigError(f"unknown argument {to_one_line(arguments, 60)!r}", "/skills, or /skills show|trust NAME")
    else:
        lines = [
            f"{skill_features.format_name(skill)}  {skill_features.format_description(skill)}"
            for skill in await skills.list()
        ]
        session.print(
            "\n".join(lines) or "There are no skills: `dial-chat help skills` says where they are looked for."
        )


async def begin_skill(session: ChatSession, arguments: str) -> CommandResult:
    """Send the text of a skill, with what follows its name.

    Raises:
        ConfigError: No skill is named, or there is no such skill.
    """
    name, _, text = arguments.partition(" ")
    if not name:
        raise ConfigError("missing name of a skill", hint="/skill NAME [TEXT]; /skills lists them")
    return CommandResult(await session.dial.skills.build_message(name, text.strip()))


async def restart(session: ChatSession, name: str) -> None:
    """Restart a server.

    Raises:
        ConfigError: No server is named, or there is no server of this name.
    """
    if not name:
        raise ConfigError("missing server name", hint="/restart NAME; /servers lists them")
    status = await session.dial.restart_server(name)
    session.print(describe_status(status, count_tools(session.dial, status)))


def describe_status(status: ServerStatus, tools: str) -> str:
    """Return the state of a server in one line, with the number of its tools in words."""
    detail = status.error or ""
    if status.state is ServerState.READY:
        again = f", started again {_count_times(status.restarts)}: {detail}" if status.restarts else ""
        detail = f"{tools}{again}"
    return f"{to_one_line(status.name, 60)}: {status.state.value}{f': {to_one_line(detail, 600)}' if detail else ''}"


def _count_times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


# The maximum number of tools that are named after a new rule.
_MAX_NAMED = 6


async def show_or_set_mode(session: ChatSession, arguments: str) -> None:
    """Show the mode, or change it from the next call on.

    Raises:
        ConfigError: There is no such mode, or it is not possible in this folder.
    """
    mode = arguments.lower()
    if mode and mode not in [*MEANINGS]:
        raise ConfigError(f"there is no mode {to_one_line(arguments, 40)!r}", hint=f"one of {', '.join(MEANINGS)}")
    if mode == ApprovalMode.AUTO and (why := find_reason_against_auto(session.options)):
        raise ConfigError(f"the mode auto is not possible here: {why}")
    if mode:
        session.dial.approvals.set_mode(mode)
        session.print(f"Mode {mode}: {MEANINGS[ApprovalMode(mode)]}.")
        return
    current = session.dial.approvals.mode
    session.print("\n".join(f"{'→' if mode is current else ' '} {mode:<4}  {text}" for mode, text in MEANINGS.items()))


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
    approvals = session.dial.approvals
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
    lines = [to_one_line(f"{effect} {tools} ({why})", 200) for effect, tools, why in rows]
    hint = "/grants revoke PATTERN revokes the rules and grants of a tool."
    session.print("\n".join([*lines, hint]) if lines else _NOTHING)


_NOTHING = "There are no rules and no grants. /approve SERVER/TOOL and /deny PATTERN add rules for this session."


def _add_rule(session: ChatSession, effect: Effect, pattern: str) -> None:
    """Add a rule, and print the current tools that it matches.

    Raises:
        ConfigError: The pattern is missing, or can match no tool.
    """
    command = "approve" if effect is Effect.ALLOW else "deny"
    if not pattern or len(pattern.split()) > 1:
        raise ConfigError("missing pattern", hint=f"/{command} SERVER/TOOL, or a pattern: time/*")
    if effect is Effect.ALLOW and "/" not in pattern and pattern != "*":
        servers = [tool.server for tool in session.dial.tools if pattern in (tool.tool, tool.name, tool.server)]
        near = f"{servers[0]}/{'*' if pattern == servers[0] else pattern}" if servers else f"SERVER/{pattern}"
        raise ConfigError(
            f"{to_one_line(pattern, 60)!r} names no server", hint=f"did you mean {to_one_line(near, 80)}?"
        )
    session.dial.approvals.add_rule(effect, pattern)
    is_named = matches if effect is Effect.ALLOW else restricts
    named = [f"{tool.server}/{tool.tool}" for tool in session.dial.tools if is_named(pattern, tool.server, tool.tool)]
    result = "runs without approval" if effect is Effect.ALLOW else "is denied"
    if not named:
        session.print(f"{to_one_line(pattern, 80)} {result}; it matches no tool at the moment.")
        return
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    tools = ", ".join(to_one_line(name, 60) for name in named[:_MAX_NAMED])
    session.print(f"{to_one_line(pattern, 80)} {result} until you leave: {tools}{more}")


async def reload(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Reload the configuration, instructions and own commands: unchanged servers keep running, others are restarted."""
    before = session.texts
    settings = await read_settings(session.options, report=warn)
    texts = await read_folder_texts(session.options, settings)
    session.use_texts(texts)
    session.print(_describe_texts(before, texts))
    if not settings.sources and not session.settings.sources:
        session.print("There is no configuration file.")
        return

    def report(name: str, result: ServerStatus | DialError) -> None:
        if isinstance(result, DialError):
            session.print(f"{to_one_line(name, 60)}: {sanitize(str(result))}")
        else:
            session.print(describe_status(result, count_tools(session.dial, result)))

    changes = await apply_configuration(session.dial, session.options, session.settings, settings, report)
    session.settings = settings
    session.print(changes)


def _describe_texts(before: FolderTexts, after: FolderTexts) -> str:
    """Return how many files with instructions and commands are in use, and how many of them have changed."""
    known = {(file.path, file.digest) for file in (*before.instructions, *before.commands)}
    used = [*after.instructions, *after.commands]
    changed = sum((file.path, file.digest) not in known for file in used)
    changed += sum(skill not in before.skills for skill in after.skills)
    counts = count_noun(len(after.instructions), "file"), count_noun(len(after.commands), "own command")
    skills = f", {count_noun(len(after.skills), 'skill')}" if after.skills or before.skills else ""
    return f"{counts[0]} with instructions, {counts[1]}{skills}: {changed} new or changed."


async def log_in(session: ChatSession, arguments: str) -> None:
    """Log in to a server, and restart it with the login."""
    from dial_client.cli.options import ExitCode
    from dial_client.cli.servers import oauth_login

    if not arguments:
        raise ConfigError("missing server name", hint="/login NAME; /servers lists them")
    if await oauth_login.log_in(session.options, arguments, browser=True, screen=session.screen) == ExitCode.ANSWERED:
        await restart(session, arguments)


async def set_theme(session: ChatSession, arguments: str) -> None:
    """Change the colours of answers."""
    if session.screen.set_theme is None:
        raise ConfigError("answers have no colours here")
    from dial_client.cli.markdown.themes import THEMES

    names = ", ".join(["auto", *THEMES])
    if not arguments:
        session.print(f"/theme NAME, one of {names}")
        return
    try:
        session.screen.set_theme(arguments)
    except KeyError:
        raise ConfigError(f"there is no theme {to_one_line(arguments, 40)!r}", hint=f"one of {names}") from None
    session.print(f"Theme: {arguments}")
