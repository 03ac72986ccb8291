"""Models of cloud platforms by name: authentication, address, and errors for missing settings."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dial_client import ConfigError, ProviderError
from dial_client.extend import Provider
from tests.inner import Api, Message, ModelProfile, open_provider
from tests.support.aws_frames import frame_stream
from tests.support.model_endpoint import (
    Answer,
    ParsedReply,
    Raw,
    Recorded,
    Say,
    hear,
    model_endpoint,
    one_json,
    refuse,
    write_reply,
)

pytestmark = pytest.mark.anyio

HELLO = Say("Hello")
AS_MESSAGES = write_reply(HELLO, Recorded("POST", "/v1/messages", {}, b"", b'{"stream": true}'))
IN_FRAMES = Raw((frame_stream(AS_MESSAGES.chunks),), headers={"content-type": "application/vnd.amazon.eventstream"})
SETTING_PREFIXES = ("AWS_", "AZURE_", "OPENAI_", "ANTHROPIC_", "GOOGLE_", "CLOUD_ML", "IDENTITY_", "MSI_")


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that the vendors' clients support."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove all cloud credentials: the clouds' packages read environment variables and files of the home folder."""
    import os

    for name in [name for name in os.environ if name.startswith(SETTING_PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@asynccontextmanager
async def opened(
    model: str, environ: Mapping[str, str], settings: ModelProfile | None = None, **options: Any
) -> AsyncIterator[Provider]:
    models = {settings.name: settings} if settings else {}
    provider = open_provider(model, environ=environ, models=models, **options)
    try:
        yield provider
    finally:
        await provider.aclose()


async def ask(
    model: str, environ: Mapping[str, str], settings: ModelProfile | None = None, **options: Any
) -> ParsedReply:
    async with opened(model, environ, settings, **options) as provider:
        return await hear(provider, Message.user("Hello?"))


async def test_an_azure_key_is_sent_in_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_endpoint([HELLO]) as endpoint:
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        environ = {"AZURE_OPENAI_ENDPOINT": endpoint.url, "AZURE_OPENAI_API_KEY": "key-1"}
        heard = await ask("azure:gpt-x", environ)
        profile = ModelProfile("mine", api=Api.CHAT, preset="azure", model="gpt-x")
        await ask("mine", environ | {"OPENAI_API_VERSION": "v9"}, profile)

    first, second = endpoint.requests
    assert heard.text == "Hello"
    assert first.path == "/openai/responses?api-version=2025-04-01-preview"
    assert second.path == "/openai/deployments/gpt-x/chat/completions?api-version=v9"
    assert first.headers["api-key"] == second.headers["api-key"] == "key-1"
    assert "authorization" not in first.headers
    assert "openai-organization" not in first.headers
    assert first.json["model"] == "gpt-x"


async def test_an_entra_id_token_is_sent_as_a_bearer_token() -> None:
    with model_endpoint([HELLO]) as endpoint:
        environ = {"AZURE_OPENAI_ENDPOINT": endpoint.url, "AZURE_OPENAI_AD_TOKEN": "token-1"}
        async with opened("azure:gpt-x", environ) as provider:
            await hear(provider)
            assert provider.info.secrets == ("token-1",)

    assert endpoint.requests[0].headers["authorization"] == "Bearer token-1"
    assert "api-key" not in endpoint.requests[0].headers


@pytest.mark.parametrize("cloud", ["azure", "foundry"])
async def test_without_a_key_the_managed_identity_authenticates(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint of the managed identity, which Azure provides to its machines, is on loopback."""
    token = {"access_token": "of-the-machine", "expires_on": "4102444800", "resource": "r", "token_type": "Bearer"}
    with model_endpoint([HELLO], described=one_json(token)) as endpoint:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{endpoint.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-1")
        environ = {"AZURE_OPENAI_ENDPOINT": endpoint.url, "ANTHROPIC_FOUNDRY_BASE_URL": f"{endpoint.url}/anthropic"}
        heard = await ask(f"{cloud}:m", environ)

    [lookup], [request] = endpoint.lookups, endpoint.requests
    assert heard.text == "Hello"
    assert lookup.path.endswith("cognitiveservices.azure.com" if cloud == "azure" else "ai.azure.com")
    assert lookup.headers["x-identity-header"] == "header-1"
    assert request.headers["authorization"] == "Bearer of-the-machine"
    assert request.path.startswith("/openai/responses?" if cloud == "azure" else "/anthropic/v1/messages")


async def test_a_foundry_key_is_sent_in_its_header() -> None:
    def answer(request: Recorded) -> Answer:
        is_newest = request.headers["anthropic-version"] == "2026-10-21"
        return refuse(400, "anthropic-version: 2026-10-21 is unknown") if is_newest else HELLO

    with model_endpoint([HELLO]) as endpoint:
        endpoint.answer_to = answer
        environ = {"ANTHROPIC_FOUNDRY_BASE_URL": f"{endpoint.url}/anthropic", "ANTHROPIC_FOUNDRY_API_KEY": "key-1"}
        heard = await ask("foundry:claude-x", environ | {"ANTHROPIC_API_KEY": "not-this"})

    assert heard.text == "Hello"
    assert [request.headers["api-key"] for request in endpoint.requests] == ["key-1", "key-1"]
    assert b"not-this" not in endpoint.requests[0].head


async def test_bedrock_requests_are_signed_with_aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-1")
    with model_endpoint([refuse(429, "slow", {"retry-after-ms": "1"}), IN_FRAMES]) as endpoint:
        environ = {"ANTHROPIC_BEDROCK_BASE_URL": endpoint.url, "AWS_REGION": "eu-west-1"}
        heard = await ask("bedrock:eu.anthropic.claude-x", environ)

    assert heard.text == "Hello"
    assert len(endpoint.requests) == 2
    for request in endpoint.requests:
        signed = request.headers["authorization"]
        assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-west-1/bedrock/aws4_request" in signed
        assert "x-amz-date" in signed
        assert request.headers["x-amz-security-token"] == "session-1"
        assert request.path == "/model/eu.anthropic.claude-x/invoke-with-response-stream"


async def test_a_bedrock_key_is_sent_as_a_bearer_token() -> None:
    with model_endpoint([IN_FRAMES]) as endpoint:
        environ = {"ANTHROPIC_BEDROCK_BASE_URL": endpoint.url, "AWS_BEARER_TOKEN_BEDROCK": "key-1", "AWS_REGION": "r"}
        assert (await ask("bedrock:m", environ)).text == "Hello"
        settings = ModelProfile("mine", preset="bedrock", model="m", base_url=endpoint.url, api_key="key-2")
        assert (await ask("mine", {"AWS_REGION": "r"}, settings)).text == "Hello"

    assert [request.headers["authorization"] for request in endpoint.requests] == ["Bearer key-1", "Bearer key-2"]


async def test_vertex_requests_have_a_token_of_google_default_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    token = one_json({"access_token": "of-google", "expires_in": 3600, "token_type": "Bearer"})
    with model_endpoint([HELLO]) as endpoint:
        endpoint.answer_to = lambda request: token if request.path == "/token" else AS_MESSAGES
        account = {"type": "service_account", "client_email": "a@b", "token_uri": f"{endpoint.url}/token"}
        path = tmp_path / "account.json"
        path.write_text(json.dumps(account | {"private_key": private.decode(), "project_id": "p"}), encoding="utf-8")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        environ = {
            "ANTHROPIC_VERTEX_BASE_URL": f"{endpoint.url}/v1",
            "CLOUD_ML_REGION": "global",
            "GOOGLE_CLOUD_PROJECT": "p",
        }
        heard = await ask("vertex:claude-x@20260101", environ)

    request = endpoint.requests[-1]
    assert heard.text == "Hello"
    assert request.headers["authorization"] == "Bearer of-google"
    assert request.path == (
        "/v1/projects/p/locations/global/publishers/anthropic/models/claude-x@20260101:streamRawPredict"
    )


async def test_missing_credentials_are_an_error_with_a_hint() -> None:
    with model_endpoint([HELLO]) as endpoint:
        environ = {"ANTHROPIC_BEDROCK_BASE_URL": endpoint.url, "AWS_REGION": "r"}
        with pytest.raises(ProviderError, match="Could not resolve AWS credentials") as caught:
            await ask("bedrock:m", environ)
        with pytest.raises(ProviderError, match="No AWS region"):
            await ask("bedrock:m", {"ANTHROPIC_BEDROCK_BASE_URL": endpoint.url})

    assert "aws configure" in str(caught.value)
    assert (caught.value.code, endpoint.requests) == ("client", [])


def test_missing_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = {"base_url": "https://elsewhere.test"}
    foundry = {"ANTHROPIC_FOUNDRY_API_KEY": "k"}
    missing: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
        ("azure:m", {"AZURE_OPENAI_API_KEY": "k"}, {}, "AZURE_OPENAI_ENDPOINT"),
        ("foundry:m", foundry, {}, "ANTHROPIC_FOUNDRY_RESOURCE"),
        ("vertex:m", {"GOOGLE_CLOUD_PROJECT": "p"}, {}, "CLOUD_ML_REGION"),
        ("vertex:m", {"CLOUD_ML_REGION": "global"}, {}, "ANTHROPIC_VERTEX_PROJECT_ID"),
        ("bedrock:", {}, {}, "bedrock:ID"),
        ("bedrok:m", {}, {}, "bedrock:m"),
        # Credentials are sent only to addresses of the cloud.
        ("azure:m", {"AZURE_OPENAI_API_KEY": "k"}, elsewhere, "AZURE_OPENAI_ENDPOINT"),
        ("foundry:m", foundry, {"base_url": "http://x.services.ai.azure.com"}, "ANTHROPIC_FOUNDRY_BASE_URL"),
        *(
            ("bedrock:m", {}, {"base_url": f"https://{host}"}, "ANTHROPIC_BEDROCK_BASE_URL")
            for host in (
                "bedrock-runtime.eu-west-1.amazonaws.com.elsewhere.test",
                "a1b2c3.execute-api.eu-west-1.amazonaws.com",
                "bedrock-runtime.s3.eu-west-1.amazonaws.com",
            )
        ),
    ]
    for host in (
        "bedrock-runtime.eu-west-1.amazonaws.com",
        "vpce-0a-1b.bedrock-runtime.eu-west-1.vpce.amazonaws.com",
        "bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
    ):
        assert open_provider("bedrock:m", environ={}, base_url=f"https://{host}") is not None, host
    for model, environ, options, hint in missing:
        with pytest.raises(ConfigError) as caught:
            open_provider(model, environ=environ, **options)
        assert hint in f"{caught.value} {caught.value.hint}", model
    for cloud, package in (("azure", "azure.identity"), ("bedrock", "botocore"), ("vertex", "google.auth")):
        monkeypatch.setitem(sys.modules, package, None)
        environ = {"AZURE_OPENAI_ENDPOINT": "https://a.test", "CLOUD_ML_REGION": "global", "GOOGLE_CLOUD_PROJECT": "p"}
        with pytest.raises(ConfigError, match=f"needs the extra '{cloud}'") as caught:
            open_provider(f"{cloud}:m", environ=environ)
        assert f"pip install 'dial-client[{cloud}]'" in str(caught.value.hint)
