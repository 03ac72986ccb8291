"""Checks of the servers' start: failures, slow starts, and violations of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from dial_client.cli.doctor.findings import Finding
from dial_client.cli.doctor.server_run import ServerOutcome
from dial_client.cli.doctor.subject import Subject
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.package_downloads import describe_download, find_package, find_program_name
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings

SLOW_SECONDS = 5.0
"""Seconds after which a start counts as slow."""
_PROGRAM_PROBLEMS = ("was not found: is it installed", "there is no file", "may not be executed")
_STDOUT_NOTE = "lines to its standard output"
_FASTER = {
    "npx": "npm install --global {package}",
    "uvx": "uv tool install {package}",
    "uv": "uv tool install {package}",
}


async def check_servers(subject: Subject) -> AsyncIterator[Finding]:
    """Yield the servers that fail, start slowly, offer nothing, or behave unusually."""
    outcome = await subject.run.wait_for_outcome()
    for name, status in outcome.statuses.items():
        for finding in (*_check_state(subject, outcome, status), *_check_notes(subject, name, status)):
            yield finding


def _check_state(subject: Subject, outcome: ServerOutcome, status: ServerStatus) -> Iterator[Finding]:
    name, place = status.name, subject.find_place(status.name)
    settings = subject.servers[name]
    if status.state is ServerState.STARTING:
        download = describe_download(settings, status.stderr)
        why = download or (f"it last wrote: {status.stderr[-1]}" if status.stderr else "it has written nothing")
        text = f"server {name!r} is not ready after {subject.target.server_seconds:g} seconds; {to_one_line(why, 200)}"
        yield Finding("DC302", text, _suggest_faster_start(settings) or "a turn does not wait longer for it", *place)
    elif status.state in (ServerState.FAILED, ServerState.RESTARTING):
        if any(problem in (status.error or "") for problem in _PROGRAM_PROBLEMS):
            return  # `program_checks` reports this, with its place
        code = _find_failure_code(status.error or "", has_url=settings.url is not None)
        hint = f"`dial-chat servers login {name}`" if code == "DC306" else ""
        yield Finding(code, f"server {name!r} does not start: {status.error}", hint, *place)
    elif outcome.seconds.get(name, 0.0) > SLOW_SECONDS and (hint := _suggest_faster_start(settings)):
        yield Finding("DC303", f"server {name!r} needs {outcome.seconds[name]:.0f} seconds to start", hint, *place)
    elif status.state is ServerState.READY and not status.tools and not status.notes and not status.instructions:
        text = f"server {name!r} offers no tools"
        yield Finding("DC307", text, "only you can use its resources and prompts, if it has any", *place)


def _suggest_faster_start(settings: ServerSettings) -> str:
    """Return how a server that a launcher downloads at each start would start faster; empty for other servers."""
    command = _FASTER.get(find_program_name(settings), "")
    package = find_package(settings)
    return (
        f"run `{command.format(package=package)}`, and use the installed program as command"
        if command and package
        else ""
    )


def _find_failure_code(error: str, *, has_url: bool) -> str:
    folded = error.lower()
    if not has_url:
        return "DC301"
    if "certificate" in folded or "ssl" in folded:
        return "DC508"
    if "401" in folded or "login" in folded or "log in" in folded:
        return "DC306"
    return "DC305"


def _check_notes(subject: Subject, name: str, status: ServerStatus) -> Iterator[Finding]:
    for note in status.notes:
        code = "DC304" if _STDOUT_NOTE in note else "DC405" if " tool" in note else "DC308"
        hint = "a server must print to its standard error instead" if code == "DC304" else ""
        yield Finding(code, f"server {name!r}: {to_one_line(note, 300)}", hint, *subject.find_place(name))
