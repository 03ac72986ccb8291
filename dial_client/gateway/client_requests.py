"""A request of a client while it is answered: what the client is asked meanwhile, and the progress that it sees.

`ClientRequest` is what both revisions share: which features the client has, and how a request of a server becomes one
to the client. `RequestInSession` is a request of revisions up to 2025-11-25, during which the gateway sends requests of
its own to the client. `suspended_calls` has the other one.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    Result,
)
from pydantic import ValidationError

from dial_client.gateway.client_session import ClientSession
from dial_client.hooks.approval_request import quote_name
from dial_client.hooks.call_context import ELICITATION, ROOTS, SAMPLING, SAMPLING_TOOLS, URLS, InputRound, OpenQuestion
from dial_client.messages.mcp_apps import EXTENSION
from dial_client.runtime.safe_text import sanitize
from dial_client.servers.restart_policy import is_modern

# Seconds that a person has for an answer.
ANSWER_SECONDS = 600.0
# Seconds between two progress notifications while a person thinks: hosts give up a call without progress, often after
# 60 seconds.
PROGRESS_SECONDS = 15.0
# The first revision in which a client may open URLs, and let a model use tools while it answers a server.
_WITH_URLS = "2025-11-25"

APPS = "apps"
# The server of answers that came without a state: they are for the server of the request, whichever it is.
ANY_SERVER = ""


def list_features(capabilities: ClientCapabilities | None, version: str) -> frozenset[str]:
    """Return what a client can be asked for, as `hooks.call_context.Caller.features`.

    Args:
        capabilities: What the client has declared.
        version: The revision of the protocol that it speaks.
    """
    if capabilities is None:
        return frozenset()
    is_recent = version >= _WITH_URLS
    elicitation, sampling = capabilities.elicitation, capabilities.sampling
    has_urls = is_recent and elicitation is not None and elicitation.url is not None
    # A client that names no mode has forms, the only mode of the first revisions.
    has_forms = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
    found = {
        ELICITATION: has_forms,
        URLS: has_urls,
        SAMPLING: sampling is not None,
        SAMPLING_TOOLS: is_recent and sampling is not None and sampling.tools is not None,
        ROOTS: capabilities.roots is not None,
        APPS: EXTENSION in (capabilities.extensions or {}),
    }
    return frozenset(name for name, has in found.items() if has)


class ClientRequest:
    """One request of a client, for as long as it takes; a `hooks.call_context.Caller` for calls that it leads to.

    Args:
        session: The client.
        context: The SDK's context of the request.
    """

    def __init__(self, session: ClientSession, context: ServerRequestContext[Any, Any]) -> None:
        self.session = session
        self.context = context
        self.origin = session.build_origin(context.request_id)
        """Where the calls that the request leads to come from."""
        self.is_attached = True
        """True while a request of the client waits for the result."""
        self.given: InputRound | None = None
        """What the client has brought with it for the server that has asked before; None for nothing."""
        self.runs_program = False
        """True while a program makes calls for the request."""
        self._progress = 0.0
        # The ids of URL elicitations as the client knows them, by the server and the id that the server has given.
        self._elicitation_ids: dict[tuple[str, str], str] = {}

    @property
    def is_resumable(self) -> bool:
        """True if the client repeats a request that was answered with a question, and then has the answer with it."""
        return False

    @property
    def defers_approvals(self) -> bool:
        """True if an approval may be the answer to the request, which the client then repeats."""
        return self.is_resumable

    def run_program(self) -> None:
        """Learn that a program makes the calls of this request. What the client has brought is for none of them."""
        self.runs_program, self.given = True, None

    @property
    def features(self) -> frozenset[str]:
        """What the client can be asked for."""
        channel, known = self.context.session, self.session.features
        declared = channel.client_capabilities, channel.protocol_version
        if known is None or known[0] is not declared[0] or known[1] != declared[1]:
            known = self.session.features = *declared, list_features(*declared)
        return known[2]

    async def ask(self, request: InputRequest) -> InputResponse | ErrorData:
        """Return the client's answer to a request; an ``ErrorData`` if it refuses, or does not answer in time."""
        raise NotImplementedError

    async def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client about the progress of its request, if it wants to know."""
        self._progress = max(self._progress, progress)
        await self.context.session.report_progress(progress, total, message)

    async def report_while_waiting(self) -> None:
        """Tell the client that its request is alive, until cancelled, by progress that is hardly more than the last."""
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            await self.report(math.nextafter(self._progress + 1e-6, math.inf), None, "Waiting for the user")

    async def answer(self, feature: str, server: str, params: Any) -> Any:
        """Return the client's answer to a request of a server; see `hooks.call_context.Caller.answer`."""
        request = self._build_request(feature, server, params)
        return request if isinstance(request, ErrorData) else await self.ask(request)

    def hand_on(self, feature: str, server: str, params: Any) -> OpenQuestion | ErrorData:
        """Return a request of a server for a client that repeats its own; see `hooks.call_context.Caller.hand_on`."""
        request = self._build_request(feature, server, params)
        return request if isinstance(request, ErrorData) else OpenQuestion(request)

    def take_input(self, server: str) -> InputRound | None:
        """Return what the client has brought with it for a server; see `hooks.call_context.Caller.take_input`."""
        given, self.given = self.given, None
        return given if given is not None and given.server in (server, ANY_SERVER) else None

    def begin_task(self) -> None:
        """Do nothing: the client waits for the result."""

    def _build_request(self, feature: str, server: str, params: Any) -> InputRequest | ErrorData:
        """Return a request of a server for the client; an ``ErrorData`` if the client lacks the feature."""
        missing = _find_missing_feature(feature, params, self.features)
        if missing is not None:
            return missing
        match params:
            case ElicitRequestFormParams() | ElicitRequestURLParams():
                return ElicitRequest(params=self._build_elicitation(server, params))
            case CreateMessageRequestParams():
                return CreateMessageRequest(params=_without_progress_token(params))
            case _:
                return ListRootsRequest()

    def _build_elicitation(
        self, server: str, params: ElicitRequestFormParams | ElicitRequestURLParams
    ) -> ElicitRequestFormParams | ElicitRequestURLParams:
        """Return the parameters for the client: the same form or URL, and a message that says which server asks.

        The client knows the gateway only. A server must not be able to ask in the gateway's name.
        """
        changes: dict[str, Any] = {
            "message": f"{quote_name(server)} asks: {sanitize(params.message)}",
            "task": None,
            "meta": _without_progress_token(params).meta,
        }
        if isinstance(params, ElicitRequestURLParams):
            id_ = None
            if not is_modern(self.context.session.protocol_version):
                id_ = secrets.token_hex(16)  # those of two servers may be equal
                if params.elicitation_id is not None:
                    self._elicitation_ids[server, params.elicitation_id] = id_
            changes["elicitation_id"] = id_
        return params.model_copy(update=changes)

    async def complete_elicitation(self, server: str, elicitation_id: str) -> None:
        """Tell the client that its user has completed a URL elicitation. Since 2026-07-28 there is no such message."""
        if (id_ := self._elicitation_ids.pop((server, elicitation_id), None)) is not None:
            await self.context.session.send_elicit_complete(id_)


