"""The decisions of the embedded model: a JSON object, constrained by a grammar, with the kind of its reply.

    {"tool": "get_sunset", "arguments": {"place": "Europe/Madrid"}}
    {"answer": "..."}
    {"unknown": "..."}

The decision "answer" or "unknown" ends after that key word: another request asks for the answer, and "unknown" has a
composed reply (`answers`). The prompt describes a tool in one line: its whole schema doubles the prompt's length and
adds no correct call. The instructions and examples are in ``prompts.toml``.

After ``{"tool``, the grammar allows only the offered tools, even if the model would write another name: for a poem it
would call "write_poem", which the grammar turns into "get_current_time". The probability of the name before the grammar
was applied tells such calls from real ones.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from dial_client.messages.message import NO_OUTPUT, Message, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    Completion,
    Delta,
    FinishReason,
    Instruction,
    InstructionSource,
    ModelRequest,
    ModelSettings,
)
from dial_client.providers.chat_api import ChatProvider, ChatStreamParser
from dial_client.runtime.json_fields import to_object
from dial_client.schema.gbnf import Grammar, to_literal

ANSWER = "answer"
UNKNOWN = "unknown"
# Maximum tokens of a decision: a small model that repeats itself would not stop.
MAX_TOKENS = 384
# Characters of an earlier answer in the prompt of a decision.
MAX_ANSWER_CHARS = 300

# The fields of a request that ask for the log-probabilities of the reply's tokens.
LOGPROBS: Mapping[str, Any] = {"logprobs": True, "top_logprobs": 20}
# Subtracted from the log-probability of "unknown" when it is compared with a call: the model also says "unknown" for
# live data, which calls can find.
UNKNOWN_DISCOUNT = 1.3
# Added to the log-probability of "unknown" when it is compared with an answer. On the tuning half, without tools, 0.8
# finds all questions that cannot be known; 1.1 adds "Is the sky blue?".
UNKNOWN_BONUS = 1.0
# The log-probability that is used for a key word that is not among the likeliest tokens.
_UNLIKELY = -20.0

_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"([\w-]{1,64})"')


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """A decision of the model."""

    tool: str = ""
    """The tool that is called, even if the call is incomplete; empty for an answer."""
    call: ToolCallRequest | None = None
    """The call, if it is complete."""
    score: float = 0.0
    """How likely the call is, as a log-probability."""
    is_unknown: bool = False
    """True if the answer cannot be known; for an unlikely call, if that is likelier than an answer."""


def build_decision_request(
    request: ModelRequest, allowed: Sequence[ToolSpec], *, may_answer: bool, hidden: frozenset[str] = frozenset()
) -> ModelRequest:
    """Return the request for a decision.

    Args:
        request: The request for the reply. The prompt describes all its tools, so that its beginning is the same for
            every decision; without `allowed` tools, it describes none.
        allowed: The tools that the grammar allows.
        may_answer: True if the model may decide to answer, or that the answer cannot be known.
        hidden: Ids of calls that the prompt leaves out.
    """
    tools = request.tools if allowed else ()
    prompt = load_prompts()["with_tools" if tools else "without_tools"]
    text = prompt["instructions"].replace("{tools}", "\n".join(map(format_signature, tools)))
    return replace(
        request,
        instructions=(*request.instructions, Instruction(InstructionSource.TOOL_FORMAT, text)),
        messages=(*_build_examples(prompt["examples"]), *format_conversation(request.messages, hidden)),
        tools=(),
        output_format=None,  # an output format in the same request would replace the grammar
        grammar=_build_grammar(allowed, may_answer=may_answer),
        settings=ModelSettings(max_tokens=min(request.settings.max_tokens or MAX_TOKENS, MAX_TOKENS)),
        stream=False,
    )


@cache
def load_prompts() -> Mapping[str, Any]:
    """Return the content of ``prompts.toml``."""
    return tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))


def _build_examples(examples: Sequence[Sequence[str]]) -> Iterator[Message]:
    for question, *calls, decision in examples:
        yield Message.user(question)
        for call, result in zip(calls[::2], calls[1::2], strict=True):
            yield Message.assistant(call)
            yield Message.user(f"Result: {result}")
        yield Message.assistant(decision)


def _neutralize(text: str) -> str:
    """Return the text without the model's special tokens (``<|im_end|>``), which could end a turn and start another."""
    return text.replace("<|", "< |")


def _format_json(value: Any) -> str:
    return _neutralize(json.dumps(value, ensure_ascii=False))


def format_signature(tool: ToolSpec) -> str:
    """Return a tool as one line: its name, its description, and the type of each argument."""
    required = tool.input_schema.get("required", ())
    properties = tool.input_schema.get("properties", {})
    arguments = {name: _describe(schema, is_required=name in required) for name, schema in properties.items()}
    return _format_json({"name": tool.name, "description": tool.description, "arguments": arguments})


def _describe(schema: Any, *, is_required: bool) -> Any:
    known = to_object(schema)
    if is_required:
        about = str(known.get("description", "")).split(". ", maxsplit=1)[0]
        return _describe_kind(schema) + (f": {about}" if about else "")
    if "default" in known and "enum" not in known:
        return known["default"]  # without the default, the model invents a value
    return f"{_describe_kind(schema)}, optional"


