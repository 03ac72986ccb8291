"""Who is asked before a tool runs: the person at the terminal, or nobody."""

from __future__ import annotations

import json
import sys

from dial_client.cli.keyboard import Unanswered, is_there, typed
from dial_client.cli.opening import warn
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.safe_text import safe
from dial_client.sinks.terminal import TerminalSink
from dial_client.tools.approvals import NO_APPROVER, Approval, Approver, Decision
from dial_client.turns.sampling import SAMPLING

_ANSWERS = {"y": Decision.ONCE, "yes": Decision.ONCE, "a": Decision.SESSION, "always": Decision.SESSION}


def approver(sink: TerminalSink) -> Approver:
    """Give what asks in the terminal; without one, what denies and says which option would have allowed it."""
    if not is_there():
        return _deny

    async def ask(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
        async with sink.question(None if tool.tool == SAMPLING else call.id):
            return await _ask(call, tool, server)

    return ask


async def _deny(_: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
    if tool.change:
        said = f"{server}/{tool.tool} is described otherwise than when it was approved, and nobody is there to be asked"
        warn(f"{said}: not allowed; look at it in a terminal, or let everything through with --yes")
        return Approval(
            Decision.DENY, f"the server {server!r} has changed this tool since it was approved", NO_APPROVER
        )
    if tool.why_asked:
        warn(f"not allowed without a terminal to ask in: {server}/{tool.tool}: {tool.why_asked}")
        return Approval(Decision.DENY, f"{tool.why_asked}, and nobody is there to be asked", NO_APPROVER)
    warn(
        f"not allowed without a terminal to ask in: {server}/{tool.tool}; --allow {server}/{tool.tool} lets it through"
    )
    return Approval(Decision.DENY, "nobody is there to be asked for permission", NO_APPROVER)


async def _ask(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
    if tool.change:
        print(f"{safe(server)} describes {safe(tool.tool)} otherwise than when it was approved:", file=sys.stderr)
        print(_indented(tool.change), file=sys.stderr)
    if tool.why_asked:
        print(f"asked because {safe(tool.why_asked)}", file=sys.stderr)
    is_tool = tool.tool != SAMPLING
    what = f"wants to run {safe(tool.tool)} with" if is_tool else "wants to ask your model"
    print(f"{safe(server)} {what}", file=sys.stderr)
    print(_shown(call), file=sys.stderr, flush=True)
    try:
        answer = await typed(f"{'run it' if is_tool else 'let it'}? [y]es, [N]o, [a]lways in this session: ")
    except Unanswered as how:
        return Approval(Decision.DENY, str(how))
    return Approval(_ANSWERS.get(answer.lower(), Decision.DENY), "the user said no")


def _indented(change: str) -> str:
    """Give a diff as a block of its own. Its lines are JSON: no line break in a text can draw a question of its own."""
    return "\n".join(f"  {line}" for line in safe(change).splitlines())


def _shown(call: ToolCallRequest) -> str:
    """Give all arguments. Values are JSON strings, so that no line break in one can draw a question of its own."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in call.arguments.items()]
    return safe("\n".join(lines)) or "  no arguments"
