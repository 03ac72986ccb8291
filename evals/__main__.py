"""Measures how well a model answers users through this host: ``python -m evals``.

Each case is a conversation with a `DialClient` and real servers: ordinary questions with tools, calls, chains of calls,
calls that fail, calls with missing arguments, and questions about the present without any tool. The run prints numbers
without a verdict; with ``--json`` it also stores the conversations. The embedded model runs at temperature 0; another
model uses the temperature of its profile. With ``--calls`` only calls are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

from dial_client.messages.model import ToolFormat
from dial_client.providers import open_provider
from dial_client.settings import configuration
from evals import distractors
from evals.report import rows, table
from evals.run import Outcome, SharedProvider, run_offer, run_offers
from evals.servers import sample_repository, server_entries
from evals.suite import KINDS, load_cases, quick
from evals.suite_report import suite_table
from evals.suite_run import Judged, run_cases
from evals.tasks import SETS, Task, load, offers

FORMATS = [format_.value for format_ in ToolFormat]


async def evaluate_suite(options: argparse.Namespace, tell: Callable[[Judged], None]) -> None:
    """Run the suite, and call `tell` with the result of each case."""
    models = configuration.load_config(options.config).models if options.config else {}
    model = SharedProvider(open_provider(options.model, models=models, base_url=options.base_url))
    try:
        await model.prepare()
        with sample_repository() as repository:
            cases = load_cases(options.set, repository)
            if shutil.which("git") is None:
                cases = tuple(case for case in cases if not any(tool.startswith("git_") for tool in case.tools))
            cases = quick(cases) if options.quick else cases
            cases = tuple(case for case in cases if options.only in case.id and case.kind in options.kinds)[
                : options.limit
            ]
            for size in options.tools or ([3] if options.quick else [3, 8]):
                await run_cases(cases, size, model, server_entries(repository), tell, options.format or "native")
    finally:
        await model.close()


async def evaluate(options: argparse.Namespace, tell: Callable[[Outcome], None]) -> None:
    """Run the tasks that the command line selects, and call `tell` with each outcome."""
    models = configuration.load_config(options.config).models if options.config else {}
    model = SharedProvider(open_provider(options.model, models=models, base_url=options.base_url))
    spare = [tool.name for tool in await distractors.server.list_tools()]
    try:
        await model.prepare()
        with sample_repository() as repository:
            tasks, servers = chosen(options, load(options.set, repository)), server_entries(repository)
            for tool_format in [options.format] if options.format in FORMATS else FORMATS:
                for size in options.tools or [1, 3, 8, 20]:
                    run = partial(run_offer, model=model, tool_format=tool_format, servers=servers, tell=tell)
                    await run_offers(list(offers(tasks, size, spare)), options.jobs, run)
    finally:
        await model.close()


def chosen(options: argparse.Namespace, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Return the tasks to run; without Git, tasks with Git tools are omitted."""
    has_git = shutil.which("git") is not None
    runnable = [task for task in tasks if has_git or not any(tool.startswith("git_") for tool in task.tools)]
    return tuple(task for task in runnable if options.only in task.id)[: options.limit]


def _tell(outcomes: list[Outcome], path: Path | None, outcome: Outcome) -> None:
    outcomes.append(outcome)
    rights = (outcome.well_formed, outcome.right_tool, outcome.right_call, outcome.right_answer)
    marks = "".join(mark if right else "-" for mark, right in zip("wtca", rights, strict=True))
    print(f"{outcome.format:<6} {outcome.tools:>2} {marks} {outcome.seconds:6.1f} s  {outcome.task}", file=sys.stderr)
    if path is not None:
        report = {"rows": rows(outcomes), "outcomes": [outcome.to_dict() for outcome in outcomes]}
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")


def _tell_judged(judged: list[Judged], path: Path | None, case: Judged) -> None:
    judged.append(case)
    mark = "ok" if case.good else ",".join(case.faults)
    print(f"{case.tools:>2} {case.kind:<9} {case.seconds:6.1f} s  {case.case:<24} {mark}", file=sys.stderr, flush=True)
    if path is not None:
        path.write_text(json.dumps([case.to_dict() for case in judged], indent=1, ensure_ascii=False), encoding="utf-8")


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("--model", default="local", help="the model, as for dial-chat; default: local")
    parser.add_argument("--base-url", help="the model's endpoint")
    parser.add_argument("--config", type=Path, metavar="FILE", help='a servers.json with "models" to use')
    parser.add_argument("--format", choices=[*FORMATS, "all"], help="tool format; default: native, with --calls all")
    parser.add_argument(
        "--tools", type=_sizes, metavar="N,N", help="numbers of offered tools; default: 3,8, with --calls 1,3,8,20"
    )
    parser.add_argument("--set", default="reported", choices=SETS, help="the set of tasks; default: reported")
    parser.add_argument(
        "--kinds", type=lambda text: text.split(","), default=KINDS, metavar="K,K", help=", ".join(KINDS)
    )
    parser.add_argument("--quick", action="store_true", help="40 cases with 3 tools")
    parser.add_argument("--calls", action="store_true", help="measure only whether calls are right, in any format")
    parser.add_argument("--only", default="", metavar="TEXT", help="only tasks with this text in their names")
    parser.add_argument("--limit", type=int, metavar="N", help="maximum number of tasks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results and conversations to a file")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="conversations at a time")
    return parser.parse_args(arguments)


def main() -> None:
    """Read the command line, measure, print."""
    options = parsed()
    if not options.calls:
        judged: list[Judged] = []
        started_at = time.monotonic()
        anyio.run(evaluate_suite, options, partial(_tell_judged, judged, options.json))
        print(suite_table(judged))
        used = os.times()
        processor = (
            f", {used.children_user + used.children_system:.0f} s of processor time for the model and the servers"
            if os.name == "posix"
            else ""
        )
        print(f"\n{len(judged)} cases in {time.monotonic() - started_at:.0f} s{processor}")
        return
    outcomes: list[Outcome] = []
    anyio.run(evaluate, options, partial(_tell, outcomes, options.json))
    print(table(rows(outcomes)))


if __name__ == "__main__":
    main()
