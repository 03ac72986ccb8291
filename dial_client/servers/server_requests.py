"""Answers the requests of one server to the client (elicitation, sampling, roots), in every protocol version.

Up to 2025-11-25 a server sends requests of its own. Since 2026-07-28 it answers a call with the input it requires, and
the SDK repeats the call with that input. A failure here is an error for that server only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import Origin, TurnAudit, find_common_origin, record_request
from dial_client.hooks.call_context import ELICITATION, URLS, CallContext, Caller, OpenQuestion
from dial_client.hooks.elicitation_form import Form, clean_schema, find_url_doubts, is_web_url
from dial_client.hooks.server_callbacks import (
    Callbacks,
    Elicitation,
    ElicitationAction,
    ElicitationAnswer,
    Sampler,
    SamplingRequest,
    ServerLog,
)
from dial_client.messages.errors import ServerError
from dial_client.messages.message import ImagePart, Message, Role, TextPart
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import clean, describe_removed, sanitize, to_one_line
from dial_client.servers.oauth.login_stores import LoginStore, MemoryLogins
from dial_client.servers.server_cache import JsonCache
from dial_client.servers.status import Observable, OnChange

if TYPE_CHECKING:
    import mcp_types as wire
    from mcp.client.context import ClientRequestContext

log = get_logger(__name__)

Result = TypeVar("Result")

# Limit of a server's requests during each call, and of its requests outside of calls.
MAX_REQUESTS = 20
# Seconds that a call waits for the calls of other conversations, if the server may ask the user during its calls; and
# that a call for a client of a gateway waits for the calls of other clients.
SOLE_USE_SECONDS, SOLE_CLIENT_SECONDS = 10.0, 60.0
_WHOSE_QUESTION = (
    "The host does not know which of its users to ask, because calls of several conversations were running: "
    "make the call again"
)
_CALL_ENDED = "The call that led to this request has ended"
# Completed URL elicitations that are remembered.
MAX_COMPLETED = 1_000
# Repetitions of a call that requires URL elicitations: after the person agreed, and after the person is done.
_MAX_REPETITIONS = 2
# Seconds a call waits for a server to confirm that the user has completed a URL elicitation.
BROWSER_SECONDS = 120.0
_MISSING_FEATURES = {
    "elicitation": "it asks the user a question, but no user can answer",
    "sampling": "it asks for a model's reply, and sampling is not enabled",
    "roots": "it asks which folders it may use, and no roots are configured",
}
_FEATURES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
# The message of the Python SDK (2.3), sent as an error, and of the TypeScript SDK (2.4), sent as a tool result.
_NO_BACK_CHANNEL = compile_lazily(
    r"(?:Cannot send '(?P<python>[\w/]{1,40})': this transport context has no back-channel"
    r"|Server-to-client requests are not available on protocol revision [\w.-]{1,40}: '(?P<typescript>[\w/]{1,40})')"
)

# Characters kept of one log message.
MAX_LOG_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A log message as a server sent it: its text may contain terminal escapes, and is not shortened."""

    server: str
    """The server's name in the configuration."""
    params: wire.LoggingMessageNotificationParams
    origins: tuple[Origin, ...] = ()
    """Where the calls come from that the message may be about, each once: over most transports a server does not say
    which of the calls that it is answering. Empty for a message outside of calls."""


@dataclass(frozen=True, eq=False, slots=True)
class ClientCapabilities:
    """What a client offers to each of its servers."""

    on_change: OnChange | None = None
    """Called after each change of a server's state or tools."""
    on_tools: Callable[[], None] | None = None
    """Called with each change of a server's tools, before `on_change`."""
    on_list_change: Callable[[], None] | None = None
    """Called when a server's resources or prompts have changed, or may have changed."""
    on_log_message: Callable[[LogMessage], None] | None = None
    """Called with each log message as the server sent it, before the result of a call that came later is handed on."""
    cache: JsonCache | None = None
    """The cache of server data from earlier runs; None for no cache."""
    callbacks: Callbacks = Callbacks()  # noqa: RUF009 - frozen
    """The client's callbacks. Without a log level, servers decide about it (on MCP 2026-07-28: no messages)."""
    sampler: Sampler | None = None
    """Answers sampling requests as `Callbacks.sample` says; None if the client does not answer them."""
    audit: TurnAudit = TurnAudit()  # noqa: RUF009 - it has no state
    """Records the decisions about servers' requests and tool calls."""
    logins: LoginStore = field(default_factory=MemoryLogins)
    """The logins to servers."""


