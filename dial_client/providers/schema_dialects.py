"""A tool's parameters in the dialect of JSON Schema that an endpoint takes; what is lost is described in words.

The input is a schema of `schema.provider_schema`: an object at the top, local references only. Arguments are validated
against the server's own schema, so nothing here makes a call valid or invalid.

``full``    JSON Schema as it is.
``openai``  What OpenAI documents for structured outputs (https://platform.openai.com/docs/guides/structured-outputs),
            for endpoints that hold parameters against that: no ``allOf``, ``oneOf``, ``not``, conditions or patterns
            of keys. Optional properties stay optional, except in strict mode.
``gemini``  What Google's ``Schema`` has (https://ai.google.dev/api/caching#Schema), see `gemini_schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dial_client.messages import ToolSpec
from dial_client.providers.openai_schema import StrictSubsetWriter, SubsetWriter


def to_dialect(tool: ToolSpec, dialect: str, *, strict: bool = False) -> ToolSpec:
    """Return the tool with its parameters in a dialect.

    Args:
        tool: the tool with any parameters.
        dialect: ``full``, ``openai`` or ``gemini``.
        strict: the endpoint holds calls to the schema: `StrictSubsetWriter` writes it, unless it is Gemini's.
    """
    if dialect == "full" and not strict:
        return tool
    parameters, lost = _make_writer(dialect, tool.input_schema, strict=strict).write_parameters()
    description = "\n\n".join(part for part in (tool.description, lost) if part)
    return replace(tool, input_schema=parameters, description=description)


def _make_writer(dialect: str, schema: Mapping[str, Any], *, strict: bool) -> SubsetWriter:
    if dialect != "gemini":
        return StrictSubsetWriter(schema) if strict else SubsetWriter(schema)
    from dial_client.providers.gemini_schema import GeminiSubsetWriter

    return GeminiSubsetWriter(schema)
