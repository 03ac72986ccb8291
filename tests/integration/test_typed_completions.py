"""`response_format` of the OpenAI-compatible endpoint, tested with the OpenAI SDK."""

from __future__ import annotations

import json

import openai
import pytest
from openai.lib._parsing._completions import type_to_response_format_param
from pydantic import BaseModel

from tests.integration.test_chat_completions import HI, asked, whole
from tests.integration.test_conversation_routes import ADD, Maths
from tests.support.http_service import MODEL

pytestmark = [pytest.mark.anyio, pytest.mark.once]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Sum(BaseModel):
    total: int


async def test_a_client_gets_an_answer_in_its_response_format() -> None:
    replies = [ADD | {"text": "Let me add."}, {"text": '{"total": "3"}'}]
    async with asked(replies, {"maths": Maths().server}, allow=["*"]) as ai:
        done = await ai.chat.completions.parse(model=MODEL, messages=HI, response_format=Sum)
    assert done.choices[0].message.parsed == Sum(total=3)
    assert done.choices[0].finish_reason == "stop"


async def test_the_text_of_a_stream_with_a_response_format_is_json() -> None:
    replies = [ADD | {"text": "Let me add."}, {"text": "No."}, {"text": '{"total": 3}'}]
    async with asked(replies, {"maths": Maths().server}, allow=["*"]) as ai:
        stream = await ai.chat.completions.create(
            model=MODEL, messages=HI, stream=True, response_format=type_to_response_format_param(Sum)
        )
        chunks = [chunk async for chunk in stream]
    assert json.loads(whole(chunks)) == {"total": 3}
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_an_answer_that_does_not_fit_its_response_format_is_an_error() -> None:
    async with asked(["No."] * 6) as ai:
        with pytest.raises(openai.InternalServerError, match="does not satisfy the schema"):
            await ai.chat.completions.create(model=MODEL, messages=HI, response_format={"type": "json_object"})
        with pytest.raises(openai.APIError, match="does not satisfy the schema"):
            [
                _
                async for _ in await ai.chat.completions.create(
                    model=MODEL, messages=HI, stream=True, response_format={"type": "json_object"}
                )
            ]


async def test_a_truncated_answer_with_a_response_format_has_finish_reason_length() -> None:
    async with asked([{"text": '{"tot', "finish": "length"}]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI, response_format={"type": "json_object"})
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ('{"tot', "length")
