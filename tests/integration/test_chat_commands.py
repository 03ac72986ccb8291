"""Commands of the interactive chat, with a real server and a stored conversation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.inner import (
    CUT_OFF,
    Approval,
    ApprovalPolicy,
    ChatSession,
    CommandResult,
    ConfigError,
    Continuation,
    ConversationManager,
    DialClient,
    Event,
    Finished,
    Limits,
    MemoryStore,
    Message,
    ModelProfile,
    Options,
    ScriptedProvider,
    Settings,
    StatusChanged,
    StopReason,
    Turn,
    Usage,
    configuration,
    describe_stop,
    list_command_arguments,
    open_client,
    open_session,
    process_runner,
    run_command,
)
from tests.support.fakes import virtual_time
from tests.support.managed_conversations import ADD, Calculator
from tests.support.program import LONG, entry
from tests.support.servers.skills import write_skill
from tests.support.typed_screen import TypedScreen

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def interrupts() -> None:
    process_runner.interrupts = process_runner.Interrupts()


class Chat:
    """A conversation of a user at a terminal."""

    def __init__(self, session: ChatSession, screen: TypedScreen) -> None:
        self.session, self.screen = session, screen

    async def type(self, line: str, *answers: str) -> CommandResult:
        """Run a command; `answers` reply to its prompts."""
        self.screen.printed.clear()
        self.screen.lines += answers
        return await run_command(line, self.session)

    async def shows(self, line: str, *answers: str) -> str:
        """Return the output of a command."""
        assert await self.type(line, *answers) == CommandResult()
        return self.screen.text

    async def ask(self, question: str | Message | Continuation) -> list[Event]:
        async with aclosing(self.session.ask(question)) as events:
            return [event async for event in events]

    async def read(self) -> list[str]:
        """Return the texts of the conversation."""
        return [message.text for message in (await self.session.manager.get(self.session.require_id())).messages]


@asynccontextmanager
async def chat(
    *replies: Any, settings: Settings | None = None, questions: list[str] | None = None
) -> AsyncIterator[Chat]:
    async def approve(call: Any, tool: Any, context: Any) -> Approval:
        if questions is not None:
            questions.append(tool.tool)
        return Approval("once")

    screen = TypedScreen()
    servers = {"calc": Calculator().server}
    provider = ScriptedProvider([*replies])
    with anyio.fail_after(60):
        async with DialClient(provider, servers=servers, approve=approve, approval=ApprovalPolicy()) as dial:
            manager = ConversationManager(dial, MemoryStore())
            yield Chat(ChatSession(dial, manager, Options(), settings or Settings(), screen), screen)


async def test_commands_that_need_messages_report_an_empty_conversation() -> None:
    async with chat() as person:
        for line in (
            "/undo",
            "/redo",
            "/retry",
            "/edit",
            "/compact",
            "/fork",
            "/copy",
            "/save x",
            "/export",
            "/rename x",
        ):
            assert "there is no question yet" in await person.shows(line), line
        for line in ("/last", "/calls"):
            assert "no tool was called" in await person.shows(line), line
        assert "did you mean /servers?" in await person.shows("/server")
        assert (await person.type("/usr/bin/env is what?")).message == "/usr/bin/env is what?"
        for line in ("/exit", "exit", "Quit", "/q"):
            assert (await person.type(line)).quit, line


async def test_commands_of_other_programs_work_or_name_what_to_type() -> None:
    async with chat() as person:
        assert await person.shows("/mcp") == await person.shows("/servers")
        assert await person.shows("/permissions") == await person.shows("/grants")
        assert await person.shows("?") == await person.shows("/help")
        assert await person.shows("/help mcp") == await person.shows("/help servers")
        assert "here: !dial-chat config shows" in await person.shows("/config")
        assert "here: !dial-chat doctor" in await person.shows("/doctor")


async def test_an_exchange_is_undone_retried_and_edited() -> None:
    async with chat("One.", "Two.", "Two again.", "Three.") as person:
        await person.ask("First?")
        await person.ask("Second?")
        assert "Undone: Second?" in await person.shows("/undo")
        assert await person.read() == ["First?", "One."]
        assert "Two." in await person.shows("/redo")
        result = await person.type("/retry")
        assert isinstance(result.message, Message)
        await person.ask(result.message)
        assert await person.read() == ["First?", "One.", "Second?", "Two again."]
        assert (await person.type("/edit")).draft == "Second?"
        assert await person.read() == ["First?", "One."]
        before = person.session.conversation_id
        assert "copy" in await person.shows("/fork Copy")
        await person.ask("Third?")
        assert await person.read() == ["First?", "One.", "Third?", "Three."]
        assert before is not None
        assert "One." in await person.shows(f"/resume {before[:6]}")
        assert person.session.conversation_id == before


async def test_a_conversation_is_started_found_and_compacted() -> None:
    async with chat("About Tokyo.", "More.", "Tokyo was discussed.") as person:
        await person.ask("Tell me of Tokyo")
        await person.ask("More?")
        first = person.session.conversation_id
        assert "Tokyo was discussed." in await person.shows("/compact")
        assert len(await person.read()) == 3
        assert "whole conversation is back" in await person.shows("/compact undo")
        assert len(await person.read()) == 4
        assert "Nothing of the conversation" in await person.shows("/compact undo")
        await person.shows("/new")
        assert person.session.conversation_id is None
        assert "no conversation 'paris'" in await person.shows("/resume paris")
        assert "Tell me of Tokyo" in await person.shows("/resume tokyo more")
        assert person.session.conversation_id == first


@pytest.mark.parametrize("form", ["md", "json"])
async def test_an_export_has_the_messages_that_were_summarized(tmp_path: Path, form: str) -> None:
    async with chat("About Tokyo.", "More.", "Never mind.", "Tokyo was discussed.") as person:
        for question in ("Tell me of Tokyo", "More?", "Removed?"):
            await person.ask(question)
        await person.shows("/undo")
        await person.shows("/compact")
        file = tmp_path / f"all.{form}"
        assert "Written" in await person.shows(f"/export {file}")
        text = file.read_text()
    assert [words for words in ("About Tokyo.", "More?", "More.") if words not in text] == []
    assert "Tokyo was discussed." not in text, "the summary stands for messages that are here"
    assert "Removed?" not in text


async def test_the_last_exchange_has_the_text_of_a_turn_that_was_just_killed() -> None:
    async with chat("One.") as person:
        await person.ask("First?")
        store, id_ = person.session.manager.store, person.session.require_id()
        await store.acquire(id_, "killed", [Message.user("Write!")], expected_count=3, lease=LONG, title="")
        await store.renew(id_, "killed", LONG, [Message.assistant(f"Once upon a time\n\n{CUT_OFF}")])
        shown = await person.shows(f"/resume {id_}")
        assert "Once upon a time" in shown
        assert "no answer" not in shown
        assert CUT_OFF not in shown, "its program may still be at work"


async def test_the_model_goes_on_after_a_limit() -> None:
    async with chat(ADD, "So far.", ADD, "All is done.") as person:
        person.session.dial.limits = Limits(max_depth=0)
        await person.ask("Work!")
        person.session.dial.limits = Limits()
        assert "/resume ID opens another conversation" in await person.shows("/continue 610ed")
        command = await person.type("/continue")
        assert isinstance(command.message, Continuation)
        finished = (await person.ask(command.message))[-1]
        assert isinstance(finished, Finished)
        assert {record.result.success for record in finished.turn.tool_calls} == {True}
        texts = await person.read()
        assert [text for text in texts if text in ("Work!", "So far.", "All is done.")] == [
            "Work!", "So far.", "All is done.",
        ]  # fmt: skip
        assert not any("before you were done" in text for text in texts), "nobody wrote it: it is not stored"


LINES = [
    (StopReason.MAX_DEPTH, ["stopped: too many rounds of tool calls (limits.maxDepth); /continue goes on"]),
    (StopReason.TIMEOUT, ["stopped: the time for this turn is over (limits.timeout); /continue goes on"]),
    (StopReason.TRUNCATED, ["stopped: the model's answer was cut off; /continue goes on"]),
    (StopReason.REFUSED, ["stopped: the model refused to answer"]),
    (StopReason.ANSWERED, []),
    (StopReason.CANCELLED, []),
]


@pytest.mark.parametrize(("reason", "lines"), LINES, ids=[reason for reason, _ in LINES])
async def test_a_line_says_what_stopped_an_answer_and_how_to_go_on(reason: StopReason, lines: list[str]) -> None:
    turn = Turn(Message.assistant("So far."), (), reason, 0, Usage())
    assert list(describe_stop(turn, "/continue goes on")) == lines
    assert {reason for reason in StopReason if reason.is_limit} == {
        reason for reason in StopReason if "limits." in "".join(describe_stop(replace(turn, stop_reason=reason), ""))
    }


async def test_a_command_is_stopped_by_ctrl_c() -> None:
    async with chat("One.", "Two.", {"text": "Sum", "hang": True}, "Three.") as person:
        for text in ("First?", "Second?"):
            await person.ask(text)
        async with anyio.create_task_group() as group:
            group.start_soon(person.type, "/compact")
            with anyio.fail_after(60):
                while "Summarizing …" not in person.screen.printed:
                    await anyio.lowlevel.checkpoint()
            process_runner.interrupts.interrupt()
        assert "interrupted: nothing was summarized" in person.screen.text
        await person.ask("Third?")
        assert (await person.read())[-1] == "Three."
        assert not process_runner.interrupts.has_scope


async def test_ctrl_c_ends_the_waiting_for_another_program_that_answers_in_the_conversation() -> None:
    async with chat("One.", "Two.") as person:
        await person.ask("First?")
        store, id_ = person.session.manager.store, person.session.require_id()
        assert await store.acquire(
            id_, "of-another-program", [], expected_count=(await store.get(id_)).message_count, lease=60, title=""
        )
        problems: list[Exception] = []

        async def ask() -> None:
            try:
                await person.ask("Second?")
            except process_runner.Interrupted as error:
                problems.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not process_runner.interrupts.has_scope:
                await anyio.lowlevel.checkpoint()
            process_runner.interrupts.interrupt()
        assert [str(error) for error in problems] == ["interrupted: the question was not sent"]
        assert not process_runner.interrupts.leaving.cancel_called
        await store.release(id_, "of-another-program")
        await person.ask("Second?")
        assert (await person.read())[-2:] == ["Second?", "Two."]


async def test_a_question_that_waits_for_another_program_says_so() -> None:
    async with chat("One.", "Two.") as person:
        await person.ask("First?")
        store, id_ = person.session.manager.store, person.session.require_id()
        assert await store.acquire(
            id_, "of-another-program", [], expected_count=(await store.get(id_)).message_count, lease=60, title=""
        )
        async with aclosing(person.session.ask("Second?")) as events:
            first = await anext(events)
            await store.release(id_, "of-another-program")
            rest = [event async for event in events]
        assert first == StatusChanged("Waiting for another program, which answers in this conversation…")
        assert isinstance(rest[-1], Finished)


async def test_a_line_of_calls_fits_the_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "56")
    call = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2, "note": "long " * 20}}]}
    async with chat(call, "Done.") as person:
        await person.ask("Add!")
        assert all(len(line) < 56 for line in (await person.shows("/calls")).splitlines())


async def test_results_and_answers_are_shown_copied_and_saved(tmp_path: Path) -> None:
    async with chat(ADD, "Look:\n```python\nprint(3)\n```", "Second.") as person:
        await person.ask("Add!")
        calls = await person.shows("/calls")
        assert "1 ✓ calc.add(" in calls, "as it stood on the screen while it ran"
        assert "2 ✓ calc.add" in calls
        assert (await person.shows("/last 1")).endswith("3")
        assert (await person.shows("/last")).endswith("7")
        assert "1 to 2" in await person.shows("/last 3")
        await person.ask("More?")
        file = tmp_path / "answer.md"
        assert "Written" in await person.shows(f"/save {file}")
        assert file.read_text() == "Second.\n"
        assert "Not written" in await person.shows(f"/export {file}", "n")
        assert "Written" in await person.shows(f"/export {file}", "y")
        assert file.read_text().startswith("# Add!")
        await person.shows(f"/export {tmp_path / 'talk.json'}")
        assert json.loads((tmp_path / "talk.json").read_text())["format"] == "dial-conversation"
        assert "is a directory" in (await person.shows(f"/save {tmp_path}", "y")).lower()
        assert "cannot be written" in await person.shows("/save ~no-such-user-here/x")
        assert "cannot be written" in await person.shows(f"/export {'b' * 300}")
        assert "there is no answer" in await person.shows(f"/copy {'1' * 5_000}")
        assert "there is no answer '3'" in await person.shows("/copy 3")
        assert "2 questions, 2 tool calls" in await person.shows("/usage")


async def test_the_model_its_instructions_and_its_format_change_between_questions(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(["From the other one."]))
    settings = Settings(models={"small": ModelProfile("small", base_url="http://127.0.0.1:9/v1", context_window=9_000)})
    async with chat("From the first.", settings=settings) as person:
        await person.ask("Who?")
        assert "Model: scripted" in await person.shows(f"/model scripted:{tmp_path / 'other.json'}")
        await person.ask("And now?")
        assert (await person.read())[-1] == "From the other one."
        assert "there is no model 'smal' (did you mean small?)" in await person.shows("/model smal")
        assert "9,000 tokens" in await person.shows("/model small")
        assert "small" in await person.shows("/models")
        assert "Tool format: xml" in await person.shows("/format xml")
        assert "9,000 tokens" in await person.shows("/model")
        assert "one of native" in await person.shows("/format yaml")
        assert "no instructions" in await person.shows("/system")
        assert "Be brief." in await person.shows("/system Be brief.")
        assert person.session.dial.system == "Be brief."
        assert "no instructions" in await person.shows("/system none")
        assert {"small"} <= set(list_command_arguments(person.session)["/model"]())


async def test_skills_are_listed_shown_and_completed(tmp_path: Path) -> None:
    async with chat("a") as person:
        assert "There are no skills" in await person.shows("/skills")
        person.session.dial.use_skills([write_skill(tmp_path, "notes", "Write briefly.", "Writes notes.")])
        assert "notes  Writes notes." in await person.shows("/skills")
        assert "Write briefly." in await person.shows("/skills show notes")
        assert "notes is a skill of this machine" in await person.shows("/skills trust notes")
        assert "/skills show|trust NAME" in await person.shows("/skills remove notes")
        assert "missing name of a skill" in await person.shows("/skill")
        assert list_command_arguments(person.session)["/skill"]() == {"notes": "Writes notes."}


async def test_tools_are_approved_and_denied_for_the_session() -> None:
    questions: list[str] = []
    async with chat(ADD, "a", ADD, "b", ADD, "c", ADD, "d", questions=questions) as person:
        await person.ask("Add!")
        assert questions == ["add", "add"]
        assert "runs without approval until you leave: calc/add" in await person.shows("/approve calc/add")
        await person.ask("Add!")
        assert len(questions) == 2
        assert "did you mean calc/add?" in await person.shows("/approve add")
        assert "is denied until you leave" in await person.shows("/deny calc/*")
        await person.ask("Add!")
        assert all(record.denied for record in person.session.turns[-1].tool_calls)
        shown = await person.shows("/grants")
        assert "deny calc/* (this session)" in shown
        assert "allow calc/add (this session)" in shown
        for pattern in ("calc/*", "calc/add"):
            assert f"revoked: {pattern}" in await person.shows(f"/grants revoke {pattern}")
        await person.ask("Add!")
        assert len(questions) == 4
        assert "no rule and no grant" in await person.shows("/grants revoke calc/*")


async def test_commands_of_the_user_override_the_settings_of_the_conversation() -> None:
    async with chat("One.", "Two.", "Three.") as person:
        await person.ask("1")
        session, provider = person.session, person.session.dial.model.provider
        assert session.conversation_id is not None and isinstance(provider, ScriptedProvider)
        await session.manager.update_settings(session.conversation_id, {"system": "Be rude.", "tool_format": "react"})
        await person.ask("2")
        await person.type("/system Be brief.")
        await person.type("/format native")
        await person.ask("3")
        texts = [[instruction.text for instruction in request.instructions] for request in provider.requests]
    assert [[("Be rude." in text, "Be brief." in text) for text in (texts[1], texts[2])]] == [
        [(True, False), (False, True)]
    ]
    assert [bool(request.tools) for request in provider.requests] == [True, False, True]


async def test_a_nearly_full_window_is_compacted_before_the_question() -> None:
    async with chat("One.", "Two.", "Three.", "A summary.", "Four.") as person:
        for text in ("1 " + "x" * 600, "2", "3"):
            await person.ask(text)
        person.session.dial.model.set_context_window(400)
        events = await person.ask("4")
        assert any(isinstance(event, StatusChanged) and "Summarizing" in event.text for event in events)
        assert "/compact undo restores them" in person.screen.text
        assert (await person.read())[0].endswith("A summary.")
        assert (await person.read())[-2:] == ["4", "Four."]


async def test_the_configuration_is_read_again_and_unchanged_servers_keep_running(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"

    def write(**servers: Any) -> None:
        file.write_text(json.dumps({"mcpServers": servers}))

    write(same=entry("Server"), changed=entry("Server"), gone=entry("Server"))
    settings = configuration.load_config(file)
    screen = TypedScreen()
    with anyio.fail_after(90):
        async with DialClient(servers=settings.servers) as dial:
            options = Options(config=file)
            session = ChatSession(dial, ConversationManager(dial, MemoryStore()), options, settings, screen)
            connections = dict(dial.tool_name_client_map)
            write(same=entry("Server"), changed=entry("Server", toolTimeout=7), new=entry("Server"))
            await run_command("/reload", session)
            assert "1 added, 1 changed, 1 removed, 1 unchanged" in screen.text
            assert set(dial.servers) == {"same", "changed", "new"}
            now = dict(dial.tool_name_client_map)
            kept = [name for name in now if connections.get(name) is now[name]]
            assert {now[name].name for name in kept} == {"same"}
            file.write_text("{")
            await run_command("/reload", session)
            assert "servers.json:1" in screen.text
            assert set(dial.servers) == {"same", "changed", "new"}


async def test_the_context_window_of_a_profile_is_that_of_the_client() -> None:
    settings = Settings(models={"small": ModelProfile("small", context_window=9_000)})
    async with open_client(Options(model="small", no_audit=True), settings, ScriptedProvider([]), None) as dial:
        assert dial.model.window.tokens == 9_000


async def test_resume_without_a_terminal_names_the_list() -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        options = Options(resume="", no_save=True)
        with pytest.raises(ConfigError, match="--no-save"):
            async with open_session(options, Settings(), dial, TypedScreen()):
                pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs asyncio
async def test_the_error_for_an_unusable_database_names_the_option_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path / "file")
    async with DialClient(ScriptedProvider([])) as dial:
        with pytest.raises(ConfigError, match=r"cannot be kept here: .* \(--no-save answers without"):
            async with open_session(Options(), Settings(), dial, TypedScreen()):
                pass


@virtual_time
async def test_the_prompt_does_not_wait_for_a_turn_of_another_program_unless_a_call_waits_for_approval() -> None:
    store = MemoryStore()
    async with DialClient(ScriptedProvider(["Hello."])) as dial:
        made = await store.create("", [])
        question = (Message.user("Hi"),)
        await store.acquire(made.id, "another", question, expected_count=0, lease=3600.0, title="")
        session = ChatSession(dial, ConversationManager(dial, store), Options(), Settings(), TypedScreen(), made.id)
        began = anyio.current_time()
        assert await session.find_waiting() == ()
        assert anyio.current_time() == began
