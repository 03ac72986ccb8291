"""Adaptation of requests to the refusals of an endpoint: refused content is left out, or sent in another form.

A conversation must not end because the endpoint does not know a parameter or refuses a tool. The change depends on the
message of a response with status 400 or 422, or on the status 413. A refusal of images is recognized by its words, with
any status: servers of local models and routers refuse them with 500 or 404. The user gets one note, and the provider
applies the change to all further requests.

The names of tools are mapped to names that the endpoint accepts, in requests, and back to the tools' own names, in
replies. A name that the endpoint accepts is not changed. Any other name is replaced by one that ends with a hash of the
tool's own name. So the new name is the same in every request, even in the history of a tool that no longer exists. The
new name is never parsed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from dial_client.messages.errors import IMAGE_UNREADABLE, IMAGES_UNSUPPORTED, ProviderError
from dial_client.messages.message import FilePart, ImagePart, ToolCallRequest, ToolSpec
from dial_client.messages.model import ArgumentsChunk, CallChunk, Delta, ModelRequest, Thinking
from dial_client.providers.media_refusals import MediaTrial, MediaType, RefusedMedia
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.settings.endpoint_profile import EndpointProfile

# The most times that one request is adapted and sent again.
MAX_ADAPTATIONS = 32

_OPTIONAL_FIELDS = (
    "stream_options", "parallel_tool_calls", "temperature", "top_p", "seed", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "stop_sequences", "stop", "include", "store", "cache_control", "structured_outputs",
    "response_format", "grammar",
)  # fmt: skip
_UNSUPPORTED_PARAMETER = compile_lazily(
    r"support|unknown|unrecogni[sz]ed|unexpected|extra|permitted|invalid|deprecated|not allowed|too large",
    re.IGNORECASE,
)
_IMAGES = compile_lazily(r"\bimages?\b|image_url|\bvision\b|multimodal", re.IGNORECASE)
# Matches a refusal of one document, and not of documents as such.
_BAD_DOCUMENT = compile_lazily(
    r"password|encrypt|corrupt|damaged|\bvalid (?:pdf|document|file)|not valid|process|\bpages\b"
    r"|too (?:large|long|many|big)|exceed|\bparse\b|\bread\b|empty",
    re.IGNORECASE,
)
_DOCUMENTS = compile_lazily(r"\bdocuments?\b|\bpdfs?\b|\bfiles?\b|\binput_file\b|\bfile_data\b", re.IGNORECASE)
# Groq describes unsupported content with "the following must be satisfied".
_MISSING_PARAMETER = compile_lazily(r"missing|require|must (?!be satisfied)", re.IGNORECASE)
_TOOL_SEARCH = compile_lazily(r"defer_loading|tool[ _]search", re.IGNORECASE)
# Matches a refusal of the field with the schema of the answer.
_OUTPUT_FORMAT = compile_lazily(
    r"response_?format|json_?schema|output_config|output_format|text\.format|response mime ?type|structured output"
    r"|generation_config",
    re.IGNORECASE,
)
# Matches a refusal of one particular schema.
_INVALID_SCHEMA = compile_lazily(
    r"invalid (?:json )?schema|schemas? (?:is|are|has|have|must|contains?|exceeds?|with)\b|response_schema|recursi"
    r"|in context=|too (?:many|complex|large)",
    re.IGNORECASE,
)
_BESIDE_TOOLS = compile_lazily(r"function.?call|\btools?\b", re.IGNORECASE)
# The dialect of JSON Schema of an endpoint, by words of its refusals.
_DIALECTS = {"function_declarations": "gemini", "moonshot flavored": "openai"}
_THINKING = compile_lazily(r"reasoning[._]effort|\breasoning\b|\bthinking\b|\beffort\b", re.IGNORECASE)
# The amount of thinking to request in place of one that the endpoint refuses.
_NEAREST_THINKING: Mapping[str, Thinking] = {"max": "high", "minimal": "low"}
FORCED_CHOICE_NOTE = "the endpoint does not accept a forced call: the model itself chooses whether to call a tool"
# Matches the refusal of a user message after a tool message, by Mistral and by servers with Mistral's tokenizer.
_ROLE_ORDER = compile_lazily(r"\brole\W{1,3}user\W{1,3}after role\W{1,3}tool\b", re.IGNORECASE)
_ECHOES = compile_lazily(r"thinking|signature|reasoning|encrypted|tool_calls|citation|server_tool|not persisted")


@dataclass(slots=True)
class RequestAdaptation:
    """The changes to requests that a provider has made because of its endpoint's refusals."""

    profile: EndpointProfile
    required: frozenset[str] = frozenset()
    """Fields that every request of the API requires, which are never dropped."""
    dropped_fields: set[str] = field(default_factory=set)
    """Fields of the body that are left out because the endpoint refuses them."""
    dropped_tools: set[str] = field(default_factory=set)
    """Names of tools that are left out because the endpoint refuses them."""
    max_tokens: int | None = None
    """The most tokens of a reply, if a refusal names a limit."""
    media: RefusedMedia = field(default_factory=RefusedMedia)
    """The single images and documents that are left out because the endpoint refuses them."""
    refused_thinking: set[str] = field(default_factory=set)
    """The values of `ModelSettings.thinking` that the endpoint refuses."""

    def choose_thinking(self, thinking: Thinking | None) -> Thinking | None:
        """Return the nearest amount of thinking that the endpoint has not refused; None to leave it to the endpoint."""
        while thinking is not None and thinking in self.refused_thinking:
            thinking = _NEAREST_THINKING.get(thinking)
        return thinking

    def check_search_refusal(self, error: ProviderError, tools: Sequence[ToolSpec]) -> bool:
        """Return True if the endpoint refuses its own tool search, and switch tool search off."""
        is_sent = self.profile.tool_search and any(tool.deferred for tool in tools)
        if error.status not in (400, 422) or not is_sent or not _TOOL_SEARCH.search(str(error)):
            return False
        self._change_profile(tool_search=False)
        return True

    def check_output_refusal(self, error: ProviderError, request: ModelRequest) -> bool:
        """Return True if the endpoint refuses the schema of the answer.

        Structured output is switched off, unless the endpoint refuses only this particular schema.
        """
        text = str(error)
        if error.status not in (400, 422) or request.output_format is None or not _OUTPUT_FORMAT.search(text):
            return False
        if not _INVALID_SCHEMA.search(text):
            self._change_profile(structured_output="without_tools" if _BESIDE_TOOLS.search(text) else "none")
        return True

    def adapt(
        self,
        error: ProviderError,
        request: ModelRequest,
        body: Mapping[str, Any],
        tools: Sequence[ToolSpec],
        trial: MediaTrial,
    ) -> str | None:
        """Adapt further requests to a refusal, and return a note for the user; None if no change can help.

        Args:
            error: The refusal.
            request: The refused request.
            body: The fields of the refused body, without the tools.
            tools: The tools of the refused request.
            trial: The search for a refused image of the request.
        """
        # Without the name of the host, which may be "images".
        text = str(error).partition(": ")[2]
        if error.code == IMAGES_UNSUPPORTED:
            return self._leave_images_out(request)
        if error.code == IMAGE_UNREADABLE:
            return self.media.record(ImagePart, text, request, body, trial)
        if error.status == 413:
            return self._shrink_request(request)
        if error.status not in (400, 415, 422):
            return None
        return (
            # The most specific words come first: a message about tool_choice, for example, also names tools.
            self._adapt_role_order(text)
            or self._adapt_tool_choice(text, body)
            or self._adapt_thinking(text, request)
            or self._adapt_reasoning(text, tools)
            or self._adapt_max_tokens(text, body)
            or self._adapt_dialect(text, tools)
            or self._adapt_tools(text, tools)
            or self._adapt_fields(text, body)
            or self._adapt_documents(text, request, body, trial)
            or (self.media.record(ImagePart, text, request, body, trial) if _IMAGES.search(text) else None)
        )

    def _adapt_reasoning(self, text: str, tools: Sequence[ToolSpec]) -> str | None:
        extra = self.profile.extra_body
        if tools and "reasoning_effort" in text and "none" in text and "reasoning_effort" not in extra:
            self._change_profile(extra_body={**extra, "reasoning_effort": "none"})
            return "the endpoint does not support tools with reasoning: reasoning is switched off"
        if "reasoning_content" in text and not self.profile.reasoning_field and _MISSING_PARAMETER.search(text):
            self._change_profile(reasoning_field="reasoning_content")
            return "the endpoint requires the model's earlier reasoning: it is sent back"
        refuses = re.search(r"\bmessages?\b.{0,60}\breasoning", text) and _UNSUPPORTED_PARAMETER.search(text)
        if refuses and self.profile.echo_reasoning != "none":
            self._change_profile(echo_reasoning="none")
            return "the endpoint does not accept the model's earlier reasoning: it is left out"
        return None

    def _adapt_tool_choice(self, text: str, body: Mapping[str, Any]) -> str | None:
        """Force no call, or offer no tools when no call is allowed. Some models refuse forced calls."""
        if "tool_choice" not in body or not re.search(r"\btool[_ ]choice\b", text, re.IGNORECASE):
            return None
        # Whatever the reason, the model may still call the tool if it may choose.
        if body["tool_choice"] not in ("none", {"type": "none"}):
            self._change_profile(forced_choice=False)
            return FORCED_CHOICE_NOTE
        if not self.profile.tool_choice or not _UNSUPPORTED_PARAMETER.search(text):
            return None
        self._change_profile(tool_choice=False)
        return "the endpoint does not accept tool_choice: tools are left out instead"

    def _adapt_thinking(self, text: str, request: ModelRequest) -> str | None:
        refused = self.choose_thinking(request.settings.thinking)
        # Signatures and messages belong to earlier reasoning, and tools beside reasoning are a case of their own.
        if refused is None or not _THINKING.search(text) or re.search(r"signature|\bmessages?\b|\btools?\b", text):
            return None
        self.refused_thinking.add(refused)
        nearest = self.choose_thinking(refused)
        change = f"{nearest} is sent" if nearest else "it is left out"
        return f"the endpoint does not accept thinking {refused!r}: {change}"

    def _adapt_role_order(self, text: str) -> str | None:
        if self.profile.user_after_tool and _ROLE_ORDER.search(text):
            self._change_profile(user_after_tool=False)
            return (
                "the endpoint accepts no user message directly after a tool result: a placeholder is sent between them"
            )
        return None

    def _adapt_max_tokens(self, text: str, body: Mapping[str, Any]) -> str | None:
        limit = re.search(r"max_tokens: (\d+) > (\d+)", text)
        # The API names the limit of the model in its refusal.
        if limit and int(limit[2]) < (self.max_tokens or int(limit[1])):
            self.max_tokens = int(limit[2])
            return f"the endpoint limits a reply to {limit[2]} tokens"
        name = self.profile.max_tokens_field
        alternative = "max_tokens" if name == "max_completion_tokens" else "max_completion_tokens"
        if name in body and re.search(rf"\b{alternative}\b", text) and "too large" not in text:
            self._change_profile(max_tokens_field=alternative)
            return f"the endpoint requires {alternative} instead of {name}"
        return None

    def _adapt_dialect(self, text: str, tools: Sequence[ToolSpec]) -> str | None:
        current = self.profile.schema_dialect
        # Gemini names its own type in errors; Moonshot names its flavor of JSON Schema.
        dialect = next((dialect for words, dialect in _DIALECTS.items() if words in text), None)
        if not tools or dialect is None or current in (dialect, "gemini"):
            return None
        self._change_profile(schema_dialect=dialect)
        return f"the endpoint supports only a subset of JSON Schema: tools are described in it ({dialect})"

    def _adapt_tools(self, text: str, tools: Sequence[ToolSpec]) -> str | None:
        names = [tool.name for tool in tools]
        if limit := re.search(r"\btools\b.{0,40}too long.{0,60}maximum length (\d+)", text):
            # The last tools are those that were offered last, so the first choice of the user stays.
            extra = names[int(limit[1]) :]
            self.dropped_tools.update(extra)
            return f"the endpoint accepts at most {limit[1]} tools: the last {len(extra)} left out" if extra else None
        index = re.search(r"\bfunction_declarations\[(\d+)", text) or re.search(r"\btools?[\[.](\d+)", text)
        if index and int(index[1]) < len(names):
            bad = names[int(index[1])]
        elif "function" in text:
            quoted = set(re.findall(r"['\"`]([a-zA-Z0-9_-]{1,64})['\"`]", text))
            bad = next((name for name in names if name in quoted), "")
        else:
            return None
        if not bad:
            return None
        self.dropped_tools.add(bad)
        return f"the endpoint does not accept the tool {bad}: it is left out"

    def _adapt_fields(self, text: str, body: Mapping[str, Any]) -> str | None:
        if not _UNSUPPORTED_PARAMETER.search(text):
            return None
        for name in _OPTIONAL_FIELDS:
            words = f"{name}|[Ee]ncrypted content" if name == "include" else name
            if name in body and name not in self.required and re.search(rf"\b(?:{words})\b", text):
                self.dropped_fields.add(name)
                return f"the endpoint does not accept {name}: it is left out"
        return None

    def _adapt_documents(
        self, text: str, request: ModelRequest, body: Mapping[str, Any], trial: MediaTrial
    ) -> str | None:
        if not _DOCUMENTS.search(text) or not self._shows(FilePart, request):
            return None
        if _BAD_DOCUMENT.search(text):
            return self.media.record(FilePart, text, request, body, trial)
        self._change_profile(documents=False)
        return "the endpoint refused a document: documents are replaced by descriptions"

    def _shrink_request(self, request: ModelRequest) -> str | None:
        """Hide the documents, or else the images, of a request: proxies often limit requests to a megabyte."""
        for kind, name in ((FilePart, "documents"), (ImagePart, "images")):
            if self._shows(kind, request):
                self.media.hide_all(kind, request, "the endpoint limits the size of a request")
                return f"the request is too large for the endpoint: {name} are replaced by descriptions"
        return None

    def _leave_images_out(self, request: ModelRequest) -> str | None:
        if not self._shows(ImagePart, request):
            return None
        self._change_profile(images=False)
        return "the model does not accept images: they are replaced by descriptions"

    def _shows(self, kind: MediaType, request: ModelRequest) -> bool:
        is_accepted = self.profile.images if kind is ImagePart else self.profile.documents
        return is_accepted and bool(self.media.list_shown(kind, request))

    def _change_profile(self, **flags: Any) -> None:
        self.profile = replace(self.profile, **flags)


