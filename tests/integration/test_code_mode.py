"""Code mode: the model writes programs, and each call of a program is a call like any other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import (
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    ConfigError,
    DialClient,
    Limits,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    ToolSpec,
    Turn,
)
from dial_client.extend import Middleware, ToolCall
from dial_client.testing import ScriptedProvider
from tests.inner import Failure
from tests.support.audit_logs import Entries
from tests.support.code_mode import program
from tests.support.servers.launch import raw

pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")
pytestmark = pytest.mark.anyio

WEB = raw(untrusted=("*",), auto_approve=("*",))
MAIL = raw(auto_approve=("*",))


def add(a: int, b: int = 0) -> dict[str, int]:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return {"sum": a + b}


def boom() -> None:
    """Fail."""
    raise KeyError("a secret")


class Person:
    """An approver that gives the listed answers, and records what it is asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        self.asked.append((f"{context.server}/{tool.tool}", dict(call.arguments)))
        return Approval(self.answers.pop(0))


async def turn_of(*sources: str, tools: Sequence[Any] = (add, boom), **options: Any) -> Turn:
    """Return a turn whose model writes these programs, one after the other."""
    model = ScriptedProvider([*(program(source, f"call_{i}") for i, source in enumerate(sources, 1)), "Done."])
    async with DialClient(model, tools=tools, tool_format="code", **options) as dial:
        return await dial.run("go on")


def answer_of(turn: Turn) -> str:
    """Return what the model reads of the first program."""
    return str(next(record for record in turn.tool_calls if record.call.name == "run_code").result.content)


async def test_a_program_calls_tools_and_its_last_value_is_the_result() -> None:
    turn = await turn_of("import asyncio\nrows = await asyncio.gather(add(a=1, b=2), add(a=3))\nprint('sums')\nrows")
    assert answer_of(turn) == 'sums\n[{"sum": 3}, {"sum": 3}]'
    # Calls that run together end in any order.
    assert sorted((record.call.id, record.parent) for record in turn.tool_calls) == [
        ("call_1", ""),
        ("call_1/1", "call_1"),
        ("call_1/2", "call_1"),
    ]
    assert turn.text == "Done."


async def test_the_model_gets_one_tool_whose_text_stays_the_same() -> None:
    model = ScriptedProvider([program("await add(a=1)"), "Done."])
    async with DialClient(model, tools=[add, boom], tool_format="code") as dial:
        await dial.run("go on")
    first, second = (request.tools for request in model.requests)
    assert [tool.name for tool in first] == ["run_code"]
    assert first == second
    assert "async def add(*, a: int, b: int = ...) -> Any:" in first[0].description
    assert "Add two numbers." in first[0].description


async def test_calls_of_gather_run_at_the_same_time() -> None:
    both = anyio.Event()
    waiting: list[int] = []

    async def meet(number: int) -> int:
        """Wait for another call."""
        waiting.append(number)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return number

    turn = await turn_of("import asyncio\nawait asyncio.gather(meet(number=1), meet(number=2))", tools=[meet])
    assert answer_of(turn) == "[1, 2]"


async def test_a_failing_call_raises_an_exception_that_the_program_can_catch() -> None:
    turn = await turn_of("try:\n    await boom()\nexcept RuntimeError as error:\n    print(error)")
    assert answer_of(turn) == "boom: The tool failed: KeyError."


async def test_an_error_names_the_line_the_expression_and_the_calls_that_have_run() -> None:
    turn = await turn_of("first = await add(a=1)\nprint('so far')\nfirst['total']\nawait add(a=2)")
    text = answer_of(turn)
    assert "line 3" in text
    assert "first['total']" in text
    assert "KeyError: total" in text
    assert "- line 1, add: done" in text
    assert "so far" in text
    assert turn.tool_calls[0].result.failure is Failure.TOOL


async def test_a_program_whose_types_do_not_fit_makes_no_call() -> None:
    turn = await turn_of("await add(a=1)\nawait add(a='two')")
    assert "Not run, because the types do not fit" in answer_of(turn)
    assert "snippet.py:2" in answer_of(turn)
    assert len(turn.tool_calls) == 1


async def test_arguments_are_checked_also_where_the_types_are_not_known() -> None:
    turn = await turn_of("import json\nawait add(a=json.loads('[]'))")
    assert turn.tool_calls[1].result.failure is Failure.BAD_ARGUMENTS
    assert "ValueError: add: The arguments do not fit" in answer_of(turn)


async def test_the_person_is_asked_about_each_call_and_not_about_the_program() -> None:
    person = Person("once", "deny")
    source = (
        "await mail__echo(text='a')\ntry:\n    await mail__echo(text='b')\nexcept PermissionError as e:\n    print(e)"
    )
    turn = await turn_of(source, servers={"mail": raw(), "web": raw()}, tools=(), approve=person)
    assert person.asked == [("mail/echo", {"text": "a"}), ("mail/echo", {"text": "b"})]
    assert "The user did not allow this call" in answer_of(turn)


