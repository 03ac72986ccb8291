"""What clients are asked: approvals of calls, and requests of servers; only the client whose call led to a question.

`Questions` is the approver of the gateway's client, and says which features servers may ask for (`Callbacks.callers`).
`Questions.answer` runs a request of a client so that it can be asked: within the request (up to 2025-11-25), or as the
answer to it (2026-07-28). There an approval needs no open request: the state that the client sends back says which call
was asked about, and the executor decides the call anew, so that the answer counts for this call only. Nor do questions
of servers of 2026-07-28: the client gets them with the server's own keys, and the state of the server inside its own.

What the gateway lets clients keep for it (``requestState``) is sealed. The key is a file of the user, so that a
question which a gateway has asked can be answered to the next one.
"""

from __future__ import annotations

import json
import secrets
import zlib
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    ElicitRequest,
    ErrorData,
    InputRequiredResult,
    InputResponseRequestParams,
    ListRootsRequest,
)

from dial_client.client.client_setup import ClientParts
from dial_client.gateway.approval_form import build_approval_form, read_approval
from dial_client.gateway.client_requests import (
    ANSWER_SECONDS,
    ANY_SERVER,
    ClientRequest,
    RequestInSession,
    list_features,
    send_to_client,
)
from dial_client.gateway.client_session import ClientSession, ClientSessions
from dial_client.gateway.client_tasks import ClientTasks, TaskCall
from dial_client.gateway.state_codec import StateCodec
from dial_client.gateway.suspended_calls import REQUEST, SuspendedCalls
from dial_client.hooks.call_context import ALL_FEATURES, ELICITATION, ROOTS, InputRequired, InputRound
from dial_client.messages.message import PendingApproval, ToolCallRequest, ToolSpec
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.secret_masking import SecretMask
from dial_client.tools.approval import Answer, Approval, ApprovalContext, Approver, Decision
from dial_client.tools.executor import WaitingCalls

# Seconds that a state is valid: an answer that comes later is asked for again.
STATE_SECONDS = ANSWER_SECONDS
# Seconds that a server's request outside of any call waits for the client to connect.
CONNECT_SECONDS = 5.0
# Approvals whose answers were used, so that none counts twice.
_MAX_USED = 10_000

# The members of a state that name the approval it is about.
_APPROVAL, _DIGEST = "approval", "digest"
# The members of a state of a call for which a server requires answers: the server, its own state, the answers that it
# gets from this program, and the id of this state, if the call was approved.
_SERVER, _STATE, _ANSWERS, _ID = "server", "state", "answers", "id"
# The member of a state that has the question about a call of a program, with the program; it has an id, too.
_PROGRAM = "program"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class GivenApproval:
    """The answer that a client has brought with it: to which question, and which."""

    id: str
    digest: str
    approval: Approval | None
    """None if the client has brought no answer."""
    asked: PendingApproval | None = None
    """The question about a call of a program, with the program; None for any other call."""

    def build_waiting(self, call: ToolCallRequest) -> WaitingCalls:
        """Return the call as one that waited for approval, for the executor, which decides whether the answer fits."""
        return {call.id: (PendingApproval(self.id, call, "", "", digest=self.digest), self.approval)}


