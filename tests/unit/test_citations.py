"""Citations: their JSON, their numbers, and their positions in the displayed text."""

from __future__ import annotations

import json

import pytest

from tests.inner import (
    Citation,
    Finished,
    ImagePart,
    MemoryStore,
    Message,
    MessageCompleted,
    Role,
    StopReason,
    TerminalSink,
    TextDelta,
    TextPart,
    Turn,
    Usage,
    format_sources,
    insert_markers,
    parse_annotation,
    place_citations,
    to_annotations,
    to_markdown,
)
from tests.inner import sse_encoder_encode_event as encode_event

WEB = Citation("https://a.test/x", "A page", "https://a.test/x", start=0, end=5)
FILE = Citation("file-1", "report.pdf", quote="The sky is blue.", location="pages 3-4", start=7, end=12)
UNPLACED = Citation("https://b.test", url="https://b.test")


def test_a_citation_round_trips_through_json() -> None:
    message = Message(Role.ASSISTANT, "Hello, world", citations=(WEB, FILE, UNPLACED))
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message
    assert WEB.to_dict() == {"source": WEB.source, "title": "A page", "url": WEB.url, "start": 0, "end": 5}


@pytest.mark.parametrize("data", [{}, {"source": ""}, {"source": 1}, {"source": "a", "title": 2}, {"title": "a"}])
def test_a_citation_without_a_valid_source_is_an_error(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a citation"):
        Citation.from_dict(data)


def test_lists_of_other_forms_are_not_read_as_citations() -> None:
    foreign: tuple[object, ...] = (["https://a.test"], {"a": 1}, "x", [{"url": "https://a.test"}], [None], 3)
    for citations in foreign:
        assert Message.from_dict({"role": "assistant", "content": "Hi", "citations": citations}).citations == ()


def test_an_invalid_span_is_left_out() -> None:
    spans = ((5, 2), (-1, 3), (0, 0), (True, 2), (None, 2), (1.5, 2), ("1", 2))
    assert [WEB.at(*span).start for span in spans] == [None] * len(spans)


def test_openai_annotations_are_read_in_both_forms_and_written_in_the_nested_form() -> None:
    flat = {"type": "url_citation", "url": WEB.url, "title": "A page", "start_index": 0, "end_index": 5}
    file = {"type": "file_citation", "file_id": "file-1", "filename": "report.pdf", "index": 12}
    assert parse_annotation(flat) == parse_annotation({"type": "url_citation", "url_citation": flat}) == WEB
    assert parse_annotation(file, 10) == Citation("file-1", "report.pdf", start=22, end=22)
    strange: tuple[object, ...] = (None, "x", {}, {"type": []}, {"type": "future"})
    assert [parse_annotation(odd) for odd in strange] == [None] * 5
    assert to_annotations([WEB, UNPLACED, FILE], 12, 100) == [
        {
            "type": "url_citation",
            "url_citation": {"url": WEB.url, "title": "A page", "start_index": 100, "end_index": 105},
        },
        {
            "type": "url_citation",
            "url_citation": {"url": "https://b.test", "title": "", "start_index": 112, "end_index": 112},
        },
        {
            "type": "file_citation",
            "file_citation": {"file_id": "file-1", "filename": "report.pdf", "index": 112, "content": FILE.quote},
        },
    ]
    message = {"role": "assistant", "content": "Hello", "annotations": to_annotations([WEB], 5)}
    assert Message.from_dict(message).citations == (WEB,)


def test_sources_are_numbered_once_and_safe_to_show() -> None:
    hostile = Citation("\x1b[31mred\nline", "t\u202eitle\x07", "https://c.test/\x1b]0;x\x07")
    lines = format_sources([WEB, FILE, WEB.at(6, 7), UNPLACED, hostile])
    assert lines == [
        "[1] A page - https://a.test/x",
        '[2] report.pdf, pages 3-4: "The sky is blue."',
        "[3] https://b.test",
        "[4] title - https://c.test/",
    ]


def test_markers_follow_the_cited_text_unless_the_model_wrote_markers() -> None:
    assert insert_markers("Hello, world", [WEB, FILE, UNPLACED]) == "Hello[1], world[2]"
    assert insert_markers("Hello[1], 世界[2]!", [WEB, Citation("2").at(9, 12)]) == "Hello[1], 世界[2]!"
    assert insert_markers("Hello", [WEB, WEB, Citation("z", start=1, end=5)]) == "Hello[1][2]"
    assert insert_markers("short", [Citation("z", start=1, end=50)]) == "short"


def test_spans_are_adjusted_when_markup_is_removed() -> None:
    received, shown = "<think>hm</think>The sky is blue. End\x07.", "The sky is blue. End."
    at = received.index("sky")
    cited = [WEB.at(at, at + 3), FILE.at(len(received) - 1, len(received)), UNPLACED.at(0, 5), UNPLACED.at(5, 400)]
    spans = [(citation.start, citation.end) for citation in place_citations(cited, received, shown)]
    assert spans == [(4, 7), (20, 21), (None, None), (None, None)]
    assert place_citations([WEB], "Hello", "Hello") == (WEB,)
    assert place_citations([WEB], "Hi", "Hi") == (WEB.at(None, None),)


@pytest.mark.anyio
async def test_a_store_and_an_export_keep_the_sources_of_an_answer() -> None:
    store = MemoryStore()
    message = Message(Role.ASSISTANT, "Hello, world", citations=(WEB, FILE))
    conversation = await store.create("Greetings")
    await store.append(conversation.id, (Message.user("Hi"), message))
    stored = await store.get(conversation.id)
    assert stored.messages[1] == message
    text = to_markdown(stored)
    assert "Hello[1], world[2]\n\nSources:\n\n- [1] A page - https://a.test/x\n- [2] report.pdf" in text


def test_the_terminal_lists_the_sources_after_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    message = Message(Role.ASSISTANT, (TextPart("Hello, world"), ImagePart("AAAA", "image/png")), citations=(WEB, FILE))
    turn = Turn(message, (message,), StopReason.ANSWERED, 0, Usage())
    sink = TerminalSink()
    for event in (TextDelta("Hello, world"), MessageCompleted(message), Finished(turn)):
        sink.show(event)
    shown = capsys.readouterr()
    assert shown.out == "Hello, world\n\nSources:\n" + "".join(f"{line}\n" for line in format_sources((WEB, FILE)))
    assert shown.err == "[image/png, about 1 kB: not shown here]\n"


def test_server_sent_events_carry_images_and_sources() -> None:
    message = Message(Role.ASSISTANT, (TextPart("Hello, world"), ImagePart("AAAA", "image/png")), citations=(WEB,))
    turn = Turn(message, (message,), StopReason.ANSWERED, 0, Usage())
    [media] = encode_event(MessageCompleted(message), {})
    assert media == 'event: media\ndata: {"content":[{"type":"image","data":"AAAA","mime_type":"image/png"}]}\n\n'
    done = json.loads(encode_event(Finished(turn), {})[-1].partition("data: ")[2])
    assert (done["citations"], done["text_chars"]) == ([WEB.to_dict()], 12)
    assert encode_event(MessageCompleted(Message.assistant("Hello")), {}) == []
    assert turn.to_dict()["citations"] == [WEB.to_dict()]
