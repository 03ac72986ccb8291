"""Warnings about patterns of rules that cannot match any tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dial_client import Agent, DialClient
from tests.inner import ApprovalPolicy, PolicyRules, ServerSettings, Transport, check_patterns, load_policy
from tests.support.servers.launch import raw

TIME = ServerSettings("time", Transport.STDIO, "x")
TOOLS = {"time": ("now", "zones"), "slow": None}
EXPECTED: list[tuple[dict[str, Any], list[str]]] = [
    ({"allow": ("time/now", "time/*", "*", "*/now", "slow/anything", "*/anything")}, []),
    ({"allow": ("now",)}, ["--allow 'now' allows nothing: a pattern is SERVER/TOOL, such as 'time/now'"]),
    ({"allow": ("time__now",)}, ["--allow 'time__now' allows nothing: a pattern is SERVER/TOOL, such as 'time/now'"]),
    ({"allow": ("gone",)}, ["--allow 'gone' allows nothing: a pattern is SERVER/TOOL, such as 'SERVER/gone'"]),
    ({"allow": ("mail/*",)}, ["--allow 'mail/*' matches nothing: there is no server 'mail'"]),
    ({"allow": ("time/nwo",)}, ["--allow 'time/nwo' matches no tool of 'time'"]),
    ({"deny": ("time/nwo",)}, ["--deny 'time/nwo' matches no tool of 'time'"]),
    ({"deny": ("mail/*",), "typed": {"mail/*"}}, ["/deny 'mail/*' matches nothing: there is no server 'mail'"]),
    ({"allow": ("time/nwo",), "typed": {"time/nwo"}}, ["/approve 'time/nwo' matches no tool of 'time'"]),
    ({"deny": ("now", "*", "zon*", "read_result", "unknown_as_long_as_one_server_is")}, []),
    ({"policy": [{"deny": "time/nwo"}, {"ask": "time/now"}]}, ["policy rule 1: 'time/nwo' matches no tool of 'time'"]),
    ({"policy": [{"deny": "mail/*"}]}, []),
]


@pytest.mark.parametrize(("options", "expected"), EXPECTED, ids=[str(options) for options, _ in EXPECTED])
def test_a_pattern_that_matches_nothing_has_a_warning(options: dict[str, Any], expected: list[str]) -> None:
    rules = PolicyRules(prefix="--", **(options | {"policy": load_policy(options.get("policy"))}))
    assert list(check_patterns(rules, TOOLS, {"time": TIME, "slow": None})) == expected


def test_a_name_of_no_tool_has_a_warning_once_all_tools_are_known() -> None:
    warnings = list(check_patterns(PolicyRules(deny=("time__now",), prefix="--"), {"time": ("now",)}, {}))
    assert warnings == ["--deny 'time__now' matches no tool: a pattern is SERVER/TOOL, or a tool's own name"]


def test_patterns_of_an_entry_are_checked_against_its_own_tools() -> None:
    entry = replace(TIME, auto_approve=("*", "nwo", "z*"), untrusted=("fetch",))
    assert list(check_patterns(PolicyRules(), TOOLS, {"time": entry})) == [
        "autoApprove of 'time': 'nwo' matches no tool of this server",
        "untrusted of 'time': 'fetch' matches no tool of this server",
    ]
    assert list(check_patterns(PolicyRules(), {"time": None}, {"time": entry})) == []


def test_patterns_of_agents_are_checked_against_the_servers_that_are_there() -> None:
    agents = {"clerk": ("time/nwo", "!time/nwo", "time/*", "gone/*", "Read", "slow/x")}
    assert list(check_patterns(PolicyRules(), TOOLS, {}, agents=agents)) == [
        "agent clerk: 'time/nwo' matches no tool of 'time'",
        "agent clerk: 'time/nwo' matches no tool of 'time'",
    ]


@pytest.mark.anyio
async def test_a_pattern_of_an_agent_that_matches_no_tool_is_a_note_of_the_client() -> None:
    clerk = Agent("clerk", "Does it.", tools=["it/eco"])
    async with DialClient(servers={"it": raw()}, agents=[clerk]) as dial:
        assert list(dial.notes) == ["agent clerk: 'it/eco' matches no tool of 'it'"]
        dial.use_agents([])
        assert list(dial.notes) == []


@pytest.mark.anyio
async def test_warnings_about_patterns_are_notes_of_the_client() -> None:
    async with DialClient(servers={"it": raw()}, approval=ApprovalPolicy(allow=["it/eco"], deny=["it__echo"])) as dial:
        warnings = dial.notes
    assert warnings == (
        "allow 'it/eco' matches no tool of 'it'",
        "deny 'it__echo' matches no tool: a pattern is SERVER/TOOL, or a tool's own name",
    )
