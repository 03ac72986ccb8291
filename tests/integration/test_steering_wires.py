"""How a message that steers a turn is written: after the results, in each API and each format of tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import Api, DialClient
from tests.integration.test_steering import STEERED, Lookout, steer_while_looking
from tests.support.model_endpoint import Call, Say, model_endpoint, provider_of

pytestmark = pytest.mark.anyio

CALLS = {
    "native": Say("", (Call("look"),)),
    "xml": Say('<tool_call>{"name": "look", "arguments": {}}</tool_call>'),
    "react": Say("Action: look\nAction Input: {}"),
}
CALL_ID = "call_1"


async def send_steered(api: Api, form: Any) -> Any:
    """Return what follows the reply with the call in the request after a steering message."""
    lookout = Lookout()
    with model_endpoint([CALLS[form], Say("A kitchen.")]) as endpoint:
        async with DialClient(
            provider_of(endpoint, api), servers={"lookout": lookout.server}, tool_format=form
        ) as dial:
            turn = dial.start("What is there?")
            await steer_while_looking(turn, lookout, STEERED, "Please.")
            await turn.result()
        body = endpoint.requests[1].json
    sent = body.get("messages") or body["input"]
    last = max(
        at for at, part in enumerate(sent) if part.get("role") == "assistant" or part.get("type") == "function_call"
    )
    return sent[last + 1 :]


async def test_chat_completions_have_one_message_of_the_user_after_the_results() -> None:
    """Some chat templates refuse two messages of the user in a row."""
    assert await send_steered(Api.CHAT, "native") == [
        {"role": "tool", "tool_call_id": CALL_ID, "content": "a garden"},
        {"role": "user", "content": f"{STEERED}\n\nPlease."},
    ]


async def test_responses_have_messages_of_the_user_after_the_outputs() -> None:
    output, *messages = await send_steered(Api.RESPONSES, "native")
    assert output == {"type": "function_call_output", "call_id": CALL_ID, "output": "a garden"}
    assert [(message["role"], message["content"]) for message in messages] == [("user", STEERED), ("user", "Please.")]


async def test_messages_have_the_texts_beside_the_results_in_one_message_of_the_user() -> None:
    result = {"type": "tool_result", "tool_use_id": CALL_ID, "content": "a garden"}
    texts = [{"type": "text", "text": STEERED}, {"type": "text", "text": "Please."}]
    assert await send_steered(Api.MESSAGES, "native") == [{"role": "user", "content": [result, *texts]}]


@pytest.mark.parametrize(
    ("form", "result"), [("xml", "<tool_response>\na garden\n</tool_response>"), ("react", "Observation: a garden")]
)
async def test_text_formats_have_it_after_the_text_of_the_results(form: str, result: str) -> None:
    text = f"{result}\n\n{STEERED}\n\nPlease."
    assert await send_steered(Api.CHAT, form) == [{"role": "user", "content": text}]
