"""The model of the program if neither an option nor the configuration names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner import ConfigError, Options, parse, with_default_model
from tests.support.json_service import json_service
from tests.support.program import dial_chat
from tests.support.screens import screen

pytestmark = pytest.mark.anyio
NO_SERVER = {"DIAL_LOCAL_SERVERS": ""}


async def test_a_named_model_is_kept() -> None:
    settings = parse('{"defaultModel": "ollama:x"}')
    assert await with_default_model(Options(), settings, {"OPENAI_API_KEY": "k"}) is settings
    empty = parse("{}")
    assert await with_default_model(Options(model="ollama:x"), empty, {"OPENAI_API_KEY": "k"}) is empty


async def test_a_key_in_the_environment_chooses_the_model_of_its_provider() -> None:
    chosen = await with_default_model(Options(), parse("{}"), {"OPENAI_API_KEY": "k", **NO_SERVER})
    assert chosen.default_model == "openai:gpt-6-luna"


async def test_without_a_key_a_local_server_that_runs_is_used() -> None:
    with json_service({"/v1/models": {"data": [{"id": "qwen3:8b"}]}}) as ollama:
        environ = {"DIAL_LOCAL_SERVERS": f"ollama={ollama.url}/v1"}
        chosen = await with_default_model(Options(), parse("{}"), environ)
    assert chosen.default_model == "qwen3-8b"
    assert chosen.models["qwen3-8b"].base_url == f"{ollama.url}/v1"


async def test_an_endpoint_of_the_environment_is_asked_for_its_models() -> None:
    with json_service({"/v1/models": {"data": [{"id": "fake-1"}]}}) as endpoint:
        environ = {"OPENAI_BASE_URL": f"{endpoint.url}/v1", "OPENAI_API_KEY": "k", **NO_SERVER}
        chosen = await with_default_model(Options(), parse("{}"), environ)
    assert chosen.default_model == "chat:fake-1"


async def test_without_a_model_and_a_terminal_the_error_names_the_choices() -> None:
    with pytest.raises(ConfigError) as refused:
        await with_default_model(Options(), parse("{}"), NO_SERVER)
    for choice in ("-m local", "OPENAI_API_KEY", "Ollama"):
        assert choice in str(refused.value)


def test_the_embedded_model_is_not_used_unasked(tmp_path: Path) -> None:
    answered = dial_chat(tmp_path, "Hi")
    assert answered.returncode == 2
    assert "-m NAME" in answered.stderr


def test_in_a_terminal_the_user_is_asked(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["Good morning."]')
    with screen(tmp_path, "Hi", columns=120) as shown:
        shown.until("Which model answers?")
        shown.until("the name of any model")
        shown.type("scripted:replies.json\r")
        shown.until("Good morning.")
        assert shown.leave() == 0


def test_the_embedded_model_says_what_it_is_and_is_not_downloaded_at_an_empty_prompt(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    with screen(tmp_path, "-m", "local", columns=120, HF_HUB_OFFLINE="1") as shown:
        shown.until("local is a demonstration that needs no key")
        shown.until("model local (a demonstration)")
        shown.until("no servers, no tools")
        shown.type("\x04")
        assert shown.leave() == 0
        assert "downloading the model" not in shown.text
    assert not (tmp_path / "home" / "xdg_cache_home" / "dial-client" / "models").exists()
