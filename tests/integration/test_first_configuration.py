"""`dial-chat init`: the models and servers that it finds, and the file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner import (
    ConfigError,
    Endpoint,
    ModelProposal,
    ModelSource,
    ServerProposal,
    choose_by_name,
    choose_servers,
    find_credit_problem,
    find_offers,
    find_proposals,
    format_configuration,
    list_local_servers,
    list_served_models,
    model_checks,
    name_profile,
    parse,
    pin_address,
    try_endpoint,
)
from tests.support.json_service import json_service
from tests.support.model_endpoint import Raw, Recorded, model_endpoint, one_json, refuse

pytestmark = pytest.mark.anyio


NO_SERVERS = {"DIAL_LOCAL_SERVERS": ""}


async def test_models_of_local_servers_are_offered_with_their_addresses() -> None:
    listed = {"data": [{"id": "qwen3:8b"}, {"id": "nomic-embed-text"}, {"id": "\x1b[2J"}]}
    with json_service({"/v1/models": listed}) as good, json_service({"/v1/models": b"<html>"}) as odd:
        servers = f"ollama={good.url}/v1,lmstudio={odd.url}/v1,llama.cpp=http://127.0.0.1:9/v1,vllm={good.url}/v1"
        offers = await find_offers({"DIAL_LOCAL_SERVERS": servers}, 0)
    found = [row for row in offers.rows if isinstance(row, ModelProposal) and row.name != "local"]
    assert [(row.name, row.about) for row in found] == [
        ("qwen3-8b", "Ollama on this machine"),
        ("qwen3-8b", "vLLM on this machine"),
    ]
    assert found[1].profile == {"preset": "vllm", "base_url": f"{good.url}/v1", "model": "qwen3:8b"}
    assert offers.usual == found[0]


async def test_a_model_of_ollama_at_its_own_address_needs_no_profile() -> None:
    with json_service({"/v1/models": {"data": [{"id": "qwen3:8b"}]}}) as ollama:
        server = list_local_servers({"OLLAMA_HOST": ollama.url})[0]
        assert await list_served_models(server) == [ModelProposal("ollama:qwen3:8b", "Ollama on this machine")]


async def test_a_key_is_tried_with_one_request_before_its_models_are_offered() -> None:
    listed = {"data": [{"id": f"m{number}"} for number in range(9)]}
    with json_service({"/v1/models": listed}) as good:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{good.url}/v1", **NO_SERVERS}
        offers = await find_offers(environ, 0)
        assert good.requests == ["/v1/models"]
    first, second, third, more = offers.rows[:4]
    assert [row.name for row in (first, second, third)] == ["chat:m0", "chat:m1", "chat:m2"]
    assert isinstance(more, ModelSource) and len(more.models) == 6
    assert ("anthropic", "needs ANTHROPIC_API_KEY") in offers.unusable


async def test_a_key_that_is_refused_or_not_answered_is_named_and_not_offered() -> None:
    refused = refuse(401, "no such key")
    with model_endpoint([refused], refused) as endpoint:
        keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
        offers = await find_offers({**keys, "ANTHROPIC_BASE_URL": endpoint.url, **NO_SERVERS}, 0)
    problems = dict(offers.unusable)
    assert "refuses the key in ANTHROPIC_API_KEY" in problems["anthropic"]
    assert "127.0.0.1:9" in problems["openai"]
    assert [row.name for row in offers.rows if row.name != "local"] == ["another endpoint"]


LISTED = one_json({"data": [{"id": "m"}]})


@pytest.mark.parametrize(
    ("listing", "count", "problem"),
    [
        (LISTED, refuse(400, "Your credit balance is too low."), "credit balance is too low"),
        (LISTED, one_json({"input_tokens": 9}), ""),
        (LISTED, refuse(404), ""),
        (LISTED, refuse(429, "slow down"), ""),
        (refuse(402, "pay"), refuse(404), "answered 402: pay"),
        (refuse(429, "You exceeded your current quota."), refuse(404), "You exceeded your current quota"),
        (refuse(500, "broken"), refuse(404), "answered 500: broken"),
    ],
)
async def test_a_key_for_which_nobody_pays_is_not_offered(listing: Raw, count: Raw, problem: str) -> None:
    with model_endpoint([listing], listing) as endpoint:

        def answer(request: Recorded) -> Raw:
            return count if request.path.endswith("/v1/messages/count_tokens") else listing

        endpoint.answer_to = answer
        endpoint.answers_lookups = True
        environ = {"ANTHROPIC_API_KEY": "sesame", "ANTHROPIC_BASE_URL": endpoint.url, **NO_SERVERS}
        offers = await find_offers(environ, 0)
        found = await model_checks.find_model_problems("anthropic:m", {}, environ)
    assert problem in dict(offers.unusable).get("anthropic", "")
    assert ("anthropic:m" in [row.name for row in offers.rows]) is not bool(problem)
    assert ("DC516" in [finding.code for finding in found]) is (problem not in ("", "answered 500: broken"))


@pytest.mark.parametrize(("left", "is_used_up"), [(0, True), (-1.5, True), (3, False), (None, False)])
async def test_the_limit_of_a_key_that_is_used_up_is_seen(left: float | None, is_used_up: bool) -> None:
    with json_service({"/v1/key": {"data": {"limit_remaining": left}}}) as service:
        endpoint = Endpoint(f"{service.url}/v1")
        problem = await find_credit_problem(endpoint, "m", has_key_limits=True)
        assert await find_credit_problem(endpoint, "m") == "", "nothing is asked of other vendors"
    assert service.requests == ["/v1/key"]
    assert ("limit of the key is used up" in problem) is is_used_up


async def test_the_demonstration_is_last_and_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for memory, larger in ((16e9, "4 B"), (5e9, "1.7 B"), (2e9, None)):
        offers = await find_offers(NO_SERVERS, int(memory))
        *_, demonstration = offers.rows
        assert (demonstration.name, offers.usual) == ("local", demonstration)
        assert "a demonstration that needs no key" in demonstration.about and "491 MB" in demonstration.about
        hub = [row for row in offers.rows if row.name.startswith("local:hf:")]
        assert [row.about[: len(larger or "")] for row in hub] == ([larger] if larger else [])
        for row in hub:
            assert "GB (about" in row.about and "an answer takes about" in row.about


async def test_local_servers_have_their_usual_addresses() -> None:
    assert [server.url for server in list_local_servers({})] == [
        *("http://127.0.0.1:11434/v1", "http://127.0.0.1:1234/v1", "http://127.0.0.1:8080/v1"),
        "http://127.0.0.1:8000/v1",
    ]
    assert list_local_servers({"OLLAMA_HOST": "http://box:1/"})[0].url == "http://box:1/v1"
    assert list_local_servers(NO_SERVERS) == ()
    for wrong in ("vlm=http://127.0.0.1:1/v1", "vllm", "vllm=127.0.0.1"):
        with pytest.raises(ConfigError, match="DIAL_LOCAL_SERVERS"):
            list_local_servers({"DIAL_LOCAL_SERVERS": wrong})


def test_the_address_of_ollama_is_that_of_its_models() -> None:
    for host, url in (("box", "http://box:11434/v1"), ("0.0.0.0", "http://127.0.0.1:11434/v1")):
        assert list_local_servers({"OLLAMA_HOST": host})[0].url == url
    assert "ollama" not in [server.preset for server in list_local_servers({"OLLAMA_HOST": "http://box:x"})]


@pytest.mark.parametrize(
    ("model", "environ", "profile"),
    [
        ("chat:fake-1", {}, {}),
        ("chat:fake-1", {"OPENAI_BASE_URL": "https://api.openai.com/v1"}, {}),
        (
            "chat:fake-1",
            {"OPENAI_BASE_URL": "http://box:1/v1", "OPENAI_API_KEY": "secret"},
            {"api": "chat", "base_url": "http://box:1/v1", "model": "fake-1", "api_key": "${OPENAI_API_KEY}"},
        ),
        (
            "anthropic:c",
            {"ANTHROPIC_BASE_URL": "http://box:1"},
            {"api": "messages", "base_url": "http://box:1", "model": "c"},
        ),
        (
            "ollama:q:8b",
            {"OLLAMA_HOST": "box"},
            {"preset": "ollama", "base_url": "http://box:11434/v1", "model": "q:8b"},
        ),
        ("local", {"OPENAI_BASE_URL": "http://box:1/v1"}, {}),
    ],
)
def test_an_address_of_the_environment_becomes_a_profile_without_the_key(
    model: str, environ: dict[str, str], profile: dict[str, str]
) -> None:
    assert pin_address(model, environ) == profile


async def test_the_trial_of_an_endpoint_finds_its_models_and_its_api() -> None:
    listed = one_json({"data": [{"id": "b"}, {"id": "a"}]})
    with model_endpoint([refuse(400, "model is missing")], listed) as endpoint:
        trial = await try_endpoint(f"{endpoint.url}/v1")
        assert (trial.ids, trial.problem) == (("a", "b"), "")
        assert trial.propose("a", "BOX_KEY").profile == {
            "base_url": f"{endpoint.url}/v1",
            "model": "a",
            "api_key": "${BOX_KEY}",
        }
    with model_endpoint([refuse(401)], refuse(401)) as endpoint:
        trial = await try_endpoint(f"{endpoint.url}/v1")
        assert trial.refuses_key and "needs a key" in trial.problem
    with model_endpoint([refuse(404)]) as endpoint:
        assert "usually ends in /v1" in (await try_endpoint(endpoint.url)).problem
    assert (await try_endpoint("http://127.0.0.1:9/v1")).problem


@pytest.mark.parametrize(
    ("model", "name"),
    [("openai/gpt-oss-120b", "gpt-oss-120b"), ("qwen3:8b", "qwen3-8b"), ("local", "endpoint"), ("/:", "endpoint")],
)
def test_a_profile_is_named_after_its_model(model: str, name: str) -> None:
    assert name_profile(model) == name


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
