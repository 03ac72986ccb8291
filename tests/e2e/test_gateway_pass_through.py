"""Nothing is lost in the gateway: what a client of the SDK gets from published servers, directly and through it."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from tests.support.gateways import MODES, host, running
from tests.support.program import LONG
from tests.support.published_servers import (
    GIT,
    MEMORY_FILE,
    MISSING,
    Requests,
    build_requests,
    list_entries,
    write_repository,
)

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(MISSING, reason="npm servers are not here: `make test` installs them with Node"),
    pytest.mark.skipif(GIT is None, reason="its server needs git"),
]
SERVERS = tuple(build_requests(Path()))
Seen = dict[str, Any]
"""Answers by the kind and the name of what was asked for."""
APPS = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
"""What a host with MCP Apps tells a server: only then the tools are listed that apps alone call."""
CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d([.]\d+Z| [AP]M)?")
COUNTERS = ("counter", "thoughtHistoryLength", "processedAt")
"""What servers count over all calls of all clients, and a time."""
COUNT = re.compile(rf'"({"|".join(COUNTERS)})": \d+')
MAX_NAME = 45


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Seen]]:
    """What a client gets from each server: directly, and in each mode through the gateway."""
    return anyio.run(partial(collect, tmp_path_factory.mktemp("pass-through")))


async def collect(folder: Path) -> dict[str, dict[str, Seen]]:
    """Ask each server by itself, and then all servers through one gateway."""
    repository = write_repository(folder)
    requests = build_requests(repository)
    found: dict[str, dict[str, Seen]] = {way: {} for way in ("directly", *MODES)}
    with anyio.fail_after(LONG):
        entries = list_entries(folder / "directly", repository)
        for server, entry in entries.items():
            parameters = StdioServerParameters(**entry)
            async with Client(stdio_client(parameters), mode="legacy", extensions=APPS) as client:
                found["directly"][server] = await ask(client, requests[server], lambda _, name: name, lambda _: True)
        async with running(host(list_entries(folder / "gateway", repository), "*")) as gateway:
            for mode in MODES:
                (folder / "gateway" / MEMORY_FILE).unlink(missing_ok=True)  # the server reads it for each call
                async with Client(gateway.server, mode=mode, extensions=APPS) as client:
                    for server in entries:
                        own = partial(name_in_gateway, server), partial(is_of, server)
                        found[mode][server] = await ask(client, requests[server], *own)
    return found


async def ask(
    client: Client, requests: Requests, rename: Callable[[str, str], str], is_own: Callable[[str], bool]
) -> Seen:
    """Return the answers of one server.

    Args:
        client: A client of the server, or of the gateway.
        requests: What to ask for.
        rename: Returns the name or the URI for a kind of thing, and its name or URI at the server.
        is_own: Returns whether a listed name or URI is one of the server.
    """
    answers: Seen = {}
    for kind, key, items in await list_everything(client):
        own = [item for item in items if is_own(getattr(item, key))]
        answers |= {f"{kind} {getattr(item, key)}": item.model_dump(by_alias=True, exclude_none=True) for item in own}
        if kind == "resource":
            for uri in [item.uri for item in own if requests.unread not in item.uri]:
                answers[f"content of {uri}"] = await try_to(client.read_resource(uri))
    for uri in requests.resources:
        answers[f"content of {rename('uri', uri)}"] = await try_to(client.read_resource(rename("uri", uri)))
    for number, (tool, arguments) in enumerate(requests.calls):
        answers[f"call {number} {tool}"] = await try_to(client.call_tool(rename("tool", tool), arguments))
    for number, (tool, arguments) in enumerate(requests.misfits):
        result = await client.call_tool(rename("tool", tool), arguments)
        answers[f"misfit {number} {tool}"] = {"isError": result.is_error, "type": result.content[0].type}
    for number, (prompt, arguments) in enumerate(requests.prompts):
        answers[f"use {number} {prompt}"] = await try_to(client.get_prompt(rename("prompt", prompt), arguments))
    for subject, argument, value in requests.completions:
        prompt_name, uri = rename("prompt", subject), rename("uri", subject)
        reference = ResourceTemplateReference(uri=uri) if "{" in subject else PromptReference(name=prompt_name)
        completion = client.complete(reference, {"name": argument, "value": value})
        answers[f"completion of {argument}"] = await try_to(completion)
    return answers


async def list_everything(client: Client) -> list[tuple[str, str, list[Any]]]:
    """Return what a client lists: the kind, the attribute that identifies an item, and the items."""
    lists = [("tool", "name", await list_all(client.list_tools, "tools"))]
    with suppress(MCPError):  # the server has none; a client of the newer revision has not asked what it has
        lists.append(("resource", "uri", await list_all(client.list_resources, "resources")))
        templates = await list_all(client.list_resource_templates, "resource_templates")
        lists.append(("template", "uri_template", templates))
    with suppress(MCPError):
        lists.append(("prompt", "name", await list_all(client.list_prompts, "prompts")))
    return lists


async def list_all(request: Any, key: str) -> list[Any]:
    """Return the items on all pages of a list."""
    page = await request()
    items = list(getattr(page, key))
    while page.next_cursor:
        page = await request(cursor=page.next_cursor)
        items += getattr(page, key)
    return items


async def try_to(request: Any) -> Any:
    """Return the result of a request as it is on the wire; or its error."""
    try:
        result = await request
    except MCPError as error:
        return {"error": error.error.model_dump(by_alias=True, exclude_none=True)}
    return result.model_dump(by_alias=True, exclude_none=True)


def name_in_gateway(server: str, kind: str, name: str) -> str:
    """Return the name or the URI in the gateway."""
    if kind != "uri":
        return f"{server}__{name}"
    return name.replace("ui://", f"ui://dial+{server}/", 1) if name.startswith("ui://") else f"dial+{server}:{name}"


def is_of(server: str, name: str) -> bool:
    """Return whether a name or a URI in the gateway is one of a server."""
    return name.startswith((f"{server}__", f"dial+{server}:", f"ui://dial+{server}/"))


def without_gateway(server: str, value: Any) -> Any:
    """Return an answer with the server's own names and URIs in place of those of the gateway, and without times."""
    match value:
        case {"blob": str(blob), **others}:
            return without_gateway(server, {**others, "text of the blob": b64decode(blob).decode(errors="replace")})
        case dict():
            kept = {key: item for key, item in value.items() if key not in COUNTERS}
            return {without_gateway(server, key): without_gateway(server, item) for key, item in kept.items()}
        case list():
            return [without_gateway(server, item) for item in value]
        case str():
            text = value.replace(f"ui://dial+{server}/", "ui://").replace(f"dial+{server}:", "")
            return CLOCK.sub("TIME", COUNT.sub("COUNT", text.replace(f"{server}__", "")))
        case _:
            return value


