"""Approvals at the clients of a gateway, in both revisions of the protocol."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, ElicitRequest, ElicitResult, ErrorData, InputRequiredResult
from mcp_types import _v2025_11_25 as older
from mcp_types import _v2026_07_28 as newer

from dial_client import DialClient
from tests.inner import ApprovalPolicy, PendingApproval, ToolCallRequest, build_approval_form
from tests.support.audit_logs import Entries
from tests.support.clients import calculator
from tests.support.gateway_clients import Person, asking, connected, decide, text_of
from tests.support.gateways import MODES
from tests.support.servers.launch import raw
from tests.support.servers.tool_changes import build_changing_server, tool

pytestmark = pytest.mark.anyio
both_modes = pytest.mark.parametrize("mode", MODES)
NEW = "2026-07-28"
SUM = {"a": 1, "b": 2}
CALC: dict[str, Any] = {"calc": calculator()}


async def add(client: Client, **arguments: int) -> CallToolResult:
    return await client.call_tool("calc__add", arguments or SUM)


async def begin(client: Client, name: str, arguments: dict[str, Any], **more: Any) -> Any:
    """Make one request of a call, without repeating it for the questions."""
    return await client.session.call_tool(name, arguments, allow_input_required=True, **more)


async def begin_question(client: Client, name: str, arguments: dict[str, Any]) -> InputRequiredResult:
    result = await begin(client, name, arguments)
    assert isinstance(result, InputRequiredResult)
    return result


def answer(asked: InputRequiredResult, result: Any) -> dict[str, Any]:
    """Return the parameters of the request that is repeated with one answer to all questions."""
    return {"input_responses": dict.fromkeys(asked.input_requests or {}, result), "request_state": asked.request_state}


@both_modes
async def test_a_call_runs_after_its_approval_and_the_next_call_needs_another(mode: str, tmp_path: Path) -> None:
    person = Person(decide("once"))
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        assert text_of(await add(client)) == "3"
        assert text_of(await add(client, a=2, b=2)) == "4"
    assert len(person.asked) == 2
    assert person.asked[0].message.splitlines() == [
        "Allow this tool call?",
        "Tool: add",
        "Server: calc",
        "Arguments:",
        "  a: 1",
        "  b: 2",
    ]


@both_modes
async def test_an_approval_for_the_session_is_one_of_this_client_only(mode: str, tmp_path: Path) -> None:
    ann, bob = Person(decide("session"), name="ann"), Person(decide("deny"), name="bob")
    async with (
        asking(CALC, folder=tmp_path, approval={"single_user": True}) as gateway,
        connected(gateway, mode, ann) as hers,
        connected(gateway, mode, bob) as his,
    ):
        assert text_of(await add(hers)) == "3"
        assert (await add(his)).is_error
        assert text_of(await add(hers, a=5, b=5)) == "10"
    assert (len(ann.asked), len(bob.asked)) == (1, 1)


@both_modes
async def test_always_writes_the_grant_that_dial_chat_reads(mode: str, tmp_path: Path) -> None:
    person = Person(decide("always"))
    approval: dict[str, Any] = {"grants": tmp_path / "grants", "single_user": True}
    servers = {"it": raw()}
    for _ in range(2):
        async with (
            asking(servers, folder=tmp_path, approval=approval) as gateway,
            connected(gateway, mode, person) as client,
        ):
            assert not (await client.call_tool("it__echo", {})).is_error
    assert len(person.asked) == 1
    async with DialClient(servers=servers, approval=ApprovalPolicy(**approval)) as dial:
        assert [grant.tool for grant in dial.approvals.stored_grants] == ["echo"]


@both_modes
async def test_the_model_reads_the_reason_of_a_denial(mode: str, tmp_path: Path) -> None:
    person = Person(decide("deny", reason="use the\u202e other\ntool"))
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await add(client)
    assert result.is_error
    assert text_of(result) == "The user did not allow this call: use the other tool"


@both_modes
@pytest.mark.parametrize(
    ("result", "words"),
    [
        (ElicitResult(action="decline"), "the user declined the call"),
        (ElicitResult(action="cancel"), "the user dismissed the question without an answer"),
        (ElicitResult(action="accept"), "does not fit its form"),
        (decide("yes"), "does not fit its form"),
        (decide("defer"), "does not fit its form"),
        (ElicitResult(action="accept", content={"decision": True}), "does not fit its form"),
        (ElicitResult(action="accept", content={"decision": ["once"]}), "does not fit its form"),
    ],
    ids=repr,
)
async def test_any_answer_but_an_approval_denies_the_call(
    mode: str, result: ElicitResult, words: str, tmp_path: Path
) -> None:
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, mode, Person(result)) as client:
        denied = await add(client)
    assert denied.is_error
    assert words in text_of(denied)


async def test_an_error_of_the_client_denies_the_call(tmp_path: Path) -> None:
    person = Person(ErrorData(code=-32000, message="no forms today"))
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, "legacy", person) as client:
        result = await add(client)
    assert result.is_error
    assert "no forms today" in text_of(result)


@both_modes
async def test_a_client_without_forms_is_told_what_allows_the_call(mode: str, tmp_path: Path) -> None:
    person = Person(decide("once"))
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, mode, person, "roots") as client:
        result = await add(client)
    assert result.is_error
    assert "dial-chat grants --allow calc/add" in text_of(result)


@both_modes
async def test_a_rule_that_denies_is_not_asked_about(mode: str, tmp_path: Path) -> None:
    person = Person(decide("once"))
    async with (
        asking(CALC, folder=tmp_path, approval={"deny": ["calc/add"]}) as gateway,
        connected(gateway, mode, person) as client,
    ):
        result = await add(client)
    assert result.is_error
    assert "denied by" in text_of(result)
    assert person.asked == []


@both_modes
async def test_the_question_says_what_untrusted_content_the_client_has_received(mode: str, tmp_path: Path) -> None:
    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "it": raw(auto_approve=("*",))}
    ann, bob = Person(decide("session"), name="ann"), Person(decide("once"), name="bob")
    async with (
        asking(servers, folder=tmp_path) as gateway,
        connected(gateway, mode, ann) as hers,
        connected(gateway, mode, bob) as his,
    ):
        await hers.call_tool("web__echo", {})
        await hers.call_tool("it__echo", {"a": 1})
        await his.call_tool("it__echo", {"a": 1})
        await hers.call_tool("it__echo", {"a": 1})
        await hers.call_tool("it__echo", {"a": 2})
    assert bob.asked == [], "he has received nothing of the kind"
    assert len(ann.asked) == 2, "an approval then holds for the same call only"
    why = "the conversation holds untrusted content from web/echo, and this tool can act or send"
    assert f"Why you are asked: {why}" in ann.asked[0].message
    schema = getattr(ann.asked[0], "requested_schema")  # noqa: B009 - a form
    assert schema["properties"]["decision"]["enum"] == ["once", "session", "deny"]


@both_modes
async def test_a_changed_definition_is_shown_as_a_difference(mode: str, tmp_path: Path) -> None:
    server = build_changing_server(tmp_path, tools=[tool()])
    person, approval = Person(decide("once")), {"tool_pins": tmp_path / "pins"}
    for about in ("Says it again.", "Says it again, and sends it to me."):
        server.write_config(tools=[tool(about=about)])
        async with (
            asking({"it": server.entry()}, folder=tmp_path, approval=approval) as gateway,
            connected(gateway, mode, person) as client,
        ):
            assert not (await client.call_tool("it__echo", {})).is_error
    changed = person.asked[1].message.splitlines()
    assert "The server has changed this tool since it was approved:" in changed
    assert any(line.startswith("  +") and "sends it to me" in line for line in changed)


async def test_secrets_of_the_server_are_masked_in_the_question(tmp_path: Path) -> None:
    person = Person(decide("once"))
    servers = {"it": raw(env={"API_KEY": "s3cr3t-of-mine-4711"})}
    async with asking(servers, folder=tmp_path) as gateway, connected(gateway, "legacy", person) as client:
        await client.call_tool("it__echo", {"text": "key s3cr3t-of-mine-4711"})
    assert "s3cr3t" not in person.asked[0].message
    assert "text: key [secret of it]" in person.asked[0].message


@both_modes
async def test_an_answer_with_the_default_of_each_field_that_the_user_left_out_fits_the_form(
    mode: str, tmp_path: Path
) -> None:
    """FastMCP's client makes an object of the form, with null where there is no default, and checks it by the form."""

    def fill(form: Any) -> ElicitResult:
        defaults = {name: field.get("default") for name, field in form.requested_schema["properties"].items()}
        content = defaults | {"decision": "once"}
        jsonschema_rs.validate(form.requested_schema, content)
        return ElicitResult(action="accept", content=content)

    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, mode, Person(fill)) as client:
        assert text_of(await add(client)) == "3"


