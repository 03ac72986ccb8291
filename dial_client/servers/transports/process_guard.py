"""Ends the servers' processes after this process was killed and can do nothing itself (POSIX).

A shell waits at the end of a pipe for the end of this process, and then ends the process groups it was given. A
parent-death signal (Linux) would reach the servers alone, and not what launchers such as npx and uvx start for them,
and it is sent when the thread that started them ends. On Windows the SDK's job object does the same.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress

from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

END_SECONDS = 1.0
"""Seconds for the shell to exit once there is nothing to guard."""
_SHELL = "/bin/sh"
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
"""Reads a line ``+ GROUP`` or ``- GROUP`` for each change, and allows the servers the usual seconds to exit. A group
that was seen empty is never signalled: its number may be reused."""


class ProcessGuard:
    """The shell that guards the process groups of this process; it runs while there are any."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None
        self._exiting: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The shell's process id; None while there is nothing to guard."""
        return self._shell.pid if self._shell is not None else None

    def watch(self, group: int) -> None:
        """Guard a process group from now on. Without a shell, nothing is guarded."""
        with self._lock:
            self._groups.add(group)
            if self._shell is not None and self._send("+", group):
                return
            self._start()

    def forget(self, group: int) -> None:
        """Guard a process group no longer: it has ended."""
        with self._lock:
            if group not in self._groups:
                return
            self._groups.discard(group)
            if self._shell is not None:
                self._send("-", group)
            if not self._groups:
                self._close_shell()

    def has_exited(self) -> bool:
        """True if no shell runs that has nothing to guard."""
        with self._lock:
            self._exiting = [shell for shell in self._exiting if shell.poll() is None]
            return not self._exiting

    def abandon(self) -> None:
        """Forget everything, in a fork of this process: the servers belong to the original."""
        if self._shell is not None:
            self._close_shell()
        for shell in self._exiting:
            shell.returncode = 0  # it is no child of this process, and not to be waited for
        self._groups, self._exiting, self._lock = set(), [], threading.Lock()

    def close(self) -> None:
        """Let the shell end the groups that are left, at the exit of this process; wait for it if there are none."""
        with self._lock:
            if self._shell is not None:
                self._close_shell()
            for shell in self._exiting:
                with suppress(subprocess.TimeoutExpired):
                    shell.wait(0 if self._groups else END_SECONDS)
                shell.returncode = shell.returncode or 0  # else Popen warns that it still runs

    def _start(self) -> None:
        if self._shell is not None:  # it was killed: a new shell is given all groups
            self._close_shell()
        try:
            self._shell = subprocess.Popen(
                [_SHELL, "-c", _SCRIPT, "dial-client-guard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except OSError as error:
            log.debug("servers_unguarded", error=error.strerror)
            return
        assert self._shell.stdin is not None
        os.set_blocking(self._shell.stdin.fileno(), False)
        for group in self._groups:
            self._send("+", group)

    def _send(self, change: str, group: int) -> bool:
        assert self._shell is not None
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(f"{change} {group}\n".encode())  # shorter than PIPE_BUF: whole or not at all
        except OSError:
            return False
        return True

    def _close_shell(self) -> None:
        assert self._shell is not None
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._exiting.append(self._shell)
        self._shell = None


guard = ProcessGuard()
"""The guard of all clients of this process."""
atexit.register(guard.close)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=guard.abandon)
