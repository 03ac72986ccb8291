"""What servers ask the clients of a gateway: elicitation, sampling and roots, in both revisions on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import (
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    RootsListChangedNotification,
)

from dial_client.testing import ScriptedProvider
from tests.inner import PROGRESS_SECONDS, extract_text
from tests.support.clients import calculator
from tests.support.fakes import virtual_time
from tests.support.gateway_clients import Person, asking, connected, decide, text_of
from tests.support.gateways import MODES
from tests.support.program import LONG, python_server
from tests.support.servers import questions
from tests.support.servers.launch import HERE, is_alive, raw, until

pytestmark = pytest.mark.anyio

ERAS = ("legacy", "auto")
both_modes = pytest.mark.parametrize("mode", MODES)
both_eras = pytest.mark.parametrize("era", ERAS)
YES = ElicitResult(action="accept", content={"yes": True})


async def read_outcome(client: Client, tool: str, *, is_error: bool = True) -> str:
    """Return the text of a call: of its result, or of an error of the protocol."""
    try:
        result = await client.call_tool(tool)
    except MCPError as error:
        return f"{error.message} {error.data}"
    assert result.is_error is is_error
    return text_of(result)


def shop(era: str) -> dict[str, Any]:
    """Return a server that asks, and speaks one of the revisions."""
    return {"shop": python_server(HERE / "questions.py", protocol=era)}


@both_eras
@both_modes
async def test_a_form_reaches_the_client_whose_call_led_to_it(era: str, mode: str, tmp_path: Path) -> None:
    person = Person(YES)
    async with asking(shop(era), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        with anyio.fail_after(LONG):
            result = await client.call_tool("shop__returns")
    assert text_of(result) == "action='accept' data=Sure(yes=True)"
    (form,) = person.asked
    assert isinstance(form, ElicitRequestFormParams)
    assert form.message == "shop asks: Sure?"
    assert form.requested_schema["properties"] == {"yes": {"default": True, "title": "Yes", "type": "boolean"}}


@both_eras
@both_modes
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_server_is_told_what_the_person_did(era: str, mode: str, action: Any, tmp_path: Path) -> None:
    person = Person(ElicitResult(action=action))
    async with asking(shop(era), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__returns")
    assert action in text_of(result)


@both_eras
@both_modes
async def test_a_model_of_the_client_answers_a_sampling_request(era: str, mode: str, tmp_path: Path) -> None:
    person = Person(YES)
    async with asking(shop(era), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__samples_too")
    assert text_of(result) == "a word of person"
    (request,) = person.sampled
    assert request.max_tokens == 50


@both_eras
@both_modes
async def test_the_roots_are_those_of_the_client(era: str, mode: str, tmp_path: Path) -> None:
    person = Person(YES)
    async with asking(shop(era), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__roots")
    assert text_of(result) == "person=file:///person"


@both_eras
@both_modes
async def test_configured_roots_take_the_place_of_those_of_the_client(era: str, mode: str, tmp_path: Path) -> None:
    person = Person(YES)
    servers = {"shop": {**shop(era)["shop"], "roots": ["file:///configured"]}}
    async with asking(servers, "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__roots")
    assert text_of(result) == "configured=file:///configured"
    assert person.roots_asked == 0


@both_modes
async def test_a_url_is_handed_on_with_an_id_that_only_the_gateway_gives(mode: str, tmp_path: Path) -> None:
    person = Person(ElicitResult(action="accept"))
    async with asking(shop("legacy"), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__page")
    assert text_of(result) == "accept"
    (asked,) = person.asked
    assert isinstance(asked, ElicitRequestURLParams)
    assert (asked.url, asked.message) == (questions.PAGE, "shop asks: Log in, please.")
    assert asked.elicitation_id != "7"
    assert (asked.elicitation_id is None) == (mode == "2026-07-28")


@both_modes
async def test_a_call_that_requires_a_url_is_repeated_once_the_person_has_agreed(mode: str, tmp_path: Path) -> None:
    person = Person(ElicitResult(action="accept"))
    async with asking(shop("legacy"), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__behind_a_page", {"tell": True})
    assert text_of(result) == "welcome"
    assert len(person.asked) == 1


@both_modes
async def test_a_url_that_opens_a_program_is_declined_unasked(mode: str, tmp_path: Path) -> None:
    person = Person(ElicitResult(action="accept"))
    async with asking(shop("legacy"), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__page", {"url": "file:///etc/passwd"})
    assert text_of(result) == "decline"
    assert person.asked == []


@both_eras
@both_modes
async def test_a_server_learns_what_the_client_lacks(era: str, mode: str, tmp_path: Path) -> None:
    async with (
        asking(shop(era), "*", folder=tmp_path) as gateway,
        connected(gateway, mode, Person(YES), "roots") as client,
    ):
        answers = [await read_outcome(client, f"shop__{tool}") for tool in ("returns", "samples_too")]
        assert "person" in text_of(await client.call_tool("shop__roots"))
    if era == "legacy":
        assert all("The client does not support" in text for text in answers)
    else:  # the server has read in the call itself what the client lacks
        assert "{'requiredCapabilities': {'elicitation': {'form': {}}}}" in answers[0]
        assert "{'requiredCapabilities': {'sampling': {}}}" in answers[1]


@both_eras
@both_modes
async def test_an_error_of_the_client_is_an_error_for_the_server(era: str, mode: str, tmp_path: Path) -> None:
    person = Person(ErrorData(code=-32000, message="no form today"))
    async with asking(shop(era), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        with pytest.raises(MCPError, match="no form today"):
            await client.call_tool("shop__returns")


@both_modes
async def test_several_questions_of_one_call_follow_each_other(mode: str, tmp_path: Path) -> None:
    person = Person(YES)
    async with asking(shop("legacy"), "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        result = await client.call_tool("shop__many", {"times": 5})
    assert text_of(result) == "5 asked, at last: accept"


@both_eras
@both_modes
async def test_the_questions_of_two_clients_never_cross(era: str, mode: str, tmp_path: Path) -> None:
    ann, bob = (Person(YES, name=name) for name in ("ann", "bob"))
    tools = {"returns": "accept", "samples_too": "a word of {}", "roots": "{0}=file:///{0}"}
    done: list[str] = []
    async with (
        asking(shop(era), "*", folder=tmp_path) as gateway,
        connected(gateway, mode, ann) as hers,
        connected(gateway, mode, bob) as his,
    ):

        async def work(client: Any, name: str) -> None:
            for _ in range(3):
                for tool, answer in tools.items():
                    text = text_of(await client.call_tool(f"shop__{tool}"))
                    assert answer.format(name) in text, f"{name}: {text}"
                    done.append(name)

        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                for client, name in ((hers, "ann"), (his, "bob")) * 2:
                    group.start_soon(work, client, name)
    assert sorted(done) == ["ann"] * 18 + ["bob"] * 18
    for person in (ann, bob):
        assert len(person.asked) == len(person.sampled) == person.roots_asked == 6


@both_modes
async def test_a_server_per_client_has_a_session_for_each_client_with_the_roots_of_the_client(
    mode: str, tmp_path: Path
) -> None:
    """A server of the older revision asks for roots at its start, outside of calls."""
    ann, bob = (Person(YES, name=name) for name in ("ann", "bob"))
    servers = {"it": raw("WantsRoots", auto_approve=("*",), per_client=True)}
    texts: dict[str, list[str]] = {"ann": [], "bob": [], "nobody": []}
    async with asking(servers, folder=tmp_path) as gateway, anyio.create_task_group() as group:

        async def work(person: Person, name: str, *features: str) -> None:
            async with connected(gateway, mode, person, *features) as client:
                for _ in range(2):
                    texts[name].append(text_of(await client.call_tool("it__echo")))

        group.start_soon(work, ann, "ann")
        group.start_soon(work, bob, "bob")
        group.start_soon(work, Person(YES, name="nobody"), "nobody", "elicitation")
    for person in (ann, bob):
        assert [f"file:///{person.name}" in text for text in texts[person.name]] == [True, True]
        assert person.roots_asked == 1, "it is the same session"
    assert not any("file:///" in text for text in texts["nobody"])


async def test_the_session_of_a_client_ends_with_the_client_and_the_shared_one_does_not(tmp_path: Path) -> None:
    async def read_pid(client: Client) -> int:
        return int(json.loads(text_of(await client.call_tool("it__echo")))["pid"])

    servers = {"it": raw("ShowsItself", auto_approve=("*",), per_client=True)}
    async with asking(servers, folder=tmp_path) as gateway:
        shared = json.loads(extract_text((await gateway.dial.call("echo", {})).content))["pid"]
        async with connected(gateway, "legacy", Person(YES)) as client:
            own = await read_pid(client)
            async with connected(gateway, "legacy", Person(YES)) as neighbour:
                assert len({shared, own, await read_pid(neighbour), await read_pid(client)}) == 3
        await until(lambda: not is_alive(own))
        assert is_alive(shared)


# --- one call for a long time, the host's own model, and requests outside of calls --------------------


@virtual_time
async def test_a_caller_hears_that_its_call_is_alive_while_a_person_thinks(tmp_path: Path) -> None:
    async def think(context: Any, params: Any) -> Any:
        await anyio.sleep(PROGRESS_SECONDS * 3 + 1)
        return decide("once")

    values: list[float] = []

    async def record(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        values.append(progress)

    async with (
        asking({"calc": calculator()}, folder=tmp_path) as gateway,
        Client(gateway.server, mode="legacy", elicitation_callback=think) as client,
    ):
        result = await client.call_tool("calc__add", {"a": 1, "b": 2}, progress_callback=record)
    assert text_of(result) == "3"
    assert len(values) == 3
    assert values == sorted(set(values)), "each is more than the one before"


@virtual_time
async def test_a_person_who_never_answers_denies_the_call(tmp_path: Path) -> None:
    async def sleep(context: Any, params: Any) -> Any:
        await anyio.sleep_forever()
        raise AssertionError

    async with (
        asking({"calc": calculator()}, folder=tmp_path) as gateway,
        Client(gateway.server, mode="legacy", elicitation_callback=sleep) as client,
    ):
        result = await client.call_tool("calc__add", {"a": 1, "b": 2})
    assert result.is_error
    assert "timed out" in text_of(result)


@both_modes
@pytest.mark.parametrize("consent", ["once", "deny"])
async def test_the_hosts_own_model_answers_for_a_client_without_sampling_after_consent(
    mode: str, consent: str, tmp_path: Path
) -> None:
    person = Person(decide(consent))
    async with (
        asking(
            {"shop": questions.make()},
            "shop/*_too",
            folder=tmp_path,
            callbacks={"sample": "model"},
            model=ScriptedProvider(["a word of the host"]),
        ) as gateway,
        connected(gateway, mode, person, "elicitation") as client,
    ):
        text = await read_outcome(client, "shop__samples_too", is_error=consent == "deny")
    assert ("a word of the host" in text) == (consent == "once")
    (form,) = person.asked
    assert form.message.startswith("shop asks for an answer of the host's own model.\nRequest:\n")
    assert "A word?" in form.message


@both_modes
async def test_the_only_client_is_asked_for_its_roots_outside_of_calls_too(mode: str, tmp_path: Path) -> None:
    person = Person(YES, name="ann")
    async with (
        asking({"it": raw("WantsRoots", auto_approve=("*",))}, folder=tmp_path, is_single=True) as gateway,
        connected(gateway, mode, person) as client,
    ):
        first = text_of(await client.call_tool("it__echo"))
        if mode == "legacy":
            assert "file:///ann" in first
            person.name = "anna"
            await client.session.send_notification(RootsListChangedNotification())
            with anyio.fail_after(LONG):
                while "anna" not in text_of(await client.call_tool("it__echo")):  # noqa: ASYNC110 - it asks again
                    await anyio.sleep(0.01)
        else:
            assert "does not support roots now" in first, "there is no request outside of calls any more"


async def test_with_several_clients_none_is_asked_for_its_roots_outside_of_calls(tmp_path: Path) -> None:
    person = Person(YES, name="ann")
    async with (
        asking({"it": raw("WantsRoots", auto_approve=("*",))}, folder=tmp_path) as gateway,
        connected(gateway, "legacy", person) as client,
    ):
        assert text_of(await client.call_tool("it__echo")) == '{"roots": []}'
    assert person.roots_asked == 0
