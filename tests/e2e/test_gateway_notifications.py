"""What `dial-chat gateway` sends by itself: changes of resources and of lists, and log messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp_types import PromptListChangedNotification, ResourceListChangedNotification, ResourceUpdatedNotification

from tests.integration.test_gateway_logs import Logged
from tests.integration.test_gateway_subscriptions import Heard, write
from tests.support.gateways import MODES, program, wait_for_tools
from tests.support.program import HERE, python_server, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
SERVERS = HERE / "servers"


@pytest.fixture
def anyio_backend() -> str:
    """Return the loop of the client; the gateway is another process."""
    return "asyncio"


def configure(folder: Path) -> None:
    """Write the configuration: a server of each revision."""
    books = python_server(SERVERS / "library.py", "stdio", autoApprove=["*"], protocol="legacy")
    write_config(folder, {"books": books, "talker": python_server(SERVERS / "talker.py", "stdio", autoApprove=["*"])})


async def test_a_host_of_the_older_revision_is_notified(tmp_path: Path) -> None:
    heard = Heard()
    configure(tmp_path)
    async with program(tmp_path, "legacy", message_handler=heard) as client:
        await wait_for_tools(client, "books__write", "talker__say")
        assert "dial+books:book://1" in {resource.uri for resource in (await client.list_resources()).resources}
        assert "books__greet" in {prompt.name for prompt in (await client.list_prompts()).prompts}
        await client.subscribe_resource("dial+books:book://1")
        await write(client, "book://1")
        await heard.wait(ResourceUpdatedNotification)
        await write(client, "book://new")
        await heard.wait(ResourceListChangedNotification)
        await client.call_tool("books__teach", {"name": "sing"})
        await heard.wait(PromptListChangedNotification)
    assert heard.updates == ["dial+books:book://1"]


async def test_a_host_of_the_newer_revision_listens(tmp_path: Path) -> None:
    configure(tmp_path)
    async with program(tmp_path, "2026-07-28") as client:
        await wait_for_tools(client, "books__write", "talker__say")
        kinds: dict[str, Any] = {"resources_list_changed": True, "prompts_list_changed": True}
        async with client.listen(**kinds, resource_subscriptions=["dial+books:book://1"]) as stream:
            await write(client, "book://1")
            assert await anext(stream) == ResourceUpdated(uri="dial+books:book://1")
            await write(client, "book://new")
            assert await anext(stream) == ResourcesListChanged()
            await client.call_tool("books__teach", {"name": "sing"})
            assert await anext(stream) == PromptsListChanged()


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_gets_the_log_messages_of_its_level(tmp_path: Path, mode: str) -> None:
    logged = Logged()
    configure(tmp_path)
    options: dict[str, Any] = {"log_level": "debug"} if mode != "legacy" else {}
    async with program(tmp_path, mode, logging_callback=logged, **options) as client:
        if mode == "legacy":
            await client.set_logging_level("debug")
        await wait_for_tools(client, "talker__say")
        await client.call_tool("talker__say", {"text": "a"})
    assert logged.levels == ["debug", "info", "error"]
