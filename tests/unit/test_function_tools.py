"""Functions as tools: their schemas and their calls."""

from __future__ import annotations

import asyncio
import datetime
import enum
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from dial_client import (
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    ConfigError,
    Decision,
    DialClient,
    ImagePart,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
)
from dial_client.extend import Failure
from dial_client.testing import ScriptedProvider
from tests.inner import FunctionTools
from tests.inner import function_tools_to_content as to_content
from tests.support.function_calls import call, calls, run

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"


class Place(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str
    since: datetime.date
    near: list[Place] = []


class Kind(enum.Enum):
    SHORT = "short"
    LONG = "long"


@dataclass
class Plan:
    day: datetime.date
    kind: Kind


class Options(TypedDict, total=False):
    guide: bool


def plan(  # noqa: D417 - not all parameters are described
    place: Place,
    kind: Kind = Kind.SHORT,
    days: Annotated[int, Field(ge=1, description="How many.")] = 3,
    *,
    options: Options | None = None,
) -> Plan:
    """Plan a trip.

    Args:
        place: The place.
        days: Not this text: the annotation has one.
    """
    assert isinstance(place, Place)
    assert all(isinstance(near, Place) for near in place.near)
    return Plan(place.since + datetime.timedelta(days=days), kind)


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


# --- definitions ----------------------------------------------------------------------------------


async def test_annotations_and_docstring_become_the_schema() -> None:
    [spec] = DialClient(tools=[plan]).tools
    assert (spec.name, spec.server, spec.tool, spec.description) == ("plan", "functions", "plan", "Plan a trip.")
    schema = spec.input_schema
    assert schema["required"] == ["place"]
    assert schema["properties"]["place"] == {"$ref": "#/$defs/Place", "description": "The place."}
    assert schema["properties"]["days"] == {"default": 3, "description": "How many.", "minimum": 1, "type": "integer"}
    assert schema["$defs"]["Kind"]["enum"] == ["short", "long"]


async def test_arguments_are_converted_to_the_annotated_types() -> None:
    near = {"name": "b", "since": "2026-01-01"}
    result = await call(plan, place={"name": "a", "since": "2026-01-01", "near": [near]}, kind="long", days=1)
    assert result == ToolCallResult("call_1", success=True, content='{"day":"2026-01-02","kind":"long"}')


async def test_arguments_that_only_the_annotations_refuse_are_reported_to_the_model() -> None:
    result = await call(plan, place={"name": "a", "since": "some day"})
    assert result.failure is Failure.BAD_ARGUMENTS
    assert "place.since: Input should be a valid date" in str(result.content)


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def increase(self, by: int) -> int:
        """Increase the count."""
        self.count += by
        return self.count

    async def __call__(self, by: int) -> int:
        """Increase the count too."""
        return self.increase(by)


async def test_methods_callable_objects_and_partials_can_be_tools() -> None:
    counter = Counter()
    assert (await call(counter.increase, by=1)).content == "1"
    assert (await call(counter, by=1)).content == "2"
    assert (await call(partial(counter.increase), by=1)).content == "3"
    [spec] = DialClient(tools=[partial(add, b=40)]).tools
    assert (spec.name, list(spec.input_schema["properties"])) == ("add", ["a"]), "a bound argument is no parameter"
    assert (await call(partial(add, b=40), a=2)).content == "42"


async def test_parameters_may_have_names_that_pydantic_models_reserve() -> None:
    def odd(schema: int, _a: int, model_config: int, /, copy: int, **rest: int) -> str:
        return f"{schema} {_a} {model_config} {copy} {rest}"

    assert (await call(odd, schema=1, _a=2, model_config=3, copy=4, more=5)).content == "1 2 3 4 {'more': 5}"


async def test_an_unknown_return_annotation_is_allowed() -> None:
    @wraps(add)
    def wrapped(*arguments: int, **named: int) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821 - the missing name is the test
        return add(*arguments, **named)

    def vague(a: "int") -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821, UP037 - the missing name is the test
        return a

    assert (await call(vague, a=1)).content == "1"
    assert (await call(wrapped, a=1)).content == "3"


def varying(*numbers: int) -> None: ...


def counting() -> Any:
    yield 1


def unknown(place: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the missing name is the test


def misspelled(place: datetime.dat) -> None: ...  # type: ignore[name-defined]  # the missing name is the test


def hollow(thread: threading.Thread) -> None: ...


NO_TOOLS: list[tuple[Any, str]] = [
    (varying, "takes \\*numbers, which has no JSON Schema: use a list parameter instead"),
    (counting, "counting is a generator: a tool must return its result"),
    (unknown, "the annotation 'Nowhere' of unknown is not defined"),
    (misspelled, "an annotation of misspelled cannot be read: .* has no attribute 'dat'"),
    (hollow, "a parameter of hollow has no JSON Schema"),
    (lambda: 1, "a lambda has no name"),
    (max, "max has no signature"),
    (Place, "expected a function as a tool"),
    ("add", "expected a function as a tool, not 'add'"),
]


async def test_an_object_that_cannot_be_a_tool_is_a_type_error_with_the_reason() -> None:
    for function, problem in NO_TOOLS:
        with pytest.raises(TypeError, match=problem):
            DialClient(tools=[function])
    with pytest.raises(TypeError, match="there is a tool 'add' already"):
        DialClient(tools=[add, add])
    with pytest.raises(TypeError, match="tools takes a list of functions"):
        DialClient(tools=add)  # type: ignore[arg-type]  # the wrong type is the test


async def test_functions_in_place_of_servers_are_an_error_that_names_the_option_tools() -> None:
    for servers in (add, [add], {"add": add}):
        with pytest.raises(TypeError, match=r"functions are tools, DialClient\(…, tools=\["):
            DialClient(servers=servers)  # type: ignore[arg-type]  # the wrong type is the test


async def test_the_server_name_functions_is_reserved_if_there_are_function_tools() -> None:
    servers = {"functions": {"command": "x", "disabled": True}}
    assert DialClient(servers=servers).notes == ()
    with pytest.raises(ConfigError, match="no server can be named 'functions'"):
        DialClient(servers=servers, tools=[add])
    async with DialClient(tools=[add]) as dial:
        with pytest.raises(ConfigError, match="no server can be named 'functions'"):
            await dial.add_server("functions", {"command": "x", "disabled": True})


# --- calls ----------------------------------------------------------------------------------------


async def test_the_decorator_returns_the_function_and_offers_it_in_the_next_round() -> None:
    model = ScriptedProvider([calls("extend"), calls("later", a=1), "Done."])
    dial = DialClient(model)

    @dial.tool(read_only=True, title="Extend")
    def extend() -> str:
        @dial.tool
        def later(a: int) -> int:
            return a + 1

        return str(later(1))

    assert extend.__name__ == "extend"
    [spec] = dial.tools
    assert (spec.read_only, spec.title) == (True, "Extend")
    async with dial:
        turn = await dial.run("go on")
    assert [record.result.content for record in turn.tool_calls] == ["2", "2"]
    assert [len(request.tools) for request in model.requests] == [1, 2, 2]


async def test_an_exception_in_a_function_becomes_a_result_with_its_type() -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    turn = await run(calls("fail", text="no such place"), calls("fail", text=""), "Sorry.", tools=[fail])
    assert [record.result.content for record in turn.tool_calls] == ["The tool failed: ValueError."] * 2
    assert all(record.result.failure is Failure.TOOL for record in turn.tool_calls)
    assert turn.text == "Sorry."


async def test_functions_are_approved_like_other_tools() -> None:
    asked: list[tuple[str, str]] = []

    async def approve(request: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append((request.name, context.server))
        return Approval("session")

    replies = (calls("add", a=1), calls("add", a=2), "Done.")
    turn = await run(*replies, tools=[add], approve=approve)
    assert (asked, turn.notes) == ([("add", "functions")], ())
    turn = await run(*replies, tools=[add], approve=approve, approval=ApprovalPolicy(allow=["functions/*"]))
    assert (len(asked), turn.notes) == (1, ())
    turn = await run(*replies, tools=[add], approval=ApprovalPolicy(deny=["functions/add", "functions/sub"]))
    assert [record.result.failure for record in turn.tool_calls] == [Failure.DENIED, Failure.DENIED]
    assert turn.notes == ("deny 'functions/sub' matches no tool of 'functions'",)


VALUES: list[tuple[Any, Any]] = [
    ("text", "text"),
    (None, "(no output)"),
    ("", "(no output)"),
    ([1, {"a": {2}}], '[1,{"a":[2]}]'),
    (Place(name="é", since=datetime.date(2026, 1, 2)), '{"name":"é","since":"2026-01-02","near":[]}'),
    (float("nan"), "NaN"),
    (Counter, f'"{Counter}"'),
    (PNG, (ImagePart("iVBORw0KGgo=", "image/png"),)),
    (b"\0", (TextPart("[binary data, 1 bytes: it cannot be shown here]"),)),
    (["see", PNG, {"a": 1}], (TextPart("see"), ImagePart("iVBORw0KGgo=", "image/png"), TextPart('{"a":1}'))),
    ("red \x1b[31m", "red "),
    (TextPart("red \x1b[31m"), (TextPart("red "),)),
]


async def test_any_value_becomes_content() -> None:
    assert [to_content(value) for value, _ in VALUES] == [content for _, content in VALUES]


async def test_a_value_that_contains_itself_is_a_failure() -> None:
    def turn_in_circles() -> Any:
        circle: list[Any] = []
        circle.append(circle)
        return circle

    result = await call(turn_in_circles)
    assert (result.success, result.failure) == (False, Failure.TOOL)


async def test_literals_and_optional_values_are_checked_before_the_call() -> None:
    def choose(size: Literal["s", "m"], note: str | None = None) -> str:
        return f"{size} {note}"

    assert (await call(choose, size="s")).content == "s None"
    assert (await call(choose, size="m", note=None)).content == "m None"
    assert (await call(choose, size="x")).failure is Failure.BAD_ARGUMENTS


async def test_a_function_that_exits_is_a_failure_and_does_not_end_the_program() -> None:
    def leave() -> None:
        sys.exit("no disk")

    async def leave_later() -> None:
        sys.exit(3)

    assert (await call(leave)).content == "The tool failed: SystemExit."
    assert (await call(leave_later)).content == "The tool failed: SystemExit."


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_task_that_a_function_awaits_fails_its_call_alone(anyio_backend: str) -> None:
    async def wait() -> None:
        await cancel_task()

    def add() -> int:
        return 2

    both = {"tool_calls": [{"name": "wait", "arguments": {}}, {"name": "add", "arguments": {}}]}
    turn = await run(both, "done", tools=[wait, add])
    assert [record.result.content for record in turn.tool_calls] == [
        "The tool failed: a task that it awaited was cancelled.",
        "2",
    ]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_task_that_an_approver_awaits_fails_its_call_alone(anyio_backend: str) -> None:
    async def approve(call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        if call.arguments["number"] == 1:
            await cancel_task()
        return Approval(Decision.ONCE)

    def double(number: int) -> int:
        return 2 * number

    both = {"tool_calls": [{"name": "double", "arguments": {"number": number}} for number in (1, 2)]}
    turn = await run(both, "done", tools=[double], approve=approve)
    assert [record.result.content for record in turn.tool_calls] == [
        "The call failed: a task that it waited for was cancelled.",
        "4",
    ]


async def cancel_task() -> None:
    """Await a task that is cancelled."""
    task = asyncio.create_task(asyncio.sleep(0))
    task.cancel()
    await task


def test_function_tools_start_empty_at_revision_0() -> None:
    functions = FunctionTools()
    assert (functions.tools, functions.revision) == ((), 0)


async def test_what_a_function_sets_in_its_context_stays_in_its_call() -> None:
    language = ContextVar("language", default="none")

    async def set_language() -> str:
        """Set the language, and return the earlier one."""
        before = language.get()
        language.set("French")
        return before

    model = ScriptedProvider([calls("set_language"), calls("set_language"), "Done."])
    async with DialClient(model, tools=[set_language]) as dial:
        turn = await dial.run("Hello.")
    assert [record.result.content for record in turn.tool_calls] == ["none", "none"]
