"""The page and its API, mounted under a prefix of a FastAPI program, or served alone by uvicorn."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dial_client import ConfigError, DialClient
from dial_client.serve import PageUser, create_app
from dial_client.testing import ScriptedProvider
from tests.support.browser import Browser
from tests.support.program import HERE, LONG, environment, python_server, start_python, write_config
from tests.support.web_page import (
    ASKING,
    DONE,
    assert_harmless,
    open_page,
    open_relay,
    read_text,
    send_message,
    wait_for_url,
)

pytest.importorskip("fastapi")
pytestmark = pytest.mark.once

PROGRAM = HERE / "servers" / "mounted.py"
CALL = {"tool_calls": [{"name": "asks", "arguments": {}}]}
AUTH = {"Authorization": "Bearer a-token"}


@contextmanager
def mounted(folder: Path, replies: list[Any], *words: str) -> Iterator[str]:
    """Run the program and provide the URL of the page with the token."""
    write_config(folder, {"asking": python_server(ASKING)}, replies)
    log_path = folder / "stderr.log"
    with (
        log_path.open("w") as log,
        start_python(
            folder,
            [str(PROGRAM), *words],
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        try:
            yield wait_for_url(process, log_path)
        finally:
            process.terminate()
            try:
                process.wait(LONG)
            finally:
                process.kill()


@contextmanager
def client_of(address: str, **headers: str) -> Iterator[httpx2.Client]:
    """Provide a client whose relative URLs are below the prefix."""
    with httpx2.Client(base_url=address.partition("#")[0], headers=headers, timeout=LONG, trust_env=False) as http:
        yield http


def wait_for(http: httpx2.Client, kind: str) -> Any:
    """Return the request of this kind that waits for an answer."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        if waiting := http.get(kind).raise_for_status().json()[kind]:
            return waiting[0]
    raise AssertionError(f"no {kind} waits")


def test_a_mounted_page_has_its_files_and_refuses_whoever_has_no_token(tmp_path: Path) -> None:
    with mounted(tmp_path, ["Hello."]) as address, client_of(address) as http:
        page = http.get("")
        assert page.status_code == 200
        assert http.get(address.partition("#")[0].rstrip("/"), follow_redirects=True).text == page.text
        files = re.findall(r'(?:href|src)="(assets/[^"]+)"', page.text)
        assert "assets/bundle.js" in files
        assert {http.get(file).status_code for file in files} == {200}
        assert http.get("healthz").json() == {"status": "ok"}
        for path in ("conversations", "servers", "approvals", "assistant/assets/../conversations"):
            assert http.get(path).status_code in (401, 404), path
        assert http.get("conversations").status_code == 401
        assert http.get("conversations", headers={"Authorization": "Bearer another"}).status_code == 401
        assert http.get("conversations", headers={**AUTH, "Host": "evil.example"}).status_code == 421
        assert http.get("conversations", headers=AUTH).status_code == 200


@pytest.mark.parametrize("words", [(), ("alone",)], ids=["mounted", "alone"])
def test_calls_and_questions_of_an_app_in_a_program_are_answered_over_http(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with mounted(tmp_path, [CALL, "Done."], *words) as address, client_of(address, **AUTH) as http:
        path = f"conversations/{http.post('conversations').json()['id']}/chat"
        with http.stream("POST", path, json={"text": "Ask me.", "stream": True}) as stream:
            assert stream.status_code == 200
            asked = wait_for(http, "approvals")
            assert (asked["server"], asked["tool"]) == ("asking", "asks")
            assert http.post(f"approvals/{asked['id']}", json={"decision": "once"}).status_code == 204
            question = wait_for(http, "questions")
            answer = {"action": "accept", "content": {"yes": True}}
            assert http.post(f"questions/{question['id']}", json=answer).status_code == 204
            text = stream.read().decode()
        assert "the user said accept" in text
        assert "Done." in text


def test_a_turn_of_the_program_itself_is_not_shown_to_the_person_at_the_page(tmp_path: Path) -> None:
    with mounted(tmp_path, [CALL, "It was denied."]) as address, client_of(address) as http:
        own = http.get(address.partition("/assistant")[0] + "/own")
        assert own.json() == {"answer": "It was denied."}


def test_the_page_asks_under_its_prefix_and_is_installed_there_only(chromium: Browser, tmp_path: Path) -> None:
    with mounted(tmp_path, [CALL, "Done."]) as address:
        tab = open_page(chromium, address.replace("/#", "#"))
        send_message(tab, "Ask me.")
        tab.until("document.querySelector('.request .request-buttons .button')")
        tab.click(".request .request-buttons .button")
        tab.until("document.querySelector('.request-message')?.textContent === 'Really?'")
        tab.click(".request .request-buttons .primary")
        tab.until(DONE)
        assert read_text(tab, ".turn:last-child .answer .prose") == "Done."
        assert tab.run("location.pathname") == "/assistant/"
        assert_harmless(tab, address.replace("/#", "#"))
        with open_relay(address) as (relay, way):
            installed = open_page(chromium, way.replace("/#", "/?installed#"))
            installed.until("navigator.serviceWorker.controller")
            scopes = installed.run("navigator.serviceWorker.getRegistrations().then((all) => all.map((e) => e.scope))")
            assert scopes == [way.partition("#")[0]]
            manifest = installed.call("Page.getAppManifest")
            assert manifest["errors"] == []
            assert manifest["manifest"]["scope"] == way.partition("#")[0]
            relay.cut()
            installed.call("Page.reload")
            installed.until("document.title === 'dial-chat is offline'")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"token": None, "host": "0.0.0.0"}, "a token is required beyond loopback"),
        ({"token": "short", "host": "0.0.0.0"}, "at least 32 characters"),
        ({"token": ""}, "printable ASCII"),
        ({"token": "t", "locked_settings": ["modle"]}, "there is no setting 'modle'"),
        ({"token": "t", "durable": True}, "in a database"),
    ],
)
def test_an_app_that_would_be_open_or_wrong_is_not_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        create_app(DialClient(ScriptedProvider([])), None, **options)


def test_one_person_answers_for_one_application() -> None:
    user, dial = PageUser(), DialClient(ScriptedProvider([]))
    create_app(dial, user, token=None)
    with pytest.raises(RuntimeError, match="create another one"):
        create_app(dial, user, token=None)


@pytest.mark.anyio
async def test_a_request_before_the_lifespan_says_what_is_missing() -> None:
    web = create_app(DialClient(ScriptedProvider(["Hello."])), None, token=None)
    transport = httpx2.ASGITransport(web)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        refused = await http.get("/conversations")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_started")
        async with web.lifespan():
            assert (await http.get("/conversations")).status_code == 200
        with pytest.raises(RuntimeError, match="runs once"):
            async with web.lifespan():
                pass
