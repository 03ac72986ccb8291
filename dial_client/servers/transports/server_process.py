"""A server's process (POSIX): started without the SDK, connected by pipes, and ended with all its children.

It uses `subprocess.Popen` rather than `anyio.open_process`: the process exists when the call returns, on both event
loops, and no event loop reaps it. Therefore its id is not reused before its whole process group has been signalled.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from contextlib import suppress
from typing import IO

import anyio

from dial_client.messages.errors import ServerStartError
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.transports.environment import build_environment, find_program
from dial_client.servers.transports.process_guard import END_SECONDS, guard
from dial_client.servers.transports.stderr_tail import StderrTail
from dial_client.settings.configuration import ServerSettings

GRACE = 2.0
"""Seconds to exit after standard input was closed, and again after SIGTERM (order of the MCP specification)."""
ORPHANS_GRACE = 1.0
"""Seconds for the server's orphaned children to exit after SIGTERM."""
CHUNK = 65_536
"""Maximum bytes of one read: the capacity of a pipe."""
_POLL = 0.01


class ServerProcess:
    """A process that leads its own process group. The constructor starts it.

    Args:
        settings: The server's settings.
        mask: Masks secrets on standard error; None for a mask of the secrets in the settings.

    Raises:
        ServerStartError: The command or folder does not exist, or the command cannot be executed.
    """

    def __init__(self, settings: ServerSettings, mask: SecretMask | None = None) -> None:
        self.stderr = StderrTail(mask or SecretMask.from_settings(settings))
        self._popen = _start(settings)
        self._exit_code: int | None = None
        self._stdin, self._stdout, self._stderr = (_to_nonblocking_descriptor(pipe) for pipe in _get_pipes(self._popen))
        self._stdin_open = True
        self._creator_pid = os.getpid()
        self._stopping = anyio.Lock()
        _running.add(self)
        guard.watch(self.pid)

    @property
    def pid(self) -> int:
        """The id of the process and of its process group."""
        return self._popen.pid

    async def read(self) -> bytes:
        """Return the next bytes of standard output, at most `CHUNK`; empty at the end.

        Raises:
            anyio.ClosedResourceError: `wake_reader` was called meanwhile.
        """
        return await _read(self._stdout)

    def read_arrived(self) -> bytes:
        """Return the bytes of standard output that have arrived, at most `CHUNK`; empty if there are none."""
        try:
            return os.read(self._stdout, CHUNK)
        except OSError:
            return b""

    def wake_reader(self) -> None:
        """End a `read` that waits."""
        anyio.notify_closing(self._stdout)

    async def read_stderr(self) -> None:
        """Read standard error into `stderr` until its end."""
        while chunk := await _read(self._stderr):
            self.stderr.feed(chunk)

    async def write(self, data: bytes) -> None:
        """Write to standard input; wait while the process does not read.

        Raises:
            OSError: Standard input is closed.
        """
        rest = memoryview(data)
        while rest and self._stdin_open:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin)
        if rest:
            raise BrokenPipeError("standard input is closed")

    def find_exit_code(self) -> int | None:
        """Return the exit code, or minus the number of the signal that ended the process; None while it runs.

        The process is not reaped, so that its id is not reused before `stop` has finished.
        """
        if self._exit_code is None and self._popen.returncode is None:
            self._exit_code = _peek(self._popen)
        return self._exit_code if self._popen.returncode is None else self._popen.returncode

    async def wait(self) -> None:
        """Wait for the exit of the process. Its pipes may stay open longer, if a child process has them open."""
        try:
            watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a sandbox
            while self.find_exit_code() is None:  # noqa: ASYNC110 (there is no notification)
                await anyio.sleep(_POLL)
            return
        try:
            await anyio.wait_readable(watch)
        finally:
            os.close(watch)

    async def wait_exited(self, within: float) -> bool:
        """Wait for the exit, at most `within` seconds; return True if the process has exited."""
        with anyio.move_on_after(within):
            await self.wait()
        return self.find_exit_code() is not None

    async def stop(self) -> None:
        """End the process and its group: close standard input, wait, SIGTERM, wait, SIGKILL. Takes at most 8 seconds.

        Shielded from cancellation; may be called twice.
        """
        with anyio.CancelScope(shield=True):
            async with self._stopping:
                if self not in _running:
                    return
                self._close_stdin()
                if not await self.wait_exited(GRACE):
                    self._send_signal(signal.SIGTERM)
                    if not await self.wait_exited(GRACE):
                        self._send_signal(signal.SIGKILL)
                        await self.wait_exited(GRACE)
                if self.find_exit_code() is not None:  # otherwise `kill_all` tries again at the exit of this program
                    await self._end_orphans()
                    _running.discard(self)
                    guard.forget(self.pid)
                    await _wait_for_guard()

    def close(self) -> None:
        """Close the pipes; to be called when no task reads or writes them any more."""
        for pipe in _get_pipes(self._popen):
            pipe.close()
        self._stdin_open = False

    def kill(self) -> None:
        """Kill the process and its group, without waiting."""
        if self._popen.returncode is None and os.getpid() == self._creator_pid:
            self._send_signal(signal.SIGKILL)

    async def _end_orphans(self) -> None:
        self._send_signal(signal.SIGTERM)
        self._popen.poll()
        # The leader is reaped now, so only a living member keeps the group id from being reused: a group that was seen
        # empty is never signalled again.
        deadline = anyio.current_time() + ORPHANS_GRACE
        while not self._group_is_empty():
            if anyio.current_time() > deadline:
                self._send_signal(signal.SIGKILL)
                return
            await anyio.sleep(_POLL)

    def _group_is_empty(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # a member exists
            return False
        return False

    def _send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # an empty group, or members that belong to another user
            os.killpg(self.pid, number)

    def _close_stdin(self) -> None:
        if self._stdin_open:
            self._stdin_open = False
            anyio.notify_closing(self._stdin)
            _get_pipes(self._popen)[0].close()


_running: set[ServerProcess] = set()


@atexit.register
def kill_all() -> None:
    """Kill all processes that still run at the exit of this program, because the client was not closed."""
    for process in tuple(_running):
        process.kill()
        guard.forget(process.pid)


def _start(settings: ServerSettings) -> subprocess.Popen[bytes]:
    env = build_environment(settings.env)
    cwd = os.fspath(settings.cwd) if settings.cwd else None
    if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 (may hold a NUL, where `Path` raises)
        raise ServerStartError(settings.name, f"the folder {cwd!r} (cwd) does not exist")
    program = find_program(settings.name, settings.command or "", env.get("PATH"), cwd)
    try:
        return subprocess.Popen(
            [program, *settings.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ServerStartError(settings.name, f"cannot run {settings.command!r}: {reason}") from error


async def _wait_for_guard() -> None:
    with anyio.move_on_after(END_SECONDS):
        while not guard.has_exited():  # noqa: ASYNC110 (there is no notification)
            await anyio.sleep(_POLL)


def _get_pipes(popen: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    return popen.stdin, popen.stdout, popen.stderr


def _to_nonblocking_descriptor(pipe: IO[bytes]) -> int:
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()


async def _read(descriptor: int) -> bytes:
    while True:
        await anyio.wait_readable(descriptor)
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            continue
        except OSError:
            return b""


def _peek(popen: subprocess.Popen[bytes]) -> int | None:
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return popen.poll()
    try:
        end = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # the embedding program reaps all children itself
        return popen.poll()
    if end is None:
        return None
    return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
