"""The options of a client and of a single turn."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import (
    ApprovalPolicy,
    AuditLog,
    Callbacks,
    ClientOptions,
    ConfigError,
    ConversationManager,
    DialClient,
    EditedMessage,
    Limits,
    MemoryStore,
    Message,
    ModelProfile,
    ModelSettings,
    StopReason,
)
from dial_client.extend import ModelInfo, ModelRequest, ReActFormatHandler
from dial_client.testing import ScriptedProvider
from tests.inner import FallbackProvider, Provider


def test_from_config_takes_the_keywords_of_the_class() -> None:
    keywords = {
        name for name, p in inspect.signature(DialClient.__init__).parameters.items() if p.kind is p.KEYWORD_ONLY
    }
    assert set(ClientOptions.__annotations__) == keywords - {"servers"}


@pytest.mark.parametrize("name", ["allow", "deny"])
def test_a_string_in_place_of_a_list_of_patterns_is_a_type_error(name: str) -> None:
    options: dict[str, Any] = {name: "time/*"}
    with pytest.raises(TypeError, match=rf"{name} takes a list of patterns, not a string: {name}=\['time/\*'\]"):
        ApprovalPolicy(**options)


def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        (add, r"the function add: functions are tools, DialClient\(…, tools=\[add\]\)"),
        (42, "int"),
        (["mcp-server-time"], "list"),
        (Message, "the class Message"),
        (Message.user("Hi"), "Message"),
    ],
)
def test_an_invalid_server_is_a_type_error(server: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"server 'it': expected an entry as in servers.json, .* not {kind}$"):
        DialClient(servers={"it": server})


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/mcp", "HTTPS://docs.example/mcp"])
def test_a_url_alone_is_the_entry_of_a_server(url: str) -> None:
    assert DialClient(servers={"docs": url}).servers == DialClient(servers={"docs": {"url": url}}).servers


def test_a_command_line_as_a_server_is_an_error_that_has_the_entry() -> None:
    words = r"a program is an entry, servers={'it': {'command': 'python', 'args': \['-m', 'clock'\]}}$"
    with pytest.raises(TypeError, match=words):
        DialClient(servers={"it": "python -m clock"})


def test_the_name_of_a_server_is_a_string() -> None:
    servers: Any = {3: {"command": "mcp-server-time"}}
    with pytest.raises(TypeError, match="the name of a server is a string, not int"):
        DialClient(servers=servers)


class Silent:
    """A provider without `generate`."""

    info = ModelInfo("silent")

    async def aclose(self) -> None:
        """Close nothing."""


class Whole(Silent):
    """A provider that returns its reply in place of yielding it."""

    async def generate(self, _: ModelRequest) -> str:
        return "Hello."


class Talker(Silent):
    """A provider that yields text in place of deltas."""

    async def generate(self, _: ModelRequest) -> AsyncGenerator[str, None]:
        yield "Hello."


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (42, "expected the name of a model, or a Provider, not int"),
        (
            {"time": {"command": "mcp-server-time"}},
            r"not dict: servers are given by name, DialClient\(…, servers={…}\)",
        ),
        (Talker, r"not the class Talker: pass an instance, Talker\(…\)"),
        (Silent(), "not Silent, which has no generate"),
        (Whole(), "Whole.generate returns its whole reply: it has to `yield` the deltas, a Completion last"),
    ],
)
def test_an_invalid_model_is_a_type_error(model: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=f"{problem}$"):
        DialClient(model)
    with pytest.raises(TypeError, match=f"{problem}$"):
        DialClient(ScriptedProvider([]), fallback_models=[model])


@pytest.mark.anyio
async def test_a_provider_that_yields_no_deltas_is_a_type_error() -> None:
    model: Any = Talker()
    async with DialClient(model) as dial:
        with pytest.raises(TypeError, match="the provider yielded str in place of a Delta"):
            await dial.run("Hi")


def test_an_approver_that_is_not_a_function_is_a_type_error() -> None:
    approve: Any = True
    with pytest.raises(TypeError, match="approve takes an asynchronous function, not bool"):
        DialClient(ScriptedProvider([]), approve=approve)


def wrong_callbacks(**callbacks: Any) -> Callbacks:
    return Callbacks(**callbacks)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"limits": {"timeout": 1}}, r"limits takes Limits\(…\), not dict"),
        ({"approval": ["*"]}, r"approval takes ApprovalPolicy\(…\), not list"),
        ({"callbacks": print}, r"callbacks takes Callbacks\(…\), not the function print"),
        ({"callbacks": wrong_callbacks(elicit=True)}, "elicit takes an asynchronous function, not bool"),
        ({"callbacks": wrong_callbacks(sample=True)}, "sample takes an asynchronous function, not bool"),
        ({"callbacks": wrong_callbacks(login=Message)}, "login takes an asynchronous function, not the class Message"),
        ({"callbacks": wrong_callbacks(on_log="x")}, "on_log takes a function, not str"),
        ({"callbacks": wrong_callbacks(apps=1)}, "apps takes True or False, not int"),
        ({"callbacks": wrong_callbacks(roots="/home/ada")}, "roots takes a list of folders, not str"),
        ({"approve": Message}, "approve takes an asynchronous function, not the class Message"),
        ({"system": Message.system("Be brief.")}, "system takes a string, not Message"),
        ({"guidance": ["Be brief."]}, "guidance takes a string, not list"),
        ({"base_url": b"http://host"}, "base_url takes a string, not bytes"),
        ({"resource_tools": "yes"}, "resource_tools takes True or False, not str"),
        ({"cache_dir": 3}, "cache_dir takes the path of a folder, True or False, not int"),
        ({"record": True}, "record takes the path of a file, not bool"),
        ({"startup_patience": timedelta(seconds=3)}, "startup_patience takes a number of seconds, not timedelta"),
        ({"startup_patience": True}, "startup_patience takes a number of seconds, not bool"),
        ({"audit": True}, r"expected an AuditRecorder, such as AuditLog\(…\), not bool"),
        ({"audit": AuditLog}, r"not the class AuditLog: pass an instance, AuditLog\(…\)"),
        ({"tool_format": 3}, "expected the name of a tool format, or a ToolFormatHandler, not int"),
        ({"tool_format": []}, "expected the name of a tool format, or a ToolFormatHandler, not list"),
        ({"tool_format": ReActFormatHandler}, r"the class ReActFormatHandler: pass an instance, \w+\(…\)"),
        ({"status_model": 3}, "expected the name of a model, or a Provider, not int"),
        ({"models": ["qwen"]}, "models takes a mapping of names to profiles, not list"),
        (
            {"models": {"qwen": "qwen3.5"}},
            "model 'qwen': expected an entry as in servers.json or a ModelProfile, not str",
        ),
        ({"fallback_models": 3}, "fallback_models takes a list of models, not int"),
        ({"fallback_models": {"a": 1}}, "fallback_models takes a list of models, not dict"),
        ({"fallback_models": [None]}, "expected the name of a model, or a Provider, not NoneType"),
        ({"tools": 3}, r"tools takes a list of functions: tools=\[…\]"),
        ({"tools": {"add": add}}, r"tools takes a list of functions: tools=\[…\]"),
        ({"middleware": 3}, "middleware takes a list of Middleware objects, not int"),
    ],
)
def test_an_option_of_the_wrong_type_is_a_type_error(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=f"{problem}$"):
        DialClient(ScriptedProvider([]), **options)


def test_a_model_may_be_an_entry_as_in_servers_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret-1")
    entry = {"preset": "ollama", "model": "qwen3.5", "api_key": "${KEY}", "temperature": 0.2}
    dial = DialClient("small", models={"small": entry, "large": ModelProfile("large", model="m")})
    expected = ModelProfile(
        "small", preset="ollama", model="qwen3.5", api_key="secret-1", settings=ModelSettings(temperature=0.2)
    )
    assert dial.model.profiles == {"small": expected, "large": ModelProfile("large", model="m")}
    with pytest.raises(ConfigError, match=r"small\.temprature: unknown setting of a model"):
        DialClient("small", models={"small": {"temprature": 0.2}})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"allow": 3}, "allow takes a list, not int"),
        ({"deny": [3]}, "deny takes a list of strings, but an item is int"),
        ({"grants": 3}, "grants takes the path of a folder, True or False, not int"),
        ({"tool_pins": b"pins"}, "tool_pins takes the path of a folder, True or False, not bytes"),
    ],
)
def test_a_field_of_an_approval_policy_of_the_wrong_type_is_a_type_error(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=f"{problem}$"):
        ApprovalPolicy(**options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startup_patience": -1}, "startup_patience must be at least 0 seconds, not -1"),
        ({"startup_patience": float("nan")}, "startup_patience must be at least 0 seconds, not nan"),
        ({"callbacks": wrong_callbacks(sample="yes")}, "unknown sample 'yes'"),
    ],
)
def test_an_invalid_value_of_an_option_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        DialClient(ScriptedProvider([]), **options)


@pytest.mark.anyio
async def test_arguments_of_a_turn_of_the_wrong_type_are_type_errors() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"system": Message.system("Be brief.")}, "system takes a string, not Message"),
        ({"observers": [print]}, "observers takes a list of TurnObservers, but an item is the function print"),
        ({"client_tools": [{"name": "add"}]}, "client_tools takes a list of ToolSpecs, but an item is dict"),
        ({"client_tools": 3}, "client_tools takes a list, not int"),
        ({"settings": {"seed": 1}}, r"settings takes ModelSettings\(…\), not dict"),
        ({"tools": "time/*"}, "tools takes a list, not str"),
        ({"tools": [print]}, "tools takes a list of strings, but an item is the function print"),
        ({"model": 42}, "expected the name of a model, or a Provider, not int"),
        ({"history": ["Hi"]}, r"expected Messages, but item 0 is of type str: use Message.user\(text\)"),
        ({"colour": 0.5}, "unknown keyword 'colour': a turn takes model, .*, wait_for_background and output_type"),
    ]
    async with DialClient(ScriptedProvider([])) as dial:
        for options, problem in wrong:
            with pytest.raises(TypeError, match=f"{problem}$"):
                dial.start("Hi", **options)
        for options, problem in [wrong[0], ({"limits": {"timeout": 1}}, "limits takes Limits")]:
            with pytest.raises(TypeError, match=problem):
                await dial.map(["Hi"], **options)


@pytest.mark.anyio
async def test_invalid_limits_of_a_turn_are_a_type_error() -> None:
    limits: Any = {"timeout": 1}
    async with DialClient(ScriptedProvider([])) as dial:
        with pytest.raises(TypeError, match=r"limits takes Limits\(…\), not dict"):
            await dial.run("Hi", limits=limits)


def test_an_unknown_value_of_on_limit_is_refused() -> None:
    way: Any = "boom"
    with pytest.raises(ConfigError, match="unknown on_limit 'boom'"):
        DialClient(ScriptedProvider([]), on_limit=way)


def test_a_limit_and_replies_that_are_strings_are_type_errors() -> None:
    seconds: Any = "10"
    with pytest.raises(TypeError, match="timeout must be a number, not str"):
        Limits(timeout=seconds)
    with pytest.raises(TypeError, match=r"replies takes a list: replies=\['Hello.'\]"):
        ScriptedProvider("Hello.")


class Prepared(ScriptedProvider):
    """A provider that counts the calls of `prepare`."""

    count = 0

    async def prepare(self) -> None:
        self.count += 1


@pytest.mark.anyio
async def test_opening_a_client_twice_prepares_the_model_once() -> None:
    model = Prepared(["One."])
    dial = DialClient(model)
    await dial.open()
    await dial.open()
    turn = await dial.run("Hi")
    await dial.aclose()
    assert (model.count, turn.text) == (1, "One.")


class Downloaded(Prepared):
    """A provider whose model `prepare` downloads."""

    @property
    def needs_download(self) -> bool:
        return not self.count


@pytest.mark.anyio
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: FallbackProvider([model, ScriptedProvider([])])])
async def test_a_model_is_downloaded_for_the_first_turn_and_not_when_the_client_opens(
    wrap: Callable[[Provider], Provider],
) -> None:
    model = Downloaded(["One.", "Two."])
    async with DialClient(wrap(model)) as dial:
        await dial.ready()
        await anyio.wait_all_tasks_blocked()
        assert model.count == 0
        assert (await dial.run("Hi")).text == "One."
        await dial.run("Again")
    assert model.count == 1


@pytest.mark.anyio
async def test_a_recording_downloads_nothing_before_the_first_turn(tmp_path: Path) -> None:
    model = Downloaded(["One."])
    async with DialClient(model, record=tmp_path / "recording.jsonl") as dial:
        await anyio.wait_all_tasks_blocked()
        assert model.count == 0
        await dial.run("Hi")
    assert model.count == 1


@pytest.mark.anyio
@pytest.mark.parametrize("given", [42, None, ["Hi"], {"role": "user", "content": "Hi"}, EditedMessage(0, b"Hi")])  # type: ignore[arg-type]
async def test_an_invalid_message_is_neither_stored_nor_answered(given: Any) -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        calls: list[Callable[[str, Any], Awaitable[Any]]] = [manager.chat, manager.start]
        for call in calls:
            with pytest.raises(
                TypeError, match=r"a conversation continues with a text or a Message, not \w+(: use .*)?$"
            ):
                await call(conversation.id, given)
        with pytest.raises(TypeError):
            await anext(manager.stream_chat(conversation.id, given))
        assert (await manager.get(conversation.id)).messages == ()


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("sqlite:///talk.db", r": SQLStore\('sqlite:///talk.db'\) opens a database"),
        ("talk.db", r": SQLStore\(Path\('talk.db'\)\) opens a database"),
        (MemoryStore, r"the class MemoryStore: pass an instance, MemoryStore\(…\)"),
        (Silent(), "Silent, which has no create, append, .*delete"),
        (None, "NoneType"),
    ],
)
def test_an_invalid_store_is_a_type_error(store: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=f"expected a ConversationStore, not .*{problem}$"):
        ConversationManager(DialClient(ScriptedProvider([])), store)


@pytest.mark.anyio
async def test_other_arguments_of_a_manager_of_the_wrong_type_are_errors() -> None:
    dial: Any = DialClient(ScriptedProvider([]))
    no_client: Any = "sqlite:///talk.db"
    messages: Any = [Message.system("Be brief.")]
    with pytest.raises(TypeError, match=r"expected a DialClient\(…\), not str"):
        ConversationManager(no_client, MemoryStore())
    with pytest.raises(TypeError, match="patience takes a number of seconds, not str"):
        ConversationManager(dial, MemoryStore(), patience=no_client)
    with pytest.raises(ConfigError, match="compact_at must be from 0 to 1, not 80"):
        ConversationManager(dial, MemoryStore(), compact_at=80)
    with pytest.raises(TypeError, match="title takes a string, not list"):
        await ConversationManager(dial, MemoryStore()).create(messages)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "conversation",
    ["Hi", Message.user("Hi"), [Message.user("Hi")], (Message.user("Hi"),)],
    ids=["text", "one", "list", "tuple"],
)
async def test_a_turn_takes_a_text_a_message_or_messages(conversation: Any) -> None:
    model = ScriptedProvider(["One.", "Two.", "Three."])
    async with DialClient(model) as dial:
        assert (await dial.run(conversation)).text == "One."
        assert (await dial.response(conversation)).text == "Two."
        assert [text async for text in dial.stream_response(conversation)][-1] == "data: [DONE]\n\n"
    assert [request.messages for request in model.requests] == [(Message.user("Hi"),)] * 3


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        (42, "expected a text, a Message or a sequence of Messages, not int"),
        (None, "not NoneType"),
        (b"Hi", "not bytes"),
        (["Hi"], r"item 0 is of type str: use Message.user\(text\)"),
        ([Message.user("Hi"), {"role": "user"}], r"item 1 is of type dict: use Message.from_dict\(data\)"),
    ],
)
async def test_an_invalid_conversation_is_a_type_error(conversation: Any, problem: str) -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        calls: list[Callable[[Any], Any]] = [dial.run, dial.response]
        for call in calls:
            with pytest.raises(TypeError, match=problem):
                await call(conversation)
        for stream in (dial.stream, dial.stream_response):
            with pytest.raises(TypeError, match=problem):
                async for _ in stream(conversation):
                    pass


@pytest.mark.anyio
async def test_instructions_of_one_turn_apply_to_that_turn_only() -> None:
    model = ScriptedProvider(["One.", "Two.", "Three."])
    async with DialClient(model, system="Be polite.") as dial:
        await dial.run("Hi", system="Be brief.")
        await dial.run("Hi", system="")
        await dial.run("Hi")
    texts = [[instruction.text for instruction in request.instructions] for request in model.requests]
    assert ["Be brief." in texts[0], "Be polite." in texts[1], "Be polite." in texts[2]] == [True, False, True]
    assert "Be polite." not in texts[0]


@pytest.mark.anyio
async def test_a_turn_stops_at_its_own_limits() -> None:
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedProvider([{"tool_calls": [{"name": "look", "arguments": {}}]}, "So far."] * 2)
    async with DialClient(model, tools=[look], limits=Limits(max_depth=5)) as dial:
        short = await dial.run("Hi", limits=Limits(max_depth=0))
        usual = await dial.run("Hi")
    assert (short.stop_reason, short.text, usual.stop_reason) == (StopReason.MAX_DEPTH, "So far.", StopReason.ANSWERED)
