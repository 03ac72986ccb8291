"""The content of a tool result, as the model reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult

from tests.inner import NO_OUTPUT, Content, FilePart, ImagePart, Part, TextPart, cut, extract_text
from tests.inner import result_content_to_content as to_content
from tests.support.fakes import unhurried

PNG = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def embedded(**resource: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a.bin", **resource}}


def PDF(name: str) -> FilePart:  # noqa: N802 - an abbreviation
    return FilePart("JVBERi0=", "application/pdf", name)


READ: list[tuple[str, list[dict[str, Any]], Any, Content]] = [
    ("text", [text("noon")], None, "noon"),
    ("texts", [text("one"), text("two")], None, "one\ntwo"),
    ("text with whitespace", [text("  a\n\n\tb ")], None, "  a\n\n\tb "),
    ("invisible characters", [text("no\u200bon\U000e0049\u202e")], None, "noon"),
    ("escape sequences", [text("\x1b[31mnoon\x1b[0m\x07")], None, "noon"),
    ("nothing", [], None, NO_OUTPUT),
    ("empty text", [text("")], None, NO_OUTPUT),
    ("blank text", [text(" \n"), text("\t")], None, NO_OUTPUT),
    ("blank text beside text", [text("\n"), text("noon")], None, "noon"),
    ("structured only", [], {"time": "noön"}, '{"time": "noön"}'),
    ("structured beside blank text", [text(" ")], {"a": 1}, '{"a": 1}'),
    ("structured that is empty", [], {}, "{}"),
    ("structured beside text", [text("noon")], {"time": "noon"}, "noon"),
    ("an image", [PNG], None, (ImagePart("AAAA", "image/png"),)),
    ("an image and text", [text("see"), PNG], None, (TextPart("see"), ImagePart("AAAA", "image/png"))),
    ("an image and structured", [PNG], {"a": 1}, (ImagePart("AAAA", "image/png"), TextPart('{"a": 1}'))),
    (
        "audio",
        [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}],
        None,
        "[audio, audio/wav, 3 bytes: it cannot be shown here]",
    ),
    (
        "a link",
        [{"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain"}],
        None,
        "[resource a: file:///a.txt, text/plain]",
    ),
    ("a link without a type", [{"type": "resource_link", "uri": "a://b", "name": "a"}], None, "[resource a: a://b]"),
    ("a resource of text", [embedded(text="hello")], None, "[resource file:///a.bin]\nhello"),
    (
        "a resource of bytes",
        [embedded(blob="AAAAAAA=", mimeType="a/b")],
        None,
        "[resource file:///a.bin, a/b, 5 bytes: it cannot be shown here]",
    ),
    (
        "a resource of bytes without a type",
        [embedded(blob="AA==")],
        None,
        "[resource file:///a.bin, binary, 1 bytes: it cannot be shown here]",
    ),
    ("a PDF", [embedded(blob="JVBERi0=", mimeType="application/pdf")], None, (PDF("a.bin"),)),
    ("a PDF with an alias type", [embedded(blob="JVBERi0=", mimeType="Application/X-PDF; v=1")], None, (PDF("a.bin"),)),
    (
        "a PDF and structured",
        [embedded(blob="JVBERi0=", mimeType="application/pdf")],
        {},
        (PDF("a.bin"), TextPart("{}")),
    ),
    ("an embedded image", [embedded(blob="AAAA", mimeType="image/png")], None, (ImagePart("AAAA", "image/png"),)),
    ("an embedded jpg", [embedded(blob="AAAA", mimeType="IMAGE/JPG;q=1")], None, (ImagePart("AAAA", "image/jpeg"),)),
    (
        "an image of an unsupported type",
        [embedded(blob="AAAA", mimeType="image/svg+xml")],
        None,
        "[resource file:///a.bin, image/svg+xml, 3 bytes: it cannot be shown here]",
    ),
    ("a PDF of text", [embedded(text="%PDF", mimeType="application/pdf")], None, "[resource file:///a.bin]\n%PDF"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("blocks", "structured", "content"), [case[1:] for case in READ], ids=[case[0] for case in READ]
)
def test_a_tool_result_is_converted_to_content(blocks: list[dict[str, Any]], structured: Any, content: Content) -> None:
    result = CallToolResult.model_validate({"content": blocks, "structuredContent": structured})
    assert to_content(result) == content


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///tmp/report.pdf", "report.pdf"),
        ("https://example.test/a/r%C3%A9sum%C3%A9%20of%20it.pdf?page=2#3", "résumé of it.pdf"),
        ("docs://reports/42/", "42"),
        ("docs://reports", "docs://reports"),
        ("urn:isbn:1", "isbn:1"),
        ("file:///..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("http://[", "http://["),
    ],
)
def test_a_document_is_named_after_its_uri(uri: str, name: str) -> None:
    block = {"type": "resource", "resource": {"uri": uri, "blob": "JVBERi0=", "mimeType": "application/pdf"}}
    assert to_content(CallToolResult.model_validate({"content": [block]})) == (PDF(name),)


# --- cut to size ----------------------------------------------------------------------------------

PARTS = st.lists(
    st.builds(TextPart, st.text(max_size=30)) | st.sampled_from([ImagePart("AAAA", "image/png"), PDF("a")]), max_size=30
)


@unhurried
@given(st.text(max_size=300), st.integers(1, 100))
def test_text_within_the_limit_is_unchanged_and_longer_text_keeps_its_head_and_tail(content: str, most: int) -> None:
    left = cut(content, most)
    assert isinstance(left, str)
    if len(content) <= most:
        assert left == content
    else:
        head, gap, tail = left[: most * 3 // 4], left[most * 3 // 4 :], left[len(left) - (most - most * 3 // 4) :]
        assert content.startswith(head)
        assert content.endswith(tail)
        assert f"{len(content) - most:,} of {len(content):,} characters" in gap
        assert len(left) <= most + 100


@unhurried
@given(PARTS, st.integers(1, 100))
def test_parts_are_cut_to_a_common_limit_and_images_and_documents_are_kept(parts: list[Part], most: int) -> None:
    left = cut(tuple(parts), most)
    assert not isinstance(left, str)
    assert len("".join(part.text for part in left if isinstance(part, TextPart))) <= most + 200
    assert [part for part in left if not isinstance(part, TextPart)] == [
        part for part in parts if not isinstance(part, TextPart)
    ]
    if sum(len(part.text) for part in parts if isinstance(part, TextPart)) <= most:
        assert left == tuple(parts)


def test_parts_that_are_left_out_are_mentioned() -> None:
    parts = (TextPart("a" * 10), ImagePart("AAAA", "image/png"), TextPart("b" * 1000), TextPart("c" * 500))
    shortened = extract_text(cut(parts, 20))
    assert shortened.startswith("a" * 10)
    assert "990 of 1,000 characters" in shortened
    assert "500" in shortened


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_smallest_limits_keep_a_head_or_a_tail(most: int) -> None:
    left = cut("abcdefgh", most)
    assert isinstance(left, str)
    assert left.replace(left[left.index("\n") : left.rindex("\n") + 1], "") == {1: "h", 2: "ah", 3: "abh"}[most]
