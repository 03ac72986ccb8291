"""The files of the audit log: one hash chain, with several writers and with writers that are killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.inner import LOCK_NAME, AuditLog, FileLock, build_mask, compute_digest, list_log_files, verify
from tests.support.audit_logs import calls_of, entry, lines_of
from tests.support.program import LONG

posix_only = pytest.mark.skipif(os.name != "posix", reason="modes and signals of POSIX")
WRITER = """
import sys
from dial_client.hooks.audit.log_writer import AuditLog
from tests.support.audit_logs import entry
log = AuditLog(sys.argv[1], program=sys.argv[2], max_bytes=int(sys.argv[3]), max_files=1000)
for number in range(int(sys.argv[4])):
    log.record(entry(number, call=sys.argv[2]))
    if number == 0:
        print("writing", flush=True)
"""


def written(folder: Path, count: int, **options: Any) -> Path:
    with AuditLog(folder, **options) as log:
        for number in range(count):
            log.record(entry(number))
    return folder


@contextmanager
def writers(folder: Path, processes: int, count: int, max_bytes: int = 10**9) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        begun = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(folder), f"writer {number}", str(max_bytes), str(count)],
                cwd=Path(__file__).parents[2],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]
        for process in begun:
            stack.enter_context(process)
            stack.callback(process.kill)
        yield begun


# --- one chain ------------------------------------------------------------------------------------


def test_each_line_has_its_own_digest_and_the_digest_of_the_previous_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "log", 3)
    [path] = list_log_files(folder)
    before = ""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        fields = json.loads(line)
        body, _, seal = line.rpartition(b',"digest":')
        assert sha256(body + b"}").hexdigest() == fields["digest"] == json.loads(seal[:-1])
        assert (fields["n"], fields["previous"]) == (number, before)
        before = fields["digest"]
    result = verify(folder, head=before)
    assert (result.is_intact, result.lines, result.files, result.head, result.has_head) == (True, 4, 1, before, True)


def test_a_new_log_continues_the_chain_of_the_folder(tmp_path: Path) -> None:
    written(tmp_path, 2)
    written(tmp_path, 2)
    assert [line["event"] for line in lines_of(tmp_path)] == ["begin", *["call"] * 4]
    assert verify(tmp_path).is_intact


def test_two_logs_that_write_alternately_write_one_chain(tmp_path: Path) -> None:
    with AuditLog(tmp_path, max_bytes=2_000) as first, AuditLog(tmp_path, max_bytes=2_000) as second:
        for number in range(10):
            first.record(entry(number))
            second.record(entry(number))
    assert len(calls_of(tmp_path)) == 20
    assert verify(tmp_path).is_intact


def test_times_are_utc_with_milliseconds_and_empty_fields_are_left_out(tmp_path: Path) -> None:
    [line] = calls_of(written(tmp_path, 1))
    assert line.pop("time").endswith("Z") and len(lines_of(tmp_path)) == 2
    assert sorted(line) == ["digest", "event", "id", "n", "outcome", "pid", "previous", "server", "tool"]


def test_a_full_file_is_followed_by_a_new_file_and_the_oldest_are_dropped(tmp_path: Path) -> None:
    written(tmp_path, 60, max_bytes=2_000, max_files=3)
    files = list_log_files(tmp_path)
    assert len(files) == 3 and all(path.stat().st_size <= 2_300 for path in files)
    lines = lines_of(tmp_path)
    borders = [(end["next"], begin["file"]) for end, begin in pairwise(lines) if "next" in end]
    assert borders == [(path.name, path.name) for path in files[1:]]
    result = verify(tmp_path)
    assert (result.is_intact, result.files, result.first_n) == (True, 3, lines[0]["n"])
    assert result.first_n > 1
    assert result.notes == [f"the log begins with line {result.first_n}: older files were deleted"]


def test_a_program_that_was_killed_between_two_files_does_not_break_the_chain(tmp_path: Path) -> None:
    written(tmp_path, 6, max_bytes=1_500)
    newest = list_log_files(tmp_path)[-1]
    newest.write_bytes(b"")
    written(tmp_path, 1)
    newest.unlink()
    written(tmp_path, 1)
    assert verify(tmp_path).is_intact


# --- several programs, and killed programs --------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [10**9, 5_000])
def test_programs_that_write_at_once_write_one_chain(tmp_path: Path, max_bytes: int) -> None:
    with writers(tmp_path, 4, 100, max_bytes) as processes:
        assert [process.wait(LONG) for process in processes] == [0] * 4
    written_by = [line["call"] for line in calls_of(tmp_path)]
    assert {name: written_by.count(name) for name in written_by} == {f"writer {number}": 100 for number in range(4)}
    assert verify(tmp_path).is_intact


@posix_only
def test_programs_that_are_killed_while_they_write_leave_a_chain_that_can_be_continued(tmp_path: Path) -> None:
    with writers(tmp_path, 3, 10**9) as processes:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline()
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait(LONG)
            written(tmp_path, 1)
    result = verify(tmp_path)
    assert result.is_intact and result.lines > 6


def test_a_torn_line_is_distinguished_from_a_changed_line(tmp_path: Path) -> None:
    folder = written(tmp_path, 2)
    [path] = list_log_files(folder)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert verify(folder).is_intact
        written(folder, 1)
        result = verify(folder)
        assert (result.is_intact, result.torn) == (True, 0 if cut == len(whole) - 1 else 1), whole[last:cut]
        assert len(path.read_bytes().splitlines()) == (4 if cut == len(whole) - 1 else 5)


FULL = """
import resource, sys
from dial_client.hooks.audit.log_writer import AuditLog
from dial_client.hooks.audit.record_format import list_log_files
from pathlib import Path
from tests.support.audit_logs import entry
problems = []
with AuditLog(sys.argv[1], on_problem=problems.append) as log:
    log.record(entry(0))
    size = list_log_files(Path(sys.argv[1]))[0].stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
    log.record(entry(1))
    log.record(entry(2))
    assert list_log_files(Path(sys.argv[1]))[0].stat().st_size == size, "half a line was left"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.record(entry(3))
