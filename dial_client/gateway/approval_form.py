"""The form that asks a person about a tool call, at a host that shows forms of MCP, and what the answer means.

The form is flat and has only what both revisions of the protocol know, so that every host can show it. Hosts show the
message as it is: each line of it begins with a word of this program, or is indented below one, so that arguments cannot
imitate the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitResult, ErrorData

from dial_client.client.sampling import SAMPLING
from dial_client.gateway.denials import NO_ANSWER
from dial_client.hooks.approval_request import count_unseen_arguments, format_argument, quote_name
from dial_client.messages.message import PendingApproval
from dial_client.runtime.safe_text import escape_unseen, sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.tools.approval import Approval, Decision

# The maximum lines of all arguments, and the maximum characters of one line. The form counts what it leaves out.
MAX_LINES, MAX_LINE = 120, 1_000
# The maximum lines of the difference between two definitions of a tool.
MAX_DIFF_LINES = 10
# The maximum characters of a reason, which the model reads.
MAX_REASON = 500

DECISION, REASON = "decision", "reason"

# Returns a text without the secrets of a server.
MaskText = Callable[[str], str]


def _keep(text: str) -> str:
    return text


def build_approval_form(pending: PendingApproval, mask: MaskText = _keep) -> ElicitRequestFormParams:
    """Return the form that asks about a call.

    Args:
        pending: The call, and why it is asked about.
        mask: Replaces the secrets of the server in the arguments: the form appears in another program.
    """
    choices = _list_choices(pending)
    properties: dict[str, Any] = {
        # `enumNames` instead of `oneOf`, which revisions before 2025-11-25 do not have: a host that ignores the names
        # shows the values, which are words too. No default: nobody allows a call by pressing Enter.
        DECISION: {
            "type": "string",
            "title": "Decision",
            "description": "Whether this call may run",
            "enum": list(choices),
            "enumNames": list(choices.values()),
        },
        # A host that makes an object of the form fills in what its user left out, FastMCP's client with null otherwise,
        # which is no string.
        REASON: {
            "type": "string",
            "default": "",
            "title": "Reason",
            "description": "If you deny the call: why. The model reads it.",
            "maxLength": MAX_REASON,
        },
    }
    schema = {"type": "object", "properties": properties, "required": [DECISION]}
    return ElicitRequestFormParams(message="\n".join(_list_lines(pending, mask)), requested_schema=schema)


def read_approval(answer: ElicitResult | ErrorData | object, pending: PendingApproval) -> Approval:
    """Return what an answer to the form means. An answer that does not fit denies the call."""
    if isinstance(answer, ErrorData):
        why = to_one_line(answer.message, MAX_REASON)
        return Approval(Decision.DENY, f"the question could not be answered: {why}", NO_ANSWER)
    if not isinstance(answer, ElicitResult):
        return Approval(Decision.DENY, "the answer is not one to a form", NO_ANSWER)
    if answer.action == "decline":
        return Approval(Decision.DENY, "the user declined the call")
    if answer.action == "cancel":
        return Approval(Decision.DENY, "the user dismissed the question without an answer", NO_ANSWER)
    content = answer.content or {}
    decision, reason = content.get(DECISION), content.get(REASON)
    if not isinstance(decision, str) or decision not in _list_choices(pending):
        return Approval(Decision.DENY, "the answer to the question does not fit its form", NO_ANSWER)
    text = to_one_line(sanitize(reason), MAX_REASON) if isinstance(reason, str) else ""
    if decision == Decision.DENY:
        return Approval(Decision.DENY, text or "the user said no")
    return Approval(decision)


def _list_choices(pending: PendingApproval) -> Mapping[str, str]:
    """Return the decisions that a person can make about a call, each with its name."""
    if pending.tool == SAMPLING:
        lasting = {Decision.SESSION: "Allow this server in this session"}
    elif pending.reason:
        # The answer holds for this call only: its arguments may come from text of strangers.
        lasting = {Decision.SESSION: "Allow the same call again in this session"}
    else:
        lasting = {
            Decision.SESSION: "Allow this tool in this session",
            Decision.ALWAYS: "Always allow this tool, until its definition changes",
        }
    named = {Decision.ONCE: "Allow this call", **lasting, Decision.DENY: "Do not allow"}
    return {str(decision): name for decision, name in named.items()}


def _list_lines(pending: PendingApproval, mask: MaskText) -> list[str]:
    server = quote_name(pending.server)
    if pending.tool == SAMPLING:
        lines = [f"{server} asks for an answer of the host's own model.", "Request:"]
    else:
        lines = [f"Allow this tool call?\nTool: {quote_name(pending.tool)}", f"Server: {server}"]
        lines.append("Arguments:" if pending.call.arguments else "Arguments: none")
    lines += _list_argument_lines(pending, mask)
    if unseen := count_unseen_arguments(pending.call):
        lines.append(f"Note: {count_noun(unseen, 'invisible character')} written out above")
    if pending.reason:
        lines.append(f"Why you are asked: {escape_unseen(to_one_line(pending.reason, MAX_LINE))}")
    if pending.change:
        lines.append("The server has changed this tool since it was approved:")
        lines += _cut([f"  {line}" for line in pending.change.splitlines()], MAX_DIFF_LINES, mask)
    return lines


def _list_argument_lines(pending: PendingApproval, mask: MaskText) -> list[str]:
    lines = [
        f"  {line}" for name, value in pending.call.arguments.items() for line in format_argument(str(name), value)
    ]
    return _cut(lines, MAX_LINES, mask)


def _cut(lines: list[str], limit: int, mask: MaskText) -> list[str]:
    """Return at most so many lines, each of a limited length, and a last line that counts what is left out."""
    masked = mask("\n".join(lines)).split("\n")
    shown = [
        line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}… ({len(line) - MAX_LINE:,} more characters)"
        for line in (escape_unseen(line) for line in masked[:limit])
    ]
    left_out = len(masked) - limit
    return [*shown, f"  … {count_noun(left_out, 'more line')} not shown here"] if left_out > 0 else shown
