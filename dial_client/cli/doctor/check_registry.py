"""All checks, and the function that runs them concurrently, each with a timeout."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass

import anyio

from dial_client.cli.doctor import config_checks, model_checks, server_checks, storage_checks, tool_checks
from dial_client.cli.doctor.findings import Finding, Group
from dial_client.cli.doctor.subject import Subject, run_servers
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line

log = get_logger(__name__)

# Timeout in seconds of one check, without the time for starting servers.
CHECK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    """The subject of the check, shown as progress: ``programs``."""
    group: Group
    run: Callable[[Subject], Iterator[Finding] | AsyncIterator[Finding]]
    needs_servers: bool = False


CHECKS = (
    Check("files", Group.CONFIG, config_checks.check_files),
    Check("trust", Group.CONFIG, config_checks.check_trust),
    Check("entries", Group.CONFIG, config_checks.check_entries),
    Check("permissions", Group.FILES, config_checks.check_permissions),
    Check("programs", Group.SERVERS, server_checks.check_programs),
    Check("options of launchers", Group.SERVERS, server_checks.check_options),
    Check("Node.js", Group.SERVERS, server_checks.check_node),
    Check("servers", Group.SERVERS, server_checks.check_servers, needs_servers=True),
    Check("descriptions", Group.TOOLS, tool_checks.check_descriptions, needs_servers=True),
    Check("schemas", Group.TOOLS, tool_checks.check_schemas, needs_servers=True),
    Check("sizes of tools", Group.TOOLS, tool_checks.check_sizes, needs_servers=True),
    Check("approved tools", Group.TOOLS, tool_checks.check_pins, needs_servers=True),
    Check("model", Group.MODEL, model_checks.check_model),
    Check("other models", Group.MODEL, model_checks.check_other_models),
    Check("database", Group.FILES, storage_checks.check_database),
    Check("folders", Group.FILES, storage_checks.check_folders),
)

# Called with the number of completed checks, the number of all checks, and the name of the last completed check.
OnCheck = Callable[[int, int, str], None]


async def inspect(
    subject: Subject, only: Collection[Group] = tuple(Group), on_progress: OnCheck | None = None
) -> list[Finding]:
    """Run the checks concurrently, and return their findings, sorted by place and then by code.

    Args:
        subject: The configuration and the other objects to check.
        only: The groups of checks to run.
        on_progress: Called after each check.
    """
    # Nothing of a file that is not trusted is used or checked: whoever asks for any group has to know.
    checks = [check for check in CHECKS if check.group in only or check.run is config_checks.check_trust]
    findings: list[Finding] = []
    done = 0

    async def run(check: Check) -> None:
        nonlocal done
        findings.extend(await _run_bounded(check, subject))
        done += 1
        if on_progress is not None:
            on_progress(done, len(checks), check.name)

    async with anyio.create_task_group() as group:
        for check in checks:
            if not check.needs_servers:
                group.start_soon(run, check)
        if waiting := [check for check in checks if check.needs_servers]:
            async with run_servers(subject) as subject.outcome:
                for check in waiting:
                    group.start_soon(run, check)
    return sorted(
        dict.fromkeys(findings), key=lambda found: (found.path, found.line, found.column, found.code, found.text)
    )


async def _run_bounded(check: Check, subject: Subject) -> list[Finding]:
    try:
        with anyio.move_on_after(CHECK_SECONDS):
            found = check.run(subject)
            return [*found] if isinstance(found, Iterator) else [finding async for finding in found]
    except Exception as error:  # noqa: BLE001 - a failed check must not stop the other checks
        log.debug("check_failed", check=check.name, error=type(error).__name__)
        text = f"the check of {check.name} failed: {type(error).__name__}: {to_one_line(str(error), 200)}"
        return [Finding("DC901", text, "`dial-chat bug-report` collects the details for a bug report")]
    return [Finding("DC901", f"the check of {check.name} had no result after {CHECK_SECONDS:g} seconds")]
