"""Names of called tools that an endpoint sends with parts of the model's own syntax."""

from __future__ import annotations

import pytest

from tests.inner import ToolCallRequest, repair_names

OFFERED = ("add", "calendar_update", "functions_list", "default_api")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("add", "add"),
        ("functions.add", "add"),
        ("functions.add:0", "add"),
        ("default_api:add", "add"),
        ("default_api.add", "add"),
        ("functions::add", "add"),
        ("tools/add", "add"),
        ("add<|channel|>commentary", "add"),
        ("functions.add <|constrain|>json", "add"),
        ("add<\uff5ctool\u2581sep\uff5c>", "add"),
        (" add\n", "add"),
        ("`add`", "add"),
        ("calendar.update", "calendar_update"),
        ("functions.calendar.update", "calendar_update"),
        ("functions_list", "functions_list"),
        ("default_api", "default_api"),
        ("functions.remove", "functions.remove"),
        ("github.add", "github.add"),
        ("", ""),
        ("functions.", "functions."),
        ("functions.list", "functions.list"),
    ],
)
def test_a_name_becomes_that_of_the_offered_tool_if_exactly_one_fits(written: str, name: str) -> None:
    offered = (*OFFERED, "list") if written == "functions.list" else OFFERED
    (call,) = repair_names([ToolCallRequest("1", written, {"a": 1})], offered)

    assert call == ToolCallRequest("1", name, {"a": 1})