print(problems)
"""


@posix_only
def test_entries_that_a_full_disk_rejects_are_written_later(tmp_path: Path) -> None:
    program = [sys.executable, "-c", FULL, str(tmp_path / "log")]
    here = Path(__file__).parents[2]
    ran = subprocess.run(program, cwd=here, capture_output=True, text=True, timeout=LONG, check=False)
    assert ran.stdout.count("the audit log cannot be written: ") == 1, ran.stderr
    assert ran.stdout.count("the audit log can be written again") == 1
    assert [line["id"][-1] for line in calls_of(tmp_path / "log")] == ["0", "1", "2", "3"]
    result = verify(tmp_path / "log")
    assert (result.is_intact, result.torn) == (True, 0)


def test_a_lock_that_another_program_holds_does_not_block(tmp_path: Path) -> None:
    problems: list[str] = []
    folder = written(tmp_path, 1)
    lock = FileLock(folder / LOCK_NAME)
    with AuditLog(folder, on_problem=problems.append) as log:
        with lock.held(1.0):
            for number in range(1, 4):
                log.record(entry(number))
        assert len(calls_of(folder)) == 1 and len(problems) == 1
        log.record(entry(4))
    lock.close()
    assert [line["id"][-1] for line in calls_of(folder)] == ["0", "1", "2", "3", "4"]


def test_an_open_log_whose_files_are_removed_starts_a_new_chain(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with AuditLog(folder) as log:
        log.record(entry(1))
        for path in folder.iterdir():
            path.unlink()
        log.record(entry(2))
    assert [line["id"][-1] for line in calls_of(folder)] == ["2"]
    assert verify(folder).is_intact


@posix_only
def test_only_the_owner_can_read_the_files_with_any_umask(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    before = os.umask(0)
    try:
        written(folder, 20, max_bytes=1_500)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    list_log_files(folder)[-1].chmod(0o644)
    folder.chmod(0o755)
    written(folder, 1)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, list_log_files(folder)[-1])} == {0o700, 0o600}


# --- tampering ------------------------------------------------------------------------------------

Lines = list[bytes]


def edit(lines: Lines) -> Lines:
    return [*lines[:4], lines[4].replace(b'"ok"', b'"no"'), *lines[5:]]


def edit_last(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1].replace(b'"ok"', b'"no"')]


def edit_and_recompute_digest(lines: Lines) -> Lines:
    body = lines[4].rpartition(b',"digest"')[0].replace(b'"ok"', b'"no"')
    digest = sha256(body + b"}").hexdigest().encode()
    return [*lines[:4], body + b',"digest":"' + digest + b'"}', *lines[5:]]


def insert(lines: Lines) -> Lines:
    return [*lines[:4], b'{"event":"call"}', *lines[4:]]


def cut_off(lines: Lines) -> Lines:
    return [*lines[:4], lines[4][:30], *lines[5:]]


TAMPERED: list[tuple[Callable[[Lines], Lines], int, str]] = [
    (edit, 5, "edited"),
    (edit_last, 9, "edited"),
    (edit_and_recompute_digest, 6, "line before this one was replaced"),
    (insert, 5, "edited"),
    (cut_off, 5, "edited"),
    (lambda lines: [*lines[:4], *lines[5:]], 5, "line 5 of the log was removed"),
    (lambda lines: [*lines[:4], *lines[7:]], 5, "lines 5 to 7 of the log were removed"),
    (lambda lines: lines[1:], 1, "lines were removed before this one"),
    (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5, "reordered"),
    (lambda lines: [*lines[:5], lines[4], *lines[5:]], 6, "reordered or repeated"),
]


@pytest.mark.parametrize(("tamper", "line", "problem"), TAMPERED)
def test_verification_names_the_first_line_that_was_tampered_with(
    tmp_path: Path, tamper: Callable[[Lines], Lines], line: int, problem: str
) -> None:
    [path] = list_log_files(written(tmp_path, 8))
    path.write_bytes(b"\n".join(tamper(path.read_bytes().splitlines())) + b"\n")
    result = verify(tmp_path)
    assert (result.is_intact, result.problem_file, result.problem_line) == (False, path.name, line)
    assert problem in result.problem
    written(tmp_path, 2)
    assert verify(tmp_path).problem == result.problem  # later entries repair nothing


def test_a_missing_file_in_the_middle_is_detected(tmp_path: Path) -> None:
    files = list_log_files(written(tmp_path, 30, max_bytes=2_000))
    files[1].unlink()
    result = verify(tmp_path)
    assert (result.problem_file, result.problem_line) == (files[2].name, 1)
    assert "removed" in result.problem


def test_a_missing_end_is_detected_only_by_a_digest_stored_outside_the_log(tmp_path: Path) -> None:
    [path] = list_log_files(written(tmp_path, 5))
    head = verify(tmp_path).head
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert verify(tmp_path).is_intact
    assert not verify(tmp_path, head).is_intact


# --- arguments ------------------------------------------------------------------------------------

SECRET = "hunter2-hunter2"


def test_the_log_has_only_the_digest_of_the_arguments(tmp_path: Path) -> None:
    with AuditLog(tmp_path) as log:
        log.record(entry(arguments={"b": SECRET, "a": [1, None]}))
    [line] = calls_of(tmp_path)
    canonical = json.dumps({"a": [1, None], "b": SECRET}, separators=(",", ":"))
    assert line["arguments_digest"] == f"sha256:{sha256(canonical.encode()).hexdigest()}"
    assert SECRET not in list_log_files(tmp_path)[0].read_text()


def test_the_log_has_the_arguments_on_request_with_known_secrets_masked(tmp_path: Path) -> None:
    given = {"deep": [{SECRET: f"Bearer {SECRET}!"}], "number": 7}
    with AuditLog(tmp_path, with_arguments=True, mask=build_mask([SECRET, "7"])) as log:
        log.record(entry(arguments=given))
        log.record(entry(arguments=f"not JSON {SECRET}"))
        log.record(entry(arguments={"much": "x" * 100_000}))
        log.record(entry(arguments={"odd": float("nan")}))
    found = calls_of(tmp_path)
    assert [line.get("arguments") for line in found] == [
        {"deep": [{"***": "Bearer ***!"}], "number": 7},
        "not JSON ***",
        None,
        None,
    ]
    assert found[0]["arguments_digest"] == compute_digest(given)
    assert SECRET not in list_log_files(tmp_path)[0].read_text()
    assert verify(tmp_path).is_intact


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text": "plain", "b": True, "a": 10**30, "none": None},
        {"b": 1, "a": {"d": 2, "c": [1.5, 1e-06, 1e16]}},
        {"é": "ü\u202e\U0001f600", "a": 1},
        {"line": 'a\x7f\x00\x1f\n\t"\\/', "lone": "\ud800"},
        {"lone": "\ud800"},
        {"nan": float("nan"), "inf": float("inf")},
        "not JSON",
    ],
)
def test_the_digest_of_arguments_can_be_computed_by_the_documented_line_and_each_line_is_ascii(
    tmp_path: Path, given: Any
) -> None:
    formula = json.dumps(given, sort_keys=True, separators=(",", ":")).encode()
    assert compute_digest(given) == f"sha256:{sha256(formula).hexdigest()}"
    with AuditLog(tmp_path, with_arguments=True) as log:
        log.record(entry(arguments=given, tool="\x7f\u202e\ud800"))
    [path] = list_log_files(tmp_path)
    assert all(line.isascii() and b"\x7f" not in line for line in path.read_bytes().splitlines())
    [line] = calls_of(tmp_path)
    assert line["tool"] == "\x7f\u202e\ud800"
    assert line.get("arguments", given) == given or "nan" in given
    assert verify(tmp_path).is_intact
