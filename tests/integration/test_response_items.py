"""Items of a response that are sent back in the next request: only items and fields of the API's schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from openai.types.responses import ResponseOutputItem
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from tests.inner import ITEM_FIELDS, Message, ProviderState, Role, ToolCallRequest, to_input_item, to_messages

CALL = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "now", "arguments": "{}", "status": "completed"}


def list_members(union: Any) -> Iterator[Any]:
    if get_origin(union) is Annotated:
        yield from list_members(get_args(union)[0])
    elif get_origin(union) is Union:
        for member in get_args(union):
            yield from list_members(member)
    else:
        yield union


def list_literals(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, str):
        yield annotation
    for argument in get_args(annotation):
        yield from list_literals(argument)


def test_the_items_and_fields_are_those_of_the_vendors_types() -> None:
    fields: dict[str, set[str]] = {}
    for params in list_members(ResponseInputItemParam):
        hints = get_type_hints(params)
        for kind in list_literals(hints["type"]):
            fields.setdefault(kind, set()).update(hints)
    output = {
        kind
        for model in list_members(ResponseOutputItem)
        for kind in list_literals(model.model_fields["type"].annotation)
    }

    assert {kind: sorted(names) for kind, names in ITEM_FIELDS.items()} == {
        kind: sorted(fields[kind]) for kind in output
    }


@pytest.mark.parametrize(
    "item", [{"type": "an_own_item", "id": "x"}, {"id": "x"}, {"type": 7}, {"type": []}, "text", None]
)
def test_an_item_that_the_schema_does_not_have_is_left_out(item: Any) -> None:
    assert to_input_item(item) is None


def test_fields_that_an_endpoint_adds_to_an_item_are_not_sent_back() -> None:
    received: list[Any] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0", "output_index": 0},
        {"type": "own_search", "id": "os_1", "results": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}, "cost": 1},
        CALL | {"item_id": "fc_1", "output_index": 3, "custom": None},
    ]
    call = ToolCallRequest("a", "now", {})
    message = Message(Role.ASSISTANT, "", (call,), echo=ProviderState("p", received))

    sent = to_messages([Message.user("?"), message], "p")

    assert sent[1:-1] == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        CALL,
    ]
