"""Grants that are valid until the client is closed: for a tool with its current definition, or for one call."""

from __future__ import annotations

import hashlib
import json

from dial_client.messages.message import ToolSpec
from dial_client.servers.server_cache import build_definition, compare_definitions
from dial_client.tools.policy import ProposedCall

GRANT = "grant for the session"
"""The source of decisions by a session grant, for the audit log."""


class SessionGrants:
    """The grants of one client."""

    def __init__(self) -> None:
        self._definitions: dict[tuple[str, str], str] = {}
        """The definition of each granted tool at the time of the grant."""
        self._calls: dict[tuple[str, str], set[str]] = {}
        """For each tool, the digests of the calls that were granted one by one."""

    def allow_tool(self, spec: ToolSpec) -> None:
        """Allow all calls of a tool, until its definition changes."""
        self._definitions[_build_key(spec)] = build_definition(spec)

    def allow_call(self, call: ProposedCall) -> None:
        """Allow all calls with the tool and arguments of this call."""
        self._calls.setdefault(_build_key(call.spec), set()).add(_compute_digest(call))

    def allows_tool(self, spec: ToolSpec) -> bool:
        """Return whether the tool is granted, and has not changed since."""
        return self._definitions.get(_build_key(spec)) == build_definition(spec)

    @property
    def tools(self) -> tuple[tuple[str, str], ...]:
        """The server and the tool's own name of each granted tool."""
        return tuple(self._definitions)

    def drop_tool(self, server: str, tool: str) -> None:
        """Drop the grant of a tool, and the grants of its single calls."""
        self._definitions.pop((server, tool), None)
        self._calls.pop((server, tool), None)

    def allows_call(self, call: ProposedCall) -> bool:
        """Return whether a call with the same tool and arguments was granted before."""
        return _compute_digest(call) in self._calls.get(_build_key(call.spec), ())

    def change(self, spec: ToolSpec) -> str:
        """Return the difference between a tool's definition and its grant; empty for no difference or no grant."""
        granted = self._definitions.get(_build_key(spec))
        return compare_definitions(granted, build_definition(spec)) if granted is not None else ""

    def drop_changed(self, spec: ToolSpec) -> None:
        """Drop the grant of a tool that has changed since."""
        if not self.allows_tool(spec):
            self._definitions.pop(_build_key(spec), None)

    def drop_server(self, server: str) -> None:
        """Drop the grants of a server's tools."""
        self._definitions = {key: text for key, text in self._definitions.items() if key[0] != server}
        self._calls = {key: digests for key, digests in self._calls.items() if key[0] != server}


def _build_key(spec: ToolSpec) -> tuple[str, str]:
    return spec.server, spec.tool


def _compute_digest(call: ProposedCall) -> str:
    """Return a digest of the call's arguments and the tool's definition."""
    text = json.dumps([build_definition(call.spec), dict(call.arguments)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
