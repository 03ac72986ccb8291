"""What waits for a person: permission for a call, and what servers want to know.

It is announced in the stream of the turn it belongs to, listed for whoever asks, and answered by whoever answers first,
at whichever process of the service (`slips`). A turn of a conversation waits for that, though not for ever, and its
clock stands still meanwhile. Other turns have nobody to ask: they are told no at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

from dial_client.callbacks.approval_request import claims_of, count_unseen_arguments, quote_name
from dial_client.callbacks.elicitation_form import Form
from dial_client.callbacks.server_callbacks import Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.errors import DialError
from dial_client.events import InputReceived, InputRequested
from dial_client.logs import get_logger
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.serve.cluster.peers import PeerBus
from dial_client.serve.cluster.pending_requests import PendingRequest, PendingRequests
from dial_client.serve.http_responses import HttpError
from dial_client.serve.turn_registry import TurnRegistry
from dial_client.servers.json_cache import identity
from dial_client.servers.tool_pins import definition
from dial_client.settings.config_types import ServerSettings
from dial_client.text.safe_text import safe
from dial_client.tools.approval import NO_APPROVER, Approval, Decision
from dial_client.turns.turn_handle import TurnHandle, current

log = get_logger(__name__)

PATIENCE = 300.0
"""Seconds a person has to answer."""

APPROVAL, QUESTION = "approval", "question"
_DECISIONS = ", ".join(f'"{decision}"' for decision in Decision)

T = TypeVar("T")

_LATE = 3.0
"""Seconds an answer may be on its way that was given when nobody was expected to give one any more."""


@dataclass(eq=False)
class _Waiting:
    """One thing that waits in this process."""

    slip: PendingRequest
    turns: tuple[TurnHandle, ...]
    answer: Approval | ElicitationAnswer | None = None
    is_withdrawn: bool = False
    answered: anyio.Event = field(default_factory=anyio.Event)

    def give(self, said: Mapping[str, Any]) -> None:
        """Take an answer as `HumanInputBroker.decide` and `HumanInputBroker.answer` make it."""
        if self.slip.kind == APPROVAL:
            self.answer = Approval(said["decision"], _checked(said["reason"], str))
        else:
            self.answer = ElicitationAnswer(ElicitationAction(said["action"]), _checked(said["content"], dict))
        self.answered.set()

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take an answer that was given at another process, and looked at there.

        Raises:
            KeyError: it is none.
            ValueError: it is none.
        """
        if self.answer is None:
            self.give(said)


