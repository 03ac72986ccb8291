"""Keys stay at home: what a request carries is read from its bytes."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client.providers import open_provider
from dial_client.providers.chat import DialProvider
from dial_client.providers.endpoint import Endpoint
from dial_client.providers.profile import Profile
from tests.endpoints import Recorded, Say, hear, model_endpoint
from tests.test_providers_opening import endpoint_of, opened, settings

AZURE = Profile(key_header="api-key", api_version="2026-01-01")


@pytest.fixture
def anyio_backend() -> str:
    """The vendors' SDKs need asyncio."""
    return "asyncio"


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
async def test_no_other_key_of_the_users_reaches_a_third_party(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_a_key_reaches_the_address_the_environment_names_for_it(
    model: str, header: str, value: str, path: str
) -> None:
    sent = await sent_by(model)

    assert sent.headers[header] == value
    assert sent.path == path
    assert sent.json["model"] == model.partition(":")[2]
    assert sent.head.count(b"leak") == 1


@pytest.mark.anyio
async def test_dial_is_asked_as_the_azure_client_asks_it() -> None:
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


def test_the_vendors_own_hosts_get_what_the_environment_sets_for_them() -> None:
    openai_headers = endpoint_of(opened("openai:m", SECRETS)).headers
    anthropic_headers = endpoint_of(opened("anthropic:m", SECRETS)).headers

    assert openai_headers["authorization"] == "Bearer leak-1"
    assert openai_headers["openai-organization"] == "leak-3"
    assert openai_headers["openai-project"] == "leak-4"
    assert openai_headers["x-custom"] == "leak-5"
    assert anthropic_headers["x-custom"] == "leak-11"
    assert "leak" not in repr(endpoint_of(opened("openai:m", SECRETS)))
