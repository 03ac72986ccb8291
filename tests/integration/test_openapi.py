"""The OpenAPI description of the HTTP API is that of the running service."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from mcp.server import MCPServer

from dial_client.serve import McpOptions
from site_pages.http_pages import list_operations, read_openapi, resolve
from tests.inner import APP_FRAME, HEALTH, IdentityProvider, OidcLogin, ScriptedProvider, SQLStore, build_routes
from tests.support.http_service import HttpService, serve

pytestmark = [pytest.mark.once, pytest.mark.anyio]

DESCRIPTION = read_openapi()
OPERATIONS = {(method, path): operation for method, path, operation in list_operations(DESCRIPTION)}
JSON = {"content-type": "application/json"}
PAGE = {"/", "/assets/{name}", APP_FRAME}
"""Paths of the page's files, which are not part of the API."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


notes = MCPServer("notes")


@notes.tool()
def read(name: str) -> str:
    """Read a note."""
    return name


@notes.prompt()
def review(topic: str) -> str:
    """Review a topic."""
    return topic


def list_routes(service: HttpService) -> set[tuple[str, str]]:
    """Return the methods and paths of a service, with parameters written as in the description."""
    paths = [(route, re.sub(r":\w+}", "}", route.path)) for route in build_routes(service.context)]
    methods = {(method, path) for route, path in paths for method in route.methods or ()}
    return {(method, path) for method, path in methods if method not in ("HEAD", "OPTIONS") and path not in PAGE}


async def request(service: HttpService, method: str, path: str, status: int = 200, **more: Any) -> Any:
    """Send a request, check its response against the description, and return the JSON."""
    response = await service.http.request(method, path, **more)
    assert response.status_code == status, response.text
    matches = [key for key in OPERATIONS if key[0] == method and is_path_of(path, key[1])]
    operation = OPERATIONS[min(matches, key=lambda key: key[1].count("{"))]
    described = operation["responses"].get(str(status), operation["responses"].get("default"))
    assert described is not None, f"{method} {path}: the status {status} is not described"
    content = resolve(described, DESCRIPTION).get("content", {})
    if not response.content:
        assert content == {}
        return None
    schema = content["application/json"]["schema"]
    jsonschema_rs.validate(schema | {"components": DESCRIPTION["components"]}, response.json())
    return response.json()


def is_path_of(path: str, template: str) -> bool:
    """Return whether a path matches a template with parameters."""
    pattern = re.sub(r"\{\w+\}", "[^/]+", template)
    return re.fullmatch(pattern, path.partition("?")[0]) is not None


async def test_the_description_has_the_routes_of_the_service(tmp_path: Path) -> None:
    login = OidcLogin(IdentityProvider("https://login.example.com"), "dial", "https://chat.example.com")
    async with serve([], mcp=McpOptions(), login=login, store=SQLStore(tmp_path / "x.db")) as service:
        assert list_routes(service) ^ OPERATIONS.keys() == set()


async def test_responses_fit_the_description(tmp_path: Path) -> None:
    store = SQLStore(tmp_path / "x.db")
    async with serve(["It is noon.", "It is twelve.", "Noon."], {"notes": notes}, store=store) as service:
        for path in (
            HEALTH,
            "/servers",
            "/credentials",
            "/tools",
            "/models",
            "/v1/models",
            "/approvals",
            "/questions",
            "/waiting",
        ):
            await request(service, "GET", path)
        for path in ("/prompts", "/resources"):
            await request(service, "GET", path)
        prompt = {"server": "notes", "name": "review", "arguments": {"topic": "tea"}}
        await request(service, "POST", "/prompts/get", json=prompt)
        await request(service, "POST", "/servers/other/restart", 404)
        created = await request(service, "POST", "/conversations", 201, json={"title": "Time"})
        path = f"/conversations/{created['id']}"
        await request(service, "POST", f"{path}/chat", json={"text": "What time is it?", "stream": False})
        await request(service, "POST", f"{path}/regenerate", json={"stream": False})
        await request(service, "POST", f"{path}/switch", json={"message": 1})
        for part in ("", "/state", "/usage", "/share", "/messages", "/export?format=json"):
            await request(service, "GET", f"{path}{part}")
        await request(service, "PATCH", path, json={"title": "Noon"})
        await request(service, "POST", f"{path}/fork", 201, json={"at": 1})
        key = (await request(service, "POST", f"{path}/share", 201))["link"]["address"].partition("#")[2]
        await request(service, "GET", "/shared/conversation", headers={"x-share-key": key})
        await request(service, "DELETE", f"{path}/share", 204)
        await request(service, "POST", f"{path}/undo")
        await request(service, "POST", f"{path}/restore", json={"edit": "undo"})
        assert len((await request(service, "GET", "/conversations?limit=1"))["conversations"]) == 1
        await request(service, "GET", "/conversations?limit=0", 400)
        await request(service, "GET", f"{path}/turns/none/events", 404)
        await request(service, "POST", "/approvals/none", 404, json={"decision": "once"})
        await request(service, "DELETE", path, 204)
        await request(service, "GET", path, 404)
        question = {"model": "the-model", "messages": [{"role": "user", "content": "What time is it?"}]}
        await request(service, "POST", "/v1/chat/completions", json=question)


async def test_events_of_a_stream_have_documented_names() -> None:
    replies = [{"text": "Let me see.", "tool_calls": [{"name": "read", "arguments": {"name": "a"}}]}, "It is a."]
    async with serve(replies, {"notes": notes}, allow=["notes/*"]) as service:
        path = await service.conversation()
        response = await service.http.post(f"{path}/chat", json={"text": "Read a."})
    names = set(re.findall("^event: (.*)$", response.text, re.MULTILINE))
    assert {"tool_call", "tool_result", "done"} <= names <= DESCRIPTION["x-events"].keys()


async def test_a_method_that_a_path_does_not_have_is_refused_with_those_it_has() -> None:
    async with serve([]) as service:
        response = await service.http.request("PUT", "/conversations")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_the_allowed_methods_are_those_of_the_path_alone() -> None:
    async with serve([]) as service:
        for path in ("/conversations/import", "/servers/notes/restart", "/tools/call"):
            response = await service.http.request("PUT", path)
            assert (response.status_code, response.headers["allow"]) == (405, "POST"), path


WRONG: tuple[Any, ...] = (None, True, -1, 0.5, "", "\0", "\u00a7\x85\ud800", [], [None], {}, {"": None})
"""A value of each type of JSON, and texts that few programs expect."""


def read_body_schema(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the JSON body of an operation; an empty one for none."""
    content = resolve(operation.get("requestBody", {}), DESCRIPTION).get("content", {})
    return {**resolve(content.get("application/json", {}).get("schema", {}), DESCRIPTION)}


def build_value(schema: Mapping[str, Any]) -> Any:
    """Return a value that satisfies the schema of a property."""
    if "enum" in schema:
        return schema["enum"][0]
    match next(iter(schema.get("anyOf", ())), schema).get("type", "string"):
        case "array":
            item = schema.get("items", {})
            known = item.get("properties", {})
            names = ["role", *item.get("required", ())]
            return [{name: build_value(known.get(name, {"enum": ["user"]})) for name in names}]
        case kind:
            values = {"string": "user", "object": {}, "boolean": False, "integer": 1}
            return values[kind if isinstance(kind, str) else kind[0]]


def build_wrong_bodies(schema: dict[str, Any]) -> list[Any]:
    """Return bodies with a wrong value in each place of a schema, and other documents than objects."""
    properties = {name: resolve(value, DESCRIPTION) for name, value in schema.get("properties", {}).items()}
    required = {name: build_value(properties[name]) for name in schema.get("required", ())}
    return [*WRONG, *(required | {name: value} for name in (*properties, "\u00a7\x85\ud800") for value in WRONG)]


async def test_bodies_that_are_not_described_are_refused_and_no_body_breaks_the_service() -> None:
    schemas = {key: read_body_schema(operation) for key, operation in OPERATIONS.items() if key[1] != "/mcp"}
    async with serve(ScriptedProvider(["Noon."], after="repeat"), {"notes": notes}) as service:
        conversation = (await service.conversation()).rpartition("/")[2]
        values = {"id": conversation, "name": "notes", "position": "0"}
        for (method, path), schema in schemas.items():
            place = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "none"), path)
            validator = jsonschema_rs.validator_for(schema | {"components": DESCRIPTION["components"]})
            for text in map(json.dumps, build_wrong_bodies(schema) if schema else ()):
                response = await service.http.request(method, place, content=text, headers=JSON)
                about = f"{method} {path} {text}: {response.status_code} {response.text[:200]}"
                assert response.status_code < 500, about
                # The validator takes no lone surrogates.
                is_valid = "\\ud800" in text or validator.is_valid(json.loads(text))
                assert response.status_code >= 400 or is_valid, about
