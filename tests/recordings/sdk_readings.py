"""How the vendors' SDKs parse the answers of the corpus, with their clients and typed objects, without a connection.

If an SDK leaves a choice to its caller, the documentation of the vendor decides: calls of an incomplete reply are not
run, further messages are paragraphs, and commentary is not part of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx2

from tests.inner import Api
from tests.recordings.corpus import Answer, Reading

MESSAGES: Any = [{"role": "user", "content": "Hello?"}]
_CHAT_FINISHES = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "content_filter": "refused"}
_MESSAGE_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "stop", "refusal": "refused"}
_LENGTHS = {"length", "max_tokens", "model_context_window_exceeded", "max_output_tokens"}


class SdkReader:
    """Reads answers of one API with its vendor's SDK."""

    def __init__(self, wire: Api) -> None:
        import anthropic
        import openai

        self._wire = wire
        self._answer = Answer("")
        http = httpx2.Client(transport=httpx2.MockTransport(self._respond))
        self._openai = openai.OpenAI(api_key="k", base_url="http://sdk.test/v1", max_retries=0, http_client=http)
        self._anthropic = anthropic.Anthropic(
            api_key="k", base_url="http://sdk.test", max_retries=0, http_client=httpx2.Client(transport=http._transport)
        )
        self._readers: dict[Api, Callable[[bool], Reading]] = {
            Api.CHAT: self._read_chat,
            Api.RESPONSES: self._read_response,
            Api.MESSAGES: self._read_message,
        }

    def read(self, answer: Answer) -> Reading:
        """Parse an answer with the SDK; any exception of the SDK counts as an error."""
        self._answer = answer
        try:
            reading = self._readers[self._wire](answer.is_stream)
        except Exception:  # noqa: BLE001 - after any exception of the SDK, its caller has no answer
            return Reading(error=True)
        if reading.finish != "stop":
            reading.calls = []
        return reading

    def _respond(self, _request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": self._answer.content_type}
        return httpx2.Response(self._answer.status, headers=headers, content=self._answer.to_bytes(self._wire))

    def _read_chat(self, stream: bool) -> Reading:
        if not stream:
            completion = self._openai.chat.completions.create(model="m", messages=MESSAGES)
            choice = completion.choices[0]
            return _read_choice([choice.message], choice.finish_reason, completion.usage)
        deltas, finish, usage = [], None, None
        chunks: Any = self._openai.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        for chunk in chunks:  # any value may be null at runtime, despite the declared types
            usage = chunk.usage or usage
            if chunk.choices is None or (chunk.choices and chunk.choices[0].delta is None):
                raise TypeError("a caller of the SDK fails at a chunk without choices or without a delta")
            for choice in chunk.choices[:1]:
                deltas.append(choice.delta)
                finish = choice.finish_reason or finish
        return _read_choice(deltas, finish, usage)

    def _read_response(self, stream: bool) -> Reading:
        if not stream:
            return _read_output(self._openai.responses.create(model="m", input="Hello?"))
        final = None
        texts: list[str] = []
        for event in self._openai.responses.create(model="m", input="Hello?", stream=True):
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
            final = getattr(event, "response", None) or final
            if event.type in ("response.completed", "response.incomplete", "response.cancelled"):
                return _read_output(final)
        return Reading(text="".join(texts))

    def _read_message(self, stream: bool) -> Reading:
        if not stream:
            return _read_blocks(self._anthropic.messages.create(model="m", max_tokens=9, messages=MESSAGES))
        with self._anthropic.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as events:
            return _read_blocks(events.get_final_message())


def _read_choice(messages: Iterable[Any], finish: str | None, usage: Any) -> Reading:
    """Return the reading of a message, or of its deltas; fragments of calls are joined by their index."""
    reading = Reading(finish=_to_finish(finish, _CHAT_FINISHES))
    calls: dict[Any, list[str]] = {}
    for message in messages:
        reading.text += "".join((message.content or "", message.refusal or ""))
        extra = message.model_extra or {}
        reading.reasoning += extra.get("reasoning_content") or extra.get("reasoning") or ""
        for at, call in enumerate(message.tool_calls or ()):
            key = call.index if getattr(call, "index", None) is not None and not hasattr(message, "annotations") else at
            pieces = calls.setdefault(key, ["", ""])
            pieces[0] += call.function.name or ""
            pieces[1] += call.function.arguments or ""
        annotations = getattr(message, "annotations", None) or extra.get("annotations") or ()
        for annotation in annotations:
            cited = annotation["url_citation"] if isinstance(annotation, dict) else annotation.url_citation.to_dict()
            reading.citations.append([cited["url"], cited["start_index"], cited["end_index"]])
        if message.refusal:
            reading.finish = "refused"
    if reading.finish == "stop":
        reading.calls = [[name, json.loads(arguments)] for name, arguments in calls.values()]
    if usage is not None:
        reading.usage = [int(usage.prompt_tokens), int(usage.completion_tokens)]
    return reading


def _read_output(response: Any) -> Reading:
    reading = Reading(finish="stop" if response.status == "completed" else "cut")
    if response.status == "incomplete":
        reading.finish = _to_finish(response.incomplete_details.reason, {"content_filter": "refused"})
    thoughts: list[str] = []
    for item in response.output:
        if item.type == "message":
            _add_message(reading, thoughts, item)
        elif item.type == "function_call" and reading.finish == "stop":
            reading.calls.append([item.name, json.loads(item.arguments)])
        elif item.type == "reasoning":
            thoughts += [part.text for part in (item.summary or item.content or ())]
    reading.reasoning = "\n\n".join(thoughts)
    if response.usage is not None:
        reading.usage = [response.usage.input_tokens, response.usage.output_tokens]
    return reading


def _add_message(reading: Reading, thoughts: list[str], item: Any) -> None:
    if item.phase == "commentary":
        return
    is_further = True
    for part in item.content:
        if part.type == "refusal":
            reading.text += part.refusal
            reading.finish = "refused"
            continue
        reading.text += "\n\n" if reading.text and is_further and part.text else ""
        is_further = False
        begin = len(reading.text)
        reading.text += part.text
        for cited in part.annotations:
            start: int = getattr(cited, "start_index", getattr(cited, "index", 0))
            end: int = getattr(cited, "end_index", start)
            source = getattr(cited, "url", "") or getattr(cited, "file_id", "")
            reading.citations.append([source, begin + start, begin + end])


def _read_blocks(message: Any) -> Reading:
    reading = Reading(finish=_to_finish(message.stop_reason, _MESSAGE_FINISHES))
    is_paragraph = False
    for block in message.content:
        if block.type != "text":
            is_paragraph = bool(reading.text)
        if block.type == "text" and block.text:
            reading.text += "\n\n" if is_paragraph else ""
            is_paragraph = False
            begin, reading.text = len(reading.text), reading.text + block.text
            for cited in block.citations or ():
                number = getattr(cited, "document_index", None)
                source = getattr(cited, "url", "") or getattr(cited, "source", "") or getattr(cited, "file_id", "")
                reading.citations.append([source or f"document {(number or 0) + 1}", begin, len(reading.text)])
        elif block.type == "thinking":
            reading.reasoning += block.thinking
        elif block.type == "tool_use" and reading.finish == "stop":
            reading.calls.append([block.name, block.input])
    usage = message.usage
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    reading.usage = [usage.input_tokens + cached, usage.output_tokens]
    return reading


def _to_finish(reason: str | None, known: dict[str, str]) -> str:
    if reason in _LENGTHS:
        return "length"
    return known.get(reason, reason) if reason else "cut"
