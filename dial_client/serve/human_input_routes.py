"""The HTTP API for approvals and elicitations."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.serve.http_responses import build_json_response
from dial_client.serve.human_input import APPROVAL, QUESTION, HumanInputBroker
from dial_client.serve.request_bodies import read_json


class HumanInputRoutes:
    """The routes under ``/approvals`` and ``/questions``.

    Args:
        human_input: Holds the requests.
    """

    def __init__(self, human_input: HumanInputBroker) -> None:
        self._human_input = human_input

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/approvals", self._list_approvals),
            Route("/approvals/{id}", self._decide, methods=["POST"]),
            Route("/approvals/{id}/check", self._check, methods=["POST"]),
            Route("/questions", self._list_questions),
            Route("/questions/{id}", self._answer, methods=["POST"]),
        ]

    async def _list_approvals(self, request: Request) -> Response:  # noqa: ARG002
        return build_json_response({"approvals": await self._human_input.list_pending(APPROVAL)})

    async def _list_questions(self, request: Request) -> Response:  # noqa: ARG002
        return build_json_response({"questions": await self._human_input.list_pending(QUESTION)})

    async def _decide(self, request: Request) -> Response:
        body = await read_json(request)
        decision, reason, arguments = body.get("decision"), body.get("reason", ""), body.get("arguments")
        await self._human_input.decide(request.path_params["id"], decision, reason, arguments)
        return Response(status_code=204)

    async def _check(self, request: Request) -> Response:
        arguments = (await read_json(request)).get("arguments")
        return build_json_response(await self._human_input.check_arguments(request.path_params["id"], arguments))

    async def _answer(self, request: Request) -> Response:
        body = await read_json(request)
        await self._human_input.answer(request.path_params["id"], body.get("action"), body.get("content") or {})
        return Response(status_code=204)
