"""Messages converted to the formats of the vendors have the types of the vendors' SDKs."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from dial_client import to_anthropic, to_openai
from tests.unit.test_vendor_messages import CONVERSATION

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("written", "type_"),
    [(to_openai(CONVERSATION), ChatCompletionMessageParam), (to_anthropic(CONVERSATION), MessageParam)],
    ids=["openai", "anthropic"],
)
def test_each_message_has_the_type_of_the_sdk(written: list[dict[str, Any]], type_: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    for message in written:
        validated = adapter.validate_python(message)
        assert validated["role"] == message["role"]
        for name in ("content", "tool_calls"):
            # Validated lists are iterators, whose items are checked when they are read.
            value = validated.get(name)
            assert (value if value is None or isinstance(value, str) else list(value)) == message.get(name)