async def test_what_a_rule_denies_is_denied_in_a_program() -> None:
    source = "try:\n    await add(a=1)\nexcept PermissionError:\n    print('denied')"
    turn = await turn_of(source, approval=ApprovalPolicy(deny=("functions/add",)))
    assert answer_of(turn) == "denied"


async def test_untrusted_content_taints_what_follows_in_the_same_program() -> None:
    person = Person("deny")
    attempt = "try:\n    await mail__echo(text=page)\nexcept PermissionError:\n    print('no')"
    source = f"page = await web__echo(text='read')\n{attempt}"
    turn = await turn_of(source, servers={"web": WEB, "mail": MAIL}, tools=(), approve=person)
    assert person.asked == [("mail/echo", {"text": '{"text": "read"}'})]
    assert answer_of(turn) == "no"
    assert turn.tool_calls[0].result.taint == "web/echo"


async def test_the_result_of_a_program_taints_later_programs_and_turns() -> None:
    person = Person("deny")
    servers = {"web": WEB, "mail": MAIL}
    turn = await turn_of(
        "await web__echo(text='x')", "await mail__echo(text='y')", servers=servers, tools=(), approve=person
    )
    assert person.asked == [("mail/echo", {"text": "y"})]
    assert next(message for message in turn.messages if message.tool_call_id == "call_1").taint == "web/echo"


async def test_each_call_is_in_the_audit_log_once_with_the_id_of_its_program() -> None:
    recorder = Entries()
    await turn_of("for n in range(3):\n    await add(a=n)", audit=recorder)
    ended = [entry.call for entry in recorder if entry.event == "call" and entry.tool == "add"]
    assert ended == ["call_1/1", "call_1/2", "call_1/3"]


async def test_events_of_calls_name_the_call_of_their_program() -> None:
    model = ScriptedProvider([program("await add(a=1)"), "Done."])
    async with DialClient(model, tools=[add], tool_format="code") as dial:
        started = [event async for event in dial.stream("go on") if isinstance(event, ToolCallStarted)]
    assert [(event.call.id, event.tool, event.parent) for event in started] == [
        ("call_1", "run_code", ""),
        ("call_1/1", "add", "call_1"),
    ]


async def test_middleware_sees_the_calls_of_a_program_and_can_change_their_results() -> None:
    class Redact(Middleware):
        async def around_tool_call(self, call: ToolCall, call_next: Any) -> ToolCallResult:
            result: ToolCallResult = await call_next(call)
            if call.request.name != "add":
                return result
            return ToolCallResult(result.tool_call_id, success=True, content='{"sum": "hidden"}', value=result.value)

    turn = await turn_of("await add(a=1)", middleware=[Redact()])
    assert answer_of(turn) == '{"sum": "hidden"}'


async def test_a_program_cannot_call_itself() -> None:
    turn = await turn_of("exec('await run_code(code=\"1\")')")
    assert turn.tool_calls[0].result.failure is Failure.TOOL
    assert len(turn.tool_calls) == 1


async def test_a_long_result_is_kept_to_be_read_on() -> None:
    turn = await turn_of("'x' * 5_000", limits=Limits(max_result_chars=1_000))
    assert 'read_result(id="' in answer_of(turn)


async def test_images_are_references_until_they_are_shown() -> None:
    def draw() -> bytes:
        """Draw."""
        return b"\x89PNG\r\n\x1a\n" + b"0" * 100

    turn = await turn_of("picture = await draw()\nprint(len(picture))", "await draw()", tools=[draw])
    first, second = (record.result for record in turn.tool_calls if record.call.name == "run_code")
    assert isinstance(first.content, str)
    assert [type(part).__name__ for part in second.content] == ["TextPart", "ImagePart"]


async def test_a_call_is_made_when_the_program_waits() -> None:
    made: list[int] = []

    def note(number: int) -> int:
        """Note."""
        made.append(number)
        return number

    await turn_of("await note(number=1)\nlater = note(number=2)\n'the end'", tools=[note])
    assert made == [1]


async def test_a_cancelled_turn_cancels_the_calls_of_its_program() -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def wait() -> None:
        """Wait for ever."""
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with DialClient(ScriptedProvider([program("await wait()")]), tools=[wait], tool_format="code") as dial:
        turn = dial.start("go on")
        await begun.wait()
        turn.cancel()
        result = await turn.result()
    assert ended.is_set()
    assert [record.call.name for record in result.tool_calls] == ["run_code", "wait"]


