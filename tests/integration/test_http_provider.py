"""The HTTP transport of providers: requests, responses, broken connections and connection reuse."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest

from tests.inner import (
    Completion,
    Endpoint,
    FailureTolerantClient,
    FinishReason,
    HttpTransport,
    Message,
    ModelRequest,
    ProviderError,
    ServerSettings,
    TextChunk,
    Transport,
    build_connection_error,
    describe_network_error,
    make_client,
)
from tests.support.model_endpoint import (
    Bytes,
    ModelEndpoint,
    Raw,
    Say,
    events,
    hear,
    model_endpoint,
    one_json,
    provider_of,
    refuse,
)
from tests.support.servers.launch import until

pytestmark = pytest.mark.anyio

HALF: dict[str, Any] = {"choices": [{"delta": {"content": "Half a"}}]}


@asynccontextmanager
async def connected(
    answer: Raw | Bytes, path: str = "", **about: Any
) -> AsyncIterator[tuple[HttpTransport, ModelEndpoint]]:
    with model_endpoint([], described=answer) as endpoint:
        connection = HttpTransport(Endpoint(f"{endpoint.url}{path}", **about))
        try:
            yield connection, endpoint
        finally:
            await connection.aclose()


async def test_a_json_response_is_returned_as_a_value() -> None:
    about: dict[str, Any] = {"headers": {"api-key": "k"}, "query": {"api-version": "a b"}}
    async with connected(one_json({"features": {"tools": True}}), "/core?tenant=7", **about) as (connection, endpoint):
        value = await connection.get("/openai/deployments/a%2Fb", timeout=30)

    [request] = endpoint.lookups
    assert value == {"features": {"tools": True}}
    assert (request.method, request.body) == ("GET", b"")
    assert request.path == "/core/openai/deployments/a%2Fb?tenant=7&api-version=a+b"
    assert set(request.headers) == {"host", "accept", "accept-encoding", "user-agent", "api-key"}


@pytest.mark.parametrize(
    ("answer", "says", "status"),
    [
        pytest.param(refuse(404, "no such deployment"), "answered 404: no such deployment", 404, id="a refusal"),
        pytest.param(refuse(503, "busy"), "answered 503: busy", 503, id="busy: asked once only"),
        pytest.param(Raw((), 302, {"location": "http://elsewhere.test"}), "redirects to", 302, id="a redirect"),
        pytest.param(Raw((b"<html><title>Sign in</title>",)), "Sign in", None, id="a page"),
        pytest.param(Raw((b'{"a": ',), cut=True), "not JSON", None, id="half of it"),
        pytest.param(Raw((b"[", *[b" " * 65536] * 64, b"]")), "more than 4194304 bytes", None, id="too much"),
        pytest.param(Raw(hang=True), "did not answer in time", None, id="silence"),
        pytest.param(Raw((b"[",), hang=True), "did not answer in time", None, id="silence in the middle"),
        pytest.param(Bytes(b"garbage\r\n\r\n"), "broke", None, id="no HTTP"),
    ],
)
async def test_a_response_without_json_is_an_error(answer: Raw | Bytes, says: str, status: int | None) -> None:
    async with connected(answer) as (connection, endpoint):
        with pytest.raises(ProviderError) as caught:
            await connection.get("/x", timeout=0.5 if isinstance(answer, Raw) and answer.hang else 30)

        await until(lambda: endpoint.lookups)  # read by a thread of its own, perhaps after the limit of the request

    assert says in str(caught.value)
    assert caught.value.status == status
    assert len(endpoint.lookups) == 1


async def test_neither_cookies_nor_netrc_credentials_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with connected(one_json({}, headers={"set-cookie": "session=1; path=/"})) as (connection, endpoint):
        for _ in range(2):
            await connection.get("/x", timeout=30)

    assert all({"cookie", "authorization"}.isdisjoint(request.headers) for request in endpoint.lookups)


async def test_only_the_start_of_an_endless_error_body_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dial_client.providers.http.transport._MAX_ERROR_BODY", 64)
    endless = Raw((json.dumps({"error": {"message": "no"}}).ljust(64).encode(), b"x" * 100_000), 400, hang=True)
    with model_endpoint([endless]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError, match=r"answered 400: no$"):
            await hear(provider)
        await provider.aclose()


async def test_an_error_response_that_never_ends_is_read_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dial_client.providers.http.transport._ERROR_BODY_TIMEOUT", 0.2)
    with model_endpoint([Raw((b"the rest is",), 400, hang=True)]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError, match="answered 400: the rest is"):
            await hear(provider)
        await provider.aclose()


async def test_a_connection_reset_keeps_the_text_so_far() -> None:
    body = b"".join(events(HALF, done=False).chunks)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n"
    texts = []
    with model_endpoint([Bytes(head + body, reset=True), Say("Fine")]) as endpoint:
        provider = provider_of(endpoint)
        async with aclosing(provider.generate(ModelRequest((Message.user("?"),)))) as deltas:
            async for delta in deltas:
                texts.append(delta)
                endpoint.heard.set()
        assert (await hear(provider)).text == "Fine"
        await provider.aclose()

    assert texts[0] == TextChunk("Half a")
    assert isinstance(texts[-1], Completion)
    assert texts[-1].finish is FinishReason.CUT
    assert "the reply broke off" in str(texts[-1].notes)


async def test_a_complete_stream_without_finish_reason_is_an_answer() -> None:
    with model_endpoint([events(HALF)]) as endpoint:
        provider = provider_of(endpoint)
        heard = await hear(provider)
        await provider.aclose()

    assert (heard.text, heard.completion.finish) == ("Half a", FinishReason.STOP)


async def test_a_connection_is_reused_even_after_error_responses() -> None:
    with model_endpoint([refuse(400), Say("Hi"), refuse(404), Say("Hi")]) as endpoint:
        provider = provider_of(endpoint)
        for works in (False, True, False, True):
            try:
                assert (await hear(provider)).text == "Hi"
                assert works
            except ProviderError:
                assert not works
        await provider.aclose()

    assert endpoint.connections == 1


async def test_the_head_and_the_body_of_a_request_arrive_together() -> None:
    requests: list[bytes] = []

    async def answer(client: anyio.abc.ByteStream) -> None:
        async with client:
            requests.append(await client.receive())
            await client.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        provider = provider_of(f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/v1")
        with pytest.raises(ProviderError):
            await hear(provider)
        await provider.aclose()
        group.cancel_scope.cancel()

    [request] = requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert json.loads(body)["model"] == "m"


async def test_as_many_requests_reach_the_endpoint_at_once_as_are_made() -> None:
    # More than a service allows turns by default; how many there may be is decided where turns start.
    count = 130
    with model_endpoint([events(HALF, done=False, hang=True)] * count) as endpoint:
        provider = provider_of(endpoint)
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(hear, provider)
            with anyio.fail_after(60):
                while len(endpoint.requests) < count:  # noqa: ASYNC110 - the endpoint has threads of its own
                    await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        await provider.aclose()


UNUSABLE = [
    ("SSL_CERT_FILE", "no/such/file.pem", "SSL_CERT_FILE names the file no/such/file.pem, which does not exist"),
    ("SSL_CERT_FILE", __file__, f"SSL_CERT_FILE names the file {__file__}, which has no certificates"),
    ("ALL_PROXY", "socks5://me:secret@127.0.0.1:1", "ALL_PROXY names a proxy with socks5://, which cannot be used"),
    ("ALL_PROXY", "socks://127.0.0.1:1", "ALL_PROXY names a proxy with socks://, which cannot be used"),
    ("HTTPS_PROXY", "gopher://127.0.0.1:1", "HTTPS_PROXY names a proxy with gopher://, which cannot be used"),
]


@pytest.mark.parametrize(("variable", "value", "problem"), UNUSABLE)
async def test_invalid_network_settings_in_the_environment_are_an_error_that_names_them(
    variable: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    provider = provider_of("https://nowhere.invalid")
    with pytest.raises(ProviderError) as caught:
        await hear(provider)
    await provider.aclose()
    with pytest.raises(ValueError, match=r"cannot be used|which does not exist|no certificates") as refused:
        FailureTolerantClient(ServerSettings("web", Transport.HTTP, url="https://nowhere.invalid/mcp"), None)

    assert str(caught.value).startswith(problem)
    assert str(refused.value) == str(caught.value)
    assert "secret" not in str(caught.value)


async def test_requests_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_endpoint([Say("Hello"), Say("Hello again")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        provider = provider_of("http://nowhere.invalid")
        replies = [await hear(provider), await hear(provider)]
        await provider.aclose()
    assert [reply.text for reply in replies] == ["Hello", "Hello again"]
    assert [request.path for request in proxy.requests] == ["http://nowhere.invalid/chat/completions"] * 2


def test_a_folder_of_certificates_that_does_not_exist_is_named_only_for_an_unknown_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate")
    endpoint = Endpoint("https://models.test/v1")

    def describe(error: Exception) -> tuple[str, str]:
        return str(build_connection_error(endpoint, error)), describe_network_error(error)

    missing = str(tmp_path / "none")
    monkeypatch.setenv("SSL_CERT_DIR", missing)
    assert all(text.endswith(f"; SSL_CERT_DIR names {missing}, which is no folder") for text in describe(unknown))
    assert all("SSL_CERT_DIR" not in text for text in describe(httpx2.ConnectError("connection refused")))
    monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join((missing, str(tmp_path))))
    assert all("SSL_CERT_DIR" not in text for text in describe(unknown))


def test_a_proxy_that_may_be_the_reason_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    def describe(url: str, kind: type[httpx2.RequestError]) -> tuple[str, str]:
        error = kind("refused", request=httpx2.Request("POST", url))
        return str(build_connection_error(Endpoint(url), error)), describe_network_error(error)

    monkeypatch.setenv("HTTPS_PROXY", "http://ada:secret@proxy.test:3128/")
    remark = "; it was asked for through the proxy proxy.test:3128 of HTTPS_PROXY"
    for kind in (httpx2.ConnectError, httpx2.ProxyError):
        assert all(text.endswith(remark) for text in describe("https://models.test/v1", kind))
    assert all("secret" not in text for text in describe("https://models.test/v1", httpx2.ConnectError))
    assert not any("proxy" in text for text in describe("http://models.test/v1", httpx2.ConnectError))
    assert not any("proxy" in text for text in describe("https://127.0.0.1:9/v1", httpx2.ConnectError))
    monkeypatch.setenv("NO_PROXY", "models.test")
    assert not any("proxy" in text for text in describe("https://models.test/v1", httpx2.ConnectError))


async def test_no_proxy_is_used_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_endpoint([Say("Hello")]) as endpoint, model_endpoint([]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        url = f"{endpoint.url}/mcp"
        async with FailureTolerantClient(ServerSettings("own", Transport.HTTP, url=url), None) as client:
            await client.post(url, json={})
    assert (len(endpoint.requests), len(proxy.requests)) == (1, 0)


@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:1", "socks5://127.0.0.1:1", "gopher://127.0.0.1:1"])
@pytest.mark.parametrize(
    ("names", "host"),
    [
        ("models.example", "models.example"),
        (".example", "models.example"),
        ("models.example:8443", "models.example:8443"),
        ("localhost,10.0.0.0/8", "10.1.2.3"),
        ("*", "models.example"),
    ],
)
async def test_a_proxy_that_cannot_be_used_does_not_matter_to_hosts_without_a_proxy(
    proxy: str, names: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", names)

    await make_client(f"https://{host}/v1", is_local=False).aclose()
    await FailureTolerantClient(ServerSettings("web", Transport.HTTP, url=f"https://{host}/mcp"), None).aclose()
    if names != "*":
        with pytest.raises(ProviderError, match="ALL_PROXY"):
            make_client("https://elsewhere.test/v1", is_local=False)
