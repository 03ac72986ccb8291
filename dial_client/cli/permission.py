"""Who is asked before a tool runs: the person at the terminal, or nobody."""

from __future__ import annotations

import json
import sys

from dial_client.approvals import Approval, Approver, Decision
from dial_client.cli import running
from dial_client.cli.opening import warn
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.safe_text import safe
from dial_client.sinks.terminal import TerminalSink

_ANSWERS = {"y": Decision.ONCE, "yes": Decision.ONCE, "a": Decision.SESSION, "always": Decision.SESSION}


def approver(sink: TerminalSink) -> Approver:
    """Give what asks in the terminal; without one, what denies and says which option would have allowed it."""
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not there:
        return _deny

    async def ask(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
        async with sink.question(call.id):
            return await _ask(call, tool, server)

    return ask


async def _deny(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
    warn(f"not allowed without a terminal to ask in: {server}/{tool.tool}; --allow {call.name} lets it through")
    return Approval(Decision.DENY, "nobody is there to be asked for permission")


async def _ask(call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.output import create_output

    print(f"{safe(server)} wants to run {safe(tool.tool)} with", file=sys.stderr)
    print(_shown(call), file=sys.stderr, flush=True)
    session: PromptSession[str] = PromptSession(output=create_output(sys.stderr))
    _forget_what_was_typed()
    clear_typeahead(session.input)
    try:
        answer = await session.prompt_async("run it? [y]es, [N]o, [a]lways in this session: ", handle_sigint=False)
    except KeyboardInterrupt:
        running.interrupts.interrupt()
        return Approval(Decision.DENY, "the user interrupted")
    except EOFError:
        return Approval(Decision.DENY, "the user did not answer")
    return Approval(_ANSWERS.get(answer.strip().lower(), Decision.DENY), "the user said no")


def _shown(call: ToolCallRequest) -> str:
    """Give all arguments. Values are JSON strings, so that no line break in one can draw a question of its own."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in call.arguments.items()]
    return safe("\n".join(lines)) or "  no arguments"


def _forget_what_was_typed() -> None:
    """Throw away keys pressed before the question was seen. Windows' console has none waiting in a line's buffer."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
