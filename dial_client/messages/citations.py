"""Citations: the sources of an answer, and the parts of the answer that cite them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dial_client.runtime.json_fields import to_text
from dial_client.runtime.safe_text import to_one_line

_MAX_TITLE = 200
_MAX_URL = 2_000
_MAX_QUOTE = 120


@dataclass(frozen=True, slots=True)
class Citation:
    """A source of an answer, and the part of the answer that cites it."""

    source: str
    """The endpoint's name for the source: a URL, a file's id, a number. Citations of the same source share a number."""
    title: str = ""
    url: str = ""
    """The URL of a web page; empty for a document or a file."""
    quote: str = ""
    """The cited text of the source; empty if the endpoint does not quote it."""
    location: str = ""
    """The place in the source: ``pages 3-4``."""
    start: int | None = None
    """The index of the cited part's first character in the message's text; None if the endpoint does not send it."""
    end: int | None = None
    """The index after the last character of the cited part; None if `start` is None."""

    def to_dict(self) -> dict[str, Any]:
        """Return the citation as JSON, without empty fields; `from_dict` restores an equal citation."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Citation:
        """Read the form of `to_dict`.

        Raises:
            ValueError: This is not a citation.
        """
        texts = {name: data.get(name, "") for name in ("source", "title", "url", "quote", "location")}
        start, end = data.get("start"), data.get("end")
        if not all(isinstance(text, str) for text in texts.values()) or not texts["source"]:
            raise ValueError("not a citation: the source is missing, or a field is not a string")
        return cls(**texts).at(start, end)

    def at(self, start: Any, end: Any) -> Citation:
        """Return the citation with this span; without a span if the arguments are not valid indexes."""
        if not _is_index(start) or not _is_index(end) or start > end or end == 0:
            return replace(self, start=None, end=None)
        return replace(self, start=start, end=end)

    def shift(self, offset: int) -> Citation:
        """Return the citation with its span moved by `offset` characters."""
        if self.start is None or self.end is None:
            return self
        return replace(self, start=self.start + offset, end=self.end + offset)


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def place_citations(citations: Sequence[Citation], received: str, text: str) -> tuple[Citation, ...]:
    """Convert the spans of citations from the received text to the shown text.

    The texts differ if markup or control characters were removed. A span that cannot be found for certain becomes None.
    """
    if not citations:
        return ()
    if received == text:
        return tuple(citation.at(*_find_span(citation, len(text))) for citation in citations)
    before = _count_common(received, text)
    after = min(_count_common(received[::-1], text[::-1]), len(text) - before)
    placed = []
    for citation in citations:
        start, end = _find_span(citation, len(received))
        if start is None or end is None:
            placed.append(citation.at(None, None))
        elif end <= before:
            placed.append(citation)
        elif start >= len(received) - after:
            placed.append(citation.shift(len(text) - len(received)))
        else:
            placed.append(citation.at(*_find_once(received[start:end], text)))
    return tuple(placed)


def _find_span(citation: Citation, length: int) -> tuple[int | None, int | None]:
    is_inside = citation.end is not None and citation.end <= length
    return (citation.start, citation.end) if is_inside else (None, None)


def _count_common(first: str, second: str) -> int:
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count


def _find_once(part: str, text: str) -> tuple[int | None, int | None]:
    if not part.strip() or text.count(part) != 1:
        return None, None
    start = text.index(part)
    return start, start + len(part)


def number_sources(citations: Iterable[Citation]) -> dict[str, int]:
    """Return the number of each source, counted from 1 in the order of the citations."""
    numbers: dict[str, int] = {}
    for citation in citations:
        numbers.setdefault(citation.source, len(numbers) + 1)
    return numbers


def format_sources(citations: Sequence[Citation]) -> list[str]:
    """Return the numbered list of sources as lines that are safe to show: ``[1] Title, pages 3-4 - https://…``."""
    by_source: dict[str, list[Citation]] = {}
    for citation in citations:
        by_source.setdefault(citation.source, []).append(citation)
    return [f"[{number}] {_describe_source(cited)}" for number, cited in enumerate(by_source.values(), 1)]


def format_source_list(citations: Sequence[Citation]) -> list[str]:
    """Return the numbered list of sources under its heading, as lines that are safe to show."""
    lines = format_sources(citations)
    return ["Sources:", *lines] if lines else []


def _describe_source(cited: Sequence[Citation]) -> str:
    url = next((citation.url for citation in cited if citation.url), "")
    title = next((citation.title for citation in cited if citation.title), "" if url else cited[0].source)
    locations = dict.fromkeys(citation.location for citation in cited if citation.location)
    name = to_one_line(", ".join([title, *locations] if title else locations), _MAX_TITLE)
    if url:
        return f"{name} - {to_one_line(url, _MAX_URL)}" if name else to_one_line(url, _MAX_URL)
    quote = next((citation.quote for citation in cited if citation.quote), "")
    return f'{name}: "{to_one_line(quote, _MAX_QUOTE)}"' if quote else name


