"""The workflows, and who looks after them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import anyio
from anyio import to_thread

from dial_client.background_tasks import BackgroundTasks
from dial_client.client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager, ManagerOptions
from dial_client.durable import results
from dial_client.durable.dbos_database import url_of
from dial_client.durable.recovery import BEGUN, TURN, TurnRecovery
from dial_client.durable.results import DurableResult, attempt_at, conversation_of, is_of, turn_id
from dial_client.durable.serialization import json_serializer
from dial_client.errors import ConfigError, ConversationNotFound, DialError
from dial_client.logs import get_logger
from dial_client.messages import Message
from dial_client.stores.conversation_store import Conversation, ConversationStore
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.turn_handle import TurnHandle

if TYPE_CHECKING:
    from dbos import WorkflowHandleAsync

log = get_logger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks for turns whose program is gone."""
WORKFLOW = "dial-client-turns-1"
"""The form of the workflows: another one once their steps are others."""
NOT_BEGUN = 30.0
"""Seconds after which a turn is given up that has not begun, though no other turn is in its way."""
_WAIT = 0.5
"""Seconds between two looks whether another program has let go of a turn."""
_WRITE = 10.0
"""Seconds in which a turn has to be written down, or looked up."""
_SETTLE = 2.0
"""Seconds for what came of turns to be written down when the program ends."""