@dataclass(eq=False, slots=True)
class _SingleClient:
    """The client of a gateway on standard input and output, for requests of servers outside of calls."""

    session: ServerSession | None = None
    _known: anyio.Event = field(default_factory=anyio.Event)

    def set_session(self, session: ServerSession) -> None:
        if self.session is None:
            self.session = session
            self._known.set()

    @property
    def is_resumable(self) -> bool:
        return False

    @property
    def features(self) -> frozenset[str]:
        return frozenset((ROOTS,))

    async def answer(self, feature: str, server: str, params: Any) -> Any:
        """Return the client's folders; whatever else a server wants, it has to ask for during a call."""
        del params
        with anyio.move_on_after(CONNECT_SECONDS):
            await self._known.wait()
        session = self.session
        has_roots = session is not None and ROOTS in list_features(
            session.client_capabilities, session.protocol_version
        )
        if feature != ROOTS or session is None or not has_roots or is_modern(session.protocol_version):
            return ErrorData(code=METHOD_NOT_FOUND, message=f"The client of {server} does not support {feature} now")
        return await send_to_client(session, ListRootsRequest())

    def hand_on(self, feature: str, server: str, params: Any) -> ErrorData:
        """Refuse: this client repeats nothing."""
        del params
        return ErrorData(code=METHOD_NOT_FOUND, message=f"The client of {server} does not support {feature} now")

    def take_input(self, server: str) -> InputRound | None:
        """Return None: outside of calls the client brings nothing with it."""
        del server
        return None

    def begin_task(self) -> None:
        """Do nothing: outside of calls there are no tasks."""

    async def complete_elicitation(self, server: str, elicitation_id: str) -> None:
        """Do nothing: outside of calls no URL is opened."""