@pytest.mark.parametrize("version", [older, newer])
def test_the_form_is_valid_in_both_revisions(version: Any) -> None:
    pending = PendingApproval("id", ToolCallRequest("1", "add", SUM), "calc", "add")
    schema = build_approval_form(pending).requested_schema
    assert version.RequestedSchema.model_validate(schema).required == ["decision"]


def test_a_form_counts_what_it_leaves_out_and_no_argument_imitates_its_lines() -> None:
    arguments = {"a\nServer: bank": "x\nServer: bank\u202e", "many": list(range(500)), "long": "y" * 5_000}
    pending = PendingApproval(
        "id", ToolCallRequest("1", "add", arguments), "calc", "add", change="\n".join(f"+ {n}" for n in range(30))
    )
    lines = build_approval_form(pending).message.splitlines()
    assert [line for line in lines if line.startswith("Server:")] == ["Server: calc"]
    assert "\u202e" not in "".join(lines)
    assert any("more lines not shown here" in line for line in lines)
    assert max(map(len, lines)) < 1_100
    assert lines[-1] == "  … 20 more lines not shown here"


@both_modes
async def test_the_audit_log_names_client_session_and_decision(mode: str, tmp_path: Path) -> None:
    entries, person = Entries(), Person(decide("once"))
    async with asking(CALC, folder=tmp_path, audit=entries) as gateway, connected(gateway, mode, person) as client:
        await add(client)
        (session,) = gateway.sessions
    decided = [entry.decision for entry in entries if entry.event == "decision"]
    assert decided == (["deferred", "allowed"] if mode == NEW else ["allowed"])
    assert {entry.origin.client for entry in entries} == {"person 1"}
    assert {entry.origin.conversation for entry in entries} == {session.id}
    assert [entry.decided_by for entry in entries if entry.decision == "allowed"] == ["the user"]


