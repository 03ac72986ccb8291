"""Requests that a server answers with what it has to know first, and that are repeated with the answers (SEP-2322).

Source: ``InputRequiredResult`` of MCP 2026-07-28. This program answers, and repeats the request itself. The client of a
gateway that speaks this revision gets the server's own requests, with the server's keys, and repeats its own request:
nothing stays open meanwhile, and only the server keeps state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from mcp import ClientSession, MCPError
from mcp.client.context import ClientRequestContext
from mcp_types import INTERNAL_ERROR, ErrorData, InputRequests, InputRequiredResult, InputResponses

from dial_client.hooks import call_context
from dial_client.hooks.call_context import InputRequired, InputRound, OpenQuestion

# The most times that one request is repeated, and the seconds before a repetition for which the server asks nothing.
MAX_ROUNDS, PAUSE_SECONDS = 10, 0.1
_TOO_MANY_ROUNDS = f"The server has asked for something {MAX_ROUNDS} times, and has given no result"

ResultT = TypeVar("ResultT")
# Repeats a request with answers, and with the state that the server wants back.
Repeat = Callable[[InputResponses | None, str | None], Awaitable["ResultT | InputRequiredResult"]]

# Answers one request of a server: with an answer, an ``ErrorData``, or in a `RoundContext` an `OpenQuestion`.
AnswerInput = Callable[[ClientRequestContext, Any], Awaitable[Any]]


@dataclass(kw_only=True)
class RoundContext(ClientRequestContext):
    """The SDK's context of a request whose answer may come with a repetition of the client's own request."""


async def resolve_rounds(
    session: ClientSession, server: str, ask: AnswerInput, first: ResultT | InputRequiredResult, repeat: Repeat[ResultT]
) -> ResultT:
    """Return the result of a request, which is repeated with the answers that the server requires.

    It replaces the SDK's own function, which knows no client that answers later.

    Args:
        session: The SDK's session.
        server: The server's name in the configuration.
        ask: Answers one request of the server.
        first: The answer to the request.
        repeat: Repeats the request.

    Raises:
        InputRequired: The client of a gateway has to answer; it repeats its request.
        mcp.MCPError: Whoever has to answer has refused, or the server asks without an end.
    """
    context = call_context.find_current()
    caller = None if context is None else context.caller
    result = first
    for _ in range(MAX_ROUNDS):
        if not isinstance(result, InputRequiredResult):
            return result
        answers: dict[str, Any] | None = None
        if result.input_requests:
            kind = RoundContext if caller is not None and caller.is_resumable else ClientRequestContext
            answers = await answer_requests(session, result.input_requests, ask, kind)
            questions = {key: found.request for key, found in answers.items() if isinstance(found, OpenQuestion)}
            if questions:
                own = {key: dump_answer(found) for key, found in answers.items() if key not in questions}
                raise InputRequired(InputRound(server, result.request_state, own), questions)
        else:
            await anyio.sleep(PAUSE_SECONDS)
        result = await repeat(answers, result.request_state)
    raise MCPError(INTERNAL_ERROR, _TOO_MANY_ROUNDS)


async def answer_requests(
    session: ClientSession,
    requests: InputRequests,
    ask: AnswerInput,
    kind: type[ClientRequestContext] = ClientRequestContext,
) -> dict[str, Any]:
    """Return the answers to requests, by their keys; all are asked at once.

    Args:
        session: The SDK's session.
        requests: The requests of the server.
        ask: Answers one of them.
        kind: The kind of the context in which they are answered; with `RoundContext` an answer may be an
            `OpenQuestion`.

    Raises:
        mcp.MCPError: One of the requests was refused; the others are then given up.
    """
    answers: dict[str, Any] = {}
    refusals: list[ErrorData] = []
    async with anyio.create_task_group() as group:

        async def answer(key: str, request: Any) -> None:
            meta = request.params.meta if request.params else None
            found = await ask(kind(session=session, request_id=key, meta=meta), request)
            if isinstance(found, ErrorData):
                refusals.append(found)
                group.cancel_scope.cancel()
            else:
                answers[key] = found

        for key, request in requests.items():
            group.start_soon(answer, key, request)
    if refusals:
        raise MCPError(refusals[0].code, refusals[0].message, refusals[0].data)
    return answers


def dump_answer(answer: Any) -> dict[str, Any]:
    """Return an answer as it is sent."""
    dumped: dict[str, Any] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped
