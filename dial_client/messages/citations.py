"""Citations: the sources of an answer, the parts of the answer that cite them, and their forms in the vendors' APIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dial_client.runtime.json_fields import find_text, to_list, to_text
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
            part = received[start:end]
            start = text.index(part) if part.strip() and text.count(part) == 1 else None
            placed.append(citation.at(start, None if start is None else start + len(part)))
    return tuple(placed)


def _find_span(citation: Citation, length: int) -> tuple[int | None, int | None]:
    is_inside = citation.end is not None and citation.end <= length
    return (citation.start, citation.end) if is_inside else (None, None)


def _count_common(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(first), len(second)))


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
    sources = dict.fromkeys(citation.source for citation in citations)
    numbers = {source: number for number, source in enumerate(sources, 1)}
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
    url, title = find_text(fields_, "url"), find_text(fields_, "title", "filename")
    source = url or find_text(fields_, "file_id", "filename")
    start = fields_.get("start_index", fields_.get("index"))
    citation = Citation(source, title, url, find_text(fields_, "content"))
    return citation.at(start, fields_.get("end_index", start)).shift(offset) if source else None


def parse_block_citation(value: Any) -> Citation | None:
    """Return the citation in a content block of the Messages API, without a span; None if it names no source."""
    if not isinstance(value, Mapping):
        return None
    url, source = find_text(value, "url"), find_text(value, "source")
    if not url and source.startswith(("http://", "https://")):
        url = source
    index = value.get("document_index", value.get("search_result_index"))
    named = url or source or find_text(value, "file_id")
    if not named and isinstance(index, int):
        named = f"document {index + 1}"
    title = find_text(value, "title", "document_title")
    start, end = value.get("start_page_number"), value.get("end_page_number")
    location = ""
    if isinstance(start, int):
        last = end - 1 if isinstance(end, int) else start  # the end is exclusive
        location = f"page {start}" if last <= start else f"pages {start}-{last}"
    return Citation(named or title, title, url, find_text(value, "cited_text"), location) if named or title else None


def parse_citations(message: Mapping[str, Any]) -> tuple[Citation, ...]:
    """Return the citations of a message in JSON: its ``citations``, or OpenAI's ``annotations``.

    Lists of another form are ignored, such as Perplexity's list of URLs.

    Raises:
        ValueError: A citation has a source, but not the form of `Citation.to_dict`.
    """
    citations = message.get("citations")
    items = [item for item in to_list(citations) if isinstance(item, Mapping)]
    if found := tuple(Citation.from_dict(item) for item in items if "source" in item):
        return found
    parsed = map(parse_annotation, to_list(message.get("annotations")))
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


# The fields with citations in a chunk, a choice or a message of the Chat Completions API.
CITATION_FIELDS = frozenset(
    {
        "annotations",  # OpenAI, OpenRouter
        "citations",  # Perplexity; xAI, whose text does not refer to the sources by number
        "search_results",  # Perplexity
        "context",  # Azure OpenAI On Your Data
        "groundingMetadata",  # Gemini
        "grounding_metadata",
        "vertex_ai_grounding_metadata",  # LiteLLM in front of Gemini
    }
)
_MAX_CITATIONS = 1_000


class ChatCitations:
    """The citations of one reply of the Chat Completions API, collected from its chunks."""

    def __init__(self) -> None:
        self._annotations: list[Any] = []
        # The sources that the text refers to by number.
        self._numbered: list[Any] = []
        self._marker = "[{}]"
        self._grounding: Mapping[str, Any] = {}

    def add(self, holder: Mapping[str, Any]) -> None:
        """Add the fields of a chunk, a choice or a message. Chunks may repeat the list of sources with more entries."""
        for annotation in to_list(holder.get("annotations")):
            if annotation not in self._annotations and len(self._annotations) < _MAX_CITATIONS:
                self._annotations.append(annotation)
        context = holder.get("context")
        if isinstance(context, Mapping) and (cited := to_list(context.get("citations"))):
            self._numbered, self._marker = cited, "[doc{}]"
        has_titles = bool(self._numbered) and isinstance(self._numbered[0], Mapping)
        for sources in (holder.get("search_results"), () if has_titles else holder.get("citations")):
            if isinstance(sources, list) and len(sources) >= max(1, len(self._numbered)):
                self._numbered = sources
                break
        for name in ("groundingMetadata", "grounding_metadata", "vertex_ai_grounding_metadata"):
            value = holder.get(name)
            value = value[0] if isinstance(value, list) and value else value
            if isinstance(value, Mapping) and value:
                self._grounding = {**self._grounding, **value}

    def finish(self, text: str) -> tuple[Citation, ...]:
        """Return the citations, with spans in the whole text."""
        numbered = tuple(_parse_numbered(self._numbered[:_MAX_CITATIONS], self._marker, text))
        listed = {citation.url for citation in numbered if citation.url}
        parsed = (parse_annotation(annotation) for annotation in self._annotations)
        annotated = (found for found in parsed if found and not (found.start is None and found.url in listed))
        return (*numbered, *annotated, *_parse_grounding(self._grounding, text))


def _parse_numbered(sources: Sequence[Any], marker: str, text: str) -> Iterable[Citation]:
    """Yield the sources that a text refers to by number. Each citation has the number in the text as its name."""
    for number, value in enumerate(sources, 1):
        source = {"url": value} if isinstance(value, str) else value
        url, title = find_text(source, "url", "uri", "link"), find_text(source, "title", "filepath", "site_name")
        if url or title:
            quote, written = find_text(source, "snippet", "content"), marker.format(number)
            start = text.find(written)
            yield Citation(str(number), title, url, quote[:2_000]).at(start, start + len(written))


def _parse_grounding(metadata: Mapping[str, Any], text: str) -> Iterable[Citation]:
    """Yield the citations of Gemini's ``groundingMetadata``, whose indices count UTF-8 bytes."""
    found = metadata.get("groundingChunks", metadata.get("grounding_chunks"))
    sources = [_parse_grounding_chunk(chunk) for chunk in to_list(found)]
    cited: set[int] = set()
    for support in to_list(metadata.get("groundingSupports", metadata.get("grounding_supports"))):
        if not isinstance(support, Mapping):
            continue
        span = _find_segment(support.get("segment"), text)
        for index in to_list(support.get("groundingChunkIndices", support.get("grounding_chunk_indices"))):
            source = sources[index] if isinstance(index, int) and 0 <= index < len(sources) else None
            if source is not None:
                cited.add(index)
                yield source.at(*span)
    yield from (source for index, source in enumerate(sources) if source is not None and index not in cited)


