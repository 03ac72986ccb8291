"""Calls in the background: a call that takes long goes on while its turn goes on without its result.

Such a call runs in a task of the client from its beginning, outside of the task group of its round. The round waits for
the task, and after some seconds no longer. The result is then a message of its own for the model.

Of a call that a server has answered with a task, enough is stored to poll the task after a restart (`TaskRecord`). Only
the host writes these records. What a history, a model or a server says about a task is never read.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

import anyio

from dial_client.hooks.call_context import CallTask
from dial_client.messages.late_result import FROM_HOST
from dial_client.messages.message import (
    Content,
    Failure,
    Message,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    build_interrupted_result,
)
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.json_fields import expect_text


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A call that goes on as a task of its server."""

    id: str
    """The id by which the model names the call once it is in the background."""
    call: ToolCallRequest
    """The call as it was made."""
    server: str
    """The server's name in the configuration."""
    tool: str
    """The server's own name of the tool."""
    turn: str
    """The turn that has made the call."""
    task: str
    """The server's id of the task."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON types."""
        texts = {"server": self.server, "tool": self.tool, "turn": self.turn, "task": self.task}
        return {"id": self.id, "call": self.call.to_dict(), **texts}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the form of `to_dict`.

        Raises:
            ValueError: `data` is no such record.
        """
        try:
            texts = [expect_text(data[name]) for name in ("server", "tool", "turn", "task")]
            return cls(expect_text(data["id"]), ToolCallRequest.from_dict(data["call"]), *texts)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the task of a call: {error!r}") from error


WAIT_FOR_CALL, STOP_CALL, CALL_IN_BACKGROUND = "wait_for_call", "stop_call", "call_in_background"
HOST_TOOLS = (WAIT_FOR_CALL, STOP_CALL)

# The most seconds that `wait_for_call` waits, and the part of the timeout of a call that it waits at most.
MAX_WAIT = 50.0
_WAIT_SHARE = 0.8
# Seconds within which a stopped call must have ended: its task at the server is cancelled within 5.
_STOP_SECONDS = 10.0

# The texts with an id that a history has: of a call that went to the background, and of its end.
# Compiled when they are used: most programs have no calls in the background.
_BEGUN = r"\[Background call ([0-9a-f]{8}): still running"
_ENDED = r"\[Background call ([0-9a-f]{8}): ended"
_RESULT = r"\[Background call ([0-9a-f]{8}): ended(?:, and failed)?(?::.*)?\]"
_NAME = r"[\w-]{1,64}"

AttemptT = TypeVar("AttemptT")
# Stores a task, and returns whether this has succeeded.
StoreTask = Callable[[TaskRecord], Awaitable[bool]]


def _create_id() -> str:
    return secrets.token_hex(4)


@dataclass(eq=False)
class BackgroundCall(Generic[AttemptT]):
    """A call that can go to the background, and does so once `is_moved`."""

    call: ToolCallRequest
    """The call as the model requested it."""
    server: str
    """The server's name in the configuration."""
    turn_id: str
    """The turn that has made the call."""
    _: KW_ONLY
    id: str = field(default_factory=_create_id)
    """The id by which the model names the call."""
    started_at: float = field(default_factory=time.monotonic)
    """The time of the call by `time.monotonic`."""
    is_moved: bool = False
    """Whether the turn goes on without the result."""
    result: ToolCallResult | None = None
    """The result; None while the call runs."""
    progress: str = ""
    """The progress of the call in numbers. The words of the server are left out: they may be untrusted."""
    is_resumed: bool = False
    """Whether an earlier process has made the call, and this one polls its task."""
    task: CallTask | None = None
    """The task with which the server may answer the call; None if no later process could go on with it."""
    limit: Deadline = field(default_factory=lambda: Deadline(math.inf))
    """The deadline of the turn for this call, which no longer holds once the call is in the background."""
    attempt: AttemptT | None = None
    error: Exception | None = None
    # The deadline of the call at its server; None before the call is made.
    _deadline: Deadline | None = None
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    # The wait of the round: the deadline of the turn, the scope of the wait, and its seconds from the time at which the
    # call is made. None before the wait, and once the call is made.
    _wait: tuple[Deadline, anyio.CancelScope, float] | None = None
    # Whether the wait ends with the call in the background.
    _will_move: bool = False
    # Set once the server has said that the call runs; None for a call that this process has made.
    _seen: anyio.Event | None = None
    _done: anyio.Event = field(default_factory=anyio.Event)

    @property
    def name(self) -> str:
        """The offered name of the tool."""
        return self.call.name

    @property
    def is_running(self) -> bool:
        """Whether the call has no result yet."""
        return self.result is None

    @property
    def has_stored_task(self) -> bool:
        """Whether the call is a task of its server that a later process polls."""
        return self.task is not None and bool(self.task.id) and self.task.store is None

    def begin(self, deadline: Deadline) -> None:
        """Note that the call is approved, and is made now; `deadline` is that of the call."""
        self._deadline = deadline
        if self.is_moved:  # a middleware makes the call again
            deadline.restart(math.inf)
        elif self._wait is not None:
            self.started_at = time.monotonic()
            (turn, scope, seconds), self._wait = self._wait, None
            if seconds < turn.seconds_left:
                self._will_move = True
                turn.detach(scope)
                scope.deadline = anyio.current_time() + seconds

    def note_progress(self, progress: str) -> None:
        """Note the progress that the server has sent while the call is in the background."""
        self.progress = progress
        if self._seen is not None:
            self._seen.set()

    async def run(
        self, make: Callable[[], Awaitable[AttemptT]], get_result: Callable[[AttemptT], ToolCallResult]
    ) -> None:
        """Make the call; the body of its task."""
        try:
            with self._scope:
                self.attempt = await make()
                self.result = get_result(self.attempt)
        except Exception as error:  # noqa: BLE001 - the round raises it, or the result says it
            self.error = error
        finally:
            if self.result is None:
                self.result = build_interrupted_result(self.call.id, self._describe_end())
            self._done.set()
            if self._seen is not None:
                self._seen.set()

    def _describe_end(self) -> str:
        return "it was stopped" if self.error is None else f"the call failed: {type(self.error).__name__}"

    async def wait_in_round(self, deadline: Deadline, seconds: float) -> None:
        """Wait for the end of the call, as its round does; after `seconds`, the call goes to the background.

        Args:
            deadline: The deadline of the turn, at which a call that is not in the background ends.
            seconds: Seconds from the time at which the call is made, after its approval.
        """
        try:
            with deadline.scope() as scope:
                self._wait = (deadline, scope, seconds)
                await self._done.wait()
        except anyio.get_cancelled_exc_class():
            await self.stop()
            raise
        if scope.cancelled_caught and not self._will_move:
            self.limit.restart(0)
            with anyio.CancelScope(shield=True):
                await self._done.wait()
        elif not self._done.is_set():
            self.is_moved = True
            if self._deadline is not None:
                # Nobody waits any more: the call has the whole time that a call may have.
                self._deadline.restart(math.inf)

    async def wait(self, seconds: float = math.inf) -> bool:
        """Wait for the end of the call, at most `seconds`; return whether it has ended."""
        with anyio.move_on_after(seconds):
            await self._done.wait()
        return self._done.is_set()

    def let_go(self) -> None:
        """Cancel the call without waiting for its end."""
        self._scope.cancel()

    async def stop(self) -> None:
        """Cancel the call at its server, and wait until this is done."""
        if self.is_resumed and self.result is None:
            self._seen = self._seen or anyio.Event()
            # Without a session the task could not be cancelled, and nobody would poll it any more.
            with anyio.move_on_after(_STOP_SECONDS / 2, shield=True):
                await self._seen.wait()
        self._scope.cancel()
        with anyio.move_on_after(_STOP_SECONDS, shield=True):
            await self._done.wait()

    def describe_running(self) -> ToolCallResult:
        """Return the result for the model of a call that has none yet."""
        seconds = time.monotonic() - self.started_at
        progress = f", its progress is {self.progress}" if self.progress else ""
        return _build_running(self.id, self.call.id, f"after {seconds:.0f} seconds{progress}")

    def build_result(self) -> ToolCallResult:
        """Return the result, which says of which call it is."""
        assert self.result is not None
        ending = "ended" if self.result.success else "ended, and failed"
        name = f": {self.name}" if re.fullmatch(_NAME, self.name) else ""
        head = f"[Background call {self.id}: {ending}{name}]"
        return replace(self.result, content=_add_head(self.result.content, head))


