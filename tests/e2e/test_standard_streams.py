"""dial-chat with standard streams that are closed, full, or not in UTF-8, and as the first process of a container."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import LONG, PIPES, environment, run_to_end, start_dial_chat

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform == "win32", reason="the shell of Windows has no >&-")]

NO_SPACE = "dial-chat: error: the output cannot be written: No space left on device"
CLOSED = "dial-chat: error: the output cannot be written: Bad file descriptor"
DIAL_CHAT = f"{shlex.quote(sys.executable)} -m dial_client"
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")


def run_in_shell(folder: Path, command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of a shell in a folder with a model that answers "hello"."""
    (folder / "replies.json").write_text(json.dumps(["hello"]))
    return subprocess.run(
        ["sh", "-c", command], check=False, cwd=folder, env=environment(folder), capture_output=True, timeout=LONG
    )


@pytest.mark.parametrize(
    ("command", "code", "complaint"),
    [
        pytest.param("--help >/dev/full", 1, NO_SPACE, marks=needs_full),
        pytest.param("--version >/dev/full", 1, NO_SPACE, marks=needs_full),
        pytest.param("models >/dev/full", 1, NO_SPACE, marks=needs_full),
        pytest.param("-m scripted:replies.json hi >/dev/full", 1, NO_SPACE, marks=needs_full),
        ("--help >&-", 1, CLOSED),
        ("-m scripted:replies.json hi >&-", 1, CLOSED),
        ("-m scripted:replies.json <&-", 2, "dial-chat: error: no prompt given"),
        ("-m nothing:x hi 2>&-", 2, ""),
        pytest.param("-m nothing:x hi 2>/dev/full", 2, "", marks=needs_full),
        ("-m nothing:x hi >&- 2>&- <&-", 2, ""),
    ],
)
def test_a_stream_that_cannot_be_used_costs_an_exit_code_and_a_sentence(
    tmp_path: Path, command: str, code: int, complaint: str
) -> None:
    ran = run_in_shell(tmp_path, f"{DIAL_CHAT} {command}")
    assert ran.returncode == code
    assert complaint.encode() in ran.stderr and b"Traceback" not in ran.stderr
    assert ran.stderr.count(b"\n") <= 2, "the complaint, and a line about the configuration"


def test_an_answer_is_printed_though_standard_error_is_closed(tmp_path: Path) -> None:
    ran = run_in_shell(tmp_path, f"{DIAL_CHAT} -m scripted:replies.json hi 2>&-")
    assert (ran.returncode, ran.stdout) == (0, b"hello\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_piped_question_may_have_any_encoding_that_names_itself(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "question.txt").write_bytes("Größe?\n".encode(encoding))
    (tmp_path / "replies.json").write_text(json.dumps(["hello"]))
    for file, options in (("question.txt", ()), (os.devnull, ("-f", "question.txt"))):
        with (tmp_path / file).open("rb") as stdin:
            words = ("-m", "scripted:replies.json", "--output", "json", *options)
            ran = run_to_end(start_dial_chat(tmp_path, *words, stdin=stdin, **PIPES))
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["messages"][0]["content"] == "Größe?"


def test_a_piped_question_in_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "question.txt").write_bytes("hi".encode("utf-16-le"))
    ran = run_in_shell(tmp_path, f"{DIAL_CHAT} -m scripted:replies.json <question.txt")
    assert ran.returncode == 2 and b"the prompt is not text in UTF-8" in ran.stderr


UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_unshare() -> bool:
    """Return True if a process may have its own numbers of processes, as in a container."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
    )


needs_unshare = pytest.mark.skipif(not can_unshare(), reason="processes cannot have numbers of their own here")

ORPHANS = """
import os, time
from dial_client.cli.process_one import run_in_child
run_in_child()
orphans = []
for _ in range(3):
    read, write = os.pipe()
    if os.fork() == 0:  # its child becomes an orphan
        os.write(write, str(os.fork() or os._exit(0)).encode())
        os._exit(0)
    orphans.append(int(os.read(read, 20)))
    os.wait()
end = time.monotonic() + 20
while any(os.path.exists(f"/proc/{orphan}") for orphan in orphans):
    assert time.monotonic() < end, "an orphan stays as a zombie"
    time.sleep(0.01)
print(os.getpid(), flush=True)
raise SystemExit(7)
"""


@needs_unshare
def test_the_first_process_of_a_container_reaps_orphans_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*UNSHARE, sys.executable, "-c", ORPHANS],
        check=False,
        env=environment(tmp_path),
        capture_output=True,
        timeout=LONG,
    )
    assert (ran.returncode, ran.stderr) == (7, b"") and int(ran.stdout) > 1


STARTING = """
import sys, time
from dial_client.cli.process_one import run_in_child
run_in_child()
print("started", flush=True)
time.sleep(60)
"""


@needs_unshare
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_first_process_of_a_container_while_the_program_starts(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [*UNSHARE, sys.executable, "-c", STARTING]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None and outer.stdout.readline() == b"started\n"
        first = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        subprocess.run(["kill", f"-{number}", *first], check=True)
        assert outer.wait(LONG) == 128 + number


@needs_unshare
def test_dial_chat_answers_as_the_first_process_of_a_container(tmp_path: Path) -> None:
    ran = run_in_shell(tmp_path, f"{' '.join(UNSHARE)} {DIAL_CHAT} -m scripted:replies.json hi")
    assert (ran.returncode, ran.stdout) == (0, b"hello\n")
