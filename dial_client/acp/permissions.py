"""Asks the person at the editor: permission for calls, and the questions of servers.

An answer that lasts is a grant of ours (`Decision.SESSION`, `Decision.ALWAYS`), bound to the definition of the tool.
Where a grant would not hold, it is not offered.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeclineElicitationResponse,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationUrlSessionMode,
    PermissionOption,
)
from pydantic import AnyUrl

from dial_client.acp.tool_call_updates import CallIds, show_call
from dial_client.hooks.approval_request import count_unseen_arguments, quote_name
from dial_client.hooks.elicitation_form import Form
from dial_client.hooks.server_callbacks import Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.safe_text import sanitize
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.approval import Approval, ApprovalContext, Decision

_ONCE = PermissionOption(option_id=Decision.ONCE, name="Allow once", kind="allow_once")
_DENY = PermissionOption(option_id=Decision.DENY, name="Deny", kind="reject_once")


class EditorPerson:
    """The person at an editor, as the approver of a session and its callback for questions.

    Args:
        client: The connection to the editor.
        capabilities: What the editor can show.
    """

    def __init__(self, client: Client, capabilities: ClientCapabilities) -> None:
        self._client = client
        self._capabilities = capabilities
        self.calls = CallIds()
        """The calls that the editor shows."""
        self.servers: Mapping[str, Any] = {}
        """The entries of the servers, by name."""
        self.session_id = ""
        """The session in which the person is asked."""

    async def approve(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        """Ask for permission for a call; an `Approver`."""
        entry = self.servers.get(context.server)
        settings = entry if isinstance(entry, ServerSettings) else None
        shown = show_call(call, context.server, tool, settings, context.agent)
        unseen = count_unseen_arguments(call)
        shown_id = await self.calls.wait_for(*context.agent_calls, call.id)
        notes = (
            context.why_asked and f"Why you are asked: {context.why_asked}",
            context.change and f"The tool has changed since you approved it:\n{context.change}",
            unseen and f"{unseen} invisible characters in the arguments",
        )
        name = f"{quote_name(context.server)}/{quote_name(tool.tool)}"
        lasting = [
            PermissionOption(option_id=Decision.SESSION, name=f"Allow {name} in this session", kind="allow_always"),
            PermissionOption(option_id=Decision.ALWAYS, name=f"Always allow {name}", kind="allow_always"),
        ]
        response = await self._client.request_permission(
            session_id=self.session_id,
            tool_call=shown.ask(shown_id, tuple(sanitize(note) for note in notes if isinstance(note, str) and note)),
            # An answer to such a question holds for equal calls only: "always" would promise too much.
            options=[_ONCE, *(() if context.why_asked else lasting), _DENY],
        )
        chosen = response.outcome.option_id if isinstance(response.outcome, AllowedOutcome) else Decision.DENY
        return Approval(chosen if chosen in tuple(Decision) else Decision.DENY, "")

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask for the input that a server requests; an `Elicit`. An editor without forms declines."""
        can_ask = self._capabilities.elicitation
        asked = f"{quote_name(question.server)} asks: {sanitize(question.message)}"
        message = "\n".join((asked, *question.warnings))
        mode: ElicitationUrlSessionMode | ElicitationFormSessionMode
        if question.url and can_ask is not None and can_ask.url is not None:
            id_ = secrets.token_hex(16)
            mode = ElicitationUrlSessionMode(session_id=self.session_id, elicitation_id=id_, url=AnyUrl(question.url))
        elif not question.url and can_ask is not None and can_ask.form is not None:
            schema = ElicitationSchema.model_validate(dict(question.schema or {}))
            mode = ElicitationFormSessionMode(session_id=self.session_id, requested_schema=schema)
        else:
            return ElicitationAnswer(ElicitationAction.DECLINE)
        response = await self._client.create_elicitation(message, mode)
        if isinstance(response, DeclineElicitationResponse):
            return ElicitationAnswer(ElicitationAction.DECLINE)
        if not isinstance(response, AcceptElicitationResponse):
            return ElicitationAnswer(ElicitationAction.CANCEL)
        content = response.model_dump(mode="json").get("content") or {}
        form = Form(question.schema or {})
        if not question.url and form.find_problems(form.fill(content)):
            return ElicitationAnswer(ElicitationAction.CANCEL)
        return ElicitationAnswer(ElicitationAction.ACCEPT, content)
