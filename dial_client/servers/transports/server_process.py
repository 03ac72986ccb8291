"""A server's process (POSIX): started without the SDK, connected by pipes, and ended with all its children.

build_environment   what a server's process inherits
find_program        the file that a command names
StderrTail          the last lines on standard error
ServerProcess       the process itself
ProcessGuard        ends the servers' processes if this process is killed
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from dial_client.messages.errors import ServerStartError
from dial_client.runtime.logs import get_logger
from dial_client.runtime.pipes import PipeReader
from dial_client.servers.secret_masking import SecretMask
from dial_client.settings.config_types import ServerSettings

log = get_logger(__name__)

MAX_LINES = 50
MAX_LINE_BYTES = 1_000
# Seconds to exit after standard input was closed, and again after SIGTERM (order of the MCP specification).
GRACE = 2.0
# Seconds for the server's orphaned children to exit after SIGTERM.
ORPHANS_GRACE = 1.0
# Seconds for the guard's shell to exit after the last process group has ended.
END_SECONDS = 1.0
# Maximum bytes of one read: the capacity of a pipe.
CHUNK = 65_536
_POLL = 0.01


# A server is a program of somebody else: this list is all that it inherits, because any other variable may be a secret
# (API keys of models, tokens of the shell). The basic names are those of the SDK: without them programs do not start.
if sys.platform == "win32":
    BASIC = frozenset(
        (
            *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT"),
            *("PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP"),
            *("USERNAME", "USERPROFILE", "WINDIR"),
        )
    )
else:
    BASIC = frozenset(("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"))

# Variables that launchers (npx, uvx) need with a proxy, a private certificate authority, or another language.
USEFUL = frozenset(
    (
        *("LANG", "LANGUAGE", "VIRTUAL_ENV"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    )
)
# Prefixes of further inherited variables.
FAMILIES = ("LC_", "NPM_CONFIG_", "UV_", "XDG_")
# Names with such a prefix that are not inherited: credentials. A server gets them only through its settings.
_CREDENTIAL = re.compile(r"^UV_PUBLISH_|PASS|TOKEN|AUTH|SECRET|CREDENTIAL|USERNAME|(?:^|_)(?:KEY|OTP)(?:_|$)")
_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s?#]*@")
# The user in a proxy URL without a scheme.
_USER_OF_PROXY = re.compile(r"^[^/\s?#]*@")


def build_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server's process: allowed variables of this process, and the configured ones.

    Other variables are not inherited, because they may be secrets. User names and passwords are removed from the URLs
    of proxies and package indexes.

    Args:
        settings: The variables from the server's settings.
    """
    inherited = {}
    for original, value in os.environ.items():
        name = original.upper()  # Windows ignores case, and so do programs that read http_proxy
        is_family = name.startswith(FAMILIES) and _CREDENTIAL.search(name) is None
        # A shell would run an exported function when it starts ("Shellshock").
        if value.startswith("()") or not (name in BASIC or name in USEFUL or is_family):
            continue
        # A private package index or proxy is often configured with user and password in its URL.
        if name not in BASIC:
            value = _USER.sub(r"\g<scheme>", value)  # noqa: PLW2901
        inherited[original] = _USER_OF_PROXY.sub("", value) if name.endswith("_PROXY") else value
    return inherited | dict(settings)


def find_program(server: str, command: str, path: str | None, cwd: str | None) -> str:
    """Return the absolute path of a command.

    A command with a slash is a path, relative to `cwd`. Other commands are searched in `path` (a ``PATH``), then in the
    folder of this Python interpreter, so that servers in a virtual environment are found without activating it.

    Raises:
        ServerStartError: The program does not exist, or is not executable.
    """
    if os.path.dirname(command):  # noqa: PTH120 (`Path` drops a leading "./", which means "not from PATH")
        program = Path(cwd or ".", command)
        # `Path.is_file` would raise an error if a folder may not be searched, or if the name is too long.
        if not os.path.isfile(program):  # noqa: PTH113
            raise ServerStartError(server, f"there is no file {command!r} to run")
        if not os.access(program, os.X_OK):
            raise ServerStartError(server, f"the file {command!r} is not executable")
        return os.path.abspath(program)  # noqa: PTH100 (keep symbolic links: some programs read their own name)
    found = _find_installed(command, path or os.defpath) or _find_installed(command, str(Path(sys.executable).parent))
    if found is None:
        words = command.split()
        hint = "is it installed and in PATH?"
        if len(words) > 1:
            first, *arguments = map(json.dumps, words)
            hint = f'write the arguments apart: "command": {first}, "args": [{", ".join(arguments)}]'
        raise ServerStartError(server, f"the command {command!r} was not found: {hint}")
    return found