def insert_markers(text: str, citations: Sequence[Citation]) -> str:
    """Return the text with a marker such as ``[1]`` after each cited part, unless the model has written it itself.

    A citation without a span gets no marker; its source only appears in the list of sources.
    """
    numbers = number_sources(citations)
    places: dict[int, dict[str, None]] = {}
    for citation in citations:
        marker, end = f"[{numbers[citation.source]}]", citation.end
        if end is None or end > len(text):
            continue
        if not text.startswith(marker, end) and not text[:end].endswith(marker):
            places.setdefault(end, {})[marker] = None
    for end in sorted(places, reverse=True):
        text = f"{text[:end]}{''.join(places[end])}{text[end:]}"
    return text


def parse_annotation(value: Any, offset: int = 0) -> Citation | None:
    """Return the citation in an annotation of OpenAI's APIs; None if the annotation names no source.

    Args:
        value: The annotation, with its fields at the top as in the Responses API, or nested under the name of its type
            as in chat completions.
        offset: The index, in the message, of the first character of the text to which the annotation belongs.
    """
    if not isinstance(value, Mapping):
        return None
    inner = value.get(str(value.get("type")))
    fields_ = inner if isinstance(inner, Mapping) else value
    url, file = to_text(fields_.get("url")), to_text(fields_.get("file_id")) or to_text(fields_.get("filename"))
    if not (url or file):
        return None
    title = to_text(fields_.get("title")) or to_text(fields_.get("filename"))
    start = fields_.get("start_index", fields_.get("index"))
    end = fields_.get("end_index", start)
    citation = Citation(url or file, title, url, to_text(fields_.get("content")))
    return citation.at(start, end).shift(offset)


def parse_block_citation(value: Any) -> Citation | None:
    """Return the citation in a content block of the Messages API, without a span; None if it names no source."""
    if not isinstance(value, Mapping):
        return None
    url = to_text(value.get("url"))
    source = to_text(value.get("source"))
    if not url and source.startswith(("http://", "https://")):
        url = source
    index = value.get("document_index", value.get("search_result_index"))
    named = url or source or to_text(value.get("file_id"))
    if not named and isinstance(index, int):
        named = f"document {index + 1}"
    title = to_text(value.get("title")) or to_text(value.get("document_title"))
    if not (named or title):
        return None
    return Citation(named or title, title, url, to_text(value.get("cited_text")), _describe_location(value))


def _describe_location(value: Mapping[str, Any]) -> str:
    start, end = value.get("start_page_number"), value.get("end_page_number")
    if not isinstance(start, int):
        return ""
    last = end - 1 if isinstance(end, int) else start  # the end is exclusive
    return f"page {start}" if last <= start else f"pages {start}-{last}"


def parse_citations(message: Mapping[str, Any]) -> tuple[Citation, ...]:
    """Return the citations of a message in JSON: its ``citations``, or OpenAI's ``annotations``.

    Lists of another form are ignored, such as Perplexity's list of URLs.

    Raises:
        ValueError: A citation has a source, but not the form of `Citation.to_dict`.
    """
    citations = message.get("citations")
    items = [item for item in (citations if isinstance(citations, list) else ()) if isinstance(item, Mapping)]
    if found := tuple(Citation.from_dict(item) for item in items if "source" in item):
        return found
    annotations = message.get("annotations")
    parsed = map(parse_annotation, annotations if isinstance(annotations, list) else ())
    return tuple(citation for citation in parsed if citation is not None)


def to_annotations(citations: Iterable[Citation], length: int, offset: int = 0) -> list[dict[str, Any]]:
    """Return the ``annotations`` of a chat completion.

    A citation without a span gets an empty span at the end of the text. A source without a URL becomes a
    ``file_citation``.

    Args:
        citations: The citations of the message.
        length: The length of the message's text in characters.
        offset: The number of characters before that text in the completion.
    """
    annotations = []
    for citation in citations:
        start = offset + (length if citation.start is None else citation.start)
        end = offset + (length if citation.end is None else citation.end)
        if citation.url:
            kind = "url_citation"
            details = {"url": citation.url, "title": citation.title, "start_index": start, "end_index": end}
        else:
            kind = "file_citation"
            details = {"file_id": citation.source, "filename": citation.title, "index": end}
        annotations.append({"type": kind, kind: details | ({"content": citation.quote} if citation.quote else {})})
    return annotations
