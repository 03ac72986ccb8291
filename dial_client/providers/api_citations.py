"""Parsing of citations, which endpoints send in different forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dial_client.messages.citations import Citation, parse_annotation

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
"""The fields with citations in a chunk, a choice or a message of the Chat Completions API."""
_MAX_CITATIONS = 1_000


class ChatCitations:
    """The citations of one reply of the Chat Completions API, collected from its chunks."""

    def __init__(self) -> None:
        self._annotations: list[Any] = []
        self._numbered: list[Any] = []
        """The sources that the text refers to by number."""
        self._marker = "[{}]"
        self._grounding: Mapping[str, Any] = {}

    def add(self, holder: Mapping[str, Any]) -> None:
        """Add the fields of a chunk, a choice or a message. Chunks may repeat the list of sources with more entries."""
        annotations = holder.get("annotations")
        for annotation in annotations if isinstance(annotations, list) else ():
            if annotation not in self._annotations and len(self._annotations) < _MAX_CITATIONS:
                self._annotations.append(annotation)
        context = holder.get("context")
        if isinstance(context, Mapping) and _is_filled_list(context.get("citations")):
            self._numbered, self._marker = context["citations"], "[doc{}]"
        for sources in (
            holder.get("search_results"),
            () if _is_filled_list(self._numbered) and _has_titles(self._numbered) else holder.get("citations"),
        ):
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


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _has_titles(sources: Sequence[Any]) -> bool:
    return isinstance(sources[0], Mapping)


def _parse_numbered(sources: Sequence[Any], marker: str, text: str) -> Iterable[Citation]:
    """Yield the sources that a text refers to by number. Each citation has the number in the text as its name."""
    for number, value in enumerate(sources, 1):
        source = {"url": value} if isinstance(value, str) else value
        if not isinstance(source, Mapping):
            continue
        url = _find_text(source, "url", "uri", "link")
        title = _find_text(source, "title", "filepath", "site_name")
        if not (url or title):
            continue
        quote = _find_text(source, "snippet", "content")
        written = marker.format(number)
        start = text.find(written)
        span = (start, start + len(written)) if start >= 0 else (None, None)
        yield Citation(str(number), title, url, quote[:2_000]).at(*span)


def _parse_grounding(metadata: Mapping[str, Any], text: str) -> Iterable[Citation]:
    """Yield the citations of Gemini's ``groundingMetadata``, whose indices count UTF-8 bytes."""
    found = metadata.get("groundingChunks", metadata.get("grounding_chunks"))
    sources = [_parse_grounding_chunk(chunk) for chunk in found] if isinstance(found, list) else []
    supports = metadata.get("groundingSupports", metadata.get("grounding_supports"))
    cited: set[int] = set()
    for support in supports if isinstance(supports, list) else ():
        if not isinstance(support, Mapping):
            continue
        indices = support.get("groundingChunkIndices", support.get("grounding_chunk_indices"))
        span = _find_segment(support.get("segment"), text)
        for index in indices if isinstance(indices, list) else ():
            source = sources[index] if isinstance(index, int) and 0 <= index < len(sources) else None
            if source is not None:
                cited.add(index)
                yield source.at(*span)
    yield from (source for index, source in enumerate(sources) if source is not None and index not in cited)


def _parse_grounding_chunk(chunk: Any) -> Citation | None:
    kinds = ("web", "retrievedContext", "retrieved_context", "maps")
    source = next((chunk[kind] for kind in kinds if kind in chunk), None) if isinstance(chunk, Mapping) else None
    if not isinstance(source, Mapping):
        return None
    url, title = _find_text(source, "uri", "url"), _find_text(source, "title")
    return Citation(url or title, title, url, _find_text(source, "text")) if url or title else None


def _find_segment(segment: Any, text: str) -> tuple[int | None, int | None]:
    """Return the span of a segment in characters; None twice if its indices and its text contradict each other."""
    if not isinstance(segment, Mapping):
        return None, None
    start = segment.get("startIndex", segment.get("start_index", 0))
    end = segment.get("endIndex", segment.get("end_index"))
    quoted = _find_text(segment, "text")
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
        for url in urls if isinstance(urls, list) else ():
            if isinstance(url, str) and url and url not in cited and len(self._found) < _MAX_CITATIONS:
                self._found[Citation(url, url=url)] = None

    def finish(self) -> tuple[Citation, ...]:
        """Return the citations in the order of the text."""
        return tuple(sorted(self._found, key=lambda citation: (citation.start is None, citation.start or 0)))


def _find_text(value: Mapping[str, Any], *names: str) -> str:
    return next((text for name in names if isinstance(text := value.get(name), str) and text), "")