def _parse_grounding_chunk(chunk: Any) -> Citation | None:
    kinds = ("web", "retrievedContext", "retrieved_context", "maps")
    source = next((chunk[kind] for kind in kinds if kind in chunk), None) if isinstance(chunk, Mapping) else None
    url, title = find_text(source, "uri", "url"), find_text(source, "title")
    return Citation(url or title, title, url, find_text(source, "text")) if url or title else None


def _find_segment(segment: Any, text: str) -> tuple[int | None, int | None]:
    """Return the span of a segment in characters; None twice if its indices and its text contradict each other."""
    if not isinstance(segment, Mapping):
        return None, None
    start = segment.get("startIndex", segment.get("start_index", 0))
    end = segment.get("endIndex", segment.get("end_index"))
    quoted = to_text(segment.get("text"))
    data = text.encode("utf-8", "replace")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(data):
        before, part = data[:start].decode("utf-8", "replace"), data[start:end].decode("utf-8", "replace")
        if not quoted or part == quoted:
            return len(before), len(before) + len(part)
    if quoted and text.count(quoted) == 1:
        return text.index(quoted), text.index(quoted) + len(quoted)
    return None, None


class ResponseCitations:
    """The citations of one reply of the Responses API, from its events and from its items."""

    def __init__(self) -> None:
        self._found: dict[Citation, None] = {}

    def add(self, annotation: Any, offset: int | None) -> None:
        """Add an annotation of a text part. `offset` is the part's position in the reply; None if it is unknown."""
        citation = parse_annotation(annotation, offset or 0)
        if citation is not None and len(self._found) < _MAX_CITATIONS:
            self._found[citation if offset is not None else citation.at(None, None)] = None

    def add_list(self, urls: Any) -> None:
        """Add the URLs that the response lists for the whole text (xAI), except those that an annotation contains."""
        cited = {citation.url for citation in self._found}
        for url in to_list(urls):
            if isinstance(url, str) and url and url not in cited and len(self._found) < _MAX_CITATIONS:
                self._found[Citation(url, url=url)] = None

    def finish(self) -> tuple[Citation, ...]:
        """Return the citations in the order of the text."""
        return tuple(sorted(self._found, key=lambda citation: (citation.start is None, citation.start or 0)))
