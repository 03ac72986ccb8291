"""Grants of several services over one database: each lists and revokes those of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_human_input import results, stream_chat, until
from tests.integration.test_serve_cluster import two
from tests.support.servers.launch import raw

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("decision", ["conversation", "session", "always"])
async def test_a_grant_is_listed_and_revoked_at_every_process(tmp_path: Path, decision: str) -> None:
    replies = [{"tool_calls": [{"name": "echo", "arguments": {}}]}, "Done."] * 2
    servers = {"it": raw("Server")}
    async with two(tmp_path, replies, replies, servers, grants=tmp_path / "grants") as (here, there):
        where = await here.conversation()
        for place in (here, there, here):
            async with stream_chat(place, where) as (events, _):
                asked = (await until(events, "approval")).data["id"]
                await place.json("POST", f"/approvals/{asked}", 204, json={"decision": decision})
                await results(events)
            peer = there if place is here else here
            [grant] = (await peer.json("GET", "/grants"))["grants"]
            assert (grant["server"], grant["tool"], grant["scope"]) == ("it", "echo", decision)
            await peer.json("DELETE", f"/grants/{grant['id']}", 204)
            assert (await place.json("GET", "/grants"))["grants"] == []
