"""`dial-chat --schema FILE`: answers as JSON for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import dial_chat, write_config

pytestmark = pytest.mark.once

SCHEMA = {"type": "object", "properties": {"people": {"type": "integer"}}, "required": ["people"]}


def ask(folder: Path, replies: list[Any], *options: str, schema: str | None = None) -> Any:
    write_config(folder, {}, replies)
    (folder / "schema.json").write_text(json.dumps(SCHEMA) if schema is None else schema, encoding="utf-8")
    return dial_chat(folder, "--no-save", "--schema", "schema.json", *options, "How many?")


def test_only_the_answer_is_on_standard_output(tmp_path: Path) -> None:
    ran = ask(tmp_path, ["About 28.", 'It is {"people": "28"}.'])
    assert (ran.returncode, ran.stdout) == (0, '{"people": 28}\n')
    assert "was returned to the model" in ran.stderr


def test_an_invalid_answer_is_not_on_standard_output(tmp_path: Path) -> None:
    ran = ask(tmp_path, ["About 28."] * 3)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "the model answered: About 28." in ran.stderr
    assert "not of the requested form" in ran.stderr


def test_the_json_output_has_the_answer_in_its_output_field(tmp_path: Path) -> None:
    ran = ask(tmp_path, ['{"people": 28}'], "--output", "json")
    turn = json.loads(ran.stdout)
    assert (turn["output"], turn["text"]) == ({"people": 28}, '{"people": 28}')


def test_an_invalid_schema_file_is_an_error_with_its_place(tmp_path: Path) -> None:
    ran = ask(tmp_path, [], schema='{"type":\n 3,}')
    assert ran.returncode == 2
    assert "schema.json:2:4: this is not JSON" in ran.stderr
