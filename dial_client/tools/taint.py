"""Untrusted content in a conversation: its sources, and its effect on approval.

Web pages, mail and issues are written by strangers, and a model may do what they say. A server's entry marks what
brings in such text (``"untrusted": true``, or the names of tools). From such a result on the conversation is tainted,
for as long as the text is in its history: what can act or send is asked about again, whatever had allowed it. That is
the rule against what Simon Willison calls the lethal trifecta: private data, untrusted content, and a way out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from dial_client.callbacks.approval_request import quote_name
from dial_client.messages.message import NOT_ALLOWED, Failure, Message, Role, ToolCallRequest, ToolCallResult
from dial_client.servers.connection import Connection
from dial_client.settings.tool_patterns import any_name
from dial_client.tools.catalog import Catalog, Route
from dial_client.tools.resource_tools import ResourceTools

_OURS = frozenset({Failure.UNKNOWN_TOOL, Failure.BAD_ARGUMENTS, Failure.DENIED, Failure.NOT_RUN, Failure.TIMEOUT})
"""Failures with texts of the host's own, without any text of a server."""
MAX_NAMED = 3
"""Sources that are named to people and models."""


class Taint:
    """The sources of untrusted content in one conversation, in the order in which they came.

    Args:
        sources: those it begins with.
    """

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self._sources = dict.fromkeys(sources)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources so far; empty for a conversation without untrusted content."""
        return tuple(self._sources)

    def add(self, source: str) -> None:
        """Add a source; an empty text is none."""
        if source:
            self._sources[source] = None


def find_taint_source(call: ToolCallRequest, result: ToolCallResult, route: Route | None) -> str:
    """Return the source that makes a result untrusted, ``server/tool``; empty for none.

    Args:
        call: its arguments name the server whose resource the host's own tools have read.
        result: of the call. A failure counts too if its text may come from a server.
        route: to the tool.
    """
    return "" if route is None or result.failure in _OURS else _untrusted(route, call.arguments)


def find_taint(
    messages: Sequence[Message], catalog: Catalog, servers: Iterable[Connection], own: Container[str] = ()
) -> Taint:
    """Return the taint of a conversation.

    Messages carry a mark, which outlives changed names and removed servers. Results without one, of another program or
    an earlier version, are judged by the name they were called by; where that leads nowhere any more, and some
    server brings in untrusted content, it is taken to have been that one.

    Args:
        messages: the conversation.
        catalog: the tools of now.
        servers: of the client.
        own: names of the caller's own tools, whose results are trusted.
    """
    taint = Taint(message.taint for message in messages if message.taint)
    if not any(is_untrusted(server) for server in servers):
        return taint
    called = {call.id: call for message in messages for call in message.tool_calls}
    for message in messages:
        call = called.get(message.tool_call_id or "")
        name = message.name or (call.name if call is not None else "")
        if message.role is not Role.TOOL or message.taint or name in own or _is_ours(message):
            continue
        route = catalog.routes.get(name)
        if route is not None:
            taint.add(_untrusted(route, call.arguments if call is not None else {}))
        else:
            taint.add(name or "an earlier tool result")
    return taint


def is_untrusted(connection: Connection | None) -> bool:
    """Return True if a server brings in untrusted content: its resources and prompts then count as such."""
    return connection is not None and connection.settings is not None and bool(connection.settings.untrusted)


def describe_sources(sources: Sequence[str]) -> str:
    """Return the sources as a text for people and models; servers choose their names, so they are quoted."""
    more = f" and {len(sources) - MAX_NAMED} more" if len(sources) > MAX_NAMED else ""
    named = ", ".join(quote_name(source, notes=False) for source in sources[:MAX_NAMED])
    return f"untrusted content from {named}{more}"


def _is_ours(message: Message) -> bool:
    """Return True if the host wrote a result itself, for a call that was not made or has no result."""
    return message.is_error and message.text.startswith((NOT_ALLOWED, "Not run:", "Interrupted:"))


def _untrusted(route: Route, arguments: Mapping[str, Any]) -> str:
    if isinstance(route.connection, ResourceTools):
        return next((name for name in route.connection.untrusted(arguments.get("server"))), "")
    settings = route.connection.settings
    is_marked = settings is not None and any_name(settings.untrusted, route.spec.tool)
    return f"{route.spec.server}/{route.spec.tool}" if is_marked else ""
