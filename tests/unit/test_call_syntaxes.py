"""Calls printed as text although the API has tool calls: a call runs only if it matches an offered tool."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import (
    CONTROL,
    HIDDEN,
    NativeFormatHandler,
    ReplyParser,
    ReplyReader,
    ToolFormat,
    ToolSpec,
    build_handler,
)
from tests.support.call_syntax_cases import DECOYS, EVERY, OFFERED, ROWS, WHOLE, Row

CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def parse(reader: ReplyReader, pieces: list[str]) -> Row:
    shown, reasoning = [], []
    for piece in pieces:
        shown.append(reader.feed(piece))
        reasoning.append(reader.reasoning())
    rest, calls = reader.finish()
    assert all(call.unreadable is None for call in calls)
    found = [(call.name, dict(call.arguments)) for call in calls]
    return Row("".join(pieces), found, "".join(shown) + rest, "".join(reasoning) + reader.reasoning())


def native() -> ReplyReader:
    return NativeFormatHandler().reader(OFFERED)


@pytest.mark.parametrize("row", EVERY.values(), ids=EVERY)
def test_a_printed_call_runs_only_if_it_matches_an_offered_tool(row: Row) -> None:
    assert parse(native(), [row.text]) == row


@pytest.mark.parametrize("row", EVERY.values(), ids=EVERY)
def test_a_reply_read_character_by_character_gives_the_same_result(row: Row) -> None:
    assert parse(native(), list(row.text)) == row


@pytest.mark.parametrize("row", EVERY.values(), ids=EVERY)
@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(0, 1000), max_size=8))
def test_the_result_does_not_depend_on_where_a_stream_is_split(row: Row, cuts: list[int]) -> None:
    places = sorted({0, len(row.text), *(cut % (len(row.text) + 1) for cut in cuts)})
    pieces = [row.text[begin:end] for begin, end in pairwise(places)]
    assert parse(native(), pieces) == row


@pytest.mark.parametrize("row", EVERY.values(), ids=EVERY)
def test_no_marker_is_shown_outside_code(row: Row) -> None:
    seen = CODE.sub("", parse(native(), list(row.text)).shown)
    assert not any(tag in seen for tag in HIDDEN)
    assert not re.search(CONTROL, seen)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_no_printed_call_runs_if_no_tool_is_offered(row: Row) -> None:
    assert parse(NativeFormatHandler().reader(()), [row.text]).calls == []


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.calls and name not in WHOLE])
def test_text_before_a_call_is_shown_and_the_call_runs(name: str) -> None:
    row = ROWS[name]
    around = parse(native(), list(f"Let me look.\n{row.text}"))
    assert around.calls == row.calls
    assert around.shown.startswith("Let me look.\n")


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.calls])
@pytest.mark.parametrize("format_", [ToolFormat.REACT, ToolFormat.XML])
def test_the_text_formats_read_the_call_syntaxes_too(format_: ToolFormat, name: str) -> None:
    row = ROWS[name]
    read = parse(build_handler(format_).reader(OFFERED), list(row.text))
    assert read.calls == (row.calls[:1] if format_ is ToolFormat.REACT else row.calls)


@pytest.mark.parametrize("row", DECOYS.values(), ids=DECOYS)
def test_a_call_after_a_decoy_still_runs(row: Row) -> None:
    read = parse(native(), list(f"{row.text}\n\n<tool_call>{{'name': 'list_all', 'arguments': {{}}}}</tool_call>"))
    assert [name for name, _ in read.calls] == ["list_all"]


def test_sanitizing_removes_calls_of_any_tool() -> None:
    known = {name: row for name, row in ROWS.items() if name != "glm, nothing to say"}  # its text is an ordinary word
    for row in known.values():
        assert NativeFormatHandler().sanitize_response(row.text) == row.shown.strip()
    assert NativeFormatHandler().parse_response(ROWS["hermes"].text) == ((), "I'll look. ")


def test_a_closing_think_tag_alone_makes_the_text_before_the_tag_reasoning() -> None:
    whole = parse(native(), ["Let me think.</think>\n\nIt rains."])
    assert (whole.shown, whole.reasoning) == ("It rains.", "Let me think.")
    streamed = parse(native(), ["Let me", " think</think>It rains."])
    # What was shown is withdrawn by the listener of the reply.
    assert (streamed.shown, streamed.reasoning) == ("Let meIt rains.", " think")


def test_a_call_within_reasoning_is_not_run() -> None:
    row = ROWS["hermes"]
    assert parse(native(), [f"{row.text}</think>", "It rains."]).calls == []


def test_unrequested_reasoning_is_kept_up_to_a_limit() -> None:
    reader = ReplyParser(OFFERED, careful=True)
    reader.feed("<think>")
    for _ in range(100):
        reader.feed("lorem ipsum " * 5_000)
    assert 1_000_000 <= len(reader.reasoning()) <= 1_100_000


def test_text_that_the_model_writes_as_the_user_is_dropped() -> None:
    text = "<|channel|>final<|message|>It rains.<|end|><|start|>user<|message|>Thanks!<|end|>"
    assert parse(native(), [text]).shown == "It rains."


@pytest.mark.parametrize("broken", [{"type": 7}, {"$ref": "https://example.com/schema.json"}])
def test_the_required_properties_decide_if_a_schema_cannot_be_checked(broken: dict[str, Any]) -> None:
    tool = ToolSpec("f", "", {"type": "object", "properties": {"a": {}}, "required": ["a"]}, original_schema=broken)

    def calls(text: str) -> list[tuple[str, dict[str, Any]]]:
        return parse(NativeFormatHandler().reader([tool]), [text]).calls

    assert calls("[f(a=1)]") == [("f", {"a": 1})]
    assert calls("[f(b=1)]") == []


def test_the_schema_of_the_server_decides_where_the_offered_schema_was_adapted() -> None:
    original = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    tool = ToolSpec("f", "", {"type": "object", "properties": {}}, original_schema=original)
    reader = NativeFormatHandler().reader([tool])
    assert parse(reader, ["[TOOL_CALLS]f[ARGS]{'a': '17'}[TOOL_CALLS]f[ARGS]{'b': 1}"]).calls == [("f", {"a": 17})]


def test_arguments_with_a_lone_surrogate_match_no_tool() -> None:
    tool = ToolSpec("f", "", {"type": "object", "properties": {"a": {"enum": ["b"]}}})
    reader = NativeFormatHandler().reader([tool])
    assert parse(reader, ['{"name": "f", "arguments": {"a": "\\ud800"}}']).calls == []


def test_text_is_shown_as_soon_as_it_cannot_be_markup() -> None:
    reader = native()
    pieces = ("Use <tool_call> and ", "then [", "TOOL", "S], or ", '{"name": "list_', 'all"}')
    assert [reader.feed(piece) for piece in pieces] == [
        "Use  and ",
        "then ",
        "",
        "[TOOLS], or ",
        '{"name": "list_',
        'all"}',
    ]
