"""What one server asks of the host, in both eras of the protocol, on behalf of the calls that are under way.

Up to 2025-11-25 a server sends requests of its own; from 2026-07-28 on it answers a call with what it needs to know,
and the SDK makes the call again with the answer. Both come here; what goes wrong here is an error for that server.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dial_client import call_context
from dial_client.audit.call_audit import new_id, record
from dial_client.audit.entries import AuditEntry, common_origin
from dial_client.call_context import CallContext
from dial_client.callbacks.elicitation_form import Form, clean_schema, doubts_about, is_web_address
from dial_client.callbacks.server_callbacks import ClientFeatures, Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.errors import ServerError
from dial_client.logs import get_logger
from dial_client.servers import sdk_mapping
from dial_client.text.safe_text import clean, one_line, removed_note

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

MAX_QUESTIONS = 20
"""Requests of a server's while one call of it is under way, and while none is; pushed ones have no other bound."""
BROWSER_SECONDS = 120.0
"""Seconds a call waits for a server to say that the person has done, at an address it gave, what it wants."""
_UNANSWERED = {
    "elicitation": "it wants to ask the user something, and nobody is there to be asked",
    "sampling": "it wants to ask a model something, and none is offered to it",
    "roots": "it wants to know which folders it may use, and none are named",
}
_NAMES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_NO_WAY_BACK = re.compile(
    r"(?:Cannot send '(?P<before>[\w/]{1,40})': this transport context has no back-channel"
    r"|Server-to-client requests are not available on protocol revision [\w.-]{1,40}: '(?P<behind>[\w/]{1,40})')"
)
"""What the SDKs of Python (2.3) and TypeScript (2.4) say, the one as an error, the other as a failed result."""


class NeedsOlderProtocol(Exception):
    """A call failed because the server pushes its questions, which 2026-07-28 does not have."""


class _Call:
    """A call under way."""

    def __init__(self, tool: str, on: CallContext | None) -> None:
        self.tool = tool
        self.errand = on
        self.questions = 0


class _Question:
    """A request of the server's that is being answered."""

    def __init__(self, scope: anyio.CancelScope, calls: Iterable[_Call]) -> None:
        self.scope = scope
        self.calls = set(calls)


