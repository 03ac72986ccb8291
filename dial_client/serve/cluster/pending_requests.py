"""Requests that wait for the user, and grants, shared by all processes that use the same database.

A request is sent to a topic that all processes read. The process that answers takes the message, which only one process
can do, and sends the answer to the process that asked. Requests and grants expire with the process that sent them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dial_client.messages.errors import DialError
from dial_client.runtime.logs import get_logger
from dial_client.serve.cluster.peers import (
    LEASE_TTL,
    LISTED_GRANTS_TOPIC,
    REQUEST_TTL,
    PeerBus,
    build_answer_topic,
    build_grant_topic,
    build_pending_requests_topic,
)
from dial_client.sinks import sse_encoder
from dial_client.stores.mailbox import Envelope

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that waits for the user's answer."""

    id: str
    kind: str
    about: Mapping[str, Any]
    """The details for the user, of JSON types only."""
    grant_key: str = ""
    """The key of the grant if the user approves the request for the session."""
    reply_to: str = ""
    """The topic of the answer."""
    message_id: int | None = None
    """The message in the mailbox; None if it was not sent."""
    owner: str = ""
    """The person who may answer; empty in a service for one person."""


@dataclass(frozen=True, slots=True)
class GrantedTool:
    """A grant for a tool, as it is shown to the user."""

    key: str
    server: str
    tool: str
    conversation_id: str = ""
    """The conversation that the grant holds in; empty for all."""
    owner: str = ""
    """The person whose calls the grant holds for; empty in a service for one person."""


class PendingRequests:
    """The pending requests and grants of all processes.

    Args:
        peers: Exchanges messages with the other processes.
    """

    def __init__(self, peers: PeerBus) -> None:
        self._peers = peers
        self._mailbox = peers.mailbox
        # The grants by key; used only without a mailbox.
        self._granted: dict[str, GrantedTool] = {}

    async def publish(self, request: PendingRequest) -> PendingRequest:
        """Send a request to all processes and return it with its message id.

        If sending fails, the request can be answered at this process only.
        """
        if self._mailbox is None:
            return request
        answer_topic = build_answer_topic(request.id)
        body = {"id": request.id, "about": request.about, "key": request.grant_key, "to": answer_topic}
        body["owner"] = request.owner
        message_id = await self._send((build_pending_requests_topic(request.kind), sse_encoder.to_json(body)))
        published = replace(request, reply_to=answer_topic, message_id=message_id)
        await self._withdraw_earlier(published)
        return published

    async def _withdraw_earlier(self, request: PendingRequest) -> None:
        """Withdraw the same request of a process that was killed; an answer that it has already is kept."""
        assert self._mailbox is not None
        try:
            same = [known.message_id for known in await self.list_all(request.kind) if known.id == request.id]
            await self._mailbox.take(*(known for known in same if known not in (None, request.message_id)))
        except DialError as error:
            log.warning("request_not_withdrawn", error=type(error).__name__)

    def stop_renewing(self, request: PendingRequest) -> None:
        """Let a request of this process expire."""
        self._peers.stop_renewing(request.message_id)

    async def list_all(self, kind: str) -> list[PendingRequest]:
        """Return the requests of all processes.

        Raises:
            DialError: The database failed.
        """
        if self._mailbox is None:
            return []
        messages = await self._mailbox.read({build_pending_requests_topic(kind): 0})
        return [request for message in messages if (request := _parse(kind, message)) is not None]

    async def withdraw(self, request: PendingRequest) -> bool:
        """Withdraw a request of this process; return False if another process has answered it.

        Raises:
            DialError: The database failed.
        """
        if request.message_id is None or self._mailbox is None:
            return True
        return request.message_id in await self._mailbox.take(request.message_id)

    async def answer(self, request: PendingRequest, answer: Mapping[str, Any]) -> bool:
        """Answer a request of another process; return False if it is already answered or has expired.

        Raises:
            DialError: The database failed.
        """
        if request.message_id is None or self._mailbox is None:
            return False
        body = sse_encoder.to_json({"id": request.id, **answer})
        return await self._mailbox.swap(request.message_id, request.reply_to, body, REQUEST_TTL)

    async def list_granted(self) -> list[GrantedTool]:
        """Return the grants of all processes, without duplicates.

        Raises:
            DialError: The database failed.
        """
        if self._mailbox is None:
            return [*self._granted.values()]
        messages = await self._mailbox.read({LISTED_GRANTS_TOPIC: 0})
        return [*dict.fromkeys(granted for message in messages if (granted := _parse_grant(message)) is not None)]

    async def grant(self, granted: GrantedTool) -> None:
        """Share a grant with all processes for as long as this process runs."""
        if self._mailbox is None:
            self._granted[granted.key] = granted
        elif not await self.is_granted(granted.key):
            about = {"key": granted.key, "server": granted.server, "tool": granted.tool}
            body = sse_encoder.to_json({**about, "conversation": granted.conversation_id, "owner": granted.owner})
            await self._send((build_grant_topic(granted.key), ""), (LISTED_GRANTS_TOPIC, body))

    async def revoke(self, key: str) -> None:
        """Revoke a grant at all processes.

        Raises:
            DialError: The database failed.
        """
        self._granted.pop(key, None)
        if self._mailbox is not None:
            granting = await self._mailbox.read({build_grant_topic(key): 0})
            listing = await self._mailbox.read({LISTED_GRANTS_TOPIC: 0})
            found = [message for message in listing if (grant := _parse_grant(message)) and grant.key == key]
            await self._mailbox.take(*(message.id for message in (*granting, *found)))

    async def is_granted(self, key: str) -> bool:
        """Return True if a running process has the grant."""
        if self._mailbox is None:
            return key in self._granted
        try:
            return bool(await self._mailbox.read({build_grant_topic(key): 0}))
        except DialError as error:
            log.warning("grants_unreadable", error=type(error).__name__)
            return False

    async def _send(self, *messages: tuple[str, str]) -> int | None:
        """Send messages, each a topic and a body, all or none; return the id of the first, None if sending failed."""
        assert self._mailbox is not None
        try:
            ids = await self._mailbox.send(messages, LEASE_TTL)
        except DialError as error:
            log.warning("message_not_sent", error=type(error).__name__)
            return None
        for message_id in ids:
            self._peers.renew_while_alive(message_id)
        return ids[0]


def _parse_grant(message: Envelope) -> GrantedTool | None:
    try:
        content = message.parse_content()
        fields = [content[name] for name in ("key", "server", "tool", "conversation", "owner")]
        if not all(isinstance(text, str) for text in fields):
            raise ValueError("a field has another type")  # noqa: TRY301 - handled like the other errors
        return GrantedTool(*fields)
    except (KeyError, TypeError, ValueError) as error:  # from another version, or forged
        log.warning("grant_invalid", error=type(error).__name__)
        return None


def _parse(kind: str, message: Envelope) -> PendingRequest | None:
    try:
        content = message.parse_content()
        id_, grant_key, reply_to, owner = texts = [content[name] for name in ("id", "key", "to", "owner")]
        about = content["about"]
        if not isinstance(about, dict) or not all(isinstance(text, str) for text in texts):
            raise ValueError("a field has another type")  # noqa: TRY301 - handled like the other errors
        return PendingRequest(id_, kind, about, grant_key, reply_to, message.id, owner)
    except (KeyError, TypeError, ValueError) as error:  # from another version, or forged
        log.warning("pending_request_invalid", error=type(error).__name__)
        return None
