"""Runs Python programs as forks of a process that has imported what takes most of their start.

Each program is a process with its own arguments, environment, folder and standard streams. `ForkedProcess` is a
`subprocess.Popen` of such a program. Programs are started as usual where DIAL_TEST_FRESH is set, and everywhere but on
Linux, which alone forks after imports without harm.

Protocol: a connection to a Unix socket for each program. The job is a line of JSON, with the three standard streams.
The answers are the process id, and at the end the status of `waitpid`, a line each. The end of the connection kills the
program.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, AnyStr, NoReturn, cast

ROOT = Path(__file__).resolve().parents[2]
FORK_CLIENT = Path(__file__).parent / "fork_client.py"
DEMO_SERVERS = ("mcp_server_git", "mcp_server_time")
CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open")
PACKAGES = (
    *("acp", "aiosqlite", "anyio._backends._asyncio", "anyio._core._signals", "argparse", "encodings.idna"),
    *("encodings.utf_8_sig", "httptools", "httpx2", "jsonschema_rs", "markdown_it", "mcp.client.streamable_http"),
    *("mcp.server.mcpserver", "mcp.server.stdio", "openai", "pkgutil", "prompt_toolkit.patch_stdout"),
    *("prompt_toolkit.shortcuts", *DEMO_SERVERS, "pydantic", "pygments.lexers", "pygments.lexers.python"),
    *("rich.console", "rich.logging", "sqlalchemy.dialects.sqlite.aiosqlite", "sqlalchemy.ext.asyncio"),
    *("starlette.applications", "starlette.routing", "structlog.dev", "typer", "typer._adapters"),
    *("typer._click.decorators", "tzdata.zoneinfo", "uvicorn", "uvicorn.lifespan.off", "yaml"),
)
"""What programs import of other packages; a package that is not there is left to the program."""
MODULES = (
    *("dial_client.acp.editor_agent", "dial_client.cli.acp_command", "dial_client.cli.chat.conversation"),
    *("dial_client.cli.chat.conversation_loop", "dial_client.cli.chat.one_shot"),
    *("dial_client.cli.chat.stored_conversations", "dial_client.cli.commands.program_commands"),
    *(
        "dial_client.cli.markdown.block_renderer",
        "dial_client.cli.markdown.highlighter",
        "dial_client.cli.streams.prompt_input",
    ),
    *(
        "dial_client.cli.service.serve_command",
        "dial_client.cli.servers.server_features",
        "dial_client.cli.servers.tool_call",
    ),
    *("dial_client.gateway.gateway", "dial_client.providers.chat_api", "dial_client.providers.scripted"),
    *("dial_client.runtime.error_lines", "dial_client.servers.oauth", "dial_client.servers.tasks"),
    *("dial_client.servers.transports.response_repair", "dial_client.servers.transports.stdio"),
    *("dial_client.servers.transports.streamable_http", "dial_client.settings.agent_files"),
    *("dial_client.cli.terminal.live_application", "dial_client.stores.sql_store"),
)
"""What `dial-chat` imports of this package, with all that these modules import: importing has no other effect."""


class ForkedProcess(subprocess.Popen[AnyStr]):
    """A program that the fork server runs: ``[sys.executable, "-m", MODULE, …]``, or with ``-c CODE`` or a file."""

    def _execute_child(self, args: Sequence[str], *options: Any) -> None:
        (_, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest) = options
        self._connection: socket.socket = socket.socket(socket.AF_UNIX)
        self._connection.connect(start_server())
        job = {
            "arguments": list(args[1:]),
            "folder": os.fspath(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "is_session": rest[-2],
        }
        streams = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        data = json.dumps(job).encode() + b"\n"
        sent = socket.send_fds(self._connection, [data], streams)
        self._connection.sendall(data[sent:])
        cast("Any", self)._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self._answers = self._connection.makefile("r")
        self.pid = int(self._answers.readline())
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        status = int(self._answers.readline())
        self._answers.close()
        self._connection.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._child_created:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode

    if sys.platform == "linux":

        def _handle_exitstatus(self, sts: int) -> None:
            self.returncode = os.waitstatus_to_exitcode(sts)


def can_fork(arguments: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether the fork server can run a command: no variable that only a starting interpreter reads is different."""
    if not CAN_FORK or variables.get("DIAL_TEST_FRESH") or arguments[0] != sys.executable:
        return False
    names = {name for name in (*variables, *os.environ) if name.startswith(("PYTHON", "LC_", "LANG", "TZ"))}
    usual = os.environ | {"PYTHONPATH": str(ROOT)}
    return all(variables.get(name) == usual.get(name) for name in names - {"PYTHONUNBUFFERED"})


SHARED = "DIAL_TEST_FORK_SERVER"
"""The environment variable with the socket of a fork server that all test workers use."""


def share_server() -> None:
    """Start a fork server for this process and the test workers that it starts.

    It also runs the servers of the demo: their usual start takes a second of a processor. The fork server's folder,
    with the programs that start them, comes first in PATH.
    """
    if CAN_FORK and not os.environ.get("DIAL_TEST_FRESH"):
        os.environ[SHARED] = start_server()
        programs = Path(os.environ[SHARED]).parent
        for module in DEMO_SERVERS:
            command = [sys.executable, "-S", "-E", str(FORK_CLIENT), os.environ[SHARED], "-W", "ignore", "-m", module]
            write_launcher(programs / module.replace("_", "-"), command)
        os.environ["PATH"] = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])


