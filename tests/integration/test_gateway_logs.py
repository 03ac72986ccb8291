"""Log messages through the gateway: each client gets those about its own calls, from its own level on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp import Client

from tests.inner import Gateway, Protocol
from tests.support.gateway_clients import asking
from tests.support.gateways import host, running
from tests.support.program import LONG, python_server
from tests.support.servers.launch import HERE, python_script, until, web, web_server
from tests.support.servers.talker import talker

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

every_way = pytest.mark.parametrize(
    ("way", "anyio_backend"), [("here", "asyncio"), ("stdio", "trio"), ("http", "asyncio")]
)
"""How the gateway reaches the server: in this process with the newest protocol, or with the older one."""


class Logged:
    """The log messages that a client gets."""

    def __init__(self) -> None:
        self.messages: list[wire.LoggingMessageNotificationParams] = []

    async def __call__(self, params: wire.LoggingMessageNotificationParams) -> None:
        self.messages.append(params)

    @property
    def levels(self) -> list[str]:
        """The levels of the messages."""
        return [message.level for message in self.messages]

    async def wait_for(self, count: int) -> None:
        """Wait until so many messages have come: the SDK's client hands each on in a task of its own."""
        with anyio.fail_after(LONG):
            while len(self.messages) < count:  # noqa: ASYNC110 - the SDK has no event for it
                await anyio.sleep(0.01)

    @property
    def texts(self) -> set[str]:
        """The different texts of the messages."""
        return {message.data["text"] for message in self.messages}


@asynccontextmanager
async def talking(way: str = "here") -> AsyncGenerator[Gateway]:
    if way == "http":
        with web_server("talker.py", "http") as address:
            entry = web(f"{address}/mcp", protocol=Protocol.LEGACY)
            async with running(host({"talker": entry}, "talker/*")) as gateway:
                yield gateway
        return
    target = talker() if way == "here" else python_script("talker.py", "stdio", protocol=Protocol.LEGACY)
    async with running(host({"talker": target}, "talker/*")) as gateway:
        yield gateway


@every_way
async def test_each_client_gets_messages_about_its_calls_from_the_level_that_it_has_chosen(way: str) -> None:
    quiet, usual, newer = Logged(), Logged(), Logged()
    async with (
        talking(way) as gateway,
        Client(gateway.server, mode="legacy", logging_callback=quiet) as client_a,
        Client(gateway.server, mode="legacy", logging_callback=usual) as client_b,
        Client(gateway.server, mode="2026-07-28", logging_callback=newer, log_level="debug") as client_c,
    ):
        await client_a.set_logging_level("error")
        for client, text in ((client_a, "a"), (client_b, "b"), (client_c, "c")):
            await client.call_tool("talker__say", {"text": text})
        [content] = (await client_c.call_tool("talker__levels", {})).content
    assert (quiet.levels, quiet.texts) == (["error"], {"a"})
    assert (usual.levels, usual.texts) == (["info", "error"], {"b"})
    assert (newer.levels, newer.texts) == (["debug", "info", "error"], {"c"})
    assert {message.logger for message in quiet.messages} == {"talker/mouth"}
    # The server of the older protocol is asked for the most that any client wants; in the newer, each request says so.
    assert isinstance(content, wire.TextContent) and content.text == ("" if way == "here" else "error info debug")


@every_way
async def test_no_message_crosses_while_a_server_answers_two_clients(way: str) -> None:
    """Over HTTP a message arrives with the call that it is about; otherwise nobody can tell, and no client gets it."""
    first, second = Logged(), Logged()
    async with (
        talking(way) as gateway,
        Client(gateway.server, mode="legacy", logging_callback=first) as client_a,
        Client(gateway.server, mode="legacy", logging_callback=second) as client_b,
        anyio.create_task_group() as group,
    ):
        for number in range(10):
            client, text = (client_a, "a") if number % 2 else (client_b, "b")
            group.start_soon(client.call_tool, "talker__say", {"text": text, "together": 10})
        if way != "stdio":
            await first.wait_for(10)
            await second.wait_for(10)
    assert first.texts <= {"a"} and second.texts <= {"b"}
    if way != "stdio":
        assert sorted(first.levels) == sorted(second.levels) == ["error"] * 5 + ["info"] * 5


async def test_a_message_after_a_call_reaches_the_only_client() -> None:
    logged = Logged()
    async with talking("stdio") as gateway, Client(gateway.server, mode="legacy", logging_callback=logged) as client:
        await client.call_tool("talker__later", {"text": "late"})
        with anyio.fail_after(LONG):
            while not logged.messages:  # noqa: ASYNC110 - it comes when it comes
                await anyio.sleep(0.01)
    assert logged.texts == {"late"}


async def test_a_client_of_the_newer_revision_gets_what_it_asks_for_in_each_request() -> None:
    logged = Logged()
    async with talking() as gateway, Client(gateway.server, mode="2026-07-28", logging_callback=logged) as client:
        await client.call_tool("talker__say", {"text": "unheard"})
        meta: Any = {wire.LOG_LEVEL_META_KEY: "error"}
        await client.call_tool("talker__say", {"text": "heard"}, meta=meta)
    assert [(message.level, message.data["text"]) for message in logged.messages] == [("error", "heard")]


async def test_messages_while_a_call_waits_for_an_answer_come_when_the_client_goes_on(tmp_path: Path) -> None:
    logged = Logged()
    servers = {"shop": python_server(HERE / "questions.py", protocol="legacy")}
    async with asking(servers, "*", folder=tmp_path) as gateway:

        async def elicit(_: object, __: object) -> wire.ElicitResult:
            await until(lambda: len(gateway.dial.servers["shop"].logs) > 2)
            return wire.ElicitResult(action="accept", content={"yes": True})

        options: Any = {"logging_callback": logged, "log_level": "info", "elicitation_callback": elicit}
        async with Client(gateway.server, mode="2026-07-28", **options) as client:
            [content] = (await client.call_tool("shop__logs_meanwhile")).content
            assert isinstance(content, wire.TextContent)
            await logged.wait_for(int(content.text))
    assert [message.data["text"] for message in logged.messages] == [str(at) for at in range(int(content.text))]
