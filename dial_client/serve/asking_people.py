"""What waits for a person: permission for a call, and what servers want to know.

It is announced in the stream of the turn it belongs to, listed for whoever asks, and answered by whoever answers first.
A turn of a conversation waits for that, though not for ever, and its clock stands still meanwhile. Other turns have
nobody to ask: they are told no at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from dial_client import running
from dial_client.approvals import Approval, Decision
from dial_client.elicitation import Form
from dial_client.events import PersonAnswered, PersonAsked
from dial_client.live_turn import LiveTurn
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.questions import Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.safe_text import safe
from dial_client.serve.answers import Refusal
from dial_client.serve.turns import Turns

PATIENCE = 300.0
"""Seconds a person has to answer."""

APPROVAL, QUESTION = "approval", "question"


@dataclass(eq=False)
class _Waiting:
    """One thing that waits."""

    kind: str
    turns: tuple[LiveTurn, ...]
    about: Mapping[str, Any]
    asked: ToolSpec | Elicitation
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    answer: Approval | ElicitationAnswer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)

    def give(self, answer: Approval | ElicitationAnswer) -> None:
        self.answer = answer
        self.answered.set()


class Desk:
    """Where questions wait for people.

    Args:
        turns: those that are under way.
        patience: seconds a question waits.
        say: is told, in a line, of what was refused because nobody could be asked.
    """

    side_by_side = True
    """See `approvals.Approver`."""

    def __init__(self, turns: Turns, patience: float = PATIENCE, say: Callable[[str], None] = lambda _: None) -> None:
        self._turns = turns
        self._patience = patience
        self._say = say
        self._waiting: dict[str, _Waiting] = {}

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, server: str) -> Approval:
        """Ask for permission: an `approvals.Approver`."""
        turn = running.current()
        talk = turn.witness if turn is not None else None
        if not isinstance(talk, LiveTurn):
            self._say(f"not allowed where nobody is asked: {server}/{tool.tool}; --allow {call.name} lets it through")
            return Approval(Decision.DENY, "nobody is there to be asked for permission")
        about = {
            "conversation": talk.conversation_id,
            "turn": talk.id,
            "call": call.to_dict(),
            "server": server,
            "tool": tool.tool,
            "title": tool.title,
            "description": tool.description,
            "read_only": tool.read_only,
            "change": tool.change,
        }
        answer = await self._ask(_Waiting(APPROVAL, (talk,), about, tool))
        if isinstance(answer, Approval):
            return answer
        return Approval(Decision.DENY, "nobody answered whether it may run")

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask what a server wants to know: a `questions.Elicit`."""
        talks = tuple(talk for talk in self._turns.talks if question.server in talk.running.recorder.servers_at_work)
        if not talks:
            self._say(f"{question.server} asks something and is declined: no conversation waits for it")
            return ElicitationAnswer(ElicitationAction.DECLINE)
        alone = talks[0] if len(talks) == 1 else None
        about = {
            "conversation": alone and alone.conversation_id,
            "turn": alone and alone.id,
            "server": question.server,
            "message": safe(question.message),
            "schema": question.schema and dict(question.schema),
            "url": question.url,
            "defaults": dict(question.defaults),
            "warnings": list(question.warnings),
        }
        answer = await self._ask(_Waiting(QUESTION, talks, about, question))
        return answer if isinstance(answer, ElicitationAnswer) else ElicitationAnswer(ElicitationAction.CANCEL)

    async def _ask(self, waiting: _Waiting) -> Approval | ElicitationAnswer | None:
        self._waiting[waiting.id] = waiting
        for talk in waiting.turns:
            talk.running.announce(PersonAsked(waiting.id, waiting.kind, waiting.about))
        try:
            with anyio.move_on_after(self._patience):
                await waiting.answered.wait()
        finally:
            self._waiting.pop(waiting.id, None)
            for talk in waiting.turns:
                talk.running.announce(PersonAnswered(waiting.id, waiting.kind, _word(waiting)))
        return waiting.answer

    def pending(self, kind: str) -> list[dict[str, Any]]:
        """Give what waits, the oldest first, in JSON types only."""
        return [{"id": one.id, **one.about} for one in self._waiting.values() if one.kind == kind]

    def decide(self, id_: str, decision: Any, reason: Any) -> None:
        """Answer an approval; one for the session answers all that wait for the same tool.

        Raises:
            Refusal: it is gone, or this is no answer.
        """
        waiting = self._found(id_, APPROVAL)
        if decision not in ("once", "session", "deny") or not isinstance(reason, str):
            raise Refusal(400, 'decision is one of "once", "session", "deny"', "bad_decision", param="decision")
        why = reason or "the user said no"
        others = [one for one in self._waiting.values() if decision == "session" and one.asked == waiting.asked]
        for one in (waiting, *others):
            one.give(Approval(decision, why if decision == "deny" else ""))

    def answer(self, id_: str, action: Any, content: Any) -> None:
        """Answer a question.

        Raises:
            Refusal: it is gone, this is no answer, or it does not fit the form.
        """
        waiting = self._found(id_, QUESTION)
        assert isinstance(waiting.asked, Elicitation)
        if action not in tuple(ElicitationAction) or not isinstance(content, Mapping):
            raise Refusal(400, 'action is one of "accept", "decline", "cancel"', "bad_answer", param="action")
        if action == ElicitationAction.ACCEPT and waiting.asked.schema is not None:
            form = Form(waiting.asked.schema)
            if problems := form.problems(form.filled(content)):
                raise Refusal(400, "; ".join(problems), "bad_answer", param="content")
        waiting.give(ElicitationAnswer(action, content))

    def _found(self, id_: str, kind: str) -> _Waiting:
        waiting = self._waiting.get(id_)
        if waiting is None or waiting.kind != kind or waiting.answer is not None:
            raise Refusal(404, f"there is no such {kind}, or it has been answered", "not_found")
        return waiting


def _word(waiting: _Waiting) -> str:
    match waiting.answer:
        case Approval(decision):
            return str(decision)
        case ElicitationAnswer(action):
            return str(action)
        case None:
            return "deny" if waiting.kind == APPROVAL else "cancel"
