"""What a refused request teaches: what to leave out or to say otherwise, so that the next one is taken.

An endpoint that does not know a parameter, and a tool that one endpoint does not like, must not end a conversation.
Each lesson is drawn from the words of a 400 or 422, or from a 413, is told to the user once, and is remembered by the
provider that drew it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.errors import ProviderError
from dial_client.messages import FilePart, ImagePart, ToolSpec
from dial_client.model import ModelRequest
from dial_client.providers.endpoint_profile import EndpointProfile

MAX_ADAPTATIONS = 32
"""Refusals one request is carried through; the next one is raised."""

_OPTIONAL = (
    "stream_options",
    "parallel_tool_calls",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "stop_sequences",
    "stop",
    "include",
    "store",
    "cache_control",
    "structured_outputs",
    "response_format",
    "grammar",
)
_REFUSAL = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|extra|permitted|invalid|deprecated|not allowed|too large",
    re.IGNORECASE,
)
_IMAGES = re.compile(r"\bimages?\b|image_url|\bvision\b|multimodal", re.IGNORECASE)
_DOCUMENTS = re.compile(r"\bdocuments?\b|\bpdfs?\b|\bfiles?\b|\binput_file\b|\bfile_data\b", re.IGNORECASE)
# Groq says of what it does not take that "the following must be satisfied".
_WANTED_BACK = re.compile(r"missing|require|must (?!be satisfied)", re.IGNORECASE)
_SEARCH = re.compile(r"defer_loading|tool[ _]search", re.IGNORECASE)
_DIALECTS = {"function_declarations": "gemini", "moonshot flavored": "openai"}
"""Words of a refusal that tell whose part of JSON Schema an endpoint takes."""
_ECHOES = re.compile(r"thinking|signature|reasoning|encrypted|tool_calls")


@dataclass(slots=True)
class RequestAdaptation:
    """What one provider has learned of its endpoint."""

    profile: EndpointProfile
    required: frozenset[str] = frozenset()
    """Fields the wire cannot do without."""
    dropped_fields: set[str] = field(default_factory=set)
    """Fields of the body the endpoint does not take."""
    dropped_tools: set[str] = field(default_factory=set)
    """Tools the endpoint does not take."""
    max_tokens: int | None = None
    """Tokens of a reply the endpoint allows at most, where it has said so."""

    def cannot_search(self, error: ProviderError, tools: Sequence[ToolSpec]) -> bool:
        """Say whether a refusal is about tools that were left to the endpoint's own search; none are from then on."""
        if error.status not in (400, 422) or not any(tool.deferred for tool in tools):
            return False
        if not self.profile.tool_search or not _SEARCH.search(str(error)):
            return False
        self._change(tool_search=False)
        return True

    def adapt(
        self, error: ProviderError, request: ModelRequest, body: Mapping[str, Any], tools: Sequence[ToolSpec]
    ) -> str | None:
        """Draw a lesson from a refusal, and give what to tell the user; None where there is none to draw.

        Args:
            error: the refusal.
            request: what was asked.
            body: the fields that were sent for it, without the tools.
            tools: the tools that were offered with it.
        """
        if error.status == 413:
            return self._too_large(request)
        if error.status not in (400, 422):
            return None
        text = str(error)
        return (
            self._reasoning(text, tools)
            or self._max_tokens(text, body)
            or self._dialect(text, tools)
            or self._tools(text, tools)
            or self._field(text, body)
            or self._documents(text, request)
            or self._images(text, request)
        )

    def _reasoning(self, text: str, tools: Sequence[ToolSpec]) -> str | None:
        extra = self.profile.extra_body
        if tools and "reasoning_effort" in text and "none" in text and "reasoning_effort" not in extra:
            self._change(extra_body={**extra, "reasoning_effort": "none"})
            return "this endpoint has no tools beside reasoning: the model is asked not to reason"
        if "reasoning_content" in text and not self.profile.reasoning_field and _WANTED_BACK.search(text):
            self._change(reasoning_field="reasoning_content")
            return "the endpoint wants its reasoning back"
        refuses = re.search(r"\bmessages?\b.{0,60}\breasoning", text) and _REFUSAL.search(text)
        if refuses and self.profile.echo_reasoning != "none":
            self._change(echo_reasoning="none")
            return "the endpoint does not take its reasoning back: it is left out"
        return None

    def _max_tokens(self, text: str, body: Mapping[str, Any]) -> str | None:
        limit = re.search(r"max_tokens: (\d+) > (\d+)", text)
        if limit and int(limit[2]) < (self.max_tokens or int(limit[1])):
            self.max_tokens = int(limit[2])
            return f"the endpoint limits a reply to {limit[2]} tokens"
        mine = self.profile.max_tokens_field
        other = "max_tokens" if mine == "max_completion_tokens" else "max_completion_tokens"
        if mine in body and re.search(rf"\b{other}\b", text) and "too large" not in text:
            self._change(max_tokens_field=other)
            return f"the endpoint wants {other} in place of {mine}"
        return None

    def _dialect(self, text: str, tools: Sequence[ToolSpec]) -> str | None:
        known = self.profile.schema_dialect
        dialect = next((dialect for words, dialect in _DIALECTS.items() if words in text), None)
        if not tools or dialect is None or known in (dialect, "gemini"):
            return None
        self._change(schema_dialect=dialect)
        return f"the endpoint takes only a part of JSON Schema: tools are described in that ({dialect})"

    def _tools(self, text: str, tools: Sequence[ToolSpec]) -> str | None:
        names = [tool.name for tool in tools]
        if most := re.search(r"\btools\b.{0,40}too long.{0,60}maximum length (\d+)", text):
            beyond = names[int(most[1]) :]
            self.dropped_tools.update(beyond)
            return f"the endpoint takes {most[1]} tools at most: the last {len(beyond)} left out" if beyond else None
        at = re.search(r"\bfunction_declarations\[(\d+)", text) or re.search(r"\btools?[\[.](\d+)", text)
        if at and int(at[1]) < len(names):
            bad = names[int(at[1])]
        elif "function" in text:
            quoted = set(re.findall(r"['\"`]([a-zA-Z0-9_-]{1,64})['\"`]", text))
            bad = next((name for name in names if name in quoted), "")
        else:
            return None
        if not bad:
            return None
        self.dropped_tools.add(bad)
        return f"the endpoint does not take the tool {bad}: it is left out"

    def _field(self, text: str, body: Mapping[str, Any]) -> str | None:
        if not _REFUSAL.search(text):
            return None
        if "tool_choice" in body and re.search(r"\btool_choice\b", text) and self.profile.tool_choice:
            self._change(tool_choice=False)
            return "the endpoint does not take tool_choice: tools are left out in its place"
        for name in _OPTIONAL:
            words = f"{name}|[Ee]ncrypted content" if name == "include" else name
            if name in body and name not in self.required and re.search(rf"\b(?:{words})\b", text):
                self.dropped_fields.add(name)
                return f"the endpoint does not take {name}: it is left out"
        return None

    def _documents(self, text: str, request: ModelRequest) -> str | None:
        if self.profile.documents and _DOCUMENTS.search(text) and _has_part(FilePart, request):
            self._change(documents=False)
            return "the endpoint refused a document: the model is told what documents there were"
        return None

    def _too_large(self, request: ModelRequest) -> str | None:
        """Leave out what makes a request large; proxies often allow a megabyte."""
        profile = self.profile
        for flag, is_taken, kind in (("documents", profile.documents, FilePart), ("images", profile.images, ImagePart)):
            if is_taken and _has_part(kind, request):
                self._change(**{flag: False})
                return f"the request is too large for the endpoint: the model is told what {flag} there were"
        return None

    def _images(self, text: str, request: ModelRequest) -> str | None:
        if self.profile.images and _IMAGES.search(text) and _has_part(ImagePart, request):
            self._change(images=False)
            return "the model does not take images: it is told what they were"
        return None

    def _change(self, **flags: Any) -> None:
        self.profile = replace(self.profile, **flags)


def without_echoes(error: ProviderError, request: ModelRequest) -> ModelRequest | None:
    """Give the request without what the endpoint once wanted back, if that is what it now refuses.

    A signature holds for what came before it: a conversation that was shortened, or another account's key, voids it.
    """
    if error.status not in (400, 422) or not _ECHOES.search(str(error)):
        return None
    if not any(message.echo is not None for message in request.messages):
        return None
    return replace(request, messages=tuple(message.without_echo() for message in request.messages))


def _has_part(kind: type[ImagePart | FilePart], request: ModelRequest) -> bool:
    contents = (message.content for message in request.messages if not isinstance(message.content, str))
    return any(isinstance(part, kind) for content in contents for part in content)
