"""Parses a reply while it streams: visible text, reasoning, and the calls written in the text.

The parser is a generator that reads the text sequentially and yields when it needs more text. The code follows the
grammar of a reply, and the boundaries of streamed pieces make no difference. Text is shown at once; only a possible
beginning of a marker is held back. Every step takes linear time, because a model's text is untrusted input.

Harmony, the format of gpt-oss, writes ``<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
<|message|>{…}<|call|>``; the channel ``analysis`` contains reasoning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dial_client.messages.message import Message, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import ReplyReader
from dial_client.providers.formats import call_parser, call_syntaxes
from dial_client.providers.formats.call_parser import CallParser, find_calls
from dial_client.providers.formats.call_readers import MAX_CALLS, FoundCalls, parse_arguments
from dial_client.providers.formats.stream_buffer import (
    BoundedText,
    Lookahead,
    Markers,
    MarkerSearch,
    Parsing,
    ReplyOutput,
    StreamBuffer,
    TextSink,
)
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.logs import get_logger

_CHANNELS = ("analysis", "commentary", "final")
_WORDS = (
    *_CHANNELS, "assistant", "user", "system", "developer", "tool", "functions.", "python", "browser",
)  # fmt: skip
_INNER = ("<|message|>", "<|channel|>", "<|constrain|>")
_FILLING = compile_lazily(r"(?>(?:[^<\n]|<\|(?:channel|constrain)\|>){0,300})")
_END_OF_HEADER = "<|end_header_id|>"
_RECIPIENT = compile_lazily(r"\bto=([\w.-]{1,128})")


def may_begin(text: str) -> Lookahead:
    """Return True if the text begins with a complete header; None if more text is needed to decide."""
    if not text.startswith(_WORDS):
        return None if any(word.startswith(text) for word in _WORDS) else False
    found = _FILLING.match(text)
    rest = text[found.end() :] if found else ""
    if rest.startswith("<|message|>"):
        return True
    return None if any(token.startswith(rest) for token in _INNER) else False


_ROLES = ("assistant", "model", "user", "system", "tool", "ipython", "developer")


def begins_with_role(text: str) -> Lookahead:
    """Return True if the text begins with a role and the end of its line or header; None if more text is needed."""
    for role in _ROLES:
        if role.startswith(text):
            return None
        if text.startswith(role):
            rest = text[len(role) :]
            is_ended = rest.startswith(("\n", _END_OF_HEADER))
            return is_ended or (None if _END_OF_HEADER.startswith(rest) else False)
    return False


log = get_logger(__name__)

_MARKERS = Markers(*call_syntaxes.TAGS, tokens=True)
_MARKERS_AND_CODE = Markers(*call_syntaxes.TAGS, "```", tokens=True, in_code=True)
_TAG_LEADS = frozenset("<[\u25c1`")
_FENCE_END = Markers("```")
_INLINE_CODE_END = Markers("`", "\n")
_REASONING_END_OF = {opener: Markers(end) for opener, end in call_syntaxes.REASONING_TAGS.items()}
_HEADER_END = Markers("<|message|>")
_ROLE_END = Markers("\n", "<|end_header_id|>")
_ANALYSIS_END = Markers("<|end|>", "<|call|>", "<|return|>", *call_syntaxes.HARMONY_HEADERS)


class ReplyParser:
    """A `ReplyReader` for text with markers. A format with its own labels overrides `_parse`.

    Args:
        tools: The tools on offer; None if they are unknown, so that every name is accepted.
        careful: True if the model was not asked to write calls as text. A call then counts only if it names an offered
            tool and satisfies its schema; markers around anything else, and markers in code, are shown as text.
        one_call: True if the first call ends the reply.
        fenced_calls: True if a call in the code fence at the end of a reply counts too.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec] | None,
        *,
        careful: bool = False,
        one_call: bool = False,
        fenced_calls: bool = False,
    ) -> None:
        self._offer = OfferedTools(tools)
        self._markers = _MARKERS_AND_CODE if careful else _MARKERS
        self._is_careful = careful
        self._buffer = StreamBuffer()
        self._output = ReplyOutput()
        self._calls = CallParser(
            self._offer,
            self._buffer,
            self._output,
            self._markers,
            is_careful=careful,
            max_calls=1 if one_call else MAX_CALLS,
        )
        self._reads_fences = fenced_calls and bool(tools)
        self._has_reasoned = False
        self._in_result = False
        self._is_over = False
        self._parsing = self._parse()

    def feed(self, text: str) -> str:
        """Add text of the reply, and return the text to show. Text that may begin a marker is held back."""
        if not self._is_over and not self._buffer.pass_through(text):
            self._buffer.append(text)
            self._advance()
        return self._output.take_text()

    @property
    def withdraws_text(self) -> bool:
        """True if the visible text before the end of an unopened reasoning has turned out to be reasoning."""
        return self._output.is_withdrawn

    def reasoning(self) -> str:
        """Return the reasoning since the last call."""
        return self._output.take_reasoning()

    def finish(self) -> tuple[str, tuple[ToolCallRequest, ...]]:
        """End the reply, and return the rest of the text and the calls found in it."""
        self._buffer.close()
        if not self._is_over:
            self._advance()
        self._output.close()
        calls = tuple(self._calls.calls)
        if calls:
            log.debug("calls_in_text", calls=len(calls), requested=not self._is_careful)
        return self._output.take_text(), calls

    def _advance(self) -> None:
        try:
            next(self._parsing)
        except StopIteration:
            self._is_over = True

    def _parse(self) -> Parsing:
        """Parse the whole reply."""
        yield from self._parse_bare_calls()
        yield from self._parse_text(self._markers, self._output.add_text)

    def _parse_bare_calls(self) -> Parsing:
        """Parse the rest of the reply as calls if it contains nothing else; otherwise put it back as text."""
        if self._is_over or self._output.has_begun or self._calls.calls:
            return
        is_requested = not self._is_careful
        is_possible = yield from self._buffer.look_ahead(
            lambda text: call_parser.may_begin(text, self._offer, is_requested=is_requested)
        )
        if not is_possible:
            return
        reply = BoundedText()
        while not reply.is_too_long and (yield from self._buffer.read_available(reply.add)):
            pass
        found = FoundCalls() if reply.is_too_long else find_calls(call_parser.read, reply.text)
        calls = self._offer.match_calls(found.calls)
        if not calls and is_requested:
            calls = self._offer.accept_calls(found.calls)
        if calls:
            self._calls.add(calls)
        else:
            self._buffer.put_back(reply.text)

    def _parse_text(self, markers: Markers, sink: TextSink) -> MarkerSearch:
        """Parse up to the next marker other than a tag or code, and return it; empty at the end of the reply."""
        while True:
            marker = yield from self._buffer.read_until(markers, sink)
            if marker[:1] not in _TAG_LEADS:
                return marker
            if marker[0] == "`":
                yield from self._parse_code(marker, sink)
            else:
                yield from self._parse_tag(marker)
                self._buffer.begin_line()
            if self._is_over or self._calls.ends_reply:
                return ""

    def _parse_code(self, marker: str, sink: TextSink) -> Parsing:
        if marker == "```" and self._reads_fences and self._may_be_fenced_call():
            yield from self._calls.parse_fence(sink)
            return
        sink(marker)
        sink((yield from self._buffer.read_until(_FENCE_END if marker == "```" else _INLINE_CODE_END, sink)))

    def _may_be_fenced_call(self) -> bool:
        """Return True if a fence may contain a call: it is at the start of a line, before any call, not in a result."""
        line = self._output.tail.rpartition("\n")[2]
        return not (line.strip() or self._in_result or self._calls.calls)

    def _parse_tag(self, marker: str) -> Parsing:
        self._output.note_marker()
        tail = self._output.tail
        if tail == tail.rstrip() and self._markers.count_partial(tail, 0, at_line_start=False):
            self._output.add_text(" ")  # otherwise the text before and after the tag could form a new tag
        if marker in call_syntaxes.REASONING_TAGS:
            yield from self._buffer.read_until(_REASONING_END_OF[marker], self._output.add_reasoning)
            if not self._has_reasoned:
                self._has_reasoned = True
                yield from self._parse_bare_calls()
        elif marker in call_syntaxes.REASONING_ENDS:
            yield from self._end_unopened_reasoning()
        elif marker in call_syntaxes.CALL_SYNTAXES:
            yield from self._calls.parse(call_syntaxes.CALL_SYNTAXES[marker], in_result=self._in_result)
        elif marker in call_syntaxes.HARMONY_HEADERS:
            yield from self._parse_harmony_header()
        elif marker in call_syntaxes.TURN_BEGINNINGS:
            if (yield from self._buffer.look_ahead(begins_with_role)):
                role = BoundedText()
                yield from self._buffer.read_until(_ROLE_END, role.add)
                # All text after another role is invented, also its results.
                self._is_over = role.text.strip() not in ("assistant", "model")
            yield from self._parse_bare_calls()
        else:
            yield from self._parse_token(marker)

    def _parse_token(self, marker: str) -> Parsing:
        """Parse a marker of a tool result, the end of the text, or any other special token of a chat template."""
        if marker in call_syntaxes.RESULT_TAGS:
            # A result after the model's own calls is invented, and so is all text after it.
            self._is_over = bool(self._calls.calls)
            self._in_result = True
        elif marker in call_syntaxes.RESULT_ENDS:
            self._in_result = False
        elif marker == call_syntaxes.END_OF_TEXT:
            is_in_text = yield from self._buffer.look_ahead(lambda text: None if text.isspace() else True)
            if is_in_text:
                self._output.add_text(marker)
        elif marker[-2:-1] in "|\uff5c":
            yield from self._parse_bare_calls()

    def _end_unopened_reasoning(self) -> Parsing:
        """Handle an end of reasoning without a beginning: the chat template wrote the beginning into the prompt.

        All text so far becomes reasoning. Text that was already returned as visible, as in most streams, is withdrawn.
        """
        if self._has_reasoned:
            return
        self._has_reasoned = True
        self._calls.calls.clear()
        if self._output.move_text_to_reasoning():
            yield from self._parse_bare_calls()

    def _parse_harmony_header(self) -> Parsing:
        """Parse a header of the harmony format, and the call or reasoning after it. Other text after it is shown."""
        if not (yield from self._buffer.look_ahead(may_begin)):
            return
        text = BoundedText()
        yield from self._buffer.read_until(_HEADER_END, text.add)
        words = re.split(r"<\|(?:channel|constrain)\|>|\s", text.text)
        recipient = _RECIPIENT.search(text.text)
        if words[0] not in ("assistant", *_CHANNELS):  # a turn of another role, which the model invents
            self._is_over = True
        elif recipient:
            if self._offer.find_name(recipient[1]):
                yield from self._calls.parse(
                    call_syntaxes.HARMONY, read=partial(parse_arguments, recipient[1]), in_result=self._in_result
                )
        elif next((word for word in words if word in _CHANNELS), "") == "analysis":
            self._has_reasoned = True
            marker = yield from self._buffer.read_until(_ANALYSIS_END, self._output.add_reasoning)
            if marker in call_syntaxes.HARMONY_HEADERS:
                self._buffer.unread(marker)
        yield from self._parse_bare_calls()


