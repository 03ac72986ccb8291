"""A decision of the embedded model: the tools that it may call, and the request with the grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial_client.messages.message import Message, ToolSpec
from dial_client.messages.model import ModelRequest, ModelSettings
from dial_client.providers.embedded import json_prompt_format

MAX_TOKENS = 384
"""Maximum tokens of a decision: a small model that repeats itself would not stop."""


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """A decision that the model has to make."""

    tools: tuple[ToolSpec, ...] = ()
    """The tools that the model may call."""
    may_answer: bool = True
    next_tool: str = ""
    """The tool to be called once this step's call has returned a value for it."""
    is_retry: bool = False
    """The last call has failed: this step's call replaces it."""
    values: tuple[str, ...] = ()
    """The values that required text arguments may have; empty for any text."""


def build_decision_request(
    request: ModelRequest, step: DecisionStep, tools: Sequence[ToolSpec], conversation: Sequence[Message]
) -> ModelRequest:
    """Return the request for a decision, with the grammar of a step.

    Args:
        request: The request for the reply.
        step: The decision.
        tools: The tools that the prompt describes; the step may allow fewer.
        conversation: The conversation in the format of the examples.
    """
    return replace(
        request,
        instructions=(*request.instructions, json_prompt_format.build_instruction(tools)),
        messages=(*json_prompt_format.choose_examples(tools), *conversation),
        tools=(),
        grammar=json_prompt_format.build_grammar(_restrict_values(step), may_answer=step.may_answer),
        settings=ModelSettings(max_tokens=min(request.settings.max_tokens or MAX_TOKENS, MAX_TOKENS)),
        stream=False,
    )


def _restrict_values(step: DecisionStep) -> tuple[ToolSpec, ...]:
    """Return the tools of a step, with schemas that allow only the step's values."""
    return tuple(_with_values(tool, step.values) for tool in step.tools) if step.values else step.tools


def _with_values(tool: ToolSpec, values: tuple[str, ...]) -> ToolSpec:
    schema = tool.input_schema
    required = schema.get("required", ())
    properties = {
        name: {"enum": list(values)} if name in required and _is_text(argument) else argument
        for name, argument in schema.get("properties", {}).items()
    }
    return replace(tool, input_schema={**schema, "properties": properties})


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema
