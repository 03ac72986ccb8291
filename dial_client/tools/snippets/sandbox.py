"""The sandbox of snippets: Monty, an interpreter of a part of Python, in worker processes.

This is the only module that knows the interpreter (``pydantic-monty``), whose API changes between minor releases.

A snippet has no files, no network, no modules of the host and no environment: each such request leaves the worker as an
operation that this module refuses. A worker runs one snippet and is then ended, so that nothing of one snippet, or of
one person, is left for the next.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from dial_client.messages.errors import ConfigError
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

MISSING = "code mode needs the extra: pip install 'dial-client[code]'"
# Seconds of processor time between two calls, and of a whole snippet. The waits for calls do not count.
STEP_SECONDS, SNIPPET_SECONDS = 5.0, 30.0
# Bytes of the objects of a snippet. As objects of the host, a value takes several times as much.
MAX_MEMORY = 50_000_000
MAX_RECURSION = 200
# The most steps between the worker and this process; a call takes two.
MAX_STEPS = 4_000
MAX_SOURCE = 100_000
# Characters that a snippet may print; the rest is counted.
MAX_PRINTED = 200_000
# The most snippets of a client at the same time, each with a worker, and the most of them that compute.
MAX_SNIPPETS, MAX_THREADS = 64, 8
# The address space of a worker, also of the type checker, for which the interpreter's own limit does not hold.
_MAX_ADDRESS_SPACE = 2_000_000_000
# Seconds after which this process ends a worker that keeps no limit.
_WATCHDOG_SECONDS = STEP_SECONDS + 10.0
# The interpreter's words for a limit: its "turn" is the time between two calls, and would be taken for a turn of ours.
_TIME_LIMIT = re.compile(r"(turn|feed) time limit exceeded: \S+ > \S+")
# The name of the snippet in error messages, and a place in it.
_NAME = "snippet.py"
_PLACE = re.compile(rf"^{re.escape(_NAME)}:(\d+):", re.MULTILINE)

ResultT = TypeVar("ResultT")


class SnippetError(Exception):
    """A snippet that failed, or was refused by the type checker.

    Args:
        text: The problem for the model, with the line and the expression.
        summary: The problem in one line.
        leaves_names: Whether the snippet has failed with an exception of its own, and its names can be kept.
    """

    def __init__(self, text: str, summary: str, *, leaves_names: bool = False) -> None:
        super().__init__(summary)
        self.text = text
        """The problem for the model, with the line and the expression."""
        self.leaves_names = leaves_names
        """Whether the snippet has failed with an exception of its own, and its names can be kept."""


@dataclass(frozen=True, slots=True)
class SandboxCall:
    """A call of a function that the snippet does not define."""

    id: int
    """Unique in the snippet."""
    name: str
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]
    line: int
    """The line of the call, from 1; 0 for a call in a function that an earlier snippet has defined."""
    expression: str
    """The text of the call."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A snippet that waits for results of calls."""

    calls: tuple[SandboxCall, ...]
    """The calls since the last step, some of which may not be awaited."""
    pending: frozenset[int]
    """The ids of all calls that are awaited."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A snippet that has ended."""

    value: Any
    """The value of its last expression, as objects of Python and of the interpreter."""


Step = Suspended | Ended


@dataclass(frozen=True, slots=True)
class CallValue:
    """The result of a call for the snippet: a value of JSON types, or an exception."""

    value: Any = None
    exception: str = ""
    """The name of a built-in exception; empty for a value."""
    message: str = ""


def is_installed() -> bool:
    """Return whether the extra is installed, without loading it."""
    return importlib.util.find_spec("pydantic_monty") is not None


def require_installed() -> None:
    """Check that the extra is installed.

    Raises:
        ConfigError: It is not.
    """
    if not is_installed():
        raise ConfigError(MISSING)