def _find_installed(command: str, path: str) -> str | None:
    """Return the path of a command in `path`, skipping relative folders and (Windows) the current folder.

    The current folder may hold untrusted files, such as an `npx` of a downloaded project: a program in it must be named
    by a path. Windows, and an empty entry of PATH, would find it there first.
    """
    suffixes = [""]
    if sys.platform == "win32":
        known = os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").lower()
        executable = [suffix for suffix in known.split(";") if suffix]
        suffixes = suffixes if command.lower().endswith(tuple(executable)) else executable
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117 - a string
    candidates = (Path(folder, f"{command}{suffix}") for folder in folders for suffix in suffixes)
    return next((str(file) for file in candidates if os.path.isfile(file) and os.access(file, os.X_OK)), None)  # noqa: PTH113


class StderrTail:
    """Keeps the last `MAX_LINES` lines, each cut to `MAX_LINE_BYTES`, with the server's secrets masked."""

    def __init__(self, mask: SecretMask | None = None) -> None:
        self._mask = mask or SecretMask()
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._unfinished = b""

    def feed(self, chunk: bytes) -> None:
        """Add bytes; a line may be spread over several calls."""
        # Lines before the last `MAX_LINES` of the chunk are not split, because they would be dropped anyway.
        first, *lines = chunk.rsplit(b"\n", MAX_LINES + 1)
        room = MAX_LINE_BYTES - len(self._unfinished)
        self._unfinished += first[: max(0, room)]
        for line in lines:
            self._lines.append(self._unfinished)
            self._unfinished = line[:MAX_LINE_BYTES]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are not blank, oldest first."""
        texts = (*map(self._to_text, self._lines), self._to_text(self._unfinished, is_whole=False))
        return tuple(text for text in texts if text)[-MAX_LINES:]

    def _to_text(self, line: bytes, *, is_whole: bool = True) -> str:
        text = line.decode("utf-8", "replace").rstrip()
        return self._mask.mask_text(text) if is_whole and len(line) < MAX_LINE_BYTES else self._mask.cut_text(text)

    @property
    def last(self) -> str:
        """The last line that names an error (`find_error_line`), otherwise the last line; empty without output."""
        from dial_client.runtime.error_lines import find_error_line

        return find_error_line(self.lines)


class ServerProcess:
    """A process that leads its own process group. The constructor starts it.

    It uses `subprocess.Popen` rather than `anyio.open_process`: the process exists when the call returns, on both event
    loops, and no event loop reaps it. Therefore its id is not reused before its whole process group has been signalled.

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
        pipes = self._popen.stdin, self._popen.stdout, self._popen.stderr
        self._pipes = [pipe for pipe in pipes if pipe is not None]
        self._stdin, self._stdout, stderr = (pipe.fileno() for pipe in self._pipes)
        self.output, self._errors = PipeReader(self._stdout, CHUNK), PipeReader(stderr, CHUNK)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
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
        return await _read(self.output)

    def read_arrived(self) -> bytes:
        """Return the bytes of standard output that have arrived, at most `CHUNK`; empty if there are none."""
        try:
            return os.read(self._stdout, CHUNK)
        except OSError:
            return b""

    def wake_reader(self) -> None:
        """End a `read` that waits."""
        self.output.wake()

    async def read_stderr(self) -> None:
        """Read standard error into `stderr` until its end."""
        while chunk := await _read(self._errors):
            self.stderr.feed(chunk)

    def write_now(self, data: memoryview) -> memoryview:
        """Write what standard input takes without waiting, and return the rest.

        Raises:
            OSError: Standard input is closed.
        """
        if not self._stdin_open:
            raise BrokenPipeError("standard input is closed")
        try:
            while data:
                data = data[os.write(self._stdin, data) :]
        except BlockingIOError:
            pass
        return data

    async def write(self, data: memoryview) -> None:
        """Write to standard input; wait while the process does not read.

        Raises:
            OSError: Standard input is closed.
        """
        while data := self.write_now(data):
            await anyio.wait_writable(self._stdin)

    def find_exit_code(self) -> int | None:
        """Return the exit code, or minus the number of the signal that ended the process; None while it runs.

        The process is not reaped, so that its id is not reused before `stop` has finished.
        """
        popen = self._popen
        if self._exit_code is None and popen.returncode is None:
            try:
                # WNOWAIT does not reap the process: while it is a zombie, the kernel gives its id to no other process.
                end = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except (AttributeError, ChildProcessError):
                # macOS before Python 3.13 has no `waitid`; or the embedding program reaps all children itself.
                return popen.poll()
            if end is not None:
                self._exit_code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return self._exit_code if popen.returncode is None else popen.returncode

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
                if self._stdin_open:
                    self._stdin_open = False
                    anyio.notify_closing(self._stdin)
                    self._pipes[0].close()
                if not await self.wait_exited(GRACE):
                    self._send_signal(signal.SIGTERM)
                    if not await self.wait_exited(GRACE):
                        self._send_signal(signal.SIGKILL)
                        await self.wait_exited(GRACE)
                if self.find_exit_code() is not None:  # otherwise `kill_all` tries again at the exit of this program
                    await self._end_orphans()
                    _running.discard(self)
                    guard.forget(self.pid)
                    with anyio.move_on_after(END_SECONDS):
                        while not guard.has_exited():  # noqa: ASYNC110 (there is no notification)
                            await anyio.sleep(_POLL)

    def close(self) -> None:
        """Close the pipes; to be called when no task reads or writes them any more."""
        self.output.close()
        self._errors.close()
        for pipe in self._pipes:
            pipe.close()
        self._stdin_open = False

    def kill(self) -> None:
        """Kill the process and its group, without waiting."""
        # After a fork the servers belong to the original process, and a reaped id may belong to another process.
        if self._popen.returncode is None and os.getpid() == self._creator_pid:
            self._send_signal(signal.SIGKILL)

    async def _end_orphans(self) -> None:
        """End the processes that the server has left behind, such as the server that a launcher (npx, uvx) started."""
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
        with suppress(PermissionError):  # a member exists, and belongs to another user
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return True
        return False

    def _send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # an empty group, or members that belong to another user
            os.killpg(self.pid, number)


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