def describe_task(record: TaskRecord) -> ToolCallResult:
    """Return the result for the model of a call whose program has ended, and whose server goes on with it."""
    return _build_running(record.id, record.call.id, "at its server, as this program was restarted meanwhile")


def _build_running(id_: str, call_id: str, state: str) -> ToolCallResult:
    text = (
        f"[Background call {id_}: still running {state}. The result comes later, as a message. Go on with other work;"
        f' {WAIT_FOR_CALL}(id="{id_}") waits if the answer needs it now, {STOP_CALL}(id="{id_}") stops the call.]'
    )
    return ToolCallResult(call_id, success=True, content=text, background=id_)


def _add_head(content: Content, head: str) -> Content:
    return f"{head}\n{content}" if isinstance(content, str) else (TextPart(head), *content)


class BackgroundCalls:
    """The calls in the background of one conversation, or of a turn without one.

    Args:
        is_kept: Whether the calls go on after the turn, because the next turn gets their results.
    """

    def __init__(self, *, is_kept: bool = False) -> None:
        self.tasks: BackgroundTasks | None = None
        """The tasks of the client; None if no call can go to the background."""
        self.is_kept = is_kept
        """Whether the calls go on after the turn."""
        self.store_task: StoreTask | None = None
        """Stores the task with which a server has answered a call; None if no later process could go on with it."""
        self.is_left = False
        """Whether another process goes on with the tasks: this process does not cancel them."""
        self.open_tasks: dict[str, TaskRecord] = {}
        """The tasks that no call of this process polls, by the ids of their calls."""
        self._calls: dict[str, BackgroundCall[Any]] = {}

    @property
    def calls(self) -> tuple[BackgroundCall[Any], ...]:
        """The calls that run, and those whose result the model has not got."""
        return tuple(self._calls.values())

    def open(self, records: Iterable[TaskRecord]) -> None:
        """Note the tasks that the conversation has left open, except those that calls of this process poll."""
        self.open_tasks = {record.id: record for record in records if record.id not in self._calls}

    def watch_task(
        self, tool: ToolSpec, call: ToolCallRequest, turn_id: str, moving: BackgroundCall[Any] | None
    ) -> CallTask | None:
        """Return what stores the task of a call once there is one; None if no later process could go on with it.

        Args:
            tool: The tool.
            call: The call as it is made.
            turn_id: The turn that makes the call.
            moving: The call that can go to the background; None for a call that its round waits for.
        """
        store_task = self.store_task
        if store_task is None:
            return None
        id_ = _create_id() if moving is None else moving.id
        record = TaskRecord(id_, call, tool.server, tool.tool, turn_id, "")

        async def store(task: str) -> bool:
            return await store_task(replace(record, task=task))

        task = CallTask(store=store, is_left=lambda: self.is_left)
        if moving is not None:
            moving.task = task
        return task

    def keep(self, call: BackgroundCall[Any]) -> ToolCallResult:
        """Keep a call that has gone to the background, and return the result that the model gets first."""
        self._calls[call.id] = call
        return call.describe_running()

    def take_ended(self, shorten: Callable[[ToolCallResult], ToolCallResult]) -> tuple[Message, ...]:
        """Return a message for each call that has ended, and forget these calls.

        Args:
            shorten: Shortens a result to what the model reads.
        """
        ended = [call for call in self._calls.values() if call.result is not None]
        for call in ended:
            del self._calls[call.id]
        return tuple(_to_message(shorten(call.build_result())) for call in ended)

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout: float) -> ToolCallResult:
        """Run a call of `wait_for_call` or `stop_call`, and return its result without an id.

        Args:
            tool: The name of the tool.
            arguments: Its arguments.
            timeout: The timeout of the call in seconds.
        """
        call = self._calls.get(arguments["id"])
        if call is None:
            return ToolCallResult.failed("", Failure.TOOL, f"There is no call {arguments['id'][:40]!r} any more.")
        if tool == STOP_CALL:
            await call.stop()
            self._calls.pop(call.id, None)
            return replace(call.build_result(), tool_call_id="", success=True, error=None, failure=None)
        if not await call.wait(min(arguments.get("seconds", MAX_WAIT), MAX_WAIT, timeout * _WAIT_SHARE)):
            return replace(call.describe_running(), background="")
        self._calls.pop(call.id, None)
        return replace(call.build_result(), tool_call_id="")

    async def stop_calls(self, turn_id: str | None = None) -> tuple[str, ...]:
        """Stop the calls of a turn, or all, and return the names of the tools of those that were running.

        The model is told of each with the next results.
        """
        running = [call for call in self._calls.values() if call.result is None and turn_id in (None, call.turn_id)]
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for call in running:
                    group.start_soon(call.stop)
        return tuple(call.name for call in running)

    def forget_told(self, messages: Sequence[Message]) -> None:
        """Forget the calls whose result another process has told the model: it has polled the same task."""
        for id_ in self._calls.keys() & find_ended(messages, with_result=True):
            self._calls.pop(id_).let_go()

    def describe_lost(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return a message for each call of a history that is in the background nowhere, as after a restart."""
        begun = find_begun(messages)
        if not begun:
            return ()
        lost = begun.keys() - find_ended(messages).keys() - self._calls.keys() - self.open_tasks.keys()
        why = "this program has no result of the call, which another program, or an earlier run, has made"
        return tuple(_to_message(_build_lost(id_, why)) for id_ in begun if id_ in lost)


def _build_lost(id_: str, why: str) -> ToolCallResult:
    result = build_interrupted_result("", why)
    return replace(result, content=_add_head(result.content, f"[Background call {id_}: ended without a result]"))


def find_begun(messages: Iterable[Message]) -> dict[str, str]:
    """Return the ids of the calls that have gone to the background, each with the id that the model gave the call."""
    # Only the beginning is the host's: the text of a server may have any number of such lines.
    results = ((re.match(_BEGUN, message.text), message) for message in messages if message.role is Role.TOOL)
    return {found[1]: message.tool_call_id or "" for found, message in results if found}


def find_ended(messages: Iterable[Message], *, with_result: bool = False) -> dict[str, None]:
    """Return the ids of the calls of whose end the model was told, by the host alone.

    Args:
        messages: The history.
        with_result: Whether only ends with a result count.
    """
    # The result of another tool begins with the words of its server, which may have seen the id.
    own = (message.text for message in messages if message.role is Role.TOOL and message.name in HOST_TOOLS)
    late = (message.text for message in messages if message.steers and message.text.startswith(FROM_HOST))
    pattern = _RESULT if with_result else _ENDED
    found = [re.match(pattern, text) for text in own]
    found += [re.match(pattern, text.removeprefix(FROM_HOST).lstrip("\n")) for text in late]
    return dict.fromkeys(end[1] for end in found if end)


def _to_message(result: ToolCallResult) -> Message:
    # The only role that every API accepts at this place. The text says whose words it has, and the taint stays. As a
    # foreign part it imitates no call in a tool format of text, and is in no shared link without the calls.
    content = _add_head(result.content, FROM_HOST)
    parts = (TextPart(content),) if isinstance(content, str) else content
    foreign = tuple(replace(part, foreign=True) if isinstance(part, TextPart) else part for part in parts)
    return Message(Role.USER, foreign, taint=result.taint, steers=True)
