"""Requests that wait for the user, and grants, shared by all processes of a service.

A request is a row that all processes read. The process that answers replaces the row by the answer, which only one
process can do, and tells the others. So an answer also reaches the process that asks again after the first one was
killed. Requests and grants expire with the process that stored them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import anyio
from pydantic import TypeAdapter, ValidationError

from dial_client.messages.errors import DialError
from dial_client.runtime.json_fields import expect_object
from dial_client.runtime.logs import get_logger
from dial_client.serve.turns.peers import Peers
from dial_client.sinks.sse_encoder import to_json
from dial_client.stores.shared_values import SharedValues

log = get_logger(__name__)

T = TypeVar("T")

# Seconds after which the requests and grants of a process expire once it no longer renews them.
LEASE_TTL = 30.0
# Seconds for which an answer waits for the process that takes it.
ANSWER_TTL = 300.0
# Seconds between two attempts to renew after a failure.
RETRY_PAUSE = 1.0

# The topics of shared values: the answers by the ids of their requests, and the grants by their keys. The topic of the
# requests is their kind.
ANSWERS, GRANTS = "answer", "grant"

# Handles the answer to a request; raises `KeyError`, `TypeError` or `ValueError` if the answer is invalid.
ReceiveAnswer = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that waits for the user's answer."""

    id: str
    kind: str
    about: Mapping[str, Any]
    """The details for the user, of JSON types only."""
    grant_key: str = ""
    """The key of the grant if the user approves the request for the session."""
    is_shared: bool = False
    """Whether the other processes can read the request."""
    owner: str = ""
    """The person who may answer; empty in a service for one person."""
    asked_at: float = field(default_factory=time.time)
    """The time in seconds, by the clock of the process that asks."""


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


_REQUEST, _GRANT = TypeAdapter(PendingRequest), TypeAdapter(GrantedTool)