def read_reply(reader: ReplyReader, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
    """Return the calls and the visible text of a complete reply."""
    visible = reader.feed(text)
    rest, calls = reader.finish()
    return calls, visible + rest


_BACKTICK = "`"
_NAME_KEYS = ("name", "function")
_MARKS = compile_lazily(r"(?>(?:\\+[nrt]|\W)+)")


def drop_quoted_calls(
    calls: Sequence[ToolCallRequest], messages: Sequence[Message], tools: Sequence[ToolSpec], *, anywhere: bool = False
) -> list[ToolCallRequest]:
    """Return the calls that do not occur, in any syntax, in the tool results and resources that the model has read.

    Args:
        calls: The calls found in the text of a reply; the API's own calls need no such check.
        messages: The messages of the request.
        tools: The tools on offer in the request.
        anywhere: True to search the values of a call anywhere in the results, even without call syntax: a model whose
            fenced calls run can put a fence around any text.
    """
    if not calls:
        return []
    texts = list(_find_foreign_texts(messages))
    quotable = {_build_key(call) for text in texts for call in _find_calls(text, tools)}
    # A server could have planted the call in its result, for a model that repeats what it reads.
    calls = [call for call in calls if _build_key(call) not in quotable]
    if not anywhere:
        return calls
    plain_texts = list(map(_strip_marks, texts))
    kept = []
    for call in calls:
        name, values = _strip_marks(call.name), list(map(_strip_marks, _find_scalars(call.arguments)))
        naming = [f"{key}{name}" for key in _NAME_KEYS]
        # A text repeats the call if it names the tool as a call does, and contains all values of the call.
        if not any(any(n in text for n in naming) and all(v in text for v in values) for text in plain_texts):
            kept.append(call)
    return kept


def _find_foreign_texts(messages: Sequence[Message]) -> Iterable[str]:
    """Yield the texts that MCP servers wrote."""
    for message in messages:
        if message.role is Role.TOOL:
            yield message.text
        elif not isinstance(message.content, str):
            yield from (part.text for part in message.content if isinstance(part, TextPart) and part.foreign)


def _find_calls(text: str, tools: Sequence[ToolSpec]) -> Iterable[ToolCallRequest]:
    """Yield the calls that a reply with this text would contain, with and without the backticks of code."""
    for reply in dict.fromkeys((text, text.replace(_BACKTICK, ""))):
        yield from read_reply(ReplyParser(tools, careful=True), reply)[0]


def _strip_marks(text: str) -> str:
    """Return a text without escapes, quotation marks, punctuation and white space."""
    return _MARKS.sub("", text).casefold()


def _find_scalars(value: Any) -> Iterable[str]:
    """Yield the strings and numbers in a JSON value, at any depth, as JSON."""
    remaining = [value]
    while remaining:
        part = remaining.pop()
        if isinstance(part, Mapping):
            remaining.extend(part.values())
        elif isinstance(part, list | tuple):
            remaining.extend(part)
        elif isinstance(part, str):
            yield json.dumps(part, ensure_ascii=False)
        elif part is not None and not isinstance(part, bool):
            yield json.dumps(part)


def _build_key(call: ToolCallRequest) -> tuple[str, str]:
    return call.name, json.dumps(dict(call.arguments), sort_keys=True, default=str)
