"""Policy rules: what they match, which rule decides, and their syntax."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    ApprovalChecker,
    ConfigError,
    Decision,
    Effect,
    PolicyRules,
    ProposedCall,
    ServerSettings,
    ToolSpec,
    Transport,
    is_rule_met,
    load_policy,
    parse,
)

ENTRY = ServerSettings("files", Transport.STDIO, "files-server")
READ_ONLY = {"readOnlyHint": True}


def proposed(
    arguments: Any = None, *, tool: str = "read", entry: ServerSettings | None = ENTRY, taint: Any = (), **hints: Any
) -> ProposedCall:
    spec = ToolSpec(tool, "", {}, server="files", tool=tool, **hints)
    return ProposedCall(spec, arguments or {}, entry, tuple(taint))


def is_matched(rule: dict[str, Any], call: ProposedCall) -> bool:
    (read,) = load_policy([rule])
    return is_rule_met(read, call)


# --- which rule decides -----------------------------------------------------------------------------


def decides(rules: list[Any], call: ProposedCall, **more: Any) -> tuple[str, str] | None:
    verdict = PolicyRules(policy=load_policy(rules), **more).find_verdict(call)
    return None if verdict is None else (verdict.effect.value, verdict.decided_by)


DECISIONS: list[tuple[list[Any], tuple[str, str] | None]] = [
    ([], None),
    ([{"allow": "mail/*"}], None),
    ([{"allow": "files/*"}, {"ask": "files/*"}], ("allow", "policy rule 1")),
    ([{"ask": "files/*"}, {"allow": "files/*"}], ("ask", "policy rule 1")),
    ([{"allow": "*"}, {"ask": "*"}, {"deny": "read"}], ("deny", "policy rule 3")),
    ([{"allow": ["mail/*", "files/read"]}], ("allow", "policy rule 1")),
    ([{"ask": "read"}], ("ask", "policy rule 1")),
]


@pytest.mark.parametrize(("rules", "expected"), DECISIONS, ids=[json.dumps(rules) for rules, _ in DECISIONS])
def test_the_first_matching_rule_decides_and_any_matching_deny_wins(
    rules: list[Any], expected: tuple[str, str] | None
) -> None:
    assert decides(rules, proposed()) == expected


def test_auto_approve_and_options_decide_if_no_rule_matches() -> None:
    approved = proposed(entry=replace(ENTRY, auto_approve=("read",)))
    assert decides([], approved) == ("allow", "autoApprove of files")
    assert decides([], proposed(), allow=("files/*",)) == ("allow", "allow files/*")
    assert decides([{"ask": "files/*"}], approved, allow=("*",)) == ("ask", "policy rule 1")
    assert decides([{"allow": "*"}], proposed(), deny=("read",)) == ("deny", "deny read")


def test_rules_do_not_apply_to_the_hosts_own_tools_but_options_do() -> None:
    own = ProposedCall(ToolSpec("read_result", "", {}, tool="read_result"))
    assert decides([{"deny": "*"}, {"ask": "*"}], own) is None
    assert decides([], own, deny=("read_result",)) == ("deny", "deny read_result")


def test_auto_approve_of_a_server_is_no_permission_for_a_tool_of_the_host_that_reads_from_it() -> None:
    spec = ToolSpec("read_resource", "", {}, tool="read_resource")
    call = ProposedCall(spec, {"server": "files"}, replace(ENTRY, auto_approve=("*",)))
    assert decides([], call) is None


def test_an_ask_without_an_approver_is_a_denial_with_a_reason() -> None:
    rules = PolicyRules(policy=load_policy([{"ask": "files/*", "reason": "somebody should look"}]), allow=("*",))
    known = ApprovalChecker(rules, None).decide(proposed().spec)
    assert known is not None
    assert known.decision is Decision.DENY
    assert known.decided_by == "no approver"
    assert known.reason == "policy rule 1 asks: somebody should look, and no user is available to approve the call"


# --- arguments --------------------------------------------------------------------------------------

MATCHES: list[tuple[dict[str, Any], Any, bool, bool]] = [
    # condition, value of the argument, whether an allow rule matches, whether a deny rule matches
    ({"to": "*@a.example"}, "me@a.example", True, True),
    ({"to": "*@a.example"}, "me@b.example", False, False),
    ({"to": ["x", "y"]}, "y", True, True),
    ({"to": "*@a.example"}, ["me@a.example", "you@a.example"], True, True),
    ({"to": "*@a.example"}, ["me@a.example", "thief@b.example"], False, True),
    ({"to": "*@a.example"}, [], False, False),
    ({"to": "*@a.example"}, {"address": "me@a.example", "name": "Ada"}, False, True),
    ({"to": "*@a.example"}, "ME@A.EXAMPLE", False, True),
    ({"to": "*@a.example"}, "me@\uff41.example", False, True),
    ({"to": "*@a.example"}, "x\nme@a.example", False, True),
    ({"to": "*@a.example"}, "thief@b.example, me@a.example", False, True),
    ({"to": "*@a.example"}, "thief@b.example;me@a.example", False, True),
    ({"to": "*@a.example"}, {"thief@b.example": "me@a.example"}, False, True),
    ({"to": "thief@*"}, {"thief@b.example": "me@a.example"}, False, True),
    ({"to": "*@a.example,*@a.example"}, "you@a.example,me@a.example", True, True),
    ({"to": "*"}, "Dear all,\nhello; good-bye", True, True),
    ({"to": "5"}, 5, True, True),
    ({"to": "true"}, True, True, True),
    ({"to": "null"}, None, True, True),
    ({"*": "*secret*"}, "a secret", True, True),
    ({"t?": "a"}, "a", True, True),
    ({"cc": "a"}, "a", False, False),
]


@pytest.mark.parametrize(("condition", "value", "allows", "denies"), MATCHES, ids=str)
def test_an_allow_matches_if_every_value_fits_and_a_deny_if_any_value_fits(
    condition: dict[str, Any], value: Any, allows: bool, denies: bool
) -> None:
    call = proposed({"to": value})
    assert is_matched({"allow": "files/*", "arguments": condition}, call) == allows
    assert is_matched({"deny": "files/*", "arguments": condition}, call) == denies
    assert is_matched({"ask": "files/*", "arguments": condition}, call) == denies


def test_a_missing_argument_matches_no_condition() -> None:
    for effect in Effect:
        assert not is_matched({effect.value: "files/*", "arguments": {"to": "*"}}, proposed({"cc": "x"}))
        assert not is_matched({effect.value: "files/*", "paths": {"path": "/"}}, proposed({"to": "/x"}))


def test_all_conditions_of_a_rule_must_hold() -> None:
    rule = {"allow": "files/*", "arguments": {"a": "1", "b": "2"}, "tainted": False}
    assert is_matched(rule, proposed({"a": "1", "b": "2"}))
    assert not is_matched(rule, proposed({"a": "1", "b": "3"}))
    assert not is_matched(rule, proposed({"a": "1", "b": "2"}, taint=["web/fetch"]))


# --- annotations and taint --------------------------------------------------------------------------


def test_annotations_count_only_for_trusted_servers() -> None:
    trusted = ServerSettings("files", Transport.STDIO, "x", trusted=True)
    allow, deny = {"allow": "*", "annotations": READ_ONLY}, {"deny": "*", "annotations": {"destructiveHint": True}}
    reading: dict[str, Any] = {"read_only": True, "destructive": False}
    assert is_matched(allow, proposed(entry=trusted, **reading))
    assert not is_matched(allow, proposed(entry=trusted))
    assert not is_matched(allow, proposed(**reading))
    assert not is_matched(allow, proposed(entry=None, **reading))
    assert not is_matched(deny, proposed(entry=trusted, **reading))
    assert not is_matched(deny, proposed(entry=trusted, destructive=False))
    assert is_matched(deny, proposed(entry=trusted)), "MCP's default"
    assert is_matched(deny, proposed(**reading)), "the claim of an untrusted server does not count"
    assert not is_matched({"allow": "*", "annotations": {"readOnlyHint": False}}, proposed())


@pytest.mark.parametrize(("condition", "taint", "holds"), [(True, "w", True), (True, "", False), (False, "w", False)])
def test_a_rule_can_be_limited_to_tainted_or_to_untainted_conversations(
    condition: bool, taint: str, holds: bool
) -> None:
    assert is_matched({"deny": "*", "tainted": condition}, proposed(taint=taint)) == holds


# --- syntax ------------------------------------------------------------------------------

WRONG: list[tuple[str, str]] = [
    ('{"policy": {}}', "1:12: policy: expected a list, found an object"),
    ('{"policy": [5]}', "1:13: policy[0]: expected an object, found a number"),
    ('{"policy": [{}]}', "1:13: policy[0]: expected one of allow, ask and deny"),
    ('{"policy": [{"allow": "a/b", "deny": "a/b"}]}', "1:13: policy[0]: expected one of allow, ask and deny"),
    ('{"policy": [{"allow": "now"}]}', '(write "SERVER/now" with the name of a server)'),
    (
        '{"policy": [{"allow": ["a/b", "now"]}]}',
        "1:31: policy[0].allow[1]: a pattern that allows a tool must name its server",
    ),
    ('{"policy": [{"deny": []}]}', "1:22: policy[0].deny: expected a pattern of tools"),
    ('{"policy": [{"deny": "a/b", "argument": {}}]}', "has no key 'argument' (did you mean \"arguments\"?)"),
    ('{"policy": [{"deny": "a/b", "arguments": {}}]}', "policy[0].arguments: expected at least one argument"),
    ('{"policy": [{"deny": "a/b", "arguments": {"x": []}}]}', "policy[0].arguments: expected at least one argument"),
    ('{"policy": [{"deny": "a/b", "arguments": {"x": {}}}]}', "arguments.x: expected a glob, or a list of globs"),
    ('{"policy": [{"deny": "a/b", "annotations": {"readOnly": true}}]}', 'did you mean "readOnlyHint"?'),
    ('{"policy": [{"deny": "a/b", "tainted": "yes"}]}', "1:40: policy[0].tainted: expected true or false"),
    (
        '{"policy": [{"deny": "a/b", "paths": {"p": "${NOT_SET_ANYWHERE}"}}]}',
        "the variable NOT_SET_ANYWHERE is not set",
    ),
    ('{"mcpServers": {"git/evil": {"command": "x"}}}', "1:17: mcpServers.git/evil: a server's name cannot contain /"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[text for text, _ in WRONG])
def test_an_invalid_rule_is_reported_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, path="servers.json")
    assert problem in str(error.value)


def test_the_name_of_a_rule_contains_its_number_and_file(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {}, "policy": [{"deny": "*"}, {"_why": "a remark", "ask": "a/*"}]}')
    assert [rule.name for rule in load_policy(file)] == ["rule 1 (servers.json)", "rule 2 (servers.json)"]
    bare = tmp_path / "bare.json"
    bare.write_text('[{"deny": "*"}] // a bare list')
    assert [rule.name for rule in load_policy(bare)] == ["rule 1 (bare.json)"]
    assert load_policy(None) == ()
    assert load_policy({"mcpServers": {}}) == ()


def test_a_missing_policy_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_policy(tmp_path / "none.json")


def test_relative_paths_of_rules_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    text = '{"policy": [{"deny": "*", "paths": {"*": ["~/.ssh", "src", "${workspaceFolder}/x", "/etc", "**/.env"]}}]}'
    (rule,) = parse(text, path=str(tmp_path / "servers.json"), environ={"HOME": "/home/ada"}).policy
    assert rule.paths["*"] == ("/home/ada/.ssh", f"{tmp_path}/src", f"{tmp_path}/x", "/etc", "**/.env")


def test_untrusted_is_true_or_a_list_of_tools() -> None:
    def read(value: str) -> tuple[str, ...]:
        return parse(f'{{"web": {{"command": "x", "untrusted": {value}}}}}').servers["web"].untrusted

    assert (read("true"), read("false"), read('["fetch_*"]')) == (("*",), (), ("fetch_*",))
    with pytest.raises(ConfigError, match="expected true, false or a list of tools, found a string"):
        read('"*"')
