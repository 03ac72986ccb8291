"""``dial-chat serve`` reloads its configuration on SIGHUP."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_serve_shutdown import ask, no_signals, serving
from tests.support.program import LONG, entry

pytestmark = [pytest.mark.once, no_signals]


def write(folder: Path, text: str) -> str:
    path = folder / "mine.json"
    path.write_text(text)
    return str(path)


def configuration(folder: Path, *, timeout: int, reply: str, **more: Any) -> str:
    (folder / f"{reply}.json").write_text(json.dumps({"replies": [reply], "after": "repeat"}))
    servers: dict[str, Any] = {
        name: entry("WaitsForOthers", "--folder", str(folder / name), "--count", "1") for name in ("same", "changed")
    }
    servers["changed"]["toolTimeout"] = timeout
    models = {f"profile-{reply}": {"api": "chat", "baseUrl": "http://127.0.0.1:9/v1", "model": "m"}}
    default = f"scripted:{folder / reply}.json"
    return json.dumps({"mcpServers": servers, "models": models, "defaultModel": default, **more})


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it ended with {process.wait(LONG)}")


def processes(folder: Path, name: str) -> list[str]:
    return [path.name for path in (folder / name).iterdir()]


def answer(url: str, token: str) -> str:
    messages = {"messages": [{"role": "user", "content": "Hello"}]}
    reply = ask(url, token, "/v1/chat/completions", "POST", json=messages).json()
    text: str = reply["choices"][0]["message"]["content"]
    return text


def model_name(url: str, token: str) -> str:
    name: str = ask(url, token, "/v1/models").json()["data"][0]["id"]
    return name


def write_skill(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nDo it.")


def skills(url: str, token: str) -> list[str]:
    return [skill["name"] for skill in ask(url, token, "/skills").json()["skills"]]


def profiles(url: str, token: str) -> list[str]:
    return [model["name"] for model in ask(url, token, "/models").json()["models"]]


def test_unchanged_servers_keep_running_and_an_invalid_file_changes_nothing(tmp_path: Path) -> None:
    for name in ("same", "changed"):
        (tmp_path / name).mkdir()
    own = tmp_path.with_name(f"skills of {tmp_path.name}")  # outside the working folder: no trust is needed
    write_skill(own, "sorting")
    path = write(tmp_path, configuration(tmp_path, timeout=5, reply="one", skills=[str(own)]))
    with serving(tmp_path, "-c", path) as (process, url, token):
        assert (answer(url, token), model_name(url, token)) == ("one", f"scripted:{tmp_path / 'one'}.json")
        assert profiles(url, token) == ["profile-one"]
        assert skills(url, token) == ["sorting"]
        write(tmp_path, configuration(tmp_path, timeout=7, reply="two", skills=[str(own)]))
        write_skill(own, "planning")
        process.send_signal(signal.SIGHUP)
        line = wait_for(process, "was reloaded")
        assert "0 added, 1 changed, 0 removed, 1 unchanged and still running; another model answers" in line
        assert (answer(url, token), model_name(url, token)) == ("two", f"scripted:{tmp_path / 'two'}.json")
        assert profiles(url, token) == ["profile-two"]
        assert sorted(skills(url, token)) == ["planning", "sorting"]
        assert (len(processes(tmp_path, "same")), len(processes(tmp_path, "changed"))) == (1, 2)
        write(tmp_path, "{")
        process.send_signal(signal.SIGHUP)
        assert "stays in effect" in wait_for(process, "mine.json:1")
        assert answer(url, token) == "two"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0


def test_a_service_without_a_model_answers_after_a_reload_that_names_one(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"mcpServers": {}}))
    with serving(tmp_path, "-c", path) as (process, url, token):
        assert ask(url, token, "/v1/models").json()["data"] == []
        process.send_signal(signal.SIGHUP)
        assert "the model is the same" in wait_for(process, "was reloaded")
        for name in ("same", "changed"):
            (tmp_path / name).mkdir()
        write(tmp_path, configuration(tmp_path, timeout=5, reply="one"))
        process.send_signal(signal.SIGHUP)
        assert "another model answers" in wait_for(process, "was reloaded")
        assert (answer(url, token), model_name(url, token)) == ("one", f"scripted:{tmp_path / 'one'}.json")


def test_conversations_can_use_the_profiles_of_the_reloaded_configuration(tmp_path: Path) -> None:
    def profiles(*names: str) -> str:
        models = {name: {"api": "chat", "base_url": "http://127.0.0.1:9/v1", "model": name} for name in names}
        return json.dumps({"models": models, "defaultModel": "main"})

    def offered() -> tuple[list[str], str]:
        listed = ask(url, token, "/models").json()
        return [model["name"] for model in listed["models"]], listed["default"]["profile"]

    path = write(tmp_path, profiles("main", "spare"))
    with serving(tmp_path, "-c", path) as (process, url, token):
        assert offered() == (["main", "spare"], "main")
        where = f"/conversations/{ask(url, token, '/conversations', 'POST', json={}).json()['id']}"
        for settings in ({"model": "spare"}, {"temperature": 0.5}):
            assert ask(url, token, where, "PATCH", json={"settings": settings}).json()["settings"] == settings
        write(tmp_path, profiles("main", "other"))
        process.send_signal(signal.SIGHUP)
        wait_for(process, "was reloaded")
        assert offered() == (["main", "other"], "main")
