"""Runs a command to its exit code: signals, errors in one line, and cleanup."""

from __future__ import annotations

import errno
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from dial_client.cli.options import ExitCode, Logs
from dial_client.cli.streams.error_stream import report_error
from dial_client.cli.streams.printed_streams import discard
from dial_client.messages.errors import ConfigError, ConversationNotFound, DialError, ProviderError, RequestRefused
from dial_client.runtime.logs import configure_at_first_event
from dial_client.turns.turn_handle import TurnHandle


class Interrupted(DialError):
    """The user pressed Ctrl-C, which stopped a part of the program's work."""


class Interrupts:
    """Handles Ctrl-C, SIGTERM and SIGHUP: the first cancels the running turn, the next ends the program."""

    def __init__(self) -> None:
        self.leaving = anyio.CancelScope()
        self._turn: TurnHandle | None = None
        self._scope: anyio.CancelScope | None = None
        self._leave: Callable[[int], None] | None = None
        self._is_ignored = False
        self._reload: Callable[[], None] | None = None

    def watch(self, turn: TurnHandle) -> None:
        """Set the turn that the next Ctrl-C cancels."""
        self._turn = turn

    def hand_over(self, leave: Callable[[int], None], reload: Callable[[], None]) -> None:
        """Pass the first signal to `leave`, which shuts the program down; the next signal cancels as usual.

        Each SIGHUP calls `reload`, instead of ending the program.
        """
        self._leave, self._reload = leave, reload

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Ignore Ctrl-C in this context: it is meant for a child process, such as an editor."""
        self._is_ignored = True
        try:
            yield
        finally:
            self._is_ignored = False

    @property
    def has_scope(self) -> bool:
        """Whether the next Ctrl-C cancels a `scope`."""
        return self._scope is not None

    @contextmanager
    def scope(self) -> Iterator[anyio.CancelScope]:
        """Let the next Ctrl-C cancel this context, and not the running turn."""
        with anyio.CancelScope() as scope:
            outer, self._scope = self._scope, scope
            try:
                yield scope
            finally:
                self._scope = outer

    def interrupt(self) -> None:
        """Act as on Ctrl-C."""
        if self._is_ignored:
            return
        if self._scope is not None:
            self._scope.cancel()
            return
        turn, self._turn = self._turn, None
        if turn is None or turn.has_ended:
            self.leaving.cancel()
        else:
            turn.cancel()

    async def listen(self) -> None:
        """Handle signals until cancelled. On Windows Ctrl-C is a KeyboardInterrupt instead, and ends the program."""
        if sys.platform == "win32":
            return
        # ``nohup`` starts the program so that it outlives its terminal.
        is_hangup_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP and (self._reload is not None or is_hangup_ignored):
                    if self._reload is not None:
                        self._reload()
                    continue
                leave, self._leave = self._leave, None
                if leave is not None:
                    leave(number)
                elif number == signal.SIGINT:
                    self.interrupt()
                else:
                    self.leaving.cancel()


# The signal handler of the running command; set by `run_to_exit_code`.
interrupts: Interrupts


def run_to_exit_code(begin: Callable[[], Awaitable[int | None]], *, logs: Logs) -> int:
    """Run what `begin` returns to its exit code; None is 0. An error is printed in one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a TextIOWrapper, unless replaced
    try:
        _configure_logging(logs)
        code = anyio.run(_run, begin())
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe: discard further output, including the flush at exit.
        discard(sys.stdout)
        return ExitCode.UNEXPECTED
    except Exception as error:
        # Python 3.11 wraps a KeyboardInterrupt that is raised while a class is made, when a module is loaded.
        if _discard_closed_terminal() or isinstance(error.__cause__, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            return complain_about_output(error)
        # Errors of this package are for the user: their origin is only of interest to whoever debugs the program.
        if logs == "file" or (logs == "stderr" and not isinstance(error, DialError)):
            logging.getLogger("dial_client").exception("failed")
        return complain(error)
    _discard_closed_terminal()
    return code


def _discard_closed_terminal() -> bool:
    """Return True if the terminal was closed. Its streams then discard further output, including the flush at exit."""
    if sys.platform == "win32":
        return False
    import termios

    is_closed = False
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        try:
            termios.tcgetattr(stream.fileno())
        except termios.error as error:
            if error.args[0] == errno.EIO:
                is_closed = True
                discard(stream)
        except (AttributeError, OSError, ValueError):
            pass  # there is no stream, or it has no file descriptor
    return is_closed


def complain(error: Exception) -> int:
    """Print an error in one line on standard error, and return its exit code."""
    error = _find_missing_folder(error) or error
    problem, hint, code = str(error), "", ExitCode.UNEXPECTED
    match error:
        case ConfigError() | ConversationNotFound():
            code = ExitCode.USAGE
        case Interrupted():
            code = ExitCode.INTERRUPTED
        case ProviderError() | RequestRefused():
            code = ExitCode.MODEL
        case _ if not isinstance(error, DialError):
            problem = f"unexpected error: {type(error).__name__}: {error}"
            hint = " (dial-chat bug-report collects what a report needs)"
    report_error(f"{problem}{hint}")
    return code


# The errors of a standard output behind which there is no space, or which is closed.
_UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EFBIG, errno.EDQUOT)


