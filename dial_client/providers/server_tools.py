"""Definitions of the tools that a vendor runs at its own endpoint, for each API.

A profile enables them: ``"server_tools": ["web_search", …]``. An entry that is an object is sent unchanged, for options
and newer versions. The endpoint runs these tools; the client neither approves nor runs their calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import ConfigError

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
_FIELDS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "chat": {"web_search": {"web_search_options": {}}},
}
_INCLUDED: Mapping[str, ResponseIncludable] = {
    "web_search": "web_search_call.action.sources",
    "code_interpreter": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
}
"""The value of ``include`` that requests the results of a tool, by the tool's type."""


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


def build_server_tools(entries: Sequence[str | Mapping[str, Any]], wire: str) -> ServerTools:
    """Return a profile's server tools in the form of an API.

    Args:
        entries: Names of tools, and definitions that are sent unchanged.
        wire: The API: ``chat``, ``responses`` or ``messages``.

    Raises:
        ConfigError: The API has no server tool with this name.
    """
    tools: list[Mapping[str, Any]] = []
    body: dict[str, Any] = {}
    for entry in entries:
        if not isinstance(entry, str):
            tools.append(dict(entry))
        elif entry in _TOOLS.get(wire, {}):
            tools.append(deepcopy(dict(_TOOLS[wire][entry])))
        elif entry in _FIELDS.get(wire, {}):
            body |= deepcopy(dict(_FIELDS[wire][entry]))
        else:
            raise _build_unknown_tool_error(entry, wire)
    return ServerTools(tuple(tools), body)


def _build_unknown_tool_error(name: str, wire: str) -> ConfigError:
    import difflib

    names = [*_TOOLS.get(wire, {}), *_FIELDS.get(wire, {})]
    similar = difflib.get_close_matches(name, names, n=1)
    suggestion = f"did you mean {similar[0]!r}?" if similar else f"the server tools are {', '.join(names)}"
    hint = f"{suggestion} (or set the tool's definition as an object)"
    return ConfigError(f"server_tools: the {wire} API has no server tool {name!r}", hint=hint)
