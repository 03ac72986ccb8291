"""A message of the user for a running turn: the model gets it with the results of the next tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from tests.inner import (
    Approval,
    ConversationManager,
    ConversationStore,
    DialClient,
    EditedMessage,
    Limits,
    Message,
    MessageCompleted,
    Regeneration,
    Role,
    ScriptedProvider,
    StopReason,
    TextDelta,
    ToolSpec,
    TurnHandle,
)
from tests.support.managed_conversations import managed, read_messages

pytestmark = pytest.mark.anyio

LOOK = {"tool_calls": [{"name": "look", "arguments": {}}]}
STEERED = "Not the garden: the kitchen."


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


class Lookout:
    """A server in this process, whose tool waits until it is let go."""

    def __init__(self) -> None:
        self.is_looking, self.may_return = anyio.Event(), anyio.Event()
        self.server = MCPServer("lookout")
        self.server.add_tool(self.look)

    async def look(self) -> str:
        self.is_looking.set()
        with anyio.fail_after(60):
            await self.may_return.wait()
        return "a garden"


async def steer_while_looking(turn: TurnHandle, lookout: Lookout, *texts: str) -> None:
    with anyio.fail_after(60):
        await lookout.is_looking.wait()
    for text in texts:
        assert turn.steer(text)
    lookout.may_return.set()


def roles(messages: Sequence[Message]) -> list[str]:
    return [f"{message.role.value}{'*' if message.steers else ''}" for message in messages]


async def test_a_running_turn_is_steered_with_the_next_results(store: ConversationStore) -> None:
    model, lookout = ScriptedProvider([LOOK, "A kitchen.", "Yes."]), Lookout()
    async with managed(store, model, {"lookout": lookout.server}) as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "What is there?")
        await steer_while_looking(turn, lookout, STEERED, "Please.")
        result = await turn.result()
        events = [event async for _, event in turn.log.events()]
        stored = await read_messages(store, made.id)
        assert turn.take_unsent() == ()
        await manager.chat(made.id, "Sure?")
    sent = model.requests[1].messages
    assert [message.text for message in sent[-3:]] == ["a garden", STEERED, "Please."]
    assert roles(result.messages) == ["user", "assistant", "tool", "user*", "user*", "assistant"]
    assert result.messages == stored, "its right place, also in the store"
    completed = [event.message for event in events if isinstance(event, MessageCompleted)]
    assert completed == list(result.messages[1:])
    assert [message.text for message in model.requests[2].messages][3:5] == [STEERED, "Please."]


async def test_a_message_that_the_model_did_not_get_is_the_next_question(store: ConversationStore) -> None:
    model = ScriptedProvider([{"text": "Done", "chunk_size": 1}])
    async with managed(store, model) as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "Do it.")
        assert turn.steer(STEERED)
        result = await turn.result()
        assert roles(result.messages) == ["user", "assistant"]
        assert turn.unsent[0].text == STEERED
        assert turn.take_unsent() == (Message.user(STEERED),)
        assert turn.take_unsent() == ()
        assert not turn.steer("too late")


async def test_a_withdrawn_message_does_not_reach_the_model(store: ConversationStore) -> None:
    model, lookout = ScriptedProvider([LOOK, "A garden."]), Lookout()
    async with managed(store, model, {"lookout": lookout.server}) as manager:
        turn = await manager.start((await manager.create()).id, "What is there?")
        with anyio.fail_after(60):
            await lookout.is_looking.wait()
        turn.steer(STEERED)
        assert [message.text for message in turn.take_unsent()] == [STEERED]
        lookout.may_return.set()
        assert roles((await turn.result()).messages) == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"limits": Limits(max_tokens_total=1)}, StopReason.TOKEN_BUDGET),
        ({"client_tools": True}, StopReason.CLIENT_TOOL_CALLS),
    ],
)
async def test_a_turn_that_ends_with_results_takes_no_message(options: Mapping[str, Any], reason: StopReason) -> None:
    mine = (ToolSpec("mine", "", {"type": "object"}),) if options.get("client_tools") else ()
    call = {"tool_calls": [*LOOK["tool_calls"], *({"name": tool.name, "arguments": {}} for tool in mine)]}
    lookout = Lookout()
    model = ScriptedProvider([{**call, "usage": {"input_tokens": 5}}, "Stopped."])
    rest = {key: value for key, value in options.items() if key != "client_tools"}
    async with DialClient(model, servers={"lookout": lookout.server}, **rest) as dial:
        turn = dial.start("What is there?", client_tools=mine)
        await steer_while_looking(turn, lookout, STEERED)
        assert (await turn.result()).stop_reason is reason
        assert [message.text for message in turn.take_unsent()] == [STEERED]


async def test_a_steering_message_belongs_to_its_exchange(store: ConversationStore) -> None:
    model, lookout = ScriptedProvider([LOOK, "A kitchen.", LOOK, "A garden."]), Lookout()
    async with managed(store, model, {"lookout": lookout.server}) as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "What is there?")
        await steer_while_looking(turn, lookout, STEERED)
        await turn.result()
        again = await manager.start(made.id, Regeneration())
        await again.result()
        assert [message.role for message in model.requests[2].messages] == [Role.USER], "the question alone"
        view = await manager.view(made.id)
        assert roles(view.conversation.messages) == ["user", "assistant", "tool", "assistant"]
        removed = await manager.undo(made.id)
        assert len(removed) == 4
        assert (await manager.get(made.id)).messages == ()


async def test_a_turn_whose_process_was_killed_is_resumed_with_its_steering_message(store: ConversationStore) -> None:
    model, lookout = ScriptedProvider([LOOK, {"text": "A kit", "hang": True}, LOOK, "A kitchen."]), Lookout()
    async with managed(store, model, {"lookout": lookout.server}, lease=0.5) as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "What is there?")
        await steer_while_looking(turn, lookout, STEERED)
        with anyio.fail_after(60):
            async with aclosing(turn.log.events()) as events:
                async for _, event in events:
                    if event == TextDelta("A kit"):
                        break
        turn.abandon()  # leaves the store as a killed process does
        await turn.stop()
        resumed = await manager.resume(made.id)
        assert resumed is not None
        result = await resumed.result()
        stored = await read_messages(store, made.id)
    expected = ["user", "assistant", "tool", "user*", "assistant", "tool", "assistant"]
    assert roles(stored) == expected
    assert roles(result.messages) == expected, "the question of the turn is not the steering message"
    assert result.depth == 2
    assert [message.text for message in model.requests[2].messages] == ["What is there?", "", "a garden", STEERED]


async def test_a_steering_message_is_kept_in_every_form(store: ConversationStore) -> None:
    steering = Message(Role.USER, STEERED, steers=True)
    assert Message.from_dict(steering.to_dict()) == steering
    assert not steering.is_question
    assert "steers" not in Message.user("Hello").to_dict()
    model, lookout = ScriptedProvider([LOOK, "A kitchen."]), Lookout()
    async with managed(store, model, {"lookout": lookout.server}) as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "What is there?")
        await steer_while_looking(turn, lookout, STEERED)
        await turn.result()
        copy = await manager.import_json(await manager.export(made.id))
        assert roles(copy.messages) == ["user", "assistant", "tool", "user*", "assistant"]
        assert STEERED in await manager.export(made.id, "markdown")
        with pytest.raises(Exception, match="cannot be edited"):
            await manager.chat(made.id, EditedMessage(3, "no"))


@pytest.mark.parametrize("wrong", [7, Message.assistant("no"), None])
async def test_only_a_message_of_the_user_steers(wrong: Any) -> None:
    async with DialClient(ScriptedProvider(["Done"])) as dial:
        turn = dial.start("Do it.")
        with pytest.raises(TypeError, match="steered by a text"):
            turn.steer(wrong)
        await turn.result()


async def wait_until_stored(store: ConversationStore, id_: str, text: str) -> None:
    """Wait until an unfinished message of the conversation has a text."""
    while not any(text in message.text for message in (await store.get(id_)).unfinished):  # noqa: ASYNC110 - the store has no event
        await anyio.sleep(0.01)


async def test_a_message_that_a_killed_turn_did_not_get_is_in_the_conversation(store: ConversationStore) -> None:
    model, lookout = ScriptedProvider([LOOK, "Sure."]), Lookout()
    async with managed(store, model, {"lookout": lookout.server}, lease=30) as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "What is there?")
        await lookout.is_looking.wait()
        turn.steer(STEERED)
        await wait_until_stored(store, made.id, STEERED)
        turn.abandon()  # leaves the store as a killed process does
        await turn.stop()
        assert roles((await manager.get(made.id)).messages) == ["user", "assistant", "tool", "user*"]
        await manager.chat(made.id, "Go on.")
        stored = await read_messages(store, made.id)
    assert roles(stored) == ["user", "assistant", "tool", "user*", "user", "assistant"]
    assert [message.text for message in model.requests[1].messages][3:] == [STEERED, "Go on."]


async def test_a_resumed_turn_gets_the_message_after_the_call_that_waited(store: ConversationStore) -> None:
    model, lookout = ScriptedProvider([LOOK, "A kitchen."]), Lookout()
    is_asked, may_answer = anyio.Event(), anyio.Event()

    async def approve(*_: Any) -> Approval:
        is_asked.set()
        await may_answer.wait()
        return Approval("once")

    lookout.may_return.set()
    with anyio.fail_after(60):
        async with DialClient(model, servers={"lookout": lookout.server}, approve=approve) as dial:
            manager = ConversationManager(dial, store, lease=30)
            made = await manager.create()
            turn = await manager.start(made.id, "What is there?")
            await is_asked.wait()
            turn.steer(STEERED)
            await wait_until_stored(store, made.id, STEERED)
            turn.abandon()
            await turn.stop()
            may_answer.set()
            assert len((await manager.get(made.id)).pending_approvals) == 1
            resumed = await manager.resume(made.id)
            assert resumed is not None
            await resumed.result()
            again = await manager.get(made.id)
    assert [message.text for message in model.requests[-1].messages] == ["What is there?", "", "a garden", STEERED]
    assert roles(again.messages) == ["user", "assistant", "tool", "user*", "assistant"]
