"""Providers for an existing client of `openai` or `anthropic`: its authentication, our requests, parsers and retries.

The SDKs are imported where a client is opened: the import takes a second, which would delay the collection of tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dial_client import ConfigError, DialClient, ProviderError
from dial_client.extend import AnthropicProvider, OpenAIProvider, Provider
from tests.inner import (
    NEWEST_MESSAGES_VERSION,
    OLDER_MESSAGES_VERSION,
    Endpoint,
    FinishReason,
    Message,
    ToolSpec,
    read_endpoint,
)
from tests.support.aws_frames import exception_frame, frame_stream
from tests.support.model_endpoint import (
    Answer,
    Bytes,
    Call,
    Raw,
    Recorded,
    Say,
    events,
    hear,
    model_endpoint,
    refuse,
    write_reply,
)

pytestmark = pytest.mark.anyio

CALL = Say("Let me see.", (Call("look", {"at": "ü"}),), reasoning="Hm.")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


_clients: list[Any] = []


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that the vendors' clients support."""
    return "asyncio"


@pytest.fixture(autouse=True)
async def close_clients(anyio_backend: str) -> AsyncIterator[None]:
    yield
    while _clients:
        await _clients.pop().close()


def closed_later(client: Any) -> Any:
    """Register a client to be closed after the test, and return it."""
    _clients.append(client)
    return client


@pytest.fixture
def no_aws_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


