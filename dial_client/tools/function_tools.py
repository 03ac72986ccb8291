"""Python functions as tools: their registration, their calls, and their results as content for the model."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

from anyio import CapacityLimiter, get_cancelled_exc_class, lowlevel, to_thread

from dial_client.messages.message import NO_OUTPUT, Content, Failure, Part, TextPart, ToolCallResult
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import OnCallProgress
from dial_client.tools.function_context import FUNCTIONS, Context, ToolError
from dial_client.tools.function_definition import Function, FunctionDefinition, FunctionTool, WrongArguments, define
from dial_client.tools.result_content import convert_bytes

log = get_logger(__name__)

# Returns the text that the model reads about an exception in a function; None for the usual text.
OnToolError = Callable[[Exception, Context], str | None]

# Maximum number of functions without ``async`` that run at the same time, each in a thread until it ends. Functions
# that such functions wait for, by `DialClient.run_sync`, are counted apart: they would wait for their callers' threads.
MAX_THREADS = 40
# The number of functions in threads that wait for this task.
_callers: ContextVar[int] = ContextVar("callers", default=0)

_CANCELLED_TASK = "The tool failed: a task that it awaited was cancelled."


class FunctionTools:
    """The functions of a client, which are called like the tools of a server.

    Args:
        functions: Functions, or `FunctionTool`s.
        capabilities: The callbacks that functions can use.
        on_error: Writes the text that the model reads about an exception; None for the usual texts.

    Raises:
        TypeError: A function cannot be a tool.
    """

    name = FUNCTIONS
    settings = None

    def __init__(
        self,
        functions: Iterable[Function | FunctionTool] = (),
        capabilities: ClientCapabilities | None = None,
        on_error: OnToolError | None = None,
    ) -> None:
        self._capabilities = capabilities or ClientCapabilities()
        self._on_error = on_error
        self._definitions: dict[str, FunctionDefinition] = {}
        # By the number of functions that wait for those in the threads.
        self._threads: dict[int, CapacityLimiter] = defaultdict(lambda: CapacityLimiter(MAX_THREADS))
        given: Any = functions  # callers without a type checker may pass any type
        if callable(given) or not isinstance(given, Iterable) or isinstance(given, str | Mapping):
            raise TypeError("tools takes a list of functions: tools=[…]")
        for function in functions:
            self.add(function)

    @property
    def tools(self) -> tuple[FunctionDefinition, ...]:
        """The definitions of the functions."""
        return tuple(self._definitions.values())

    @property
    def revision(self) -> int:
        """A number that changes with each new function."""
        return len(self._definitions)

    def add(self, function: Function | FunctionTool) -> None:
        """Add a function. It is offered from the next round on, also in running turns.

        Raises:
            TypeError: The function cannot be a tool, or there is a tool with its name.
        """
        tool = function if isinstance(function, FunctionTool) else FunctionTool(function)
        definition = define(tool)
        if definition.name in self._definitions:
            raise TypeError(
                f"there is a tool {definition.name!r} already: set another name with FunctionTool(…, name=…)"
            )
        self._definitions[definition.name] = definition

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return an empty text: the program vouches for its functions."""
        return ""

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> ToolCallResult:
        """Call a function, and return its result without an id; an exception in the function is a failure."""
        definition = self._definitions[tool]
        context = Context(tool, on_progress, self._capabilities)
        try:
            positional, keywords = definition.bind(arguments, context)
        except WrongArguments as wrong:
            return ToolCallResult.failed(
                "", Failure.BAD_ARGUMENTS, f"The arguments do not fit: {sanitize(str(wrong))}."
            )
        try:
            value = await self._run(definition, partial(definition.options.function, *positional, **keywords))
            # Within the `try`: a value that cannot be written as JSON is a failure of the function too.
            content = to_content(value)
            return ToolCallResult("", success=True, content=content, value=value, citations=tuple(context.citations))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of a function is its result
            if not isinstance(error, ToolError):
                log.failure("function_failed", error, tool=tool)
            failed = ToolCallResult.failed("", Failure.TOOL, self._describe(error, context))
            return replace(failed, exception=error)
        finally:
            context.end()

    def _describe(self, error: Exception | SystemExit, context: Context) -> str:
        """Return the text for the model about an exception, without its own text, which may have secrets."""
        usual = f"The tool failed: {type(error).__name__}."
        if isinstance(error, ToolError):
            return sanitize(str(error)).strip() or usual
        if self._on_error is None or isinstance(error, SystemExit):
            return usual
        try:
            text = sanitize(self._on_error(error, context) or "").strip()
        except Exception as failure:  # noqa: BLE001 - any exception of the embedding program leaves the usual text
            log.failure("on_tool_error_failed", failure, tool=context.tool)
            return usual
        return text or usual

    async def _run(self, definition: FunctionDefinition, run: Callable[[], Any]) -> Any:
        """Return the value of a function.

        Raises:
            ToolError: A task that the function awaited was cancelled, and the call was not.
        """
        try:
            if definition.is_async:
                return await run()
            # A thread that does not end must not block the end of its turn. The list hides an awaitable value from
            # trio, which refuses a coroutine as the result of a thread.
            threads = self._threads[_callers.get()]
            _callers.set(_callers.get() + 1)  # each call has a task of its own
            [value] = await to_thread.run_sync(lambda: [run()], abandon_on_cancel=True, limiter=threads)
            return await value if inspect.isawaitable(value) else value
        except get_cancelled_exc_class() as error:
            await lowlevel.checkpoint_if_cancelled()
            raise ToolError(_CANCELLED_TASK) from error


def to_content(value: Any) -> Content:
    """Return a value as content: text unchanged, images, documents and parts as parts, anything else as JSON.

    Images are bytes in PNG, JPEG, GIF or WebP format, and objects that notebooks show as an image, such as those of
    Pillow and Matplotlib. A list or tuple that contains such parts becomes one part for each item.

    Raises:
        ValueError: The value contains itself, or cannot be written as JSON.
    """
    part = _to_part(value)
    if part is not None:
        return (part,)
    if isinstance(value, list | tuple) and any(_to_part(item) is not None for item in value):
        return tuple(_to_part(item) or TextPart(_to_text(item)) for item in value)
    return _to_text(value)


def _to_part(value: Any) -> Part | None:
    """Return an image, a document or a part; None for anything else."""
    if isinstance(value, TextPart):
        return replace(value, text=sanitize(value.text))
    if isinstance(value, Part):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return convert_bytes(bytes(value))
    # IPython's display protocol: what notebooks show as an image.
    image = value._repr_png_() if hasattr(value, "_repr_png_") and not isinstance(value, type) else None
    return convert_bytes(image) if isinstance(image, bytes) else None


def _to_text(value: Any) -> str:
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return sanitize(value) or NO_OUTPUT
    from pydantic_core import to_json

    # Pydantic writes models, dataclasses, dates, enums and sets; the fallback writes other objects as text.
    return sanitize(to_json(value, fallback=str, bytes_mode="base64", inf_nan_mode="constants").decode())