class Questions:
    """Asks the clients of a gateway.

    Args:
        deny: The approver for calls of clients that cannot ask their user.
        otherwise: The approver for calls that no client of the gateway has made; by default `deny`.
        is_single: True if there is only one client, as on standard input and output.
    """

    def __init__(self, deny: Approver, otherwise: Approver | None = None, *, is_single: bool = False) -> None:
        self._deny, self._otherwise = deny, otherwise or deny
        self._parts: ClientParts | None = None
        self._tasks: ClientTasks | None = None
        self._single = _SingleClient() if is_single else None
        # The requests that are being answered, by the ids of their session and their turn.
        self._requests: dict[tuple[str, str], list[ClientRequest]] = {}
        self.suspended = SuspendedCalls()
        """The requests that wait for their clients."""
        self._used: OrderedDict[str, None] = OrderedDict()

    def connect(self, parts: ClientParts, tasks: ClientTasks | None = None) -> None:
        """Set the servers whose secrets are masked in questions, and the calls that may become tasks of clients."""
        self._parts, self._tasks = parts, tasks

    # --- for servers ------------------------------------------------------------------------------

    @property
    def features(self) -> frozenset[str]:
        """What servers may ask for: what the client has, as far as it is known that there is only one."""
        session = self._single.session if self._single is not None else None
        if session is None:
            return ALL_FEATURES
        return list_features(session.client_capabilities, session.protocol_version)

    @property
    def single(self) -> _SingleClient | None:
        """The only client, for requests outside of calls; None if there may be several."""
        return self._single

    def observe(self, session: ServerSession) -> None:
        """Remember the client of a gateway with only one, as soon as it has said who it is."""
        if self._single is not None and self._single.session is None and session.client_capabilities is not None:
            self._single.set_session(session)

    # --- approvals --------------------------------------------------------------------------------

    async def __call__(self, call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Answer:
        """Ask the client that has made a call; implements `tools.approval.Approver`."""
        request = self._find_request(context)
        if request is None:
            return await self._otherwise(call, spec, context)
        if ELICITATION not in request.features:
            return await self._deny(call, spec, context)
        if request.defers_approvals and context.approval_id:
            return Approval(Decision.DEFER)
        id_, server, why, change = context.approval_id, context.server, context.why_asked, context.change
        pending = PendingApproval(id_, call, server, spec.tool, why, change)
        return read_approval(await request.ask(self._build_request(pending)), pending)

    def _find_request(self, context: ApprovalContext) -> ClientRequest | None:
        if context.turn_id:
            # Since 2026-07-28 a person may have a client program twice, with equal ids of requests: the later request
            # is then the one that can be asked about an answer of the host's own model, the only such question.
            found = self.find_requests(context.conversation_id, context.turn_id)
            return found[-1] if found else None
        # Several calls of one client may have led to the question.
        known = (request for requests in self._requests.values() for request in requests)
        return next((request for request in known if request.session.id == context.conversation_id), None)

    def find_requests(self, conversation: str, turn: str) -> Sequence[ClientRequest]:
        """Return the requests of this origin that are being answered: one, unless a client program runs twice."""
        return tuple(self._requests.get((conversation, turn), ()))

    def _build_request(self, pending: PendingApproval) -> ElicitRequest:
        connection = None if self._parts is None else self._parts.servers.get(pending.server)
        settings = None if connection is None else connection.settings
        mask = SecretMask.from_settings(settings).mask_text if settings is not None else str
        return ElicitRequest(params=build_approval_form(pending, mask))

    def build_result(self, pending: PendingApproval) -> InputRequiredResult:
        """Return the question about a call that waits for approval, for a client that repeats its request."""
        state = {_APPROVAL: pending.id, _DIGEST: pending.digest}
        if pending.snippet is not None:
            state |= {_PROGRAM: _pack(pending), _ID: secrets.token_hex(16)}
        requests: Any = {_APPROVAL: self._build_request(pending)}
        return InputRequiredResult(input_requests=requests, request_state=json.dumps(state))

    # --- requests of clients ----------------------------------------------------------------------

    async def answer(
        self,
        session: ClientSession,
        context: ServerRequestContext[Any, Any],
        params: InputResponseRequestParams,
        make: Callable[[ClientRequest, GivenApproval | None], Awaitable[ResultT]],
    ) -> ResultT | InputRequiredResult | dict[str, Any]:
        """Answer a request of a client, which may be asked meanwhile: by its result, by a question, or by a task.

        Args:
            session: The client.
            context: The SDK's context of the request.
            params: The parameters, with the answers and the state of a request that is repeated.
            make: Answers the request; gets what it needs to ask the client, and the approval that was asked for before.

        Raises:
            CallLost: The request that is repeated does not wait any more.
            MCPError: The state or an answer is not valid, or raised by `make`.
        """
        if not is_modern(context.protocol_version):
            request: ClientRequest = RequestInSession(session, context)
            with self.open_request(request):
                return await make(request, None)
        state = _read_state(params.request_state)
        if REQUEST in state:
            return await self.suspended.resume(self.suspended.find(session, state), context, params.input_responses)
        given = self._read_given(state, params)
        tasks = self._tasks if isinstance(params, CallToolRequestParams) else None
        task_call = TaskCall[Any](session, context) if tasks is not None and tasks.admits(session, context) else None
        suspendable = task_call or self.suspended.open(session, context)

        suspendable.given = _read_input(state, params)

        async def make_in_task() -> ResultT | InputRequiredResult:
            with self.open_request(suspendable):
                try:
                    return await make(suspendable, given)
                except InputRequired as required:
                    return _build_round(required, given)

        if tasks is not None and task_call is not None and self._parts is not None:
            return await tasks.answer(self._parts.require_tasks(), task_call, make_in_task)
        if not suspendable.features or self._parts is None:
            return await make_in_task()
        return await self.suspended.answer(self._parts.require_tasks(), suspendable, make_in_task)

    def open_request(self, request: ClientRequest) -> AbstractContextManager[None]:
        """Within the ``with`` block, the request is being answered."""
        return _OpenRequest(self._requests, request)

    def _read_given(self, state: Mapping[str, Any], params: InputResponseRequestParams) -> GivenApproval | None:
        """Return the approval that a client has brought with it; None for a new call, or if it was used already."""
        id_, digest = state.get(_APPROVAL), state.get(_DIGEST)
        if not isinstance(id_, str) or not isinstance(digest, str):
            return None
        if _SERVER in state:
            # The call was approved, and its server has asked something: one repetition goes on with that approval.
            return GivenApproval(id_, digest, Approval(Decision.ONCE)) if self._use(str(state.get(_ID))) else None
        if _PROGRAM in state:
            # Begun anew, the program would make its calls twice; so would one that goes on twice.
            if not self._use(str(state.get(_ID))):
                raise MCPError(INVALID_PARAMS, "requestState: the program has gone on from there already")
            asked = _unpack(state[_PROGRAM])
            answer = (params.input_responses or {}).get(_APPROVAL)
            return GivenApproval(id_, digest, None if answer is None else read_approval(answer, asked), asked)
        if id_ in self._used:
            return None
        answer = (params.input_responses or {}).get(_APPROVAL)
        if answer is None:
            return GivenApproval(id_, digest, None)
        # Only the choices depend on the call, and the executor makes less of an answer than it says, never more.
        approval = read_approval(answer, PendingApproval(id_, ToolCallRequest("", "", {}), "", ""))
        self._use(id_)
        return GivenApproval(id_, digest, approval)

    def _use(self, id_: str) -> bool:
        """Remember that an answer was used; return False if it was used before."""
        if id_ in self._used:
            return False
        self._used[id_] = None
        if len(self._used) > _MAX_USED:
            self._used.popitem(last=False)
        return True


class _OpenRequest(AbstractContextManager[None]):
    """A request that is among those that are being answered. A generator would cost twice as much, for each call."""

    def __init__(self, requests: dict[tuple[str, str], list[ClientRequest]], request: ClientRequest) -> None:
        self._requests, self._request = requests, request
        self._key = request.origin.conversation, request.origin.turn

    def __enter__(self) -> None:
        self._requests.setdefault(self._key, []).append(self._request)

    def __exit__(self, *_: object) -> None:
        self._requests[self._key].remove(self._request)
        if not self._requests[self._key]:
            del self._requests[self._key]


def build_boundary(name: str, sessions: ClientSessions, folder: Path | None = None) -> RequestStateBoundary:
    """Return the middleware that seals and checks the states that clients keep.

    A state is valid for the same request of the same person and client program only. Its key is kept in a folder of the
    user, so that it outlives the process.

    Args:
        name: The name of the gateway.
        sessions: The clients.
        folder: The folder of the key; None for that of the user.
    """

    def bind(context: ServerRequestContext[Any, Any]) -> str:
        params = context.session.client_params
        return json.dumps([sessions.find_person(context), "" if params is None else params.client_info.name])

    security = RequestStateSecurity(codec=StateCodec(folder), ttl=STATE_SECONDS, bind_principal=bind)
    return RequestStateBoundary(security, default_audience=name)


def _build_round(required: InputRequired, given: GivenApproval | None) -> InputRequiredResult:
    """Return the questions of a server for a client that repeats its request, with the server's own keys.

    The state is sealed, and bound to this request of this client: it reaches no other server, and an approval that the
    call had goes on for this call only. A server without a state needs none here either.
    """
    round_ = required.round
    state: dict[str, Any] = {}
    if given is not None and given.approval is not None and given.approval.allowed:
        state = {_APPROVAL: given.id, _DIGEST: given.digest, _ID: secrets.token_hex(16)}
    if state or round_.answers or round_.state is not None:
        state |= {_SERVER: round_.server, _STATE: round_.state, _ANSWERS: dict(round_.answers)}
    return InputRequiredResult(
        input_requests=dict(required.questions), request_state=json.dumps(state) if state else None
    )


def _pack(pending: PendingApproval) -> str:
    """Return a program that waits, for the state that the client keeps: a third of its size, with a seal around it."""
    return b64encode(zlib.compress(json.dumps(pending.to_dict()).encode())).decode()


def _unpack(text: str) -> PendingApproval:
    return PendingApproval.from_dict(json.loads(zlib.decompress(b64decode(text))))


def _read_input(state: Mapping[str, Any], params: InputResponseRequestParams) -> InputRound | None:
    """Return what a request has with it for its server; None for nothing, and for an answer to the gateway."""
    answers: Mapping[str, Any] = params.input_responses or {}
    if _SERVER in state:
        own = state.get(_ANSWERS) or {}
        return InputRound(str(state[_SERVER]), state.get(_STATE), {**answers, **own})
    return InputRound(ANY_SERVER, None, answers) if answers and not state else None


def _read_state(text: str | None) -> Mapping[str, Any]:
    """Return the content of a state that this gateway has sealed; empty for a request without one."""
    if text is None:
        return {}
    try:
        state = json.loads(text)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise MCPError(INVALID_PARAMS, "requestState: it is not one of this server")
    return state
