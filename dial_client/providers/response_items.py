"""The types of items that may be sent back in a request, and their fields, from the schema of the Responses API.

Some endpoints add their own fields (Snowflake: ``item_id``, ``output_index``) and their own types of items. An endpoint
that validates requests refuses both. The SDK ``openai`` 3.54 defines the same types in `ResponseInputItemParam`.
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
"""The types of items that a request may contain, and the fields of each type."""


def to_input_item(item: Any) -> dict[str, Any] | None:
    """Return a response's item with only the fields that a request may contain; None if its type may not be sent."""
    kind = item.get("type") if isinstance(item, dict) else None
    fields = ITEM_FIELDS.get(kind) if isinstance(kind, str) else None
    return None if fields is None else {name: value for name, value in item.items() if name in fields}
