"""Status texts of a turn, and their codes for clients that translate them."""

from __future__ import annotations

from tests.inner import StatusChanged, ToolCallRequest, status_text
from tests.inner import sse_response_encode_event as encode_event


def test_each_fixed_status_has_a_code_and_the_status_of_a_call_names_its_tool() -> None:
    sentences = [text for name, text in vars(status_text).items() if name.isupper() and not name.startswith("_")]
    codes = [status_text.find_code(text)["code"] for text in sentences]
    expected = ["analyzing", "background", "correcting", "formulating", "processing", "queued", "selecting", "storing"]
    assert sorted(codes) == expected
    using = status_text.describe_tool(ToolCallRequest("call_1", "lookup_tool", {}), None)
    assert status_text.find_code(using) == {"code": "using", "tool": "Lookup Tool"}
    for text in (status_text.describe_wait("is busy", 2), "A model's own words"):
        assert status_text.find_code(text) == {}


def test_the_status_event_of_a_stream_has_a_text_and_a_code() -> None:
    coded = encode_event(StatusChanged(status_text.ANALYZING), "turn:1", {})
    assert coded.endswith('","code":"analyzing"}\n\n')
    assert 'data: {"text":"Own words"}' in encode_event(StatusChanged("Own words"), "turn:2", {})
