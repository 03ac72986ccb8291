"""A program for a test that kills it: its model writes a snippet, which waits for an approval that nobody gives.

``python -m tests.support.snippet_program FOLDER KEYS later`` prints ``waiting`` once the turn has ended, and stays.
With ``asking`` in place of ``later`` the turn goes on: somebody is asked, who does not answer.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from dial_client import (
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    AuditLog,
    ConversationManager,
    DialClient,
    SQLStore,
    ToolCallRequest,
    ToolSpec,
    Turn,
)
from dial_client.testing import ScriptedProvider
from tests.inner import sealed_states
from tests.support.servers.launch import raw

LIFETIME = 100.0
# Seconds after which the conversation of a killed process is free again.
LEASE = 2.0
ID = "the-conversation"
SOURCE = """
import asyncio
rows = []
for n in range(50):
    rows.append(await read(number=n))
more = await asyncio.gather(*[read(number=n) for n in range(20)])
try:
    await forbidden()
except PermissionError:
    print("forbidden: PermissionError")
try:
    await fail()
except RuntimeError:
    print("fail: RuntimeError")
page = await echo(text="of a stranger")
try:
    await publish(text=page)
except PermissionError:
    print("publish: PermissionError")
print(await send(text=f"the sum is {sum(rows)}"))
try:
    await publish(text=page)
except PermissionError:
    print("publish: PermissionError")
[sum(rows), sum(more)]
"""


async def decide_later(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    """Approve nothing now."""
    return Approval("defer")


async def ask_and_wait(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    """Ask somebody who does not answer."""
    print("waiting", flush=True)
    await anyio.sleep(LIFETIME)
    return Approval("deny")


class SnippetJob:
    """A conversation in a folder, its tools, which log what they do, and its audit log."""

    def __init__(self, folder: Path, keys: Path) -> None:
        self._folder = folder
        sealed_states.find_key_folder = lambda: keys

    def _log(self, line: str) -> None:
        with (self._folder / "calls").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def list_calls(self) -> list[str]:
        """Return what the tools have done."""
        return (self._folder / "calls").read_text(encoding="utf-8").splitlines()

    def list_audit(self) -> list[dict[str, Any]]:
        """Return the entries of the audit log."""
        files = sorted((self._folder / "audit").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def _list_tools(self) -> list[Any]:
        def read(number: int) -> int:
            """Read a number."""
            self._log(f"read {number}")
            return number

        def send(text: str) -> str:
            """Send a text."""
            self._log(f"send {text}")
            return "sent"

        def publish(text: str) -> str:
            """Publish a text."""
            self._log(f"publish {text}")
            return "published"

        def forbidden() -> None:
            """Do what is forbidden."""
            self._log("forbidden")

        def fail() -> None:
            """Fail."""
            raise KeyError

        return [read, send, publish, forbidden, fail]

    def _open(self, *replies: Any, approve: Any) -> DialClient:
        rules = [
            {"deny": "functions/forbidden"},
            {"deny": "functions/publish", "tainted": True},
            {"allow": ["functions/read", "functions/fail", "web/echo"], "tainted": False},
        ]
        return DialClient(
            ScriptedProvider(list(replies)),
            servers={"web": raw(untrusted=("*",))},
            tools=self._list_tools(),
            tool_format="code",
            approve=approve,
            approval=ApprovalPolicy(rules=rules),
            audit=AuditLog(self._folder / "audit"),
        )

    async def begin(self, *, is_asking: bool) -> None:
        """Run the turn until it waits: within the turn, or after its end."""
        call = {"tool_calls": [{"name": "run_code", "arguments": {"code": SOURCE}, "id": "call_1"}]}
        async with (
            SQLStore(f"sqlite:///{self._folder}/talk.db") as store,
            self._open(call, approve=ask_and_wait if is_asking else decide_later) as dial,
        ):
            manager = ConversationManager(dial, store, lease=LEASE)
            await manager.create(conversation_id=ID)
            await manager.chat(ID, "go on")
            print("waiting", flush=True)
            with anyio.move_on_after(LIFETIME):
                await anyio.sleep_forever()

    async def resume(self, *replies: Any) -> Turn:
        """Answer the question, and return the turn at its end."""
        async with SQLStore(f"sqlite:///{self._folder}/talk.db") as store, self._open(*replies, approve=None) as dial:
            manager = ConversationManager(dial, store)
            # A killed process seems to run the turn until its lease expires.
            while (await store.get(ID)).running:  # noqa: ASYNC110 - nothing tells of the end of a lease
                await anyio.sleep(0.1)
            [asked] = (await manager.get(ID)).pending_approvals
            handle = await manager.resume(ID, {asked.id: "once"})
            assert handle is not None
            return await handle.result()


if __name__ == "__main__":
    job = SnippetJob(Path(sys.argv[1]), Path(sys.argv[2]))
    anyio.run(partial(job.begin, is_asking=sys.argv[3] == "asking"))
