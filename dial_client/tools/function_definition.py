"""The definition of a Python function as a tool: its name, description and parameters.

The parameters are a JSON Schema for the model; pydantic validates the arguments of a call by the same annotations.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar, Union, get_args, get_origin, get_type_hints

from dial_client.messages.message import Icon
from dial_client.schema.docstrings import parse_docstring
from dial_client.tools.function_context import Context

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Function = Callable[..., Any]


class WrongArguments(Exception):
    """The arguments do not fit the annotations of the function. Users never see this error."""


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


@dataclass(frozen=True)
class FunctionDefinition:
    """The definition of one function, with the same attributes as the definition of a server's tool."""

    options: FunctionTool
    name: str
    title: str | None
    description: str
    input_schema: dict[str, Any] = field(repr=False)
    """The JSON Schema of the arguments, without the parameters that the model does not see."""
    adapter: TypeAdapter[Any] = field(repr=False)
    """Validates a JSON object of arguments; returns the values by the names of their parameters."""
    positional: tuple[str, ...]
    """The positional-only parameters."""
    context: str
    """The parameter that receives the `Context`; empty if there is none."""
    output_schema: None = None
    icons: tuple[Icon, ...] = ()
    meta: None = None

    @property
    def annotations(self) -> Any:
        """The hints about the tool, with the names of MCP's annotations."""
        tool = self.options
        return types.SimpleNamespace(
            title=tool.title,
            read_only_hint=tool.read_only,
            idempotent_hint=tool.idempotent,
            destructive_hint=tool.destructive,
            open_world_hint=tool.open_world,
        )

    @cached_property
    def is_async(self) -> bool:
        """Whether the function is ``async``, and so runs in the event loop."""
        function = self.options.function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_unwrap(function))

    def bind(self, arguments: Mapping[str, Any], context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword values of a call, such as dates and models built from JSON.

        Raises:
            WrongArguments: The arguments do not fit the annotations.
        """
        from pydantic import ValidationError

        try:
            # The model writes the arguments: the function gets nothing that its annotations do not accept.
            # Validate JSON text, because strict annotations accept fewer Python values.
            values = dict(self.adapter.validate_json(json.dumps(dict(arguments))))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            texts = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
            raise WrongArguments("; ".join(texts)) from None
        if self.context:
            values[self.context] = context
        return [values.pop(name) for name in self.positional if name in values], values


def define(tool: FunctionTool) -> FunctionDefinition:
    """Return the definition of a tool.

    Raises:
        TypeError: The function cannot be a tool.
    """
    function: object = tool.function
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"expected a function as a tool, not {function!r}")
    inner = _unwrap(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise TypeError(f"{_describe_function(inner)} is a generator: a tool must return its result, such as a list")
    name = tool.name or _find_name(tool.function)
    if name == "<lambda>":
        raise TypeError("a lambda has no name: use FunctionTool(…, name=…)")
    docstring = parse_docstring(inspect.getdoc(inner) or "")
    parameters = list(_read_parameters(function))
    # The model must not see the context's parameter, because it could then pass a value of its own for it.
    context = next((parameter.name for parameter in parameters if _is_context(parameter.annotation)), "")
    adapter, schema = _build_schema([parameter for parameter in parameters if parameter.name != context], function)
    for parameter, about in schema.get("properties", {}).items():
        if docstring.parameters.get(parameter):
            about.setdefault("description", docstring.parameters[parameter])
    positional = tuple(parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY)
    description = tool.description or docstring.description
    return FunctionDefinition(tool, name, tool.title, description, schema, adapter, positional, context)


def _find_name(function: Function) -> str:
    """Return the name of a function; for any other callable, the name of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return function.__name__ if inspect.isroutine(function) else type(function).__name__


def _describe_function(function: Function) -> str:
    """Return the name of a function for an error message."""
    return function.__qualname__ if inspect.isroutine(function) else repr(function)


def _unwrap(function: Function) -> Function:
    """Return the function below a `functools.partial`, or the ``__call__`` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def _read_parameters(function: Function) -> Iterator[inspect.Parameter]:
    """Yield the parameters a caller can set, with annotations that are resolved from their texts."""
    hints = _read_hints(function)
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise TypeError(f"{_describe_function(function)} has no signature: wrap it in a function") from None
    bound = function.keywords if isinstance(function, functools.partial) else {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(
                f"{_describe_function(function)} takes *{name}, which has no JSON Schema: use a list parameter instead"
            )
        if name not in bound:
            annotation = hints.get(name, Any)
            yield parameter.replace(annotation=annotation)


def _read_hints(function: Function) -> dict[str, Any]:
    """Return the annotations of the parameters. The annotation of the result is ignored, as it may be undefined."""
    inner = _unwrap(function)
    annotations = {name: hint for name, hint in inspect.get_annotations(inner).items() if name != "return"}
    # Annotations are texts in modules with `from __future__ import annotations`: their names are those of the module of
    # the innermost function, below decorators.
    source = inspect.unwrap(inner.__func__ if isinstance(inner, types.MethodType) else inner)
    names = source.__globals__ if isinstance(source, types.FunctionType) else {}
    try:
        return get_type_hints(types.SimpleNamespace(__annotations__=annotations), names, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotation {error.name!r} of {_describe_function(function)} is not defined: import or define it "
            "at the top of the module, outside of `if TYPE_CHECKING`"
        ) from None
    except (AttributeError, SyntaxError) as error:
        raise TypeError(f"an annotation of {_describe_function(function)} cannot be read: {error}") from None


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return Context in get_args(annotation)
    return annotation is Context


def _build_schema(parameters: list[inspect.Parameter], function: Function) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
    from pydantic.json_schema import GenerateJsonSchema

    class WithoutFieldTitles(GenerateJsonSchema):
        """A generator of schemas without the titles that only repeat the names of fields."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
            return False

    def collect_arguments(**values: Any) -> dict[str, Any]:
        return values

    # Build a function with the same parameters, all keyword-only. A model would restrict the names of its fields.
    named = [
        parameter if parameter.kind is parameter.VAR_KEYWORD else parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in parameters
    ]
    collect_arguments.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    collect_arguments.__annotations__ = {parameter.name: parameter.annotation for parameter in named}
    try:
        adapter: TypeAdapter[Any] = TypeAdapter[Any](collect_arguments)  # type: ignore[arg-type]  # a function is one
        return adapter, adapter.json_schema(schema_generator=WithoutFieldTitles)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        problem = str(error).splitlines()[0]
        raise TypeError(f"a parameter of {_describe_function(function)} has no JSON Schema: {problem}") from None
