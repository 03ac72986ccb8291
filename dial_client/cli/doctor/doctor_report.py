"""The output of ``dial-chat doctor``, and the fixes it applies."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from anyio import to_thread

from dial_client.cli.doctor.check_registry import inspect
from dial_client.cli.doctor.findings import Finding, Fix, Group, Level
from dial_client.cli.doctor.subject import Subject
from dial_client.cli.doctor.tool_checks import find_window, format_size_lines
from dial_client.cli.markdown.themes import StyleName
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.streams.tty import can_move_cursor
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.cli.trust.configuration_files import find_files, find_profile_name
from dial_client.cli.trust.trust_review import describe_changes
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import suggest_name
from dial_client.settings.config_editor import read_text
from dial_client.settings.configuration import read_config_file

MAX_LINE = 500
# The exit code if a finding is an error.
FAILED = 1
# The kind of `Theme` for each level.
_STYLES: Mapping[Level, StyleName] = {Level.ERROR: "error", Level.WARNING: "strong", Level.INFO: "faint"}
# What the checks of a group look at, as in "Nothing is wrong with …".
_CHECKED = {
    Group.CONFIG: "the configuration",
    Group.SERVERS: "the servers",
    Group.TOOLS: "their tools",
    Group.MODEL: "the model",
    Group.FILES: "the stored files",
}


def read_groups(names: Sequence[str] | None) -> tuple[Group, ...]:
    """Return the groups of checks that ``--only`` names; all groups if it names none.

    Raises:
        ConfigError: There is no such group.
    """
    for name in names or ():
        if name not in tuple(Group):
            raise ConfigError(f"there is no group of checks {name!r}", suggest_name(name, Group))
    return tuple(Group(name) for name in names) if names else tuple(Group)


async def diagnose(options: Options, groups: Collection[Group], *, with_fixes: bool, as_json: bool) -> int:
    """Run the checks, print their findings, and return 1 if one of them is an error, else 0."""
    findings, sizes = await find_all(options, groups)
    if with_fixes and (fixes := [finding.fix for finding in findings if finding.fix is not None]):
        await to_thread.run_sync(apply_fixes, fixes)
        findings, sizes = await find_all(options, groups)
    if as_json:
        print(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print_lines(_format_lines(finding), styles={f"{finding.level} {finding.code}": _STYLES[finding.level]})
        if sizes:
            print_lines(sizes)
        print_lines([_format_summary(findings, groups, with_fixes=with_fixes)], styles={"Nothing is wrong": "success"})
    return FAILED if any(finding.level is Level.ERROR for finding in findings) else ExitCode.ANSWERED


async def find_all(options: Options, groups: Collection[Group] = tuple(Group)) -> tuple[list[Finding], list[str]]:
    """Run the checks, with progress on standard error in a terminal.

    Returns:
        The findings; and the lines about the sizes of tools, if the group of tool checks was run.
    """
    try:
        subject = build_subject(options)
    except ConfigError as error:
        return [Finding("DC105", error.problem, error.hint, error.path)], []
    is_terminal = sys.stderr.isatty() and can_move_cursor()

    def show_progress(done: int, total: int, name: str) -> None:
        if is_terminal:
            print(f"\r\x1b[K{done} of {total} checks: {name}", end="", file=sys.stderr, flush=True)

    try:
        findings = await inspect(subject, groups, show_progress)
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if Group.TOOLS not in groups:
        return findings, []
    return findings, format_size_lines(subject.outcome, await find_window(subject), subject.limits)


def build_subject(options: Options) -> Subject:
    """Return the files, the model and the folders to check.

    Raises:
        ConfigError: A file cannot be read.
    """
    import platformdirs

    in_use = find_files(options.config, trust=options.trust)
    kinds = (platformdirs.user_data_dir, platformdirs.user_cache_dir, platformdirs.user_state_dir)
    folders = tuple(Path(folder("dial-client")) for folder in kinds)
    store = options.store or ""
    own = Path(platformdirs.user_data_dir("dial-client", appauthor=False), "conversations.db")
    return Subject(
        tuple(in_use.files),
        () if in_use.untrusted is None else (read_config_file(in_use.untrusted),),
        options.model,
        options.base_url,
        find_profile_name(options),
        store if "://" in store else Path(store or own),
        folders,
        folders[-1] / "approved-tools",
        left_out=describe_changes(in_use.left_out),
    )


def apply_fixes(fixes: Sequence[Fix]) -> None:
    """Apply fixes: first all edits of each file, with one backup per file, then changes of permissions.

    If a fix fails, the error is printed on standard error, and the other fixes are applied.
    """
    for path in dict.fromkeys(fix.path for fix in fixes if fix.edit is not None):
        _edit_file(Path(path), [fix for fix in fixes if fix.path == path and fix.edit is not None])
    for fix in fixes:
        if fix.mode is not None:
            try:
                Path(fix.path).chmod(fix.mode)
            except OSError as error:
                warn(f"not changed: {to_one_line(fix.path, 300)}: {describe_system_error(error)}")
            else:
                print(f"{fix.description} {to_one_line(fix.path, 300)}")


def _edit_file(path: Path, fixes: Sequence[Fix]) -> None:
    from dial_client.cli.trust.changed_config import change_config

    def edit(text: str) -> str:
        for fix in fixes:
            text = fix.edit(text) if fix.edit is not None else text
        return text

    try:
        change_config(read_text(path), edit, "; ".join(fix.description for fix in fixes))
    except (ConfigError, KeyError) as error:
        warn(f"not changed: {error}")


def _format_lines(finding: Finding) -> list[str]:
    place = f"{to_one_line(finding.place, 300)}: " if finding.place else ""
    lines = [f"{place}{finding.level} {finding.code}: {to_one_line(finding.text, MAX_LINE)}"]
    if finding.hint:
        lines.append(f"    {to_one_line(finding.hint, MAX_LINE)}")
    if finding.fix is not None:
        lines.append(f"    --fix: {to_one_line(finding.fix.description, MAX_LINE)}")
    return lines


def _format_summary(findings: Sequence[Finding], groups: Collection[Group], *, with_fixes: bool) -> str:
    checked = [_CHECKED[group] for group in Group if group in groups]
    if not findings:
        return f"Nothing is wrong with {', '.join(checked[:-1])}{' and ' if checked[1:] else ''}{checked[-1]}."
    counts = [(sum(finding.level is level for finding in findings), level.value) for level in Level]
    parts = [f"{count} {name}{'s' if count > 1 and name != 'info' else ''}" for count, name in counts if count]
    fixable = sum(finding.fix is not None for finding in findings)
    more = f"; --fix repairs {fixable} of them" if fixable and not with_fixes else ""
    return f"{', '.join(parts)}{more}. `dial-chat help CODE` explains a finding."