async def test_many_tools_are_found_by_the_search_and_declared_in_its_answer() -> None:
    def build(number: int) -> Any:
        def tool(text: str) -> str:
            return text

        about = "Waters the flowers." if number == 7 else f"Paints picture {number}."
        tool.__name__, tool.__doc__ = f"tool-{number}", about
        return tool

    searches = [
        {"tool_calls": [{"name": "search_tools", "arguments": {"query": "water flowers picture"}, "id": id_}]}
        for id_ in "st"
    ]
    model = ScriptedProvider([*searches, program("await tool_7(text='seen')"), "Done."])
    tools = [build(number) for number in range(60)]
    async with DialClient(model, tools=tools, tool_format="code") as dial:
        turn = await dial.run("go on")
    answer = str(turn.tool_calls[0].result.content)
    assert "async def tool_7(*, text: str) -> Any:" in answer
    again = str(turn.tool_calls[1].result.content)
    assert again.startswith(answer.partition("Others")[0]), "no other request has the declarations"
    named = answer.split("Others, which can be called by name: ")[1].removesuffix(".").split(", ")
    assert len(named) == 30
    assert set(named) < {f"tool_{number}" for number in range(60)}, "a program calls functions"
    assert turn.tool_calls[2].result.content == "seen"
    descriptions = [request.tools[0].description for request in model.requests]
    assert len(set(descriptions)) == 1
    assert "tool_7" not in descriptions[0]


async def test_a_program_of_the_embedding_program_runs_without_a_model() -> None:
    async with DialClient(tools=[add, boom]) as dial:
        result = await dial.run_code("(await add(a=2, b=3))['sum']", tools=["functions/add"])
        refused = await dial.run_code("await boom()", tools=["functions/add"])
    assert (result.success, result.value, result.content) == (True, 5, "5")
    assert not refused.success
    assert "boom" in str(refused.content)


@pytest.mark.parametrize(
    ("model", "tool_format", "is_code"),
    [
        ("anthropic:claude-opus-5-5", "auto", True),
        ("anthropic:claude-opus-5-5", None, False),
        ("anthropic:claude-haiku-5-5", "auto", False),
        ("openai:gpt-6.2-sol", "auto", True),
        ("openai:gpt-6-luna", "auto", False),
        ("openai:gpt-5.4-mini", "auto", False),
        ("routed", "auto", True),
        ("ollama:qwen3.5", "auto", False),
        ("large", None, False),
        ("large, asked", None, True),
        ("large, not", "auto", False),
        ("small, but able", None, True),
    ],
)
async def test_auto_is_code_mode_for_large_models_and_native_calls_stay_the_default(
    model: str, tool_format: str | None, is_code: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(key, "k")
    large = {"preset": "openai", "model": "gpt-6-astra"}
    profiles = {
        "large": large,
        "routed": {"preset": "openrouter", "model": "anthropic/claude-sonnet-5-5"},
        "large, asked": {**large, "tool_format": "auto"},
        "large, not": {**large, "writes_code": False},
        "small, but able": {"preset": "openai", "model": "gpt-6-luna", "writes_code": True},
    }
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {}, "models": profiles}), encoding="utf-8")
    async with DialClient.from_config(tmp_path / "servers.json", model=model, tool_format=tool_format) as dial:
        assert dial.model.format.runs_code is is_code


async def test_a_model_without_a_name_and_an_unknown_format_have_no_code_mode() -> None:
    async with DialClient(ScriptedProvider(["Done."]), tools=[add], tool_format="auto") as dial:
        assert not dial.model.format.runs_code
    with pytest.raises(ConfigError, match="unknown tool format"):
        DialClient(ScriptedProvider([]), tool_format="python")


async def test_a_program_cannot_call_a_tool_that_a_tool_of_the_caller_hides() -> None:
    made: list[int] = []

    def note(number: int) -> int:
        """Note."""
        made.append(number)
        return number

    model = ScriptedProvider([program("exec('note(number=1)')"), "Done."])
    async with DialClient(model, tools=[note, add], tool_format="code") as dial:
        turn = await dial.start("go on", client_tools=[ToolSpec("note", "Of the caller.", {"type": "object"})]).result()
    assert "name 'note' is not defined" in answer_of(turn)
    assert made == []


@pytest.mark.parametrize("source", ["await git_status()", "exec('git_status()')"])
async def test_the_error_of_an_unknown_function_names_the_nearest_one(source: str) -> None:
    def git1__git_status() -> str:
        """Return the status."""
        return "clean"

    async with DialClient(ScriptedProvider([]), tools=[git1__git_status, add]) as dial:
        result = await dial.run_code(source)
    assert "Did you mean `git1__git_status`?" in str(result.content).splitlines()
    async with DialClient(ScriptedProvider([]), tools=[add]) as dial:
        result = await dial.run_code(source)
    assert "Did you mean" not in str(result.content)