class Sandbox:
    """The worker processes of one client, which are started with the first snippet."""

    def __init__(self) -> None:
        self._pool: Any = None
        # The declarations and the session of a worker that has checked types, but has run no snippet.
        self._spare: tuple[str, Any] | None = None
        self._is_warming, self._is_closed = False, False
        self._lock = threading.Lock()
        self._slots = anyio.Semaphore(MAX_SNIPPETS)
        self._threads = CapacityLimiter(MAX_THREADS)

    def prepare(self) -> None:
        """Load the interpreter and start a worker; blocks for some hundredths of a second.

        Raises:
            ConfigError: The extra is not installed.
            SnippetError: The sandbox was closed.
        """
        with self._lock:
            if self._is_closed:
                raise SnippetError("The client was closed.", "the client was closed")
            if self._pool is None:
                require_installed()
                from pydantic_monty import Monty

                pool = Monty(
                    max_processes=MAX_SNIPPETS + 2 * MAX_THREADS,
                    max_checkouts_per_worker=1,
                    request_timeout=_WATCHDOG_SECONDS,
                    checkout_timeout=_WATCHDOG_SECONDS,
                )
                pool.__enter__()
                self._pool = pool

    async def check_types(self, source: str, stubs: str, names: Sequence[str]) -> None:
        """Check the types of a snippet that is run in a session without declarations.

        The names of earlier snippets have any type. Nothing of the snippet runs: it would begin after the first call.

        Args:
            source: The source of the snippet.
            stubs: The declarations of the functions.
            names: The names of earlier snippets.

        Raises:
            SnippetError: The snippet was refused.
        """
        from pydantic_monty import MontyError, MontyTypingError

        # This first line also stops the snippet, because nobody answers the call.
        targets = "".join(f"{name} = " for name in names if name != "kept_names")
        begun = f"{targets}kept_names()\n{source}"

        def check() -> None:
            # Without a place among the snippets: the snippet has one.
            session = self._take(stubs)
            try:
                session.feed_start(begun)
            except MontyTypingError as error:
                raise _explain(error, lines_before=1) from None
            except MontyError as error:  # also a syntax error, which names its line when the snippet is to run
                log.debug("snippet_not_checked", error=type(error).__name__)
            finally:
                session.__exit__(None, None, None)

        await to_thread.run_sync(check, abandon_on_cancel=True, limiter=self._threads)

    async def open_session(self, stubs: str | None, is_function: Callable[[str], bool]) -> SandboxSession:
        """Return a session for one snippet, which the caller closes.

        Args:
            stubs: The declarations of the functions, for the type checker; None to check no types.
            is_function: Returns whether there is a function of a name.
        """
        await self._slots.acquire()
        session = SandboxSession(self._threads, self._slots.release, is_function)
        try:
            await session.run_in_thread(lambda: session.use(self._take(stubs)))
        except BaseException:
            session.close()
            raise
        return session

    def warm(self, stubs: str) -> None:
        """Prepare a worker for the next snippet with these declarations, in a thread, which may go on afterwards.

        The first check of types in a process takes most of the time up to the first result of a snippet. Nothing else
        has run in such a worker, and it runs one snippet.
        """
        with self._lock:
            if self._is_closed or self._is_warming or (self._spare is not None and self._spare[0] == stubs):
                return
            self._is_warming = True
        threading.Thread(target=self._prepare_spare, args=(stubs,), daemon=True, name="snippet-warm").start()

    def _prepare_spare(self, stubs: str) -> None:
        left: Any = None
        try:
            left = self._check_out(stubs)
            left.feed_run("None")
        except Exception as error:  # noqa: BLE001 - the next snippet names the problem
            log.debug("snippet_worker_not_warmed", error=type(error).__name__)
        else:
            with self._lock:
                if not self._is_closed:
                    spare, self._spare = self._spare, (stubs, left)
                    left = None if spare is None else spare[1]
        finally:
            self._is_warming = False
        if left is not None:
            left.__exit__(None, None, None)

    def _take(self, stubs: str | None) -> Any:
        """Return the prepared worker for these declarations, or another one."""
        session = None
        with self._lock:
            if self._spare is not None and self._spare[0] == stubs:
                session, self._spare = self._spare[1], None
        if session is not None:
            try:
                session.feed_run("None")  # a millisecond, and a worker that was killed meanwhile ends no snippet
            except Exception as error:  # noqa: BLE001 - another worker takes its place
                log.debug("snippet_worker_lost", error=type(error).__name__)
                session.__exit__(None, None, None)
            else:
                return session
        return self._check_out(stubs)

    def _check_out(self, stubs: str | None) -> Any:
        self.prepare()
        limits = {
            "max_feed_duration_secs": SNIPPET_SECONDS,
            "max_turn_duration_secs": STEP_SECONDS,
            "max_memory": MAX_MEMORY,
            "max_recursion_depth": MAX_RECURSION,
            "max_suspensions": MAX_STEPS,
        }
        # A snippet that sleeps would keep its worker, and learns nothing by it.
        session = self._pool.checkout(
            script_name=_NAME,
            limits=limits,
            type_check=stubs is not None,
            type_check_stubs=stubs,
            type_check_format="concise",
            os_policy={"sleep": "zero"},
        )
        session.__enter__()
        _limit_process(session.worker_pid)
        return session

    def close(self) -> None:
        """End the workers that run no snippet; the others end with their snippets."""
        with self._lock:
            pool, self._pool = self._pool, None
            spare, self._spare = self._spare, None
            self._is_closed = True
        if spare is not None:
            spare[1].__exit__(None, None, None)
        if pool is not None:
            pool.__exit__(None, None, None)


