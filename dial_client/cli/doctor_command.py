"""The commands ``doctor`` and ``bug-report``: checks of the installation, and a report for maintainers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.typer_apps import SETTINGS, command_app, run_command

Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="GROUP", help="Only these checks: config, servers, tools, model, files. Repeatable."
    ),
]


@command_app.command(context_settings=SETTINGS)
def doctor(
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    store: o.Store = None,
    only: Only = None,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the fixes of findings that have one.")] = False,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """Check the configuration, the servers, their tools and the model. The exit code is 1 if there is an error."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.doctor_report import diagnose, read_groups

        groups = read_groups(only)
        return lambda: diagnose(options, groups, with_fixes=fix, as_json=as_json)

    run_command(choose, options)


@command_app.command(name="bug-report", context_settings=SETTINGS)
def bug_report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)] = Path(
        "dial-chat-report.md"
    ),
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Write the file without asking.")] = False,
    verbose: o.Verbose = False,
) -> None:
    """Write versions, the findings of doctor, and logs of the servers into one file. The report is printed first."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        from dial_client.cli.bug_report import write_report

        return lambda: write_report(options, file, is_confirmed=yes)

    run_command(choose, options)
