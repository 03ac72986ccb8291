"""Servers with ``perUser``: each person has credentials, a session and tools of their own, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, ServerChanged
from dial_client.testing import ScriptedProvider
from tests.inner import ConversationManager, MemoryStore, Message, Regeneration, ServerState, separate_sessions
from tests.support.clients import call
from tests.support.program import LONG, python_server
from tests.support.servers.launch import HERE, is_alive, until, web_server
from tests.support.servers.whose import APP, name

pytestmark = pytest.mark.anyio

SECRETS = {"anna": "anna-secret-4f9a8c21", "bob": "bob-secret-77d1e0b3"}


class Given:
    """Credentials that a test gives and takes back."""

    hint = "ask the test"

    def __init__(self, **given: str) -> None:
        self.given = given
        self.asked: list[tuple[str, str, str]] = []

    async def find(self, owner: str, server: str, name: str) -> str | None:
        self.asked.append((owner, server, name))
        return self.given.get(owner)


def entry(log: Path | None = None, **more: Any) -> dict[str, Any]:
    options = ["stdio", *([str(log)] if log is not None else [])]
    return python_server(HERE / "whose.py", *options, env={"TOKEN": "${user.TOKEN}"}, autoApprove=["*"], **more)


@asynccontextmanager
async def client(
    *replies: Any, given: Given | None = None, servers: dict[str, Any], **options: Any
) -> AsyncIterator[DialClient]:
    model = ScriptedProvider(list(replies), after="error")
    options |= {"credentials": given or Given(**SECRETS), "guidance": ""}
    with anyio.fail_after(LONG):
        async with DialClient(model, servers=servers, **options) as dial:
            dial.provider = model  # type: ignore[attr-defined]
            yield dial


async def ask(dial: DialClient, owner: str, tool: str = "whoami") -> str:
    result = await dial.call(tool, {}, owner=owner)
    return str(result.content if result.success else result.error)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_each_person_has_a_session_with_their_own_credential_everywhere(transport: str) -> None:
    with web_server("whose.py", "http") as url:
        of_http = {"url": f"{url}/mcp", "headers": {"Authorization": "Bearer ${user.TOKEN}"}, "autoApprove": ["*"]}
        replies = [call("whoami"), "Done."] * 2
        async with client(*replies, servers={"it": of_http if transport == "http" else entry()}) as dial:
            answers: dict[str, list[str]] = {}
            for owner in SECRETS:
                turn = await dial.run("Who am I?", owner=owner)
                answers[owner] = [str(turn.tool_calls[0].result.content), await ask(dial, owner)]
                with dial.act_for(owner):
                    (read,) = await dial.resources.read("it", "whose://me")
                    (message,) = await dial.prompts.get("it", "greet")
                    app = await dial.apps.read("it", APP)
                    listed = await dial.resources.templates("it")
                answers[owner] += [str(read.text), message.text, app.html]
                assert {item.uri_template for item in listed} == {"whose://{what}", "ui://whose/{page}"}
    for owner, secret in SECRETS.items():
        assert all(name(secret) in answer for answer in answers[owner])


async def test_a_person_is_offered_only_the_tools_that_the_server_lists_for_them() -> None:
    async with client("Hello.", "Hello.", servers={"it": entry()}) as dial:
        for owner in SECRETS:
            await dial.run("Hello.", owner=owner)
        offered = {}
        for owner in ("anna", "bob", "eve", ""):
            with dial.act_for(owner):
                offered[owner] = {tool.name for tool in dial.tools}
    of_anna, of_bob = (name(secret) for secret in SECRETS.values())
    assert offered["anna"] == {"whoami", "leak", "stay", of_anna}
    assert offered["bob"] == {"whoami", "leak", "stay", of_bob}
    assert offered["eve"] == offered[""] == set()


async def test_without_credentials_no_session_starts_and_the_model_is_told_how_they_are_filled_in(
    tmp_path: Path,
) -> None:
    log = tmp_path / "starts"
    async with client("I cannot.", "Neither.", servers={"crm": entry(log)}) as dial:
        turn = await dial.run("Who am I?", owner="eve")
        with dial.act_for("eve"):
            status = dial.servers["crm"]
        await dial.run("Who am I?")
        requests = dial.provider.requests  # type: ignore[attr-defined]
    assert (status.state, status.tools) == (ServerState.NEEDS_CREDENTIALS, ())
    assert any("TOKEN" in note and "ask the test" in note for note in turn.notes)
    for request in requests:
        instructions = "\n".join(item.text for item in request.instructions)
        assert "- crm: it needs credentials of this person: TOKEN; ask the test" in instructions
    assert not log.exists()


async def test_a_conversation_has_the_note_about_missing_credentials_once_and_each_version_of_an_answer_has_one() -> (
    None
):
    async with client(*["I cannot."] * 5, servers={"crm": entry()}) as dial:
        manager = ConversationManager(dial, MemoryStore()).for_owner("eve")
        conversations = [(await manager.create()).id for _ in range(2)]
        counts: list[int] = []
        for id_, question in (
            (conversations[0], Message.user("Who am I?")),
            (conversations[0], Message.user("And now?")),
            (conversations[0], Regeneration()),
            (conversations[1], Message.user("Who am I?")),
            (conversations[1], Regeneration()),
        ):
            turn = await (await manager.start(id_, question)).result()
            counts.append(sum("not available to this person" in note for note in turn.notes))
        stored = [len(details.get("notes", ())) for _, details in (await manager.view(conversations[0])).turns]
    assert counts == [1, 0, 0, 1, 1]
    assert stored == [1, 0]


async def test_a_value_that_is_taken_back_closes_the_session_and_a_new_one_opens_another(tmp_path: Path) -> None:
    log, given = tmp_path / "starts", Given(**SECRETS)
    async with client(given=given, servers={"it": entry(log)}) as dial:
        first = await ask(dial, "anna")
        of_bob = await ask(dial, "bob")
        del given.given["anna"]
        refused = await ask(dial, "anna")
        await until(lambda: not is_alive(int(first.split()[1])))
        given.given["anna"] = "another-secret-1"
        second = await ask(dial, "anna")
        assert await ask(dial, "bob") == of_bob
    assert "needs credentials" in refused
    assert second.split()[0] == name("another-secret-1")
    assert len(log.read_text().split()) == 3


async def test_a_session_that_was_idle_leaves_the_tools_on_offer_and_the_next_call_opens_another() -> None:
    async with client(servers={"it": entry()}) as dial:
        first = await ask(dial, "anna")
        with dial.act_for("anna"):
            dial.parts.servers["it"].separate.end(owner="anna")  # as after `SEPARATE_SECONDS`
            await until(lambda: dial.servers["it"].state is ServerState.SLEEPING)
            offered = {tool.name for tool in dial.tools}
        second = await ask(dial, "anna")
    assert name(SECRETS["anna"]) in offered
    assert first.split()[0] == second.split()[0]
    assert first != second


async def test_when_all_sessions_are_in_use_a_call_says_so_and_an_idle_session_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(separate_sessions, "MAX_SEPARATE", 1)
    results: list[str] = []
    async with client(servers={"it": entry()}) as dial:
        await ask(dial, "bob")

        async def stay() -> None:
            answer = await dial.call("stay", {"folder": str(tmp_path)}, owner="anna")
            results.append(str(answer.content))

        async with anyio.create_task_group() as group:
            group.start_soon(stay)
            await until((tmp_path / "here").exists)
            refused = await ask(dial, "bob")
            (tmp_path / "leave").touch()
        afterwards = await ask(dial, "bob")
    assert "all in use: make the call again later" in refused
    assert results == ["left"]
    assert afterwards.startswith(name(SECRETS["bob"]))


async def test_another_person_learns_nothing_of_the_state_of_a_server_during_a_turn() -> None:
    used = anyio.Event()

    async def wait() -> str:
        """Wait until somebody else has used the server."""
        await used.wait()
        return "done"

    given = Given(anna=SECRETS["anna"])
    async with client(call("wait"), "Done.", given=given, servers={"it": entry()}, tools=[wait]) as dial:
        turn = dial.start("Wait.", owner="bob", stream_events=False)
        assert (await ask(dial, "anna")).startswith(name(SECRETS["anna"]))
        used.set()
        await turn.result()
        events = [event async for _, event in turn.log.events()]
    assert [event for event in events if isinstance(event, ServerChanged)] == []


async def test_a_credential_is_masked_in_what_the_server_says(tmp_path: Path) -> None:
    given = Given(anna="four words of mine")  # no heuristics would take it for a secret
    async with client(given=given, servers={"it": entry()}) as dial:
        answer = await ask(dial, "anna", "leak")
    assert "[secret of it]" in answer
    assert "words" not in answer


async def test_a_server_without_credentials_has_a_session_for_each_person_if_its_entry_says_so() -> None:
    plain = python_server(HERE / "whose.py", "stdio", autoApprove=["*"], perUser=True)
    async with client(servers={"it": plain}) as dial:
        processes = [(await ask(dial, owner)).split()[1] for owner in ("anna", "bob", "anna", "", "eve")]
    assert processes[0] == processes[2]
    assert len({*processes}) == 4


async def test_without_a_provider_the_one_person_fills_in_variables_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    async with DialClient(servers={"it": entry()}) as dial:
        missing = dial.servers["it"]
    monkeypatch.setenv("TOKEN", "mine-alone-12345")
    async with DialClient(servers={"it": entry()}) as dial:
        own, of_anna = await ask(dial, ""), await ask(dial, "anna")
    assert missing.state is ServerState.FAILED
    assert missing.error == "it needs credentials: set the variables TOKEN in the environment"
    assert own.split()[0] == name("mine-alone-12345")
    assert of_anna.startswith("There is no tool"), "the variables of the program are nobody else's"


async def test_a_provider_that_fails_gives_an_error_without_its_words() -> None:
    class Failing(Given):
        async def find(self, *_: str) -> str | None:
            raise RuntimeError("the secret is 1234567")

    async with client(given=Failing(), servers={"it": entry()}) as dial:
        answer = await ask(dial, "anna")
    assert "1234567" not in answer