def complain_about_output(error: OSError) -> int:
    """Print on standard error that standard output cannot be written, and return the exit code."""
    with suppress(OSError):
        report_error(f"the output cannot be written: {error.strerror}")
    discard(sys.stdout)  # what is left in its buffer; else Python would report it at exit
    return ExitCode.UNEXPECTED


def _find_missing_folder(error: Exception) -> ConfigError | None:
    """Return a ConfigError if the error means that the home or the working folder does not exist; else None."""
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return ConfigError("this user has no home folder", hint="set HOME to a folder")
    if not isinstance(error, FileNotFoundError) or error.filename is not None:
        return None
    try:
        Path.cwd()
    except FileNotFoundError:
        return ConfigError("the current folder does not exist any more", hint="change to another folder")
    return None


async def _run(command: Awaitable[int | None]) -> int:
    global interrupts  # noqa: PLW0603 - the signals of a process are global
    interrupts = Interrupts()
    code: int = ExitCode.INTERRUPTED
    failed: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(interrupts.listen)
        with interrupts.leaving:
            try:
                code = await command or ExitCode.ANSWERED
            except Exception as error:  # noqa: BLE001 - raised again outside of the task group, which would wrap it
                failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return code


def _configure_logging(logs: Logs) -> None:
    if logs == "none":
        return
    stream = sys.stderr
    if logs == "file" and sys.stderr.isatty():
        import platformdirs

        folder = Path(platformdirs.user_state_dir("dial-client"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "debug.log"
        path.touch(mode=0o600)  # only the user can read it; each run appends to it
        stream = path.open("a", encoding="utf-8", errors="replace", buffering=1)
        print(f"dial-chat: the log goes to {path}", file=sys.stderr, flush=True)
    logging.basicConfig(stream=stream, level=logging.WARNING, format="%(message)s")
    logging.getLogger("dial_client").setLevel(logging.WARNING if logs == "warnings" else logging.DEBUG)
    has_colors = stream.isatty()  # asked now: a stream that is closed at the first event must not fail what logs it

    def configure() -> None:
        import structlog

        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,  # the id of the request that a service answers
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
                structlog.dev.ConsoleRenderer(colors=has_colors),
            ]
        )

    configure_at_first_event(configure)


def log_requests() -> None:
    """Let a service log each request, also when only warnings are logged."""
    if logging.getLogger("dial_client").level > logging.INFO:
        logging.getLogger("dial_client.serve.request_log").setLevel(logging.INFO)


def write_log_as_json() -> None:
    """Let each line of the log be a JSON object, with the events of other libraries."""
    import structlog

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str),
        ],
        foreign_pre_chain=shared,
    )
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)
    # Now, not at the first event: that may be one of another library.
    structlog.configure(processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter])
    configure_at_first_event(None)
