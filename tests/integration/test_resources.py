"""Resources with old and new protocol versions: listing, reading, completion, subscription, and failing servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server

from dial_client import DialClient, ServerError, ServerGone, ServerState
from dial_client.extend import Resource, ResourceContent
from tests.inner import CACHE_SECONDS, Protocol
from tests.inner import notifications as following
from tests.support.fakes import virtual_time
from tests.support.program import LONG as PATIENCE
from tests.support.servers.launch import python_script, raw, script, web, web_server
from tests.support.servers.library import LONG, PNG, TEMPLATE, Library, library

pytestmark = pytest.mark.anyio

EVERY_WAY = [("here", "asyncio"), ("here", "trio"), ("modern", "asyncio"), ("legacy", "trio")]
"""How the client reaches the server, and the event loop."""
LISTED = ["book://1", "book://2", "book://long", "book://cover", "book://paper", "book://sound"]


@asynccontextmanager
async def books(way: str = "modern", **options: Any) -> AsyncIterator[DialClient]:
    """Open a client with the server of books, reached in one of the ways of `EVERY_WAY`, and other servers."""
    protocol = {"legacy": Protocol.LEGACY, "pinned": Protocol.MODERN}.get(way, Protocol.AUTO)
    target = library() if way == "here" else python_script("library.py", "stdio", protocol=protocol)
    async with DialClient(servers={"books": target, **options}) as dial:
        yield dial


every_way = pytest.mark.parametrize(("way", "anyio_backend"), EVERY_WAY)


async def asked(dial: DialClient) -> list[str]:
    """Return the log of requests to the server of books."""
    return str((await dial.call("asked", {})).content).splitlines()


async def write(dial: DialClient, uri: str, text: str = "new") -> None:
    assert (await dial.call("write", {"uri": uri, "text": text})).success


async def until_listed(dial: DialClient, uri: str) -> None:
    """Wait until a resource is listed, after the server's change notification has arrived."""
    with anyio.fail_after(PATIENCE):
        while uri not in [resource.uri for resource in await dial.resources.list()]:  # noqa: ASYNC110
            await anyio.sleep(0.01)


# Listing


@every_way
async def test_resources_of_all_pages_are_listed(way: str) -> None:
    async with books(way) as dial:
        listed = await dial.resources.list()
        [template] = await dial.resources.templates("books")
    assert [resource.uri for resource in listed] == LISTED
    assert listed[0] == Resource("books", "book://1", "1", "A book", mime_type="text/plain", size=15)
    assert (template.uri_template, template.variables) == (TEMPLATE, ("shelf", "number"))
    assert template.expand({"shelf": "a b", "number": "7"}) == "book://a%20b/7"


async def test_a_server_with_a_configured_protocol_is_queried_without_known_capabilities() -> None:
    async with books("pinned") as dial:
        assert [resource.uri for resource in await dial.resources.list()] == LISTED


@pytest.mark.parametrize("bare", [raw, lambda: raw("Server", protocol=Protocol.MODERN), lambda: Server("bare")])
async def test_a_server_without_resources_or_prompts_has_empty_lists(bare: Callable[[], Any]) -> None:
    async with DialClient(servers={"bare": bare()}) as dial:
        assert await dial.resources.list("bare") == ()
        assert await dial.resources.templates("bare") == ()
        assert await dial.prompts.list("bare") == ()


