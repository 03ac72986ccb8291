"""`doctor` finds each fault of a configuration, names its place, and fixes faults that have a known fix."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.inner import CHECKS, CODES, ConfigFile, Finding, Fix, Subject, apply_fixes, config_checks, server_checks
from tests.support.planted_faults import FAULTS, SOUND, Fault

pytestmark = [pytest.mark.anyio, pytest.mark.once]

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A folder with programs that are only looked up, never run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("npx", "uvx", "docker", "python3"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


async def findings_in(folder: Path, text: str, path: str) -> list[Finding]:
    file = folder / "servers.json"
    file.write_text(text)
    file.chmod(0o600)
    environ = {"PATH": path, "HOME": "/home/ada", "TOKEN_THAT_IS_SET": "t"}
    subject = Subject((ConfigFile(text, str(file)),), environ=environ)
    checks = (
        *(config_checks.check_files, config_checks.check_entries, config_checks.check_permissions),
        *(server_checks.check_programs, server_checks.check_options),
    )
    return [finding for check in checks for finding in check(subject)]


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")
@pytest.mark.parametrize("fault", FAULTS, ids=[f"{number}-{fault.code}" for number, fault in enumerate(FAULTS)])
async def test_each_planted_fault_is_found_with_its_code(fault: Fault, tmp_path: Path, programs: str) -> None:
    found = await findings_in(tmp_path, fault.text, programs)
    assert fault.code in [finding.code for finding in found]
    finding = next(finding for finding in found if finding.code == fault.code)
    assert finding.path == str(tmp_path / "servers.json")
    assert finding.line >= 1
    if fault.place is not None:
        assert (finding.line, finding.column) == fault.place
    assert "sk-live" not in finding.text + finding.hint
    assert "abcdef01" not in finding.text + finding.hint


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")
@pytest.mark.parametrize("text", SOUND)
async def test_a_valid_configuration_has_no_findings(text: str, tmp_path: Path, programs: str) -> None:
    assert await findings_in(tmp_path, text, programs) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")
async def test_a_fix_removes_its_finding(tmp_path: Path, programs: str) -> None:
    for fault in FAULTS:
        for finding in await findings_in(tmp_path, fault.text, programs):
            if finding.fix is not None and finding.fix.edit is not None:
                fixed = finding.fix.edit(fault.text)
                codes = [again.code for again in await findings_in(tmp_path, fixed, programs)]
                assert finding.code not in codes, finding.fix.description


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX permissions")
async def test_a_world_readable_file_with_secrets_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    text = '{"mcpServers": {"it": {"command": "x", "env": {"API_KEY": "sk-live-4f9a8b7c6d5e4f3a2b1c"}}}}'
    file.write_text(text)
    file.chmod(0o644)
    subject = Subject((ConfigFile(text, str(file)),), environ={})
    (finding,) = config_checks.check_permissions(subject)
    assert (finding.code, finding.path) == ("DC111", str(file))
    assert finding.fix is not None
    assert finding.fix.mode == 0o600


async def test_an_untrusted_file_expands_no_variable_and_reads_no_other_file(tmp_path: Path) -> None:
    read: list[Path] = []

    def read_file(path: Path) -> bytes:
        read.append(path)
        return b""

    text = '{"mcpServers": {"it": {"command": "x", "envFile": "a.env", "env": {"A": "${NOT_SET}"}}}}'
    file = ConfigFile(text, str(tmp_path / "servers.json"), read=read_file)
    subject = Subject((), (file,), environ={})
    assert [finding.code for finding in config_checks.check_files(subject)] == []
    assert [finding.code for finding in config_checks.check_trust(subject)] == ["DC114"]
    assert read == []
    assert subject.servers == {}


@pytest.mark.parametrize(
    ("limits", "problems"),
    [
        (
            {"maxDepth": -1, "timeout": "never", "//": "why", "toolTimeot": 5, "maxTools": 2.5, "maxRepeats": 7},
            [
                "limits.maxDepth: expected a number that is not negative",
                "limits.timeout: expected a finite number, found a string",
                "limits.toolTimeot: unknown limit",
                "limits.maxTools: expected a whole number",
            ],
        ),
        ({"maxDepth": 1, "max_depth": 2}, ["limits.max_depth: contradicts maxDepth"]),
        (5, ["limits: expected an object, found a number"]),
    ],
)
async def test_errors_of_several_limits_are_all_found(tmp_path: Path, limits: object, problems: list[str]) -> None:
    text = json.dumps({"mcpServers": {}, "limits": limits})
    subject = Subject((ConfigFile(text, "servers.json", tmp_path),), environ={})
    assert [finding.text for finding in config_checks.check_files(subject)] == problems
    assert subject.limits.max_repeats == (7 if len(problems) > 1 else 3)


async def test_errors_of_several_entries_are_all_found(tmp_path: Path) -> None:
    text = '{\n"mcpServers": {\n"a": {},\n"b": {"command": 1},\n"c": {"command": "' + sys.executable + '"}\n}}'
    subject = Subject((ConfigFile(text, "servers.json", tmp_path),), environ={})
    found = list(config_checks.check_files(subject))
    assert [(finding.code, finding.line) for finding in found] == [("DC106", 3), ("DC104", 4)]
    assert list(subject.servers) == ["c"]


def test_every_code_has_a_section_with_its_title() -> None:
    headings = re.findall(r"^### (DC\d+): (.+)$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert Counter(headings) == Counter((code, known.title) for code, known in CODES.items())


def test_every_check_has_a_unique_name() -> None:
    assert [name for name, count in Counter(check.name for check in CHECKS).items() if count > 1] == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX permissions")
def test_a_failed_permission_fix_prints_one_line_and_the_next_fix_is_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").write_text("")
    apply_fixes([Fix("chmod 600", str(tmp_path / name), mode=0o600) for name in ("gone", "there")])
    printed = capsys.readouterr()
    assert printed.err.startswith(f"dial-chat: not changed: {tmp_path / 'gone'}: ")
    assert printed.out == f"chmod 600 {tmp_path / 'there'}\n"
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o600
