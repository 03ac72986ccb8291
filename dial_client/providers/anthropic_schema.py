"""The subset of JSON Schema that the Messages API accepts for structured outputs.

https://platform.claude.com/docs/en/build-with-claude/structured-outputs: objects without additional properties, and no
bounds for numbers, strings and arrays. Such constraints are described in words, and the client checks answers against
them.
"""

from __future__ import annotations

from typing import ClassVar

from dial_client.providers.openai_schema import Schema, SubsetWriter


class StructuredOutputWriter(SubsetWriter):
    """Converts the schema of an answer for the Messages API."""

    keywords: ClassVar[frozenset[str]] = frozenset(
        {
            "type", "title", "description", "enum", "const", "default", "anyOf", "$ref", "$defs", "items", "properties",
            "required", "additionalProperties", "format",
        }
    )  # fmt: skip
    bare_references: ClassVar[bool] = True
    formats: ClassVar[frozenset[str]] = SubsetWriter.formats | {"uri"}

    def complete(self, written: Schema, _lost: Schema, remarks: list[str]) -> Schema:
        """Return the schema, without additional properties if it is an object."""
        if written.get("type") != "object" and "properties" not in written:
            return written
        if written.get("additionalProperties") is True:
            remarks.append("Properties of other names cannot be given here.")
        return written | {"additionalProperties": False}