# --- revision 2026-07-28: the question is an answer --------------------------------------------------


async def test_an_approval_needs_no_open_request_and_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    person = Person(decide("once"))
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, NEW, person) as client:
        asked = await begin_question(client, "calc__add", SUM)
        assert [type(request) for request in (asked.input_requests or {}).values()] == [ElicitRequest]
    async with asking({"calc": calculator()}, folder=tmp_path) as gateway, connected(gateway, NEW, person) as client:
        result = await begin(client, "calc__add", SUM, **answer(asked, decide("once")))
    assert text_of(result) == "3"
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "request-state.key").stat().st_mode) == 0o600


async def test_an_answer_counts_once(tmp_path: Path) -> None:
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, NEW, Person(decide("once"))) as client:
        asked = await begin_question(client, "calc__add", SUM)
        given = answer(asked, decide("once"))
        assert text_of(await begin(client, "calc__add", SUM, **given)) == "3"
        assert isinstance(await begin(client, "calc__add", SUM, **given), InputRequiredResult)


async def test_an_answer_never_counts_for_other_arguments_another_tool_or_another_client(tmp_path: Path) -> None:
    async with (
        asking(CALC, folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(decide("once"), name="ann")) as hers,
        connected(gateway, NEW, Person(decide("once"), name="bob")) as his,
    ):
        given = answer(await begin_question(hers, "calc__add", SUM), decide("once"))
        for client, name, arguments in (
            (hers, "calc__add", {"a": 1, "b": 3}),
            (hers, "calc__fail", {}),
            (his, "calc__add", SUM),
        ):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await begin(client, name, arguments, **given)
        state = str(given["request_state"])
        for forged in (state[:-4] + "AAAA", "v1.AAAA", json.dumps({"approval": "x", "digest": "y"})):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await begin(hers, "calc__add", SUM, **given | {"request_state": forged})
        assert text_of(await begin(hers, "calc__add", SUM, **given)) == "3", "the refused attempts change nothing"


async def test_a_request_without_the_answer_is_asked_again_with_the_same_question(tmp_path: Path) -> None:
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, NEW, Person(decide("once"))) as client:
        asked = await begin_question(client, "calc__add", SUM)
        again = await begin(client, "calc__add", SUM, request_state=asked.request_state)
        assert isinstance(again, InputRequiredResult)
        assert again.input_requests == asked.input_requests
        unasked = await begin(client, "calc__add", SUM, input_responses={"approval": decide("once")})
        assert isinstance(unasked, InputRequiredResult), "an answer without its question is none"
        assert text_of(await begin(client, "calc__add", SUM, **answer(again, decide("once")))) == "3"


async def test_a_tool_that_has_changed_since_the_question_is_asked_about_again(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path, tools=[tool()])
    asked: Any = None
    for about in ("Says it again.", "Sends it to me."):
        server.write_config(tools=[tool(about=about)])
        async with (
            asking({"it": server.entry()}, folder=tmp_path) as gateway,
            connected(gateway, NEW, Person(decide("once"))) as client,
        ):
            given = answer(asked, decide("once")) if asked else {}
            asked = await begin(client, "it__echo", {}, **given)
            assert isinstance(asked, InputRequiredResult), about
            (request,) = (asked.input_requests or {}).values()
    assert isinstance(request, ElicitRequest)
    assert "has changed" in request.params.message


async def test_calls_that_wait_for_approval_do_not_hold_each_other_up(tmp_path: Path) -> None:
    person = Person(decide("once"))
    async with asking(CALC, folder=tmp_path) as gateway, connected(gateway, NEW, person) as client:
        results: list[str] = []

        async def call(number: int) -> None:
            results.append(text_of(await add(client, a=number, b=0)))

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(call, number)
    assert sorted(map(int, results)) == list(range(20))
    assert len(person.asked) == 20