def write_launcher(file: Path, command: Sequence[str]) -> None:
    """Write a program that runs a command with the arguments of the program added."""
    file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    file.chmod(0o755)


@functools.cache
def start_server() -> str:
    """Return the path of the fork server's socket; start a fork server for this process if there is no shared one."""
    if shared := os.environ.get(SHARED):
        return shared
    path = str(Path(tempfile.mkdtemp(prefix="fork-server-")) / "socket")
    command = [sys.executable, "-P", __file__, path]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    # It ends with its standard input.
    process = subprocess.Popen(command, cwd="/", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    def stop() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    atexit.register(stop)
    return path


class _Program:
    """A forked program, and the connection of the process that wants it."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.connection = connection
        self.end = os.pidfd_open(pid)
        """Readable when the program has ended."""
        self._pid = pid

    def finish(self) -> None:
        """Report the end of the program; kill the program if it has not ended."""
        if not select.select([self.end], [], [], 0)[0]:
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        with suppress(OSError):
            self.connection.sendall(b"%d\n" % status)
        self.close()

    def close(self) -> None:
        os.close(self.end)
        self.connection.close()


def import_packages(*more: str) -> None:
    """Import what most programs and tests import; a package that is not there is left to the program or the test."""
    for package in (*PACKAGES, *MODULES, *more):
        with suppress(ImportError):
            importlib.import_module(package)


def fill_caches() -> None:
    """Build what nearly every program builds at its first use and keeps: a third of what a short program computes.

    These are the commands with their options, large regular expressions, and the files of the page. None of them
    depends on the environment, the folder or the arguments of a program.
    """
    from dial_client.cli.commands.typer_commands import build_all_commands
    from dial_client.messages.model import ToolFormat
    from dial_client.providers.formats import build_handler
    from dial_client.providers.formats.text_history import neutralize
    from dial_client.runtime.safe_text import escape_unseen, sanitize
    from dial_client.serve.static_files import BUNDLE, StaticFiles

    build_all_commands()
    for tool_format in ToolFormat:
        reader = build_handler(tool_format).reader(())
        reader.feed("<tool_call>`")
        reader.finish()
    neutralize("<")
    escape_unseen(sanitize("\x1b[0m\u200d"))
    files = StaticFiles()
    for name in ("index.html", BUNDLE, "style.css", "turn.css", "adaptations.css"):
        files._read(name)


def serve(path: str) -> dict[str, Any]:
    """Serve until the standard input ends. Returns in each forked program, with its job."""
    import_packages()
    with suppress(ImportError):  # an extra is not installed
        fill_caches()
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    programs: list[_Program] = []
    while True:
        events = [file for program in programs for file in (program.end, program.connection)]
        ready, _, _ = select.select([listener, sys.stdin, *events], [], [])
        is_over = sys.stdin in ready
        for program in [each for each in programs if is_over or {each.end, each.connection} & {*ready}]:
            program.finish()
            programs.remove(program)
        if is_over:
            shutil.rmtree(Path(path).parent, ignore_errors=True)  # also after a test run that was killed
            sys.exit()
        if listener in ready:
            job = _accept(listener, programs)
            if job is not None:
                return job


def _accept(listener: socket.socket, programs: list[_Program]) -> dict[str, Any] | None:
    """Fork a program, and add it to the programs. Returns its job in the program, and None in the server."""
    connection, _ = listener.accept()
    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n") and (more := connection.recv(1 << 20)):
        data += more
    pid = os.fork() if data.endswith(b"\n") else None
    if pid == 0:
        for inherited in programs:
            inherited.close()
        connection.close()
        listener.close()
        job: dict[str, Any] = json.loads(data)
        _become(job, streams)
        return job
    for stream in streams:
        os.close(stream)
    if pid is None:  # the process that wanted the program has been killed
        connection.close()
        return None
    programs.append(_Program(pid, connection))
    with suppress(OSError):
        connection.sendall(b"%d\n" % pid)
    return None


def _become(job: dict[str, Any], streams: list[int]) -> None:
    """Make this process what the job describes."""
    if job["is_session"]:
        os.setsid()
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
    for stream in set(streams) - {0, 1, 2}:
        os.close(stream)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        binary = open(descriptor, "wb" if descriptor else "rb", closefd=False)  # noqa: SIM115 (a descriptor)
        lines = os.isatty(descriptor) or descriptor == 2
        text: io.TextIOWrapper[Any] = io.TextIOWrapper(
            binary, old.encoding, old.errors, "\n" if descriptor else None, line_buffering=lines
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def run(arguments: list[str]) -> None:
    """Run a module, code or a file as Python does with these arguments."""
    while arguments[0] == "-W":
        warnings.simplefilter(arguments[1])  # type: ignore[arg-type]
        del arguments[:2]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


def finish(status: int) -> NoReturn:
    """End this process as Python does, but leave the memory to the system.

    To free each object would copy most pages that a fork shares with its server: four times the work of the fork.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        sys.exit(status)  # the usual end reports what could not be written
    os._exit(status)


if __name__ == "__main__":
    job = serve(sys.argv[1])
    try:
        run(job["arguments"])
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        finish(end.code or 0)
    finish(0)