class DurableTurns:
    """Runs the turns of conversations as workflows. One at a time in a program, on asyncio only.

    Args:
        dial: answers; opened and closed by whoever made it.
        store: keeps the conversations; one that other programs share.
        database: what DBOS keeps its own tables in: ``postgresql://…``, ``sqlite:///file.db``, or that file's path.
        look_every: seconds between two looks for turns whose program is gone.
        not_begun: seconds after which a turn is given up that has not begun, though no other turn is in its way.
        on_begun: is given each turn that runs here without `begin`: those of other programs that are gone on with.
        is_leaving: whether the program is about to end, and takes no more turns over.
        **options: those of `ConversationManager`.
    """

    def __init__(
        self,
        dial: DialClient,
        store: ConversationStore,
        database: str | Path,
        *,
        look_every: float = LOOK_EVERY,
        not_begun: float = NOT_BEGUN,
        on_begun: Callable[[TurnHandle], None] = lambda _: None,
        is_leaving: Callable[[], bool] = lambda: False,
        **options: Unpack[ManagerOptions],
    ) -> None:
        self.manager = ConversationManager(dial, store, will_be_resumed=self._is_owed, **options)
        """Carries them out."""
        self._database = database
        self._look_every = look_every
        self._not_begun = not_begun
        self._on_begun = on_begun
        self._is_leaving = is_leaving
        self._executor = uuid.uuid4().hex
        self._nursery: BackgroundTasks | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mine: set[str] = set()
        self._left: set[str] = set()
        self._begun: dict[str, TurnHandle] = {}
        self._handles: dict[str, WorkflowHandleAsync[dict[str, str]]] = {}

    async def __aenter__(self) -> Self:
        """Open the database, and begin to look for turns whose program is gone.

        Raises:
            ConfigError: DBOS is not installed, or its database cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        await to_thread.run_sync(self._launch)
        self._nursery = await BackgroundTasks.open()
        self._nursery.start_soon(self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave what runs to other programs, or to the next one."""
        from dbos import DBOS

        nursery, self._nursery = self._nursery, None
        self._is_leaving = lambda: True
        with anyio.CancelScope(shield=True):
            if nursery is not None:
                await nursery.aclose()
            with anyio.move_on_after(_SETTLE):
                while rest := self._mine - self._left:
                    for turn in rest:
                        live = self.manager.find_turn(conversation_of(turn))
                        if live is not None and is_of(turn, live.id):
                            live.abandon()
                    await anyio.sleep(0.02)
            await to_thread.run_sync(lambda: DBOS.destroy(destroy_registry=True))

    async def start(self, conversation_id: str, said: str | Message) -> str:
        """Say something in a conversation, and give the id of the turn that answers, once no other is in its way.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        from dbos import DBOS, SetWorkflowID

        await self._holder(conversation_id)
        message = Message.user(said) if isinstance(said, str) else said
        turn = turn_id(conversation_id)
        self._mine.add(turn)
        with SetWorkflowID(turn):
            self._handles[turn] = await DBOS.start_workflow_async(
                self._workflow, conversation_id, json.dumps(message.to_dict())
            )
        return turn

    async def begin(self, conversation_id: str, said: str | Message, *, stream: bool = True) -> TurnHandle:
        """Say something in a conversation, and give the turn that answers, which runs here.

        When this returns it is answered, whoever is killed: in another program by another turn, whose id the
        conversation has (`Conversation.turn`). What comes of it is in the conversation, and not kept for `answer`.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConversationBusy: another turn of it is under way, or waits to be gone on with.
            DialError: a database failed; the turn is cancelled, if it had begun.
        """
        turn = turn_id(conversation_id)
        self._mine.add(turn)
        try:
            live = await self.manager.start(conversation_id, said, stream=stream, turn_id=attempt_at(turn))
            try:
                await self._write_down(turn, live)
            except BaseException:
                live.cancel()
                raise
        except BaseException:
            self._begun.pop(turn, None)
            self._mine.discard(turn)
            raise
        return live

    async def get(self, conversation_id: str) -> Conversation:
        """Give a conversation as `ConversationManager.get`; it is running also while it waits to be gone on with.

        Raises:
            ConversationNotFound: there is none with this id.
            DialError: a database failed.
        """
        stored = await self.manager.get(conversation_id)
        return replace(stored, running=True) if await self._is_owed(stored) else stored

    async def answer(self, turn: str) -> DurableResult:
        """Wait for what comes of a turn that `start` has given, whichever program runs it.

        Raises:
            DialError: it was given up.
        """
        from dbos import DBOS

        # DBOS looks for a result every second; in this program it need not.
        handle = self._handles.get(turn) or await DBOS.retrieve_workflow_async(turn)
        try:
            return DurableResult.from_row(await handle.get_result())
        except DialError:
            raise
        except Exception as error:
            raise DialError(f"the turn was given up: {type(error).__name__}") from error

    def _launch(self) -> None:
        try:
            from dbos import DBOS
        except ModuleNotFoundError as error:
            raise ConfigError("DBOS is not installed", hint="pip install 'dial-client[durable]'") from error
        DBOS(
            config={
                "name": "dial-client",
                "system_database_url": url_of(self._database),
                # Not the package's version: a worker that was upgraded goes on with the turns of one that was not.
                "application_version": WORKFLOW,
                "executor_id": self._executor,
                "log_level": "ERROR",
                "serializer": json_serializer(),
            }
        )

        async def workflow(conversation_id: str, said: str) -> dict[str, str]:
            return await self._carried_out(conversation_id, said)

        async def begun(conversation_id: str) -> None:
            await self._carried_on(conversation_id)

        self._workflow = DBOS.workflow(name=TURN)(workflow)
        self._begun_workflow = DBOS.workflow(name=BEGUN)(begun)
        try:
            DBOS.launch()
        except Exception as error:
            DBOS.destroy(destroy_registry=True)
            raise ConfigError("the database for durable turns cannot be used", hint=type(error).__name__) from error

    async def _write_down(self, turn: str, live: TurnHandle) -> None:
        """Let DBOS know of a turn that has begun: from here on it is started again where it is given up."""
        from dbos import DBOS, SetWorkflowID

        self._begun[turn] = live
        try:
            with anyio.fail_after(_WRITE), SetWorkflowID(turn):
                await DBOS.start_workflow_async(self._begun_workflow, live.conversation_id)
        except Exception as error:
            raise results.failed(error) from error

    async def _carried_out(self, conversation_id: str, said: str) -> dict[str, str]:
        """Carry a turn out: the workflow. What is killed in the middle of a step begins that step again."""
        from dbos import DBOS

        turn = DBOS.workflow_id
        assert turn is not None
        self._mine.add(turn)  # one that is started again is this program's from here on
        try:
            results.check(turn, conversation_id)
            await DBOS.run_step_async({"name": "begin"}, self._here, self._begin, conversation_id, turn, said)
            return await DBOS.run_step_async({"name": "answer"}, self._here, self._answer, conversation_id, turn, said)
        finally:
            self._mine.discard(turn)
            self._handles.pop(turn, None)

    async def _carried_on(self, conversation_id: str) -> None:
        """Carry a turn that has begun to its end: the workflow. It has no steps, as it can begin anew at any time."""
        from dbos import DBOS

        turn = DBOS.workflow_id
        assert turn is not None
        self._mine.add(turn)
        try:
            results.check(turn, conversation_id)
            await self._here(self._answer, conversation_id, turn)
        finally:
            self._mine.discard(turn)

    async def _here(self, work: Any, *arguments: str) -> Any:
        """Do it where the client lives: DBOS runs what it starts again in an event loop of its own."""
        if asyncio.get_running_loop() is self._loop:
            return await work(*arguments)
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_coroutine(work, arguments), self._loop))

    async def _begin(self, conversation_id: str, turn: str, said: str) -> None:
        """Store what was said, unless that is done, and let the model answer."""
        from dbos import DBOS

        latest, _ = await self._holder(conversation_id)
        if is_of(turn, latest):
            return
        if self._is_leaving():
            await self._leave(turn)
        status = await DBOS.get_workflow_status_async(turn)
        if status is None or status.executor_id != self._executor:
            raise DialError("another program has taken the turn over")
        self._on_begun(await self.manager.start(conversation_id, results.read(said), turn_id=attempt_at(turn)))

    async def _answer(self, conversation_id: str, turn: str, said: str = "") -> dict[str, str]:
        """Give what comes of a turn that has begun, wherever that was."""
        try:
            live = await self._live(conversation_id, turn)
            if live is None:
                return results.ended(await self.manager.get(conversation_id), results.read(said))
        except DialError as error:
            return results.broken(error)
        try:
            answer = results.told(await live.result())
        except DialError as error:
            answer = results.broken(error)
        if live.is_abandoned:
            await self._leave(turn)
        return answer

    async def _leave(self, turn: str) -> None:
        """Leave a turn to another program: DBOS has to think that this one was killed."""
        self._left.add(turn)
        await anyio.sleep_forever()

    async def _live(self, conversation_id: str, turn: str) -> TurnHandle | None:
        """Give the turn as it runs here, going on with it once no other program is at it; None where it is over."""
        live = self._begun.pop(turn, None) or self.manager.find_turn(conversation_id)
        while live is None or not is_of(turn, live.id):
            live = None
            try:
                latest, is_running = await self._holder(conversation_id)
                if not is_of(turn, latest):
                    return None
                if not is_running:
                    if self._is_leaving():
                        await self._leave(turn)
                    live = await self.manager.resume(conversation_id, turn_id=attempt_at(turn))
                    if live is not None:
                        self._on_begun(live)
                    continue
            except (ConfigError, ConversationNotFound):
                raise
            except DialError as error:  # somebody was faster, or the store failed this time
                log.warning("durable_turn_waits", error=type(error).__name__)
            await anyio.sleep(_WAIT)
        return live

    async def _holder(self, conversation_id: str) -> tuple[str, bool]:
        """Give `Conversation.turn` and `.running`, without reading what was said where the store can do that."""
        store = self.manager.store
        if isinstance(store, SQLStore):
            return await store.turn_of(conversation_id)
        stored = await store.get(conversation_id)
        return stored.turn, stored.running

    async def _is_owed(self, stored: Conversation) -> bool:
        """Whether nobody runs a conversation's latest turn, and somebody will."""
        from dbos import DBOS

        if self._nursery is None or not stored.turn or stored.running:
            return False
        try:
            with anyio.fail_after(_WRITE):  # DBOS itself would wait until the database is back
                status = await DBOS.get_workflow_status_async(results.tried_by(stored.turn, stored.id))
        except Exception as error:
            raise results.failed(error) from error
        return status is not None and status.status in ("PENDING", "ENQUEUED")

    async def _look(self) -> None:
        """Start again what nobody runs any more, and forget what nobody will ask for."""
        recovery = TurnRecovery(self._mine, self._holder, self._not_begun)
        while True:
            await anyio.sleep(self._look_every)
            if self._is_leaving():
                return
            try:
                await recovery.look()
            except Exception as error:  # noqa: BLE001 - the database may be back at the next look
                log.warning("durable_turns_not_seen", error=type(error).__name__)


async def _coroutine(work: Any, arguments: tuple[str, ...]) -> Any:
    return await work(*arguments)
