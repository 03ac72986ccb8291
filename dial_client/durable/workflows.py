"""`DurableTurns`: turns as workflows of DBOS, which any process resumes if the process that ran them was killed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import anyio
from anyio import to_thread
from pydantic import TypeAdapter, ValidationError

from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager, ManagerOptions
from dial_client.conversations.turn_input import ConversationInput, check_turn_input
from dial_client.durable import dbos_database, rows
from dial_client.durable.rows import DurableResult, extract_conversation_id, is_attempt_of
from dial_client.messages.errors import ConfigError, ConversationBusy, ConversationNotFound, DialError, StoreUnavailable
from dial_client.messages.message import Message, ToolSpec
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import Conversation
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

if TYPE_CHECKING:
    from dbos import DBOS, WorkflowHandleAsync, WorkflowStatus

log = get_logger(__name__)

# The version of the workflows' steps. It does not change with each release, so that processes with a newer release
# resume the turns of older ones.
WORKFLOW_VERSION = "dial-client-turns-1"
# The name of the workflow that starts its turn (`DurableTurns.submit`).
TURN = "dial_client.turn"
# The name of the workflow of a turn that has started before (`DurableTurns.start`). Its result is stored in the
# conversation only.
STARTED_TURN = "dial_client.begun"
# The note of a turn that was stopped because its workflow could not be stored.
NOT_DURABLE = "the turn was stopped, because the database failed when it began: send the message again"
# How many abandoned attempts of the same turn a process resumes. A turn that ends with its process again and again is
# given up, because it probably ends the processes.
MAX_RESUMED = 5
# The states of a workflow that has not ended: that of a process, and that of one that is resumed.
_OPEN = ["PENDING", "ENQUEUED"]
# The most workflows that are deleted at once, and the seconds between two deletions.
_MAX_DELETED = 1_000
_CLEARING_INTERVAL = 60.0
# Seconds between two looks of DBOS for resumed workflows while turns run.
_QUEUE_INTERVAL = 1.0
# Seconds between two checks whether another process still runs a turn.
_POLL_INTERVAL = 0.5
# Timeout in seconds for leaving the turns to other processes at shutdown.
_SHUTDOWN_TIMEOUT = 2.0


class _HasBegun(Exception):
    """Another attempt has begun the turn. Callers outside of this module never see this error."""


@dataclass(frozen=True, slots=True)
class DurableTimings:
    """Intervals and timeouts of durable turns, in seconds."""

    recovery_interval: float = 2.0
    """Seconds between two searches for turns whose process was killed."""
    idle_interval: float = 10.0
    """The same while no turn runs in any process."""
    start_timeout: float = 30.0
    """A turn that has not started after this many seconds, with no other turn before it, counts as abandoned."""
    database_timeout: float = 10.0
    """Timeout in seconds for writing a turn to the database, or reading one."""
    retention: float = 60.0
    """Seconds for which the workflow of an ended turn is kept, so that a process that was only slow can find it."""


@dataclass(frozen=True, slots=True, eq=False)
class _WorkflowObserver(TurnObserver):
    """Lets no call of a turn run before its workflow is stored.

    If it cannot be stored, the client is told to send the message again, and the calls would have their effects twice.
    """

    storing: Mapping[str, anyio.Event]

    async def on_message(self, turn: TurnHandle) -> None:
        if (stored := self.storing.get(turn.id)) is not None:
            await stored.wait()


class DurableTurns:
    """Runs the turns of conversations as DBOS workflows. A process can open one at a time, on asyncio only.

    Args:
        dial: The client that answers; the caller opens and closes it.
        store: The store of the conversations, whose database other processes share.
        database: The database for the tables of DBOS: ``postgresql://…``, ``sqlite:///file.db``, or that file's path.
        timings: The intervals and timeouts of accesses to this database.
        on_started: Called with each turn that starts in this process without a call of `start`, such as a turn of
            another process that this one resumes.
        is_stopping: Returns True if the process is shutting down and starts no more turns.
        **options: The options of `ConversationManager`.
    """

    def __init__(
        self,
        dial: DialClient,
        store: SQLStore,
        database: str | Path,
        *,
        timings: DurableTimings = DurableTimings(),
        on_started: Callable[[TurnHandle], None] = lambda _: None,
        is_stopping: Callable[[], bool] = lambda: False,
        **options: Unpack[ManagerOptions],
    ) -> None:
        # The turns whose workflows are being stored, by their own ids.
        self._storing: dict[str, anyio.Event] = {}
        # The ids of turns whose clients were refused. They are kept: a workflow that is stored late may run twice here,
        # since a search may find it before it ends.
        self._refused: set[str] = set()
        options["observers"] = (*options.get("observers", ()), _WorkflowObserver(self._storing))
        self.manager = ConversationManager(
            dial, store, will_be_resumed=self._will_be_resumed, check_beginning=self._check_beginning, **options
        )
        """The manager that runs the turns."""
        self._store, self._database, self._timings, self._on_started = store, database, timings, on_started
        self._is_stopping, self._is_closing = is_stopping, False
        # The turns of this process whose workflows have not ended, by id; None until a turn runs here.
        self._turns: dict[str, TurnHandle | None] = {}
        # The executions of each of their workflows, in threads of DBOS: the last one that ends forgets the turn.
        self._executions: dict[str, list[str]] = {}
        # The ids of those that wait for another process.
        self._abandoned: set[str] = set()
        # The attempts to begin a turn of `submit`. Other turns of the manager may have ids of the same form.
        self._beginning: set[str] = set()
        # The id of this process for DBOS.
        self._executor_id = secrets.token_hex(16)
        # How often this process has found each attempt of a turn abandoned, by `_find_abandoned_attempt`.
        self._abandoned_attempts: dict[str, Counter[str]] = {}
        # DBOS and the event loop, which are there when these turns are open.
        self._dbos: DBOS
        self._loop: asyncio.AbstractEventLoop
        self._background: BackgroundTasks | None = None
        self._handles: dict[str, WorkflowHandleAsync[dict[str, str]]] = {}

    def for_owner(self, owner: str) -> Self:
        """Return durable turns of the conversations of one owner, as `ConversationManager.for_owner` does.

        They are open while these are, and share the turns that run with these.

        Raises:
            ConfigError: As `ConversationManager.for_owner`.
        """
        turns = copy(self)
        turns.manager = self.manager.for_owner(owner)
        return turns

    async def __aenter__(self) -> Self:
        """Open the database, and start to look for turns whose process was killed.

        Raises:
            ConfigError: DBOS is not installed, or its database cannot be used.
        """
        self._loop, self._is_closing = asyncio.get_running_loop(), False
        await to_thread.run_sync(self._launch)
        self._background = await BackgroundTasks.open()
        self._background.start_soon(self._recover_turns)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the running turns to other processes, or to a later run of this program."""
        background, self._background = self._background, None
        self._is_closing = True
        dbos_database.stop_retries(self._dbos)
        # A process has one DBOS instance. The stack destroys it even if asyncio's `Task.cancel` passes the shield.
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as parts:
                parts.push_async_callback(to_thread.run_sync, lambda: self._dbos.destroy(destroy_registry=True))
                parts.push_async_callback(self._abandon_turns)
                parts.push_async_callback(to_thread.run_sync, dbos_database.stop_queues, self._dbos, _SHUTDOWN_TIMEOUT)
                if background is not None:
                    parts.push_async_callback(background.aclose)

    async def _abandon_turns(self) -> None:
        """Leave all turns to other processes, and return when their workflows have stopped."""
        with anyio.move_on_after(_SHUTDOWN_TIMEOUT):
            while remaining := self._turns.keys() - self._abandoned:
                for turn in filter(None, map(self._turns.get, remaining)):
                    turn.abandon()
                await anyio.sleep(0.02)

    async def submit(self, conversation_id: str, message: str | Message, *, output_type: Any = None) -> str:
        """Send a message in a conversation, and return the id of the turn, which starts after earlier turns.

        The turn is durable when this returns: it is answered even if the process is killed. `result` waits for the
        answer.

        Args:
            conversation_id: The id of the conversation.
            message: The user's text or `Message`.
            output_type: The type of the answer, as for `DialClient.run`. Its JSON Schema is stored, so that it applies
                in every process. `DurableResult.text` is the answer's JSON.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: `output_type` is an invalid JSON Schema.
            DialError: A database failed.
            TypeError: `output_type` is not a type that JSON can be parsed as, or `message` is not a message.
        """
        check_turn_input(message)
        row = rows.to_question_row(message, output_type)
        await self._store.read_turn(conversation_id)
        turn_id = rows.build_turn_id(conversation_id)
        self._turns[turn_id] = None
        try:
            self._handles[turn_id] = await self._store_workflow(turn_id, self._turn_workflow, row)
        except Exception as error:
            self._turns.pop(turn_id, None)
            raise rows.to_dial_error(error) from error
        return turn_id

    async def start(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        client_tools: Sequence[ToolSpec] = (),
        output_type: Any = None,
    ) -> TurnHandle:
        """Send a message in a conversation, and return the turn that answers it, which runs in this process.

        The turn is durable when this returns: it is answered even if the process is killed. Another process then
        resumes it with another attempt id (`Conversation.turn`). The answer is stored in the conversation, and `result`
        does not return it. Arguments are those of `ConversationManager.start`; the JSON Schema of `output_type` and
        `client_tools` are stored, so that they apply in every process.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: Another turn of the conversation is running, or waits to be resumed.
            DialError: A database failed; the turn is cancelled if it had started.
        """
        row = rows.to_question_row("", output_type, client_tools)  # the conversation has the question
        turn_id = rows.build_turn_id(conversation_id)
        attempt_id = rows.create_attempt_id(turn_id)
        turn: TurnHandle | None = None
        self._turns[turn_id] = None
        stored = self._storing[attempt_id] = anyio.Event()
        try:
            turn = await self.manager.start(
                conversation_id,
                message,
                stream=stream,
                turn_id=attempt_id,
                client_tools=client_tools,
                output_type=output_type,
            )
            self._turns[turn_id] = turn
            await self._store_workflow(turn_id, self._started_turn_workflow, row)
        except BaseException as error:
            self._turns.pop(turn_id, None)
            if turn is not None:
                turn.recorder.note(NOT_DURABLE)  # the question is stored, and its client may be gone
                turn.cancel()
                if isinstance(error, Exception):
                    raise rows.to_dial_error(error) from error
            raise
        finally:
            del self._storing[attempt_id]
            stored.set()
        return turn

    async def _store_workflow(
        self, turn_id: str, workflow: Callable[[str, str], Coroutine[Any, Any, Any]], row: str
    ) -> WorkflowHandleAsync[Any]:
        """Store the workflow of a turn, which then runs in this process.

        DBOS tries without end, and its thread cannot be stopped. So the workflow may be stored after the client was
        refused: it ends at once here then, before another process finds it.

        Raises:
            TimeoutError: The database did not answer in time.
        """
        from dbos import SetWorkflowID

        conversation_id = extract_conversation_id(turn_id)
        with SetWorkflowID(turn_id):
            storing = asyncio.ensure_future(self._dbos.start_workflow_async(workflow, conversation_id, row))
            try:
                with anyio.fail_after(self._timings.database_timeout):
                    return await asyncio.shield(storing)
            finally:
                if not storing.done():
                    self._refused.add(turn_id)
                    storing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody waits

    async def result(self, turn_id: str) -> DurableResult:
        """Wait for the result of a turn that `submit` has returned, whichever process runs it.

        Raises:
            DialError: There is no such turn, the turn was given up, or the database failed.
        """
        from dbos import error as dbos_errors

        # The handle of this process does not look into the database; another one does so every second.
        try:
            handle = self._handles.get(turn_id) or await self._dbos.retrieve_workflow_async(turn_id)
        except dbos_errors.DBOSNonExistentWorkflowError:
            raise DialError(f"there is no durable turn {turn_id!r}") from None
        except Exception as error:
            raise rows.to_dial_error(error) from error
        try:
            return TypeAdapter(DurableResult).validate_python(await handle.get_result())
        except DialError:
            raise
        except ValidationError as error:
            raise rows.RowRefused("the database contains an answer that cannot be read") from error
        except Exception as error:
            raise DialError(f"the turn was given up: {type(error).__name__}") from error

    def _launch(self) -> None:
        try:
            from dbos import DBOS
        except ModuleNotFoundError as error:
            raise ConfigError("DBOS is not installed", hint="pip install 'dial-client[durable]'") from error
        config: Any = {
            "name": "dial-client",
            "application_version": WORKFLOW_VERSION,
            "executor_id": self._executor_id,
            "log_level": "ERROR",
            "serializer": rows.build_json_serializer(),
            **dbos_database.build_dbos_options(self._database),
        }
        self._dbos = DBOS(config=config)

        async def run_turn(conversation_id: str, row: str) -> Any:
            """Run a turn in two steps. If the process is killed, another one repeats the unfinished step."""
            with self._own_workflow(conversation_id) as turn_id:
                await DBOS.run_step_async({"name": "begin"}, self._run_in_loop, self._begin, turn_id, row)
                return await DBOS.run_step_async({"name": "answer"}, self._run_in_loop, self._finish, turn_id, row)

        async def run_started_turn(conversation_id: str, row: str = "") -> None:
            """Wait for the end of a turn that has started. This needs no steps, because it can be repeated safely."""
            with self._own_workflow(conversation_id) as turn_id:
                await self._run_in_loop(self._finish, turn_id, row)

        self._turn_workflow = DBOS.workflow(name=TURN)(run_turn)
        self._started_turn_workflow = DBOS.workflow(name=STARTED_TURN)(run_started_turn)
        try:
            dbos_database.shorten_pauses()
            self._dbos.launch()
            dbos_database.reduce_polling(self._dbos)
        except Exception as error:
            self._dbos.destroy(destroy_registry=True)
            raise ConfigError("the database for durable turns cannot be used", hint=type(error).__name__) from error

    @contextmanager
    def _own_workflow(self, conversation_id: Any) -> Iterator[str]:
        """Count the turn of the current workflow as one of this process, and return its id.

        Raises:
            RowRefused: The turn belongs to another conversation than the argument of the workflow.
        """
        turn_id = self._dbos.workflow_id
        assert turn_id is not None
        self._turns.setdefault(turn_id)
        executions = self._executions.setdefault(turn_id, [])
        executions.append(turn_id)
        try:
            if extract_conversation_id(turn_id) != conversation_id:
                raise rows.RowRefused("the database contains a turn of another conversation")
            yield turn_id
        finally:
            executions.pop()
            if not executions:
                for known in (self._turns, self._handles, self._executions):
                    known.pop(turn_id, None)

    async def _run_in_loop(self, step: Callable[[str, str], Coroutine[Any, Any, Any]], turn_id: str, row: str) -> Any:
        """Run a step in the event loop of the client, because DBOS runs recovered workflows in its own loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step(turn_id, row), self._loop))

    async def _begin(self, turn_id: str, row: str) -> None:
        """Store the message and start the turn, unless another attempt has started it: the first step of a workflow.

        The message has been accepted, so this waits for as long as the store is not available, as DBOS does, and for
        earlier turns.

        Raises:
            DialError: The message cannot be read, the turn cannot start, or another process has taken the turn over.
        """
        while turn_id not in self._refused:
            await self._abandon_if_stopping(turn_id)
            try:
                await self._begin_once(turn_id, row)
            except (StoreUnavailable, ConversationBusy) as error:
                log.debug("durable_turn_waits", error=type(error).__name__)
            else:
                return
            await anyio.sleep(_POLL_INTERVAL)

    async def _begin_once(self, turn_id: str, row: str) -> None:
        # A process that was slow would begin a turn again that ended elsewhere, and whose end was lost.
        status = await self._dbos.get_workflow_status_async(turn_id)
        if status is None or status.executor_id != self._executor_id:
            raise DialError("another process has taken over the turn")
        message, output_type, _ = rows.read_question_row(row)
        conversation_id, attempt_id = extract_conversation_id(turn_id), rows.create_attempt_id(turn_id)
        self._beginning.add(attempt_id)
        try:
            self._add(await self.manager.start(conversation_id, message, turn_id=attempt_id, output_type=output_type))
        except _HasBegun:
            log.debug("durable_turn_has_begun", turn=turn_id)
        finally:
            self._beginning.discard(attempt_id)

    def _check_beginning(self, stored: Conversation, attempt_id: str) -> None:
        """Let no turn of `submit` begin twice, nor wait for an attempt of its own that no process runs any more.

        DBOS executes a workflow twice in this process if the workflow is resumed before it has run its first line, and
        a process that was slow may begin the turn after another one has taken the turn over.

        Raises:
            _HasBegun: Another attempt has begun the turn.
        """
        if attempt_id in self._beginning and rows.has_begun(rows.find_turn_id(attempt_id, stored.id), stored):
            raise _HasBegun

    async def _finish(self, turn_id: str, row: str) -> dict[str, str]:
        """Return the result of a turn, which any process may have started: the last step of a workflow.

        Raises:
            DialError: The end of the turn could not be stored `MAX_RESUMED` times.
        """
        if turn_id in self._refused:
            return asdict(DurableResult("", "", "its client was told to send the message again"))
        for _ in range(MAX_RESUMED + 1):
            try:
                found = await self._attach(turn_id, row)
            except DialError as error:
                return asdict(DurableResult("", "", str(error)))
            if isinstance(found, DurableResult):
                return asdict(found)
            try:
                ended = await found.result()
                result = DurableResult(ended.text, ended.stop_reason.value)
            except DialError as error:
                result = DurableResult("", "", str(error))
            if found.is_abandoned:
                await self._abandon(turn_id)
            if not _is_lost(found):
                return asdict(result)
            # The store failed for so long that the turn's end is lost: the turn is resumed from what is stored.
            log.warning("durable_turn_not_stored", error=result.error)
        raise DialError(result.error)

    async def _attach(self, turn_id: str, row: str) -> TurnHandle | DurableResult:
        """Return the handle of a turn that runs or ran in this process; its result if it has ended in another process.

        This waits while another process runs the turn, and resumes the turn if no process runs it.

        Raises:
            DialError: The row or the conversation cannot be read.
        """
        if (own := self._find_own_turn(turn_id)) is not None:
            return own
        conversation_id = extract_conversation_id(turn_id)
        question, output_type, client_tools = rows.read_question_row(row)
        # DBOS executes a workflow twice in this process if it is resumed before it has run its first line: the other
        # execution may resume the turn.
        while (own := self._find_own_turn(turn_id)) is None:
            try:
                attempt_id, is_running = await self._store.read_turn(conversation_id)
                if not is_attempt_of(turn_id, attempt_id):
                    # The turn may have begun and ended here during this look: what is stored has no reason of the end.
                    stored = await self.manager.get(conversation_id)
                    return self._find_own_turn(turn_id) or rows.find_stored_result(stored, question)
                if not is_running:
                    await self._abandon_if_stopping(turn_id)
                    turn = await self.manager.resume(
                        conversation_id,
                        turn_id=rows.create_attempt_id(turn_id),
                        client_tools=client_tools,
                        output_type=output_type,
                    )
                    if turn is not None:
                        return self._add(turn)
                    continue  # the turn had ended, and `resume` has released its conversation
            except (ConfigError, ConversationNotFound):
                raise
            except DialError as error:  # another process has resumed the turn first, or the store failed this time
                log.debug("durable_turn_waits", error=type(error).__name__)
                await self._abandon_if_stopping(turn_id)
            await anyio.sleep(_POLL_INTERVAL)
        return own

    def _find_own_turn(self, turn_id: str) -> TurnHandle | None:
        """Return the handle of a turn that runs or ran in this process, unless its end is lost."""
        turn = self._turns.get(turn_id) or self.manager.find_turn(extract_conversation_id(turn_id))
        return turn if turn is not None and is_attempt_of(turn_id, turn.id) and not _is_lost(turn) else None

    def _add(self, turn: TurnHandle) -> TurnHandle:
        """Count a turn that starts without a call of `start` as one of this process."""
        self._turns[rows.find_turn_id(turn.id, turn.conversation_id)] = turn
        self._on_started(turn)
        return turn

    async def _abandon_if_stopping(self, turn_id: str) -> None:
        if self._is_closing or self._is_stopping():
            await self._abandon(turn_id)

    async def _abandon(self, turn_id: str) -> None:
        """Leave a turn to another process: the workflow stops here for ever, as if this process had been killed."""
        self._abandoned.add(turn_id)
        await anyio.sleep_forever()

    async def _will_be_resumed(self, stored: Conversation) -> bool:
        """Return True if no process runs the conversation's latest turn, and one will resume it: a `WillBeResumed`.

        Raises:
            DialError: The database failed.
        """
        if self._background is None:
            return False
        turn_id = rows.find_turn_id(stored.turn, stored.id)
        try:
            with anyio.fail_after(self._timings.database_timeout):  # DBOS itself retries without end
                status = await self._dbos.get_workflow_status_async(turn_id)
        except Exception as error:
            raise rows.to_dial_error(error) from error
        return status is not None and status.status in _OPEN

    async def _recover_turns(self) -> None:
        is_failing = is_idle = False
        cleared = anyio.current_time()
        while True:
            await anyio.sleep(self._timings.idle_interval if is_idle else self._timings.recovery_interval)
            if self._is_stopping():
                return
            try:
                is_idle = not await self._recover_once(has_failed=is_failing)
                seconds = self._timings.idle_interval if is_idle else _QUEUE_INTERVAL
                dbos_database.set_queue_polling(self._dbos, seconds)
                if anyio.current_time() - cleared >= min(self._timings.retention, _CLEARING_INTERVAL):
                    cleared = anyio.current_time()
                    await self._delete_old_workflows()
                is_failing = False
            except Exception as error:  # noqa: BLE001 - the database may be available at the next attempt
                if not is_failing:
                    log.warning("durable_turns_not_seen", error=type(error).__name__)
                is_failing = True

    async def _recover_once(self, *, has_failed: bool) -> bool:
        """Resume the turns that no process runs any more; return whether there are turns that have not ended.

        Args:
            has_failed: Whether the last search has failed: the database is looked for first, and nothing is resumed. A
                process whose database was away stores at once what its turns wait with.
        """
        if has_failed or self._store.is_failing:
            await self._store.check()
        # DBOS tries again without end, and later and later: it is not asked while the database is away.
        with anyio.fail_after(self._timings.database_timeout):
            open_ = await self._dbos.list_workflows_async(status=_OPEN, name=[TURN, STARTED_TURN], load_input=False)
        for ended in self._abandoned_attempts.keys() - {workflow.workflow_id for workflow in open_}:
            del self._abandoned_attempts[ended]
        if not has_failed:
            foreign = [each for each in open_ if each.status == "PENDING" and each.workflow_id not in self._turns]
            # Asked together: nearly all of them run, and every process looks at the turns of all the others.
            running = await self._store.find_running(extract_conversation_id(each.workflow_id) for each in foreign)
            for workflow in foreign:
                if extract_conversation_id(workflow.workflow_id) not in running:
                    await self._resume_if_abandoned(workflow)
        return bool(open_)

    async def _delete_old_workflows(self) -> None:
        """Delete workflows that no process looks for any more: their turns are in the conversations."""
        before = (datetime.now(UTC) - timedelta(seconds=self._timings.retention)).isoformat()
        old = await self._dbos.list_workflows_async(
            name=STARTED_TURN, completed_before=before, limit=_MAX_DELETED, load_input=False, load_output=False
        )
        if old:
            await self._dbos.delete_workflows_async([workflow.workflow_id for workflow in old])

    async def _resume_if_abandoned(self, workflow: WorkflowStatus) -> None:
        turn_id = workflow.workflow_id
        try:
            if not (attempt := await self._find_abandoned_attempt(workflow)):
                return
            attempts = self._abandoned_attempts.setdefault(turn_id, Counter())
            attempts[attempt] += 1
            if attempts.total() % 2 == 0:
                return  # it was resumed when it was found before, and its workflow may not have begun to run
            # An attempt counts once, however often it is found: its process may only be too slow to renew the lease.
            if len(attempts) <= MAX_RESUMED:
                await self._dbos.resume_workflow_async(turn_id)
            else:
                log.warning("durable_turn_given_up", turn=turn_id)
                await self._dbos.cancel_workflow_async(turn_id)
        except Exception as error:  # noqa: BLE001 - a wrong row must not delay other turns
            log.warning("durable_turn_not_seen", error=type(error).__name__)

    async def _find_abandoned_attempt(self, workflow: WorkflowStatus) -> str:
        """Return the latest attempt to run a turn that no process runs, and none lets wait for an earlier turn.

        Each process that has not begun the turn counts as one, and counts again each time it gets the turn: a row that
        cannot be read never begins. Empty if the turn is not abandoned.
        """
        turn_id, updated_at = workflow.workflow_id, workflow.updated_at or 0
        with suppress(ConversationNotFound):
            attempt_id, is_running = await self._store.read_turn(extract_conversation_id(turn_id))
            if is_running or is_attempt_of(turn_id, attempt_id):
                return "" if is_running else attempt_id
        has_waited = time.time() - updated_at / 1000 > self._timings.start_timeout
        # A turn that `start` has begun has no steps: it has just ended, and its workflow not yet.
        is_abandoned = has_waited or (workflow.name == TURN and await self._dbos.list_workflow_steps_async(turn_id))
        return f"{workflow.executor_id} {updated_at}" if is_abandoned else ""


def _is_lost(turn: TurnHandle) -> bool:
    """Return True if a turn has ended and its end is not stored. While it is being stored, the turn has not ended."""
    return turn.has_ended and turn.is_stored is False
