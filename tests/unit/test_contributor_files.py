"""The workflow, the hooks and the documents for contributors run existing targets and show current code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml

from release.extra_parts import PARTS

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def find_make_targets(text: str) -> set[str]:
    """Return the `make` targets that a text names."""
    commands = re.findall(r"\bmake ((?:--[\w-]+ )*[\w ./=-]+)", text)
    words = {word for command in commands for word in command.split() if not word.startswith("--")}
    return {word for word in words if re.fullmatch(r"[a-z-]+", word)}


def test_the_workflow_runs_everything_on_linux_and_the_tests_on_macos_and_windows() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"guard": [".ci/run"], "tests": ["make test PYTHON=python"]}
    assert jobs["tests"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]


def test_the_pre_commit_hooks_run_lint_types_and_quick_tests() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    targets = set().union(*(find_make_targets(hook["entry"]) for hook in hooks))
    assert targets == {"lint", "types", "quick"}
    assert targets <= TARGETS


def test_the_dev_container_sets_up_the_tests() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8")
    container = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert container["postCreateCommand"] == "make .venv/test.installed build/npm/installed"


def test_make_help_lists_every_target_that_is_a_command() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = set(re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    assert set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE)) == commands


def test_the_first_change_guide_shows_the_current_code() -> None:
    page = (ROOT / "docs" / "first-change.md").read_text(encoding="utf-8")
    test, alternative = re.findall(r"```python\n(.+?)\n```", page, re.DOTALL)
    assert test in (ROOT / "tests" / "unit" / "test_error_lines.py").read_text(encoding="utf-8")
    assert alternative in (ROOT / "dial_client" / "runtime" / "error_lines.py").read_text(encoding="utf-8")
    assert find_make_targets(page) <= TARGETS


def test_issue_templates_are_valid() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert "blank_issues_enabled" in form or {"name", "description", "body"} <= set(form), path.name


def test_each_extra_is_documented_and_tested_before_a_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"docs", "test"}
    assert set(PARTS) == {"", *extras}
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", page.partition("## Extras")[2].partition("\n## ")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall("`(.+?)`", row)} == extras
