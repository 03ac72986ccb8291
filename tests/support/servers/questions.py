"""A server of the SDK that asks the host for everything there is: in process, or over stdio as a program."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp import UrlElicitationRequiredError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, ListRoots, Resolve, Sample
from mcp_types import CreateMessageResult, ElicitRequestURLParams, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

LIFETIME = 120.0
PAGE = "https://auth.example.test/start?id=7"

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2, "default": "Ada"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "gift": {"type": "boolean", "description": "Wrap it?"},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "email": {"type": "string", "format": "email"},
    },
    "required": ["name", "gift"],
}


class Order(BaseModel):
    name: str = Field(default="Ada", min_length=2)
    count: int = Field(default=1, ge=1, le=9)
    gift: bool


class Sure(BaseModel):
    yes: bool = True


async def question() -> Elicit[Sure]:
    return Elicit("Sure?", Sure)


async def order() -> Elicit[Order]:
    return Elicit("What shall it be?", Order)


def prompt() -> list[SamplingMessage]:
    return [SamplingMessage(role="user", content=TextContent(type="text", text="A word?"))]


async def sample() -> Sample:
    return Sample(prompt(), max_tokens=50)


async def folders() -> ListRoots:
    return ListRoots()


async def pushes(context: Context) -> str:
    """Ask as servers of 2025 do."""
    answer = await context.session.elicit_form("What shall it be?", FORM, related_request_id=context.request_id)
    return f"{answer.action} {answer.content}"


async def returns(answer: Annotated[ElicitationResult[Sure], Resolve(question)]) -> str:
    """Ask in a way that works in both eras."""
    return str(answer)


async def orders(answer: Annotated[ElicitationResult[Order], Resolve(order)]) -> str:
    """Ask with a form, in a way that works in both eras."""
    return str(answer)


async def many(context: Context, times: int) -> str:
    """Ask again and again."""
    answers: list[str] = []
    for _ in range(times):
        try:
            answers.append((await context.elicit("Again?", Sure)).action)
        except Exception as error:
            if "back-channel" in str(error):
                raise
            answers.append(str(error))
    return f"{len(answers)} asked, at last: {answers[-1]}"


async def secret(context: Context) -> str:
    """Ask for what a server must not ask for."""
    form = {"type": "object", "properties": {"password": {"type": "string", "title": "Password"}}}
    answer = await context.session.elicit_form("Please log in.", form, related_request_id=context.request_id)
    return str(answer.action)


async def page(context: Context, url: str = PAGE) -> str:
    """Want an address opened."""
    return (await context.elicit_url("Log in, please.", url, "7")).action


async def samples(context: Context, times: int = 1, max_tokens: int = 50) -> str:
    """Ask a model, as servers of 2025 do."""
    answers: list[Any] = []
    for _ in range(times):
        try:
            reply = await context.session.create_message(
                prompt(), max_tokens=max_tokens, system_prompt="Be brief.", related_request_id=context.request_id
            )
            answers.append(getattr(reply.content, "text", None))
        except Exception as error:
            if "back-channel" in str(error):
                raise
            answers.append(str(error))
    return str(answers)


async def samples_too(reply: Annotated[CreateMessageResult, Resolve(sample)]) -> str:
    """Ask a model in a way that works in both eras."""
    return str(getattr(reply.content, "text", None))


async def roots(found: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """Ask for folders."""
    return " ".join(f"{root.name}={root.uri}" for root in found.roots)


async def logs(context: Context, times: int = 1) -> str:
    """Log something."""
    for at in range(times):
        await context.info({"at": at, "odd": "\x1b[2Jred"}, logger_name="shop")
    return "logged"


async def logs_meanwhile(context: Context) -> str:
    """Log until a question is answered, and return how often."""
    answered = anyio.Event()

    async def ask() -> None:
        await context.elicit("Sure?", Sure)
        answered.set()

    count = 0
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not answered.is_set():
            await context.info({"text": str(count)})
            count += 1
            await anyio.sleep(0.1)
    return str(count)


async def sleeps() -> str:
    """Wait until the call is cancelled."""
    await anyio.sleep(LIFETIME)
    return "slept"


async def plain() -> str:
    """Ask nothing."""
    return "plain"


def make() -> MCPServer:
    """Make the server; one life each, as it keeps who has been where."""
    server = MCPServer("questions", instructions="Ask before you order.", log_level="CRITICAL")
    been: set[str] = set()

    async def behind_a_page(context: Context, tell: bool = False, visits: int = 1) -> str:
        """Refuse until the address was opened."""
        if len(been) < visits:
            been.add(str(len(been)))
            if tell and len(been) == visits:
                await context.session.send_elicit_complete("7")
            raise UrlElicitationRequiredError(
                [ElicitRequestURLParams(message="Log in, please.", url=PAGE, elicitation_id="7")]
            )
        return "welcome"

    for tool in (
        pushes,
        returns,
        orders,
        many,
        secret,
        page,
        samples,
        samples_too,
        roots,
        logs,
        logs_meanwhile,
        sleeps,
        plain,
        behind_a_page,
    ):
        server.add_tool(tool)
    return server


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    # With a file named, every second start comes to nothing.
    if sys.argv[1:] and (flag := Path(sys.argv[1])).exists():
        flag.unlink()
        sys.exit("not in this protocol")
    elif sys.argv[1:]:
        flag.touch()
    make().run("stdio")
