"""`BlockingClient`: a client for programs without an event loop, such as Flask and Django, usable from many threads.

    with DialClient("anthropic:claude-sonnet-5-5", servers=…).blocking() as dial:
        turn = dial.run("What time is it?")

The event loop of the client runs in a thread of its own. Servers are started once, when the client is opened. Turns of
several threads run concurrently.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import anyio
from anyio import from_thread
from anyio.from_thread import BlockingPortal
from anyio.lowlevel import EventLoopToken, current_token

from dial_client.client.config_changes import ConfigChanges
from dial_client.messages.events import Event
from dial_client.messages.message import ToolCallResult
from dial_client.messages.turn_result import Turn
from dial_client.settings.config_types import Settings
from dial_client.turns.turn_keywords import TurnInput, TurnKeywords

OutputT = TypeVar("OutputT")
ResultT = TypeVar("ResultT")
CallArguments = ParamSpec("CallArguments")


class AsyncClient(Protocol):
    """The methods of `DialClient` that a `BlockingClient` uses. It cannot import it, because that creates it."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    @property
    def run(self) -> Callable[..., Awaitable[Turn[Any]]]:
        """Runs a turn."""
        ...

    @property
    def stream(self) -> Callable[..., AsyncGenerator[Event, None]]:
        """Runs a turn, and yields its events."""
        ...

    @property
    def call(self) -> Callable[..., Awaitable[ToolCallResult]]:
        """Calls one tool without a model."""
        ...

    @property
    def reload(self) -> Callable[..., Awaitable[ConfigChanges]]:
        """Applies a changed configuration."""
        ...


