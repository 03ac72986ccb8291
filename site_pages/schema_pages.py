"""The reference of servers.json, from its JSON Schema, and of codes, from the program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.cli.commands.command_help import EXIT_CODES
from dial_client.cli.configuration.configuration_report import read_schema
from dial_client.cli.doctor.findings import CODES
from dial_client.messages.limits import StopReason

DEFINITIONS = {
    "server": ("A server", "An entry of `mcpServers`."),
    "oauth": ("OAuth", "The key `oauth` of a server; [oauth.md](../oauth.md)."),
    "model": ("A model", "An entry of `models`. Further keys are the [flags of the endpoint](../models.md#flags)."),
    "rule": ("A rule", "An entry of `policy`; [policy.md](../policy.md#rules)."),
    "profile": ("A profile", "An entry of `profiles`."),
    "limits": ("Limits", "The key `limits`, at the top or of a profile; [limits.md](../limits.md)."),
}
"""The parts of the schema that have keys: each with its heading, and its place in the file."""


def write_servers_json() -> str:
    """Return the page of servers.json: each key with its type, its default and its sentence."""
    schema = json.loads(read_schema())
    lines = [
        "# Keys of servers.json",
        "",
        "From the JSON Schema that `dial-chat config schema` prints.",
        "[Configuration](../configuration.md) explains the keys, and has those of other hosts.",
        "",
        "## The file",
        "",
        *_table(schema["properties"]),
    ]
    for name, (heading, place) in DEFINITIONS.items():
        lines += ["", f"## {heading}", "", place, "", *_table(schema["$defs"][name]["properties"])]
    return "\n".join(lines) + "\n"


def write_codes() -> str:
    """Return the page of codes: exit codes, stop reasons of turns, findings of `dial-chat doctor`."""
    lines = ["# Codes", "", "## Exit codes of dial-chat", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {_cell(text)} |" for code, _, text in EXIT_CODES]
    lines += ["", "## Stop reasons of turns", "", "`turn.stop_reason`; [limits](../limits.md) has the limits.", ""]
    lines += [f"- `{reason.value}`" for reason in StopReason]
    lines += ["", "## Findings of dial-chat doctor", "", "| code | level | finding |", "|---|---|---|"]
    for code, finding in CODES.items():
        anchor = make_anchor(f"{code}: {finding.title}")
        lines.append(f"| [{code}](../doctor.md#{anchor}) | {finding.level.value} | {_cell(finding.title)} |")
    lines += ["", "## Errors", "", "[Errors](errors.md) has the exceptions of the library."]
    return "\n".join(lines) + "\n"


def describe_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words: ``text, or list of text``."""
    if "$ref" in schema:
        heading, _ = DEFINITIONS[schema["$ref"].rpartition("/")[2]]
        return f"[{heading.lower()}](#{make_anchor(heading)})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if options := schema.get("anyOf", schema.get("oneOf")):
        return ", or ".join(dict.fromkeys(describe_type(option) for option in options))
    types = schema.get("type", "any value")
    return ", or ".join(_describe_named(name, schema) for name in ([types] if isinstance(types, str) else types))


def _describe_named(name: str, schema: Mapping[str, Any]) -> str:
    if name == "array" and schema.get("items"):
        return f"list of {describe_type(schema['items'])}"
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {describe_type(schema['additionalProperties'])}"
    return {"string": "text", "boolean": "true or false", "integer": "whole number", "array": "list"}.get(name, name)


def _table(properties: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| key | value | default | |", "|---|---|---|---|")
    for key, schema in properties.items():
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        yield f"| `{key}` | {_cell(describe_type(schema))} | {default} | {_cell(schema.get('description', ''))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def make_anchor(heading: str) -> str:
    """Return the anchor that the builder of the site gives to a heading."""
    words = "".join(char for char in heading.lower() if char.isalnum() or char in " -_").split()
    return "-".join(words)
