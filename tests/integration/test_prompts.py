"""Prompts with old and new protocol versions: listing, arguments, completion, and conversion to messages."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server

from dial_client import DialClient, ImagePart, Message, Role, ServerError, ServerGone
from dial_client.extend import Prompt, PromptArgument
from tests.inner import Icon
from tests.integration.test_resources import asked, books, every_way
from tests.support.fakes import virtual_time
from tests.support.program import LONG as PATIENCE
from tests.support.servers.launch import raw
from tests.support.servers.library import PNG, Library, library

pytestmark = pytest.mark.anyio


@every_way
async def test_prompts_are_listed_with_their_arguments(way: str) -> None:
    async with books(way) as dial:
        greet, *rest = await dial.prompts.list()
    assert greet == Prompt(
        "books",
        "greet",
        "Greet",
        "To greet.",
        (PromptArgument("name", description="Who.", required=True), PromptArgument("how")),
    )
    assert [prompt.name for prompt in rest] == ["show", "talk"]
    assert json.loads(json.dumps(greet.to_dict()))["arguments"][0]["required"] is True


@every_way
async def test_a_prompt_gives_messages(way: str) -> None:
    async with books(way) as dial:
        assert await dial.prompts.get("books", "greet", {"name": "Ada"}) == (Message.user("Greet Ada kindly."),)
        assert await dial.prompts.get("books", "show") == (Message(Role.USER, (ImagePart(PNG, "image/png"),)),)
        talk = await dial.prompts.get("books", "talk", {"name": "Ada"})
    assert [(message.role.value, message.content) for message in talk] == [
        ("user", "Greet Ada kindly."),
        ("assistant", "Which one?"),
        ("assistant", "[image/png, about 1 kB]"),
    ]


@every_way
async def test_completions_of_an_argument_depend_on_the_given_arguments(way: str) -> None:
    async with books(way) as dial:
        assert await dial.prompts.complete("books", "greet", "name", "A") == ("Ada", "Alan")
        assert await dial.prompts.complete("books", "greet", "how", arguments={"name": "Ada"}) == ("like Ada",)


@every_way
async def test_an_added_prompt_is_listed(way: str) -> None:
    async with books(way) as dial:
        assert len(await dial.prompts.list("books")) == 3
        await dial.call("teach", {"name": "sing"})
        with anyio.fail_after(PATIENCE):
            while "sing" not in [prompt.name for prompt in await dial.prompts.list()]:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        lists = (await asked(dial)).count("prompts/list")  # the announcement also causes a tools/list request
        assert len(await dial.prompts.list()) == 4
        assert (await asked(dial)).count("prompts/list") == lists


async def test_missing_prompts_arguments_and_servers_are_errors() -> None:
    async with DialClient(servers={"books": library(), "gone": raw("ExitsAtOnce"), "bare": raw()}) as dial:
        with pytest.raises(ServerError, match="there is no prompt dance"):
            await dial.prompts.get("books", "dance")
        with pytest.raises(ServerError, match="the argument name is missing"):
            await dial.prompts.get("books", "greet")
        with pytest.raises(ServerGone, match="the database is missing"):
            await dial.prompts.get("gone", "greet")
        with pytest.raises(ServerError, match="Method not found"):
            await dial.prompts.get("bare", "greet")
        with pytest.raises(ServerError, match="there is no such server"):
            await dial.prompts.complete("nobody", "greet", "name")


@virtual_time
async def test_completions_have_a_timeout() -> None:
    class Slow(Library):
        async def complete(self, *asked: object) -> Any:  # noqa: ARG002
            await anyio.sleep_forever()

    async with DialClient(servers={"books": library(Slow())}) as dial:
        with pytest.raises(ServerError, match="no answer within 10 seconds"):
            await dial.prompts.complete("books", "greet", "name")


async def test_only_safe_icons_are_kept() -> None:
    import mcp_types as wire

    given = [
        wire.Icon(src="https://x.test/a.png", mime_type="image/png", sizes=["48x48"]),
        wire.Icon(src="javascript:alert(1)"),
        wire.Icon(src="file:///etc/passwd"),
        wire.Icon(src="data:image/png;base64," + "A" * 200_000),
        *[wire.Icon(src="data:,x")] * 20,
    ]

    async def prompts(context: object, params: object) -> wire.ListPromptsResult:
        return wire.ListPromptsResult(prompts=[wire.Prompt(name="it", icons=given)])

    async with DialClient(servers={"it": Server("it", on_list_prompts=prompts)}) as dial:
        [prompt] = await dial.prompts.list()
    assert prompt.icons == (Icon("https://x.test/a.png", "image/png", ("48x48",)), *[Icon("data:,x")] * 7)
