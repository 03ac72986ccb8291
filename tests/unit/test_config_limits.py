"""The limits in servers.json: read, checked, merged, and used by the library and by the programs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from typing import Any

import pytest

from dial_client import ConfigError, DialClient, Limits
from dial_client.testing import ScriptedProvider
from tests.inner import ConfigFile, Options, Settings, build_limits, combine, configuration, read_schema

SCHEMA: dict[str, Any] = json.loads(read_schema())["$defs"]["limits"]


def read(limits: dict[str, Any]) -> Settings:
    return configuration.parse(json.dumps({"limits": limits}))


def test_every_limit_can_be_set_in_a_file_under_the_name_that_the_schema_has() -> None:
    names = {re.sub(r"_(\w)", lambda found: found[1].upper(), each.name): each.name for each in fields(Limits)}
    assert {*SCHEMA["properties"]} == {*names}
    assert read(dict.fromkeys(names, 7)).limits == dict.fromkeys(names.values(), 7)
    usual = {key: getattr(Limits(), name) for key, name in names.items()}
    assert {key: schema["default"] for key, schema in SCHEMA["properties"].items()} == usual


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"maxDepht": 5}, r'limits.maxDepht: unknown limit \(did you mean "maxDepth"\?\)'),
        ({"maxDepth": 101}, "limits.maxDepth: max_depth must be from 0 to 100"),
        ({"maxDepth": 2.5}, "limits.maxDepth: expected a whole number"),
        ({"timeout": 0}, "limits.timeout: timeout must be greater than 0"),
        ({"timeout": "1 m"}, "limits.timeout: expected a finite number"),
        ({"maxParallel": True}, "limits.maxParallel: expected a finite number"),
    ],
    ids=str,
)
def test_a_wrong_limit_is_an_error_with_its_place(limits: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(limits)


def test_a_turn_without_a_limit_of_time_and_a_depth_of_nothing_can_be_set() -> None:
    assert read({"timeout": "none", "max_depth": 0, "maxRepeats": None}).limits == {"timeout": math.inf, "max_depth": 0}


def test_limits_of_a_later_file_replace_those_of_the_same_name() -> None:
    files = [{"limits": {"maxDepth": 5, "timeout": 60}}, {"limits": {"timeout": 30}}]
    settings = combine([ConfigFile(json.dumps(content)) for content in files])
    assert settings.limits == {"max_depth": 5, "timeout": 30}


def test_the_library_takes_the_limits_of_a_file_unless_it_is_given_others() -> None:
    settings = read({"maxDepth": 5})
    model = ScriptedProvider([])
    assert DialClient.from_config(settings, model).limits == Limits(max_depth=5)
    assert DialClient.from_config(settings, model, limits=Limits(timeout=3)).limits == Limits(timeout=3)
    assert DialClient.from_config(read({}), model).limits == Limits(max_depth=10, timeout=120)


TIMES = {"maxDepth": 7, "timeout": 9}
PROGRAMS: list[tuple[str, Options, dict[str, Any], Limits]] = [
    ("nobody can stop it", Options(), {}, Limits(50, timeout=120)),
    ("a service", Options(command="dial-chat serve"), {}, Limits(50, timeout=math.inf)),
    ("the file", Options(), TIMES | {"maxParallel": 2}, Limits(7, timeout=9, max_parallel=2)),
    ("options", Options(max_depth=3, timeout=4, tool_timeout=5), TIMES, Limits(3, timeout=4, tool_timeout=5)),
]


@pytest.mark.parametrize(("options", "limits", "expected"), [row[1:] for row in PROGRAMS], ids=[r[0] for r in PROGRAMS])
def test_programs_have_more_rounds_and_no_limit_of_time_while_a_person_can_stop_them(
    options: Options, limits: dict[str, Any], expected: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert build_limits(options, read(limits)) == expected


def test_at_a_terminal_there_is_no_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert build_limits(Options(), Settings()).timeout == math.inf
    assert build_limits(Options(), read({"timeout": 60})).timeout == 60
