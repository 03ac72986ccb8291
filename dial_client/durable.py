"""Turns that outlive the program that runs them: workflows of DBOS, a library over SQLite or PostgreSQL.

    async with DurableTurns(manager, "postgresql://user@host/database") as turns:
        turn = await turns.start(conversation_id, "…")    its id: from here on it is answered, whoever is killed
        answer = await turns.answer(turn)                  in any program that uses the same databases

DBOS keeps which turns there are and what came of them, and starts those again that are given up. What a turn has done
is in the store of conversations, and only there: each reply before its calls are run, each round's results before the
model is asked again. Whoever goes on with a turn goes on from there, so nothing that is finished is done twice. A call
that was under way is not made again either: the model is told that it may have run, and decides.

A program that is killed is noticed by its turns' leases, which it no longer renews (`ConversationManager`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio import to_thread

from dial_client.conversations import ConversationManager
from dial_client.errors import ConfigError, ConversationNotFound, DialError
from dial_client.logs import get_logger
from dial_client.messages import Role
from dial_client.nursery import Nursery
from dial_client.store import Conversation
from dial_client.turn import Turn

if TYPE_CHECKING:
    from dbos import WorkflowHandleAsync, WorkflowStatus

log = get_logger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks for turns whose program is gone."""
SQLITE_IS_TOO_OLD = sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42)
"""DBOS has SQLite tell parts of seconds where Python is 3.12 or newer, and SQLite 3.42 was the first that can."""
WORKFLOW = "dial-client-turns-1"
"""The form of the workflow: another one once its steps are others."""
_NAME = "dial_client.turn"
NOT_BEGUN = 30.0
"""Seconds after which a turn is given up that has not begun, though no other turn is in its way."""
_WAIT = 0.5
"""Seconds between two looks whether another program has let go of a turn."""


@dataclass(frozen=True, slots=True)
class DurableAnswer:
    """What came of a turn."""

    text: str
    """The answer."""
    stop_reason: str
    """As `Turn.stop_reason`; empty where the turn came to an error, or its end was not heard of."""
    error: str = ""
    """What went wrong, where something did: the model could not be reached, or refused."""