class HumanInputBroker:
    """Where questions wait for people.

    Args:
        turns: those that are under way.
        elsewhere: the other processes, whose questions are answered here and the other way round.
        patience: seconds a question waits.
        servers: how each server is reached: what is granted to one in all processes is not granted to another of its
            name.
        say: is told, in a line, of what was refused because nobody could be asked.
    """

    def __init__(
        self,
        turns: TurnRegistry,
        elsewhere: PeerBus,
        *,
        patience: float = PATIENCE,
        servers: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._turns = turns
        self._elsewhere = elsewhere
        self._slips = PendingRequests(elsewhere)
        self._patience = patience
        self._servers = servers or {}
        self._folder = os.getcwd()  # noqa: PTH109 - a text
        self._say = say
        self._waiting: dict[str, _Waiting] = {}

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
        """Ask for permission: a `tools.approvals.Approver`."""
        key = self._key(tool, server)
        if not tool.why_asked and await self._slips.is_granted(key):
            return Approval(Decision.ONCE, decided_by="grant for the session")
        talk = current()
        if talk is None or not talk.conversation_id:
            return self._refused(tool, server)
        about = {
            "conversation": talk.conversation_id,
            "turn": talk.id,
            "call": call.to_dict(),
            "server": server,
            "tool": tool.tool,
            "names": {"server": quote_name(server), "tool": quote_name(tool.tool)},
            "title": tool.title,
            "description": tool.description,
            "read_only": tool.read_only,
            "claims": claims_of(tool),
            "change": tool.change,
            "why_asked": tool.why_asked,
            "removed_invisible": tool.removed_invisible,
            "invisible_in_arguments": count_unseen_arguments(call),
        }
        # What has to be asked about whatever was granted is granted for this very call only.
        kind = _hash(key, call.arguments) if tool.why_asked else key
        answer = await self._ask(PendingRequest(uuid.uuid4().hex, APPROVAL, about, kind), (talk,))
        if isinstance(answer, Approval):
            if answer.decision in (Decision.SESSION, Decision.ALWAYS) and not tool.why_asked:
                await self._slips.grant(key)
            return answer
        return Approval(Decision.DENY, "nobody answered whether it may run", NO_APPROVER)

    def _refused(self, tool: ToolSpec, server: str) -> Approval:
        named = f"{server}/{tool.tool}"
        if tool.why_asked:
            self._say(f"not allowed where nobody is asked: {named}: {tool.why_asked}")
            return Approval(Decision.DENY, f"{tool.why_asked}, and nobody is there to be asked", NO_APPROVER)
        self._say(f"not allowed where nobody is asked: {named}; --allow {named} lets it through")
        return Approval(Decision.DENY, "nobody is there to be asked for permission", NO_APPROVER)

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask what a server wants to know: a `people.questions.Elicit`."""
        talks = tuple(talk for talk in self._turns.talks if question.server in talk.recorder.servers_at_work)
        if not talks:
            self._say(f"{question.server} asks something and is declined: no conversation waits for it")
            return ElicitationAnswer(ElicitationAction.DECLINE)
        alone = talks[0] if len(talks) == 1 else None
        about = {
            "conversation": alone and alone.conversation_id,
            "turn": alone and alone.id,
            "server": question.server,
            "tools": list(question.tools),
            "names": {"server": quote_name(question.server), "tools": [quote_name(name) for name in question.tools]},
            "message": safe(question.message),
            "schema": question.schema and dict(question.schema),
            "url": question.url,
            "defaults": dict(question.defaults),
            "warnings": list(question.warnings),
        }
        answer = await self._ask(PendingRequest(uuid.uuid4().hex, QUESTION, about), talks)
        return answer if isinstance(answer, ElicitationAnswer) else ElicitationAnswer(ElicitationAction.CANCEL)

    async def _ask(self, slip: PendingRequest, talks: tuple[TurnHandle, ...]) -> Approval | ElicitationAnswer | None:
        # Whoever is told of it may answer at once, at any process: it is pinned before.
        waiting = _Waiting(await self._slips.pinned(slip), talks)
        self._waiting[slip.id] = waiting
        for talk in talks:
            talk.announce(InputRequested(slip.id, slip.kind, slip.about))
        try:
            with self._elsewhere.receiving(slip.id, waiting.hear):
                await self._wait(waiting)
        finally:
            self._waiting.pop(slip.id, None)
            self._slips.let_go(waiting.slip)
            with anyio.CancelScope(shield=True):
                await self._is_withdrawn(waiting)
            for talk in talks:
                talk.announce(InputReceived(slip.id, slip.kind, _word(waiting)))
        return waiting.answer

    async def _wait(self, waiting: _Waiting) -> None:
        with anyio.move_on_after(self._patience):
            await waiting.answered.wait()
        if waiting.answer is None and not await self._is_withdrawn(waiting):
            with anyio.move_on_after(_LATE):
                await waiting.answered.wait()

    async def _is_withdrawn(self, waiting: _Waiting) -> bool:
        """Ask no more; False where somebody has answered just now, elsewhere."""
        if waiting.answer is not None or waiting.is_withdrawn:
            return True
        try:
            waiting.is_withdrawn = await self._slips.take(waiting.slip)
        except DialError as error:
            log.warning("not_withdrawn", error=type(error).__name__)
            return True
        return waiting.is_withdrawn

    def _key(self, tool: ToolSpec, server: str) -> str:
        entry = self._servers.get(server)
        reached = self._reached(entry) if isinstance(entry, ServerSettings) else ()
        return _hash(server, reached, definition(tool))

    def _reached(self, entry: ServerSettings) -> tuple[str, str]:
        # One and the same program works on other files where it is started in another folder.
        return identity(entry), (entry.cwd or self._folder) if entry.command else ""

    async def pending(self, kind: str) -> list[dict[str, Any]]:
        """Give what waits, the oldest first, in JSON types only.

        Raises:
            DialError: the database failed.
        """
        return [{**slip.about, "id": slip.id} for slip in await self._all(kind)]

    async def decide(self, id_: str, decision: Any, reason: Any) -> None:
        """Answer an approval; one for the session or for always answers all that wait for the same tool.

        Raises:
            Refusal: it is gone, or this is no answer.
            DialError: the database failed.
        """
        slips = await self._all(APPROVAL)
        slip = _found(slips, id_, APPROVAL)
        if decision not in tuple(Decision) or not isinstance(reason, str):
            raise HttpError(400, f"decision is one of {_DECISIONS}", "bad_decision", param="decision")
        why = (reason or "the user said no") if decision == "deny" else ""
        answer = {"decision": decision, "reason": why}
        if not await self._give(slip, answer):
            raise _gone(APPROVAL)
        for other in slips:
            if decision in (Decision.SESSION, Decision.ALWAYS) and other.key == slip.key and other is not slip:
                await self._give(other, answer)

    async def answer(self, id_: str, action: Any, content: Any) -> None:
        """Answer a question.

        Raises:
            Refusal: it is gone, this is no answer, or it does not fit the form.
            DialError: the database failed.
        """
        slip = _found(await self._all(QUESTION), id_, QUESTION)
        if action not in tuple(ElicitationAction) or not isinstance(content, Mapping):
            raise HttpError(400, 'action is one of "accept", "decline", "cancel"', "bad_answer", param="action")
        schema = slip.about.get("schema")
        if action == ElicitationAction.ACCEPT and isinstance(schema, Mapping):
            form = Form(schema)
            if problems := form.problems(form.filled(content)):
                raise HttpError(400, "; ".join(problems), "bad_answer", param="content")
        if not await self._give(slip, {"action": action, "content": content}):
            raise _gone(QUESTION)

    async def _all(self, kind: str) -> list[PendingRequest]:
        slips = await self._slips.of_others(kind)
        slips += [one.slip for one in self._waiting.values() if one.slip.kind == kind and one.answer is None]
        return sorted(slips, key=lambda slip: slip.note or 0)

    async def _give(self, slip: PendingRequest, answer: Mapping[str, Any]) -> bool:
        """Give an answer to whoever waits for it; False where another was faster."""
        waiting = self._waiting.get(slip.id)
        if waiting is None:
            return await self._slips.answer(slip, answer)
        if waiting.answer is not None or not (await self._slips.take(slip) or await self._is_unanswered(waiting)):
            return False
        waiting.give(answer)
        return True

    async def _is_unanswered(self, waiting: _Waiting) -> bool:
        """Whether nobody has taken a slip that is not there: its time may be over, as where the machine slept."""
        with anyio.move_on_after(_LATE):
            await waiting.answered.wait()
        return waiting.answer is None and self._waiting.get(waiting.slip.id) is waiting


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _found(slips: Sequence[PendingRequest], id_: str, kind: str) -> PendingRequest:
    found = next((slip for slip in slips if slip.id == id_), None)
    if found is None:
        raise _gone(kind)
    return found


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{kind.__name__} was expected, not {type(value).__name__}")  # noqa: TRY004 - of a note
    return value


def _gone(kind: str) -> HttpError:
    return HttpError(404, f"there is no such {kind}, or it has been answered", "not_found")


def _word(waiting: _Waiting) -> str:
    match waiting.answer:
        case Approval(decision):
            return str(decision)
        case ElicitationAnswer(action):
            return str(action)
        case None:
            return "deny" if waiting.slip.kind == APPROVAL else "cancel"
