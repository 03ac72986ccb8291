"""The HTTP API for approval grants, which can be revoked, and for the last entries of the audit log."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.hooks.audit.record_format import list_log_files
from dial_client.serve.http_messages import HttpError, build_json_response, read_limit
from dial_client.serve.security import find_person
from dial_client.serve.turns.pending_requests import GrantedTool, PendingRequests
from dial_client.tools.grants import GrantStore

MAX_ENTRIES = 200
# Bytes to read from the end of the audit log.
MAX_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class AccessRoutes:
    """The routes ``/grants`` and ``/audit``."""

    dial: DialClient
    requests: PendingRequests
    """The grants of all processes."""
    audit_folder: Path | None
    """The folder of the user's audit log; None without an audit log."""

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/grants", self._list, methods=["GET"]),
            Route("/grants/{id}", self._revoke, methods=["DELETE"]),
            Route("/audit", self._audit, methods=["GET"]),
        ]

    async def _list(self, request: Request) -> Response:
        return build_json_response({"grants": await self._list_grants(find_person(request).name)})

    async def _list_grants(self, person: str) -> list[dict[str, Any]]:
        """Return the grants that a person may revoke: one of several persons has only what this person granted."""
        shared = await self.requests.list_granted()
        if person:
            grants = self._select_grants(person)
            always = [{**grant.to_dict(), "scope": "always"} for grant in (grants.list_grants() if grants else ())]
            return [*always, *(_describe(tool) for tool in shared if tool.owner == person)]
        stored = [{**grant.to_dict(), "scope": "always"} for grant in self.dial.approvals.stored_grants]
        in_conversations = [_describe(tool) for tool in shared if tool.conversation_id]
        always_allowed = {(grant["server"], grant["tool"]) for grant in stored}
        shared_for_session = {(tool.server, tool.tool) for tool in shared if not tool.conversation_id}
        for_session = [
            {"id": _compute_id(server, tool), "server": server, "tool": tool, "scope": "session"}
            for server, tool in sorted({*self.dial.approvals.session_grants, *(shared_for_session - always_allowed)})
        ]
        return [*stored, *for_session, *in_conversations]

    def _select_grants(self, person: str) -> GrantStore | None:
        grants = self.dial.approvals.grants
        return grants.select_owner(person) if grants is not None else None

    async def _revoke(self, request: Request) -> Response:
        id_ = request.path_params["id"]
        person = find_person(request).name
        grant = next((grant for grant in await self._list_grants(person) if grant["id"] == id_), None)
        if grant is None:
            raise HttpError(404, "there is no such grant", "not_found")
        if person and (grants := self._select_grants(person)) is not None:
            grants.revoke({id_})
        if grant["scope"] == "conversation" or person:
            await self.requests.revoke(id_)
            return Response(status_code=204)
        if grant["scope"] == "always":
            self.dial.approvals.revoke(id_)
        # The session's grants for the same tool end, too: the same answer may have created them.
        self.dial.approvals.forget(grant["server"], grant["tool"])
        for tool in await self.requests.list_granted():
            if (tool.server, tool.tool, tool.conversation_id) == (grant["server"], grant["tool"], ""):
                await self.requests.revoke(tool.key)
        return Response(status_code=204)

    async def _audit(self, request: Request) -> Response:
        limit = read_limit(request, MAX_ENTRIES)
        folder = self.audit_folder
        entries = await anyio.to_thread.run_sync(read_last_entries, folder, limit) if folder else []
        return build_json_response({"entries": entries})


def read_last_entries(folder: Path, limit: int) -> list[dict[str, Any]]:
    """Return the last entries of an audit log, newest first; reads at most its last `MAX_BYTES` bytes."""
    entries: list[dict[str, Any]] = []
    remaining = MAX_BYTES
    for path in reversed(list_log_files(folder)):
        data = _read_end(path, remaining)
        remaining -= len(data)
        for line in reversed(data.split(b"\n")):
            try:
                fields = json.loads(line)
            except ValueError:  # an incomplete line: it was cut, or is still being written
                continue
            if isinstance(fields, dict) and "event" in fields:
                entries.append(fields)
        if remaining <= 0 or len(entries) >= limit:
            break
    return entries[:limit]


def _read_end(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - max_bytes))
            return file.read(max_bytes)
    except OSError:
        return b""


def _describe(tool: GrantedTool) -> dict[str, Any]:
    place = {"scope": "conversation", "conversation": tool.conversation_id}
    granted = {"id": tool.key, "server": tool.server, "tool": tool.tool}
    return granted | (place if tool.conversation_id else {"scope": "session"})


def _compute_id(server: str, tool: str) -> str:
    return hashlib.sha256(json.dumps(["session", server, tool]).encode()).hexdigest()
