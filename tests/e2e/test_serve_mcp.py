"""`/mcp` of `dial-chat serve`, as a process."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.support.gateways import MODES, wait_for_tools
from tests.support.program import LONG, dial_chat, entry, write_config
from tests.support.web_page import serve_folder, serve_page

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_clients_of_both_revisions_use_the_servers_of_a_process(tmp_path: Path) -> None:
    """A call that nothing allows names a command that allows it as it is pasted, whatever the configuration."""
    servers = {"own": {**entry("Server"), "autoApprove": ["*"]}, "shut": entry("Server")}
    folder = tmp_path / "the other folder"
    folder.mkdir()
    write_config(folder, servers, [])
    words = ("-c", str(folder / "servers.json"), "--mcp-calls-per-minute", "900")
    with serve_page(tmp_path, [], {}, *words) as address:
        url, _, token = address.partition("/#token=")
        headers = {"Authorization": f"Bearer {token}"}
        for mode in MODES:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=LONG, trust_env=False, verify=False) as http,
                Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
            ):
                await wait_for_tools(client, "own__echo")
                result = await client.call_tool("own__echo", {"text": mode})
                assert mode in str(result.content)
                await wait_for_tools(client, "shut__echo")
                denied = await client.call_tool("shut__echo", {"text": mode})
                assert denied.is_error == (mode == MODES[0]), denied
                if denied.is_error:
                    [content] = denied.content
                    assert isinstance(content, TextContent)
                    [words] = re.findall(r"the user runs: cd \S+ && dial-chat (.*)", content.text)
                    granted = await anyio.to_thread.run_sync(dial_chat, tmp_path, *shlex.split(words))
                    assert granted.stdout.startswith("allowed: "), granted.stderr


async def test_a_service_without_a_model_serves_mcp_and_tells_chats_what_is_missing(tmp_path: Path) -> None:
    write_config(tmp_path, {"own": {**entry("Server"), "autoApprove": ["*"]}})
    question = {"messages": [{"role": "user", "content": "Hi"}]}
    with serve_folder(tmp_path) as address:
        url, _, token = address.partition("/#token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=LONG, trust_env=False, base_url=url) as http:
            async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
                await wait_for_tools(client, "own__echo")
                assert "Hello" in str((await client.call_tool("own__echo", {"text": "Hello"})).content)
            where = f"/conversations/{(await http.post('/conversations', json={})).json()['id']}"
            refused = [
                await http.post("/v1/chat/completions", json=question),
                await http.post("/v1/chat/completions", json={**question, "model": "gpt", "stream": True}),
                await http.post("/v1/responses", json={"input": "Hi"}),
                await http.post("/v1/messages", json={**question, "model": "claude-sonnet-5", "max_tokens": 9}),
                await http.post(f"{where}/chat", json={"text": "Hi"}),
            ]
            for response in refused:
                assert response.status_code == 503, response.text
                assert "defaultModel" in response.json()["error"]["message"]
            assert (await http.get("/v1/models")).json()["data"] == []
            assert (await http.get(where)).json()["messages"] == []
            assert (await http.get("/readyz")).status_code == 200
    assert "Only /mcp is of use" in (tmp_path / "stderr.log").read_text()
    with pytest.raises(AssertionError, match="no model is named"), serve_folder(tmp_path, "--no-mcp"):
        pass


@pytest.mark.parametrize("words", [["--no-mcp", "--allow-origin", "x://y"], ["--mcp-tools", "most"]])
def test_options_that_contradict_are_errors(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(AssertionError, match=r"--no-mcp|--mcp-tools"), serve_page(tmp_path, [], {}, *words):
        pass
