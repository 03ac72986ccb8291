"""A server's process (POSIX): started without the SDK, spoken to over pipes, and gone afterwards with all its children.

`subprocess.Popen` and not `anyio.open_process`: the process exists as soon as the call returns, on both event loops
alike, and nobody but us takes note of its end. So its id stays its own until its whole group has been signalled.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from contextlib import suppress
from typing import IO

import anyio

from dial_client.errors import ServerStartError
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.transports.environment import child_environment, find_program
from dial_client.servers.transports.process_guard import END_SECONDS, guard
from dial_client.servers.transports.stderr_tail import StderrTail
from dial_client.settings.configuration import ServerSettings

GRACE = 2.0
"""Seconds to leave after standard input was closed, and again after SIGTERM (the MCP specification's order)."""
ORPHANS_GRACE = 1.0
"""Seconds for children the server left behind to end after SIGTERM."""
CHUNK = 65_536
"""Bytes read at once: what a pipe holds."""
_POLL = 0.01


class ServerProcess:
    """A process that leads a group of its own. Making one starts it; `mask` is for what it says.

    Raises:
        ServerStartError: there is no such command or folder, or it cannot be executed.
    """

    def __init__(self, settings: ServerSettings, mask: SecretMask | None = None) -> None:
        self.stderr = StderrTail(mask or SecretMask.of(settings))
        self._popen = _start(settings)
        self._exit: int | None = None
        self._stdin, self._stdout, self._stderr = (_descriptor(pipe) for pipe in _pipes(self._popen))
        self._stdin_open = True
        self._maker = os.getpid()
        self._stopping = anyio.Lock()
        _alive.add(self)
        guard.watch(self.pid)

    @property
    def pid(self) -> int:
        """The process's id, and its group's."""
        return self._popen.pid

    async def read(self) -> bytes:
        """Give more of its standard output, at most `CHUNK` bytes; empty at the end."""
        return await _read(self._stdout)

    async def read_stderr(self) -> None:
        """Keep reading its standard error into `stderr`, until its end."""
        while chunk := await _read(self._stderr):
            self.stderr.feed(chunk)

    async def write(self, data: bytes) -> None:
        """Write to its standard input, waiting as long as it does not read.

        Raises:
            OSError: it reads no more.
        """
        rest = memoryview(data)
        while rest and self._stdin_open:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin)
        if rest:
            raise BrokenPipeError("standard input is closed")

    def exit_code(self) -> int | None:
        """Give its exit code, minus the number of the signal that ended it, or None while it runs.

        The process is looked at and not reaped, so that its id cannot become another's before `stop` is done with it.
        """
        if self._exit is None and self._popen.returncode is None:
            self._exit = _peek(self._popen)
        return self._exit if self._popen.returncode is None else self._popen.returncode

    async def gone(self) -> None:
        """Wait for its end. Its pipes may stay open longer, where a child holds them."""
        try:
            watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a sandbox
            while self.exit_code() is None:  # noqa: ASYNC110 (nobody tells)
                await anyio.sleep(_POLL)
            return
        try:
            await anyio.wait_readable(watch)
        finally:
            os.close(watch)

    async def exited(self, within: float) -> bool:
        """Wait for its end, at most `within` seconds, and say whether it came."""
        with anyio.move_on_after(within):
            await self.gone()
        return self.exit_code() is not None

    async def stop(self) -> None:
        """End it and all its group: close its input, wait, SIGTERM, wait, SIGKILL. Takes 6 seconds at the worst.

        Shielded from cancellation; may be called twice.
        """
        with anyio.CancelScope(shield=True):
            async with self._stopping:
                if self not in _alive:
                    return
                self._close_stdin()
                if not await self.exited(GRACE):
                    self._signal(signal.SIGTERM)
                    if not await self.exited(GRACE):
                        self._signal(signal.SIGKILL)
                        await self.exited(GRACE)
                if self.exit_code() is not None:  # else `kill_all` tries once more
                    await self._end_orphans()
                    _alive.discard(self)
                    guard.forget(self.pid)
                    await _guard_left()

    def close(self) -> None:
        """Close the pipes, once nothing reads or writes them any more."""
        for pipe in _pipes(self._popen):
            pipe.close()
        self._stdin_open = False

    def kill(self) -> None:
        """End it and all its group at once, without waiting."""
        if self._popen.returncode is None and os.getpid() == self._maker:
            self._signal(signal.SIGKILL)

    async def _end_orphans(self) -> None:
        self._signal(signal.SIGTERM)
        self._popen.poll()
        # From here on only a living member keeps the id from being given to somebody else: once the group was seen
        # empty it is never signalled again.
        deadline = anyio.current_time() + ORPHANS_GRACE
        while not self._group_is_empty():
            if anyio.current_time() > deadline:
                self._signal(signal.SIGKILL)
                return
            await anyio.sleep(_POLL)

    def _group_is_empty(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # somebody is there
            return False
        return False

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # nobody is left, or what is left is not ours to end
            os.killpg(self.pid, number)

    def _close_stdin(self) -> None:
        if self._stdin_open:
            self._stdin_open = False
            anyio.notify_closing(self._stdin)
            _pipes(self._popen)[0].close()


_alive: set[ServerProcess] = set()


@atexit.register
def kill_all() -> None:
    """End every process that is still there: the last resort, when nobody closed the client."""
    for process in tuple(_alive):
        process.kill()
        guard.forget(process.pid)


def _start(settings: ServerSettings) -> subprocess.Popen[bytes]:
    env = child_environment(settings.env)
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
        reason = getattr(error, "strerror", None) or str(error)
        raise ServerStartError(settings.name, f"cannot run {settings.command!r}: {reason}") from error


async def _guard_left() -> None:
    with anyio.move_on_after(END_SECONDS):
        while not guard.has_left():  # noqa: ASYNC110 (nobody tells)
            await anyio.sleep(_POLL)


def _pipes(popen: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    return popen.stdin, popen.stdout, popen.stderr


def _descriptor(pipe: IO[bytes]) -> int:
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
    except ChildProcessError:  # the host program reaps all children by itself
        return popen.poll()
    if end is None:
        return None
    return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
