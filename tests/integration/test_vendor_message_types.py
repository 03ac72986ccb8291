"""Messages converted to the formats of the vendors have the types of the vendors' SDKs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from pydantic import TypeAdapter

from dial_client.extend import to_anthropic, to_openai
from tests.unit.test_vendor_messages import CONVERSATION

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("written", "module", "name"),
    [
        (to_openai(CONVERSATION), "openai.types.chat", "ChatCompletionMessageParam"),
        (to_anthropic(CONVERSATION), "anthropic.types", "MessageParam"),
    ],
    ids=["openai", "anthropic"],
)
def test_each_message_has_the_type_of_the_sdk(written: list[dict[str, Any]], module: str, name: str) -> None:
    # The SDKs take seconds to import: only the worker of this test does.
    type_ = getattr(import_module(module), name)
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    for message in written:
        validated = adapter.validate_python(message)
        assert validated["role"] == message["role"]
        for key in ("content", "tool_calls"):
            # Validated lists are iterators, whose items are checked when they are read.
            value = validated.get(key)
            assert (value if value is None or isinstance(value, str) else list(value)) == message.get(key)