class RequestInSession(ClientRequest):
    """A request of a client that can be sent requests meanwhile (up to 2025-11-25)."""

    @property
    def features(self) -> frozenset[str]:
        """What the client has; nothing to ask for if the connection does not carry requests to the client."""
        features = super().features
        return features if self.context.session.can_send_request else features & {APPS}

    async def ask(self, request: InputRequest) -> InputResponse | ErrorData:
        """Send a request on the stream of the client's own one, and return the answer."""
        related = ServerMessageMetadata(related_request_id=self.context.request_id)
        answer: InputResponse | ErrorData = ErrorData(code=INTERNAL_ERROR, message="the client gave no answer")
        async with anyio.create_task_group() as group:
            group.start_soon(self.report_while_waiting)
            answer = await send_to_client(self.context.session, request, related)
            group.cancel_scope.cancel()
        return answer


async def send_to_client(
    session: ServerSession, request: InputRequest, related: ServerMessageMetadata | None = None
) -> InputResponse | ErrorData:
    """Send a request to a client that can be sent requests, and return its answer."""
    kind = find_result_type(request)
    try:
        answer = await session.send_request(request, kind, ANSWER_SECONDS, related)
    except MCPError as error:
        return error.error
    except ValidationError:
        return ErrorData(code=INTERNAL_ERROR, message="the client's answer is not valid")
    assert isinstance(answer, ElicitResult | CreateMessageResult | CreateMessageResultWithTools | ListRootsResult)
    return answer


def find_result_type(request: InputRequest) -> type[Result]:
    """Return the type of an answer to a request."""
    match request:
        case ElicitRequest():
            return ElicitResult
        case CreateMessageRequest(params=params):
            return CreateMessageResultWithTools if params.tools else CreateMessageResult
        case _:
            return ListRootsResult


def is_answer(request: InputRequest, answer: InputResponse) -> bool:
    """Return whether an answer is of the kind that a request wants."""
    if isinstance(request, CreateMessageRequest):
        return isinstance(answer, CreateMessageResult | CreateMessageResultWithTools)
    return isinstance(answer, find_result_type(request))


def _find_missing_feature(feature: str, params: Any, features: frozenset[str]) -> ErrorData | None:
    """Return the error of the specification for what a client does not have; None if it has what a server wants."""
    if isinstance(params, ElicitRequestURLParams):
        if URLS in features:
            return None
        if ELICITATION in features:
            return ErrorData(code=INVALID_PARAMS, message="The client does not support URL mode elicitation requests")
    elif isinstance(params, ElicitRequestFormParams) and feature not in features and URLS in features:
        return ErrorData(code=INVALID_PARAMS, message="The client does not support form mode elicitation requests")
    elif isinstance(params, CreateMessageRequestParams) and feature in features:
        if SAMPLING_TOOLS in features or not (params.tools or params.tool_choice):
            return None
        return ErrorData(code=INVALID_PARAMS, message="The client does not support tools in sampling requests")
    elif feature in features:
        return None
    return ErrorData(code=METHOD_NOT_FOUND, message=f"The client does not support {feature}")


def _without_progress_token(params: Any) -> Any:
    """Return parameters without what belongs to the connection that they came from."""
    meta: Mapping[str, Any] = params.meta or {}
    kept = {key: value for key, value in meta.items() if key not in ("progress_token", "progressToken")}
    return params.model_copy(update={"meta": kept or None, "task": None})
