"""API keys are sent only to the endpoints that they belong to, checked in the bytes of the requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import PRESETS, Api, DialProvider, Endpoint, EndpointProfile, ToolSpec, open_provider
from tests.integration.test_open_provider import endpoint_of, opened, settings
from tests.support.model_endpoint import Recorded, Say, hear, model_endpoint

AZURE = EndpointProfile(key_header="api-key", api_version="2026-01-01")


SECRETS = {
    "OPENAI_API_KEY": "leak-1",
    "OPENAI_ADMIN_KEY": "leak-2",
    "OPENAI_ORG_ID": "leak-3",
    "OPENAI_PROJECT_ID": "leak-4",
    "OPENAI_CUSTOM_HEADERS": "X-Custom: leak-5\nAuthorization: Bearer leak-6\nUser-Agent: leak-7\nHost: leak-8",
    "ANTHROPIC_API_KEY": "leak-9",
    "ANTHROPIC_AUTH_TOKEN": "leak-10",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Custom: leak-11\nX-Api-Key: leak-12\nanthropic-beta: leak-13",
    "AZURE_OPENAI_API_KEY": "leak-14",
    "AZURE_OPENAI_AD_TOKEN": "leak-15",
    "DIAL_API_KEY": "leak-16",
}


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["openai:m", "anthropic:m", "chat:m", "ollama:m", "dial:m", "mine"])
async def test_a_request_contains_no_other_key_of_the_environment(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = open_provider(model, models=settings(api_key="mine"), base_url=endpoint.url)
        await hear(provider)
        await provider.aclose()

    sent = endpoint.requests[0]
    assert b"leak" not in sent.head + sent.body
    assert sent.headers["host"] == endpoint.url.removeprefix("http://")
    names = {"host", "accept", "accept-encoding", "user-agent", "content-type", "content-length"}
    own = {"anthropic": {"authorization", "anthropic-version"}, "dial": {"api-key"}}
    assert set(sent.headers) == names | own.get(model.partition(":")[0], {"authorization"})


async def sent_by(model: str, **options: Any) -> Recorded:
    with model_endpoint([Say("Hi")]) as endpoint:
        variables = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "dial": "DIAL_URL"}
        environ = SECRETS | {variables[model.partition(":")[0]]: endpoint.url}
        provider = open_provider(model, environ=environ, **options)
        await hear(provider)
        await provider.aclose()
    return endpoint.requests[0]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "header", "value", "path"),
    [
        ("openai:m", "authorization", "Bearer leak-1", "/responses"),
        ("anthropic:m", "authorization", "Bearer leak-9", "/v1/messages"),
        (
            "dial:applications/abc/my app",
            "api-key",
            "leak-16",
            "/openai/deployments/applications%2Fabc%2Fmy%20app/chat/completions?api-version=2025-04-01-preview",
        ),
    ],
)
async def test_a_key_is_sent_to_the_address_of_its_environment_variable(
    model: str, header: str, value: str, path: str
) -> None:
    sent = await sent_by(model)

    assert sent.headers[header] == value
    assert sent.path == path
    assert sent.json["model"] == model.partition(":")[2]
    assert sent.head.count(b"leak") == 1


VENDORS_KEYS = {
    f"{vendor}_API_KEY": f"leak-of-{vendor}"
    for vendor in ("AZURE", "DEEPSEEK", "GEMINI", "GOOGLE", "GROQ", "KIMI", "MISTRAL", "MOONSHOT", "OPENROUTER", "VLLM")
}


@pytest.mark.anyio
@pytest.mark.parametrize("wire", list(Api))
@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_with_every_preset_and_api_only_the_key_of_the_profile_is_sent(
    preset: str, wire: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (SECRETS | VENDORS_KEYS).items():
        monkeypatch.setenv(name, value)
    with model_endpoint([Say("Hi")]) as endpoint:
        for key in ("mine", None):
            models = settings(preset=preset, api=wire, base_url=endpoint.url, api_key=key)
            provider = open_provider("mine", models=models)
            await hear(provider, tools=(ToolSpec("now", "", {"type": "object"}),))
            await provider.aclose()

    sent = [*endpoint.requests, *endpoint.lookups]
    assert not [request for request in sent if b"leak" in request.head + request.body]
    own = {"api-key"} if preset in ("azure", "dial") else {"authorization"}
    own = {"x-api-key"} if (preset, wire) == ("azure", Api.MESSAGES) else own
    usual = {"host", "accept", "accept-encoding", "user-agent", "content-type", "content-length", "connection"}
    version = {"anthropic-version"} if wire is Api.MESSAGES else set()
    for request in endpoint.requests:
        assert set(request.headers) - usual == own | version
    for request in endpoint.lookups:
        assert set(request.headers) - usual == own
    first, second = endpoint.requests
    assert first.headers[next(iter(own))].endswith("mine")
    assert second.headers[next(iter(own))].endswith("not-needed")


def test_undocumented_key_variables_of_vendors_are_not_read() -> None:
    profiles = settings(preset="groq", base_url=None)

    assert endpoint_of(opened("mine", SECRETS | VENDORS_KEYS, models=profiles)).key == ""


@pytest.mark.parametrize(("preset", "wire", "url"), [("anthropic", Api.CHAT, None), ("openai", Api.MESSAGES, None)])
def test_a_vendors_host_never_gets_settings_of_another_vendor(preset: str, wire: Api, url: None) -> None:
    headers = endpoint_of(opened("mine", SECRETS, models=settings(preset=preset, api=wire, base_url=url))).headers

    foreign = {
        "openai": ("leak-9", "leak-11", "leak-12", "leak-13"),
        "anthropic": ("leak-1", "leak-3", "leak-4", "leak-5"),
    }
    for secret in foreign[preset]:
        assert not [value for value in headers.values() if value.endswith(secret)]


@pytest.mark.anyio
async def test_requests_to_dial_are_those_of_the_azure_client() -> None:
    import openai

    with model_endpoint([Say("Hi")]) as endpoint:
        client = openai.AsyncAzureOpenAI(azure_endpoint=endpoint.url, api_version=AZURE.api_version, api_key="k")
        await client.chat.completions.create(model="a/b c", messages=[{"role": "user", "content": "Hi"}])
        await client.close()
        profile = Endpoint(endpoint.url, {"api-key": "k"}, {"api-version": AZURE.api_version})
        provider = DialProvider("a/b c", profile, AZURE)
        await hear(provider)
        await provider.aclose()

    theirs, ours = endpoint.requests
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
    assert ours.headers["api-key"] == theirs.headers["api-key"]
    assert "authorization" not in ours.headers
    assert ours.json["model"] == theirs.json["model"]


def test_hosts_of_vendors_get_their_settings_of_the_environment() -> None:
    openai_headers = endpoint_of(opened("openai:m", SECRETS)).headers
    anthropic_headers = endpoint_of(opened("anthropic:m", SECRETS)).headers

    assert openai_headers["authorization"] == "Bearer leak-1"
    assert openai_headers["openai-organization"] == "leak-3"
    assert openai_headers["openai-project"] == "leak-4"
    assert openai_headers["x-custom"] == "leak-5"
    assert anthropic_headers["x-custom"] == "leak-11"
    assert "leak" not in repr(endpoint_of(opened("openai:m", SECRETS)))
