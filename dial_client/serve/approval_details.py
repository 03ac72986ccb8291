"""Details of a tool call that the user has to approve, also with changed arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import anyio.to_thread

from dial_client.client.sampling import SAMPLING
from dial_client.hooks.approval_request import count_unseen_arguments, quote_name, to_claims
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.serve.http_responses import HttpError
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.approval import ApprovalContext
from dial_client.tools.file_changes import find_changes, names_same_file


async def describe_call(
    call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext, settings: ServerSettings | None
) -> dict[str, Any]:
    """Return the details of a call, of JSON types only.

    Args:
        call: The call.
        tool: The tool as it was offered.
        context: The circumstances of the call.
        settings: The server's settings; files in its folders are compared with the content that the call would write.
    """
    return {
        "call": call.to_dict(),
        "server": context.server,
        "tool": tool.tool,
        "names": {"server": quote_name(context.server), "tool": quote_name(tool.tool)},
        "title": tool.title,
        "description": tool.description,
        "read_only": tool.read_only,
        "claims": to_claims(tool),
        "change": context.change,
        "why_asked": context.why_asked,
        "removed_invisible": tool.removed_invisible,
        "invisible_in_arguments": count_unseen_arguments(call),
        "schema": None if tool.tool == SAMPLING else dict(tool.original_schema or tool.input_schema),
        "file_changes": await _compare(call.arguments, settings),
    }


async def describe_changed_call(
    about: Mapping[str, Any], arguments: Any, settings: ServerSettings | None
) -> dict[str, Any]:
    """Return the details that change with the arguments, and the problems of the changed arguments.

    Args:
        about: The details of the call, as `describe_call` returned them.
        arguments: The changed arguments.
        settings: The server's settings. A file is read only if the original call names the same file.

    Raises:
        HttpError: The arguments are not an object, or the arguments of this call cannot be changed.
    """
    problems = find_problems(about, arguments)
    call = ToolCallRequest("", "", arguments)
    is_same_file = names_same_file(about["call"]["arguments"], arguments)
    return {
        "problems": problems,
        "invisible_in_arguments": count_unseen_arguments(call),
        "file_changes": await _compare(arguments, settings) if is_same_file else [],
    }


def find_problems(about: Mapping[str, Any], arguments: Any) -> list[str]:
    """Return how changed arguments violate the tool's schema. For arguments and errors see `describe_changed_call`."""
    schema = about.get("schema")
    if not isinstance(arguments, dict):
        raise HttpError(400, "arguments must be an object", "bad_arguments", param="arguments")
    if not isinstance(schema, Mapping):
        raise HttpError(400, "the arguments of this call cannot be changed", "bad_arguments", param="arguments")
    return list(ArgumentCheck(schema).find_problems(arguments))


async def _compare(arguments: Mapping[str, Any], settings: ServerSettings | None) -> list[dict[str, Any]]:
    changes = await anyio.to_thread.run_sync(find_changes, arguments, settings)
    return [asdict(change) for change in changes]
