"""The approver of the terminal program: asks the person, or denies where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from dial_client.cli.approval_prompt import HELP, Again, lines_of, parse_answer, question, width
from dial_client.cli.bootstrap import warn
from dial_client.cli.tty import Unanswered, is_there, typed
from dial_client.cli.turn_sink import TurnSink
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.tools.approval import NO_APPROVER, Approval, ApprovalContext, Approver, Decision
from dial_client.turns.sampling import SAMPLING


def approver(sink: TurnSink) -> Approver:
    """Return the approver that asks at the terminal; without a terminal, one that denies and names an option."""
    if not is_there():
        return _deny

    async def ask(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        async with sink.question(None if tool.tool == SAMPLING else call.id):
            return await _ask(call, tool, context)

    return ask


async def _deny(_: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    server = context.server
    if context.change:
        problem = f"{server}/{tool.tool} has changed since it was approved, and there is no terminal to ask at"
        warn(f"{problem}: not allowed; look at it in a terminal, or let everything through with --yes")
        why = f"the server {server!r} has changed this tool since it was approved"
        return Approval(Decision.DENY, why, "changed definition")
    if context.why_asked:
        warn(f"not allowed without a terminal to ask in: {server}/{tool.tool}: {context.why_asked}")
        return Approval(Decision.DENY, f"{context.why_asked}, and nobody is there to be asked", NO_APPROVER)
    warn(
        f"not allowed without a terminal to ask in: {server}/{tool.tool}; --allow {server}/{tool.tool} lets it through"
    )
    return Approval(Decision.DENY, "nobody is there to be asked for permission", NO_APPROVER)


async def _ask(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    """Ask until the answer is clear: a mistyped answer is neither a yes nor a no."""
    _show(lines_of(call, tool, context, width()))
    while True:
        before, last = question(tool, context.server, width())
        _show(before)
        try:
            answer = parse_answer(await typed(last))
        except Unanswered as how:
            return Approval(Decision.DENY, str(how))
        match answer:
            case Approval():
                return answer
            case Again.VIEW:
                _show(lines_of(call, tool, context, width(), whole=True))
            case Again.UNKNOWN:
                _show([HELP])


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)
    sys.stderr.flush()
