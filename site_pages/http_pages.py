"""The reference of the HTTP API, from its OpenAPI description, docs/openapi.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from site_pages.root_pages import ROOT

INTRODUCTION = (
    "From the [OpenAPI 3.1 description](../openapi.yaml) of `dial-chat serve`, which a test compares with a running "
    "service. [HTTP API](../serve.md) explains the requests. Every request needs the header "
    "`Authorization: Bearer TOKEN`."
)
METHODS = ("get", "post", "put", "patch", "delete")


def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI description of `dial-chat serve`."""
    description: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
    return description


def list_operations(description: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each operation with its upper-case method and its path."""
    for path, item in description["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def write_http_api() -> str:
    """Return the page: each request with its body and its responses, by subject."""
    description = read_openapi()
    lines = ["# HTTP API", "", INTRODUCTION]
    for tag in description["tags"]:
        operations = [found for found in list_operations(description) if tag["name"] in found[2]["tags"]]
        if operations:
            lines += ["", f"## {tag['name']}"]
        for method, path, operation in operations:
            lines += ["", f"### {method} {path}", "", operation["summary"], ""]
            lines += _parts(operation, description)
    lines += [
        "",
        "## Events of a stream",
        "",
        "Text comes as unnamed events: `chat.completion.chunk` of chat completions. ",
    ]
    lines[-1] += "The others have names; the last one is `data: [DONE]`."
    lines += ["", "| event | |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in description["x-events"].items()]
    return "\n".join(lines) + "\n"


def _parts(operation: Mapping[str, Any], description: Mapping[str, Any]) -> Iterator[str]:
    parameters = [resolve(item, description) for item in operation.get("parameters", [])]
    rows = [(item["name"], f"in {item['in']}", item["schema"], item.get("description", "")) for item in parameters]
    body = resolve(operation.get("requestBody", {}), description).get("content", {}).get("application/json", {})
    schema = body.get("schema", {})
    needed = schema.get("required", ())
    for name, value in schema.get("properties", {}).items():
        rows.append((name, "required" if name in needed else "", value, value.get("description", "")))
    if rows:
        yield from ("| name | | value | |", "|---|---|---|---|")
        yield from (f"| `{name}` | {note} | {_type(value)} | {text} |" for name, note, value, text in rows)
        yield ""
    for status, response in operation["responses"].items():
        found = resolve(response, description)
        kinds = ", ".join(f"`{kind}`" for kind in found.get("content", {}))
        yield f"- {'errors' if status == 'default' else status}: {found['description']}{f' {kinds}' if kinds else ''}"


def resolve(item: Mapping[str, Any], description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a ``$ref`` in the description; return other items unchanged."""
    if "$ref" not in item:
        return item
    found: Any = description
    for name in item["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found  # type: ignore[no-any-return]


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = str(schema.get("type", "any value"))
    return f"{kind}, {json.dumps(schema['default'])} by default" if "default" in schema else kind
