"""Shortcuts to run turns: the answer as text, many prompts at once, and synchronous calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

from dial_client.client.argument_types import check_types
from dial_client.client.turn_methods import OutputT, TurnInput, TurnMethods, to_messages
from dial_client.messages.limits import Limits
from dial_client.messages.message import Message
from dial_client.messages.turn_result import Turn
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.turns.output_type import build_output_type

ResultT = TypeVar("ResultT")


class ConvenienceMethods(TurnMethods):
    """The methods `ask` and `map`, and the synchronous forms of `run`, `response` and `ask`."""

    _tasks: BackgroundTasks | None
    """The client's background tasks; None while it is closed."""
    _sync_lock: Lock
    """Held while a synchronous call opens the client, runs, and closes the client."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def ask(self, question: TurnInput, *, limits: Limits | None = None, system: str | None = None) -> str:
        """Run a turn, and return the text of its last message. Arguments and errors are those of `run`."""
        return (await self.run(question, limits=limits, system=system)).text

    @overload
    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: None = None,
    ) -> list[Turn | Exception]: ...

    @overload
    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: type[OutputT],
    ) -> list[Turn[OutputT] | Exception]: ...

    @overload
    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any,
    ) -> list[Turn[Any] | Exception]: ...

    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: Any = None,
    ) -> list[Any]:
        """Run a turn for each prompt, several at the same time.

        Args:
            prompts: Texts, messages or conversations, one for each turn.
            concurrency: The most turns that run at the same time.
            progress: True to show a progress bar on standard error.
            limits: The limits of each turn, in place of the client's.
            system: The instructions of each turn, in place of the client's.
            output_type: The type of each ``turn.output``, as for `run`.

        Returns:
            The `Turn` of each prompt, in the order of the prompts, or the error that `run` would have raised: a failed
            turn does not stop the others. ``isinstance(result, Turn)`` tells them apart.

        Raises:
            RuntimeError: The client is not open.
            TypeError: An argument has the wrong type, such as a prompt that is not a conversation; no turn has started.
            ValueError: `concurrency` is less than 1.
        """
        given: Any = prompts  # callers without a type checker may pass any type
        if isinstance(given, str | Message) or not isinstance(given, Iterable):
            raise TypeError("map takes several prompts: give a list, or use `run` for one")
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._require_open()
        check_types(limits=(limits, Limits), system=(system, str))
        if output_type is not None:
            build_output_type(output_type)
        conversations = [to_messages(prompt) for prompt in prompts]
        run = partial(self.run, limits=limits, system=system, output_type=output_type)
        from dial_client.client.progress_bar import show_progress

        with show_progress(len(conversations), is_shown=progress) as advance:
            return await _run_each(conversations, run, concurrency, advance)

    @overload
    def run_sync(
        self, messages: TurnInput, *, limits: Limits | None = None, system: str | None = None, output_type: None = None
    ) -> Turn: ...

    @overload
    def run_sync(
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        output_type: type[OutputT],
    ) -> Turn[OutputT]: ...

    @overload
    def run_sync(
        self, messages: TurnInput, *, limits: Limits | None = None, system: str | None = None, output_type: Any
    ) -> Turn[Any]: ...

    def run_sync(
        self, messages: TurnInput, *, limits: Limits | None = None, system: str | None = None, output_type: Any = None
    ) -> Turn[Any]:
        """Run a turn from synchronous code, and return the turn when it has ended.

        If the client is closed, this call opens it with all its servers and closes it again; such calls from several
        threads run one after the other. If the client is open, only a worker thread of its event loop may call this
        method, such as the thread of a synchronous function that is a tool.

        Args:
            messages: The conversation, which is never changed.
            limits: The limits of this turn, in place of the client's.
            system: The instructions of this turn, in place of the client's.
            output_type: The type of ``turn.output``, as for `run`.

        Raises:
            RuntimeError: An event loop runs in this thread, as in a notebook (use ``await dial.run(…)`` there), or the
                client is open in the event loop of another thread.
            Exception: Any error of `run`, or of opening the client.
        """
        call = partial(self.run, messages, limits=limits, system=system, output_type=output_type)
        return self._call_sync("run", call)

    def response_sync(self, messages: TurnInput, *, limits: Limits | None = None, system: str | None = None) -> Message:
        """Run a turn from synchronous code, and return its last message. Arguments and errors as `run_sync`."""
        return self._call_sync("response", partial(self.response, messages, limits=limits, system=system))

    def ask_sync(self, question: TurnInput, *, limits: Limits | None = None, system: str | None = None) -> str:
        """Run a turn from synchronous code, and return the answer's text. Arguments and errors as `run_sync`."""
        return self._call_sync("ask", partial(self.ask, question, limits=limits, system=system))

    def _require_open(self) -> BackgroundTasks:
        """Return the client's background tasks.

        Raises:
            RuntimeError: The client is not open.
        """
        if self._tasks is None:
            raise RuntimeError("the client is not open: use `async with DialClient(…) as dial`")
        return self._tasks

    def _call_sync(self, name: str, call: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        if _is_in_event_loop():
            raise RuntimeError(
                f"{name}_sync cannot wait while an event loop runs in this thread: use `await dial.{name}(…)`, also in"
                " a cell of a notebook, within `async with DialClient(…) as dial`"
            )
        tasks = self._tasks  # another thread may close the client meanwhile
        if tasks is not None and tasks.loop == _find_worker_loop():
            return from_thread.run(call)
        with self._sync_lock:
            if self._tasks is None:
                return anyio.run(self._call_opened, call)
        raise RuntimeError(
            f"the client is open in the event loop of another thread: use `await dial.{name}(…)` there, or"
            f" `asyncio.run_coroutine_threadsafe(dial.{name}(…), loop).result()` here"
        )

    async def _call_opened(self, call: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        async with self:
            return await call()


async def _run_each(
    conversations: Sequence[TurnInput],
    run: Callable[[TurnInput], Awaitable[Turn[Any]]],
    concurrency: int,
    advance: Callable[[bool], None],
) -> list[Turn[Any] | Exception]:
    """Run a turn for each conversation, and return the turns in the same order, or their errors.

    Args:
        conversations: The conversations.
        run: Runs one turn.
        concurrency: The most turns that run at the same time.
        advance: Called at the end of each turn, with True if the turn failed.
    """
    results: dict[int, Turn[Any] | Exception] = {}
    waiting = iter(enumerate(conversations))

    async def run_next() -> None:
        for index, conversation in waiting:
            try:
                results[index] = await run(conversation)
            except Exception as error:  # noqa: BLE001 - an error of one turn is the result of that turn
                results[index] = error
            advance(isinstance(results[index], Exception))

    async with anyio.create_task_group() as group:
        for _ in range(min(concurrency, len(conversations))):
            group.start_soon(run_next)
    return [results[index] for index in range(len(conversations))]


def _is_in_event_loop() -> bool:
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return False
    return True


def _find_worker_loop() -> EventLoopToken | None:
    """Return the event loop that started this worker thread; None in any other thread."""
    try:
        from_thread.check_cancelled()
        return from_thread.run_sync(current_token)
    except RuntimeError:
        return None
