"""Clients of a gateway with a person: what the person is asked, and what the person answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
)
from pydantic import FileUrl

from dial_client import ApprovalPolicy, Callbacks, DialClient
from tests.inner import Denials, Gateway, GatewayOptions, Questions, ToolListing

Answer = ElicitResult | ErrorData | Callable[[Any], ElicitResult | ErrorData]


def decide(decision: str, **more: str) -> ElicitResult:
    """Return the answer to an approval."""
    return ElicitResult(action="accept", content={"decision": decision, **more})


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


class Person:
    """The person at a client: records the questions, and gives the same answer to each unless there are several."""

    def __init__(self, *answers: Answer, name: str = "person", roots: Sequence[str] = ()) -> None:
        self.name = name
        self.asked: list[ElicitRequestFormParams | ElicitRequestURLParams] = []
        self.sampled: list[CreateMessageRequestParams] = []
        self.roots_asked = 0
        self._answers = list(answers)
        self._roots = roots

    async def elicit(self, _: object, params: ElicitRequestFormParams | ElicitRequestURLParams) -> Any:
        """Answer an elicitation."""
        self.asked.append(params)
        await anyio.lowlevel.checkpoint()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(params) if callable(answer) else answer

    async def sample(
        self, _: object, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Answer in place of a model."""
        self.sampled.append(params)
        await anyio.lowlevel.checkpoint()
        return CreateMessageResult(
            role="assistant", content=TextContent(text=f"a word of {self.name}"), model=self.name
        )

    async def list_roots(self, _: object) -> ListRootsResult:
        """Return the folders of the person."""
        self.roots_asked += 1
        await anyio.lowlevel.checkpoint()
        return ListRootsResult(roots=[Root(uri=FileUrl(f"file:///{self.name}"), name=self.name)])

    def options(self, *features: str) -> dict[str, Any]:
        """Return the options of a client with these features; with all if none is named."""
        callbacks: dict[str, Any] = {
            "elicitation": {"elicitation_callback": self.elicit},
            "sampling": {
                "sampling_callback": self.sample,
                "sampling_capabilities": SamplingCapability(tools=SamplingToolsCapability()),
            },
            "roots": {"list_roots_callback": self.list_roots},
        }
        chosen = features or tuple(callbacks)
        named: dict[str, Any] = {"client_info": Implementation(name=self.name, version="1")}
        return {key: value for name in chosen if name for key, value in callbacks[name].items()} | named


@asynccontextmanager
async def asking(
    servers: dict[str, Any],
    *allow: str,
    folder: Path,
    is_single: bool = False,
    callbacks: dict[str, Any] | None = None,
    approval: dict[str, Any] | None = None,
    model: Any = None,
    logins: Any = False,
    task_seconds: float = 5.0,
    listing: ToolListing = ToolListing.ALL,
    **options: Any,
) -> AsyncGenerator[Gateway]:
    """Run a gateway that asks its clients; its key is in `folder`."""
    denials = Denials()
    questions = Questions(denials.deny, is_single=is_single)
    dial = DialClient(
        model,
        servers=servers,
        approve=questions,
        approval=ApprovalPolicy(allow=allow, concurrent=True, **(approval or {})),
        callbacks=Callbacks(callers=questions, **(callbacks or {})),
        logins=logins,
        **options,
    )
    async with dial, anyio.create_task_group() as group:
        gateway_options = GatewayOptions(
            state_folder=folder, denials=denials, logins=logins, task_seconds=task_seconds, listing=listing
        )
        gateway = Gateway(dial, options=gateway_options, questions=questions)
        group.start_soon(gateway.run)
        yield gateway
        group.cancel_scope.cancel()


@asynccontextmanager
async def connected(gateway: Gateway, mode: str, person: Person, *features: str) -> AsyncGenerator[Client]:
    """Connect a client with a person to a gateway in this process."""
    async with Client(gateway.server, mode=mode, **person.options(*features)) as client:
        yield client