# Members of an answer that are about the connection, and not about what the server has.
OF_THE_CONNECTION = ("resultType", "ttlMs", "cacheScope")


def without_connection(value: Any) -> Any:
    """Return an answer without what the revision of the protocol adds to each result."""
    if not isinstance(value, dict):
        return value
    meta = {key: item for key, item in value.get("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    kept = {key: item for key, item in value.items() if key not in (*OF_THE_CONNECTION, "_meta")}
    return {**kept, "_meta": meta} if meta else kept


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("server", SERVERS)
def test_a_client_gets_the_same_directly_and_through_the_gateway(
    seen: dict[str, dict[str, Seen]], server: str, mode: str
) -> None:
    of_revision = {"execution"} if mode == MODES[-1] else set()  # the task support of a tool is gone in this revision
    directly = {
        name: {key: value for key, value in without_connection(answer).items() if key not in of_revision}
        for name, answer in seen["directly"][server].items()
    }
    through = {
        without_gateway(server, name): without_connection(without_gateway(server, answer))
        for name, answer in seen[mode][server].items()
    }
    directly = without_gateway(server, directly)
    assert sorted(through) == sorted(directly)
    for name, answer in directly.items():
        assert through[name] == answer, name


@pytest.mark.parametrize("mode", MODES)
def test_the_names_of_the_gateway_fit_into_those_of_other_hosts(seen: dict[str, dict[str, Seen]], mode: str) -> None:
    names = [name for answers in seen[mode].values() for name in answers if name.startswith("tool ")]
    assert len(names) > 50
    assert max(map(len, names)) <= MAX_NAME + len("tool ")


def test_calls_are_compared_that_succeed_and_that_fail(seen: dict[str, dict[str, Seen]]) -> None:
    calls = [answer for answers in seen["directly"].values() for name, answer in answers.items() if "call" in name]
    failed = [answer for answer in calls if answer.get("isError") or "error" in answer]
    assert (len(calls) > 25, len(failed) > 4) == (True, True)
