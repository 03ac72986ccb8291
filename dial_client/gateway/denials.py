"""What the caller reads about a call that was not allowed: the rule, and what to run so that the call is allowed.

The caller is a model in another program, whose user does not see this one. The text therefore names a command that
works while the gateway runs: grants and approved definitions are read for each call.
"""

from __future__ import annotations

import shlex

from dial_client.messages.message import NOT_ALLOWED, ToolCallRequest, ToolSpec
from dial_client.tools.approval import NO_APPROVER, Approval, ApprovalContext, Decision

# Maximum lines of the difference between two definitions that a denial shows.
MAX_DIFF_LINES = 60
# The source of the denial of a tool whose definition is not the approved one.
CHANGED = "changed definition"


def build_grant_command(spec: ToolSpec) -> str:
    """Return the command that lets a tool run, with the definition that it has now."""
    return f"dial-chat grants --allow {shlex.quote(f'{spec.server}/{spec.tool}')}"


def deny_unasked(spec: ToolSpec, context: ApprovalContext) -> Approval:
    """Return the denial of a call that nobody can be asked about."""
    name, command = f"{context.server}/{spec.tool}", build_grant_command(spec)
    if context.change:
        lines = context.change.splitlines()
        left_out = len(lines) - MAX_DIFF_LINES
        more = f"\n… {left_out} more lines" if left_out > 0 else ""
        diff = "\n".join(lines[:MAX_DIFF_LINES]) + more
        reason = (
            f"the definition of {name} is not the one that was approved, so the tool is withheld. "
            f"To approve the new definition, the user runs: {command}\nThe difference:\n{diff}"
        )
        return Approval(Decision.DENY, reason, CHANGED)
    if context.why_asked:
        # A grant of the tool would not help: the question is about this call.
        reason = f"{context.why_asked}; the user has to approve this call, and this client cannot ask for approval"
        return Approval(Decision.DENY, reason, NO_APPROVER)
    reason = (
        f"no rule allows {name}, and this client cannot ask for approval. To allow it, the user runs: {command}\n"
        f"Or the gateway is started with: --allow {shlex.quote(name)}"
    )
    return Approval(Decision.DENY, reason, NO_APPROVER)


async def deny(_: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
    """Deny a call, as the approver of clients that cannot ask their user."""
    return deny_unasked(spec, context)


def explain_denial(spec: ToolSpec, approval: Approval) -> str:
    """Return the text of a denied call, which names the rule if a rule denied it."""
    reason = f": {approval.reason}" if approval.reason else ""
    if approval.decided_by in ("", NO_APPROVER, CHANGED):
        return f"{NOT_ALLOWED}{reason}"
    rule = f"{spec.server}/{spec.tool} is denied by {approval.decided_by}"
    return f"{NOT_ALLOWED}{reason} ({rule}; `dial-chat policy` lists the rules)"
