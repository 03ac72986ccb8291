"""Settings of a conversation: model, instructions, tools and limits, in every kind of store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    Api,
    ConfigError,
    ConversationManager,
    ConversationStore,
    DialClient,
    InstructionSource,
    Limits,
    Message,
    ModelProfile,
    ModelSettings,
    Options,
    ScriptedProvider,
    Settings,
    TurnKeywords,
    apply_configuration,
    check_settings,
    configuration,
    open_client,
    open_model,
)
from tests.inner import read_settings as read_conversation_settings
from tests.support.http_service import serve
from tests.support.managed_conversations import ADD, Calculator, managed
from tests.support.model_endpoint import Say, model_endpoint

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


async def test_changed_settings_apply_to_the_next_turn_in_every_process(store: ConversationStore) -> None:
    provider = ScriptedProvider(["One.", "Two.", "Three."])
    servers = {"calculator": Calculator().server}
    async with managed(store, provider, servers) as manager:
        made = await manager.create()
        await manager.chat(made.id, "1")
        settings = {"system": "Be brief.", "disabled_tools": ["add"], "max_tokens": 50, "limits": {"max_depth": 2}}
        await manager.update_settings(made.id, settings)
        assert (await manager.view(made.id)).settings == settings
    async with DialClient(provider, servers=servers) as dial:
        manager = ConversationManager(dial, store)
        await manager.chat(made.id, "2")
        await manager.update_settings(made.id, {"disabled_servers": ["calculator"]})
        await manager.chat(made.id, "3")
    first, second, third = provider.requests
    assert [[tool.name for tool in request.tools] for request in (first, second, third)] == [
        ["add", "wait"],
        ["wait"],
        [],
    ]
    own = [
        [i.text for i in request.instructions if i.source is InstructionSource.CONVERSATION]
        for request in (second, third)
    ]
    assert own == [["Be brief."], []]
    assert second.settings.max_tokens == 50


async def test_a_disabled_tool_is_not_run_even_if_the_model_calls_it(store: ConversationStore) -> None:
    async with managed(store, [ADD, "No."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        await manager.update_settings(made.id, {"disabled_tools": ["add"]})
        turn = await manager.chat(made.id, "Add!")
    assert [record.result.failure for record in turn.tool_calls] == ["unknown_tool", "unknown_tool"]


async def test_locked_settings_are_refused_and_have_no_effect(store: ConversationStore) -> None:
    provider = ScriptedProvider(["One.", "Two."])
    async with DialClient(provider) as dial:
        made = await ConversationManager(dial, store).create()
        await ConversationManager(dial, store).update_settings(made.id, {"system": "Be rude.", "max_tokens": 9})
        locked = ConversationManager(dial, store, locked_settings=["system"])
        with pytest.raises(ConfigError, match="locked"):
            await locked.update_settings(made.id, {"system": "Be rude."})
        await locked.chat(made.id, "Hello?")
    assert [i.text for i in provider.requests[0].instructions if i.text == "Be rude."] == []
    assert provider.requests[0].settings.max_tokens == 9


async def test_a_conversation_uses_its_own_model_and_temperature(store: ConversationStore) -> None:
    with model_endpoint([Say("The main one.")]) as main, model_endpoint([Say("The spare one.")]) as spare:
        models = {
            "main": ModelProfile("main", Api.CHAT, main.url, "m", "key"),
            "spare": ModelProfile("spare", Api.CHAT, spare.url, "s", "key"),
        }
        async with DialClient("main", models=models) as dial:
            manager = ConversationManager(dial, store)
            made = await manager.create()
            for settings in ({"model": "gone"}, {"model": "spare", "tool_format": "yaml"}):
                with pytest.raises(ConfigError):
                    await manager.update_settings(made.id, settings)
            await manager.update_settings(made.id, {"model": "spare", "temperature": 0.5})
            turn = await manager.chat(made.id, "Hello?", output_type=None)
            copied = await manager.fork(made.id)
            view = await manager.view(copied.id)
            assert (await manager.chat((await manager.create()).id, "Hello?")).text == "The main one."
    assert turn.text == "The spare one."
    assert [(sent.json["model"], sent.json.get("temperature")) for sent in spare.requests] == [("s", 0.5)]
    assert [sent.json.get("temperature") for sent in main.requests] == [None]
    assert view.settings == {"model": "spare", "temperature": 0.5}
    assert [details["stop_reason"] for _, details in view.turns] == ["answered"]


async def test_a_conversation_with_a_removed_model_is_not_sent_to_another_model(store: ConversationStore) -> None:
    replies = [Say("The main one.")] * 2
    with model_endpoint(replies) as main, model_endpoint([Say("Back.")]) as spare:
        models = {
            "main": ModelProfile("main", Api.CHAT, main.url, "m", "key"),
            "spare": ModelProfile("spare", Api.CHAT, spare.url, "s", "key"),
        }
        own = {"model": "spare", "temperature": 0.5, "tool_format": "react", "system": "Be brief."}
        async with DialClient("main", models=models) as dial:
            manager = ConversationManager(dial, store)
            made = await manager.create()
            await manager.update_settings(made.id, own)
            dial.model.set_profiles({"main": models["main"]})
            for refused in (manager.chat(made.id, "Hello?"), manager.compact(made.id)):
                with pytest.raises(ConfigError, match="'spare' of this conversation is not available any more"):
                    await refused
            assert (await manager.view(made.id)).settings == own, "the settings stay, for the day the model is back"
            await manager.update_settings(made.id, {"system": "Be brief."})
            assert (await manager.chat(made.id, "Hello?")).text == "The main one."
            plain = await manager.create()
            assert (await manager.chat(plain.id, "Hello?")).notes == ()
            dial.model.set_profiles(models)
            await manager.update_settings(made.id, own)
            assert (await manager.chat(made.id, "Hello?")).notes == ()
    assert [(sent.json.get("temperature"), "Be brief." in str(sent.json)) for sent in main.requests] == [
        (None, True),
        (None, False),
    ]
    assert [sent.json["temperature"] for sent in spare.requests] == [0.5]


async def test_a_summary_is_written_by_the_model_of_the_conversation(store: ConversationStore) -> None:
    with model_endpoint([Say("Not asked.")]) as main, model_endpoint([Say("Yes."), Say("A summary.")]) as spare:
        models = {
            "main": ModelProfile("main", Api.CHAT, main.url, "m", "key"),
            "spare": ModelProfile("spare", Api.CHAT, spare.url, "s", "key", context_window=4_000),
        }
        async with DialClient("main", models=models) as dial:
            manager = ConversationManager(dial, store)
            made = await manager.create()
            await manager.update_settings(made.id, {"model": "spare"})
            await manager.chat(made.id, "This stays with the spare model.")
            await manager.chat(made.id, "And this.")
            assert 0 < await manager.measure(made.id) < 0.2, "the window is that of the conversation's model"
            compaction = await manager.compact(made.id, keep=0)
    assert compaction is not None
    assert compaction.summary == "A summary."
    assert main.requests == []


def read_settings(main: str, spare: str) -> Settings:
    models = {
        name: {"api": "chat", "baseUrl": url, "model": name[0], "apiKey": "key"}
        for name, url in (("main", main), ("spare", spare))
    }
    return configuration.parse(json.dumps({"models": models, "defaultModel": "main"}))


@pytest.mark.parametrize("kept", [("asyncio", "memory")], indirect=True)
async def test_conversations_can_use_the_profiles_of_the_configuration(store: ConversationStore) -> None:
    with (
        model_endpoint([Say("The main one.")]) as main,
        model_endpoint([Say("The spare one.")]) as spare,
        model_endpoint([Say("The other one.")]) as override,
    ):
        options, settings = Options(base_url=override.url), read_settings(main.url, spare.url)
        async with open_client(options, settings, open_model(options, settings), None) as dial:
            manager = ConversationManager(dial, store)
            made = await manager.create()
            texts = []
            for own in ({"model": "spare"}, {"model": "main"}, {"temperature": 0.5}, {"tool_format": "react"}):
                await manager.update_settings(made.id, own)
                texts.append((await manager.chat(made.id, "Hello?")).text)
            assert dial.model.select("main") is dial.model
            await manager.update_settings(made.id, {"model": "spare"})
            moved = read_settings(main.url, main.url)
            await apply_configuration(dial, options, settings, moved, lambda *_: None)
            texts.append((await manager.chat(made.id, "Hello?")).text)
    assert texts == ["The spare one.", *["The other one."] * 3, "The main one."]
    assert [sent.json.get("temperature") for sent in override.requests] == [None, 0.5, None]


async def test_settings_of_conversations_apply_after_switching_the_model(store: ConversationStore) -> None:
    first, second = ScriptedProvider(["First."]), ScriptedProvider(["Second."])
    async with DialClient(first) as dial:
        manager = ConversationManager(dial, store)
        made = await manager.create()
        await manager.update_settings(made.id, {"tool_format": "react"})
        assert (await manager.chat(made.id, "Hello?")).text == "First."
        dial.model.switch(second)
        assert (await manager.chat(made.id, "Hello?")).text == "Second."


async def test_a_temperature_applies_to_a_model_without_a_profile(store: ConversationStore) -> None:
    provider = ScriptedProvider(["One."])
    async with managed(store, provider) as manager:
        made = await manager.create()
        await manager.update_settings(made.id, {"temperature": 1})
        await manager.chat(made.id, "Hello?")
    assert provider.requests[0].settings.temperature == 1


async def test_keywords_of_a_turn_precede_the_settings_of_its_conversation(store: ConversationStore) -> None:
    provider = ScriptedProvider(["One.", "Two."])
    async with managed(store, provider, {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        own = {"system": "Be brief.", "temperature": 1, "max_tokens": 9, "disabled_servers": ["gone"]}
        await manager.update_settings(made.id, own)
        example = (Message.user("0"), Message.assistant("Zero."))
        keywords: TurnKeywords = {
            "settings": ModelSettings(max_tokens=5),
            "tools": ["calculator/a*"],
            "system": "Be verbose.",
            "history": example,
        }
        turn = await manager.chat(made.id, "1", **keywords)
        await manager.chat(made.id, "2")
        stored = (await manager.get(made.id)).messages
    first, second = provider.requests
    assert first.settings == ModelSettings(temperature=1, max_tokens=5)
    assert second.settings == ModelSettings(temperature=1, max_tokens=9)
    assert [[tool.name for tool in request.tools] for request in (first, second)] == [["add"], ["add", "wait"]]
    assert ["Be verbose." in request.instruction_text for request in (first, second)] == [True, False]
    assert [message.text for message in first.messages] == ["0", "Zero.", "1"]
    assert [message.text for message in turn.messages] == ["1", "One."]
    assert [message.text for message in stored] == ["1", "One.", "2", "Two."], "the history is not stored"


WRONG: list[Any] = [
    [],
    {"unknown": 1},
    {"model": 1},
    {"tool_format": "yaml"},
    {"temperature": "hot"},
    {"temperature": 3},
    {"temperature": True},
    {"max_tokens": 0},
    {"disabled_tools": "add"},
    {"limits": {"max_depth": 1.5}},
    {"limits": {"max_parallel": 1}},
    {"limits": {"timeout": float("nan")}},
]


def test_invalid_settings_are_refused_and_have_no_effect_if_stored() -> None:
    for settings in WRONG:
        with pytest.raises(ConfigError):
            check_settings(settings)
        if isinstance(settings, dict):
            assert read_conversation_settings(settings, Limits()) == read_conversation_settings({}, Limits())


async def test_a_conversation_can_lower_but_not_raise_the_limits_of_the_client(store: ConversationStore) -> None:
    async with managed(store, ["One."]) as manager:
        made = await manager.create()
        with pytest.raises(ConfigError, match="at most 10 here"):
            await manager.update_settings(made.id, {"limits": {"max_depth": 11}})
        await manager.update_settings(made.id, {"limits": {"max_depth": 10, "max_tokens_total": 5}})
    stored = {"limits": {"max_depth": 50, "timeout": 3, "max_tokens_total": 9_000}}
    settings = read_conversation_settings(stored, Limits(max_depth=4, timeout=10, max_tokens_total=1_000))
    assert settings.keywords.get("limits") == Limits(max_depth=4, timeout=3, max_tokens_total=1_000)


@pytest.mark.parametrize("kept", [("asyncio", "memory")], indirect=True)
async def test_settings_are_read_and_changed_over_http_and_locked_by_the_operator(tmp_path: Path) -> None:
    async with serve(["One."], locked_settings=["temperature"]) as server:
        where = await server.conversation()
        changed = await server.json("PATCH", where, json={"settings": {"system": "Be brief."}})
        assert changed["settings"] == {"system": "Be brief."}
        assert (await server.json("GET", where))["settings"] == {"system": "Be brief."}
        refused = await server.http.request("PATCH", where, json={"settings": {"temperature": 1}})
        assert refused.status_code == 400
        models = await server.json("GET", "/models")
        assert models["locked"] == ["temperature"]
        assert json.dumps(models["models"])
