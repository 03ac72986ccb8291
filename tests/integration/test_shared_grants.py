"""Grants that are shared by two services with one database."""

from __future__ import annotations

import pytest

from tests.integration.test_human_input import CALL, Pen, results, stream_chat
from tests.integration.test_serve_cluster import two
from tests.support.http_service import HttpService
from tests.support.temporary_stores import needs_postgres

pytestmark = [pytest.mark.anyio, needs_postgres]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_permanent_approval_without_a_grant_folder_is_a_session_grant_at_all_servers() -> None:
    pen = Pen()
    replies = [CALL, "Done."] * 3
    async with two(replies, replies, {"pen": pen.server}) as (here, there):
        places = {server.url: await server.conversation() for server in (here, there)}

        async def asks(server: HttpService, decision: str) -> bool:
            async with stream_chat(server, places[server.url]) as (events, _):
                async for event in events:
                    if event.name == "approval":
                        await server.json("POST", f"/approvals/{event.data['id']}", 204, json={"decision": decision})
                        await results(events)
                        return True
            return False

        assert await asks(here, "always")
        assert not await asks(there, "deny")
        (grant,) = (await there.json("GET", "/grants"))["grants"]
        assert grant["scope"] == "session"
        await there.json("DELETE", f"/grants/{grant['id']}", 204)
        assert await asks(here, "deny")
        assert await asks(there, "deny")
    assert len(pen.written) == 2
