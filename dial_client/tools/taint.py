"""Untrusted content in a conversation: its sources, and its effect on approval.

Web pages, mail and issues are written by strangers, and a model may follow instructions in them. A server's entry marks
the tools that return such text (``"untrusted": true``, or the names of tools). After such a result the conversation is
tainted, as long as the text is in its history: calls that can act or send need approval again, even if a rule or grant
allows them. This prevents what Simon Willison calls the lethal trifecta: private data, untrusted content, and a way to
send data out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from dial_client.hooks.approval_request import quote_name
from dial_client.messages.message import Failure, Message, Role, ToolCallRequest, ToolCallResult, is_host_result
from dial_client.servers.connection import Connection
from dial_client.tools.catalog import Catalog, Route

# Failures whose text the host writes, without any text of a server.
_HOST_FAILURES = frozenset(
    {Failure.UNKNOWN_TOOL, Failure.BAD_ARGUMENTS, Failure.DENIED, Failure.NOT_RUN, Failure.TIMEOUT}
)
# Maximum number of sources that are named to users and models.
MAX_NAMED = 3


class Taint:
    """The sources of untrusted content in one conversation, in the order of their first content.

    Args:
        sources: The sources so far.
    """

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self._sources = dict.fromkeys(sources)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources so far; empty for a conversation without untrusted content."""
        return tuple(self._sources)

    def add(self, source: str) -> None:
        """Add a source; an empty text is ignored."""
        if source:
            self._sources[source] = None


def find_taint_source(call: ToolCallRequest, result: ToolCallResult, route: Route | None) -> str:
    """Return the source that makes a result untrusted, ``server/tool``; empty if the result is trusted.

    Args:
        call: The call. If it calls a resource tool of the host, its arguments name the server.
        result: The result of the call. A failure is untrusted too if its text may come from a server.
        route: The route to the tool.
    """
    # An error message of a server may contain instructions too; only texts of the host are harmless.
    if route is None or result.failure in _HOST_FAILURES:
        return ""
    return route.connection.find_untrusted(route.spec.tool, call.arguments)


def find_taint(
    messages: Sequence[Message], catalog: Catalog, servers: Iterable[Connection], client_tools: Container[str] = ()
) -> Taint:
    """Return the taint of a conversation.

    Untrusted messages have a mark, which stays valid if a tool's name changes or a server is removed. Results that may
    lack the mark, because another program or an earlier version stored them, are judged by the name of their tool. If
    no tool has this name any more, and any server returns untrusted content, the result counts as untrusted.

    Args:
        messages: The conversation.
        catalog: The current tools.
        servers: The servers of the client.
        client_tools: The names of client-side tools, whose results are trusted.
    """
    # The mark counts whatever the configuration says now: the strangers' text is still in the history.
    taint = Taint(message.taint for message in messages if message.taint)
    if not any(is_untrusted(server) for server in servers):
        return taint
    called = {call.id: call for message in messages for call in message.tool_calls}
    for message in messages:
        call = called.get(message.tool_call_id or "")
        name = message.name or (call.name if call is not None else "")
        if message.role is not Role.TOOL or message.taint or name in client_tools or is_host_result(message):
            continue
        route = catalog.routes.get(name)
        # Without a route nobody knows where the text came from, so the careful answer is that it is untrusted.
        if route is not None:
            taint.add(route.connection.find_untrusted(route.spec.tool, call.arguments if call is not None else {}))
        else:
            taint.add(name or "an earlier tool result")
    return taint


def is_untrusted(connection: Connection | None) -> bool:
    """Return whether a server returns untrusted content; its resources and prompts are then untrusted too."""
    return connection is not None and connection.settings is not None and bool(connection.settings.untrusted)


def describe_sources(sources: Sequence[str]) -> str:
    """Return the sources as a text for users and models. Servers choose the names of tools, so the names are quoted."""
    more = f" and {len(sources) - MAX_NAMED} more" if len(sources) > MAX_NAMED else ""
    named = ", ".join(quote_name(source, notes=False) for source in sources[:MAX_NAMED])
    return f"untrusted content from {named}{more}"