class ServerRequests:
    """Answers what one server asks for as long as one connection to it lasts.

    Args:
        server: its name in the configuration.
        callbacks: what the host does for its servers.
    """

    def __init__(self, server: str, callbacks: ClientFeatures) -> None:
        self.callbacks = callbacks
        self.can_be_reopened = False
        """Whether there is an older protocol to try, in which servers may push their questions."""
        self._server = server
        self._calls: set[_Call] = set()
        # Where an answer is made within its call's task, it is known which call that is.
        self._mine: ContextVar[_Call | None] = ContextVar("call", default=None)
        self._questions: set[_Question] = set()
        self._unbidden = 0
        self._completed: set[str] = set()
        self._news = anyio.Event()

    async def carried_out(self, tool: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call, and answer what is asked for it.

        Where it is refused until the person has been at some address (-32042), they are asked, and it is made again.

        Raises:
            mcp.MCPError, pydantic.ValidationError: as the call does.
            ServerError: nobody has agreed to go there, or the host has no answer to what is asked.
            NeedsOlderProtocol: it failed because the server could not ask.
        """
        from mcp import MCPError

        with self._under_way(tool):
            agreed: set[str] = set()
            for is_last in (False, False, True):
                try:
                    result = await call()
                except MCPError as error:
                    self._look_for_missing_answer(error)
                    if is_last or not await self._has_been_there(error, agreed):
                        raise
                else:
                    self._look_for_unasked_question(result)
                    return result
        raise AssertionError("unreachable")

    async def elicitation(
        self, context: object, params: ElicitRequestFormParams | ElicitRequestURLParams
    ) -> ElicitResult | Any:
        """Answer ``elicitation/create``."""
        del context  # which knows the request, but not which call it is for

        async def answer(calls: tuple[_Call, ...]) -> ElicitResult:
            action = "cancelled"
            try:
                result = await self._elicited(params, calls)
                action = result.action
            except Exception:
                action = "failed"
                raise
            finally:
                self._record_elicitation(action, calls)
            return result

        return await self._answered("elicitation", answer)

    async def sampling(self, context: object, params: CreateMessageRequestParams) -> CreateMessageResult | Any:
        """Answer ``sampling/createMessage``."""
        del context
        sample = self.callbacks.sample
        assert sample is not None

        async def answer(calls: tuple[_Call, ...]) -> CreateMessageResult | ErrorData:
            from mcp_types import ErrorData

            reply = await sample(sdk_mapping.sampling_request(self._server, params, _tools(calls)), _errands(calls))
            if reply is None:
                # The code is the specification's ("Sampling", "Error Handling").
                return ErrorData(code=-1, message="User rejected sampling request")
            return sdk_mapping.sampling_result(reply)

        return await self._answered("sampling", answer)

    async def roots(self, context: object) -> ListRootsResult | Any:
        """Answer ``roots/list``."""
        del context

        async def answer(calls: tuple[_Call, ...]) -> ListRootsResult:
            del calls
            return sdk_mapping.roots_result(self.callbacks.roots)

        return await self._answered("roots", answer)

    async def logging(self, params: LoggingMessageNotificationParams) -> None:
        """Take a log message."""
        if self.callbacks.on_log is None:
            return
        try:
            self.callbacks.on_log(sdk_mapping.log_of(self._server, params))
        except Exception as error:  # noqa: BLE001 - whatever the embedding program raises
            log.warning("callback_failed", server=self._server, callback="on_log", error=type(error).__name__)

    def completed(self, elicitation_id: str) -> None:
        """Take note that the person has done what an address was for (2025-11-25)."""
        if len(self._completed) < 1000:
            self._completed.add(elicitation_id)
        self._news.set()
        self._news = anyio.Event()

    def _look_for_unasked_question(self, result: object) -> None:
        if getattr(result, "is_error", False):
            text = " ".join(getattr(block, "text", "") for block in getattr(result, "content", ()))
            self._judge(text)

    def _look_for_missing_answer(self, error: MCPError) -> None:
        from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

        if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and isinstance(error.data, dict):
            for name in error.data.get("requiredCapabilities") or ():
                if name in _UNANSWERED:
                    raise ServerError(self._server, _UNANSWERED[name])
        self._judge(error.message)

    def _judge(self, words: str) -> None:
        """Find out what follows where a call failed because the server could not ask."""
        if not (said := _NO_WAY_BACK.search(words)):
            return
        name = _NAMES.get(said["before"] or said["behind"] or "", "")
        if name and not self.offers(name):
            raise ServerError(self._server, _UNANSWERED[name])
        if self.can_be_reopened:
            raise NeedsOlderProtocol

    def offers(self, name: str) -> bool:
        """Whether the host does this for its servers: ``elicitation``, ``sampling`` or ``roots``."""
        done = self.callbacks
        return bool({"elicitation": done.elicit, "sampling": done.sample, "roots": done.roots}[name])

    @contextmanager
    def _under_way(self, tool: str) -> Iterator[None]:
        call = _Call(tool, call_context.current())
        self._calls.add(call)
        token = self._mine.set(call)
        try:
            yield
        finally:
            self._mine.reset(token)
            self._calls.discard(call)
            for question in self._questions:
                question.calls.discard(call)
                if not question.calls:
                    question.scope.cancel()  # nobody waits for the answer any more

    async def _answered(self, what: str, answer: Callable[[tuple[_Call, ...]], Awaitable[Any]]) -> Any:
        """Give an answer, or an error that tells the server nothing of this program."""
        from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData

        mine = self._mine.get()
        calls = tuple(self._calls) if mine is None else (mine,)
        if not self._may_ask(calls):
            return ErrorData(code=INVALID_REQUEST, message="The host answers no more requests for this call")
        with anyio.CancelScope() as scope:
            question = _Question(scope, calls)
            self._questions.add(question)
            try:
                return await answer(calls)
            except _Misfit as misfit:
                log.warning("answer_does_not_fit", server=self._server, fields=misfit.fields)
                return ErrorData(code=INTERNAL_ERROR, message="The host's answer does not fit the form")
            except Exception as error:  # noqa: BLE001 - whatever the embedding program raises
                log.warning("callback_failed", server=self._server, callback=what, error=type(error).__name__)
                return ErrorData(code=INTERNAL_ERROR, message="The host could not answer")
            finally:
                self._questions.discard(question)
        return ErrorData(code=INVALID_REQUEST, message="The call this was asked for is over")

    def _may_ask(self, calls: tuple[_Call, ...]) -> bool:
        """Count a request against every call it may be for; while one of them may still ask, it is taken for its."""
        if not calls:
            self._unbidden += 1
            return self._unbidden <= MAX_QUESTIONS
        for call in calls:
            call.questions += 1
        return any(call.questions <= MAX_QUESTIONS for call in calls)

    async def _elicited(
        self, params: ElicitRequestFormParams | ElicitRequestURLParams, calls: tuple[_Call, ...]
    ) -> ElicitResult:
        from mcp_types import ElicitResult

        tools = _tools(calls)
        if params.mode == "url":
            answer = await self._asked_to_go(params.message, params.url, tools, calls)
            return ElicitResult(action=ElicitationAction(answer.action).value)
        message = clean(params.message)
        schema, removed = clean_schema(params.requested_schema)
        form = Form(schema)
        warnings = tuple(f"it asks for what seems to be a secret: {one_line(name, 100)}" for name in form.secrets)
        warnings += _removed(message.removed + removed)
        question = Elicitation(self._server, message.text, schema, None, form.defaults, warnings, tools)
        answer = await self._person(question, calls)
        if answer.action != ElicitationAction.ACCEPT:
            return ElicitResult(action=ElicitationAction(answer.action).value)
        content = form.filled(answer.content)
        if form.problems(content):
            raise _Misfit(form, content)
        return ElicitResult(action="accept", content=content)

    def _record_elicitation(self, action: str, calls: tuple[_Call, ...]) -> None:
        """Record what was answered; its content is for the server alone."""
        entry = AuditEntry(
            event="elicitation",
            id=new_id(),
            origin=common_origin(errand.origin for errand in _errands(calls)),
            server=self._server,
            tool=", ".join(_tools(calls)),
            decision=action,
            decided_by="elicit callback",
        )
        record(self.callbacks.audit.recorder, entry)

    async def _asked_to_go(
        self, message: str, url: str, tools: tuple[str, ...], calls: tuple[_Call, ...]
    ) -> ElicitationAnswer:
        """Ask the person to open an address; what is none of the web's is declined unasked."""
        if not is_web_address(url):
            log.warning("address_refused", server=self._server)
            return ElicitationAnswer(ElicitationAction.DECLINE)
        text = clean(message)
        warnings = doubts_about(url) + _removed(text.removed)
        question = Elicitation(self._server, text.text, None, url, {}, warnings, tools)
        return await self._person(question, calls)

    async def _person(self, question: Elicitation, calls: tuple[_Call, ...]) -> ElicitationAnswer:
        assert self.callbacks.elicit is not None
        with call_context.waiting_for_a_person(_errands(calls)):
            # What the embedding program gives nobody has checked: it may be anything.
            answer: object = await self.callbacks.elicit(question)
        if not isinstance(answer, ElicitationAnswer):
            raise TypeError("no ElicitationAnswer")
        return answer

    async def _has_been_there(self, error: MCPError, agreed: set[str]) -> bool:
        """Whether a call that was refused for it may be made again: the person was asked to open some addresses."""
        from mcp import UrlElicitationRequiredError
        from mcp_types import URL_ELICITATION_REQUIRED

        if error.code != URL_ELICITATION_REQUIRED:
            return False
        wanted = UrlElicitationRequiredError.from_error(error.error).elicitations
        call = self._mine.get()
        calls = () if call is None else (call,)
        if self.callbacks.elicit is None:
            raise ServerError(self._server, "the user has to open an address first, and nobody is there to be asked")
        ids = {one.elicitation_id or one.url for one in wanted}
        if ids <= agreed:
            with call_context.waiting_for_a_person(_errands(calls)), anyio.move_on_after(BROWSER_SECONDS):
                while not ids <= self._completed:
                    await self._news.wait()
            return True
        for one in wanted:
            result = await self.elicitation(None, one)
            if getattr(result, "action", None) != ElicitationAction.ACCEPT.value:
                raise ServerError(self._server, "the user has to open an address first, and did not agree to")
        agreed |= ids
        return bool(wanted)


class _Misfit(Exception):
    """An answer that does not fit the form. Names its fields: what is in them is for nobody else."""

    def __init__(self, form: Form, content: dict[str, Any]) -> None:
        super().__init__()
        known = {one.name: one for one in form.fields}
        missing = [name for name, one in known.items() if one.is_required and name not in content]
        wrong = [name for name in content if name not in known or form.problems_with(name, content[name])]
        self.fields = missing + wrong


def _removed(count: int) -> tuple[str, ...]:
    return (f"{removed_note(count)} from what it says",) if count else ()


def _errands(calls: Iterable[_Call]) -> tuple[CallContext, ...]:
    return tuple(call.errand for call in calls if call.errand is not None)


def _tools(calls: Iterable[_Call]) -> tuple[str, ...]:
    return tuple(sorted({call.tool for call in calls if call.tool}))
