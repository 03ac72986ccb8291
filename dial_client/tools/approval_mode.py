"""The modes of approval: what runs without a question, and what does not run, apart from the rules.

A mode never weakens a rule: a deny, a rule's ``ask`` and untrusted content in the conversation are decided before the
mode is looked at, and a tool that has changed since its approval is asked about in every mode.
"""

from __future__ import annotations

from enum import StrEnum

from dial_client.tools.policy import ProposedCall, Verdict


class ApprovalMode(StrEnum):
    """What happens to calls that no rule and no grant decides."""

    ASK = "ask"
    """The approver is asked."""
    READ = "read"
    """Calls that only read (`is_read_only`) run; the approver is asked about the others."""
    PLAN = "plan"
    """Calls that only read run; all others are denied, even if a rule or a grant allows them, and the model is told to
    answer with a plan. The approver is asked about a tool that only its server calls read-only."""
    AUTO = "auto"
    """The approver is not asked."""


# The source of a decision by a mode in the audit log is this, followed by the mode.
DECIDED_BY = "mode "
# The reason that the model reads for a denial in the mode `PLAN`.
PLAN_FIRST = (
    "the user wants a plan first, and this tool is not known to be read-only. Do not try other tools that change "
    "something: answer with the plan, and the user decides"
)
# The instruction of the model in the mode `PLAN`.
PLAN_INSTRUCTION = (
    "The user wants a plan, and nothing is to be changed yet. Only read-only tools run now: use them to find out what "
    "the plan needs. Then answer with the plan: the steps in their order, what each step changes, and what is "
    "uncertain. Do not say that a step is done."
)


def is_read_only(call: ProposedCall, verdict: Verdict | None) -> bool:
    """Return whether a call only reads: a trusted server says so, or a rule of the user that allows the call.

    The host's own tools only read.
    """
    if verdict is not None and verdict.is_read_only:
        return True
    # As for rules with annotations: the hints of a server that the user has not marked as trusted are not believed.
    is_believed = not call.spec.server or (call.settings is not None and call.settings.trusted)
    return is_believed and call.spec.read_only


def may_run(mode: ApprovalMode, call: ProposedCall, verdict: Verdict | None) -> bool:
    """Return whether a mode lets a call run without a question, if nothing else decides."""
    if mode is ApprovalMode.AUTO:
        return True
    return mode is not ApprovalMode.ASK and is_read_only(call, verdict)


def must_wait_for_plan(mode: ApprovalMode, call: ProposedCall, verdict: Verdict | None) -> bool:
    """Return whether a mode denies a call because the user wants a plan first."""
    # A tool that its server calls read-only, without being trusted, is left to the rules and the approver: the person
    # can see what it does, and most servers are not marked as trusted.
    return mode is ApprovalMode.PLAN and not call.spec.read_only and not is_read_only(call, verdict)
