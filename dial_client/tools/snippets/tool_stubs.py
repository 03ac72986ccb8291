"""Tools as declarations of Python functions, for the model and for the type checker of the sandbox.

The text depends on the tools alone, in the order of their names, so that it stays the same from turn to turn. Whatever
a server has written is in it as a comment in one line, or as a literal: it cannot become code.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.runtime.safe_text import to_one_line
from dial_client.tools.function_context import FUNCTIONS

# Characters of the description of a tool, and of one of its parameters.
MAX_DESCRIPTION, MAX_PARAMETER = 300, 100
# Levels of objects within a result that are declared, and members of one object.
_MAX_LEVELS, _MAX_MEMBERS = 3, 40
# Values of an enumeration that are named.
_MAX_VALUES = 20
# What the type checker needs besides the tools: also built-ins that the interpreter (1.4) has, but does not declare,
# and what the names that earlier programs have left are taken from.
HEAD = """\
from typing import Any, Literal, NotRequired, TypedDict
class PermissionError(OSError): ...
class FileNotFoundError(OSError): ...
class FileExistsError(OSError): ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class UnboundLocalError(NameError): ...
class UnicodeDecodeError(ValueError): ...
class UnicodeEncodeError(ValueError): ...
def map(function: Any, *values: Any) -> Any: ...
def filter(function: Any, values: Any) -> Any: ...
def format(value: Any, form: str = ...) -> str: ...
def getattr(value: Any, name: str, default: Any = ...) -> Any: ...
def hasattr(value: Any, name: str) -> bool: ...
def setattr(value: Any, name: str, new: Any) -> None: ...
def kept_names() -> Any: ...
"""
_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RESERVED = {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "asyncio", "json", "re", "math", "datetime"}


def to_function_names(tools: Iterable[str]) -> dict[str, str]:
    """Return the offered name of each tool by the name of its function, which is a name of Python and no built-in."""
    names: dict[str, str] = {}
    for tool in sorted(tools):
        name = tool.replace("-", "_")
        name = f"_{name}" if name[:1].isdigit() else name
        while name in names or name in _RESERVED:
            name += "_"
        names[name] = tool
    return names


@dataclass(eq=False)
class _Types:
    """The types of one tool, as they are found in its schemas."""

    prefix: str
    classes: list[str] = field(default_factory=list)
    definitions: Mapping[str, Any] = field(default_factory=dict)

    def write(self, schema: Any, name: str = "", level: int = 0) -> str:
        """Return the type of the values that fit a schema; ``Any`` for what Python's types cannot say in short."""
        if not isinstance(schema, Mapping) or level > _MAX_LEVELS:
            return "Any"
        if (target := self._resolve(schema)) is not None:
            return self.write(target, name, level + 1)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list) and values:
            return _write_literals(values)
        for key in ("anyOf", "oneOf"):
            if isinstance(members := schema.get(key), list) and members:
                return self._unite(members, name, level)
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self._unite([{**schema, "type": type_} for type_ in kind], name, level)
        if kind == "array":
            return f"list[{self.write(schema.get('items'), f'{name}Item', level)}]"
        if kind == "object":
            return self._write_object(schema, name, level)
        return _NAMES.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _resolve(self, schema: Mapping[str, Any]) -> Any:
        reference = schema.get("$ref")
        found = re.fullmatch(r"#/(?:\$defs|definitions)/([^/]+)", reference) if isinstance(reference, str) else None
        return self.definitions.get(found[1]) if found else None

    def _unite(self, members: Sequence[Any], name: str, level: int) -> str:
        types = list(dict.fromkeys(self.write(member, name, level) for member in members[:_MAX_VALUES]))
        return "Any" if "Any" in types or len(members) > _MAX_VALUES else " | ".join(types)

    def _write_object(self, schema: Mapping[str, Any], name: str, level: int) -> str:
        properties = schema.get("properties")
        # Results have classes, so that a member that is not there is found before the snippet runs.
        is_named = bool(name) and isinstance(properties, Mapping) and 0 < len(properties) <= _MAX_MEMBERS
        if not is_named or not all(isinstance(key, str) and is_identifier(key) for key in properties or ()):
            return "dict[str, Any]"
        assert isinstance(properties, Mapping)
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        lines = []
        for key, member in properties.items():
            type_ = self.write(member, f"{name}{key.title().replace('_', '')}", level + 1)
            lines.append(f"    {key}: {type_ if key in required else f'NotRequired[{type_}]'}\n")
        class_name = f"{self.prefix}{name}"
        self.classes.append(f"class {class_name}(TypedDict):\n{''.join(lines)}")
        return class_name


def is_identifier(name: str) -> bool:
    """Return whether a name can be that of a parameter."""
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def _write_literals(values: Sequence[Any]) -> str:
    plain = [value for value in values if value is None or isinstance(value, str | int | bool)]
    if len(plain) < len(values) or len(values) > _MAX_VALUES:
        return "Any"
    # `ascii` also escapes line breaks: a server's value cannot end the line.
    return f"Literal[{', '.join(ascii(value) for value in plain)}]"


def write_stub(function: str, tool: ToolSpec) -> str:
    """Return the declaration of a tool as an asynchronous function with keyword parameters."""
    schema = tool.original_schema or tool.input_schema
    types = _Types("", definitions=_find_definitions(schema))
    parameters = ", ".join(_write_parameters(schema, types))
    parameters = f"*, {parameters}" if parameters and not parameters.startswith("**") else parameters
    result = _Types(f"{function}_", definitions=_find_definitions(tool.output_schema or {}))
    returned = _write_result(tool, result)
    head = "".join(result.classes)
    return f"{head}async def {function}({parameters}) -> {returned}:\n    {_write_docstring(schema, tool)}\n"


def _write_result(tool: ToolSpec, types: _Types) -> str:
    if tool.output_schema:
        return types.write(tool.output_schema, "Result")
    return "Any" if tool.server == FUNCTIONS else "str"


def _find_definitions(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("$defs", "definitions"):
        if isinstance(found := schema.get(key), Mapping):
            return found
    return {}


def _write_parameters(schema: Mapping[str, Any], types: _Types) -> Iterator[str]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    if not all(isinstance(name, str) and is_identifier(name) for name in properties):
        yield "**arguments: Any"
        return
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    for name in sorted(properties, key=lambda name: name not in required):
        yield f"{name}: {types.write(properties[name])}{'' if name in required else ' = ...'}"
    # By default, JSON Schema allows members that are not named; declared everywhere, they would hide typing errors.
    if schema.get("additionalProperties", not properties) is not False:
        yield "**arguments: Any"


def _write_docstring(schema: Mapping[str, Any], tool: ToolSpec) -> str:
    properties = schema.get("properties")
    texts = [to_one_line(tool.description, MAX_DESCRIPTION)]
    for name, member in (properties if isinstance(properties, Mapping) else {}).items():
        text = member.get("description") if isinstance(member, Mapping) else None
        if isinstance(text, str) and text.strip():
            texts.append(f"{to_one_line(str(name), MAX_PARAMETER)}: {to_one_line(text, MAX_PARAMETER)}")
    text = " · ".join(filter(None, texts)).replace("\\", "/").replace('"', "'")
    return f'"""{text}"""'