class BlockingClient:
    """The methods of a `DialClient` for threads without an event loop; returned by `DialClient.blocking`.

    Use it as ``with dial.blocking() as d``, or call `open` once and `close` at the end of the program. Any number of
    threads may use it at the same time. Context variables of the calling thread are those of its turn. A process that
    is forked has to open its own client.

    Args:
        client: The client, which this object opens and closes.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._lock = Lock()
        # The thread of the event loop and the way into it; None while the client is closed.
        self._loop: tuple[Thread, BlockingPortal] | None = None
        # The process that has opened the client: after a fork the child has the object, but not the thread.
        self._process = 0

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the event loop and all servers, and wait until each server is ready or has failed.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
            RuntimeError: The client is open already.
        """
        _check_thread()
        with self._lock:
            if self._loop is not None and self._process == os.getpid():
                raise RuntimeError("the client is open already: enter it once, all threads can use it")
            opened: Future[BlockingPortal] = Future()
            thread = Thread(target=anyio.run, args=(self._run_loop, opened), name="dial-client", daemon=True)
            thread.start()
            try:
                self._loop, self._process = (thread, opened.result()), os.getpid()
            except BaseException:  # also Ctrl-C while servers start
                opened.cancel()
                raise
        # A program that ends without `close` must not leave its servers running.
        atexit.register(self.close)

    def close(self) -> None:
        """Cancel the turns, stop the servers and end the event loop. May be called twice, by any thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        atexit.unregister(self.close)
        if loop is not None and self._process == os.getpid():
            thread, portal = loop
            portal.start_task_soon(portal.stop)
            thread.join()

    async def _run_loop(self, opened: Future[BlockingPortal]) -> None:
        """Open the client, and keep it open until the portal is stopped; the main task of the event loop."""
        try:
            # The client is closed first: it ends the turns that other threads wait for.
            async with BlockingPortal() as portal, self._client:
                if opened.set_running_or_notify_cancel():
                    opened.set_result(portal)
                    await portal.sleep_until_stopped()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    @overload
    def run(self, messages: TurnInput, *, output_type: None = None, **keywords: Unpack[TurnKeywords]) -> Turn: ...

    @overload
    def run(
        self, messages: TurnInput, *, output_type: type[OutputT], **keywords: Unpack[TurnKeywords]
    ) -> Turn[OutputT]: ...

    @overload
    def run(self, messages: TurnInput, *, output_type: Any, **keywords: Unpack[TurnKeywords]) -> Turn[Any]: ...

    def run(self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]) -> Turn[Any]:
        """Run a turn, and return it when it has ended. Arguments and errors are those of `DialClient.run`.

        Raises:
            RuntimeError: The client is not open, or an event loop runs in this thread.
        """
        return self.wait(self._client.run, messages, output_type=output_type, **keywords)

    def stream(
        self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> Generator[Event, None, None]:
        """Run a turn, and yield its events as they happen, `Finished` last. Leaving the loop early cancels the turn.

        Arguments and errors are those of `run`.
        """
        events = self._client.stream(messages, output_type=output_type, **keywords)
        end = object()
        try:
            while (event := self.wait(partial(anext, events, end))) is not end:
                yield event
        finally:
            if self._loop is not None:
                self.wait(events.aclose)

    def call(self, name: str, arguments: Mapping[str, Any], *, owner: str | None = None) -> ToolCallResult:
        """Call one tool without a model, and return its result. Arguments are those of `DialClient.call`.

        Raises:
            RuntimeError: The client is not open, or an event loop runs in this thread.
        """
        return self.wait(self._client.call, name, arguments, owner=owner)

    def reload(self, source: str | os.PathLike[str] | Settings | None = None) -> ConfigChanges:
        """Apply a changed configuration, and return what has changed. The argument is that of `DialClient.reload`.

        Raises:
            ConfigError: As for `DialClient.reload`; nothing was changed.
            RuntimeError: The client is not open, or an event loop runs in this thread.
        """
        return self.wait(self._client.reload, source)

    def wait(
        self,
        function: Callable[CallArguments, Awaitable[ResultT]],
        /,
        *arguments: CallArguments.args,
        **keywords: CallArguments.kwargs,
    ) -> ResultT:
        """Call an asynchronous function in the event loop of the client, and return its result.

        For all other methods: ``d.wait(manager.chat, conversation.id, "Hello")``. If the wait is interrupted, such as
        by Ctrl-C, the function is cancelled.

        Args:
            function: The function, such as a method of `ConversationManager`.
            arguments: The arguments of the function.
            keywords: The keyword arguments of the function.

        Raises:
            RuntimeError: The client is not open, was opened before this process was forked, or an event loop runs in
                this thread.
            Exception: Any error of the function.
        """
        _check_thread()
        loop = self._loop
        if loop is None:
            raise RuntimeError("the client is not open: use `with dial.blocking() as d`, or call `open` first")
        if self._process != os.getpid():
            # The event loop's thread does not exist in this process: nothing would ever answer.
            raise RuntimeError("the client was opened before this process was forked: open it in each process")
        future = loop[1].start_task_soon(partial(function, *arguments, **keywords))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def run_from_thread(
    client: AsyncClient,
    run: Callable[[], Coroutine[Any, Any, ResultT]],
    find_loop: Callable[[], EventLoopToken | None],
    lock: Lock,
) -> ResultT:
    """Run one turn of a client from synchronous code; see `DialClient.run_sync`.

    Args:
        client: The client, which is opened for this turn if it is closed.
        run: Runs the turn.
        find_loop: Returns the event loop in which the client is open, and None while it is closed.
        lock: Held by the thread that has opened the client.

    Raises:
        RuntimeError: An event loop runs in this thread, or the client is open in the event loop of another thread.
    """
    _check_thread(
        "run_sync cannot wait while an event loop runs in this thread: use `await dial.run(…)`, also in"
        " a cell of a notebook, within `async with DialClient(…) as dial`"
    )
    loop = find_loop()  # asked once: another thread may close the client meanwhile
    if loop is not None and loop == _find_worker_loop():
        return from_thread.run(run)

    async def open_and_run() -> ResultT:
        async with client:
            return await run()

    with lock:
        if find_loop() is None:
            return anyio.run(open_and_run)
    raise RuntimeError(
        "the client is open in the event loop of another thread: use `await dial.run(…)` there, or"
        " `asyncio.run_coroutine_threadsafe(dial.run(…), loop).result()` here"
    )


def _check_thread(
    problem: str = "an event loop runs in this thread, which must not wait: use `DialClient` itself there",
) -> None:
    """Check that this thread may wait.

    Raises:
        RuntimeError: An event loop runs in this thread.
    """
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return
    raise RuntimeError(problem)


def _find_worker_loop() -> EventLoopToken | None:
    """Return the event loop that started this worker thread; None in any other thread."""
    try:
        from_thread.check_cancelled()
        return from_thread.run_sync(current_token)
    except RuntimeError:
        return None
