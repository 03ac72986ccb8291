"""Answers the requests of one server to the client (elicitation, sampling, roots), in every protocol version.

Up to 2025-11-25 a server sends requests of its own. Since 2026-07-28 it answers a call with the input it requires, and
the SDK repeats the call with that input. A failure here is an error for that server only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import AuditEntry, TurnAudit, create_id, find_common_origin, record
from dial_client.hooks.call_context import CallContext
from dial_client.hooks.elicitation_form import Form, clean_schema, find_url_doubts, is_web_url
from dial_client.hooks.server_callbacks import (
    Elicit,
    Elicitation,
    ElicitationAction,
    ElicitationAnswer,
    Login,
    OnLog,
    Sampler,
    SamplingReply,
    SamplingRequest,
    ServerLog,
)
from dial_client.messages.errors import ServerError
from dial_client.messages.message import ImagePart, Message, Role, TextPart
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import clean, describe_removed, sanitize, to_one_line
from dial_client.servers.server_cache import JsonCache
from dial_client.servers.status import Observable, OnChange

if TYPE_CHECKING:
    from mcp import MCPError
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
        ErrorData,
        ListRootsResult,
        LoggingMessageNotificationParams,
    )

log = get_logger(__name__)

Result = TypeVar("Result")

MAX_REQUESTS = 20
"""Limit of a server's requests during each call, and of its requests outside of calls."""
MAX_COMPLETED = 1_000
"""Completed URL elicitations that are remembered."""
_MAX_REPETITIONS = 2
"""Repetitions of a call that requires URL elicitations: after the person agreed, and after the person is done."""
BROWSER_SECONDS = 120.0
"""Seconds a call waits for a server to confirm that the user has completed a URL elicitation."""
_MISSING_FEATURES = {
    "elicitation": "it asks the user a question, but no user can answer",
    "sampling": "it asks for a model's reply, and sampling is not enabled",
    "roots": "it asks which folders it may use, and no roots are configured",
}
_FEATURES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_NO_BACK_CHANNEL = re.compile(
    r"(?:Cannot send '(?P<python>[\w/]{1,40})': this transport context has no back-channel"
    r"|Server-to-client requests are not available on protocol revision [\w.-]{1,40}: '(?P<typescript>[\w/]{1,40})')"
)
"""The message of the Python SDK (2.3), sent as an error, and of the TypeScript SDK (2.4), sent as a tool result."""

MAX_LOG_CHARS = 2_000
"""Characters kept of one log message."""


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """What a client offers to each of its servers, and its callbacks. A feature that is None or empty is missing."""

    on_change: OnChange | None = None
    """Called after each change of a server's state or tools."""
    cache: JsonCache | None = None
    """The cache of server data from earlier runs; None for no cache."""
    elicit: Elicit | None = None
    sample: Sampler | None = None
    roots: tuple[str, ...] = ()
    """Folders, or file URIs, that servers may use."""
    on_log: OnLog | None = None
    log_level: str | None = None
    """The lowest level of log messages to request; None lets servers decide (on MCP 2026-07-28: no messages)."""
    login: Login | None = None
    apps: bool = False
    """True if the client shows MCP Apps."""
    audit: TurnAudit = TurnAudit()  # noqa: RUF009 - it has no state
    """Records the decisions about servers' requests and tool calls."""


class NeedsOlderProtocol(Exception):
    """A call failed because the server tried to send a request, which protocol version 2026-07-28 does not have."""


@dataclass(eq=False, slots=True)
class _Call:
    """A call in flight."""

    tool: str
    context: CallContext | None
    requests: int = 0


