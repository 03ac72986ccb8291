"""Several configuration files are combined, and a profile selects from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    ConfigError,
    ConfigFile,
    Settings,
    build_user_config_path,
    combine,
    list_written_values,
    load_config,
    parse,
    to_document,
)

TIME, GIT = {"command": "mcp-server-time"}, {"command": "mcp-server-git"}


def file(name: str, content: dict[str, Any]) -> ConfigFile:
    return ConfigFile(json.dumps(content), name, environ={})


def read(content: dict[str, Any], profile: str | None = None) -> Settings:
    return parse(json.dumps(content), environ={}, profile=profile)


def test_servers_of_both_files_are_used_and_the_later_file_replaces_entries_of_the_same_name() -> None:
    user = file("user.json", {"mcpServers": {"time": {**TIME, "autoApprove": ["*"]}, "git": GIT}})
    folder = file("folder.json", {"mcpServers": {"time": {"command": "other-time"}}})
    settings = combine((user, folder))
    assert {name: server.command for name, server in settings.servers.items()} == {
        "time": "other-time",
        "git": "mcp-server-git",
    }
    assert settings.servers["time"].auto_approve == ()
    assert settings.path == Path("folder.json")
    assert settings.sources == (Path("folder.json"), Path("user.json"))


def test_the_default_model_of_the_later_file_replaces_that_of_the_earlier_file() -> None:
    user = file("user.json", {"defaultModel": "openai:a", "models": {"mine": {"model": "b"}}})
    assert combine((user, file("f.json", {"defaultModel": "local"}))).default_model == "local"
    merged = combine((user, file("f.json", {"models": {"yours": {"model": "c"}}})))
    assert merged.default_model == "openai:a"
    assert list(merged.models) == ["mine", "yours"]


def test_fallback_models_apply_only_to_the_default_model_of_the_same_file() -> None:
    user = {"defaultModel": "openai:a", "fallbackModels": ["openai:b", "local"]}
    assert combine((file("user.json", user),)).find_fallback_models(None) == ("openai:b", "local")
    assert combine((file("user.json", user),)).find_fallback_models("openai:a") == ("openai:b", "local")
    assert combine((file("user.json", user),)).find_fallback_models("local") == ()
    for folder, found in (
        ({}, ("openai:b", "local")),
        ({"fallbackModels": ["${HOST}:c"]}, ("ollama:c",)),
        ({"fallbackModels": []}, ()),
        ({"fallbackModels": None}, ("openai:b", "local")),
        ({"defaultModel": "ollama:d"}, ()),
        ({"defaultModel": "ollama:d", "fallbackModels": ["ollama:e"]}, ("ollama:e",)),
    ):
        files = (file("user.json", user), ConfigFile(json.dumps(folder), "f.json", environ={"HOST": "ollama"}))
        assert combine(files).find_fallback_models(None) == found
    profiles = {"work": {"model": "local"}, "same": {"system": "Be brief."}}
    assert read({**user, "profiles": profiles}, "work").find_fallback_models(None) == ()
    assert read({**user, "profiles": profiles}, "same").find_fallback_models(None) == ("openai:b", "local")


def test_the_fallback_models_of_a_model_entry_replace_those_of_the_file() -> None:
    models = {"mine": {"model": "a", "fallback_models": ["local"]}, "other": {"model": "b"}}
    settings = read({"models": models, "defaultModel": "mine", "fallbackModels": ["other"]})
    assert settings.find_fallback_models(None) == ("local",)
    assert settings.find_fallback_models("other") == ()
    without = {**models, "mine": {"model": "a", "fallback_models": []}}
    settings = read({"models": without, "defaultModel": "mine", "fallbackModels": ["other"]})
    assert settings.find_fallback_models(None) == ()


@pytest.mark.parametrize(
    ("folder", "empty"),
    [
        ({"profiles": {"work": {"servers": []}}}, {"servers": ()}),
        ({"profiles": {"work": {"system": "", "model": ""}}}, {"system": "", "default_model": "openai:a"}),
    ],
)
def test_an_empty_value_of_a_later_file_overrides_and_null_does_not(
    folder: dict[str, Any], empty: dict[str, Any]
) -> None:
    work = {"model": "openai:b", "servers": ["time"], "system": "Be brief."}
    user = {"mcpServers": {"time": {"command": "t"}}, "defaultModel": "openai:a", "profiles": {"work": work}}

    def values(document: dict[str, Any]) -> dict[str, Any]:
        settings = combine((file("user.json", user), file("folder.json", document)), "work")
        used = tuple(name for name, server in settings.servers.items() if server.enabled)
        return {"servers": used, "system": settings.system, "default_model": settings.default_model}

    before = values({})
    assert before == {"servers": ("time",), "system": "Be brief.", "default_model": "openai:b"}
    assert values(folder) == before | empty
    assert values({"profiles": {"work": dict.fromkeys(work)}, "defaultModel": None}) == before


def test_rules_of_the_earlier_file_are_tried_before_rules_of_the_later_file() -> None:
    user = file("user.json", {"policy": [{"ask": "git/*"}]})
    folder = file("folder.json", {"policy": [{"allow": "git/*"}]})
    assert [(rule.effect.value, rule.name) for rule in combine((user, folder)).policy] == [
        ("ask", "rule 1 (user.json)"),
        ("allow", "rule 1 (folder.json)"),
    ]


def test_an_unset_variable_in_the_earlier_file_disables_its_server_with_a_warning() -> None:
    jira = {"url": "https://example.test/mcp", "headers": {"Authorization": "${TOKEN}"}}
    user = file("user.json", {"mcpServers": {"jira": jira, "time": TIME}, "models": {"m": {"api_key": "${KEY}"}}})
    settings = combine((user, file("folder.json", {"mcpServers": {"git": GIT}})))
    assert [name for name, server in settings.servers.items() if server.enabled] == ["time", "git"]
    assert list(settings.models) == []
    server, model = settings.warnings
    assert "mcpServers.jira.headers.Authorization: the variable TOKEN is not set" in server
    assert server.endswith(": this server is not used")
    assert "models.m.api_key: the variable KEY is not set" in model
    assert model.endswith(": this model is not used")
    with pytest.raises(ConfigError, match="the variable TOKEN is not set"):
        combine((user,))
    replaced = combine((user, file("folder.json", {"mcpServers": {"jira": TIME}, "models": {"m": {"model": "x"}}})))
    assert (replaced.servers["jira"].enabled, replaced.warnings) == (True, ())


def test_the_combination_of_no_files_is_an_empty_configuration() -> None:
    assert combine(()) == Settings()


def test_a_profile_chooses_model_servers_and_instructions() -> None:
    content = {
        "mcpServers": {"time": TIME, "git": GIT, "github": GIT},
        "defaultModel": "local",
        "profiles": {"code": {"model": "openai:x", "servers": ["git*"], "system": "Be brief."}},
    }
    settings = read(content, "code")
    assert (settings.default_model, settings.system) == ("openai:x", "Be brief.")
    assert [name for name, server in settings.servers.items() if server.enabled] == ["git", "github"]
    assert settings.profiles == ("code",)
    plain = read(content)
    assert (plain.default_model, plain.system) == ("local", None)
    assert all(server.enabled for server in plain.servers.values())


def test_variables_of_servers_that_a_profile_leaves_out_need_not_be_set() -> None:
    jira = {"url": "https://example.test/mcp", "headers": {"Authorization": "${TOKEN}"}}
    content = {"mcpServers": {"time": TIME, "jira": jira}, "profiles": {"home": {"servers": ["time"]}}}
    assert not read(content, "home").servers["jira"].enabled
    with pytest.raises(ConfigError, match="the variable TOKEN is not set"):
        read(content)


def test_variables_of_profiles_that_are_not_used_need_not_be_set() -> None:
    content = {"mcpServers": {"time": TIME}, "profiles": {"work": {"model": "${MODEL}"}}}
    assert read(content).profiles == ("work",)
    with pytest.raises(ConfigError, match=r"profiles\.work\.model: the variable MODEL is not set"):
        read(content, "work")


def test_the_rules_of_a_profile_are_tried_before_those_of_its_file() -> None:
    content = {"policy": [{"allow": "git/*"}], "profiles": {"safe": {"policy": [{"deny": "git/push"}]}}}
    assert [rule.effect.value for rule in read(content, "safe").policy] == ["deny", "allow"]


def test_a_profile_of_one_file_chooses_among_the_servers_of_all_files() -> None:
    user = file("user.json", {"mcpServers": {"git": GIT}, "profiles": {"work": {"servers": ["git", "build"]}}})
    folder = file("folder.json", {"mcpServers": {"build": TIME, "time": TIME}})
    servers = combine((user, folder), "work").servers
    assert [name for name, server in servers.items() if server.enabled] == ["git", "build"]


def test_profiles_of_the_same_name_in_two_files_are_merged_with_the_rules_of_both_files() -> None:
    user = file("user.json", {"profiles": {"work": {"model": "a", "system": "s", "policy": [{"deny": "*"}]}}})
    folder = file("folder.json", {"profiles": {"work": {"model": "b", "policy": [{"allow": "git/*"}]}}})
    settings = combine((user, folder), "work")
    assert (settings.default_model, settings.system) == ("b", "s")
    assert [rule.effect.value for rule in settings.policy] == ["deny", "allow"]


@pytest.mark.parametrize(
    ("name", "profile", "message"),
    [
        ("wrk", {}, r"there is no profile 'wrk' \(did you mean \"work\"\?\)"),
        ("home", {}, r"there is no profile 'home' \(the only one is work\)"),
        ("work", {"modle": "x"}, r"profiles\.work\.modle: unknown key of a profile \(did you mean \"model\"\?\)"),
        ("work", {"servers": ["tme"]}, r"names the server 'tme', which does not exist \(did you mean \"time\"\?\)"),
        ("work", {"servers": "time"}, r"profiles\.work\.servers: expected a list"),
        ("work", {"model": 3}, r"profiles\.work\.model: expected a string"),
    ],
)
def test_errors_of_a_profile_name_the_place(name: str, profile: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read({"mcpServers": {"time": TIME}, "profiles": {"work": profile}}, name)


def test_the_error_for_a_profile_in_a_file_without_profiles_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"time": TIME}}))
    with pytest.raises(ConfigError, match='profiles belong under "profiles"'):
        load_config(path, profile="work")


def test_the_name_of_a_rule_contains_its_profile_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    rule = {"policy": [{"ask": "git/*"}]}
    own = build_user_config_path()
    files = (file(str(own), rule), file("servers.json", {**rule, "profiles": {"work": rule}}))
    assert {item.name for item in combine(files, "work").policy} == {
        f"rule 1 (~/{own.relative_to(tmp_path).as_posix()})" if own.is_relative_to(tmp_path) else f"rule 1 ({own})",
        "rule 1 of profile work (servers.json)",
        "rule 1 (servers.json)",
    }


def test_a_profile_in_two_files_is_shown_merged() -> None:
    own = {"model": "openai:a", "system": "Be brief.", "policy": [{"ask": "git/*"}]}
    here = {"model": "local", "policy": [{"deny": "time/*"}]}
    files = [file("user.json", {"profiles": {"work": own}}), file("servers.json", {"profiles": {"work": here}})]
    values = list_written_values(files)
    profile = to_document(values)["profiles"]["work"]
    assert profile == {"model": "local", "system": "Be brief.", "policy": [{"ask": "git/*"}, {"deny": "time/*"}]}
    origins = [(value.keys[-1], value.origin.partition(":")[0]) for value in values]
    assert ("model", "servers.json") in origins
    assert ("model", "user.json") not in origins
    assert [path for key, path in origins if key == "policy"] == ["user.json", "servers.json"]


def test_values_are_shown_as_merged_from_all_files() -> None:
    user = file(
        "user.json",
        {"defaultModel": "a", "fallbackModels": ["b"], "startupPatience": 3, "profiles": {"work": {"model": "m"}}},
    )
    cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"fallbackModels": []}, {"fallbackModels": []}),
        ({"fallbackModels": None, "startupPatience": None}, {"fallbackModels": ["b"]}),
        ({"defaultModel": "c"}, {}),
        ({"profiles": {"work": {"model": None}}}, {"fallbackModels": ["b"]}),
    )
    for folder, fallback_models in cases:
        document = to_document(list_written_values([user, file("servers.json", folder)]))
        model = {"defaultModel": folder.get("defaultModel", "a")}
        kept = {"startupPatience": 3, "profiles": {"work": {"model": "m"}}}
        assert document == {**model, **fallback_models, **kept}


@pytest.mark.parametrize("odd", [{}, "x", 5, [], None])
def test_a_profile_is_shown_even_if_its_namesake_in_another_file_is_invalid(odd: Any) -> None:
    sound = file("a.json", {"profiles": {"work": {"model": "local"}}})
    unsound = file("b.json", {"profiles": {"work": odd}})
    for files in ([sound, unsound], [unsound, sound]):
        assert "work" in to_document(list_written_values(files))["profiles"]


@pytest.mark.parametrize("profile", [None, "work"])
def test_a_single_server_needs_only_its_own_variables(profile: str | None) -> None:
    jira = {"url": "https://example.test/mcp", "headers": {"Authorization": "${TOKEN}"}}
    content = {
        "mcpServers": {"[time]": TIME, "jira": jira},
        "profiles": {"work": {"servers": ["jira"], "model": "local"}},
    }
    settings = combine([file("servers.json", content)], profile, "[time]")
    assert {name: server.enabled for name, server in settings.servers.items()} == {"[time]": True, "jira": False}
    assert settings.default_model == ("local" if profile else None)
