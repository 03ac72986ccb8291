"""Runs the collected tests in forks of the test runner: ``pytest --forks NUMBER``.

The tests are collected, and packages imported, once for all workers; each worker of pytest-xdist does both for itself,
which takes ten seconds of a processor. A worker takes one file after another, as with ``--dist loadfile``, so that
fixtures of a module are made once. Reports go through pipes to the test runner, which prints them as if the tests ran
there. The option works on Linux, which alone forks after imports without harm.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, cast

import pytest

from tests.support.fork_server import CAN_FORK, SHARED, import_packages

NUMBER_SIZE = 4
"""Bytes of the number of a file in the pipe from which the workers take files."""


class ReportSender:
    """Stands for the terminal's reporter in a worker: sends each report to the test runner."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._tw = config.get_terminal_writer()  # where pytest-timeout writes the stacks of a test that hangs

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Send the name of a test that starts: if it ends the worker, the test runner reports that."""
        self._connection.send((nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report of a test's setup, call or teardown."""
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def run_forked(session: pytest.Session, number: int) -> bool:
    """Run the tests of the session in this number of workers; what a worker did not run is an error of the session."""
    if not CAN_FORK:
        raise pytest.UsageError("--forks works on Linux alone: use --numprocesses")
    files = [list(items) for _, items in itertools.groupby(session.items, lambda item: item.path)]
    shown = [index for index, items in enumerate(files) if any(map(_needs_browser, items))]
    queues = [_fill_queue(shown), _fill_queue(sorted({*range(len(files))} - {*shown}))]
    if SHARED in os.environ:  # tests of more than units
        import_packages("anthropic", "dbos")
        gc.freeze()
    sys.stdout.flush()
    sys.stderr.flush()
    workers: dict[Connection, int] = {}
    for worker in range(number):
        receiver, sender = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            # Half of the workers begin with the files that need a browser, and take them before the other half is done:
            # to start a browser in each worker takes three seconds of a processor.
            _work(session, files, queues if worker % 2 == 0 else queues[::-1], sender)
        sender.close()
        workers[receiver] = pid
    for queue in queues:
        os.close(queue)
    is_complete = False
    try:
        is_complete = _report(session, [*workers]) == len(session.items)
    finally:
        for pid in workers.values():
            if not is_complete:
                os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
    if not is_complete:
        session.shouldfail = session.shouldfail or "a worker ended before all its tests"
        raise session.Failed(session.shouldfail)
    return True


def _needs_browser(item: pytest.Item) -> bool:
    return "running_chromium" in getattr(item, "fixturenames", ())


def _fill_queue(indexes: Sequence[int]) -> int:
    """Return the reading end of a pipe with the numbers of files."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(index.to_bytes(NUMBER_SIZE, "big") for index in indexes))
    os.close(writing)
    return reading


def _report(session: pytest.Session, receivers: list[Connection]) -> int:
    """Report what the workers send until all have ended, or too many tests have failed.

    Returns the number of tests that have ended.
    """
    hook, ended = session.config.hook, 0
    running: dict[Connection, tuple[str, Any]] = {}
    while receivers and not session.shouldfail:
        for receiver in cast("list[Connection]", wait(receivers)):
            try:
                data = receiver.recv()
            except EOFError:
                receivers.remove(receiver)
                if receiver in running:
                    nodeid, location = running.pop(receiver)
                    report = pytest.TestReport(nodeid, location, {}, "failed", "the test ended its worker", "call")
                    hook.pytest_runtest_logreport(report=report)
                continue
            if isinstance(data, tuple):
                running[receiver] = data
                hook.pytest_runtest_logstart(nodeid=data[0], location=data[1])
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                nodeid, location = running.pop(receiver)
                hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
                ended += 1
    return ended


def _work(
    session: pytest.Session, files: Sequence[Sequence[pytest.Item]], queues: Sequence[int], sender: Connection
) -> NoReturn:
    """Run the tests of one file after the other in this process, and end this process."""
    config, plugins = session.config, session.config.pluginmanager
    status = 1
    try:
        # The temporary files of the runner's capture, and the place in them, would be common to all workers. They stay
        # open: packages have the streams that they saw at their import as default values.
        capture: Any = plugins.getplugin("capturemanager")
        streams = [each.tmpfile for each in (capture._global_capturing.out, capture._global_capturing.err)]
        for stream in streams:
            stream.close = _leave_open
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        reporter = ReportSender(config, sender)
        plugins.unregister(name="terminalreporter")
        plugins.register(reporter, "terminalreporter")
        items = itertools.chain(_take(files, queues), [None])
        for item, following in itertools.pairwise(items):
            assert item is not None
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        status = 0
    except BaseException:  # noqa: BLE001 (nothing above may go on in the worker)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not `finish`: a thread of a library that waits for a database which is gone would be waited for.
        os._exit(status)


def _leave_open() -> None:
    """Stand for the method ``close`` of a stream."""


def _take(files: Sequence[Sequence[pytest.Item]], queues: Sequence[int]) -> Iterator[pytest.Item]:
    """Yield the tests of the files that no worker has taken, from one queue after the other."""
    for queue in queues:
        while number := os.read(queue, NUMBER_SIZE):
            yield from files[int.from_bytes(number, "big")]