@dataclass(eq=False, slots=True)
class _Request:
    """A request of the server that is being answered."""

    scope: anyio.CancelScope
    calls: set[_Call]
    """The calls that the request may belong to."""


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
        self._server = server
        self._calls: set[_Call] = set()
        # Set only if a request is answered in the task of its call.
        self._own_call: ContextVar[_Call | None] = ContextVar("call", default=None)
        self._requests: set[_Request] = set()
        self._requests_without_call = 0
        self._completed: Observable[frozenset[str]] = Observable(frozenset())

    async def run_call(self, tool: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call, and answer the server's requests during it.

        A call that requires a URL elicitation (-32042) is repeated after the user was asked to open the URL.

        Raises:
            mcp.MCPError, pydantic.ValidationError: Raised by the call.
            ServerError: The user did not agree to open the URL, or the client lacks a feature.
            NeedsOlderProtocol: The call failed because the server could not send a request.
        """
        from mcp import MCPError

        with self._in_flight(tool):
            agreed: set[str] = set()
            for _ in range(_MAX_REPETITIONS):
                try:
                    return await self._make_checked(call)
                except MCPError as error:
                    if not await self._complete_url_elicitations(error, agreed):
                        raise
            return await self._make_checked(call)

    async def _make_checked(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call once. Raises as `run_call`."""
        from mcp import MCPError
        from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolResult, TextContent

        try:
            result = await call()
        except MCPError as error:
            if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and isinstance(error.data, dict):
                for name in error.data.get("requiredCapabilities") or ():
                    if name in _MISSING_FEATURES:
                        raise ServerError(self._server, _MISSING_FEATURES[name]) from error
            self._check_message(error.message)
            raise
        if isinstance(result, CallToolResult) and result.is_error:
            self._check_message(" ".join(block.text for block in result.content if isinstance(block, TextContent)))
        return result

    async def answer_elicitation(
        self, context: object, params: ElicitRequestFormParams | ElicitRequestURLParams
    ) -> ElicitResult | Any:
        """Answer ``elicitation/create``."""
        del context  # the SDK's context does not tell which call the request belongs to

        async def answer(calls: tuple[_Call, ...]) -> ElicitResult:
            action = "cancelled"
            try:
                result = await self._elicit(params, calls)
                action = result.action
            except Exception:
                action = "failed"
                raise
            finally:
                # The content of an answer is not recorded: it may be a secret of the user.
                entry = AuditEntry(
                    event="elicitation",
                    id=create_id(),
                    origin=find_common_origin(context.origin for context in _list_contexts(calls)),
                    server=self._server,
                    tool=", ".join(_list_tools(calls)),
                    decision=action,
                    decided_by="elicit callback",
                )
                record(self.capabilities.audit.recorder, entry)
            return result

        return await self._answer("elicitation", answer)

    async def answer_sampling(self, context: object, params: CreateMessageRequestParams) -> CreateMessageResult | Any:
        """Answer ``sampling/createMessage``."""
        del context
        sample = self.capabilities.sample
        assert sample is not None

        async def answer(calls: tuple[_Call, ...]) -> CreateMessageResult | ErrorData:
            from mcp_types import ErrorData

            reply = await sample(map_sampling_request(self._server, params, _list_tools(calls)), _list_contexts(calls))
            if reply is None:
                # The error code of the specification ("Sampling", "Error Handling").
                return ErrorData(code=-1, message="User rejected sampling request")
            return map_sampling_reply(reply)

        return await self._answer("sampling", answer)

    async def answer_roots(self, context: object) -> ListRootsResult | Any:
        """Answer ``roots/list``."""
        del context

        async def answer(calls: tuple[_Call, ...]) -> ListRootsResult:
            del calls
            return map_roots(self.capabilities.roots)

        return await self._answer("roots", answer)

    async def handle_log(self, params: LoggingMessageNotificationParams) -> None:
        """Pass a log message to the client's `on_log` callback."""
        if self.capabilities.on_log is None:
            return
        try:
            self.capabilities.on_log(map_log(self._server, params))
        except Exception as error:  # noqa: BLE001 - the embedding program may raise anything
            log.warning("callback_failed", server=self._server, callback="on_log", error=type(error).__name__)

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Record that the user has completed a URL elicitation (2025-11-25)."""
        if len(self._completed.value) < MAX_COMPLETED:
            self._completed.set(self._completed.value | {elicitation_id})

    def _check_message(self, message: str) -> None:
        """Raise `ServerError` or `NeedsOlderProtocol` if a call failed because the server could not send a request."""
        if not (found := _NO_BACK_CHANNEL.search(message)):
            return
        name = _FEATURES.get(found["python"] or found["typescript"] or "", "")
        if name and not self.has_feature(name):
            raise ServerError(self._server, _MISSING_FEATURES[name])
        if self.can_be_reopened:
            raise NeedsOlderProtocol

    def has_feature(self, name: str) -> bool:
        """Return True if the client has this feature: ``elicitation``, ``sampling`` or ``roots``."""
        known = self.capabilities
        return bool({"elicitation": known.elicit, "sampling": known.sample, "roots": known.roots}[name])

    @contextmanager
    def _in_flight(self, tool: str) -> Iterator[None]:
        call = _Call(tool, call_context.find_current())
        self._calls.add(call)
        token = self._own_call.set(call)
        try:
            yield
        finally:
            self._own_call.reset(token)
            self._calls.discard(call)
            for request in self._requests:
                request.calls.discard(call)
                if not request.calls:
                    request.scope.cancel()  # no call waits for the answer any more

    async def _answer(self, feature: str, answer: Callable[[tuple[_Call, ...]], Awaitable[Any]]) -> Any:
        """Return an answer, or an error that reveals nothing about this program to the server."""
        from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData

        own_call = self._own_call.get()
        calls = tuple(self._calls) if own_call is None else (own_call,)
        # A server could ask without an end during a call that waits for it: each question costs the user's attention,
        # each sampling request money.
        if not self._count_request(calls):
            return ErrorData(code=INVALID_REQUEST, message="The host answers no more requests for this call")
        with anyio.CancelScope() as scope:
            request = _Request(scope, set(calls))
            self._requests.add(request)
            try:
                return await answer(calls)
            except _InvalidAnswer as invalid:
                log.warning("answer_does_not_fit", server=self._server, fields=invalid.fields)
                return ErrorData(code=INTERNAL_ERROR, message="The host's answer does not fit the form")
            except Exception as error:  # noqa: BLE001 - the embedding program may raise anything
                log.warning("callback_failed", server=self._server, callback=feature, error=type(error).__name__)
                return ErrorData(code=INTERNAL_ERROR, message="The host could not answer")
            finally:
                self._requests.discard(request)
        return ErrorData(code=INVALID_REQUEST, message="The call that led to this request has ended")

    def _count_request(self, calls: tuple[_Call, ...]) -> bool:
        """Count a request for every call it may belong to; return True if at least one of them is within the limit."""
        if not calls:
            self._requests_without_call += 1
            return self._requests_without_call <= MAX_REQUESTS
        for call in calls:
            call.requests += 1
        return any(call.requests <= MAX_REQUESTS for call in calls)

    async def _elicit(
        self, params: ElicitRequestFormParams | ElicitRequestURLParams, calls: tuple[_Call, ...]
    ) -> ElicitResult:
        from mcp_types import ElicitResult

        tools, message = _list_tools(calls), clean(params.message)
        if params.mode == "url":
            # Other schemes open files and programs (MCP, "URL Mode Elicitation"; CVE-2025-6514).
            if not is_web_url(params.url):
                log.warning("url_refused", server=self._server)
                return ElicitResult(action="decline")
            warnings = find_url_doubts(params.url) + _build_removal_warning(message.removed)
            question = Elicitation(self._server, message.text, None, params.url, {}, warnings, tools)
            answer = await self._ask_user(question, calls)
            return ElicitResult(action=ElicitationAction(answer.action).value)
        schema, removed = clean_schema(params.requested_schema)
        form = Form(schema)
        warnings = tuple(f"it asks for what seems to be a secret: {to_one_line(name, 100)}" for name in form.secrets)
        warnings += _build_removal_warning(message.removed + removed)
        question = Elicitation(self._server, message.text, schema, None, form.defaults, warnings, tools)
        answer = await self._ask_user(question, calls)
        if answer.action != ElicitationAction.ACCEPT:
            return ElicitResult(action=ElicitationAction(answer.action).value)
        content = form.fill(answer.content)
        if form.find_problems(content):
            raise _InvalidAnswer(form, content)
        return ElicitResult(action="accept", content=content)

    async def _ask_user(self, question: Elicitation, calls: tuple[_Call, ...]) -> ElicitationAnswer:
        assert self.capabilities.elicit is not None
        with call_context.pause_deadlines(_list_contexts(calls)):
            # The embedding program may return anything.
            answer: object = await self.capabilities.elicit(question)
        if not isinstance(answer, ElicitationAnswer):
            raise TypeError("no ElicitationAnswer")
        return answer

    async def _complete_url_elicitations(self, error: MCPError, agreed: set[str]) -> bool:
        """Ask the user to open the URLs that an error requires; return True if the call may be repeated."""
        from mcp import UrlElicitationRequiredError
        from mcp_types import URL_ELICITATION_REQUIRED, ElicitResult

        if error.code != URL_ELICITATION_REQUIRED:
            return False
        elicitations = UrlElicitationRequiredError.from_error(error.error).elicitations
        call = self._own_call.get()
        calls = () if call is None else (call,)
        if self.capabilities.elicit is None:
            raise ServerError(self._server, "the user has to open a URL first, but no user can be asked")
        ids = {params.elicitation_id or params.url for params in elicitations}
        if ids <= agreed:
            with call_context.pause_deadlines(_list_contexts(calls)):
                await self._completed.wait_until(lambda completed: ids <= completed, BROWSER_SECONDS)
            return True
        for params in elicitations:
            result = await self.answer_elicitation(None, params)
            if not isinstance(result, ElicitResult) or result.action != ElicitationAction.ACCEPT.value:
                raise ServerError(self._server, "the user has to open a URL first, but did not agree to open it")
        agreed |= ids
        return bool(elicitations)


class _InvalidAnswer(Exception):
    """An answer that does not match the form. It names the invalid fields without their content."""

    def __init__(self, form: Form, content: dict[str, Any]) -> None:
        super().__init__()
        fields = {field.name: field for field in form.fields}
        missing = [name for name, field in fields.items() if field.is_required and name not in content]
        wrong = [name for name in content if name not in fields or form.find_field_problems(name, content[name])]
        self.fields = missing + wrong


def _build_removal_warning(count: int) -> tuple[str, ...]:
    return (f"{describe_removed(count)} from what it says",) if count else ()


def _list_contexts(calls: Iterable[_Call]) -> tuple[CallContext, ...]:
    return tuple(call.context for call in calls if call.context is not None)


def _list_tools(calls: Iterable[_Call]) -> tuple[str, ...]:
    return tuple(sorted({call.tool for call in calls if call.tool}))


def map_sampling_request(server: str, params: CreateMessageRequestParams, tools: tuple[str, ...]) -> SamplingRequest:
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


def map_sampling_reply(reply: SamplingReply) -> CreateMessageResult:
    """Map the reply of a model."""
    from mcp_types import CreateMessageResult, TextContent

    content = TextContent(type="text", text=reply.text)
    return CreateMessageResult(role="assistant", content=content, model=reply.model, stop_reason=reply.stop_reason)


def to_root_uri(folder: str) -> str:
    """Return the URI of a folder; a file URI is returned unchanged."""
    return folder if folder.startswith("file://") else Path(folder).absolute().as_uri()


def map_roots(roots: Iterable[str]) -> ListRootsResult:
    """Map the folders that are the roots of a server."""
    from mcp_types import ListRootsResult, Root
    from pydantic import FileUrl

    entries = ((uri, uri.rstrip("/").rpartition("/")[2]) for uri in map(to_root_uri, roots))
    return ListRootsResult(roots=[Root(uri=FileUrl(uri), name=name or None) for uri, name in entries])


def map_log(server: str, params: LoggingMessageNotificationParams) -> ServerLog:
    """Map a log message: unsafe characters are removed, and long texts are cut."""
    text = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False, default=str)
    cut = text if len(text) <= MAX_LOG_CHARS else f"{text[:MAX_LOG_CHARS]}…"
    return ServerLog(server, params.level, sanitize(cut), sanitize((params.logger or "")[:200]))
