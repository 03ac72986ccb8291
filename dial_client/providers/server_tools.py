"""The tools that a vendor runs at its own endpoint: their definitions in requests, and their calls in replies.

A profile enables them: ``"server_tools": ["web_search", …]``. An entry that is an object is sent unchanged, for options
and newer versions. The endpoint runs these tools: the client shows their calls, and neither approves nor runs them.
Their blocks (Messages) and items (Responses) are sent back to the endpoint unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Failure, ToolCallRequest, ToolCallResult
from dial_client.providers.tool_call_codec import parse_call, to_json_text
from dial_client.runtime.json_fields import find_text, to_object, to_text
from dial_client.runtime.text import find_nearest

if TYPE_CHECKING:
    from openai.types.responses.response_includable import ResponseIncludable

_TOOLS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use: the versions that every current model supports.
    "messages": {
        "web_search": {"type": "web_search_20250305", "name": "web_search"},
        "web_fetch": {"type": "web_fetch_20250910", "name": "web_fetch", "citations": {"enabled": True}},
        "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
    },
    # https://developers.openai.com/api/docs/guides/tools
    "responses": {
        "web_search": {"type": "web_search"},
        "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
        "image_generation": {"type": "image_generation"},
    },
}
_FIELDS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"chat": {"web_search": {"web_search_options": {}}}}
# The value of ``include`` that requests the results of a tool, by the tool's type.
_INCLUDED: Mapping[str, ResponseIncludable] = {
    "web_search": "web_search_call.action.sources",
    "code_interpreter": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
}


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The fields of requests that enable an endpoint's own tools."""

    tools: tuple[Mapping[str, Any], ...] = ()
    """The entries for ``tools``."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of the body."""

    @property
    def included(self) -> list[ResponseIncludable]:
        """The entries for ``include`` in requests of the Responses API."""
        return [_INCLUDED[kind] for tool in self.tools if (kind := str(tool.get("type"))) in _INCLUDED]


def build_server_tools(entries: Sequence[str | Mapping[str, Any]], api: str) -> ServerTools:
    """Return a profile's server tools in the form of an API.

    Args:
        entries: Names of tools, and definitions that are sent unchanged.
        api: The API: ``chat``, ``responses`` or ``messages``.

    Raises:
        ConfigError: The API has no server tool with this name.
    """
    tools: list[Mapping[str, Any]] = []
    body: dict[str, Any] = {}
    for entry in entries:
        if not isinstance(entry, str):
            tools.append(dict(entry))
        elif entry in _TOOLS.get(api, {}):
            tools.append(deepcopy(dict(_TOOLS[api][entry])))
        elif entry in _FIELDS.get(api, {}):
            body |= deepcopy(dict(_FIELDS[api][entry]))
        else:
            names = [*_TOOLS.get(api, {}), *_FIELDS.get(api, {})]
            nearest = find_nearest(entry, names)
            suggestion = f"did you mean {nearest!r}?" if nearest else f"the server tools are {', '.join(names)}"
            hint = f"{suggestion} (or set the tool's definition as an object)"
            raise ConfigError(f"server_tools: the {api} API has no server tool {entry!r}", hint=hint)
    return ServerTools(tuple(tools), body)


# The most characters of a result that are shown.
MAX_RESULT = 10_000
# The prefix of the names of tool searches, which are not shown to the user.
_HIDDEN_PREFIX = "tool_search_tool"
_ITEM_TOOLS: Mapping[str, str] = {
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
    "shell_call": "shell",
    "mcp_call": "",
}
# The name of a tool's only argument, and the field of the item that contains it.
_ARGUMENT_FIELDS: Mapping[str, tuple[str, str]] = {
    "file_search_call": ("queries", "queries"),
    "code_interpreter_call": ("code", "code"),
    "image_generation_call": ("prompt", "revised_prompt"),
}
_RESULT_FIELDS: Mapping[str, str] = {"file_search_call": "results", "code_interpreter_call": "outputs"}
_CLIENT_ITEMS = frozenset({"computer_call", "custom_tool_call", "apply_patch_call", "local_shell_call"})
# Tools whose results contain untrusted text.
_UNTRUSTED_TOOLS = frozenset({"web_search", "web_fetch", "file_search"})


def is_call_block(block: Mapping[str, Any]) -> bool:
    """Return True for a block with a call that the endpoint runs and that the user is shown."""
    return block.get("type") in ("server_tool_use", "mcp_tool_use") and not to_text(block.get("name")).startswith(
        _HIDDEN_PREFIX
    )


