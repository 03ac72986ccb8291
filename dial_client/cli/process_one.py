"""The first process of a container: it runs the program in a child, passes signals on, and reaps orphans.

The kernel gives orphans to the process with the number 1, where they stay as zombies until it waits for them; and it
ignores signals that this process does not handle. A program such as ``docker run --init`` does the same.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

# The code of signals that the kernel sends, such as on Ctrl-C: the terminal has sent them to the child, too.
_SI_KERNEL = 0x80


def run_in_child() -> None:
    """Return at once in a child. The first process waits here, and exits with the exit code of the child."""
    if sys.platform != "linux":
        return
    # SIGKILL and SIGSTOP cannot be blocked, and signals of errors in this process are not for the child.
    signals = {*signal.Signals} - {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before the fork, so that no signal is lost
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        received = signal.sigwaitinfo(signals)
        if received.si_signo == signal.SIGCHLD:
            _reap(child)
        elif received.si_code != _SI_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(child, received.si_signo)


def _reap(child: int) -> None:
    """Wait for all processes that have ended; if the child is one of them, exit with its exit code."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)  # as a shell reports a signal