class DurableTurns:
    """Runs the turns of a `ConversationManager` as workflows. One at a time in a program, on asyncio only.

    Args:
        manager: carries them out; its store has to be one that other programs share.
        database: what DBOS keeps its own tables in: ``postgresql://…`` or ``sqlite:///file.db``.
        look_every: seconds between two looks for turns whose program is gone.
        not_begun: seconds after which a turn is given up that has not begun, though no other turn is in its way.
    """

    def __init__(
        self,
        manager: ConversationManager,
        database: str,
        *,
        look_every: float = LOOK_EVERY,
        not_begun: float = NOT_BEGUN,
    ) -> None:
        self._manager = manager
        self._database = database
        self._look_every = look_every
        self._not_begun = not_begun
        self._executor = uuid.uuid4().hex
        self._nursery: Nursery | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mine: set[str] = set()
        self._handles: dict[str, WorkflowHandleAsync[dict[str, str]]] = {}

    async def __aenter__(self) -> Self:
        """Open the database, and begin to look for turns whose program is gone.

        Raises:
            ConfigError: DBOS is not installed, or its database cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        await to_thread.run_sync(self._launch)
        self._nursery = await Nursery.open()
        self._nursery.start_soon(self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave what runs to other programs, or to the next one."""
        from dbos import DBOS

        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            await nursery.aclose()
        lives = [self._manager.live(turn.partition(".")[0]) for turn in tuple(self._mine)]
        running = [live for live in lives if live is not None and not live.over]
        for live in running:
            live.leave()
        for live in running:
            await live.running.stopped()
        await to_thread.run_sync(lambda: DBOS.destroy(destroy_registry=True))

    async def start(self, conversation_id: str, said: str) -> str:
        """Say something in a conversation, and give the id of the turn that answers.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        from dbos import DBOS, SetWorkflowID

        await self._manager.get(conversation_id)
        turn = f"{conversation_id}.{uuid.uuid4().hex}"
        self._mine.add(turn)
        with SetWorkflowID(turn):
            self._handles[turn] = await DBOS.start_workflow_async(self._workflow, conversation_id, said)
        return turn

    async def answer(self, turn: str) -> DurableAnswer:
        """Wait for what comes of a turn, whichever program runs it.

        Raises:
            DialError: it was given up.
        """
        from dbos import DBOS

        # DBOS looks for a result every second; in this program it need not.
        handle = self._handles.get(turn) or await DBOS.retrieve_workflow_async(turn)
        try:
            return DurableAnswer(**await handle.get_result())
        except DialError:
            raise
        except Exception as error:
            raise DialError(f"the turn was given up: {type(error).__name__}") from error

    def _launch(self) -> None:
        try:
            from dbos import DBOS
        except ModuleNotFoundError as error:
            raise ConfigError("DBOS is not installed", hint="pip install 'dial-client[durable]'") from error
        if SQLITE_IS_TOO_OLD and self._database.startswith("sqlite"):
            problem = f"durable turns need SQLite 3.42 or newer, and this Python has {sqlite3.sqlite_version}"
            raise ConfigError(problem, hint="use PostgreSQL, or another Python")
        DBOS(
            config={
                "name": "dial-client",
                "system_database_url": self._database,
                # Not the package's version: a worker that was upgraded goes on with the turns of one that was not.
                "application_version": WORKFLOW,
                "executor_id": self._executor,
                "log_level": "ERROR",
            }
        )

        async def workflow(conversation_id: str, said: str) -> dict[str, str]:
            return await self._carried_out(conversation_id, said)

        self._workflow = DBOS.workflow(name=_NAME)(workflow)
        try:
            DBOS.launch()
        except Exception as error:
            DBOS.destroy(destroy_registry=True)
            raise ConfigError("the database for durable turns cannot be used", hint=type(error).__name__) from error

    async def _carried_out(self, conversation_id: str, said: str) -> dict[str, str]:
        """Carry a turn out: the workflow. What is killed in the middle of a step begins that step again."""
        from dbos import DBOS

        turn = DBOS.workflow_id
        assert turn is not None
        self._mine.add(turn)  # one that is started again is this program's from here on
        try:
            await DBOS.run_step_async({"name": "begin"}, self._here, self._begin, conversation_id, turn, said)
            return await DBOS.run_step_async({"name": "answer"}, self._here, self._answer, conversation_id, turn, said)
        finally:
            self._mine.discard(turn)
            self._handles.pop(turn, None)

    async def _here(self, work: Any, *arguments: str) -> Any:
        """Do it where the client lives: DBOS runs what it starts again in an event loop of its own."""
        if asyncio.get_running_loop() is self._loop:
            return await work(*arguments)
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_coroutine(work, arguments), self._loop))

    async def _begin(self, conversation_id: str, turn: str, said: str) -> None:
        """Store what was said, unless that is done, and let the model answer."""
        from dbos import DBOS

        stored = await self._manager.get(conversation_id)
        if _is_of(turn, stored.turn):
            return
        status = await DBOS.get_workflow_status_async(turn)
        if status is None or status.executor_id != self._executor:
            raise DialError("another program has taken the turn over")
        await self._manager.start(conversation_id, said, turn=_attempt(turn))

    async def _answer(self, conversation_id: str, turn: str, said: str) -> dict[str, str]:
        """Give what comes of a turn that has begun, wherever that was."""
        live = self._manager.live(conversation_id)
        try:
            while live is None or not _is_of(turn, live.id):
                stored = await self._manager.get(conversation_id)
                if not _is_of(turn, stored.turn):
                    return _ended(stored, said)
                if stored.running:
                    await anyio.sleep(_WAIT)
                else:
                    live = await self._manager.carry_on(conversation_id, turn=_attempt(turn))
            ended = await live.result()
            if live.is_left:  # DBOS has to think that it was killed
                await anyio.sleep_forever()
            return _told(ended)
        except DialError as error:
            return {"text": "", "stop_reason": "", "error": str(error)}

    async def _look(self) -> None:
        """Start again what nobody runs any more."""
        from dbos import DBOS

        while True:
            await anyio.sleep(self._look_every)
            try:
                for found in await DBOS.list_workflows_async(status="PENDING", name=_NAME, load_input=False):
                    if found.workflow_id not in self._mine and await self._is_given_up(found):
                        await DBOS.resume_workflow_async(found.workflow_id)
            except Exception as error:  # noqa: BLE001 - the database may be back at the next look
                log.warning("durable_turns_not_seen", error=type(error).__name__)

    async def _is_given_up(self, found: WorkflowStatus) -> bool:
        """Whether nobody runs a turn: not where it may still be waiting for the turn before it, in its own program."""
        from dbos import DBOS

        turn = found.workflow_id
        with suppress(ConversationNotFound):
            stored = await self._manager.get(turn.partition(".")[0])
            if stored.running or _is_of(turn, stored.turn):
                return not stored.running
        if await DBOS.list_workflow_steps_async(turn):
            return True
        return time.time() - (found.updated_at or 0) / 1000 > self._not_begun


def _attempt(turn: str) -> str:
    """Give an id for one try to carry a turn out: a program that was only slow must not be taken for its successor."""
    return f"{turn.partition('.')[2]}.{uuid.uuid4().hex[:8]}"


def _is_of(turn: str, attempt: str) -> bool:
    return attempt.startswith(f"{turn.partition('.')[2]}.")


def _told(turn: Turn) -> dict[str, str]:
    return {"text": turn.text, "stop_reason": turn.stop_reason.value}


def _ended(stored: Conversation, said: str) -> dict[str, str]:
    """Give what a conversation has for the last time this was said: the turn is over, and its program with it."""
    answer = ""
    for message in reversed(stored.messages):
        if message.role is Role.USER and message.text == said:
            break
        answer = message.text if message.role is Role.ASSISTANT and not message.tool_calls and not answer else answer
    return {"text": answer, "stop_reason": ""}


async def _coroutine(work: Any, arguments: tuple[str, ...]) -> Any:
    return await work(*arguments)