def parse_call_block(block: Mapping[str, Any]) -> ToolCallRequest:
    """Return the call in a block, which must contain its complete input."""
    name = ".".join(filter(None, (to_text(block.get("server_name")), to_text(block.get("name")))))
    return parse_call(to_text(block.get("id")), name, block.get("input"))


def parse_result_block(block: Mapping[str, Any], call: ToolCallRequest) -> ToolCallResult:
    """Return the result in a block. `call` is the call with the id that the block names."""
    content = block.get("content")
    code = find_text(content, "error_code")
    if code or block.get("is_error") is True:
        return _fail(call, code or _describe(content))
    return _succeed(call, _describe(content))


def parse_item(item: Mapping[str, Any]) -> tuple[ToolCallRequest, ToolCallResult | None] | None:
    """Return the call in an item, and its result if the tool has ended; None for an item without such a call."""
    kind = to_text(item.get("type"))
    if kind not in _ITEM_TOOLS:
        return None
    name = _ITEM_TOOLS[kind] or f"{to_text(item.get('server_label'))}.{to_text(item.get('name'))}"
    call = parse_call(to_text(item.get("id")), name, _find_arguments(kind, item))
    status, error = item.get("status"), item.get("error")
    if status in ("in_progress", "searching", "interpreting", "generating", "calling") or kind == "shell_call":
        return call, None
    if error or status in ("failed", "incomplete"):
        return call, _fail(call, to_text(error) or (to_json_text(error) if error else f"the call is {status}"))
    return call, _succeed(call, _describe_item(kind, item))


def parse_shell_output(item: Mapping[str, Any], calls: Mapping[str, ToolCallRequest]) -> ToolCallResult | None:
    """Return the result in a ``shell_call_output`` item; None for any other item, or if its call is unknown.

    Args:
        item: The item.
        calls: The calls so far, by ``call_id``.
    """
    call = calls.get(to_text(item.get("call_id"))) if item.get("type") == "shell_call_output" else None
    return None if call is None else _succeed(call, _describe(item.get("output")))


def describe_client_item(item: Mapping[str, Any]) -> str:
    """Return a note on an item that asks the client to run a tool that it did not offer; empty for any other item."""
    kind = to_text(item.get("type"))
    return f"the endpoint called a {kind}, which was not offered: it is not run" if kind in _CLIENT_ITEMS else ""


def _find_arguments(kind: str, item: Mapping[str, Any]) -> Any:
    if kind in ("web_search_call", "shell_call"):
        action = to_object(item.get("action"))
        return {name: value for name, value in action.items() if name != "sources" and value is not None}
    if kind not in _ARGUMENT_FIELDS:
        return item.get("arguments")
    name, key = _ARGUMENT_FIELDS[kind]
    return {name: item[key]} if item.get(key) else {}


def _describe_item(kind: str, item: Mapping[str, Any]) -> str:
    if kind == "image_generation_call":
        return "an image"
    if kind == "web_search_call":
        return _describe(to_object(item.get("action")).get("sources"))
    return _describe(item.get(_RESULT_FIELDS.get(kind, "output")))


def _describe(content: Any) -> str:
    """Return the content of a result as text, whatever its form."""
    if isinstance(content, Mapping):
        if content.get("type") in ("web_search_result", "url"):
            return " - ".join(filter(None, (to_text(content.get("title")), to_text(content.get("url")))))
        if "stdout" in content or "stderr" in content:
            code = content.get("return_code")
            ended = f"exit code {code}" if code else ""
            texts = (to_text(content.get("stdout")), to_text(content.get("stderr")), ended)
            return "\n".join(text.rstrip() for text in texts if text)
        names = ("title", "filename", "url", "logs", "text", "data")
        shown = filter(None, (to_text(content.get(name)) for name in names))
        inner = [_describe(content[name]) for name in ("content", "source", "lines") if content.get(name)]
        return "\n".join([*shown, *inner])
    if isinstance(content, Sequence) and not isinstance(content, str):
        return "\n".join(filter(None, map(_describe, content)))
    return "" if content is None else str(content)


def _succeed(call: ToolCallRequest, text: str) -> ToolCallResult:
    shown = text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}…"
    taint = call.name if call.name in _UNTRUSTED_TOOLS or "." in call.name else ""
    return ToolCallResult(call.id, success=True, content=shown, taint=taint)


def _fail(call: ToolCallRequest, error: str) -> ToolCallResult:
    return ToolCallResult.failed(call.id, Failure.TOOL, error[:MAX_RESULT] or "it failed")
