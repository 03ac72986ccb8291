"""Tools that a vendor runs at its own endpoint, in the form of each API.

A profile switches them on: ``"server_tools": ["web_search", …]``. An entry that is an object is sent as it is, for
options and newer versions. The endpoint runs these tools: no call of theirs is approved or run here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dial_client.errors import ConfigError

if TYPE_CHECKING:
    from openai.types.responses.response_includable import ResponseIncludable

_TOOLS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use: the versions that every current model takes.
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
"""What a response has of the results of a tool only on request (``include``), by the tool's type."""


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of an endpoint's own that its requests switch on."""

    tools: tuple[Mapping[str, Any], ...] = ()
    """Entries of ``tools``."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the body."""

    @property
    def included(self) -> list[ResponseIncludable]:
        """The entries of ``include`` in requests of the Responses API."""
        return [_INCLUDED[kind] for tool in self.tools if (kind := str(tool.get("type"))) in _INCLUDED]


def build_server_tools(entries: Sequence[str | Mapping[str, Any]], wire: str) -> ServerTools:
    """Return the tools of a profile in the form of an API.

    Args:
        entries: names of tools, and definitions to be sent as they are.
        wire: ``chat``, ``responses`` or ``messages``.

    Raises:
        ConfigError: the API has no tool of such a name.
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
    known = f"did you mean {similar[0]!r}?" if similar else f"there are {', '.join(names)}"
    hint = f"{known} (or give the tool's definition as an object)"
    return ConfigError(f"server_tools: the {wire} API has no tool {name!r} of its own", hint=hint)
