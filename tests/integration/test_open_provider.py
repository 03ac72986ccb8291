"""Providers by model name: API, address, key, profile and preset."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    CHAT,
    PRESETS,
    UNKNOWN,
    Api,
    ChatProvider,
    ConfigError,
    DialProvider,
    Endpoint,
    EndpointProfile,
    HttpProvider,
    MessagesProvider,
    ModelProfile,
    ModelSettings,
    ResponsesProvider,
    ToolFormat,
    apply_quirks,
    find_preset_by_url,
    open_provider,
)
from tests.inner import endpoint_is_loopback as is_loopback

OPENAI_KEY = {"OPENAI_API_KEY": "sk-openai"}
ANTHROPIC_KEY = {"ANTHROPIC_API_KEY": "sk-anthropic"}
AZURE = EndpointProfile(key_header="api-key", api_version="2026-01-01")


def opened(model: str, environ: Mapping[str, str] | None = None, **options: Any) -> HttpProvider | DialProvider:
    provider = open_provider(model, environ=environ or {}, **options)
    assert isinstance(provider, HttpProvider | DialProvider)
    return provider


def endpoint_of(provider: HttpProvider | DialProvider) -> Endpoint:
    return provider.endpoint if isinstance(provider, HttpProvider) else provider._endpoint


def profile_of(provider: HttpProvider | DialProvider) -> EndpointProfile:
    return provider._profile if isinstance(provider, DialProvider) else provider._adaptation.profile


@pytest.mark.parametrize(
    ("model", "environ", "base_url", "kind", "address", "key"),
    [
        ("openai:gpt-6-luna", OPENAI_KEY, None, ResponsesProvider, "https://api.openai.com/v1", "sk-openai"),
        ("anthropic:claude-x", ANTHROPIC_KEY, None, MessagesProvider, "https://api.anthropic.com", "sk-anthropic"),
        ("anthropic:claude-x", {"ANTHROPIC_AUTH_TOKEN": "t"}, None, MessagesProvider, "https://api.anthropic.com", "t"),
        ("chat:gpt-6-luna", OPENAI_KEY, None, ChatProvider, "https://api.openai.com/v1", "sk-openai"),
        ("chat:m", OPENAI_KEY, "https://api.openai.com/v1/", ChatProvider, "https://api.openai.com/v1", "sk-openai"),
        (
            "chat:m",
            OPENAI_KEY,
            "https://eu.api.openai.com/v1",
            ChatProvider,
            "https://eu.api.openai.com/v1",
            "sk-openai",
        ),
        ("chat:m", OPENAI_KEY, "http://api.openai.com/v1", ChatProvider, "http://api.openai.com/v1", ""),
        (
            "chat:m",
            OPENAI_KEY,
            "https://api.openai.com.evil.test",
            ChatProvider,
            "https://api.openai.com.evil.test",
            "",
        ),
        ("chat:m", OPENAI_KEY, "https://evilapi.openai.com", ChatProvider, "https://evilapi.openai.com", ""),
        ("chat:m", OPENAI_KEY, "https://other.test/v1", ChatProvider, "https://other.test/v1", ""),
        ("openai:m", OPENAI_KEY, "https://other.test/v1", ResponsesProvider, "https://other.test/v1", ""),
        ("anthropic:m", ANTHROPIC_KEY, "https://other.test", MessagesProvider, "https://other.test", ""),
        ("chat:m", OPENAI_KEY, "http://127.0.0.1:8000/v1", ChatProvider, "http://127.0.0.1:8000/v1", ""),
        (
            "chat:m",
            OPENAI_KEY | {"OPENAI_BASE_URL": "https://gateway.test/v1"},
            None,
            ChatProvider,
            "https://gateway.test/v1",
            "sk-openai",
        ),
        (
            "openai:m",
            OPENAI_KEY | {"OPENAI_BASE_URL": "https://gateway.test/v1"},
            "https://gateway.test/v2",
            ResponsesProvider,
            "https://gateway.test/v2",
            "sk-openai",
        ),
        (
            "openai:m",
            OPENAI_KEY | {"OPENAI_BASE_URL": "https://gateway.test/v1"},
            "https://gateway.test:444/v1",
            ResponsesProvider,
            "https://gateway.test:444/v1",
            "",
        ),
        ("chat:m", {"OPENAI_BASE_URL": "http://gpu-box:8000/v1"}, None, ChatProvider, "http://gpu-box:8000/v1", ""),
        ("ollama:gpt-oss:20b", OPENAI_KEY, None, ChatProvider, "http://127.0.0.1:11434/v1", ""),
        (
            "dial:m",
            {"DIAL_URL": "https://dial.test/", "DIAL_API_KEY": "d"},
            None,
            DialProvider,
            "https://dial.test",
            "d",
        ),
        (
            "dial:m",
            {"DIAL_URL": "https://dial.test", "DIAL_API_KEY": "d"},
            "http://127.0.0.1:9",
            DialProvider,
            "http://127.0.0.1:9",
            "",
        ),
    ],
)
def test_a_model_name_selects_its_api_its_address_and_only_its_own_key(
    model: str, environ: Mapping[str, str], base_url: str | None, kind: type, address: str, key: str
) -> None:
    provider = opened(model, environ, base_url=base_url)

    assert type(provider) is kind
    assert provider.info.model == model.partition(":")[2]
    assert endpoint_of(provider).base_url == address
    assert endpoint_of(provider).key == key
    sent = endpoint_of(provider).headers
    assert any(key in value for value in sent.values()) if key else not any("sk-" in value for value in sent.values())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:1234", "http://127.0.0.1:1234/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:80", "http://127.0.0.1:80/v1"),
        (":1234", "http://127.0.0.1:1234/v1"),
        ("box", "http://box:11434/v1"),
        ("[::1]:5", "http://[::1]:5/v1"),
        ("[::]", "http://127.0.0.1:11434/v1"),
        ("http://box", "http://box:80/v1"),
        ("https://box/ollama/", "https://box:443/ollama/v1"),
        ("http://box:1/v1", "http://box:1/v1"),
    ],
)
def test_the_address_of_ollama_is_parsed_like_ollama_does(host: str, expected: str) -> None:
    assert endpoint_of(opened("ollama:qwen3.5", {"OLLAMA_HOST": host})).base_url == expected


def settings(**changes: Any) -> dict[str, ModelProfile]:
    fields: dict[str, Any] = {"name": "mine", "api": Api.CHAT, "base_url": "https://other.test/v1", "model": "m"}
    return {"mine": ModelProfile(**(fields | changes))}


def test_a_profile_has_its_own_address_key_and_model() -> None:
    profile = settings(
        api_key=" k\n", settings=ModelSettings(temperature=0.1, max_tokens=5), tool_format=ToolFormat.NATIVE
    )
    provider = opened("mine", OPENAI_KEY, models=profile)

    assert provider.info.model == "m"
    assert provider.info.name == "chat:m@other.test"
    assert dict(endpoint_of(provider).headers) == {"authorization": "Bearer k"}


@pytest.mark.parametrize(
    ("changes", "base_url", "address", "key"),
    [
        pytest.param({}, None, "https://other.test/v1", "", id="no key of its own: none"),
        pytest.param(
            {"api_key": "k"}, "http://127.0.0.1:1", "http://127.0.0.1:1", "k", id="another address, its own key"
        ),
        pytest.param({"base_url": None}, None, "https://api.openai.com/v1", "sk-openai", id="no address: the vendor's"),
        pytest.param({"base_url": None}, "https://x.test", "https://x.test", "", id="the base URL, and no key"),
        pytest.param(
            {"base_url": None, "api": Api.RESPONSES}, None, "https://api.openai.com/v1", "sk-openai", id="responses"
        ),
        pytest.param(
            {"base_url": "https://api.openai.com/v1"}, None, "https://api.openai.com/v1", "sk-openai", id="own"
        ),
    ],
)
def test_a_profiles_address_decides_which_key_it_gets(
    changes: Any, base_url: str | None, address: str, key: str
) -> None:
    provider = opened("mine", OPENAI_KEY, models=settings(**changes), base_url=base_url)

    assert endpoint_of(provider).base_url == address
    assert endpoint_of(provider).key == key


def test_an_azure_endpoint_is_a_profile_with_two_flags() -> None:
    quirks = {"key_header": "api-key", "api_version": "2026-01-01"}
    provider = opened("mine", models=settings(api_key="k", quirks=quirks))

    assert dict(endpoint_of(provider).headers) == {"api-key": "k"}
    assert dict(endpoint_of(provider).query) == {"api-version": "2026-01-01"}


@pytest.mark.parametrize(
    ("model", "environ", "options", "problem", "hint"),
    [
        ("openai:m", {}, {}, "openai:m needs a key", "set OPENAI_API_KEY"),
        ("openai:m", {"OPENAI_API_KEY": " "}, {}, "openai:m needs a key", "set OPENAI_API_KEY"),
        ("anthropic:m", OPENAI_KEY, {}, "anthropic:m needs a key", "set ANTHROPIC_API_KEY"),
        ("chat:m", {}, {}, "chat:m needs a key", "--base-url"),
        ("dial:m", {"DIAL_API_KEY": "k"}, {}, "dial:m has no address", "set DIAL_URL"),
        ("openai:", OPENAI_KEY, {}, "'openai:' has no model ID", "openai:ID"),
        ("openai: ", OPENAI_KEY, {}, "has no model ID", "openai:ID"),
        ("scripted:", {}, {}, "has no file name", "scripted:FILE"),
        ("opnai:m", {}, {}, "there is no model 'opnai:m'", "did you mean openai:m?"),
        ("olama:a:b", {}, {}, "there is no model", "did you mean ollama:a:b?"),
        ("claude-sonnet-5-5", {}, {}, "there is no model", "did you mean anthropic:claude-sonnet-5-5?"),
        ("gpt-6-luna", {}, {}, "there is no model", "did you mean openai:gpt-6-luna?"),
        ("locla", {}, {}, "there is no model", "did you mean local?"),
        ("mime", {}, {"models": settings()}, "there is no model", "did you mean mine?"),
        ("zzz", {}, {"models": settings()}, "there is no model", "mine"),
        ("", {}, {}, "there is no model ''", "openai:ID"),
        ("chat:m", {}, {"base_url": "127.0.0.1:8000"}, "the base URL is not an address", "http://"),
        ("chat:m", {}, {"base_url": "ftp://x"}, "not an address", "http://"),
        ("chat:m", {}, {"base_url": "http://x:99999"}, "not an address", "http://"),
        ("chat:m", {}, {"base_url": "http://a b"}, "not an address", "http://"),
        ("chat:m", {}, {"base_url": "http://user:sk-x@a"}, "the base URL contains a password", "separately"),
        ("chat:m", {"OPENAI_BASE_URL": "nowhere"}, {}, "OPENAI_BASE_URL is not an address", "http://"),
        ("ollama:m", {"OLLAMA_HOST": "http://x:99999"}, {}, "OLLAMA_HOST is not an address", "http://"),
        ("ollama:m", {"OLLAMA_HOST": "[::1"}, {}, "OLLAMA_HOST is not an address", "http://"),
        ("openai:m", {"OPENAI_API_KEY": "sk-\n\x00x"}, {}, "OPENAI_API_KEY contains a character", "copy the whole key"),
        ("openai:m", {"OPENAI_API_KEY": "sk-…"}, {}, "OPENAI_API_KEY contains a character", "copy the whole key"),
        ("local", {}, {"base_url": "http://127.0.0.1"}, "local models accept no base URL", "leave"),
        ("mine", {}, {"models": settings(quirks={"user_after_tol": True})}, "'user_after_tol'", '"user_after_tool"'),
        (
            "mine",
            {},
            {"models": settings(quirks={"sampling": "yes"})},
            "models.mine.sampling: expected true or false",
            "",
        ),
        (
            "mine",
            {},
            {"models": settings(quirks={"parallel": "yes"})},
            'parallel: expected one of "omit", "send_true"',
            "",
        ),
        ("mine", {}, {"models": settings(base_url=None)}, "models.mine needs a key", "OPENAI_API_KEY"),
        ("mine", {}, {"models": settings(preset="grok")}, "models.mine: there is no preset 'grok'", "'groq'"),
        ("mine", {}, {"models": settings(preset="x")}, "there is no preset 'x'", "ollama"),
        ("mine", {}, {"models": settings(preset="dial", base_url=None)}, "has no address", "set DIAL_URL"),
    ],
)
def test_mistakes_are_reported_in_one_line_with_a_hint(
    model: str, environ: Mapping[str, str], options: Any, problem: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_provider(model, environ=environ, **options)

    assert problem in caught.value.problem
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)
    assert "sk-" not in str(caught.value)


def test_a_flag_of_every_kind_can_be_set() -> None:
    quirks: dict[str, Any] = {
        "key_header": "x-api-key",
        "headers": {"X-Team": "a"},
        "extra_body": {"seed": 1},
        "idle_timeout": 5,
        "tools": "text",
        "tool_name_re": "[a-z]+",
        "tool_name_len": 32,
        "schema_dialect": "gemini",
        "max_tokens": 7,
        "max_tokens_field": "max_completion_tokens",
        "sampling": False,
        "parallel": "false",
        "tool_content": "parts",
        "reasoning_in": ["thoughts"],
        "echo_reasoning": "always",
    }
    profile = apply_quirks(CHAT, quirks, "models.m")

    assert {name: getattr(profile, name) for name in quirks} == quirks | {"reasoning_in": ("thoughts",)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", True),
        ("idle_timeout", 0),
        ("reasoning_in", "text"),
        ("headers", {"a": []}),
        ("headers", {"a b": "c"}),
        ("tools", "never"),
        ("schema_dialect", "latin"),
        ("tool_name_re", "("),
        ("tool_name_re", 7),
        ("tool_name_len", 3),
        ("tool_name_len", True),
    ],
)
def test_a_flag_with_a_wrong_value_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"models.m.{name}"):
        apply_quirks(CHAT, {name: value}, "models.m")


def test_the_flag_forced_choice_is_on_by_default() -> None:
    assert apply_quirks(CHAT, {"forced_choice": True}, "models.m") == CHAT
    assert apply_quirks(CHAT, {"forced_choice": False}, "models.m") != CHAT


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://API.Mistral.AI/v1", "mistral"),
        ("https://api.mistral.ai./v1", "mistral"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("https://mine.services.ai.azure.com/openai/v1", "azure"),
        ("https://mine.cognitiveservices.azure.com/openai/v1", "azure"),
        ("https://api.deepseek.com/anthropic", "deepseek"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini"),
        ("https://api.anthropic.com", "anthropic"),
    ],
)
def test_a_preset_is_selected_by_host_name(url: str, name: str) -> None:
    assert find_preset_by_url(url) is PRESETS[name]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.test/v1",
        "https://notapi.mistral.ai",
        "https://api.mistral.ai.example.test",
        "http://127.0.0.1:11434/v1",
        "http://localhost:8000/v1",
    ],
)
def test_no_preset_is_selected_by_a_port_or_a_partial_host_name(url: str) -> None:
    assert find_preset_by_url(url) is UNKNOWN


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_profile_may_name_its_preset(name: str) -> None:
    changes = {"preset": name, "api": None, "base_url": None if PRESETS[name].url else "https://other.test"}
    provider = opened("mine", OPENAI_KEY | ANTHROPIC_KEY, models=settings(**changes))

    assert endpoint_of(provider).base_url == (PRESETS[name].url or "https://other.test")
    wire = Api(getattr(provider, "api", "chat"))
    assert wire == PRESETS[name].api
    assert profile_of(provider) == PRESETS[name].get_profile(wire)


def test_flags_and_api_of_a_profile_override_its_preset() -> None:
    changes = {"preset": "groq", "api": Api.RESPONSES, "quirks": {"parallel": "false"}}
    provider = opened("mine", models=settings(**changes))

    assert type(provider) is ResponsesProvider
    assert profile_of(provider).parallel == "false"


def test_a_preset_that_needs_an_address_is_an_error_without_it() -> None:
    with pytest.raises(ConfigError, match=r"models\.mine has no address") as caught:
        opened("mine", models=settings(preset="azure", base_url=None))

    assert caught.value.hint == "set AZURE_OPENAI_ENDPOINT, or set a base URL"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.8.9.10", True),
        ("http://[::1]", True),
        ("http://localhost:1/v1", True),
        ("http://a.localhost", True),
        ("http://localhost.evil.test", False),
        ("http://10.0.0.1", False),
        ("http://0.0.0.0", False),
    ],
)
def test_loopback_is_distinguished_from_other_addresses(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


def test_importing_the_providers_loads_no_sdk() -> None:
    heavy = "openai anthropic httpx2 pydantic jiter mcp sqlalchemy"
    code = f"import sys, dial_client.providers; print([name for name in {heavy.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_opening_a_provider_loads_no_sdk() -> None:
    code = (
        "import sys; from dial_client.providers import open_provider\n"
        "for model in ('openai:m', 'anthropic:m', 'chat:m'): open_provider(model, base_url='http://127.0.0.1')\n"
        "print([name for name in ('openai', 'anthropic', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_scripted_model_is_opened_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('["Hello"]')

    assert open_provider(f"scripted:{tmp_path / 's.json'}").info.name == "scripted"
