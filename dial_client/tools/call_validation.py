"""The validation of a call before approval: its tool exists, and its arguments fit the tool's schema."""

from __future__ import annotations

from dataclasses import replace

from dial_client.messages.message import Failure, ToolCallRequest, ToolCallResult
from dial_client.schema import tool_arguments
from dial_client.tools.catalog import Catalog, Route

MAX_NAMED = 20
"""Maximum number of parameters that an error names."""
MAX_TOOLS = 30
"""Maximum number of tools that an error names."""


def normalize_arguments(call: ToolCallRequest, route: Route) -> ToolCallRequest:
    """Return the call with invalid JSON of its arguments repaired, and harmless type mismatches corrected.

    A call that still does not fit is returned unchanged; `find_problem` reports it.
    """
    if call.unreadable is not None:
        parsed = tool_arguments.parse_arguments(call.unreadable)
        if parsed is None:
            return call
        call = replace(call, arguments=parsed, unreadable=None)
    if not route.check.find_problems(call.arguments):
        return call
    coerced = tool_arguments.coerce(call.arguments, route.spec.original_schema or route.spec.input_schema)
    return call if route.check.find_problems(coerced) else replace(call, arguments=coerced)


def find_problem(call: ToolCallRequest, route: Route | None, catalog: Catalog) -> ToolCallResult | None:
    """Return the failure of an invalid call; None for a valid call."""
    if route is None:
        return ToolCallResult.failed(call.id, Failure.UNKNOWN_TOOL, _describe_unknown_tool(call.name, catalog))
    if call.unreadable is not None:
        problem = "The arguments are not a JSON object"
    elif problems := route.check.find_problems(call.arguments):
        problem = f"The arguments do not fit: {'; '.join(problems)}"
    else:
        return None
    return ToolCallResult.failed(call.id, Failure.BAD_ARGUMENTS, f"{problem}. {_describe_arguments(route)}")


def _describe_arguments(route: Route) -> str:
    properties = route.spec.input_schema.get("properties", {})
    required = route.spec.input_schema.get("required", [])
    names = [f"{name}{'' if name in required else ' (optional)'}" for name in list(properties)[:MAX_NAMED]]
    return f"Expected a JSON object with: {', '.join(names)}." if names else "Expected an empty JSON object."


def _describe_unknown_tool(name: str, catalog: Catalog) -> str:
    if not catalog.routes:
        return f"There is no tool {name!r}; no tools are on offer."
    from difflib import get_close_matches

    near = get_close_matches(name, catalog.routes, n=1, cutoff=0.5)
    if near:
        return f"There is no tool {name!r}. Did you mean {near[0]!r}?"
    return f"There is no tool {name!r}. On offer are: {', '.join(list(catalog.routes)[:MAX_TOOLS])}."
