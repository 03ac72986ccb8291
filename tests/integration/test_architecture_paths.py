"""The frames that docs/architecture.md lists are those on the stack, for a question and for a tool call."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import pytest

import dial_client
from dial_client import DialClient, ModelProfile
from dial_client.extend import Api
from tests.inner import DirectTransport, StdioTransport
from tests.support.model_endpoint import Call, Say, model_endpoint
from tests.support.program import python_server

PACKAGE = Path(dial_client.__file__).parent
RECORDS = Path(__file__).parents[1] / "support" / "servers" / "records.py"
DOCUMENT = PACKAGE.parent / "docs" / "architecture.md"
TASK = "BackgroundTasks._run_and_log"


def read_frames(heading: str) -> list[str]:
    """Return the frames of the block below a heading, without those before the task of the turn."""
    text = DOCUMENT.read_text("utf-8").partition(f"## {heading}\n")[2]
    block = re.findall(r"```text\n(.*?)```", text, re.DOTALL)[0]
    frames = [re.sub(r"^\w+ +|^ +", "", line).split()[0] for line in block.splitlines()]
    return frames[frames.index(TASK) if TASK in frames else 0 :]


def list_frames() -> list[str]:
    """Return the functions of the package that are on the stack, from the task to the caller."""
    frames = [frame for frame, _ in traceback.walk_stack(None) if frame.f_code.co_filename.startswith(str(PACKAGE))]
    return [
        frame.f_code.co_qualname.replace(".<locals>.run", "").replace(".<locals>", "") for frame in reversed(frames)
    ]


@pytest.mark.anyio
@pytest.mark.once
async def test_the_frames_of_the_architecture_are_those_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: dict[str, list[str]] = {}

    def watch(owner: type, method: str) -> None:
        original = getattr(owner, method)

        async def record(*args: Any, **keywords: Any) -> Any:
            stacks.setdefault(method, list_frames())
            return await original(*args, **keywords)

        monkeypatch.setattr(owner, method, record)

    watch(DirectTransport, "_take_idle")
    watch(StdioTransport, "write_line")
    replies = [Say("", (Call("delete_record", {"id": 1}),)), Say("Done.")]
    with model_endpoint(replies) as endpoint:
        profile = ModelProfile(name="m", api=Api.CHAT, base_url=f"{endpoint.url}/v1", model="m")
        servers = {"records": python_server(RECORDS, autoApprove=["*"])}
        async with DialClient("m", models={"m": profile}, servers=servers) as dial:
            assert (await dial.run("Delete it")).text == "Done."
    assert stacks["_take_idle"] == read_frames("The path of a message")
    assert stacks["write_line"] == read_frames("The path of a tool call")
