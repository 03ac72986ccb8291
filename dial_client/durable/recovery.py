"""Finds the turns that nobody runs any more, and forgets those that nobody will ask for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dial_client.durable.results import conversation_of, is_of
from dial_client.errors import ConversationNotFound
from dial_client.logs import get_logger

if TYPE_CHECKING:
    from dbos import WorkflowStatus

log = get_logger(__name__)

TURN = "dial_client.turn"
"""The workflow of a turn that has yet to begin."""
BEGUN = "dial_client.begun"
"""That of one that has begun already: its conversation has all there is to know of it."""
KEPT = 60.0
"""Seconds for which it can be seen that a turn is over: a program that was only slow looks there."""
MAX_RESUMED = 5
"""Times a program has a turn started again; one that is left behind by all of them is given up, and its row wrong."""
_SWEPT = 100
"""Workflows that are forgotten at once."""


class TurnRecovery:
    """Looks through the workflows of all programs.

    Args:
        mine: the turns that this program runs.
        holder: gives `Conversation.turn` and `Conversation.running` of a conversation.
        not_begun: seconds after which a turn is given up that has not begun, though no other turn is in its way.
    """

    def __init__(
        self, mine: Collection[str], holder: Callable[[str], Awaitable[tuple[str, bool]]], not_begun: float
    ) -> None:
        self._mine = mine
        self._holder = holder
        self._not_begun = not_begun
        self._resumed: Counter[str] = Counter()

    async def look(self) -> None:
        """Start again what nobody runs any more, and forget what nobody will ask for."""
        from dbos import DBOS

        found = await DBOS.list_workflows_async(status="PENDING", name=[TURN, BEGUN], load_input=False)
        for workflow in found:
            if workflow.workflow_id not in self._mine:
                await self._start_again(workflow)
        await self._sweep()

    async def _start_again(self, workflow: WorkflowStatus) -> None:
        from dbos import DBOS

        turn = workflow.workflow_id
        try:
            if not await self._is_given_up(workflow):
                return
            if self._resumed[turn] < MAX_RESUMED:
                self._resumed[turn] += 1
                await DBOS.resume_workflow_async(turn)
            else:
                log.warning("durable_turn_given_up", turn=turn)
                await DBOS.cancel_workflow_async(turn)
                del self._resumed[turn]
        except Exception as error:  # noqa: BLE001 - a row that is wrong keeps no other turn waiting
            log.warning("durable_turn_not_seen", error=type(error).__name__)

    async def _is_given_up(self, workflow: WorkflowStatus) -> bool:
        """Whether nobody runs a turn: not where it may still be waiting for the turn before it, in its own program."""
        from dbos import DBOS

        turn = workflow.workflow_id
        with suppress(ConversationNotFound):
            latest, is_running = await self._holder(conversation_of(turn))
            if is_running or is_of(turn, latest):
                return not is_running
        if await DBOS.list_workflow_steps_async(turn):
            return True
        return time.time() - (workflow.updated_at or 0) / 1000 > self._not_begun

    async def _sweep(self) -> None:
        from dbos import DBOS

        before = (datetime.now(UTC) - timedelta(seconds=KEPT)).isoformat()
        over = await DBOS.list_workflows_async(
            name=BEGUN, completed_before=before, limit=_SWEPT, load_input=False, load_output=False
        )
        if over:
            await DBOS.delete_workflows_async([workflow.workflow_id for workflow in over])
