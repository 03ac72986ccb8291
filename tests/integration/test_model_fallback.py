"""Fallback models over HTTP: a turn continues with a model of another API."""

from __future__ import annotations

import pytest

from dial_client import DialClient
from tests.inner import Api, ModelProfile
from tests.support.model_endpoint import Answer, Call, Say, model_endpoint, refuse

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_turn_continues_with_the_fallback_model_of_another_api() -> None:
    first: list[Answer] = [
        Say(calls=(Call("double", {"number": 4}),), reasoning="Let me see."),
        refuse(401, "no such key"),
    ]
    with model_endpoint(first) as a, model_endpoint([Say("It is 8.")]) as b:
        models = {
            "main": ModelProfile("main", Api.MESSAGES, a.url, "m", "key-a", fallback_models=("spare",)),
            "spare": ModelProfile("spare", Api.CHAT, f"{b.url}/v1", "n", "key-b"),
        }
        async with DialClient("main", models=models, tools=[double]) as dial:
            turn = await dial.run("What is 2 * 4?")
    assert turn.text == "It is 8."
    [note] = turn.notes
    assert note.startswith("chat:n@")
    assert "answered in place of messages:m@" in note
    assert "key-a" not in note
    [request] = b.requests
    assert [message["role"] for message in request.json["messages"]][-3:] == ["user", "assistant", "tool"]
    assert "Let me see." not in str(request.json), "the reasoning of one model is not sent to another"
    assert request.headers["authorization"] == "Bearer key-b"
