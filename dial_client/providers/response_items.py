"""The items of a response that may be sent back, and their fields, as the schema of the Responses API has them.

Endpoints add fields of their own to items (``item_id``, ``output_index`` at Snowflake), and items of their own; an
endpoint that checks requests refuses both. The SDK ``openai`` 3.54 has the same in `ResponseInputItemParam`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CALL = "id call_id status"
ITEM_FIELDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(["type", *names.split()])
    for kind, names in {
        "additional_tools": "id role tools",
        "apply_patch_call": f"{_CALL} caller operation",
        "apply_patch_call_output": f"{_CALL} caller output",
        "code_interpreter_call": "id status code container_id outputs",
        "compaction": "id encrypted_content",
        "computer_call": f"{_CALL} action actions pending_safety_checks",
        "computer_call_output": f"{_CALL} acknowledged_safety_checks output",
        "custom_tool_call": "id call_id async caller input name namespace",
        "custom_tool_call_output": "id call_id caller output",
        "file_search_call": "id status queries results",
        "function_call": f"{_CALL} arguments async caller name namespace",
        "function_call_output": f"{_CALL} caller name namespace output",
        "image_generation_call": "id status action background error output_format quality result revised_prompt size"
        " svg_usage",
        "local_shell_call": f"{_CALL} action",
        "local_shell_call_output": "id status output",
        "mcp_approval_request": "id arguments name server_label",
        "mcp_approval_response": "id approval_request_id approve reason",
        "mcp_call": "id status approval_request_id arguments error name output server_label",
        "mcp_list_tools": "id error server_label tools",
        "message": "id status content phase role",
        "program": "id call_id code fingerprint",
        "program_output": f"{_CALL} result",
        "reasoning": "id status content encrypted_content summary",
        "shell_call": f"{_CALL} action caller environment",
        "shell_call_output": f"{_CALL} caller max_output_length output",
        "tool_search_call": f"{_CALL} arguments execution",
        "tool_search_output": f"{_CALL} execution tools",
        "web_search_call": "id status action",
    }.items()
}
"""The types of the items that a response can have, and the fields of each in a request."""


def to_input_item(item: Any) -> dict[str, Any] | None:
    """Return an item of a response as a request may have it; None if no request may have it."""
    kind = item.get("type") if isinstance(item, dict) else None
    fields = ITEM_FIELDS.get(kind) if isinstance(kind, str) else None
    return None if fields is None else {name: value for name, value in item.items() if name in fields}