def drop_echoes(error: ProviderError, request: ModelRequest) -> ModelRequest | None:
    """Return the request without echoes if the endpoint refuses them; None otherwise.

    A signature covers the preceding messages, so it is invalid in a shortened conversation, or with the key of another
    account.
    """
    has_echo = any(message.echo is not None for message in request.messages)
    if error.status not in (400, 422) or not has_echo or not _ECHOES.search(str(error)):
        return None
    return replace(request, messages=tuple(message.without_echo() for message in request.messages))


_HASH_LENGTH = 8
# Converts a hash to letters only: some endpoints accept no digits, or none at the beginning.
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopabcdef")
_MAX_ATTEMPTS = 100


class ToolNameMapping:
    """Maps the names of tools for one endpoint.

    Args:
        pattern: A regular expression that must match the whole name; empty to allow any name.
        length: The most characters of a name.
    """

    def __init__(self, pattern: str, length: int) -> None:
        self._pattern = re.compile(pattern) if pattern else None
        self._length = length
        self._tools: tuple[ToolSpec, ...] = ()
        self._renamed: tuple[ToolSpec, ...] = ()
        self._name_at_endpoint: dict[str, str] = {}
        self._own_name: dict[str, str] = {}
        self.notes: list[str] = []
        """Notes for the user on the tools of the last request; the caller clears the list."""

    @property
    def is_needed(self) -> bool:
        """True if the endpoint refuses names that most endpoints accept."""
        return self._pattern is not None or self._length < 64

    def to_endpoint(self, request: ModelRequest) -> ModelRequest:
        """Return the request with mapped names of its tools, and of the calls in its messages.

        The same tuple of tools always yields the same tuple of mapped tools, so encoded tools can be cached.
        """
        if request.tools is not self._tools:
            self._tools = request.tools
            used_names = {tool.name for tool in request.tools if self._is_accepted(tool.name)}
            renamed: list[ToolSpec] = []
            self._name_at_endpoint, self._own_name = {}, {}
            for tool in request.tools:
                name = tool.name if tool.name in used_names else self._find_unused_name(tool.name, used_names)
                if not name:
                    self.notes.append(f"the endpoint accepts no name for the tool {tool.name}: it is left out")
                    continue
                used_names.add(name)
                self._name_at_endpoint[tool.name] = name
                self._own_name[name] = tool.name
                renamed.append(tool if name == tool.name else replace(tool, name=name))
            self._renamed = tuple(renamed)
        messages = tuple(
            replace(message, tool_calls=tuple(map(self._map_call, message.tool_calls)))
            if message.tool_calls
            else message
            for message in request.messages
        )
        choice = request.settings.tool_choice
        settings = replace(request.settings, tool_choice=self._name_at_endpoint.get(choice or "", choice))
        return replace(request, tools=self._renamed, messages=messages, settings=settings)

    def from_endpoint(self, call: ToolCallRequest) -> ToolCallRequest:
        """Return a call with the tool's own name. A call of an unknown tool is returned unchanged."""
        name = self._own_name.get(call.name, call.name)
        return call if name == call.name else replace(call, name=name)

    def restore_names(self, note: str) -> str:
        """Return a note in which mapped names are replaced by the tools' own names."""
        for name, own in self._own_name.items():
            if name != own:
                note = note.replace(name, own)
        return note

    async def restore_calls(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of a reply, with the tools' own names in the calls."""
        async with aclosing(deltas) as stream:
            async for delta in stream:
                match delta:
                    case CallChunk(call):
                        yield CallChunk(self.from_endpoint(call))
                    case ArgumentsChunk(index, name, text):
                        yield ArgumentsChunk(index, self._own_name.get(name, name), text)
                    case _:
                        yield delta

    def _map_call(self, call: ToolCallRequest) -> ToolCallRequest:
        is_accepted = self._is_accepted(call.name)
        name = "" if is_accepted else self._name_at_endpoint.get(call.name) or self._find_unused_name(call.name, set())
        return replace(call, name=name) if name else call

    def _is_accepted(self, name: str) -> bool:
        return 0 < len(name) <= self._length and (self._pattern is None or self._pattern.fullmatch(name) is not None)

    def _find_unused_name(self, name: str, used_names: set[str]) -> str:
        """Return a name that the endpoint accepts and no other tool has; empty if there is none."""
        for attempt in range(_MAX_ATTEMPTS):
            source = f"{name}\0{attempt}" if attempt else name
            digest = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:_HASH_LENGTH].translate(_LETTERS)
            candidate = next(filter(self._is_accepted, _list_candidates(name, digest, self._length)), "")
            if not candidate or candidate not in used_names:
                return candidate
        return ""


def _list_candidates(name: str, digest: str, length: int) -> list[str]:
    """Return candidate names, the most readable first. Most patterns accept one of them."""
    room = length - len(digest) - 1
    plain = re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")
    bare = re.sub(r"[^a-zA-Z0-9]+", "", name)
    stems = [re.sub(r"[^a-zA-Z0-9_-]", "_", name), plain, plain.replace("_", "-"), bare, re.sub("[0-9]", "", bare)]
    starts = [start for stem in dict.fromkeys(stems) for start in (stem, f"t_{stem}", f"t{stem}")]
    variants = [f"{start[:room]}{joint}{digest}" for start, joint in product(starts, ("_", "-", ""))]
    return [*variants, *(variant.lower() for variant in variants), digest, digest.upper()]
