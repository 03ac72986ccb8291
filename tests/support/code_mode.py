"""Programs of a scripted model in code mode, and an approver that leaves its answers for later."""

from __future__ import annotations

from typing import Any

from dial_client import Approval, ApprovalContext, ToolCallRequest, ToolSpec


def program(source: str, id_: str = "call_1", *, keep: bool = False) -> dict[str, Any]:
    """Return the reply of a model that runs a program; with `keep` the program leaves its names for the next one."""
    arguments = {"code": source, "keep": True} if keep else {"code": source}
    return {"tool_calls": [{"name": "run_code", "arguments": arguments, "id": id_}]}


async def later(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    """Leave each call waiting for a later decision."""
    return Approval("defer")
