"""Calls through the gateway that become tasks (SEP-2663), for a client that has tasks: here a `DialClient`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, EmptyResult

from dial_client import Callbacks, DialClient
from dial_client.extend import ElicitationAnswer
from tests.inner import Gateway, TaskCreated, TaskExtension, TaskParams, TaskRequest
from tests.support.gateway_clients import asking, text_of
from tests.support.gateways import MODES
from tests.support.program import LONG, python_server
from tests.support.servers import tasks
from tests.support.servers.launch import HERE

pytestmark = pytest.mark.anyio

SHOP = {"shop": python_server(HERE / "questions.py")}


@asynccontextmanager
async def through(gateway: Gateway, **options: Any) -> AsyncIterator[DialClient]:
    """Connect a host to a gateway."""
    async with DialClient(servers={"all": gateway.server}, **options) as dial:
        await dial.ready()
        yield dial


async def test_a_call_that_becomes_a_task_has_the_same_result(tmp_path: Path) -> None:
    jobs = {"jobs": tasks.build_server(tasks.TaskStore())}
    async with asking(jobs, "*", folder=tmp_path, task_seconds=0.0) as gateway, through(gateway) as dial:
        with anyio.fail_after(LONG):
            result = await dial.call("jobs__report", {})
    assert (result.content, result.value) == ("report done in 3 polls", {"polls": 3})


async def test_a_client_that_follows_tasks_itself_gets_the_task(tmp_path: Path) -> None:
    jobs = {"jobs": tasks.build_server(tasks.TaskStore())}
    async with (
        asking(jobs, "*", folder=tmp_path, task_seconds=0.0) as gateway,
        Client(gateway.server, mode="2026-07-28", extensions=[TaskExtension()]) as client,
    ):
        with pytest.raises(TaskCreated) as created:
            await client.call_tool("jobs__report")
        assert gateway.tasks.ids == (created.value.task.task_id,)


async def test_a_server_that_answers_with_a_task_makes_the_call_one_at_once(tmp_path: Path) -> None:
    jobs = {"jobs": tasks.build_server(tasks.TaskStore())}
    async with asking(jobs, "*", folder=tmp_path, task_seconds=LONG) as gateway, through(gateway) as dial:
        with anyio.fail_after(LONG / 2):
            result = await dial.call("jobs__report", {})
    assert result.content == "report done in 3 polls"


async def test_a_result_that_comes_when_the_time_is_over_is_not_lost(tmp_path: Path) -> None:
    jobs = {"jobs": tasks.build_server(tasks.TaskStore())}
    async with asking(jobs, folder=tmp_path, task_seconds=0.0) as gateway, through(gateway) as dial:
        with anyio.fail_after(LONG):
            result = await dial.call("jobs__report", {})  # denied at once: nobody can be asked
    assert "dial-chat" in str(result.content)


async def test_an_error_of_the_protocol_ends_the_task(tmp_path: Path) -> None:
    jobs = {"jobs": tasks.build_server(tasks.TaskStore())}
    async with asking(jobs, "*", folder=tmp_path, task_seconds=0.0) as gateway, through(gateway) as dial:
        with anyio.fail_after(LONG):
            result = await dial.call("jobs__breaks", {})
    assert "the disk is full" in str(result.content)


async def test_the_question_of_a_server_is_the_question_of_the_task(tmp_path: Path) -> None:
    asked = []

    async def elicit(question: Any) -> ElicitationAnswer:
        asked.append(question.message)
        return ElicitationAnswer("accept", {"yes": True})

    async with (
        asking(SHOP, "*", folder=tmp_path, task_seconds=0.0) as gateway,
        through(gateway, callbacks=Callbacks(elicit=elicit)) as dial,
    ):
        with anyio.fail_after(LONG):
            result = await dial.call("shop__returns", {})
    assert result.content == "action='accept' data=Sure(yes=True)"
    assert asked == ["shop asks: Sure?"]


async def test_a_task_that_its_client_cancels_is_cancelled_at_the_server(tmp_path: Path) -> None:
    store = tasks.TaskStore()
    jobs = {"jobs": tasks.build_server(store)}
    async with asking(jobs, "*", folder=tmp_path, task_seconds=0.0) as gateway, through(gateway) as dial:
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                group.start_soon(dial.call, "jobs__goes_on", {})
                await store.watched.wait()
                group.cancel_scope.cancel()
            await store.ended.wait()


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_tasks_gets_the_result(mode: str, tmp_path: Path) -> None:
    jobs = {"jobs": tasks.build_server(tasks.TaskStore())}
    async with (
        asking(jobs, "*", folder=tmp_path, task_seconds=0.0) as gateway,
        Client(gateway.server, mode=mode) as client,
    ):
        with anyio.fail_after(LONG):
            result = await client.call_tool("jobs__report")
    assert text_of(result) == "report done in 3 polls"


async def test_a_client_that_has_not_declared_tasks_is_told_so(tmp_path: Path) -> None:
    request = TaskRequest(method="tasks/get", params=TaskParams(task_id="x"))
    async with asking({}, folder=tmp_path) as gateway, Client(gateway.server, mode="2026-07-28") as client:
        with pytest.raises(MCPError) as failed:
            await client.session.send_request(request, EmptyResult)
    assert failed.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_the_task_of_another_client_does_not_exist(tmp_path: Path) -> None:
    store = tasks.TaskStore()
    jobs = {"jobs": tasks.build_server(store)}
    async with (
        asking(jobs, "*", folder=tmp_path, task_seconds=0.0) as gateway,
        through(gateway) as dial,
        Client(gateway.server, mode="2026-07-28", extensions=[TaskExtension()]) as stranger,
    ):
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                group.start_soon(dial.call, "jobs__goes_on", {})
                await store.watched.wait()
                (id_,) = gateway.tasks.ids
                request = TaskRequest(method="tasks/cancel", params=TaskParams(task_id=id_))
                with pytest.raises(MCPError, match="no such task") as failed:
                    await stranger.session.send_request(request, EmptyResult)
                group.cancel_scope.cancel()
    assert failed.value.error.code == INVALID_PARAMS
