"""The names that a program leaves for the next one: stored with the conversation, sealed, bounded, and untrusted."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import (
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    ConversationManager,
    DialClient,
    EditedMessage,
    Limits,
    Message,
    SQLStore,
    StopReason,
    ToolCallRequest,
    ToolSpec,
    Turn,
)
from dial_client.testing import ScriptedProvider
from tests.inner import KeptNames, sandbox, to_dict
from tests.support.code_mode import later, program
from tests.support.http_service import serve
from tests.support.kept_program import KeptJob
from tests.support.program import dial_chat, write_config
from tests.support.servers.launch import raw

pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("keys")]

LARGE = "rows = [str(n) * 100 for n in range(4_000)]"


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


keep_names = partial(program, keep=True)


def open_client(*replies: Any, tools: Sequence[Any] = (add,), **options: Any) -> DialClient:
    return DialClient(ScriptedProvider(list(replies)), tools=tools, tool_format="code", **options)


async def turn_of(*sources: str | dict[str, Any], **options: Any) -> Turn:
    """Return a turn whose model writes these programs with ``keep``, one after the other."""
    calls = [
        keep_names(source, f"call_{i}") if isinstance(source, str) else source for i, source in enumerate(sources, 1)
    ]
    async with open_client(*calls, "Done.", **options) as dial:
        return await dial.run("go on")


def answers_of(turn: Turn) -> list[str]:
    """Return what the model reads of each program of a turn."""
    return [str(record.result.content) for record in turn.tool_calls if record.call.name == "run_code"]


async def test_the_next_program_begins_with_the_variables_functions_and_imports_of_the_last() -> None:
    turn = await turn_of(
        "import json\nrows = [await add(a=1)]\nasync def twice(n):\n    return await add(a=n, b=n)",
        "rows.append(await twice(4))\njson.dumps(rows)",
    )
    assert answers_of(turn) == ["(no output)", "[1, 8]"]


async def test_nothing_is_kept_unless_both_programs_ask_for_it() -> None:
    plain = program("x = 2", "call_2")
    turn = await turn_of("x = 1", plain, program("x", "call_3"), "x")
    assert "Name `x` used when not defined" in answers_of(turn)[2]
    assert answers_of(turn)[3] == "1"


async def test_the_names_are_there_in_the_next_turn_of_a_conversation_that_a_program_has_stored() -> None:
    first = await turn_of("x = [1]")
    stored = [Message.from_dict(json.loads(json.dumps(message.to_dict()))) for message in first.messages]
    async with open_client(keep_names("x.append(2)\nx"), "Done.") as dial:
        turn = await dial.run([*stored, Message.user("more")])
    assert answers_of(turn) == ["[1, 2]"]


async def test_the_types_of_a_program_are_checked_with_kept_names_before_any_call() -> None:
    turn = await turn_of("x = 1", "await add(a=x)\nprint(y)\nawait add(a='two')", "x")
    assert [record.call.name for record in turn.tool_calls] == ["run_code"] * 3
    text = answers_of(turn)[1]
    assert "snippet.py:2:7: error[unresolved-reference] Name `y`" in text
    assert "snippet.py:3:" in text
    assert answers_of(turn)[2] == "1"


async def test_a_kept_name_may_be_given_another_value_of_another_type() -> None:
    assert answers_of(await turn_of("x = 1", "x = 'a'\ndef y(): return x", "y()"))[2] == "a"


async def test_a_failed_program_leaves_the_names_that_it_had_and_says_so() -> None:
    turn = await turn_of("x = 1", "x = await add(a=5)\nz = x / 0\nx = 7", "x")
    assert "ZeroDivisionError" in answers_of(turn)[1]
    assert "[The names that the program had then are kept.]" in answers_of(turn)[1]
    assert answers_of(turn)[2] == "5"


async def test_what_a_limit_has_stopped_leaves_nothing_and_the_names_before_it_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "STEP_SECONDS", 0.2)
    memory = "x = 4\ny = ['a' * 30_000_000, 'b' * 30_000_000]"
    turn = await turn_of("x = 1", "x = 2\nwhile True: x = 3", "x", memory, "x")
    assert "computed for more than" in answers_of(turn)[1]
    assert "not kept. Those kept before it stay" in answers_of(turn)[1]
    assert answers_of(turn)[2] == "1"
    assert "not kept. Those kept before it stay" in answers_of(turn)[3]
    assert answers_of(turn)[4] == "1"


async def test_names_that_are_too_large_are_dropped_with_those_before_them() -> None:
    turn = await turn_of("x = 1", f"{LARGE}\nlen(rows)", "x", "2")
    assert answers_of(turn)[1].startswith("4000\n[The names of this program are too large to be kept")
    assert "Name `x` used when not defined" in answers_of(turn)[2]
    assert answers_of(turn)[3] == "2"


@pytest.mark.parametrize(
    "source",
    [
        "rows = ['x' * 40_000_000]",  # more than the interpreter can write
        "row = []\nfor n in range(100_000): row = [row]",
        "import random\nrow = [random.random() for n in range(40_000)]",  # compressed, too large
        "\n".join(f"n{n} = 0" for n in range(1_100)),
    ],
)
async def test_names_that_grow_in_any_way_are_bounded(source: str) -> None:
    turn = await turn_of(source, "3")
    assert "too large to be kept" in answers_of(turn)[0]
    assert answers_of(turn)[1] == "3"


async def test_a_state_that_grows_from_program_to_program_ends_with_a_word_and_not_for_good() -> None:
    source = f"x = 1\n# {'a' * 90_000}"
    turn = await turn_of(*[source] * 12, "y = 2", "y", limits=Limits(max_depth=20, max_repeats=99))
    answers = answers_of(turn)
    assert any("too large to be kept" in answer for answer in answers[:12])
    assert answers[13] == "2"
    sizes = [len(json.dumps(message.to_dict())) for message in turn.messages]
    assert max(sizes) < 400_000


@pytest.mark.parametrize("source", ["locals = 1", "def locals(): return ['a b', 'import os']", "def locals(): 1 / 0"])
async def test_a_program_that_changes_what_lists_its_names_harms_only_itself(source: str) -> None:
    turn = await turn_of("x = 1", source, "4")
    assert answers_of(turn)[2] == "4"


async def test_a_call_that_was_not_awaited_is_no_call_of_the_next_program() -> None:
    turn = await turn_of("x = 1", "x = 2\nlate = add(a=1)", "await add(a=9)\nx")
    assert "not kept, because a call was not awaited" in answers_of(turn)[1]
    assert answers_of(turn)[2] == "1"


async def test_a_function_of_an_earlier_program_calls_only_what_can_be_called_now() -> None:
    first = await turn_of("async def work():\n    return await add(a=1)")

    def search() -> None:
        """Do something else."""

    async with open_client(keep_names("await work()"), "Done.", tools=(search,)) as dial:
        turn = await dial.run([*first.messages, Message.user("more")])
    assert "NameError" in answers_of(turn)[0]


async def test_a_call_in_a_function_of_an_earlier_program_is_listed_without_a_line() -> None:
    turn = await turn_of("async def work():\n    return await add(a=1)", "await add(a=2)\nawait work()\n1 / 0")
    assert "- line 1, add: done\n- in a function of an earlier program, add: done" in answers_of(turn)[1]


async def test_each_program_has_its_own_limits() -> None:
    source = "for n in range(300): await add(a=n)"
    turn = await turn_of(source, source, limits=Limits(timeout=60))
    assert answers_of(turn) == ["(no output)"] * 2
    assert len(turn.tool_calls) == 602


async def test_names_made_of_untrusted_content_taint_the_program_that_loads_them() -> None:
    asked: list[dict[str, Any]] = []

    async def deny(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(dict(call.arguments))
        return Approval("deny")

    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "mail": raw(auto_approve=("*",))}
    async with open_client(tools=(), servers=servers, approve=deny) as dial:
        first = await dial.run_code("page = await web__echo(text='read')", kept={})
        assert first.taint == "web/echo"
        # In another conversation nothing but the names is untrusted.
        second = await dial.run_code("x = 1\nawait mail__echo(text='sent')", kept=first.kept)
        fresh = await dial.run_code("await mail__echo(text='sent')", kept={})
        third = await dial.run_code("x", kept=(await dial.run_code("x = 1", kept=first.kept)).kept)
    assert second.taint == "web/echo"
    assert asked == [{"text": "sent"}]
    assert fresh.success
    assert fresh.taint == ""
    assert third.taint == "web/echo"


async def test_names_of_a_program_that_was_written_after_untrusted_content_stay_untrusted_without_it() -> None:
    asked: list[dict[str, Any]] = []

    async def deny(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(dict(call.arguments))
        return Approval("deny")

    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "mail": raw(auto_approve=("*",))}
    send = "async def send():\n    await mail__echo(text='as the page says')"
    replies = [program("await web__echo(text='read')"), "Read.", keep_names(send), "Written."]
    async with open_client(
        *replies, keep_names("await send()"), "Done.", tools=(), servers=servers, approve=deny
    ) as dial:
        first = await dial.run("read the page")
        second = await dial.run([*first.messages, Message.user("write a function")])
        assert not any(message.taint for message in second.messages)
        await dial.run([*second.messages, Message.user("send it")])
    assert asked == [{"text": "as the page says"}]


async def change(turn: Turn, **changes: Any) -> list[Message]:
    """Return the messages of a turn with changed names."""
    data = [json.loads(json.dumps(message.to_dict())) for message in turn.messages]
    next(message for message in data if message.get("kept"))["kept"].update(changes)
    return [Message.from_dict(message) for message in data]


@pytest.mark.parametrize(
    "changes",
    [{"state": "AA"}, {"taint": "none"}, {"names": []}, {"seal": "é"}, {"host": "0"}, {"call": "call_2"}, {"more": 1}],
)
async def test_names_that_were_changed_are_not_loaded_and_the_next_program_begins_without(
    changes: dict[str, Any],
) -> None:
    messages = await change(await turn_of("x = 1"), **changes)
    async with open_client(keep_names("x"), keep_names("2", "call_2"), "Done.") as dial:
        turn = await dial.run([*messages, Message.user("more")])
    assert answers_of(turn)[0].startswith("Not run: the names of the last program cannot be used")
    assert answers_of(turn)[1] == "2"
    assert turn.text == "Done."


async def test_names_of_another_user_or_person_or_place_are_not_loaded(keys: Path) -> None:
    async with open_client() as dial:
        kept = (await dial.run_code("x = 1", kept={}, owner="ann")).kept
        foreign = await dial.run_code("x", kept=kept, owner="bob")
        assert (await dial.run_code("x", kept=kept, owner="ann")).value == 1
        (keys / "seal.key").write_bytes(b"k" * 32)
        stranger = await dial.run_code("x", kept=kept, owner="ann")
    assert "another program or person" in (foreign.error or "")
    assert "another user" in (stranger.error or "")
    assert foreign.kept == {}


async def test_a_state_that_the_interpreter_cannot_load_ends_the_call_with_a_word() -> None:
    async with open_client() as dial:
        version = (await dial.run_code("1", kept={})).kept or {}
        sealed = KeptNames(b"not a state").seal(version["interpreter"], "call_1", "")
        result = await dial.run_code("await add(a=1)", kept=sealed)
    assert "the interpreter cannot load what was stored" in (result.error or "")
    assert result.kept == {}


async def test_a_paused_program_goes_on_in_another_process_and_keeps_its_names() -> None:
    sent: list[str] = []

    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    tools, approval = (add, send), ApprovalPolicy(allow=("functions/add",))
    source = "y = await add(a=x, b=1)\nawait send(text=str(y))\ny = 50\n[x, y]"
    async with open_client(
        keep_names("x = 1"), keep_names(source, "call_2"), tools=tools, approve=later, approval=approval
    ) as dial:
        waiting = await dial.run("go on")
    assert waiting.stop_reason is StopReason.AWAITING_APPROVAL
    stored = Turn.from_dict(json.loads(json.dumps(waiting.to_dict())))
    [asked] = stored.pending_approvals
    async with open_client(keep_names("[x, y]", "call_3"), "Done.", tools=tools, approval=approval) as dial:
        turn = await dial.resume(stored, {asked.id: "once"})
    texts = {message.tool_call_id: message.text for message in turn.messages if message.tool_call_id}
    assert texts["call_2"] == "[1, 50]"
    assert texts["call_3"] == "[1, 50]"
    assert sent == ["2"]


async def test_two_programs_of_one_reply_do_not_keep_names_at_the_same_time() -> None:
    both = {
        "tool_calls": [*keep_names("x = await add(a=1)")["tool_calls"], *keep_names("x = 2", "call_2")["tool_calls"]]
    }
    async with open_client(both, keep_names("x", "call_3"), "Done.") as dial:
        answers = answers_of(await dial.run("go on"))
    assert len([answer for answer in answers if "has not ended" in answer]) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_each_version_of_a_conversation_has_its_own_names(tmp_path: Path) -> None:
    replies = [
        keep_names("x = ['first']"),
        "One.",
        keep_names("x.append('a')\nx"),
        "Two.",
        keep_names("x.append('b')\nx"),
        "3.",
    ]
    async with SQLStore(f"sqlite:///{tmp_path}/talk.db") as store, open_client(*replies) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        await manager.chat(conversation.id, "begin")
        await manager.chat(conversation.id, "second")
        view = await manager.view(conversation.id)
        asked = next(
            position
            for message, position in zip(view.conversation.messages, view.positions, strict=True)
            if message.text == "second"
        )
        assert asked is not None
        turn = await manager.chat(conversation.id, EditedMessage(asked, "other"))
        assert answers_of(turn) == ['["first", "b"]']
        listed = await manager.list_messages(conversation.id)
        exported = await manager.export(conversation.id)
    assert "seal" not in json.dumps(listed)
    assert "seal" not in exported


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_names_stay_in_a_fork_and_go_with_the_messages_that_are_removed(tmp_path: Path) -> None:
    replies = [keep_names("x = 1"), "One.", keep_names("x = 2"), "Two.", keep_names("x"), "3.", keep_names("x"), "4."]
    async with SQLStore(f"sqlite:///{tmp_path}/talk.db") as store, open_client(*replies) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        await manager.chat(conversation.id, "begin")
        await manager.chat(conversation.id, "second")
        fork = await manager.fork(conversation.id)
        assert await manager.undo(conversation.id)
        assert answers_of(await manager.chat(conversation.id, "third")) == ["1"]
        assert answers_of(await manager.chat(fork.id, "third")) == ["2"]


async def test_the_names_are_in_no_event() -> None:
    async with open_client(keep_names("x = 'in no event'"), "Done.") as dial:
        events = [to_dict(event) async for event in dial.stream("go on")]
    assert [event["type"] for event in events if "seal" in json.dumps(event, default=str)] == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_a_summary_takes_the_names_of_what_it_replaces(tmp_path: Path) -> None:
    replies = [keep_names("x = 1"), "One.", "Two.", "A summary.", keep_names("x"), "3.", keep_names("x"), "4."]
    async with SQLStore(f"sqlite:///{tmp_path}/talk.db") as store, open_client(*replies) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        await manager.chat(conversation.id, "begin")
        await manager.chat(conversation.id, "second")
        assert await manager.compact(conversation.id, keep=1) is not None
        [answer] = answers_of(await manager.chat(conversation.id, "third"))
        assert "Name `x` used when not defined" in answer
        assert await manager.restore(conversation.id, "compact")
        assert answers_of(await manager.chat(conversation.id, "fourth")) == ["1"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_the_names_are_in_no_answer_of_the_service() -> None:
    async with serve([keep_names("x = 1"), "Done."] * 2, tools=(add,), tool_format="code") as server:
        where = await server.conversation()
        async with server.http.stream("POST", f"{where}/chat", json={"text": "go on"}) as answer:
            streamed = "".join([text async for text in answer.aiter_text()])
        read = [await server.json("GET", path) for path in (where, f"{where}/messages")]
        read.append(await server.json("POST", f"{where}/chat", json={"text": "again", "stream": False}))
    assert "run_code" in streamed and "run_code" in json.dumps(read[-1])
    assert "seal" not in streamed
    assert "seal" not in json.dumps(read)


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_a_killed_process_leaves_names_for_a_later_process(tmp_path: Path, keys: Path) -> None:
    command = [sys.executable, "-m", "tests.support.kept_program", str(tmp_path), str(keys)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(60):
            assert (await process.stdout.receive()).split()[-1] == b"kept"
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
    turn = await KeptJob(tmp_path, keys).go_on()
    assert answers_of(turn) == ["[1, 2, 3]"]


@pytest.mark.once
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the program has one event loop
@pytest.mark.parametrize("form", ["json", "jsonl"])
async def test_the_names_are_in_no_output_of_the_program(tmp_path: Path, form: str) -> None:
    write_config(tmp_path, {}, [keep_names("x = 1"), "Done."])
    ran = dial_chat(tmp_path, "--no-save", "--tool-format", "code", "--output", form, "go on")
    assert (ran.returncode, '"Done."' in ran.stdout) == (0, True), ran.stderr
    assert "seal" not in ran.stdout
