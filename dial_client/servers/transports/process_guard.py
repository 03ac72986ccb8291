"""Ends the servers' processes if this process is killed and cannot do so itself (POSIX).

A shell waits at the end of a pipe until this process ends, and then ends the process groups it was told about. A
parent-death signal (Linux) would reach the servers alone, not the processes that launchers such as npx and uvx start,
and it is already sent when the starting thread ends. On Windows the SDK's job object has the same effect.
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
"""Seconds for the shell to exit after the last process group has ended."""
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
"""Reads a line ``+ GROUP`` or ``- GROUP`` for each change. At the end it closes in steps: wait, SIGTERM, wait, SIGKILL.
A group that was seen empty is never signalled again, because its number may be reused."""


class ProcessGuard:
    """The shell that guards the process groups of this process; it runs while there are such groups."""

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
            if self._shell is not None and self._send("+", group):
                return
            self._start()

    def forget(self, group: int) -> None:
        """Stop guarding a process group, which has ended."""
        with self._lock:
            if group not in self._groups:
                return
            self._groups.discard(group)
            if self._shell is not None:
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
        if self._shell is not None:
            self._close_shell()
        for shell in self._exiting:
            shell.returncode = 0  # the shell is no child of the fork: Popen must not wait for it
        self._groups, self._exiting, self._lock = set(), [], threading.Lock()

    def close(self) -> None:
        """At the exit of this process, let the shell end the remaining groups; without groups wait for its exit."""
        with self._lock:
            if self._shell is not None:
                self._close_shell()
            for shell in self._exiting:
                with suppress(subprocess.TimeoutExpired):
                    shell.wait(0 if self._groups else END_SECONDS)
                shell.returncode = shell.returncode or 0  # otherwise Popen warns that the shell still runs

    def _start(self) -> None:
        if self._shell is not None:  # the old shell was killed: the new one gets all groups
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
            self._shell.stdin.write(f"{change} {group}\n".encode())  # shorter than PIPE_BUF: the write is atomic
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
"""The guard shared by all clients of this process."""
atexit.register(guard.close)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=guard.abandon)
