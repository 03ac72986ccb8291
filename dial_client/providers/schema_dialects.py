"""Conversion of tool parameters to the dialect of JSON Schema that an endpoint accepts.

Constraints that a dialect does not support are described in words. The input is a schema of `schema.provider_schema`,
with an object at the top level and only local references. Arguments are validated against the server's own schema, so
the conversion does not affect which calls are valid.

``full``    JSON Schema without changes.
``openai``  The subset that OpenAI documents (https://platform.openai.com/docs/guides/structured-outputs), for endpoints
            that check parameters against it: no ``allOf``, ``oneOf``, ``not``, conditions or patterns of keys.
            Optional properties stay optional, except in strict mode.
``gemini``  Google's ``Schema`` (https://ai.google.dev/api/caching#Schema), see `gemini_schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.messages.model import OutputFormat
from dial_client.providers.endpoint_profile import EndpointProfile
from dial_client.providers.openai_schema import StrictSubsetWriter, SubsetWriter


def to_dialect(tool: ToolSpec, dialect: str, *, strict: bool = False) -> ToolSpec:
    """Return the tool with its parameters converted to a dialect.

    Args:
        tool: The tool, with parameters in any form.
        dialect: ``full``, ``openai`` or ``gemini``.
        strict: True if the endpoint makes calls conform to the schema; `StrictSubsetWriter` converts it, except for
            ``gemini``.
    """
    if dialect == "full" and not strict:
        return tool
    parameters, lost = _make_writer(dialect, tool.input_schema, strict=strict).write_parameters()
    description = "\n\n".join(part for part in (tool.description, lost) if part)
    return replace(tool, input_schema=parameters, description=description)


def get_output_dialect(profile: EndpointProfile) -> str:
    """Return the dialect for the schemas of structured answers."""
    if profile.schema_dialect == "full" and profile.structured_output == "with_tools":
        return "openai"
    return profile.schema_dialect


def to_output_schema(form: OutputFormat, dialect: str) -> tuple[dict[str, Any], bool]:
    """Return the schema of an answer in a dialect, and True if the endpoint can enforce it in strict mode.

    Args:
        form: The name, description and schema of the answer.
        dialect: ``openai`` (in strict mode if possible), ``anthropic``, ``gemini`` or ``full``.
    """
    is_strict = can_be_strict(form.schema)
    if dialect == "full" or (dialect == "openai" and not is_strict):
        return dict(form.schema), is_strict
    schema, lost = _make_writer(dialect, form.schema, strict=is_strict).write_parameters()
    described = " ".join(text for text in (schema.get("description"), lost) if isinstance(text, str) and text)
    return schema | ({"description": described} if described else {}), is_strict


def can_be_strict(schema: Any) -> bool:
    """Return True if no object of the schema is open. Strict mode forbids objects with arbitrary property names."""
    if isinstance(schema, list):
        return all(map(can_be_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    is_open = schema.get("additionalProperties", False) is not False or (
        schema.get("type") == "object" and not schema.get("properties") and "$ref" not in schema
    )
    return not is_open and all(map(can_be_strict, schema.values()))


def _make_writer(dialect: str, schema: Mapping[str, Any], *, strict: bool) -> SubsetWriter:
    if dialect == "anthropic":
        from dial_client.providers.anthropic_schema import StructuredOutputWriter

        return StructuredOutputWriter(schema)
    if dialect != "gemini":
        return StrictSubsetWriter(schema) if strict else SubsetWriter(schema)
    from dial_client.providers.gemini_schema import GeminiSubsetWriter

    return GeminiSubsetWriter(schema)
