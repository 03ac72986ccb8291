"""The status of a conversation for the status line, and the change of its mode by a key."""

from __future__ import annotations

from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from dial_client.cli.approval.approval_modes import find_next_mode
from dial_client.cli.chat.chat_session import ChatSession
from dial_client.cli.terminal.screen import Screen
from dial_client.cli.terminal.status_line import Status
from dial_client.messages.errors import DialError
from dial_client.servers.status import ServerState
from dial_client.sinks.turn_display import UsageSum
from dial_client.tools.approval_mode import ApprovalMode
from dial_client.turns.context_report import ContextReport

# Seconds after which a mode that was chosen by the key is the mode `AUTO`.
SETTLE = 1.0


class ConversationStatus:
    """The status of a conversation.

    Args:
        chat: The session of the conversation.
        usage: The usage of its turns.
        screen: Shows the status.
        tasks: Runs the change to the mode ``auto``.
    """

    def __init__(self, chat: ChatSession, usage: UsageSum, screen: Screen, tasks: TaskGroup) -> None:
        self._chat, self._usage, self._screen, self._tasks = chat, usage, screen, tasks
        self._report: ContextReport | None = None
        self._presses = 0
        self._will_be_auto = False

    async def follow(self) -> None:
        """Show the status, and draw it again when the state of a server changes, until cancelled."""
        await self.measure()  # first, so that the line of a continued conversation has all its parts from the start
        self._screen.show_status(self.describe, self.change_mode, self.settle_mode)
        while True:
            await self._chat.dial.wait_for_server_change()
            await self.measure()  # the tools of a server are a part of what fills the window

    async def measure(self) -> None:
        """Measure how full the context window is; it counts as unknown before the first question."""
        report = None
        if self._chat.conversation_id is not None:
            with suppress(DialError):  # such as a conversation that another program has deleted
                report = await self._chat.measure_context()
        self._report = report
        self._screen.refresh()

    def describe(self) -> Status:
        """Return the status at this moment."""
        dial, usage = self._chat.dial, self._usage
        states = [status.state for status in dial.servers.values()]
        mode = ApprovalMode.AUTO if self._will_be_auto else dial.approvals.mode
        return Status(
            dial.model.name,
            mode.value,
            mode is not ApprovalMode.ASK,
            None if self._report is None else self._report.fill,
            self._report is not None and not self._report.is_counted,
            usage.cost_usd,
            usage.is_cost_known,
            states.count(ServerState.STARTING) + states.count(ServerState.RESTARTING),
            states.count(ServerState.FAILED),
        )

    def change_mode(self) -> None:
        """Change to the next mode."""
        self._presses += 1
        mode = ApprovalMode.AUTO if self._will_be_auto else self._chat.dial.approvals.mode
        mode = find_next_mode(mode, self._chat.options)
        self._will_be_auto = mode is ApprovalMode.AUTO
        # The key passes `auto` on its way from `plan` back to `ask`. A call that a running turn makes in this moment
        # must not run because of it.
        self._chat.dial.approvals.set_mode(ApprovalMode.ASK if self._will_be_auto else mode)
        if self._will_be_auto:
            self._tasks.start_soon(self._become_auto, self._presses)

    async def _become_auto(self, presses: int) -> None:
        await anyio.sleep(SETTLE)
        if presses == self._presses:
            self.settle_mode()

    def settle_mode(self) -> None:
        """Change to the mode ``auto`` at once, if the key has chosen it."""
        if self._will_be_auto:
            self._will_be_auto = False
            if self._chat.dial.approvals.mode is ApprovalMode.ASK:  # `/mode` may have chosen another one meanwhile
                self._chat.dial.approvals.set_mode(ApprovalMode.AUTO)
