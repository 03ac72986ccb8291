"""Server-sent events are parsed by the rules of the standard, however the bytes are split."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import EventTooLong, InvalidBody, ResponseBodyParser, SSEParser


def read(*pieces: bytes) -> list[tuple[str, bytes]]:
    stream = SSEParser()
    return [*(event for piece in pieces for event in stream.feed(piece)), *stream.finish()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")], id="two events"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")], id="CR"),
        pytest.param(b"data: a\n\r\ndata: b\r\n\n", [("", b"a"), ("", b"b")], id="mixed line ends"),
        pytest.param(b"data:a\n\n", [("", b"a")], id="no space"),
        pytest.param(b"data:  a\n\n", [("", b" a")], id="only one space is dropped"),
        pytest.param(b"data: a\ndata: b\ndata:\n\n", [("", b"a\nb\n")], id="several lines"),
        pytest.param(b"data: a\r\ndata: b\r\n\r\n", [("", b"a\nb")], id="several lines with CRLF"),
        pytest.param(b"data\ndata\n\n", [("", b"\n")], id="a field without a colon"),
        pytest.param(b": OPENROUTER PROCESSING\n\ndata: a\n:\n\n", [("", b"a")], id="comments"),
        pytest.param(b"event: ping\n\ndata: a\n\n", [("", b"a")], id="an event without data leaves no name behind"),
        pytest.param(b"event: x\ndata: a\n\ndata: b\n\n", [("x", b"a"), ("", b"b")], id="a name holds for one event"),
        pytest.param(b"event: x\nevent\ndata: a\n\n", [("", b"a")], id="the last name counts"),
        pytest.param(b"data:\n\ndata: a\n\n", [("", b"a")], id="empty data is no event"),
        pytest.param(b"id: 7\nretry: 10\nfuture: x\ndata: a\n\n", [("", b"a")], id="other fields"),
        pytest.param(b"datax: no\nxdata: no\ndata: a\n\n", [("", b"a")], id="fields that only look like data"),
        pytest.param(b"data: a\n", [("", b"a")], id="the last blank line is missing"),
        pytest.param(b"data: a", [("", b"a")], id="the last line end is missing"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [("", b"a")], id="a byte order mark"),
        pytest.param(
            b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [("", b"a")], id="a byte order mark counts at the start only"
        ),
        pytest.param("data: Grüße\n\n".encode(), [("", "Grüße".encode())], id="UTF-8"),
        pytest.param(
            b"data: a\x0bb\x0cc\x1cd\xc2\x85e\n\n", [("", b"a\x0bb\x0cc\x1cd\xc2\x85e")], id="other line ends"
        ),
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\n\n\r\n", [], id="blank lines"),
    ],
)
def test_events_are_split_by_the_rules_of_the_standard(text: bytes, expected: list[tuple[str, bytes]]) -> None:
    assert read(text) == expected
    assert read(*(text[at : at + 1] for at in range(len(text)))) == expected


LINES = st.sampled_from(
    [
        "data: ä",
        "data:x",
        "data",
        "data:",
        "event: e",
        "event",
        ": c",
        "id: 1",
        "",
        "",
        "data: 😀",
        "\ufeffdata: y",
        "z",
    ]
)


@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"]))),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_the_events_do_not_depend_on_how_the_bytes_are_split(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    whole = "".join(line + end for line, end in lines).encode()
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[begin:end] for begin, end in itertools.pairwise(places)]

    assert read(*pieces) == read(whole)


@pytest.mark.parametrize(
    "piece",
    [
        *(b"data: a\n\n", b"data: \n\n", b"data: a\rb\n\n", b"data: a\rdata: b\n\n", b"data: a\ndata: b\n\n"),
        *(b"data: a\n", b"data: a", b"data: a\n\r", b"data: a\r", b"event: x\n", b": comment\n\n", b"\n"),
        b"data: a\n\ndata: b\n\n",
    ],
)
def test_what_arrives_between_two_whole_events_is_parsed_as_in_one_piece(piece: bytes) -> None:
    pieces = [b"data: first\n\n", piece, b"data: second\n\n", b"data: third\n\n"]
    assert read(*pieces) == read(b"".join(pieces))


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"data: " + b"x" * 50] * 3, id="one endless line"),
        pytest.param([b"data: " + b"x" * 30 + b"\n"] * 5, id="endless lines"),
    ],
)
def test_an_event_longer_than_the_limit_is_an_error(pieces: list[bytes]) -> None:
    stream = SSEParser(max_event=100)

    with pytest.raises(EventTooLong):
        for piece in pieces:
            stream.feed(piece)


def test_the_limit_applies_to_each_event_and_not_to_their_sum() -> None:
    stream = SSEParser(max_event=100)

    assert sum(len(stream.feed(b"data: " + b"x" * 60 + b"\n\n")) for _ in range(50)) == 50


def values(*pieces: bytes) -> tuple[list[object], ResponseBodyParser]:
    body = ResponseBodyParser()
    found = [value for piece in pieces for value in body.feed(piece)]
    return [*found, *body.finish()], body


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b'data: {"a": 1}\n\ndata: [DONE]\n\n', [{"a": 1}], id="a stream"),
        pytest.param(b'{"a": 1}', [{"a": 1}], id="one JSON text"),
        pytest.param(b' \r\n {"a":\n\n 1}\n', [{"a": 1}], id="one JSON text with blanks"),
        pytest.param(b"\xef\xbb\xbf[1]", [[1]], id="one JSON text with a byte order mark"),
        pytest.param(b': hello\n\ndata: {"a": 1}', [{"a": 1}], id="a comment first"),
        pytest.param(b'\n\nevent: e\ndata: {"a": 1}\n\n', [{"a": 1, "type": "e"}], id="the event's name is its type"),
        pytest.param(b'event: e\ndata: {"type": "t"}\n\n', [{"type": "t"}], id="unless the data has a type"),
        pytest.param(
            b'data: {"a": 1}\nerror: {"m": 2}\n\n',
            [{"type": "error", "error": {"m": 2}}, {"a": 1}],
            id="a line of an error",
        ),
        pytest.param(
            b'event: error\ndata: {"error": "e"}\n\n', [{"error": "e", "type": "error"}], id="an error's event"
        ),
        pytest.param(b'data: {"a": "\\ud800b"}\n\n', [{"a": "\ufffdb"}], id="a lone surrogate"),
        pytest.param(b'data: {"a": "\xffb"}\n\n', [{"a": "\ufffdb"}], id="bytes that are not UTF-8"),
        pytest.param(b'data: [DONE]\n\ndata: {"a": 1}\n\n', [], id="data after the end is ignored"),
        pytest.param(b"  \n ", [], id="blanks"),
    ],
)
def test_a_body_may_be_a_stream_or_one_json_text(text: bytes, expected: list[object]) -> None:
    assert values(text)[0] == expected
    assert values(*(text[at : at + 1] for at in range(len(text))))[0] == expected


def test_events_that_are_not_json_are_counted_and_skipped() -> None:
    found, body = values(b'data: ping\n\ndata: {"a"\n\ndata: {"a": 1}\n\n')

    assert found == [{"a": 1}]
    assert body.invalid_events == 2


@pytest.mark.parametrize("text", [b"<html><body>502</body></html>", b'{"a": '])
def test_a_body_that_is_neither_a_stream_nor_json_is_an_error(text: bytes) -> None:
    with pytest.raises(InvalidBody):
        values(text)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b'data: {"a": 1}\n\n', id="events"),
        pytest.param(b": still here\n\n", id="comments"),
        pytest.param(b" \n", id="blanks"),
        pytest.param(b"[[[[", id="JSON"),
        pytest.param(b"\x00\xffgarbage\n", id="garbage"),
    ],
)
def test_a_body_longer_than_the_limit_is_an_error(piece: bytes) -> None:
    body = ResponseBodyParser(max_text=1000, max_stream=1000)

    with pytest.raises(EventTooLong, match="longer than 1000 bytes"):
        for _ in range(1001):
            body.feed(piece)


def test_blanks_before_the_first_event_are_skipped() -> None:
    body = ResponseBodyParser()
    for _ in range(1000):
        assert body.feed(b"\n") == []

    assert body.feed(b'data: {"a": 1}\n\n') == [{"a": 1}]
