"""Resumes turns whose process was killed, and deletes workflows whose results nobody needs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dial_client.durable.results import extract_conversation_id, is_attempt_of
from dial_client.messages.errors import ConversationNotFound
from dial_client.runtime.logs import get_logger

if TYPE_CHECKING:
    from dbos import WorkflowStatus

log = get_logger(__name__)

TURN = "dial_client.turn"
"""The name of the workflow that starts its turn (`DurableTurns.submit`)."""
STARTED_TURN = "dial_client.begun"
"""The name of the workflow of a turn that has started before (`DurableTurns.start`). Its result is stored in the
conversation only."""
MAX_RESUMED = 5
"""How often a process resumes the same turn. A turn that is abandoned again and again is given up, because its row is
probably wrong."""
_MAX_DELETED = 100
"""The most workflows that are deleted at once."""


@dataclass(frozen=True, slots=True)
class TurnRecovery:
    """Checks the workflows of all processes, and resumes or deletes them."""

    own_turns: Collection[str]
    """The ids of the turns that this process runs."""
    find_holder: Callable[[str], Awaitable[tuple[str, bool]]]
    """Returns `Conversation.turn` and `Conversation.running` of a conversation."""
    timings: DurableTimings
    """The timeouts after which a turn counts as abandoned, and its workflow is deleted."""
    _resumed: Counter[str] = field(default_factory=Counter, init=False)

    async def run_once(self) -> None:
        """Resume the turns that no process runs any more, and delete old workflows."""
        from dbos import DBOS

        pending = await DBOS.list_workflows_async(status="PENDING", name=[TURN, STARTED_TURN], load_input=False)
        for workflow in pending:
            if workflow.workflow_id not in self.own_turns:
                await self._resume_if_abandoned(workflow)
        before = (datetime.now(UTC) - timedelta(seconds=self.timings.retention)).isoformat()
        old = await DBOS.list_workflows_async(
            name=STARTED_TURN, completed_before=before, limit=_MAX_DELETED, load_input=False, load_output=False
        )
        if old:
            await DBOS.delete_workflows_async([workflow.workflow_id for workflow in old])

    async def _resume_if_abandoned(self, workflow: WorkflowStatus) -> None:
        from dbos import DBOS

        turn_id = workflow.workflow_id
        try:
            if not await self._is_abandoned(workflow):
                return
            if self._resumed[turn_id] < MAX_RESUMED:
                self._resumed[turn_id] += 1
                await DBOS.resume_workflow_async(turn_id)
            else:
                log.warning("durable_turn_given_up", turn=turn_id)
                await DBOS.cancel_workflow_async(turn_id)
                del self._resumed[turn_id]
        except Exception as error:  # noqa: BLE001 - a wrong row must not delay other turns
            log.warning("durable_turn_not_seen", error=type(error).__name__)

    async def _is_abandoned(self, workflow: WorkflowStatus) -> bool:
        """Return True if no process runs the turn, and none lets it wait for an earlier turn."""
        from dbos import DBOS

        turn_id = workflow.workflow_id
        with suppress(ConversationNotFound):
            attempt_id, is_running = await self.find_holder(extract_conversation_id(turn_id))
            if is_running or is_attempt_of(turn_id, attempt_id):
                return not is_running
        if await DBOS.list_workflow_steps_async(turn_id):
            return True
        return time.time() - (workflow.updated_at or 0) / 1000 > self.timings.start_timeout


@dataclass(frozen=True, slots=True)
class DurableTimings:
    """Intervals and timeouts of durable turns, in seconds."""

    recovery_interval: float = 2.0
    """Seconds between two searches for turns whose process was killed."""
    start_timeout: float = 30.0
    """A turn that has not started after this many seconds, with no other turn before it, counts as abandoned."""
    database_timeout: float = 10.0
    """Timeout in seconds for writing a turn to the database, or reading one."""
    retention: float = 60.0
    """Seconds for which the workflow of an ended turn is kept, so that a process that was only slow can find it."""


DEFAULT_TIMINGS = DurableTimings()
