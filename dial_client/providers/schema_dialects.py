"""A tool's parameters in the part of JSON Schema one endpoint knows; what is lost is said in a description.

The schema that arrives is one of `schemas.fit`: an object at the top, local references only. The one that arguments are
checked with is another, and stays as the server wrote it: nothing here makes a call right or wrong.

``full``    JSON Schema as it is.
``openai``  What OpenAI documents for structured outputs (https://platform.openai.com/docs/guides/structured-outputs),
            for endpoints that hold parameters against that: no ``allOf``, ``oneOf``, ``not``, conditions or patterns
            of keys. Optional properties stay optional, unless calls are held strictly against it.
``gemini``  What Google's ``Schema`` has (https://ai.google.dev/api/caching#Schema), see `gemini`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dial_client.messages import ToolSpec
from dial_client.providers.openai_schema import StrictSubsetWriter, SubsetWriter


def to_dialect(tool: ToolSpec, dialect: str, *, strict: bool = False) -> ToolSpec:
    """Give the tool as it is said in a dialect: ``full``, ``openai`` or ``gemini``.

    Args:
        tool: as it is offered elsewhere.
        dialect: the endpoint's.
        strict: the endpoint holds calls to the schema; the dialect is then `StrictSubset`'s, unless it is Gemini's.
    """
    if dialect == "full" and not strict:
        return tool
    said, lost = _subset_writer(dialect, tool.input_schema, strict=strict).parameters()
    return replace(tool, input_schema=said, description="\n\n".join(part for part in (tool.description, lost) if part))


def _subset_writer(dialect: str, schema: Mapping[str, Any], *, strict: bool) -> SubsetWriter:
    if dialect != "gemini":
        return StrictSubsetWriter(schema) if strict else SubsetWriter(schema)
    from dial_client.providers.gemini_schema import GeminiSubsetWriter

    return GeminiSubsetWriter(schema)