class PendingRequests:
    """The pending requests and grants of all processes.

    Args:
        peers: The other processes; None if there are none: then grants are kept in memory.
        values: Where a service of one process stores its requests. An answer that comes while a killed process still
            seems to run the turn then waits for the process that takes the turn over. None to store nothing.
    """

    def __init__(self, peers: Peers | None = None, values: SharedValues | None = None) -> None:
        self._peers = peers
        self._values = values if peers is None else peers.store.values
        self._receivers: dict[str, ReceiveAnswer] = {}
        # The topics and names of this process's values, which are renewed.
        self._leases: set[tuple[str, str]] = set()
        # The grants by key; used only without peers.
        self._granted: dict[str, GrantedTool] = {}
        if peers is not None:
            peers.handle(answered=self._on_answered, connected=lambda *_: peers.start_soon(self.collect_answers))

    async def run(self) -> None:
        """Renew what this process has stored until cancellation; then withdraw it."""
        try:
            while True:
                pause = await self._renew()
                await anyio.sleep(pause)
        finally:
            if self._values is not None and self._leases:
                with anyio.CancelScope(shield=True), suppress(DialError):
                    for topic, name in tuple(self._leases):
                        await self._values.take(topic, name)

    async def _renew(self) -> float:
        """Renew all values, and look for answers whose message was lost; return the seconds until the next time."""
        try:
            if self._values is not None and self._leases:
                await self._values.renew(self._leases, LEASE_TTL)
                await self.collect_answers()
        except DialError as error:
            log.debug("requests_not_renewed", error=type(error).__name__)
            return RETRY_PAUSE
        return LEASE_TTL / 3

    async def publish(self, request: PendingRequest) -> PendingRequest:
        """Share a request with all processes, in place of the same request of a process that was killed.

        If that fails, the request can be answered at this process only.
        """
        shared = replace(request, is_shared=True)
        return shared if await self._put(request.kind, request.id, shared) else request

    @contextmanager
    def receive_answers(self, request_id: str, receive: ReceiveAnswer) -> Iterator[None]:
        """Pass the answer to a request of this process to `receive` until the context ends."""
        self._receivers[request_id] = receive
        try:
            yield
        finally:
            del self._receivers[request_id]

    async def collect_answers(self) -> None:
        """Read the answers to the requests of this process.

        Raises:
            DialError: The database failed.
        """
        if self._values is None or not self._receivers:
            return
        for id_, answer in (await self._values.read(ANSWERS, self._receivers)).items():
            if not await self._values.take(ANSWERS, id_) or (receive := self._receivers.get(id_)) is None:
                continue
            try:
                receive(expect_object(json.loads(answer)))
            except (KeyError, TypeError, ValueError, RecursionError) as error:  # from another version, or forged
                log.warning("answer_invalid", error=type(error).__name__)

    def _on_answered(self, content: Mapping[str, Any], sender: str) -> None:  # noqa: ARG002 - a `HandleMessage`
        if self._peers is not None and content["id"] in self._receivers:
            self._peers.start_soon(self.collect_answers)

    async def list_all(self, kind: str) -> list[PendingRequest]:
        """Return the requests of all processes.

        Raises:
            DialError: The database failed.
        """
        return await self._read(kind, _REQUEST)

    async def withdraw(self, request: PendingRequest) -> bool:
        """Withdraw a request of this process; return False if another process has answered it.

        Raises:
            DialError: The database failed.
        """
        self._leases.discard((request.kind, request.id))
        if not request.is_shared or self._values is None:
            return True
        return await self._values.take(request.kind, request.id)

    async def answer(self, request: PendingRequest, answer: Mapping[str, Any]) -> bool:
        """Answer a request of another process; return False if it is already answered or has expired.

        Raises:
            DialError: The database failed.
        """
        if not request.is_shared or self._values is None:
            return False
        body = to_json({**answer, "owner": request.owner})
        if not await self._values.replace(request.kind, request.id, ANSWERS, body, ANSWER_TTL):
            return False
        with suppress(DialError):  # the process that waits looks for answers from time to time
            if request.id in self._receivers:  # this process has begun to ask meanwhile
                await self.collect_answers()
            elif self._peers is not None:
                await self._peers.send("answered", {"id": request.id})
        return True

    async def list_granted(self) -> list[GrantedTool]:
        """Return the grants of all processes.

        Raises:
            DialError: The database failed.
        """
        return [*self._granted.values()] if self._peers is None else await self._read(GRANTS, _GRANT)

    async def grant(self, granted: GrantedTool) -> None:
        """Share a grant with all processes for as long as this process runs."""
        if self._peers is None:
            self._granted[granted.key] = granted
        elif not await self.is_granted(granted.key):
            await self._put(GRANTS, granted.key, granted)

    async def revoke(self, key: str) -> None:
        """Revoke a grant at all processes.

        Raises:
            DialError: The database failed.
        """
        self._granted.pop(key, None)
        self._leases.discard((GRANTS, key))
        if self._peers is not None and self._values is not None:
            await self._values.take(GRANTS, key)

    async def is_granted(self, key: str) -> bool:
        """Return True if a running process has the grant."""
        if self._peers is None or self._values is None:
            return key in self._granted
        try:
            return bool(await self._values.read(GRANTS, [key]))
        except DialError as error:
            log.debug("grants_unreadable", error=type(error).__name__)
            return False

    async def _read(self, topic: str, form: TypeAdapter[T]) -> list[T]:
        """Return the values of a topic that have this form."""
        found: list[T] = []
        for text in (await self._values.read(topic) if self._values is not None else {}).values():
            try:
                found.append(form.validate_json(text))
            except ValidationError as error:  # from another version, or forged
                log.warning("shared_value_invalid", topic=topic, error=type(error).__name__)
        return found

    async def _put(self, topic: str, name: str, value: PendingRequest | GrantedTool) -> bool:
        """Store a value for as long as this process runs; return False without a database, or if it failed."""
        if self._values is None:
            return False
        try:
            await self._values.put(topic, name, to_json(asdict(value)), LEASE_TTL)
        except DialError as error:
            log.debug("request_not_shared", error=type(error).__name__)
            return False
        self._leases.add((topic, name))
        return True