def chat(url: str) -> Provider:
    from openai import AsyncOpenAI

    return OpenAIProvider(closed_later(AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-mine")), "m", api="chat")


def responses(url: str) -> Provider:
    from openai import AsyncOpenAI

    return OpenAIProvider(closed_later(AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-mine")), "m")


def azure(url: str, wire: str = "responses", **options: Any) -> Provider:
    from openai import AsyncAzureOpenAI

    options = options or {"api_key": "sk-mine"}
    client = AsyncAzureOpenAI(azure_endpoint=url, api_version="2026-01-01", **options)
    return OpenAIProvider(closed_later(client), "a deployment", api=wire)


def messages(url: str, **options: Any) -> Provider:
    from anthropic import AsyncAnthropic

    return AnthropicProvider(closed_later(AsyncAnthropic(base_url=url, api_key="sk-mine", **options)), "m")


def foundry(url: str) -> Provider:
    from anthropic import AsyncAnthropicFoundry

    return AnthropicProvider(closed_later(AsyncAnthropicFoundry(base_url=f"{url}/anthropic", api_key="sk-mine")), "m")


def vertex(url: str) -> Provider:
    from anthropic import AsyncAnthropicVertex

    client = AsyncAnthropicVertex(base_url=f"{url}/v1", region="eu", project_id="p", access_token="token-1")
    return AnthropicProvider(closed_later(client), "claude-x@1")


def bedrock(url: str) -> Provider:
    from anthropic import AsyncAnthropicBedrock

    client = AsyncAnthropicBedrock(
        base_url=url, aws_region="eu-central-1", aws_access_key="AKIDEXAMPLE", aws_secret_key="secret-key"
    )
    return AnthropicProvider(closed_later(client), "anthropic.claude-x-v1:0")


@pytest.mark.parametrize(
    ("open_client", "path", "headers"),
    [
        pytest.param(responses, "/v1/responses", {"authorization": "Bearer sk-mine"}, id="OpenAI, Responses"),
        pytest.param(chat, "/v1/chat/completions", {"authorization": "Bearer sk-mine"}, id="OpenAI, chat completions"),
        pytest.param(azure, "/openai/responses?api-version=2026-01-01", {"api-key": "sk-mine"}, id="Azure, Responses"),
        pytest.param(
            lambda url: azure(url, "chat"),
            "/openai/deployments/a%20deployment/chat/completions?api-version=2026-01-01",
            {"api-key": "sk-mine"},
            id="Azure, chat completions",
        ),
        pytest.param(
            lambda url: azure(url, azure_ad_token_provider=lambda: "from-entra"),
            "/openai/responses?api-version=2026-01-01",
            {"authorization": "Bearer from-entra"},
            id="Azure with Entra ID",
        ),
        pytest.param(messages, "/v1/messages", {"authorization": "Bearer sk-mine"}, id="Anthropic"),
        pytest.param(foundry, "/anthropic/v1/messages", {"api-key": "sk-mine"}, id="Foundry"),
        pytest.param(
            vertex,
            "/v1/projects/p/locations/eu/publishers/anthropic/models/claude-x@1:streamRawPredict",
            {"authorization": "Bearer token-1"},
            id="Vertex",
        ),
    ],
)
async def test_the_client_authenticates_and_selects_the_path(
    open_client: Callable[[str], Provider], path: str, headers: dict[str, str]
) -> None:
    def answer(request: Recorded) -> Answer:
        # The test endpoint selects the API by the last part of the path, and Vertex uses a different path.
        return say_as_messages(CALL) if "streamRawPredict" in request.path else CALL

    with model_endpoint([CALL]) as endpoint:
        endpoint.answer_to = answer
        provider = open_client(endpoint.url)
        heard = await hear(provider, Message.user("Look!"), tools=(TOOL,))

    [request] = endpoint.requests
    assert (heard.text, heard.asked, heard.reasoning) == ("Let me see.", [("look", {"at": "ü"})], "Hm.")
    assert heard.completion.finish is FinishReason.TOOL_CALLS
    assert (heard.completion.usage.input_tokens, heard.completion.usage.output_tokens) == (11, 7)
    assert request.path == path
    assert {name: request.headers.get(name) for name in headers} == headers
    assert request.json["stream"] is True
    assert [tool.get("name") or tool["function"]["name"] for tool in request.json["tools"]] == ["look"]


def say_as_messages(say: Say) -> Raw:
    request = Recorded("POST", "/v1/messages", {}, b"", b'{"stream": true}')
    return write_reply(say, request)


async def test_requests_to_bedrock_are_signed_and_its_frames_are_read(no_aws_files: None) -> None:
    stream = frame_stream(say_as_messages(CALL).chunks)
    cut_anywhere = tuple(stream[at : at + 7] for at in range(0, len(stream), 7))
    answer = Raw(cut_anywhere, headers={"content-type": "application/vnd.amazon.eventstream"})
    with model_endpoint([answer]) as endpoint:
        heard = await hear(bedrock(endpoint.url), Message.user("Look!"), tools=(TOOL,))

    [request] = endpoint.requests
    assert (heard.text, heard.asked, heard.reasoning) == ("Let me see.", [("look", {"at": "ü"})], "Hm.")
    assert request.path == "/model/anthropic.claude-x-v1:0/invoke-with-response-stream"
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/eu-central-1/bedrock/aws4_request" in request.headers["authorization"]
    assert "Signature=" in request.headers["authorization"]
    assert "x-amz-date" in request.headers
    assert "model" not in request.json
    assert b"secret-key" not in request.head + request.body


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (exception_frame("throttlingException", "Slow down."), "Slow down."),
        (b"no frame at all, but sixteen bytes and more", "broke"),
    ],
)
async def test_an_error_in_frames_is_an_error(no_aws_files: None, frames: bytes, says: str) -> None:
    answer = Raw((frames,), headers={"content-type": "application/vnd.amazon.eventstream"})
    with model_endpoint([answer]) as endpoint, pytest.raises(ProviderError, match=says):
        await hear(bedrock(endpoint.url))


CLIENTS = [responses, chat, messages, bedrock]


@pytest.mark.parametrize("name", ["auth_token", "access_token"])
def test_a_token_of_the_client_is_masked_like_a_key(name: str) -> None:
    client = SimpleNamespace(base_url="https://model.test", api_key=None, **{name: "token-1"})
    assert read_endpoint(client, Endpoint("")).key == "token-1"


@pytest.mark.parametrize("open_client", CLIENTS)
async def test_only_the_retry_policy_of_the_package_applies(
    no_aws_files: None, open_client: Callable[[str], Provider]
) -> None:
    with model_endpoint([refuse(529, "busy", {"retry-after-ms": "1"})]) as endpoint:
        with pytest.raises(ProviderError, match="answered 529: busy") as caught:
            await hear(open_client(endpoint.url))
        assert len(endpoint.requests) == 4
    with model_endpoint([refuse(401, "the key sk-mine is wrong", code="invalid_api_key")]) as endpoint:
        with pytest.raises(ProviderError) as refused:
            await hear(open_client(endpoint.url))
        assert len(endpoint.requests) == 1
    with model_endpoint([refuse(429, "later", {"retry-after": "70"})]) as endpoint:
        with pytest.raises(ProviderError) as delayed:
            await hear(open_client(endpoint.url))
        assert len(endpoint.requests) == 1

    assert caught.value.status == 529
    assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")
    assert "sk-mine" not in str(refused.value) or open_client is bedrock
    assert (delayed.value.status, delayed.value.retry_after) == (429, 70.0)


@pytest.mark.parametrize("open_client", CLIENTS)
async def test_failures_are_reported_like_those_of_the_http_transport(
    no_aws_files: None, open_client: Callable[[str], Provider]
) -> None:
    moved = Raw((), 307, {"location": "http://elsewhere.test"})
    with model_endpoint([moved]) as endpoint, pytest.raises(ProviderError) as redirected:
        await hear(open_client(endpoint.url))
    with model_endpoint([Bytes(b"garbage\r\n\r\n")]) as endpoint, pytest.raises(ProviderError) as broken:
        await hear(open_client(endpoint.url))
    with pytest.raises(ProviderError) as absent:
        await hear(open_client(endpoint.url))
    page = Raw((b"<html><title>Sign in</title>",))
    with model_endpoint([page]) as endpoint, pytest.raises(ProviderError, match="Sign in"):
        await hear(open_client(endpoint.url))

    assert (redirected.value.code, redirected.value.status) == ("redirect", 307)
    assert broken.value.code == absent.value.code == "connection"
    assert "is the server running?" in str(absent.value)


async def test_a_silent_request_times_out_and_a_broken_stream_truncates_the_reply() -> None:
    from openai import AsyncOpenAI

    half = events({"choices": [{"delta": {"content": "Half a"}}]}, done=False, cut=True)
    with model_endpoint([half, Raw(hang=True)]) as endpoint:
        client = AsyncOpenAI(base_url=endpoint.url, api_key="k", timeout=3600)
        provider = OpenAIProvider(closed_later(client), "m", api="chat", quirks={"idle_timeout": 0.2})
        heard = await hear(provider)
        with pytest.raises(ProviderError) as silent:
            await hear(provider)

    assert (heard.text, heard.completion.finish) == ("Half a", FinishReason.CUT)
    assert silent.value.code == "timeout"


async def test_hooks_and_middleware_of_the_client_run_for_every_request() -> None:
    import anthropic

    seen: list[str] = []

    async def hook(request: Any) -> None:
        seen.append(request.headers["x-mine"])

    async def middleware(request: Any, call_next: Any) -> Any:
        seen.append("middleware")
        return await call_next(request)

    http_client = anthropic.DefaultAsyncHttpxClient(event_hooks={"request": [hook]})
    with model_endpoint([Say("Hello")]) as endpoint:
        provider = messages(
            endpoint.url, http_client=http_client, middleware=[middleware], default_headers={"x-mine": "7"}
        )
        assert (await hear(provider)).text == "Hello"

    assert seen == ["middleware", "7"]
    await http_client.aclose()


async def test_a_client_without_credentials_is_an_error_without_a_request() -> None:
    def no_token() -> str:
        raise RuntimeError("az login is needed")

    with model_endpoint([Say("Hello")]) as endpoint, pytest.raises(ProviderError, match="az login") as caught:
        await hear(azure(endpoint.url, azure_ad_token_provider=no_token))

    assert (caught.value.code, endpoint.requests) == ("client", [])


async def test_a_refused_version_is_not_sent_again() -> None:
    def answer(request: Recorded) -> Answer:
        version = request.headers["anthropic-version"]
        return Say("Hello") if version == OLDER_MESSAGES_VERSION else refuse(400, f"anthropic-version: {version}?")

    with model_endpoint([Say("Hello")]) as endpoint:
        endpoint.answer_to = answer
        provider = messages(endpoint.url)
        heard = await hear(provider)
        await hear(provider)

    versions = [request.headers["anthropic-version"] for request in endpoint.requests]
    assert heard.text == "Hello"
    assert versions == [NEWEST_MESSAGES_VERSION, OLDER_MESSAGES_VERSION, OLDER_MESSAGES_VERSION]


async def test_the_callers_client_stays_open() -> None:
    from openai import AsyncOpenAI

    with model_endpoint([Say("Hello")]) as endpoint:
        client = AsyncOpenAI(base_url=endpoint.url, api_key="k")
        async with DialClient(OpenAIProvider(client, "m")) as dial:
            assert (await dial.response("Hello?")).text == "Hello"
        assert not client.is_closed()
        await client.close()


async def test_an_unsupported_client_is_a_config_error() -> None:
    import anthropic
    import openai
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

    wrong: list[tuple[Callable[[], Provider], str]] = [
        (lambda: OpenAIProvider(openai.OpenAI(api_key="k"), "m"), "AsyncOpenAI"),  # type: ignore[arg-type]
        (lambda: OpenAIProvider(AsyncAnthropic(api_key="k"), "m"), "AsyncOpenAI"),  # type: ignore[arg-type]
        (lambda: OpenAIProvider(AsyncOpenAI(api_key="k"), "m", api="messages"), "'responses' or 'chat'"),
        (lambda: AnthropicProvider(AsyncOpenAI(api_key="k"), "m"), "AsyncAnthropicBedrock"),  # type: ignore[arg-type]
        (lambda: AnthropicProvider(anthropic.Anthropic(api_key="k"), "m"), "AsyncAnthropic"),  # type: ignore[arg-type]
        (lambda: OpenAIProvider(AsyncOpenAI(api_key="k"), "m", quirks={"samplin": False}), '"sampling"'),
    ]
    for open_wrong, hint in wrong:
        with pytest.raises(ConfigError) as caught:
            open_wrong()
        assert hint in f"{caught.value} {caught.value.hint}"