@pytest.mark.parametrize(("era", "version"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
async def test_malformed_entries_of_a_list_are_left_out(era: str, version: str) -> None:
    async with DialClient(servers={"odd": script("odd_lists.py", era)}) as dial:
        assert dial.servers["odd"].protocol_version == version
        assert [resource.name for resource in await dial.resources.list("odd")] == ["good"]
        assert [resource.name for resource in await dial.resources.templates("odd")] == ["good"]
        assert [resource.name for resource in await dial.prompts.list("odd")] == ["good"]
        assert [resource.text for resource in await dial.resources.read("odd", "a://b")] == ["Read."]
        notes = "\n".join(dial.servers["odd"].notes)
    assert "malformed resources are left out\nmalformed resourceTemplates" in notes


async def test_an_unavailable_server_does_not_affect_other_lists() -> None:
    async with books(gone=raw("ExitsAtOnce"), off=raw(enabled=False)) as dial:
        assert len(await dial.resources.list()) == len(LISTED)
        assert len(await dial.prompts.list()) == 3
        with pytest.raises(ServerGone, match="the database is missing"):
            await dial.resources.list("gone")
        with pytest.raises(ServerGone, match="it is disabled"):
            await dial.resources.read("off", "book://1")
        with pytest.raises(ServerError, match="there is no such server"):
            await dial.resources.list("nobody")


@every_way
async def test_a_list_is_read_once_and_again_when_it_has_changed(way: str) -> None:
    async with books(way) as dial:
        await dial.resources.list()
        await write(dial, "book://new")
        await until_listed(dial, "book://new")
        before = (await asked(dial)).count("resources/list")
        await dial.resources.list("books")
        await dial.resources.list()
        assert (await asked(dial)).count("resources/list") == before
        await write(dial, "book://newer")
        await until_listed(dial, "book://newer")


@virtual_time
async def test_a_list_without_change_notifications_expires_soon() -> None:
    it = Library()
    quiet = Server("quiet", on_list_resources=it.list_resources)
    async with DialClient(servers={"books": quiet}) as dial:
        for _ in range(2):
            await dial.resources.list()
        read_once = len(it.requests)
        await anyio.sleep(CACHE_SECONDS + 1)
        await dial.resources.list()
    assert (read_once, len(it.requests)) == (3, 6)


@virtual_time
@pytest.mark.parametrize(("seconds", "fresh", "stale"), [(5.0, 4.0, 2.0), (600.0, 598.0, 4.0)])
async def test_the_time_for_which_a_server_says_that_its_list_is_valid_is_kept(
    seconds: float, fresh: float, stale: float
) -> None:
    it = Library()

    async def list_resources(context: Any, params: Any) -> Any:
        return (await it.list_resources(context, params)).model_copy(update={"ttl_ms": int(seconds * 1000)})

    async with DialClient(servers={"books": Server("quiet", on_list_resources=list_resources)}) as dial:
        await dial.resources.list()
        read_once = len(it.requests)
        await anyio.sleep(fresh)
        await dial.resources.list()
        read_again = len(it.requests)
        await anyio.sleep(stale)
        await dial.resources.list()
    assert (read_again, len(it.requests)) == (read_once, 2 * read_once)


async def test_a_replaced_server_has_its_own_list() -> None:
    it = Library()
    it.texts = {"book://other": "Another book."}
    async with books("here") as dial:
        assert len(await dial.resources.list("books")) == len(LISTED)
        await dial.remove_server("books")
        assert await dial.resources.list() == ()
        await dial.add_server("books", library(it))
        assert (await dial.resources.list("books"))[0].uri == "book://other"


async def test_a_client_that_is_not_open_has_no_resources() -> None:
    dial = DialClient(servers={"books": library()})
    assert await dial.resources.list() == ()
    with pytest.raises(ServerGone, match="it is still starting"):
        await dial.prompts.get("books", "greet")


async def test_a_restart_causes_a_new_list_request() -> None:
    async with books() as dial:
        await write(dial, "book://new")
        await until_listed(dial, "book://new")
        await dial.call("die", {})
        await dial.resources.read("books", "book://1")
        assert [resource.uri for resource in await dial.resources.list()] == LISTED


# Reading


@every_way
async def test_texts_and_blobs_are_read_even_if_not_listed(way: str) -> None:
    async with books(way) as dial:
        assert await dial.resources.read("books", "book://1") == (
            ResourceContent("book://1", "text/plain", "The first book."),
        )
        assert [part.text for part in await dial.resources.read("books", "book://all")] == [
            "The first book.",
            "The second book.",
        ]
        assert await dial.resources.read("books", "book://cover") == (
            ResourceContent("book://cover", "image/png", blob=PNG),
        )
        [long] = await dial.resources.read("books", "book://long")
        assert long.text == LONG
        [filled] = await dial.resources.read("books", "book://shelf/7")
        assert filled.text == "Book 7 of the shelf."
        with pytest.raises(ServerError, match="there is no book book://none"):
            await dial.resources.read("books", "book://none")


async def test_a_server_that_exits_during_a_read_is_an_error_and_restarts() -> None:
    async with books(other=library()) as dial:
        with pytest.raises(ServerGone, match="exit code 7"):
            await dial.resources.read("books", "book://dies")
        [text] = await dial.resources.read("other", "book://1")
        assert text.text == "The first book."
        assert dial.servers["books"].restarts > 0


@virtual_time
async def test_reading_a_resource_has_a_timeout() -> None:
    async with books("here") as dial:
        with pytest.raises(ServerError, match="no answer within 60 seconds"):
            await dial.resources.read("books", "book://hangs")
        assert len(await dial.resources.read("books", "book://1")) == 1


@every_way
async def test_variables_of_a_template_are_completed(way: str) -> None:
    async with books(way) as dial:
        assert await dial.resources.complete("books", TEMPLATE, "shelf", "s") == ("shelf", "sofa")
        variables = {"shelf": "sofa"}
        assert await dial.resources.complete("books", TEMPLATE, "number", variables=variables) == ("sofa-1", "sofa-2")


async def test_a_server_without_completions_returns_no_completions() -> None:
    async with DialClient(servers={"bare": raw()}) as dial:
        assert await dial.resources.complete("bare", TEMPLATE, "shelf", "s") == ()
        assert await dial.prompts.complete("bare", "greet", "name", "A") == ()


# Subscribing


@every_way
async def test_a_subscription_reports_changes_of_its_own_resource_only(way: str) -> None:
    async with books(way) as dial:
        with anyio.fail_after(PATIENCE):
            async with dial.resources.subscribe("books", "book://1") as changes:
                await write(dial, "book://2")
                await write(dial, "book://1")
                assert await anext(changes) == "book://1"
            [text] = await dial.resources.read("books", "book://1")
    assert text.text == "new"


@pytest.mark.parametrize("way", ["here", "legacy"])
async def test_a_change_below_a_subscribed_uri_is_reported_with_its_own_uri(way: str) -> None:
    async with books(way) as dial:
        with anyio.fail_after(PATIENCE):
            async with dial.resources.subscribe("books", "book://2") as changes:
                changes.mark_changed("book://2/page/1")
                changes.mark_changed("book://22")
                assert await anext(changes) == "book://2/page/1"
                changes.mark_changed("book://2/")
                assert await anext(changes) == "book://2"


# The SDK leaves the stream of an answer with a session to the garbage collector, of which trio warns (mcp 2.3).
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("protocol", [Protocol.AUTO, Protocol.LEGACY])
async def test_an_argument_that_a_tool_declares_as_a_header_is_also_sent_as_a_header(protocol: Protocol) -> None:
    with web_server("library.py", "http") as url:
        async with DialClient(servers={"books": web(f"{url}/mcp", protocol=protocol)}) as dial:
            result = await dial.call("region", {"region": "us-west1"})
    assert result.content == f"us-west1, {'us-west1' if protocol is Protocol.AUTO else None}"


# The SDK leaves the stream of an answer with a session to the garbage collector, of which trio warns (mcp 2.3).
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("protocol", [Protocol.AUTO, Protocol.LEGACY])
async def test_resources_and_subscriptions_work_over_http(protocol: Protocol) -> None:
    with web_server("library.py", "http") as url, anyio.fail_after(PATIENCE):
        async with DialClient(servers={"books": web(f"{url}/mcp", protocol=protocol)}) as dial:
            assert [resource.uri for resource in await dial.resources.list()] == LISTED
            async with dial.resources.subscribe("books", "book://1") as changes:
                await write(dial, "book://1")
                assert await anext(changes) == "book://1"
            await write(dial, "book://new")
            await until_listed(dial, "book://new")


async def test_two_subscriptions_to_one_resource_send_one_request() -> None:
    async with books("legacy") as dial:
        with anyio.fail_after(PATIENCE):
            async with dial.resources.subscribe("books", "book://1") as first:
                async with dial.resources.subscribe("books", "book://1") as second:
                    await write(dial, "book://1")
                    assert await anext(first) == await anext(second) == "book://1"
                await write(dial, "book://1")
                assert await anext(first) == "book://1"
            while "unsubscribe book://1" not in (log := await asked(dial)):  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert [line for line in log if "subscribe" in line] == ["subscribe book://1", "unsubscribe book://1"]


@pytest.mark.parametrize("way", ["modern", "legacy"])
async def test_a_subscription_survives_a_restart_and_reports_a_possible_change(way: str) -> None:
    async with books(way) as dial:
        with anyio.fail_after(PATIENCE):
            async with dial.resources.subscribe("books", "book://1") as changes:
                await dial.call("die", {})
                assert await anext(changes) == "book://1"
                await write(dial, "book://1")
                assert await anext(changes) == "book://1"


async def test_a_refused_or_unsupported_subscription_is_an_error() -> None:
    async with DialClient(servers={"bare": raw(), "modern": Server("bare"), "gone": raw("ExitsAtOnce")}) as dial:
        for server in ("bare", "modern"):
            with pytest.raises(ServerError, match="it announces no changes of 'book://1'"):
                async with dial.resources.subscribe(server, "book://1"):
                    raise AssertionError
        with pytest.raises(ServerGone, match="the database is missing"):
            async with dial.resources.subscribe("gone", "book://1"):
                raise AssertionError


async def test_a_subscription_ends_with_its_server() -> None:
    dial = DialClient(servers={"books": library()})
    async with dial:
        subscription = await dial.resources.subscribe("books", "book://1").__aenter__()
    with pytest.raises(ServerGone, match="it was stopped"):
        await anext(subscription)
    assert dial.servers["books"].state is ServerState.STOPPED


async def test_subscriptions_and_pending_changes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_SUBSCRIPTIONS", 1)
    monkeypatch.setattr(following, "MAX_PENDING", 2)
    async with books("here") as dial, dial.resources.subscribe("books", "book://1") as changes:
        for number in range(100):
            changes.mark_changed(f"book://1/{number}")
        assert [await anext(changes) for _ in range(3)] == ["book://1/0", "book://1/1", "book://1"]
        with pytest.raises(ServerError, match="at most 1 of its resources"):
            async with dial.resources.subscribe("books", "book://2"):
                raise AssertionError


async def test_the_name_of_a_resource_is_sanitized_and_its_uri_is_unchanged() -> None:
    it = Library()
    it.texts = {"book://\x1b[2J": "text"}
    async with DialClient(servers={"books": Server("it", on_list_resources=it.list_resources)}) as dial:
        first = (await dial.resources.list())[0]
    assert first.uri == "book://\x1b[2J"
    assert first.name == ""
    assert json.loads(json.dumps(first.to_dict()))["uri"] == first.uri
