"""Wrong use of the library: each mistake is an error that says what to write, as early as it can be known."""

from __future__ import annotations

import copy
import inspect
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dial_client import (
    Agent,
    Approval,
    ApprovalPolicy,
    Callbacks,
    ConfigError,
    ConversationManager,
    DialClient,
    Limits,
    MemoryStore,
    ModelSettings,
    SQLStore,
)
from dial_client.testing import ScriptedProvider
from tests.inner import ServerStartError, find_program, refuse_attributes


def beep() -> str:
    """Beep."""
    return "beep"


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", ["x", ["x"], 3, None])
async def test_arguments_of_a_call_that_are_no_mapping_are_a_type_error(arguments: Any) -> None:
    async with DialClient(tools=[beep]) as dial:
        with pytest.raises(TypeError, match=r"call takes the arguments as a mapping, \{…\}, not \w+$"):
            await dial.call("beep", arguments)
        name: Any = beep
        with pytest.raises(TypeError, match=r"call takes the name of a tool, not the function beep$"):
            await dial.call(name, {})


@pytest.mark.anyio
async def test_a_conversation_in_place_of_its_id_is_a_type_error(tmp_path: Path) -> None:
    conversation: Any = await MemoryStore().create()
    async with DialClient(ScriptedProvider([])) as dial:
        for store in (MemoryStore(), SQLStore(tmp_path / "talk.db")):
            manager = ConversationManager(dial, store)
            for method in (partial(manager.chat, message="Hi"), partial(manager.start, message="Hi"), manager.get):
                with pytest.raises(TypeError, match=r"the id of a conversation, not Conversation: pass its \.id$"):
                    await method(conversation)
            number: Any = 7
            for change in (partial(manager.rename, title="x"), partial(manager.update_settings, settings={})):
                with pytest.raises(TypeError, match=r"not int$"):
                    await change(number)
        with pytest.raises(TypeError, match=r"the id of a conversation, not Conversation: pass its \.id$"):
            dial.conversation(store, conversation)


def test_the_model_of_a_client_cannot_be_assigned() -> None:
    dial: Any = DialClient(ScriptedProvider([]))
    with pytest.raises(AttributeError, match=r"use dial\.model\.switch\(…\), or the keyword model of a turn$"):
        dial.model = "openai:x"


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_the_content_of_a_file_in_place_of_its_servers_is_an_error_with_the_way_out(key: str) -> None:
    content: Any = {key: {"time": {"command": "mcp-server-time"}}}
    words = rf"{key}: .*pass the value of {key!r}, servers=content\[{key!r}\], or the file, DialClient\.from_config"
    with pytest.raises(ConfigError, match=words):
        DialClient(servers=content)


def test_a_command_line_in_place_of_a_command_is_an_error_with_the_arguments_apart() -> None:
    words = r"""write the arguments apart: "command": "python", "args": \["-m", "clock", "--zone", "UTC"\]$"""
    with pytest.raises(ServerStartError, match=words):
        find_program("time", "python -m clock --zone UTC", None, None)


@pytest.mark.parametrize("option", ["approve", "elicit", "sample", "login"])
def test_a_callback_without_async_is_a_type_error(option: str) -> None:
    def answer(*_: object) -> Approval:
        return Approval("once")

    for given in (answer, lambda *_: True, partial(answer, 1)):
        options: dict[str, Any] = {option: given}
        with pytest.raises(TypeError, match=f"{option} takes an asynchronous function, `async def`, not "):
            DialClient(**(options if option == "approve" else {"callbacks": Callbacks(**options)}))


class Person:
    async def __call__(self, *_: object) -> Approval:
        return Approval("once")

    async def approve(self, *_: object) -> Approval:
        return Approval("once")


@pytest.mark.parametrize("approve", [Person(), Person().approve, partial(Person().approve)])
def test_every_asynchronous_callable_can_be_an_approver(approve: Any) -> None:
    DialClient(approve=approve)


@pytest.mark.anyio
async def test_an_answer_of_an_approver_that_decides_nothing_is_a_note_of_the_turn() -> None:
    async def approve(*_: object) -> None: ...

    approver: Any = approve
    model = ScriptedProvider([{"tool_calls": [{"name": "beep", "arguments": {}}]}, "No beep."])
    async with DialClient(model, tools=[beep], approve=approver) as dial:
        turn = await dial.run("Beep.")
    assert turn.notes == (
        (
            "the call of 'beep' was denied: the approver returned None: "
            'expected Approval("once"), Approval("deny", "the reason"), True or False'
        ),
    )


def test_a_pattern_that_can_allow_nothing_is_refused() -> None:
    for pattern in ("t", "time__now", ""):
        with pytest.raises(ValueError, match=r"allow=\[.*\] allows nothing: a pattern is SERVER/TOOL, such as "):
            ApprovalPolicy(allow=("*", "time/*", pattern))
    assert ApprovalPolicy(deny=("now",)).deny == ("now",)


@pytest.mark.anyio
async def test_a_pattern_without_a_tool_is_named_in_the_words_of_python() -> None:
    async with DialClient(tools=[beep], approval=ApprovalPolicy(allow=("functions/boop",), deny=("boop",))) as dial:
        assert dial.notes == (
            "allow 'functions/boop' matches no tool of 'functions'",
            "deny 'boop' matches no tool: a pattern is SERVER/TOOL, or a tool's own name",
        )