class SandboxSession:
    """One snippet in its worker. Its steps run in threads, so that no snippet can block the event loop.

    A step that is cancelled is abandoned: its thread ends within the limits of the interpreter, and the snippet with
    it. Such a snippet can do nothing meanwhile but compute, because this process answers all that it asks for.

    Args:
        threads: Limits the threads.
        release: Called once the session is closed.
        is_function: Returns whether there is a function of a name.
    """

    def __init__(
        self, threads: CapacityLimiter, release: Callable[[], None], is_function: Callable[[str], bool]
    ) -> None:
        self._threads, self._release, self._is_function = threads, release, is_function
        self._session: Any = None
        self._snapshot: Any = None
        self._source = b""
        # The interpreter's name of the source, if names of earlier snippets are there; else empty.
        self._input = ""
        # The calls that have no result yet, whether they are awaited or not.
        self._open: set[int] = set()
        self._is_closed = False
        # Held by the thread of a step, so that a session is closed after the step.
        self._busy = threading.Lock()
        self._printed: list[str] = []
        self._room, self._dropped = MAX_PRINTED, 0

    @property
    def version(self) -> str:
        """The version of the interpreter, which alone can go on with the states of `dump`."""
        from pydantic_monty import __version__

        return str(__version__)

    def use(self, session: Any) -> None:
        """Use a session of the interpreter, and end it with this one."""
        self._session = session

    async def run_in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Do a step of the session in a thread.

        Raises:
            SnippetError: The snippet failed.
        """

        def run() -> ResultT:
            with self._busy:
                return work()

        return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)

    @property
    def printed(self) -> str:
        """What the snippet has printed, at most `MAX_PRINTED` characters, with a note of what is missing."""
        more = f"\n[… {self._dropped:,} more printed characters …]" if self._dropped else ""
        return "".join(self._printed) + more

    def _print(self, _: str, text: str) -> None:
        kept = text[: max(self._room, 0)]
        self._printed.append(kept)
        self._room -= len(kept)
        self._dropped += len(text) - len(kept)

    async def start(self, source: str) -> Step:
        """Check the types of a snippet, and run it up to the first results that it waits for.

        Raises:
            SnippetError: The snippet failed, or was refused.
        """
        self._source = source.encode()
        return await self.run_in_thread(
            lambda: self._advance(lambda: self._session.feed_start(source, print_callback=self._print))
        )

    async def resume(self, results: Mapping[int, CallValue]) -> Step:
        """Continue with the results of some of the pending calls. Raises as `start`."""
        self._open.difference_update(results)
        answers = {id_: _to_answer(result) for id_, result in results.items()}
        snapshot = self._snapshot
        return await self.run_in_thread(lambda: self._advance(lambda: snapshot.resume(answers)))

    async def dump(self) -> bytes:
        """Return the whole state of a suspended snippet, which stays as it is.

        Raises:
            SnippetError: It cannot be stored.
        """
        from pydantic_monty import MontyError

        snapshot = self._snapshot
        try:
            data: bytes = await self.run_in_thread(snapshot.dump)
        except MontyError as error:
            raise _explain(error) from None
        return data

    async def load_names(self, state: bytes, snippets: int) -> None:
        """Begin with the names that earlier snippets have left, in a session without a snippet and declarations.

        Args:
            state: What `dump_names` has returned, unchanged; empty for none.
            snippets: The number of these snippets.

        Raises:
            SnippetError: The state cannot be loaded.
        """
        from pydantic_monty import MontyError

        self._input = f"<python-input-{snippets}>"
        if not state:
            return
        try:
            await self.run_in_thread(lambda: self._session.load_session(state))
        except MontyError as error:
            raise _explain(error) from None

    async def dump_names(self) -> bytes:
        """Return the state after a snippet that has ended, or failed with an exception; empty if it is too large.

        Raises:
            SnippetError: A call has no result.
        """
        from pydantic_monty import MontyError

        if self._open:
            # The interpreter counts the calls of each snippet anew: it would take the result of another call for it.
            text = "a call was not awaited up to its result"
            raise SnippetError(text, text)
        try:
            state: bytes = await self.run_in_thread(self._session.dump)
        except MontyError as error:
            log.debug("snippet_names_not_kept", error=type(error).__name__)
            return b""
        return state

    async def list_names(self) -> tuple[str, ...]:
        """Return the names of the snippet, which has ended or failed with an exception.

        Raises:
            SnippetError: It has made the list impossible.
        """
        from pydantic_monty import MontyError

        try:
            found = await self.run_in_thread(lambda: self._session.feed_run("[*locals()]", print_callback=self._print))
        except MontyError as error:
            raise SnippetError(str(error), "its names cannot be listed") from None
        return tuple(name for name in found if is_name(name))

    async def load(self, state: bytes, source: str, printed: str, snippets: int | None = None) -> Step:
        """Restore a suspended snippet from `dump`, in a session without a snippet.

        Args:
            state: What `dump` has returned, unchanged: the interpreter does not protect itself from other bytes.
            source: The source of the snippet.
            printed: What the snippet had printed.
            snippets: The number of earlier snippets whose names it has; None if it began without names.

        Raises:
            SnippetError: The state cannot be restored, as after an update of the interpreter.
        """
        self._source = source.encode()
        self._input = "" if snippets is None else f"<python-input-{snippets}>"
        self._print("stdout", printed)
        step = await self.run_in_thread(
            lambda: self._advance(lambda: self._session.load_snapshot(state, print_callback=self._print))
        )
        if isinstance(step, Suspended):
            self._open.update(step.pending)
        return step

    def _advance(self, begin: Callable[[], Any]) -> Step:
        """Run the snippet until it ends or waits for results; answer what it asks besides. Runs in a thread."""
        from pydantic_monty import FunctionSnapshot, FutureSnapshot, MontyComplete, MontyError

        calls: list[SandboxCall] = []
        try:
            snapshot = begin()
            while True:
                if isinstance(snapshot, MontyComplete):
                    return Ended(snapshot.output)
                if isinstance(snapshot, FutureSnapshot):
                    self._snapshot = snapshot
                    return Suspended(tuple(calls), frozenset(snapshot.pending_call_ids))
                if not isinstance(snapshot, FunctionSnapshot):  # a name that is no global of the snippet
                    snapshot = self._look_up(snapshot)
                elif snapshot.is_os_function or snapshot.object_id is not None:
                    # Files, the environment, imports of modules that the interpreter does not have: there are none.
                    snapshot = snapshot.resume_not_handled()
                elif not self._is_function(snapshot.function_name):
                    text = f"name {snapshot.function_name!r} is not defined"
                    snapshot = snapshot.resume({"exc_type": "NameError", "message": text})
                else:
                    calls.append(self._to_call(snapshot))
                    self._open.add(snapshot.call_id)
                    snapshot = snapshot.resume({"future": ...})
        except MontyError as error:
            raise _explain(error) from None

    def _look_up(self, snapshot: Any) -> Any:
        """Answer the use of a name as a value: a function of the host stays a function, anything else is undefined."""
        if snapshot.object_id is not None or not self._is_function(snapshot.variable_name):
            return snapshot.resume()

        def function() -> None:
            """Stand for a function of the host: only the name crosses."""

        function.__name__ = function.__qualname__ = snapshot.variable_name
        return snapshot.resume(value=function)

    def _to_call(self, snapshot: Any) -> SandboxCall:
        start, end = snapshot.position.start, snapshot.position.end
        is_own = self._input in ("", snapshot.position.filename)
        return SandboxCall(
            snapshot.call_id,
            snapshot.function_name,
            snapshot.args,
            snapshot.kwargs,
            self._source.count(b"\n", 0, start) + 1 if is_own else 0,
            self._source[start:end].decode(errors="replace") if is_own else "",
        )

    def close(self) -> None:
        """End the worker, after the step that may still run in a thread; does not wait."""
        if self._is_closed:
            return
        self._is_closed = True
        self._release()

        def end() -> None:
            with self._busy:
                session, self._session = self._session, None
                if session is not None:
                    session.__exit__(None, None, None)

        threading.Thread(target=end, daemon=True, name="snippet-end").start()


def _to_answer(result: CallValue) -> dict[str, Any]:
    if result.exception:
        return {"exc_type": result.exception, "message": result.message}
    return {"return_value": result.value}


def is_name(name: object) -> bool:
    """Return whether a value is the name of a variable, as the interpreter lists it."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def _explain(error: Any, lines_before: int = 0) -> SnippetError:
    """Return what the model reads about an error of the interpreter.

    Args:
        error: The error.
        lines_before: The number of lines before the snippet in what was checked.
    """
    from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontyTypingError

    if isinstance(error, MontyTypingError):
        problems = error.display().strip()
        if lines_before:
            problems = _PLACE.sub(lambda found: f"{_NAME}:{int(found[1]) - lines_before}:", problems)
        return SnippetError(
            f"Not run, because the types do not fit:\n{problems}", problems.partition("\n")[0] or "the types do not fit"
        )
    if isinstance(error, MontyCrashedError):
        log.warning("snippet_worker_ended", timed_out=error.timed_out)
        text = "The snippet used up its time or its memory, and was ended."
        return SnippetError(text, text)
    texts = (error.display().strip() if hasattr(error, "display") else str(error), str(error))
    # A limit stops the interpreter in the middle of its work, with what it then has in its hands.
    is_limit = _TIME_LIMIT.search(texts[1]) or isinstance(error.exception(), MemoryError)
    return SnippetError(
        *(_TIME_LIMIT.sub(_describe_time_limit, text) for text in texts),
        leaves_names=isinstance(error, MontyRuntimeError) and not is_limit,
    )


def _describe_time_limit(found: re.Match[str]) -> str:
    seconds, where = (SNIPPET_SECONDS, "in all") if found[1] == "feed" else (STEP_SECONDS, "between two calls")
    return f"it computed for more than {seconds:g} seconds {where}"


def _limit_process(pid: int | None) -> None:
    """Bound the memory of a worker by the system as well, where it can be done from outside of a process."""
    if sys.platform != "linux" or pid is None:
        return
    import resource

    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (_MAX_ADDRESS_SPACE, _MAX_ADDRESS_SPACE))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
    except (OSError, ValueError) as error:  # a container may forbid it; the interpreter has its own limits
        log.debug("snippet_worker_not_limited", error=type(error).__name__)
