"""What the caller reads about a call that was not allowed: the rule, and what to run so that the call is allowed.

The caller is a model in another program, whose user does not see this one. The text therefore names a command that
works while the gateway runs: grants and approved definitions are read for each call.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from dial_client.messages.message import NOT_ALLOWED, ToolCallRequest, ToolSpec
from dial_client.tools.approval import NO_APPROVER, THE_USER, Approval, ApprovalContext, Decision

# Maximum lines of the difference between two definitions that a denial shows.
MAX_DIFF_LINES = 60
# The source of the denial of a tool whose definition is not the approved one.
CHANGED = "changed definition"
# The source of a denial because the user was asked, and gave no answer that counts.
NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True)
class Denials:
    """Writes denials, with the command that the user of this gateway has to run."""

    command: str = "dial-chat grants"
    """The command that changes grants, with the options that name the configuration of this gateway."""
    folder: str = ""
    """The folder to run it in; empty if any folder will do. The configuration may be found by it, and a program without
    a folder of its own runs in it: there, and not elsewhere, a relative command is the program that is granted."""

    def build_command(self, spec: ToolSpec) -> str:
        """Return the command that lets a tool run, with the definition that it has now."""
        command = f"{self.command} --allow {shlex.quote(f'{spec.server}/{spec.tool}')}"
        return f"cd {shlex.quote(self.folder)} && {command}" if self.folder else command

    def deny_unasked(self, spec: ToolSpec, context: ApprovalContext) -> Approval:
        """Return the denial of a call that nobody can be asked about."""
        name, command = f"{context.server}/{spec.tool}", self.build_command(spec)
        if context.change:
            return Approval(Decision.DENY, self.describe_change(spec, context.change), CHANGED)
        if context.why_asked:
            # A grant of the tool would not help: the question is about this call.
            reason = f"{context.why_asked}. The user has to approve this call, and cannot be asked through this client"
            return Approval(Decision.DENY, reason, NO_APPROVER)
        reason = (
            f"no rule allows {name}, and the user cannot be asked through this client. "
            f"To allow the tool, the user runs: {command}"
        )
        return Approval(Decision.DENY, reason, NO_APPROVER)

    def describe_change(self, spec: ToolSpec, change: str) -> str:
        """Return why a tool is withheld, with the difference between the approved and the current definition."""
        return (
            f"the definition of {spec.server}/{spec.tool} is not the one that was approved, so the tool is withheld. "
            f"To approve the new definition, the user runs: {self.build_command(spec)}\n"
            f"The difference:\n{_cut(change)}"
        )

    async def deny(self, _: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        """Deny a call, as the approver of clients that cannot ask their user."""
        return self.deny_unasked(spec, context)


def explain_denial(spec: ToolSpec, approval: Approval) -> str:
    """Return the text of a denied call, which names the rule if a rule denied it."""
    reason = f": {approval.reason}" if approval.reason else ""
    if approval.decided_by in ("", NO_APPROVER, CHANGED, THE_USER, NO_ANSWER):
        return f"{NOT_ALLOWED}{reason}"
    rule = f"{spec.server}/{spec.tool} is denied by {approval.decided_by}"
    return f"{NOT_ALLOWED}{reason} ({rule}; `dial-chat policy` lists the rules)"


def _cut(difference: str) -> str:
    lines = difference.splitlines()
    if len(lines) <= MAX_DIFF_LINES:
        return difference
    return "\n".join((*lines[:MAX_DIFF_LINES], f"… {len(lines) - MAX_DIFF_LINES} more lines"))
