"""A program for a test that kills it: runs or resumes a turn with two agents over servers of its own.

``python -m tests.support.agents_program JSON``: the JSON is the job that `main` reads. It prints a line of JSON for
each question to the user, and for the end of the turn. A question of an agent that the job does not name is not
answered.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from dial_client import Agent, Approval, ApprovalContext, ConversationManager, DialClient, SQLStore
from dial_client import ToolCallRequest as Request
from dial_client import ToolSpec as Spec
from dial_client.testing import ScriptedProvider
from tests.inner import AuditLog, CallChunk, Delta, ModelRequest


class Waiting(ScriptedProvider):
    """A scripted model that puts the id of the call in the background into its calls of ``wait_for_call``."""

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of the next reply."""
        found = re.findall(r"Background call (\w+)", "\n".join(message.text for message in request.messages))
        async for delta in super().generate(request):
            if isinstance(delta, CallChunk) and delta.call.name == "wait_for_call":
                yield CallChunk(replace(delta.call, arguments={"id": found[-1], "seconds": 50}))
            else:
                yield delta


async def main(job: dict[str, Any]) -> None:
    def say(**fields: Any) -> None:
        print(json.dumps(fields), flush=True)

    async def approve(request: Request, tool: Spec, context: ApprovalContext) -> Approval:
        say(asked=[context.agent, tool.server, bool(context.why_asked)])
        if context.agent not in job["answers"]:
            await anyio.sleep_forever()
        return Approval(job["answers"][context.agent])

    agents = [
        Agent("alpha", "Works.", tools=["counting/*", "slow/*"], model=Waiting(job["alpha"])),
        Agent("beta", "Sends.", model=ScriptedProvider(job["beta"])),
    ]
    model = ScriptedProvider(job["main"])
    with AuditLog(Path(job["audit"])) as audit:
        options: dict[str, Any] = {"agents": agents, "approve": approve, "audit": audit}
        async with DialClient(model, servers=job["servers"], **options) as dial, SQLStore(job["store"]) as store:
            manager = ConversationManager(dial, store, lease=1.0)
            if job["is_resumed"]:
                turn = await manager.resume(job["conversation"])
                assert turn is not None
            else:
                turn = await manager.start(job["conversation"], "Do it all.")
            ended = await turn.result()
            say(text=ended.text, results=[str(record.result.content) for record in ended.tool_calls])


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
