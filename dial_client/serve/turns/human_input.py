"""Requests for the user's input: approvals of tool calls, and elicitations of servers.

A request is announced in the stream of its turn and listed by the API. The first answer counts, no matter which process
receives it. A turn of a conversation waits for the answer for a limited time, which does not count toward the turn's
time limit. Other turns have no user to ask: their requests are denied at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.sampling import SAMPLING
from dial_client.hooks.approval_request import count_unseen_arguments, quote_name, to_claims
from dial_client.hooks.elicitation_form import Form
from dial_client.hooks.server_callbacks import Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.messages.errors import DialError
from dial_client.messages.events import Event, InputReceived, InputRequested
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.json_fields import expect_object, expect_text
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.serve.http_messages import HttpError, build_json_response, read_json
from dial_client.serve.people.authentication import Person
from dial_client.serve.security import find_person
from dial_client.serve.turns.pending_requests import GrantedTool, PendingRequest, PendingRequests
from dial_client.serve.turns.turn_registry import TurnRegistry
from dial_client.servers.server_cache import build_definition, compute_identity
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.approval import (
    NO_APPROVER,
    Answer,
    Approval,
    ApprovalContext,
    Approver,
    Decision,
    deny_unattended,
)
from dial_client.tools.file_changes import find_changes, names_same_file

log = get_logger(__name__)

# Seconds in which the user must answer: a day, because a person who is away must not find the work refused. A durable
# turn also survives the end of its process, and waits for a month.
ANSWER_TIMEOUT = 86_400.0
DURABLE_ANSWER_TIMEOUT = 30 * ANSWER_TIMEOUT

APPROVAL, QUESTION = "approval", "question"
# A decision in addition to those of `Decision`: allow the tool in this conversation.
CONVERSATION = "conversation"
# Without `DEFER`: a request that nobody answers waits anyway.
_CHOICES = (Decision.ONCE, Decision.SESSION, Decision.ALWAYS, Decision.DENY, CONVERSATION)
_DECISIONS = ", ".join(f'"{decision}"' for decision in _CHOICES)
_FOR_CONVERSATION = "the user, for the conversation"
_LASTING = (Decision.SESSION, Decision.ALWAYS)

# Seconds to wait for an answer that another process has already accepted.
_DELIVERY_TIMEOUT = 3.0


async def describe_call(
    call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext, settings: ServerSettings | None
) -> dict[str, Any]:
    """Return the details of a call, of JSON types only.

    Args:
        call: The call.
        tool: The tool as it was offered.
        context: The circumstances of the call.
        settings: The server's settings; files in its folders are compared with the content that the call would write.
    """
    return {
        "call": call.to_dict(),
        "server": context.server,
        "tool": tool.tool,
        "names": {"server": quote_name(context.server), "tool": quote_name(tool.tool)},
        "agent": context.agent,
        "agent_calls": list(context.agent_calls),
        "title": tool.title,
        "description": tool.description,
        "read_only": tool.read_only,
        "claims": to_claims(tool),
        "change": context.change,
        "why_asked": context.why_asked,
        "removed_invisible": tool.removed_invisible,
        "invisible_in_arguments": count_unseen_arguments(call),
        "schema": None if tool.tool == SAMPLING else dict(tool.original_schema or tool.input_schema),
        "file_changes": await _compare(call.arguments, settings),
    }


def find_problems(about: Mapping[str, Any], arguments: Any) -> list[str]:
    """Return how changed arguments violate the tool's schema.

    Args:
        about: The details of the call, as `describe_call` returned them.
        arguments: The changed arguments.

    Raises:
        HttpError: The arguments are not an object, or the arguments of this call cannot be changed.
    """
    schema = about.get("schema")
    if not isinstance(arguments, dict):
        raise HttpError(400, "arguments must be an object", "bad_arguments", param="arguments")
    if not isinstance(schema, Mapping):
        raise HttpError(400, "the arguments of this call cannot be changed", "bad_arguments", param="arguments")
    return list(ArgumentCheck(schema).find_problems(arguments))


async def _compare(arguments: Mapping[str, Any], settings: ServerSettings | None) -> list[dict[str, Any]]:
    changes = await anyio.to_thread.run_sync(find_changes, arguments, settings)
    return [asdict(change) for change in changes]


@dataclass(eq=False)
class _WaitingRequest:
    """A request of this process, and its answer."""

    request: PendingRequest
    answer: Approval | ElicitationAnswer | None = None
    is_withdrawn: bool = False
    answered: anyio.Event = field(default_factory=anyio.Event)

    def set_answer(self, body: Mapping[str, Any]) -> None:
        """Set the answer, if there is none yet; the process that has accepted it sends it in this form.

        Raises:
            KeyError: A field is missing.
            TypeError, ValueError: A field is invalid.
        """
        if self.answer is not None:
            return
        if self.request.kind == APPROVAL:
            arguments = None if body.get("arguments") is None else expect_object(body["arguments"])
            decision, reason, decided_by = body["decision"], expect_text(body["reason"]), ""
            if decision == CONVERSATION:
                decision, decided_by = Decision.ONCE, _FOR_CONVERSATION
            self.answer = Approval(decision, reason, decided_by, arguments)
        else:
            self.answer = ElicitationAnswer(ElicitationAction(body["action"]), expect_object(body["content"]))
        self.answered.set()

    @property
    def outcome(self) -> str:
        """The decision or action, as the stream of the turn reports it."""
        match self.answer:
            case Approval(decision, _, decided_by):
                return CONVERSATION if decided_by == _FOR_CONVERSATION else str(decision)
            case ElicitationAnswer(action):
                return str(action)
            case None:
                return "deny" if self.request.kind == APPROVAL else "cancel"


class Listener(Protocol):
    """Receives the requests for input that arise during its calls: a turn of a conversation, or a direct call."""

    @property
    def id(self) -> str:
        """Unique among all listeners."""

    @property
    def conversation_id(self) -> str:
        """The conversation of the call."""

    @property
    def owner(self) -> str:
        """The person who makes the call, and alone is asked; empty in a service for one person."""

    def announce(self, event: Event) -> None:
        """Receive `InputRequested` and `InputReceived`."""


class HumanInputBroker:
    """Passes requests to the user and returns the answers, which it receives by HTTP.

    It is an `Approver` and the callback for elicitations.

    Args:
        turns: The running turns of this process.
        requests: The requests and grants, shared with the other processes.
        timeout: Seconds to wait for an answer.
        servers: The servers' settings. A grant holds only for servers with the same settings.
        stores_grants: True if the client stores grants. Otherwise the decision `always` lasts for the session.
        report: Called with a message when a request is denied because there is no user to ask.
    """

    def __init__(
        self,
        turns: TurnRegistry,
        requests: PendingRequests,
        *,
        timeout: float = ANSWER_TIMEOUT,
        servers: Mapping[str, Any] | None = None,
        stores_grants: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._turns = turns
        self.requests = requests
        """The requests and grants, shared with the other processes."""
        self._timeout = timeout
        self._servers = servers or {}
        self._session_decisions = (Decision.SESSION,) if stores_grants else _LASTING
        self._working_folder = os.getcwd()  # noqa: PTH109 - a string
        self._report = report
        self.ask_client: Approver | None = None
        """Asks the clients of ``/mcp`` about their own calls, and the user about all others; None before the first."""
        self._waiting: dict[str, _WaitingRequest] = {}
        # The listeners of direct calls, by their ids.
        self._listeners: dict[str, Listener] = {}

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Within the context, announce the requests for input of a direct call to `listener`."""
        self._listeners[listener.id] = listener
        try:
            yield
        finally:
            del self._listeners[listener.id]

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Answer:
        """Ask the user, or the MCP client that makes a call, to approve the call; a `tools.approval.Approver`."""
        approver = self.ask_person if self.ask_client is None else self.ask_client
        return await approver(call, tool, context)

    async def ask_person(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        """Ask the user to approve a call of a turn, or of the page."""
        grant_key = self._compute_grant_key(tool, context.server, context.owner)
        if not context.why_asked and await self.requests.is_granted(grant_key):
            return Approval(Decision.ONCE, decided_by="grant for the session")
        called = self._listeners.get(context.turn_id)
        listener = next((turn for turn in self._turns.conversation_turns if turn.id == context.turn_id), called)
        if listener is None:
            return self._deny(tool, context)
        conversation_key = _hash(grant_key, CONVERSATION, listener.conversation_id)
        if not context.why_asked and await self.requests.is_granted(conversation_key):
            return Approval(Decision.ONCE, decided_by="grant for the conversation")
        # Grants do not cover this call, so its key has the arguments: an answer covers only equal calls.
        key = _hash(grant_key, call.arguments) if context.why_asked else grant_key
        details = await describe_call(call, tool, context, self._find_settings(context.server))
        about = {"conversation": listener.conversation_id, "turn": listener.id, **details}
        answer = await self._ask(
            PendingRequest(context.approval_id or secrets.token_hex(16), APPROVAL, about, key, owner=listener.owner),
            (listener,),
        )
        if not isinstance(answer, Approval):
            return Approval(Decision.DENY, "nobody answered the request for approval", NO_APPROVER)
        if context.why_asked:
            return answer  # the answer covers only this call
        if answer.decided_by == _FOR_CONVERSATION:
            grant = GrantedTool(conversation_key, context.server, tool.tool, listener.conversation_id, listener.owner)
            await self.requests.grant(grant)
        elif answer.decision in self._session_decisions:
            # Only the shared grant is kept, not a second one in the client: every process can revoke it.
            await self.requests.grant(GrantedTool(grant_key, context.server, tool.tool, owner=listener.owner))
            return replace(answer, decision=Decision.ONCE, decided_by="the user, for the session")
        return answer

    def _deny(self, tool: ToolSpec, context: ApprovalContext) -> Approval:
        name = f"{context.server}/{tool.tool}"
        if context.why_asked:
            self._report(f"denied (no user connected): {name}: {context.why_asked}")
        else:
            self._report(f"denied (no user connected): {name}. Allow it with --allow {name}")
        return deny_unattended(tool, context)

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask the user for the input that a server requests. Implements `callbacks.server_callbacks.Elicit`."""
        candidates = (*self._turns.conversation_turns, *self._listeners.values())
        # Calls of one conversation may have caused the question together; then it names no turn.
        listeners = tuple(
            listener
            for listener in candidates
            if listener.owner == question.owner
            and (
                (question.turn_id and listener.id == question.turn_id)
                or (not question.turn_id and question.conversation_id == listener.conversation_id != "")
            )
        )
        if not listeners:
            self._report(f"{question.server} asks for input and is declined: no conversation is waiting for it")
            return ElicitationAnswer(ElicitationAction.DECLINE)
        single = listeners[0] if len(listeners) == 1 else None
        ids = {"conversation": single and single.conversation_id, "turn": single and single.id}
        about = {**ids, **_describe_elicitation(question)}
        request = PendingRequest(secrets.token_hex(16), QUESTION, about, owner=question.owner)
        answer = await self._ask(request, listeners)
        return answer if isinstance(answer, ElicitationAnswer) else ElicitationAnswer(ElicitationAction.CANCEL)

    async def _ask(self, request: PendingRequest, turns: Sequence[Listener]) -> Approval | ElicitationAnswer | None:
        # Publish before announcing: the answer may arrive immediately, at any process.
        waiting = _WaitingRequest(await self.requests.publish(request))
        self._waiting[request.id] = waiting
        for turn in turns:
            turn.announce(InputRequested(request.id, request.kind, request.about))
        try:
            with (
                self.requests.receive_answers(request.id, waiting.set_answer),
                self._turns.wait_for_person([turn.id for turn in turns]),
            ):
                with suppress(DialError):  # perhaps the process that has asked before was killed after the answer
                    await self.requests.collect_answers()
                with anyio.move_on_after(self._timeout):
                    await waiting.answered.wait()
                if waiting.answer is None and not await self._withdraw(waiting):
                    with anyio.move_on_after(_DELIVERY_TIMEOUT):
                        await waiting.answered.wait()
        finally:
            self._waiting.pop(request.id, None)
            with anyio.CancelScope(shield=True):
                await self._withdraw(waiting)
            for turn in turns:
                turn.announce(InputReceived(request.id, request.kind, waiting.outcome))
        return waiting.answer

    async def _withdraw(self, waiting: _WaitingRequest) -> bool:
        """Withdraw a request from the other processes; return False if another process has just answered it."""
        # An answered request is withdrawn too: the answer may be that to the same request of a killed process.
        if waiting.is_withdrawn:
            return True
        try:
            waiting.is_withdrawn = await self.requests.withdraw(waiting.request)
        except DialError as error:
            log.debug("request_not_withdrawn", error=type(error).__name__)
            return True
        return waiting.is_withdrawn

    def _compute_grant_key(self, tool: ToolSpec, server: str, owner: str) -> str:
        settings = self._find_settings(server)
        identity: tuple[str, ...] = ()
        if settings is not None:
            # The working folder is a part of the identity: in another folder, the same program works on other files.
            folder = (settings.cwd or self._working_folder) if settings.command else ""
            identity = (compute_identity(settings), folder)
        return _hash(server, identity, build_definition(tool), *filter(None, (owner,)))

    def _find_settings(self, server: str) -> ServerSettings | None:
        settings = self._servers.get(server)
        return settings if isinstance(settings, ServerSettings) else None

    def build_routes(self) -> list[Route]:
        """Return the routes under ``/approvals`` and ``/questions``."""
        return [
            Route("/approvals", partial(self._list_pending, APPROVAL)),
            Route("/approvals/{id}", self._decide, methods=["POST"]),
            Route("/approvals/{id}/check", self._check_arguments, methods=["POST"]),
            Route("/questions", partial(self._list_pending, QUESTION)),
            Route("/questions/{id}", self._answer, methods=["POST"]),
            Route("/waiting", self._list_waiting),
        ]

    async def _list_pending(self, kind: str, request: Request) -> Response:
        pending = [{**waiting.about, "id": waiting.id} for waiting in await self._list(kind, find_person(request))]
        return build_json_response({f"{kind}s": pending})

    async def _list_waiting(self, request: Request) -> Response:
        """List the requests without their details: the page polls this list."""
        waiting = [
            {
                "id": pending.id,
                "kind": kind,
                "conversation": pending.about.get("conversation"),
                "server": pending.about["server"],
                "tool": pending.about.get("tool"),
            }
            for kind in (APPROVAL, QUESTION)
            for pending in await self._list(kind, find_person(request))
        ]
        return build_json_response({"waiting": waiting})

    async def _check_arguments(self, request: Request) -> Response:
        """Return the details of a waiting call that change with its arguments, and the problems of the arguments."""
        arguments: Any = (await read_json(request)).get("arguments")
        about = _find(await self._list(APPROVAL, find_person(request)), request.path_params["id"], APPROVAL).about
        problems = find_problems(about, arguments)
        call = ToolCallRequest("", "", arguments)
        # A file is read only if the original call names the same file.
        is_same_file = names_same_file(about["call"]["arguments"], arguments)
        changes = await _compare(arguments, self._find_settings(about["server"])) if is_same_file else []
        return build_json_response(
            {"problems": problems, "invisible_in_arguments": count_unseen_arguments(call), "file_changes": changes}
        )

    async def _decide(self, request: Request) -> Response:
        await self.decide(find_person(request), request.path_params["id"], await read_json(request))
        return Response(status_code=204)

    async def decide(self, person: Person, id_: str, body: Mapping[str, Any]) -> None:
        """Answer a request for approval. A lasting decision also answers the other waiting requests that it covers.

        Args:
            person: Who answers.
            id_: The request.
            body: ``decision``, and perhaps ``reason`` and changed ``arguments``.

        Raises:
            HttpError: The answer is malformed; or the request is not this person's, or has an answer already.
        """
        decision, reason, arguments = body.get("decision"), body.get("reason", ""), body.get("arguments")
        waiting = await self._list(APPROVAL, person)
        answered = _find(waiting, id_, APPROVAL)
        if decision not in _CHOICES or not isinstance(reason, str):
            raise HttpError(400, f"decision must be one of {_DECISIONS}", "bad_decision", param="decision")
        if arguments is not None and (problems := find_problems(answered.about, arguments)):
            raise HttpError(400, "; ".join(problems), "bad_arguments", param="arguments")
        answer = {"decision": decision, "reason": (reason or "the user said no") if decision == Decision.DENY else ""}
        if not await self._deliver(answered, {**answer, "arguments": arguments}):
            raise _build_not_found_error(APPROVAL)
        # With `why_asked`, an answer covers only calls with equal arguments. No other call has the changed arguments.
        is_changed_alone = arguments is not None and answered.about.get("why_asked")
        if decision in (*_LASTING, CONVERSATION) and not is_changed_alone:
            for similar in waiting:
                if similar is not answered and _is_covered(similar, answered, decision):
                    await self._deliver(similar, answer)

    async def _answer(self, request: Request) -> Response:
        await self.answer(find_person(request), request.path_params["id"], await read_json(request))
        return Response(status_code=204)

    async def answer(self, person: Person, id_: str, body: Mapping[str, Any]) -> None:
        """Answer an elicitation with the ``action`` and the ``content`` in `body`; as `decide`."""
        action, content = body.get("action"), body.get("content") or {}
        answered = _find(await self._list(QUESTION, person), id_, QUESTION)
        if action not in tuple(ElicitationAction) or not isinstance(content, Mapping):
            raise HttpError(400, 'action must be "accept", "decline" or "cancel"', "bad_answer", param="action")
        schema = answered.about.get("schema")
        if action == ElicitationAction.ACCEPT and isinstance(schema, Mapping):
            form = Form(schema)
            if problems := form.find_problems(form.fill(content)):
                raise HttpError(400, "; ".join(problems), "bad_answer", param="content")
        if not await self._deliver(answered, {"action": action, "content": content}):
            raise _build_not_found_error(QUESTION)

    async def _list(self, kind: str, person: Person) -> list[PendingRequest]:
        """Return the requests that a person may answer."""
        shared = await self.requests.list_all(kind)
        requests = [request for request in shared if request.id not in self._waiting]
        waiting = [entry for entry in self._waiting.values() if entry.answer is None]
        requests += [entry.request for entry in waiting if entry.request.kind == kind]
        own = [request for request in requests if person.name in ("", request.owner)]
        return sorted(own, key=lambda request: (request.asked_at, request.id))

    async def _deliver(self, request: PendingRequest, answer: Mapping[str, Any]) -> bool:
        """Deliver an answer to the process that waits for it; return False if the request is already answered."""
        if request.id not in self._waiting and await self.requests.answer(request, answer):
            return True
        # Perhaps this process has just asked again what a killed process had asked.
        waiting = self._waiting.get(request.id)
        if waiting is None or waiting.answer is not None:
            return False
        if not await self.requests.withdraw(waiting.request):
            # Either another process has answered, or the message expired, for example while the machine slept.
            with anyio.move_on_after(_DELIVERY_TIMEOUT):
                await waiting.answered.wait()
            if waiting.answered.is_set() or self._waiting.get(request.id) is not waiting:
                return False
        waiting.set_answer(answer)
        return True


class PageUser:
    """The person at the page of `create_app`, as the approver and the `Callbacks.elicit` of its client.

    Only turns of the application are shown to this person: calls of other turns of the client that need an approval
    are denied, and questions of servers are declined.
    """

    def __init__(self) -> None:
        self._broker: HumanInputBroker | None = None

    def answer_with(self, broker: HumanInputBroker) -> None:
        """Set where requests are answered.

        Raises:
            RuntimeError: It is set already.
        """
        if self._broker is not None:
            raise RuntimeError("this PageUser has an application: create another one for another application")
        self._broker = broker

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Answer:
        """Ask the person to approve a call; an `Approver`."""
        return deny_unattended(tool, context) if self._broker is None else await self._broker(call, tool, context)

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask the person for the input that a server requests; an `Elicit`."""
        if self._broker is None:
            return ElicitationAnswer(ElicitationAction.DECLINE)
        return await self._broker.elicit(question)


def _describe_elicitation(question: Elicitation) -> dict[str, Any]:
    return {
        "server": question.server,
        "tools": list(question.tools),
        "names": {"server": quote_name(question.server), "tools": [quote_name(name) for name in question.tools]},
        "message": sanitize(question.message),
        "schema": question.schema and dict(question.schema),
        "url": question.url,
        "defaults": dict(question.defaults),
        "warnings": list(question.warnings),
    }


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _find(waiting: Sequence[PendingRequest], id_: str, kind: str) -> PendingRequest:
    """Return the waiting request with an id."""
    found = next((pending for pending in waiting if pending.id == id_), None)
    if found is None:
        raise _build_not_found_error(kind)
    return found


def _is_covered(similar: PendingRequest, request: PendingRequest, decision: str) -> bool:
    """Return True if a lasting decision about `request` also answers `similar`."""
    is_same_conversation = similar.about.get("conversation") == request.about.get("conversation")
    return similar.grant_key == request.grant_key and (decision != CONVERSATION or is_same_conversation)


def _build_not_found_error(kind: str) -> HttpError:
    return HttpError(404, f"there is no such {kind}, or it has been answered", "not_found")