@pytest.mark.parametrize("model", [None, ScriptedProvider([])])
@pytest.mark.parametrize("option", ["base_url", "fallback_models"])
def test_an_option_without_effect_is_refused(option: str, model: Any) -> None:
    if model is not None and option == "fallback_models":
        return
    options: dict[str, Any] = {option: "http://127.0.0.1:9" if option == "base_url" else ["local"]}
    with pytest.raises(ConfigError, match=f"{option} needs the name of a model|{option} needs a model"):
        DialClient(model, **options)


@pytest.mark.parametrize("where", ["/data/x.db", "x.db", "oracle://host/x", "", 3])
def test_an_address_of_a_database_that_is_not_supported_is_refused_at_once(where: Any) -> None:
    with pytest.raises((ConfigError, TypeError), match=r"the address of the database|takes a path or a URL"):
        SQLStore(where)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (Limits, "max_turns", "max_depth"),
        (Limits, "max_steps", "max_depth"),
        (Limits, "request_limit", "max_depth"),
        (Limits, "total_tokens_limit", "max_tokens_total"),
        (ModelSettings, "max_output_tokens", "max_tokens"),
        (ModelSettings, "reasoning_effort", "thinking"),
        (Agent, "instructions", "system"),
        (DialClient, "instructions", "system"),
        (DialClient, "system_prompt", "system"),
        (DialClient, "mcp_servers", "servers"),
        (DialClient, "api_key", "models={NAME: {…, 'api_key': …}}"),
        (DialClient, "temperature", "settings=ModelSettings(temperature=…)"),
    ],
)
def test_a_name_of_another_library_is_an_error_with_the_name_here(kind: type, name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        kind(**{name: 3})
    assert str(raised.value) == f"{kind.__name__} has no {name}: use {hint}"
    assert name not in inspect.signature(kind).parameters
    assert len(inspect.signature(kind).parameters) > 3


@pytest.mark.anyio
async def test_a_keyword_of_another_library_is_an_error_with_the_keyword_here() -> None:
    hints = {
        "temperature": "settings=ModelSettings(temperature=…)",
        "max_tokens": "settings=ModelSettings(max_tokens=…)",
        "max_turns": "limits=Limits(max_depth=…)",
        "timeout": "limits=Limits(timeout=…)",
        "instructions": "system",
        "message_history": "history",
        "response_format": "output_type",
        "output_schema": "output_type",
    }
    async with DialClient(ScriptedProvider([])) as dial:
        for name, hint in hints.items():
            keywords: dict[str, Any] = {name: 1}
            with pytest.raises(TypeError) as raised:
                await dial.run("Hi", **keywords)
            assert str(raised.value) == f"a turn has no keyword {name}: use {hint}"


@pytest.mark.anyio
async def test_an_attribute_of_another_library_is_an_error_with_the_one_here() -> None:
    async with DialClient(ScriptedProvider([{"tool_calls": [{"name": "beep"}]}, "Hi."]), tools=[beep]) as dial:
        turn = await dial.run("Hello")
        again: Any = turn
        with pytest.raises(TypeError, match=r"not Turn: its \.messages are a sequence$"):
            await dial.run("Go on", history=again)
        for value, name, hint in (
            (dial, "call_tool", ": use `await dial.call(name, arguments)`"),
            (dial, "list_tools", ": use `dial.tools`, which is a tuple"),
            (dial, "tols", ""),
            (turn, "final_output", ": use `turn.text`, or `turn.output` with output_type"),
            (turn, "texts", ""),
            (turn.tool_calls[0], "name", ": use `record.tool`, or `record.call.name` as the model knows it"),
            (dial.conversation(), "chat", ": use `await chat.send(text)`"),
        ):
            with pytest.raises(AttributeError) as raised:
                getattr(value, name)
            assert str(raised.value) == f"{type(value).__name__!r} object has no attribute {name!r}{hint}"
            assert (raised.value.name, raised.value.obj) == (name, value)
    assert pickle.loads(pickle.dumps(turn)) == turn
    assert copy.deepcopy(turn) == turn


def test_an_attribute_error_within_a_property_stays_what_it_is() -> None:
    @refuse_attributes(size="length")
    class Broken:
        @property
        def length(self) -> Any:
            missing: Any = None
            return missing.inner

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'inner'"):
        _ = Broken().length


def test_a_client_in_a_plain_with_says_what_to_write() -> None:
    dial: Any = DialClient(ScriptedProvider([]))
    with (
        pytest.raises(TypeError, match=r"use `async with DialClient\(…\) as dial`, or `with DialClient\(…\)\.blocking"),
        dial,
    ):
        pass


def test_a_configuration_as_a_mapping_is_an_error_that_names_the_argument_for_it() -> None:
    config: Any = {"mcpServers": {}}
    with pytest.raises(TypeError, match=r"use DialClient\(model, servers=\{…\}\)$"):
        DialClient.from_config(config)


@pytest.mark.parametrize("parameters", ["call", "call, tool", "call, tool, context, more"])
def test_an_approver_of_other_parameters_is_refused_before_the_first_call(parameters: str) -> None:
    names: dict[str, Any] = {}
    exec(f"async def approve({parameters}): ...", names)
    with pytest.raises(TypeError, match=r"approve takes a function of call, tool, context, not the function approve$"):
        DialClient(ScriptedProvider([]), approve=names["approve"])