class NeedsOlderProtocol(Exception):
    """A call failed because the server tried to send a request, which protocol version 2026-07-28 does not have."""


@dataclass(eq=False, slots=True)
class _Call:
    """A call in flight."""

    tool: str
    context: CallContext | None
    scope: anyio.CancelScope
    """Cancelled to fail the call."""
    number: int
    """The position among the calls of the session."""
    requests: int = 0

    @property
    def place(self) -> object:
        """Where a question during this call is asked: its conversation, else its turn, else the call itself."""
        if self.caller is not None and self.caller.is_resumable:
            return self
        origin = self.context.origin if self.context is not None else Origin()
        return origin.conversation or origin.turn or self

    @property
    def caller(self) -> Caller | None:
        """The client of a gateway that has made the call."""
        return self.context.caller if self.context is not None else None


class ServerRequests:
    """Answers the requests of one server during one session.

    Args:
        server: The server's name in the configuration.
        capabilities: The features the client offers to the server.
    """

    def __init__(self, server: str, capabilities: ClientCapabilities) -> None:
        self.capabilities = capabilities
        self.can_be_reopened = False
        """True if the session can be reopened with the older protocol, in which servers may send requests."""
        self.is_legacy = False
        """True in the older protocol, in which a request does not tell its call."""
        self._server = server
        self.calls: Observable[frozenset[_Call]] = Observable(frozenset())
        """The calls in flight."""
        # Set only if a request is answered in the task of its call.
        self._own_call: ContextVar[_Call | None] = ContextVar("call", default=None)
        # The requests that are being answered, each with the calls that it may belong to.
        self._requests: dict[anyio.CancelScope, set[_Call]] = {}
        self._requests_without_call = 0
        # True once the server has sent a request to the user or the model, which does not tell its call.
        self._may_ask = False
        self._numbers = count()
        # The tools with a call that ended without a request, and those with a call that may have led to one.
        self._quiet_tools: set[str] = set()
        self._asking_tools: set[str] = set()
        # The calls that wait until they may start, in the order in which they came.
        self._waiting: list[_Call] = []
        self._completed: Observable[frozenset[str]] = Observable(frozenset())
        # The client that was asked to open the URL of an elicitation, by the id of the elicitation.
        self._url_callers: dict[str, Caller] = {}

    async def run_call(self, tool: str, call: Callable[[], Awaitable[Result]], scope: anyio.CancelScope) -> Result:
        """Make a call in a scope, and answer the server's requests during it.

        A call that requires a URL elicitation (-32042) is repeated after the user was asked to open the URL.

        Raises:
            mcp.MCPError, pydantic.ValidationError: Raised by the call.
            ServerError: The user did not agree to open the URL, or the client lacks a feature.
            NeedsOlderProtocol: The call failed because the server could not send a request.
        """
        made = _Call(tool, call_context.find_current(), scope, next(self._numbers))
        await self._wait_for_sole_use(made)
        self.calls.set(self.calls.value | {made})
        token = self._own_call.set(made)
        try:
            agreed: set[str] = set()
            for _ in range(_MAX_REPETITIONS):
                try:
                    return await self._make_checked(call)
                except Exception as error:
                    if not await self._complete_url_elicitations(error, agreed):
                        raise
            return await self._make_checked(call)
        finally:
            self._own_call.reset(token)
            self._end_call(made)

    async def _make_checked(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call once. Raises as `run_call`."""
        try:
            result = await call()
        except Exception as error:
            from mcp import MCPError  # an import costs something for each call
            from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

            if not isinstance(error, MCPError):
                raise
            own_call = self._own_call.get()
            is_own = own_call is None or own_call.caller is None
            # What the client of a gateway lacks is for that client to read, with the code and the data.
            if is_own and error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and isinstance(error.data, dict):
                for name in error.data.get("requiredCapabilities") or ():
                    if name in _MISSING_FEATURES:
                        raise ServerError(self._server, _MISSING_FEATURES[name]) from error
            self._check_message(error.message)
            raise
        if getattr(result, "is_error", False):  # of all results only those of tools have it
            from mcp_types import CallToolResult, TextContent

            assert isinstance(result, CallToolResult)
            self._check_message(" ".join(block.text for block in result.content if isinstance(block, TextContent)))
        return result

    async def answer(self, feature: str, context: object, *params: Any) -> Any:
        """Answer a request of the server; to be called by the SDK.

        An error that is returned to the server reveals nothing about this program.

        Args:
            feature: The feature that the server uses: ``elicitation``, ``sampling`` or ``roots``.
            context: The SDK's context, which does not tell which call the request belongs to. With a `RoundContext` the
                client of a gateway may get the request as an `OpenQuestion`.
            params: The parameters of the request; none for ``roots``.
        """
        from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, ErrorData

        from dial_client.servers.input_rounds import RoundContext

        own_call = self._own_call.get()
        calls = await self._find_calls() if own_call is None else (own_call,)
        if calls is None:
            return ErrorData(code=INVALID_REQUEST, message=_CALL_ENDED)
        caller = self._find_caller(feature, calls)
        if own_call is None and (feature != "roots" or caller is not None):
            self._may_ask = self._may_ask or feature != "roots"
            self._asking_tools.update(call.tool for call in calls)
            if len({call.place for call in calls}) > 1:
                # One person must neither read nor answer what another one is asked.
                log.warning("request_refused", server=self._server, feature=feature, why="several conversations")
                recorder, tools = self.capabilities.audit.recorder, _list_tools(calls)
                origins = (call.origin for call in _list_contexts(calls))
                record_request(recorder, feature, self._server, tools, origins, "declined", "several conversations")
                return ErrorData(code=INVALID_REQUEST, message=_WHOSE_QUESTION)
        # A server could ask without an end during a call that waits for it: each question costs the user's attention,
        # each sampling request money.
        if not self._count_request(calls):
            return ErrorData(code=INVALID_REQUEST, message="The host answers no more requests for this call")
        methods: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "elicitation": self._elicit,
            "sampling": self._sample,
            "roots": self._list_roots,
        }
        with anyio.CancelScope() as scope:
            self._requests[scope] = set(calls)
            try:
                if caller is not None:
                    may_repeat = isinstance(context, RoundContext)
                    return await self._pass_on(caller, feature, calls, *params, may_repeat=may_repeat)
                if feature != "roots" and not self._has_own(feature):
                    # Clients of a gateway have the feature, or may have it, but did not make this call.
                    return ErrorData(code=METHOD_NOT_FOUND, message=f"The host does not support {feature} here")
                return await methods[feature](calls, *params)
            except _InvalidAnswer:
                return ErrorData(code=INTERNAL_ERROR, message="The host's answer does not fit the form")
            except Exception as error:  # noqa: BLE001 - the embedding program may raise anything
                log.failure("callback_failed", error, server=self._server, callback=feature)
                return ErrorData(code=INTERNAL_ERROR, message="The host could not answer")
            finally:
                del self._requests[scope]
        return ErrorData(code=INVALID_REQUEST, message=_CALL_ENDED)

    async def answer_one(self, context: ClientRequestContext, request: wire.InputRequest) -> Any:
        """Answer one of the requests with which the server has answered a call, as `answer`."""
        from mcp_types import METHOD_NOT_FOUND, ErrorData

        feature, own_call = _FEATURES[request.method], self._own_call.get()
        caller = own_call.caller if own_call is not None else None
        if caller is None and not self.has_feature(feature):
            return ErrorData(code=METHOD_NOT_FOUND, message=f"The host does not support {feature}")
        return await self.answer(feature, context, *(() if feature == "roots" else (request.params,)))

    async def _find_calls(self) -> tuple[_Call, ...] | None:
        """Return the calls in flight that a request may belong to, the oldest first; None if they have ended.

        The request does not tell its call. If clients of a gateway have made these calls, the request waits until the
        calls of one client are left: only a call that was in flight when the request arrived can have led to it, and
        this call does not end before the answer.
        """
        calls = self.calls.value
        if len({call.place for call in calls}) > 1 and any(call.caller is not None for call in calls):
            await self.calls.wait_until(
                lambda running: len({call.place for call in calls & running}) <= 1, SOLE_CLIENT_SECONDS
            )
            calls &= self.calls.value
            if not calls:
                return None
        return tuple(sorted(calls, key=lambda call: call.number))

    def _find_caller(self, feature: str, calls: tuple[_Call, ...]) -> Caller | None:
        """Return the client of a gateway that answers a request; None if this program answers it."""
        callbacks, callers = self.capabilities.callbacks, self.capabilities.callbacks.callers
        caller = next((call.caller for call in calls if call.caller is not None), None)
        if caller is None and not calls and callers is not None:
            caller = callers.single
        if caller is None or feature in caller.features:
            # Configured roots are the limit that the user has set for the server.
            return None if feature == "roots" and callbacks.roots else caller
        # For a client that has no model, the host's own model may answer.
        return None if feature == "sampling" and self.capabilities.sampler is not None else caller

    async def _pass_on(
        self, caller: Caller, feature: str, calls: tuple[_Call, ...], params: Any = None, *, may_repeat: bool
    ) -> Any:
        """Return the answer of the client that has made the call, as the client has sent it; or its open question."""
        from mcp_types import ElicitRequestURLParams, ElicitResult, ErrorData

        if isinstance(params, ElicitRequestURLParams):
            if not is_web_url(params.url):  # other schemes open files and programs
                log.warning("url_refused", server=self._server)
                return ElicitResult(action="decline")
            if params.elicitation_id is not None and len(self._url_callers) < MAX_COMPLETED:
                self._url_callers[params.elicitation_id] = caller
        decision = "failed"
        try:
            with call_context.pause_deadlines(_list_contexts(calls)):
                if may_repeat:
                    answer = caller.hand_on(feature, self._server, params)
                else:
                    answer = await caller.answer(feature, self._server, params)
            decision = "denied" if isinstance(answer, ErrorData) else "allowed"
            if isinstance(answer, OpenQuestion):
                decision = "asked"
            if isinstance(answer, ElicitResult):
                decision = answer.action
        finally:
            if feature != "roots":
                recorder, tools = self.capabilities.audit.recorder, _list_tools(calls)
                origins = (context.origin for context in _list_contexts(calls))
                record_request(recorder, feature, self._server, tools, origins, decision, "the client")
        return answer

    async def _elicit(
        self, calls: tuple[_Call, ...], params: wire.ElicitRequestFormParams | wire.ElicitRequestURLParams
    ) -> wire.ElicitResult:
        """Answer ``elicitation/create``."""
        action = "cancelled"
        try:
            result = await self._ask_user(calls, params)
            action = result.action
        except Exception:
            action = "failed"
            raise
        finally:
            recorder = self.capabilities.audit.recorder
            origins = (context.origin for context in _list_contexts(calls))
            tools = _list_tools(calls)
            record_request(recorder, "elicitation", self._server, tools, origins, action, "elicit callback")
        return result

    async def _sample(
        self, calls: tuple[_Call, ...], params: wire.CreateMessageRequestParams
    ) -> wire.CreateMessageResult | wire.ErrorData:
        """Answer ``sampling/createMessage``."""
        from mcp_types import CreateMessageResult, ErrorData, TextContent

        assert self.capabilities.sampler is not None
        request = map_sampling_request(self._server, params, _list_tools(calls))
        reply = await self.capabilities.sampler(request, _list_contexts(calls))
        if reply is None:
            # The error code of the specification ("Sampling", "Error Handling").
            return ErrorData(code=-1, message="User rejected sampling request")
        text = TextContent(type="text", text=reply.text)
        return CreateMessageResult(role="assistant", content=text, model=reply.model, stop_reason=reply.stop_reason)

    async def _list_roots(self, calls: tuple[_Call, ...]) -> wire.ListRootsResult:
        """Answer ``roots/list``."""
        from mcp_types import ListRootsResult, Root
        from pydantic import FileUrl

        del calls
        uris = [_to_uri(os.fspath(root)) for root in self.capabilities.callbacks.roots]
        names = [uri.rstrip("/").rpartition("/")[2] or None for uri in uris]
        return ListRootsResult(roots=[Root(uri=FileUrl(uri), name=name) for uri, name in zip(uris, names, strict=True)])

    def intercept_log(self, dispatcher: object, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take a log message in the order of messages from the server; return False for other notifications.

        The SDK hands notifications on in tasks of their own, which may run when the call that a message is about has
        ended already.

        Args:
            dispatcher: The SDK's dispatcher of the session, which is taking the notification.
            method: The method of the notification.
            params: Its parameters.
        """
        if method != "notifications/message":
            return False
        from mcp_types import LoggingMessageNotificationParams

        # Over HTTP a message arrives in the context of the call that it is about.
        context: Context | None = getattr(getattr(dispatcher, "_read_stream", None), "last_context", None)
        own_call = self._own_call.get() or (context.get(self._own_call) if context is not None else None)
        self._take_log(LoggingMessageNotificationParams.model_validate(params), own_call)
        return True

    async def handle_log(self, params: wire.LoggingMessageNotificationParams) -> None:
        """Take a log message that the SDK hands on, before `intercept_log` is in use."""
        self._take_log(params, self._own_call.get())

    def _take_log(self, params: wire.LoggingMessageNotificationParams, own_call: _Call | None) -> None:
        """Pass a log message to the client's `on_log` callback, without unsafe characters, and cut if it is long."""
        if self.capabilities.on_log_message is not None:
            calls = self.calls.value if own_call is None else (own_call,)
            origins = tuple({context.origin: None for context in _list_contexts(calls)})
            self.capabilities.on_log_message(LogMessage(self._server, params, origins))
        if self.capabilities.callbacks.on_log is None:
            return
        try:
            data = params.data
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
            cut = text if len(text) <= MAX_LOG_CHARS else f"{text[:MAX_LOG_CHARS]}…"
            logger = sanitize((params.logger or "")[:200])
            self.capabilities.callbacks.on_log(ServerLog(self._server, params.level, sanitize(cut), logger))
        except Exception as error:  # noqa: BLE001 - the embedding program may raise anything
            log.failure("callback_failed", error, server=self._server, callback="on_log")

    async def complete_elicitation(self, elicitation_id: str) -> None:
        """Record that the user has completed a URL elicitation (2025-11-25), and tell the client that was asked."""
        if len(self._completed.value) < MAX_COMPLETED:
            self._completed.set(self._completed.value | {elicitation_id})
        if (caller := self._url_callers.pop(elicitation_id, None)) is not None:
            await caller.complete_elicitation(self._server, elicitation_id)

    def _check_message(self, message: str) -> None:
        """Raise `ServerError` or `NeedsOlderProtocol` if a call failed because the server could not send a request."""
        if not (found := _NO_BACK_CHANNEL.search(message)):
            return
        name = _FEATURES.get(found["python"] or found["typescript"] or "", "")
        own_call = self._own_call.get()
        caller = own_call.caller if own_call is not None else None
        if name and name not in self.list_features(caller):
            raise ServerError(self._server, _MISSING_FEATURES[name])
        if self.can_be_reopened:
            raise NeedsOlderProtocol

    def has_feature(self, name: str) -> bool:
        """Return True if servers may use this feature: ``elicitation``, ``sampling``, ``sampling.tools``, ``roots``."""
        callers = self.capabilities.callbacks.callers
        return self._has_own(name) or (callers is not None and name in callers.features)

    def _has_own(self, name: str) -> bool:
        """Return True if this program itself answers requests for a feature."""
        callbacks = self.capabilities.callbacks
        own = {"elicitation": callbacks.elicit, "sampling": self.capabilities.sampler, "roots": callbacks.roots}
        return bool(own.get("elicitation" if name == URLS else name))

    def list_features(self, caller: Caller | None) -> frozenset[str]:
        """Return the features that the server may use during a call of a client of a gateway, or of this program."""
        own = frozenset(filter(self._has_own, call_context.ALL_FEATURES))
        if caller is None:
            return own
        # Only the client itself asks its user.
        return (caller.features & call_context.ALL_FEATURES) | (own - {ELICITATION, URLS})

    async def _wait_for_sole_use(self, call: _Call) -> None:
        """Wait until no call of another conversation is in flight, if the server may ask during its calls.

        A person may take long to answer, so the wait is limited. A question during calls of several conversations is
        then refused. The calls start in the order in which they came, so that no conversation waits for ever.
        """
        if not self.is_legacy or not (self.calls.value or self._waiting):
            return
        if not any(map(self.has_feature, ("elicitation", "sampling", "roots"))):
            return

        def is_free(calls: frozenset[_Call]) -> bool:
            earlier = self._waiting[: self._waiting.index(call)]
            may_ask = self._may_lead_to_request(call)
            foreign = (known for known in (*calls, *earlier) if known.place != call.place)
            return not any(may_ask or self._may_lead_to_request(known) for known in foreign)

        self._waiting.append(call)
        try:
            seconds = SOLE_USE_SECONDS if call.caller is None else SOLE_CLIENT_SECONDS
            # The time of a call does not run while the user of another client thinks.
            contexts = () if call.caller is None else _list_contexts((call,))
            with anyio.move_on_after(seconds), call_context.pause_deadlines(contexts):
                while not is_free(self.calls.value):  # another waiting call may have been faster
                    await self.calls.wait_until(is_free)
        finally:
            self._waiting.remove(call)
            self.calls.set(self.calls.value)  # others may have waited for this one

    def _may_lead_to_request(self, call: _Call) -> bool:
        """Return True for a call during which the server may ask something, as far as that is known.

        A call for a client of a gateway is asked about at its own client, which must be known for certain: a tool is
        quiet only once a call of it was.
        """
        if call.caller is None:
            return self._may_ask
        return call.tool in self._asking_tools or call.tool not in self._quiet_tools

    def _end_call(self, call: _Call) -> None:
        self._quiet_tools.add(call.tool)
        self.calls.set(self.calls.value - {call})
        for scope, calls in self._requests.items():
            calls.discard(call)
            if not calls:
                scope.cancel()  # no call waits for the answer any more

    def _count_request(self, calls: tuple[_Call, ...]) -> bool:
        """Count a request for every call it may belong to; return True if at least one of them is within the limit."""
        if not calls:
            self._requests_without_call += 1
            return self._requests_without_call <= MAX_REQUESTS
        for call in calls:
            call.requests += 1
        return any(call.requests <= MAX_REQUESTS for call in calls)

    async def _ask_user(
        self, calls: tuple[_Call, ...], params: wire.ElicitRequestFormParams | wire.ElicitRequestURLParams
    ) -> wire.ElicitResult:
        from mcp_types import ElicitResult

        tools, message = _list_tools(calls), clean(params.message)
        form: Form | None = None
        if params.mode == "url":
            # Other schemes open files and programs (MCP, "URL Mode Elicitation"; CVE-2025-6514).
            if not is_web_url(params.url):
                log.warning("url_refused", server=self._server)
                return ElicitResult(action="decline")
            warnings = find_url_doubts(params.url) + _build_removal_warning(message.removed)
            question = Elicitation(self._server, message.text, None, params.url, {}, warnings, tools)
        else:
            schema, removed = clean_schema(params.requested_schema)
            form = Form(schema)
            warnings = tuple(
                f"it asks for what seems to be a secret: {to_one_line(name, 100)}" for name in form.secrets
            )
            warnings += _build_removal_warning(message.removed + removed)
            question = Elicitation(self._server, message.text, schema, None, form.defaults, warnings, tools)
        origin = find_common_origin(context.origin for context in _list_contexts(calls))
        question = replace(question, turn_id=origin.turn, conversation_id=origin.conversation, owner=origin.owner)
        assert self.capabilities.callbacks.elicit is not None
        with call_context.pause_deadlines(_list_contexts(calls)):
            # The embedding program may return anything.
            answer: object = await self.capabilities.callbacks.elicit(question)
        if not isinstance(answer, ElicitationAnswer):
            raise TypeError("no ElicitationAnswer")
        if form is None or answer.action != ElicitationAction.ACCEPT:
            return ElicitResult(action=ElicitationAction(answer.action).value)
        content = form.fill(answer.content)
        if form.find_problems(content):
            fields = {field.name: field for field in form.fields}
            missing = [name for name, field in fields.items() if field.is_required and name not in content]
            wrong = [name for name in content if name not in fields or form.find_field_problems(name, content[name])]
            log.warning("answer_does_not_fit", server=self._server, fields=missing + wrong)
            raise _InvalidAnswer
        return ElicitResult(action="accept", content=content)

    async def _complete_url_elicitations(self, error: Exception, agreed: set[str]) -> bool:
        """Ask the user to open the URLs that an error requires; return True if the call may be repeated."""
        from mcp import MCPError, UrlElicitationRequiredError
        from mcp_types import URL_ELICITATION_REQUIRED, ElicitResult

        if not isinstance(error, MCPError) or error.code != URL_ELICITATION_REQUIRED:
            return False
        elicitations = UrlElicitationRequiredError.from_error(error.error).elicitations
        call = self._own_call.get()
        calls = () if call is None else (call,)
        caller = call.caller if call is not None else None
        can_ask = self.capabilities.callbacks.elicit if caller is None else "elicitation.url" in caller.features
        if not can_ask:
            raise ServerError(self._server, "the user has to open a URL first, but no user can be asked")
        ids = {params.elicitation_id or params.url for params in elicitations}
        if ids <= agreed:
            with call_context.pause_deadlines(_list_contexts(calls)):
                await self._completed.wait_until(lambda completed: ids <= completed, BROWSER_SECONDS)
            return True
        for params in elicitations:
            result = await self.answer("elicitation", None, params)
            if not isinstance(result, ElicitResult) or result.action != ElicitationAction.ACCEPT.value:
                raise ServerError(self._server, "the user has to open a URL first, but did not agree to open it")
        agreed |= ids
        return bool(elicitations)


class _InvalidAnswer(Exception):
    """An answer does not match the form. The log names the invalid fields, without their content."""


def _build_removal_warning(count: int) -> tuple[str, ...]:
    return (f"{describe_removed(count)} from what it says",) if count else ()


def _to_uri(root: str) -> str:
    return root if root.startswith("file://") else Path(root).absolute().as_uri()


def _list_contexts(calls: Iterable[_Call]) -> tuple[CallContext, ...]:
    return tuple(call.context for call in calls if call.context is not None)


def _list_tools(calls: Iterable[_Call]) -> tuple[str, ...]:
    return tuple(sorted({call.tool for call in calls if call.tool}))


def map_sampling_request(
    server: str, params: wire.CreateMessageRequestParams, tools: tuple[str, ...]
) -> SamplingRequest:
    """Map a sampling request; its ``includeContext`` is ignored."""
    hints = params.model_preferences.hints if params.model_preferences else None
    return SamplingRequest(
        server,
        tuple(_to_message(message.role, message.content) for message in params.messages),
        params.max_tokens,
        sanitize(params.system_prompt or ""),
        params.temperature,
        tuple(params.stop_sequences or ()),
        tuple(sanitize(hint.name) for hint in hints or () if hint.name),
        tools,
    )


def _to_message(role: str, content: Any) -> Message:
    blocks = content if isinstance(content, list) else [content]
    parts = tuple(_to_part(block) for block in blocks)
    is_text = all(isinstance(part, TextPart) for part in parts)
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return Message(Role.ASSISTANT if role == "assistant" else Role.USER, text if is_text else parts)


def _to_part(block: Any) -> TextPart | ImagePart:
    match block.type:
        case "text":
            return TextPart(sanitize(block.text))
        case "image":
            return ImagePart(block.data, block.mime_type)
        case kind:
            return TextPart(f"[{kind} content, which is not supported here]")
