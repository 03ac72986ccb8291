"""`/mcp` of the service: all servers as one MCP server over HTTP, in both revisions of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import ElicitResult, Implementation

from dial_client import ConfigError
from dial_client.serve import McpOptions, Person, Refusal, ResourceMetadata
from tests.inner import AccessPolicy, check_origin
from tests.support.clients import calculator
from tests.support.gateways import MODES
from tests.support.http_service import TOKEN, serve
from tests.support.mcp_clients import HEADERS, begin_session, initialize, mcp_client, post

pytestmark = pytest.mark.anyio
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
WEBVIEW = "vscode-webview://0a1b2c"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_lists_and_calls_the_tools_of_all_servers(mode: str) -> None:
    async with (
        serve([], {"sums": calculator()}, allow=["sums/*"], mcp=McpOptions()) as service,
        mcp_client(service, mode) as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("sums__add", {"a": 2, "b": 3})
    assert "sums__add" in names
    assert result.structured_content == {"result": 5}


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_nothing_allows_is_denied_with_the_reason(mode: str) -> None:
    async with serve([], {"sums": calculator()}, mcp=McpOptions()) as service, mcp_client(service, mode) as client:
        result = await client.call_tool("sums__add", {"a": 2, "b": 3})
    assert result.is_error
    assert "did not allow" in str(result.content)


@pytest.mark.parametrize("mode", MODES)
async def test_the_client_is_asked_about_its_own_call_and_no_other_client(mode: str) -> None:
    questions: list[str] = []

    async def allow(_: Any, params: Any) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult(action="accept", content={"decision": "once"})

    async def refuse(_: Any, params: Any) -> ElicitResult:
        raise AssertionError(params.message)

    async with (
        serve([], {"sums": calculator()}, mcp=McpOptions()) as service,
        mcp_client(service, mode, elicitation_callback=allow) as client,
        mcp_client(service, mode, elicitation_callback=refuse, client_info=Implementation(name="b", version="1")) as _,
    ):
        result = await client.call_tool("sums__add", {"a": 2, "b": 3})
    assert result.structured_content == {"result": 5}
    assert len(questions) == 1
    assert "sums" in questions[0]


async def test_calls_of_turns_are_still_asked_about_on_the_page() -> None:
    replies = [{"tool_calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, "It is 5."]
    async with (
        serve(replies, {"sums": calculator()}, mcp=McpOptions()) as service,
        mcp_client(service, "legacy") as client,
        anyio.create_task_group() as group,
    ):
        await client.list_tools()
        where = await service.conversation()
        answers: list[str] = []

        async def chat() -> None:
            turn = await service.json("POST", f"{where}/chat", json={"text": "Add!", "stream": False})
            answers.append(turn["text"])

        group.start_soon(chat)
        while not (approvals := (await service.json("GET", "/approvals"))["approvals"]):  # noqa: ASYNC110 - the service is asked
            await anyio.sleep(0.02)
        await service.json("POST", f"/approvals/{approvals[0]['id']}", 204, json={"decision": "once"})
    assert answers == ["It is 5."]


async def test_a_client_sees_three_tools_if_the_service_says_so() -> None:
    async with (
        serve([], {"sums": calculator()}, allow=["sums/*"], mcp=McpOptions(tools="search")) as service,
        mcp_client(service, "2026-07-28") as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        called = {"name": "sums__add", "arguments": {"a": 2, "b": 3}}
        result = await client.call_tool("call_tool", called)
    assert names == ["search_tools", "describe_tool", "call_tool"]
    assert result.structured_content == {"result": 5}


@pytest.mark.parametrize("mode", MODES)
async def test_a_new_tool_is_announced(mode: str) -> None:
    changed = anyio.Event()

    async def on_message(message: object) -> None:
        if "ToolListChanged" in type(message).__name__:
            changed.set()

    async with (
        serve([], {"sums": calculator()}, mcp=McpOptions()) as service,
        mcp_client(service, mode, message_handler=on_message) as client,
        anyio.create_task_group() as group,
    ):

        async def listen() -> None:
            async with client.listen(tools_list_changed=True) as changes:
                listening.set()
                async for _ in changes:
                    changed.set()

        listening = anyio.Event()
        await client.list_tools()
        if mode != "legacy":
            group.start_soon(listen)
            await listening.wait()
        await service.dial.add_server("more", calculator())
        await changed.wait()
        assert "more__add" in {tool.name for tool in (await client.list_tools()).tools}
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": ""}, 401),
        ({"host": "evil.test"}, 421),
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": WEBVIEW}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 400),
        ({"accept": "text/html"}, 406),
    ],
)
async def test_a_request_of_a_stranger_is_refused(headers: dict[str, str], status: int) -> None:
    async with serve([], mcp=McpOptions()) as service, _strangers() as http:
        for version in ("2025-11-25", "2026-07-28"):
            response = await http.post(
                f"{service.url}/mcp", json=initialize(), headers={**HEADERS, "mcp-protocol-version": version, **headers}
            )
            assert response.status_code == status
        assert not service.mcp.sessions


async def test_a_name_that_resolves_to_this_machine_does_not_reach_the_tools_without_a_token() -> None:
    # DNS rebinding: the page of evil.test, which now resolves to 127.0.0.1, sends a request of its own origin.
    policy = AccessPolicy(None)
    async with serve([], policy=policy, mcp=McpOptions()) as service, _strangers() as http:
        headers = {**HEADERS, "host": "evil.test:8000", "origin": "http://evil.test:8000"}
        assert (await http.post(f"{service.url}/mcp", json=initialize(), headers=headers)).status_code == 421


async def test_without_the_option_there_is_nothing_at_the_path() -> None:
    async with serve([]) as service, _strangers() as http:
        assert (await post(http, service.url, initialize())).status_code == 404


async def test_a_webview_may_send_requests_if_its_origin_is_allowed() -> None:
    policy = AccessPolicy(TOKEN, origins=frozenset({"vscode-webview://*"}))
    async with serve([], policy=policy, mcp=McpOptions()) as service, _strangers() as http:
        asked = await http.options(
            f"{service.url}/mcp",
            headers={
                "origin": WEBVIEW,
                "sec-fetch-site": "cross-site",
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,mcp-protocol-version",
            },
        )
        sent = await post(http, service.url, initialize(), origin=WEBVIEW, sec_fetch_site="cross-site")
        refused = await post(http, service.url, initialize(), origin=WEBVIEW, authorization="")
        elsewhere = await http.get(f"{service.url}/servers", headers={**HEADERS, "origin": WEBVIEW})
        unknown = await http.options(f"{service.url}/mcp", headers={"origin": "vscode-file://x"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == WEBVIEW
    assert asked.headers["access-control-allow-headers"] == "authorization,mcp-protocol-version"
    assert "access-control-allow-credentials" not in asked.headers
    assert sent.status_code == 200
    assert sent.headers["access-control-allow-origin"] == WEBVIEW
    assert "mcp-session-id" in sent.headers["access-control-expose-headers"]
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, WEBVIEW)
    assert (elsewhere.status_code, unknown.status_code) == (403, 403)


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "https://*",
        "http://*",
        "file://*",
        "vscode-webview",
        "http://a/b",
        "http://*.example.com",
        "null",
        "",
        "é://x",
    ],
)
def test_an_origin_that_stands_for_every_page_is_an_error(origin: str) -> None:
    with pytest.raises(ConfigError):
        check_origin(origin)


@pytest.mark.parametrize("origin", ["vscode-webview://*", "http://localhost:6274", "https://ide.example.com"])
def test_origins_of_ides_and_tools_are_accepted(origin: str) -> None:
    check_origin(origin)


async def test_a_session_ends_when_its_client_ends_it() -> None:
    async with serve([], {"sums": calculator()}, mcp=McpOptions()) as service, _strangers() as http:
        id_ = await begin_session(http, service.url)
        listed = await post(http, service.url, {**PING, "method": "tools/list"}, mcp_session_id=id_)
        assert "sums__add" in listed.text
        assert (id_ in service.mcp.sessions, len(list(service.mcp.clients))) == (True, 1)
        ended = await http.delete(f"{service.url}/mcp", headers={**HEADERS, "mcp-session-id": id_})
        again = await post(http, service.url, PING, mcp_session_id=id_)
        assert (ended.status_code, again.status_code) == (200, 404)
        assert (id_ in service.mcp.sessions, len(list(service.mcp.clients))) == (False, 0)


async def test_an_unknown_session_gets_404_and_a_new_session_can_begin() -> None:
    # As after a restart of the service: the specification lets the client initialize again.
    async with serve([], mcp=McpOptions()) as service, _strangers() as http:
        unknown = await post(http, service.url, PING, mcp_session_id="0" * 32)
        stream = await http.get(f"{service.url}/mcp", headers={**HEADERS, "mcp-session-id": "0" * 32})
        assert (unknown.status_code, stream.status_code) == (404, 404)
        assert await begin_session(http, service.url)


async def test_an_idle_session_ends() -> None:
    options = McpOptions(idle_seconds=1.0)
    async with serve([], mcp=options) as service, _strangers() as http:
        id_ = await begin_session(http, service.url)
        while id_ in service.mcp.sessions:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.02)
        assert (await post(http, service.url, PING, mcp_session_id=id_)).status_code == 404


async def test_a_session_with_a_stream_of_notifications_is_not_idle() -> None:
    options = McpOptions(idle_seconds=1.0)
    async with serve([], mcp=options) as service, _strangers() as http:
        idle = await begin_session(http, service.url)
        id_ = await begin_session(http, service.url)
        headers = {**HEADERS, "mcp-session-id": id_}
        async with http.stream("GET", f"{service.url}/mcp", headers=headers) as stream:
            assert stream.status_code == 200
            while idle in service.mcp.sessions:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.02)
            assert (await post(http, service.url, PING, mcp_session_id=id_)).status_code == 200


async def test_a_further_session_ends_the_session_that_was_idle_longest() -> None:
    async with serve([], mcp=McpOptions(max_sessions=2)) as service, _strangers() as http:
        first, second = [await begin_session(http, service.url) for _ in range(2)]
        assert (await post(http, service.url, PING, mcp_session_id=first)).status_code == 200
        third = await begin_session(http, service.url)
        found = [
            (await post(http, service.url, PING, mcp_session_id=id_)).status_code for id_ in (first, second, third)
        ]
    assert found == [200, 404, 200]


async def test_two_hundred_clients_at_once_have_a_session_each_with_its_stream() -> None:
    async with (
        serve([], {"sums": calculator()}, allow=["sums/*"], mcp=McpOptions()) as service,
        _strangers() as http,
        AsyncExitStack() as streams,
    ):
        ids: list[str] = []

        async def begin() -> None:
            id_ = await begin_session(http, service.url)
            headers = {**HEADERS, "mcp-session-id": id_}
            stream = await streams.enter_async_context(http.stream("GET", f"{service.url}/mcp", headers=headers))
            assert stream.status_code == 200
            ids.append(id_)

        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(begin)
        assert len(set(ids)) == len(service.mcp.sessions) == 200
        call = {**PING, "method": "tools/call", "params": {"name": "sums__add", "arguments": {"a": 1, "b": 1}}}
        answers = [await post(http, service.url, call, mcp_session_id=id_) for id_ in (ids[0], ids[-1])]
        assert all('"result":2' in answer.text.replace(" ", "") for answer in answers)


async def test_each_session_has_its_own_id_in_the_calls() -> None:
    async with (
        serve([], {"sums": calculator()}, allow=["sums/*"], mcp=McpOptions()) as service,
        mcp_client(service, "legacy") as first,
        mcp_client(service, "legacy") as second,
        mcp_client(service, "2026-07-28") as third,
        mcp_client(service, "2026-07-28") as fourth,
    ):
        for client in (first, second, third, fourth, first):
            await client.call_tool("sums__add", {"a": 1, "b": 2})
        # Without sessions the person and the client program tell whose call it is.
        assert len({session.id for session in service.mcp.clients}) == 3


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_large_body_is_refused(version: str) -> None:
    call = {**PING, "method": "tools/call", "params": {"name": "x", "arguments": {"text": "x" * 9_000_000}}}
    async with serve([], mcp=McpOptions()) as service, _strangers() as http:
        assert (await post(http, service.url, call, mcp_protocol_version=version)).status_code == 413


class Persons:
    """The persons of a service, each with a token; `metadata` names who gives them."""

    metadata = ResourceMetadata("https://tools.example/mcp", ("https://login.example",), ("tools",))

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        match headers.get("authorization", "").split():
            case ["Bearer", "narrow"]:
                return Refusal("the token has no access to tools", scopes=("tools",))
            case ["Bearer", name]:
                return Person(name)
        return Refusal("log in first")


async def persons() -> Any:
    authenticator = Persons()
    return AccessPolicy(TOKEN, mcp_authenticator=authenticator), McpOptions(authenticator=authenticator)


async def test_a_client_without_a_token_finds_the_authorization_server() -> None:
    policy, options = await persons()
    async with serve([], policy=policy, mcp=options) as service, _strangers() as http:
        refused = await post(http, service.url, initialize(), authorization="")
        narrow = await post(http, service.url, initialize(), authorization="Bearer narrow")
        documents = [
            (await http.get(f"{service.url}/.well-known/oauth-protected-resource{path}")).json()
            for path in ("", "/mcp")
        ]
        page = await http.get(f"{service.url}/servers", headers={"authorization": "Bearer ann"})
    metadata_url = "https://tools.example/.well-known/oauth-protected-resource"
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{metadata_url}"'
    assert narrow.status_code == 403
    assert narrow.headers["www-authenticate"].startswith('Bearer error="insufficient_scope", scope="tools", ')
    assert documents[0] == documents[1]
    assert documents[0]["resource"] == "https://tools.example/mcp"
    assert documents[0]["authorization_servers"] == ["https://login.example"]
    assert documents[0]["scopes_supported"] == ["tools"]
    assert page.status_code == 401  # the other routes know one person: that with the token of the service


async def test_the_session_of_a_person_is_not_there_for_another_person() -> None:
    policy, options = await persons()
    async with serve([], policy=policy, mcp=options) as service, _strangers() as http:
        begun = await post(http, service.url, initialize(), authorization="Bearer ann")
        id_ = begun.headers["mcp-session-id"]
        found = [
            (await post(http, service.url, PING, mcp_session_id=id_, authorization=f"Bearer {name}")).status_code
            for name in ("ann", "bob")
        ]
        ended = await http.delete(
            f"{service.url}/mcp", headers={**HEADERS, "mcp-session-id": id_, "authorization": "Bearer bob"}
        )
    assert found == [200, 404]
    assert ended.status_code == 404


async def test_calls_of_two_persons_are_told_apart_without_sessions() -> None:
    policy, options = await persons()
    servers = {"sums": calculator()}
    async with serve([], servers, policy=policy, allow=["sums/*"], mcp=options) as service:
        for name in ("ann", "bob", "ann"):
            async with mcp_client(service, "2026-07-28", name) as client:
                await client.call_tool("sums__add", {"a": 1, "b": 2})
        assert [session.person for session in service.mcp.clients] == ["bob", "ann"]


async def test_without_an_authorization_server_there_is_no_metadata() -> None:
    async with serve([], mcp=McpOptions()) as service, _strangers() as http:
        response = await http.get(f"{service.url}/.well-known/oauth-protected-resource")
        assert response.status_code == 404


async def test_a_stream_ends_with_the_service() -> None:
    async with serve([], mcp=McpOptions()) as service, _strangers() as http:
        id_ = await begin_session(http, service.url)
        headers = {**HEADERS, "mcp-session-id": id_}
        async with http.stream("GET", f"{service.url}/mcp", headers=headers) as stream:
            service.server.shut_down()
            assert [line async for line in stream.aiter_lines() if line.startswith("data")] == []


def _strangers() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(timeout=60, trust_env=False, verify=False, limits=limits)
