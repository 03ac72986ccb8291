"""The definition of a Python function as a tool: its name, description and parameters."""

from __future__ import annotations

import functools
import inspect
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, TypedDict, TypeVar

from dial_client.messages.message import Icon
from dial_client.schema.docstrings import parse_docstring
from dial_client.tools.function_signature import (
    Function,
    FunctionSignature,
    describe_function,
    read_signature,
    unwrap,
)


@dataclass(frozen=True)
class FunctionTool:
    """A function as a tool, with more information than its name, docstring and annotations contain.

    Args:
        function: A function, a method, or any other callable; with ``async`` or without.
    """

    function: Function
    _: KW_ONLY
    name: str = ""
    """The tool's name; if empty, the name of the function."""
    description: str = ""
    """The description for the model; if empty, the docstring of the function."""
    title: str | None = None
    """The name shown to users."""
    read_only: bool = False
    """Whether the function changes nothing."""
    idempotent: bool = False
    """Whether a repeated call has no further effect."""
    destructive: bool | None = None
    """Whether the function may destroy data; None if not declared, which counts as True."""
    open_world: bool | None = None
    """Whether the function reaches other systems, such as the web; None if not declared, which counts as True."""


FunctionT = TypeVar("FunctionT", bound=Function)


class FunctionOptions(TypedDict, total=False):
    """The fields of `FunctionTool` without the function, for the decorator."""

    name: str
    description: str
    title: str | None
    read_only: bool
    idempotent: bool
    destructive: bool | None
    open_world: bool | None


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The hints of a tool, with the names of MCP's annotations."""

    title: str | None
    read_only_hint: bool
    idempotent_hint: bool
    destructive_hint: bool | None
    open_world_hint: bool | None


@dataclass(frozen=True)
class FunctionDefinition:
    """The definition of one function, with the same attributes as the definition of a server's tool."""

    options: FunctionTool
    name: str
    title: str | None
    description: str
    signature: FunctionSignature = field(repr=False)
    output_schema: None = None
    icons: tuple[Icon, ...] = ()
    meta: None = None

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return dict(self.signature.schema)

    @property
    def annotations(self) -> _Annotations:
        """The hints about the tool."""
        tool = self.options
        return _Annotations(tool.title, tool.read_only, tool.idempotent, tool.destructive, tool.open_world)

    @cached_property
    def is_async(self) -> bool:
        """Whether the function is ``async``, and so runs in the event loop."""
        function = self.options.function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(unwrap(function))


def define(tool: FunctionTool) -> FunctionDefinition:
    """Return the definition of a tool.

    Raises:
        TypeError: The function cannot be a tool.
    """
    function: object = tool.function
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"expected a function as a tool, not {function!r}")
    inner = unwrap(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise TypeError(f"{describe_function(inner)} is a generator: a tool must return its result, such as a list")
    name = tool.name or _find_name(tool.function)
    if name == "<lambda>":
        raise TypeError("a lambda has no name: use FunctionTool(…, name=…)")
    docstring = parse_docstring(inspect.getdoc(inner) or "")
    signature = read_signature(function, docstring.parameters)
    return FunctionDefinition(tool, name, tool.title, tool.description or docstring.description, signature)


def _find_name(function: Function) -> str:
    """Return the name of a function; for any other callable, the name of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return function.__name__ if inspect.isroutine(function) else type(function).__name__
