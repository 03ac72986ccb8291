"""`dial-chat init`: the models and servers that it finds, and the file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner import (
    ConfigError,
    LocalServer,
    ModelProposal,
    ServerProposal,
    choose_by_name,
    choose_servers,
    find_models,
    find_proposals,
    format_configuration,
    list_local_servers,
    parse,
)
from tests.support.json_service import json_service
from tests.support.program import LONG

pytestmark = pytest.mark.anyio


async def test_models_are_found_by_api_keys_and_by_local_servers() -> None:
    listed = {"data": [{"id": "qwen3:8b"}, {"id": "nomic-embed-text"}, {"id": "\x1b[2J"}]}
    with json_service({"/v1/models": listed}) as good, json_service({"/v1/models": b"<html>"}) as odd:
        servers = [
            LocalServer("Ollama", "ollama", f"{good.url}/v1"),
            LocalServer("LM Studio", "lmstudio", f"{odd.url}/v1"),
            LocalServer("llama.cpp", "llama.cpp", "http://127.0.0.1:9/v1"),
            LocalServer("vLLM", "vllm", f"{good.url}/v1"),
        ]
        found = await find_models(servers, {"OPENAI_API_KEY": "k"}, LONG)
    assert [(proposal.name, proposal.about) for proposal in found if proposal.name != "local"] == [
        ("openai:gpt-6-luna", "OPENAI_API_KEY is set"),
        ("ollama:qwen3:8b", "Ollama on this machine"),
        ("vllm", "vLLM on this machine: qwen3:8b"),
    ]
    assert found[2].profile == {"preset": "vllm", "model": "qwen3:8b"}


async def test_local_servers_have_their_usual_addresses() -> None:
    assert [server.url for server in list_local_servers({})] == [
        *("http://127.0.0.1:11434/v1", "http://127.0.0.1:1234/v1", "http://127.0.0.1:8080/v1"),
        "http://127.0.0.1:8000/v1",
    ]
    assert list_local_servers({"OLLAMA_HOST": "http://box:1/"})[0].url == "http://box:1/v1"


def test_the_address_of_ollama_is_that_of_its_models() -> None:
    for host, url in (("box", "http://box:11434/v1"), ("0.0.0.0", "http://127.0.0.1:11434/v1")):
        assert list_local_servers({"OLLAMA_HOST": host})[0].url == url
    assert "ollama" not in [server.preset for server in list_local_servers({"OLLAMA_HOST": "http://box:x"})]


async def test_the_written_file_is_a_configuration_with_comments() -> None:
    servers = [
        ServerProposal("time", "The time.\n  // not a line of its own", {"command": "x", "autoApprove": ["*"]}),
        ServerProposal('a"b', "Quoted.", {"url": "https://x.example/mcp"}),
    ]
    model = ModelProposal("vllm", "", {"preset": "vllm", "model": "q"})
    for text in (
        format_configuration(servers, model),
        format_configuration(servers, None),
        format_configuration([], None),
    ):
        read = parse(text)
        assert list(read.servers) in ([server.name for server in servers], [])
        assert read.default_model in ("vllm", None)
        assert text.count("//") >= 1 + len(read.servers)


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("", ["a"]),
        ("all", ["a", "b", "c"]),
        ("none", []),
        ("2", ["b"]),
        ("3, 1", ["a", "c"]),
        ("1-2 c", ["a", "b", "c"]),
        ("4", None),
        ("0", None),
        ("2-1", None),
        ("yes", None),
    ],
)
async def test_servers_are_chosen_by_numbers_ranges_and_names(answer: str, names: list[str] | None) -> None:
    proposals = [ServerProposal(name, "", {"command": name}, is_default=name == "a") for name in "abc"]
    chosen = choose_servers(answer, proposals)
    assert (None if chosen is None else [proposal.name for proposal in chosen]) == names


async def test_a_server_of_one_folder_is_not_proposed_for_all_folders(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    here = [proposal.name for proposal in find_proposals(tmp_path, in_user_folder=False)]
    everywhere = [proposal.name for proposal in find_proposals(tmp_path, in_user_folder=True)]
    assert "git" in here and "git" not in everywhere
    assert "time" in here and "time" in everywhere
    with pytest.raises(ConfigError, match='did you mean "time"'):
        choose_by_name(["tiem"], find_proposals(tmp_path, in_user_folder=False))


async def test_arguments_of_servers_from_other_programs_are_not_shown() -> None:
    assert ServerProposal("a", "", {"command": "npx", "args": ["-y", "pkg", "--key", "secret"]}).command == "npx pkg"
    assert ServerProposal("a", "", {"command": "node", "args": ["secret"]}).command == "node"
    assert ServerProposal("a", "", {"url": "https://u:secret@x.example/secret"}).command == "x.example"