async def _read(pipe: PipeReader) -> bytes:
    while True:
        try:
            return await pipe.read()
        except BlockingIOError:
            continue
        except OSError:
            return b""


_SHELL = "/bin/sh"
# Reads a line ``+ GROUP`` or ``- GROUP`` for each change. At the end it closes in steps: wait, SIGTERM, wait, SIGKILL.
# A group that was seen empty is never signalled again, because its number may be reused.
_SCRIPT = """
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
  esac
done
keep_living() {
  left=' '
  for group in $groups; do kill -s 0 -- "-$group" 2>/dev/null && left="$left$group "; done
  groups=$left
}
for signal in '' '' TERM '' KILL; do
  keep_living
  [ "$groups" = ' ' ] && exit
  [ -n "$signal" ] && for group in $groups; do kill -s "$signal" -- "-$group" 2>/dev/null; done
  [ "$signal" = KILL ] || sleep 1
done
"""


class ProcessGuard:
    """Ends the servers' processes if this process is killed and cannot do so itself; it runs while there are servers.

    A shell waits at the end of a pipe until this process ends, and then ends the process groups it was told about. A
    parent-death signal (Linux) would reach the servers alone, not the processes that launchers such as npx and uvx
    start, and it is already sent when the starting thread ends. On Windows the SDK's job object has the same effect.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None
        self._exiting: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The shell's process id; None while there are no groups to guard."""
        return self._shell.pid if self._shell is not None else None

    def watch(self, group: int) -> None:
        """Guard a process group from now on. No effect if the shell cannot be started."""
        with self._lock:
            self._groups.add(group)
            if not self._send("+", group):
                self._start()

    def forget(self, group: int) -> None:
        """Stop guarding a process group, which has ended."""
        with self._lock:
            if group not in self._groups:
                return
            self._groups.discard(group)
            self._send("-", group)
            if not self._groups:
                self._close_shell()

    def has_exited(self) -> bool:
        """Return True if all shells without groups to guard have exited."""
        with self._lock:
            self._exiting = [shell for shell in self._exiting if shell.poll() is None]
            return not self._exiting

    def abandon(self) -> None:
        """Drop all groups and shells, in a fork of this process: the servers belong to the original process."""
        self._close_shell()
        for shell in self._exiting:
            shell.returncode = 0  # the shell is no child of the fork: Popen must not wait for it
        # Another thread may have held the lock at the moment of the fork, and does not exist in the fork.
        self._groups, self._exiting, self._lock = set(), [], threading.Lock()

    def close(self) -> None:
        """At the exit of this process, let the shell end the remaining groups; without groups wait for its exit."""
        with self._lock:
            self._close_shell()
            for shell in self._exiting:
                with suppress(subprocess.TimeoutExpired):
                    shell.wait(0 if self._groups else END_SECONDS)
                shell.returncode = shell.returncode or 0  # otherwise Popen warns that the shell still runs

    def _start(self) -> None:
        self._close_shell()  # if there is a shell, it was killed: the new one gets all groups
        try:
            self._shell = subprocess.Popen(
                [_SHELL, "-c", _SCRIPT, "dial-client-guard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",  # the shell must not keep a folder in use, for example a mounted disk
                env={"PATH": os.defpath},
                start_new_session=True,  # Ctrl-C in the terminal must not end the guard before its servers
            )
        except OSError as error:
            log.debug("servers_unguarded", error=error.strerror)
            return
        assert self._shell.stdin is not None
        # A stopped shell must not block this program. A lost line is noticed: the next `watch` starts another shell.
        os.set_blocking(self._shell.stdin.fileno(), False)
        for group in self._groups:
            self._send("+", group)

    def _send(self, change: str, group: int) -> bool:
        if self._shell is None or self._shell.stdin is None:
            return False
        try:
            self._shell.stdin.write(f"{change} {group}\n".encode())  # shorter than PIPE_BUF: the write is atomic
        except OSError:
            return False
        return True

    def _close_shell(self) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
            self._exiting.append(self._shell)
            self._shell = None


# The guard shared by all clients of this process.
guard = ProcessGuard()
atexit.register(guard.close)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=guard.abandon)