def _describe_kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(schema.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        return " or ".join(filter(None, map(_describe_kind, choices)))
    if schema.get("type") == "array":
        return f"array of {_describe_kind(schema.get('items'))}"
    if isinstance(schema.get("properties"), Mapping):
        return "object with " + ", ".join(schema["properties"])
    kinds = schema.get("type", "anything")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(str(kind) for kind in kinds if kind != "null")


def format_conversation(messages: Sequence[Message], hidden: frozenset[str] = frozenset()) -> list[Message]:
    """Return the conversation in the format of the examples, without instructions and without the calls in `hidden`."""
    written: list[Message] = []
    for message in messages:
        match message.role:
            case Role.USER:
                written.append(message)
            case Role.TOOL if message.tool_call_id not in hidden:
                prefix = "Result: ERROR: " if message.is_error else "Result: "
                written.append(Message.user(prefix + read_result_text(message)))
            case Role.ASSISTANT:
                calls = [call for call in message.tool_calls if call.id not in hidden]
                written += [
                    Message.assistant(_format_json({"tool": c.name, "arguments": dict(c.arguments)})) for c in calls
                ]
                if (text := message.text) and not message.tool_calls:
                    text = text if len(text) <= MAX_ANSWER_CHARS else f"{text[:MAX_ANSWER_CHARS]} ..."
                    written.append(Message.assistant(_format_json({"answer": text})))
    return written


def read_result_text(message: Message) -> str:
    """Return the text of a result for the model; images and documents are only counted."""
    parts = () if isinstance(message.content, str) else message.content
    unseen = sum(not isinstance(part, TextPart) for part in parts)
    note = f"[{unseen} image(s) or document(s) that cannot be shown]" if unseen else ""
    return "\n".join(filter(None, (_neutralize(message.text), note))) or NO_OUTPUT


def _build_grammar(tools: Sequence[ToolSpec], *, may_answer: bool) -> str:
    """Return the grammar of a decision: a call of one of the tools or, if `may_answer`, "answer" or "unknown"."""
    rules = Grammar()
    calls = rules.add_calls((f'{tool.name}", "arguments": ', tool.input_schema) for tool in tools)
    choices = [to_literal('"tool": "') + f" ( {calls} )"] if calls else []
    if may_answer or not calls:
        choices += [to_literal(f'"{ANSWER}"'), to_literal(f'"{UNKNOWN}"')]
    return rules.to_text(f'"{{" ( {" | ".join(choices)} ) "}}"')


def read_decision(text: str, completion: Completion) -> ToolDecision:
    """Return the decision in a reply; an incomplete call has no arguments."""
    named = _CALL.match(text)
    tool, call = named[1] if named else "", None
    with suppress(ValueError, RecursionError):
        arguments = json.loads(text)["arguments"] if tool and completion.finish is FinishReason.STOP else None
        if isinstance(arguments, dict):
            call = ToolCallRequest(f"call_{secrets.token_hex(16)}", tool, arguments)
    if completion.echo:
        return ToolDecision(tool, call, *completion.echo)
    return ToolDecision(tool, call, is_unknown=text.lstrip().startswith(f'{{"{UNKNOWN}"'))


def score_decision(tokens: Sequence[Mapping[str, Any]]) -> tuple[float, bool] | None:
    """Return the score of a decision's call, and whether "unknown" is likelier than an answer; None without a decision.

    The score is the log-probability of the key word ``tool`` relative to the other two, plus that of the tool's name.

    Args:
        tokens: The tokens as chat completions return them, ``{"token", "logprob", "top_logprobs"}``, with the
            log-probabilities before grammar and biases.
    """
    index = next((index for index, token in enumerate(tokens) if token["token"].strip('{" \n')), None)
    if index is None:
        return None
    likeliest = {top["token"].strip('{" \n'): float(top["logprob"]) for top in reversed(tokens[index]["top_logprobs"])}
    call, answer, unknown = (likeliest.get(word, _UNLIKELY) for word in ("tool", ANSWER, UNKNOWN))
    name = math.fsum(_find_name_logprobs(tokens[index + 1 :]))
    return call - max(answer, unknown - UNKNOWN_DISCOUNT) + name, unknown + UNKNOWN_BONUS > answer


def _find_name_logprobs(tokens: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Yield the log-probabilities of the tokens of a tool's name, after the key word ``tool``."""
    text = ""
    for token in tokens:
        text += token["token"]
        if text.count('"') >= 3 or "}" in text:
            yield float(token["logprob"])
            return
        if text.count('"') == 2 and text.rstrip()[-1:] != '"':
            yield float(token["logprob"])


class DecisionProvider(ChatProvider):
    """Asks for decisions. The echo of each `Completion` is the score of the decision, if there is one."""

    def _create_parser(self) -> ChatStreamParser:
        return _ScoringParser(self._adaptation.profile)


class _ScoringParser(ChatStreamParser):
    """Parses an unstreamed chat completion, and scores it by the probabilities of its tokens."""

    _tokens: Sequence[Mapping[str, Any]] = ()

    def feed(self, value: Any) -> Sequence[Delta]:
        deltas = super().feed(value)
        for choice in value.get("choices") or ():
            self._tokens = (choice.get("logprobs") or {}).get("content") or ()
        return deltas

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        score = score_decision(self._tokens)
        deltas = super().finish(notes)
        if score is None:
            return deltas
        return [replace(delta, echo=score) if isinstance(delta, Completion) else delta for delta in deltas]
