"""Many prompts at once, and turns from code without ``async``."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import to_thread
from mcp.server import MCPServer
from rich.console import Console

from dial_client import DialClient, LimitReached, Limits, Message, OutputError, ProviderError, Role, Turn
from dial_client.testing import ScriptedProvider
from tests.inner import ModelRequest
from tests.support.clients import ADD, calculator, call, client
from tests.support.model_endpoint import Say, model_endpoint


class Echoing(ScriptedProvider):
    """A model that echoes each question, short questions later than long questions, and counts open requests."""

    def __init__(self) -> None:
        super().__init__([])
        self.open = self.most_open = 0

    async def generate(self, request: ModelRequest) -> Any:
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            text = request.messages[-1].text
            for _ in range(40 - len(text)):
                await anyio.lowlevel.checkpoint()
            if "fail" in text:
                raise ProviderError(f"no answer to {text}")
            played = ScriptedProvider([f"{text}!"])
            async for delta in played.generate(request):
                yield delta
        finally:
            self.open -= 1


@pytest.mark.anyio
async def test_results_of_many_prompts_are_in_order_and_a_failed_turn_is_an_error() -> None:
    model = Echoing()
    async with DialClient(model) as dial:
        results = await dial.map(["a", "fail bb", Message.user("ccc"), [Message.user("x"), Message.user("dddd")]])
    assert [result.text if isinstance(result, Turn) else str(result) for result in results] == [
        "a!", "no answer to fail bb", "ccc!", "dddd!",
    ]  # fmt: skip
    assert isinstance(results[1], ProviderError)


@pytest.mark.anyio
async def test_concurrency_limits_the_turns_that_run_at_once() -> None:
    model = Echoing()
    async with DialClient(model) as dial:
        results = await dial.map((f"{number}" for number in range(20)), concurrency=3)
    assert [result.text for result in results if isinstance(result, Turn)] == [f"{number}!" for number in range(20)]
    assert model.most_open == 3


@pytest.mark.anyio
async def test_an_empty_list_of_prompts_starts_no_turn() -> None:
    async with DialClient(Echoing()) as dial:
        assert await dial.map([], progress=True) == []


@pytest.mark.anyio
async def test_limits_and_instructions_apply_to_each_of_many_turns() -> None:
    dial, model = client(ADD, ADD, after="repeat", on_limit="raise")
    async with dial:
        [result] = await dial.map(["add"], limits=Limits(max_depth=1), system="Be brief.")
    assert isinstance(result, LimitReached)
    assert {request.instruction_text for request in model.requests} == {"Be brief."}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("prompts", "options", "error", "problem"),
    [
        ("one text", {}, TypeError, "several prompts"),
        (Message.user("one message"), {}, TypeError, "several prompts"),
        (["good", 5], {}, TypeError, "not int"),
        (["good"], {"concurrency": 0}, ValueError, "at least 1"),
        (["good", "good"], {"output_type": 5}, TypeError, "output_type takes a type"),
    ],
)
async def test_invalid_prompts_start_no_turn(prompts: Any, options: Any, error: Any, problem: str) -> None:
    model = Echoing()
    async with DialClient(model) as dial:
        with pytest.raises(error, match=problem):
            await dial.map(prompts, **options)
    assert model.requests == []


@pytest.mark.anyio
async def test_mapping_with_a_closed_client_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        await DialClient(Echoing()).map(["a"])


@pytest.mark.anyio
async def test_cancelling_map_cancels_all_its_turns() -> None:
    model = ScriptedProvider([{"hang": True}], after="repeat")
    async with DialClient(model) as dial:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(dial.map, ["a", "b", "c"], concurrency=2))
            while len(model.requests) < 2:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert len(model.requests) == 2
        assert dial._turns.are_running is False


@pytest.mark.anyio
async def test_a_progress_bar_shows_finished_and_failed_turns(capsys: pytest.CaptureFixture[str]) -> None:
    async with DialClient(Echoing()) as dial:
        await dial.map(["a", "fail", "b"], progress=True)
    printed = capsys.readouterr()
    assert "3/3" in printed.err
    assert "1 failed" in printed.err
    assert printed.out == ""


def test_a_script_runs_several_turns_without_async() -> None:
    model = ScriptedProvider([ADD, "It is 42.", ADD, "Still 42.", "Bye."])
    dial = DialClient(model, servers={"calc": calculator()})
    turn = dial.run_sync("What is 17 + 25?")
    assert (turn.text, turn.tool_calls[0].result.content) == ("It is 42.", "42")
    assert dial.run_sync("And now?").message == Message.assistant("Still 42.")
    assert model.requests[-1].messages[-1].text == "42", "the server is started for each turn"
    assert dial.run_sync("Thanks.").text == "Bye."
    assert dial.servers["calc"].state == "stopped"


def test_a_script_sends_two_requests_to_a_real_endpoint() -> None:
    with model_endpoint([Say("One."), Say("Two.")]) as endpoint:
        dial = DialClient("chat:m", base_url=f"{endpoint.url}/v1")
        assert [dial.run_sync("Count.").text, dial.run_sync("Go on.").text] == ["One.", "Two."]


def test_a_script_gets_typed_answers() -> None:
    dial, _ = client('{"a": 1}', '{"a": 2}')
    turn = dial.run_sync("One?", output_type=dict[str, int])
    assert turn.output["a"] == 1


@pytest.mark.anyio
async def test_many_prompts_get_typed_answers_with_an_error_for_each_invalid_answer() -> None:
    dial, _ = client("17", "many", "many", "many", "25")
    async with dial:
        results = await dial.map(["a", "b", "c"], concurrency=1, output_type=int)
    assert [result.output if isinstance(result, Turn) else type(result) for result in results] == [17, OutputError, 25]


def test_an_error_of_the_turn_reaches_the_script() -> None:
    dial, _ = client({"error": {"message": "busy", "code": "overloaded"}})
    with pytest.raises(ProviderError, match="busy"):
        dial.run_sync("hello")


@pytest.mark.anyio
async def test_a_synchronous_call_in_an_event_loop_is_an_error_with_a_hint() -> None:
    dial, model = client("Hello.")
    with pytest.raises(RuntimeError, match=r"use `await dial\.run\(…\)`"):
        dial.run_sync("hello")
    assert model.requests == []


@pytest.mark.anyio
async def test_a_worker_thread_uses_an_open_client() -> None:
    dial, _ = client("Hello.")
    async with dial:
        turn = await to_thread.run_sync(dial.run_sync, "hello")
    assert turn.text == "Hello."


@pytest.mark.anyio
async def test_a_function_tool_can_ask_its_own_client() -> None:
    dial, _ = client(call("research", topic="tides"), "The moon.", "Tides come from the moon.")

    @dial.tool
    def research(topic: str) -> str:
        return dial.run_sync(f"Say more about {topic}.").text

    async with dial:
        turn = await dial.run("What are tides?")
    assert (turn.tool_calls[0].result.content, turn.text) == ("The moon.", "Tides come from the moon.")


@pytest.mark.anyio
async def test_many_function_tools_that_ask_their_client_do_not_wait_for_each_others_threads() -> None:
    class Nesting(ScriptedProvider):
        """A model that calls `ask` for each question of a user, and `note` for each question of `ask`."""

        async def generate(self, request: ModelRequest) -> Any:
            last = request.messages[-1]
            tool = "note" if last.text == "More?" else "ask"
            reply: Any = last.text if last.role is Role.TOOL else {"tool_calls": [{"name": tool, "arguments": {}}]}
            async for delta in ScriptedProvider([reply]).generate(request):
                yield delta

    running, are_many = 0, threading.Event()

    def ask() -> str:
        nonlocal running
        running += 1
        if running >= 40:  # all threads of functions are in use
            are_many.set()
        are_many.wait(30)
        return dial.run_sync("More?").text

    def note() -> str:
        return "noted"

    limits = Limits(tool_timeout=10)
    async with DialClient(Nesting([]), tools=[ask, note], limits=limits) as dial:
        results = await dial.map(["Well?"] * 60, concurrency=60)
    assert {turn.text if isinstance(turn, Turn) else str(turn) for turn in results} == {"noted"}


async def _ask_in_a_foreign_thread(dial: DialClient) -> None:
    async with dial:
        await asyncio.get_running_loop().run_in_executor(None, dial.run_sync, "hello")


def test_a_thread_of_a_foreign_executor_gets_an_error_with_a_hint() -> None:
    dial, _ = client("Hello.")
    with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
        asyncio.run(_ask_in_a_foreign_thread(dial))


def test_a_worker_thread_of_another_event_loop_gets_an_error_with_a_hint() -> None:
    dial, model = client("Hello.")
    opened, asked = threading.Event(), threading.Event()

    async def keep_open() -> None:
        async with dial:
            opened.set()
            await to_thread.run_sync(asked.wait)

    with ThreadPoolExecutor(1) as pool:
        owner = pool.submit(anyio.run, keep_open)
        opened.wait(30)
        try:
            with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
                anyio.run(partial(to_thread.run_sync, dial.run_sync, "hello"))
        finally:
            asked.set()
        owner.result()
    assert model.requests == []


def test_threads_that_use_a_closed_client_wait_for_each_other() -> None:
    model = ScriptedProvider(["Hello."], after="repeat")
    dial = DialClient(model, servers={"calc": calculator()})
    with ThreadPoolExecutor(4) as pool:
        assert [turn.text for turn in pool.map(dial.run_sync, ["hello"] * 4)] == ["Hello."] * 4
    assert dial.servers["calc"].state == "stopped"


@pytest.mark.skipif(sys.platform == "win32", reason="no signal of one process to itself")
def test_ctrl_c_ends_a_turn_of_a_script_and_stops_the_servers() -> None:
    server = MCPServer("slow")

    @server.tool()
    async def wait() -> str:
        """Wait."""
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep_forever()
        return ""

    dial = DialClient(ScriptedProvider([call("wait")]), servers={"slow": server})
    # Programs that a shell starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            dial.run_sync("wait")
    finally:
        signal.signal(signal.SIGINT, before)
    assert dial.servers["slow"].state == "stopped"


@pytest.mark.anyio
async def test_clients_and_turns_have_html_and_rich_representations() -> None:
    dial, _ = client(ADD, "It is <b>42</b>.")
    async with dial:
        turn = await dial.run("What is 17 + 25?")
        shown_client, printed_client = dial._repr_html_(), render(dial)
    assert "It is &lt;b&gt;42&lt;/b&gt;." in turn._repr_html_()
    assert "<td" in turn._repr_html_()
    assert "calc/add" in render(turn)
    assert "answered · 1 round" in render(turn)
    for text in ("scripted", "calc", "ready", "2 tools are offered"):
        assert text in shown_client
        assert text in printed_client


def render(value: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(value)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
