"""Type checks of arguments. Each error names the expected type, the given type and the correction."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from dial_client.messages.errors import ConfigError

# How errors name types that are not called to make a value.
_KINDS = {str: "a string", bool: "True or False"}


def check_members(value: Any, protocol: type, expected: str, hint: str = "") -> None:
    """Check that an object has the members of a protocol.

    Args:
        value: The object.
        protocol: The protocol.
        expected: The description of the expected value, for the error.
        hint: A correction for the error.

    Raises:
        TypeError: The object lacks a member of the protocol.
    """
    names = [name for name in (*inspect.get_annotations(protocol), *vars(protocol)) if not name.startswith("_")]
    missing = [name for name in names if not hasattr(value, name)]
    if inspect.isclass(value):
        hint = f": pass an instance, {value.__name__}(…)"
    elif not missing:
        return
    elif len(missing) < len(names):
        hint = f", which has no {', '.join(missing)}"
    raise TypeError(f"expected {expected}, not {describe_type(value)}{hint}")


def check_types(**options: tuple[Any, type]) -> None:
    """Check the types of options.

    Args:
        **options: The value and the expected type of each option; the value None is always accepted.

    Raises:
        TypeError: An option is of another type.
    """
    for name, (value, kind) in options.items():
        if value is not None and not isinstance(value, kind):
            expected = _KINDS.get(kind, f"{kind.__name__}(…)")
            raise TypeError(f"{name} takes {expected}, not {describe_type(value)}")


def check_items(**options: tuple[Any, type]) -> None:
    """Check the types of options that are lists.

    Args:
        **options: The value of each option, and the expected type of its items.

    Raises:
        TypeError: An option is no list, or an item is of another type.
    """
    for name, (value, kind) in options.items():
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            raise TypeError(f"{name} takes a list, not {describe_type(value)}")
        for item in value:
            if not isinstance(item, kind):
                items = "strings" if kind is str else f"{kind.__name__}s"
                raise TypeError(f"{name} takes a list of {items}, but an item is {describe_type(item)}")


def check_folders(**options: Any) -> None:
    """Check options that take the path of a folder, True or False.

    Raises:
        TypeError: An option is of another type.
    """
    for name, value in options.items():
        if not isinstance(value, bool | str | os.PathLike):
            raise TypeError(f"{name} takes the path of a folder, True or False, not {describe_type(value)}")


def check_seconds(**options: Any) -> None:
    """Check options that are numbers of seconds.

    Raises:
        TypeError: An option is no number.
        ConfigError: A number is negative, or NaN.
    """
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} takes a number of seconds, not {describe_type(value)}")
        if value < 0 or math.isnan(value):
            raise ConfigError(f"{name} must be at least 0 seconds, not {value}")


def check_functions(**options: Any) -> None:
    """Check options that are asynchronous functions, or other objects that can be called; None is accepted.

    Raises:
        TypeError: An option is a class, a function without ``async``, or cannot be called.
    """
    for name, value in options.items():
        if value is not None and (inspect.isclass(value) or not callable(value)):
            raise TypeError(f"{name} takes an asynchronous function, not {describe_type(value)}")
        function = value
        while isinstance(function, partial):
            function = function.func
        # Of an object that is called, only the call itself shows whether it is asynchronous.
        if inspect.isroutine(function) and not inspect.iscoroutinefunction(inspect.unwrap(function)):
            raise TypeError(f"{name} takes an asynchronous function, `async def`, not {describe_type(function)}")
        if name in _PARAMETERS and inspect.isroutine(value) and not _accepts(value, _PARAMETERS[name]):
            raise TypeError(f"{name} takes a function of {', '.join(_PARAMETERS[name])}, not {describe_type(function)}")


# The parameters of functions that every caller would get wrong at the first call alone.
_PARAMETERS = {"approve": ("call", "tool", "context")}


def _accepts(function: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    try:
        inspect.signature(function).bind(*parameters)
    except TypeError:
        return False
    except ValueError:  # its signature is not known
        return True
    return True


def check_plain_functions(**options: Any) -> None:
    """Check options that are functions without ``async``, or other objects that can be called; None is accepted.

    Raises:
        TypeError: An option is a class, an asynchronous function, or cannot be called.
    """
    for name, value in options.items():
        if value is not None and (inspect.isclass(value) or not callable(value)):
            raise TypeError(f"{name} takes a function, not {describe_type(value)}")
        if inspect.iscoroutinefunction(value):
            raise TypeError(f"{name} takes a function without `async`, not {describe_type(value)}")


def is_code(value: Any) -> bool:
    """Return True for a function, a class or a module."""
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def describe_type(value: Any) -> str:
    """Return the type of a value for an error message: ``int``, ``the function add``."""
    if not is_code(value):
        return type(value).__name__
    kind = "class" if inspect.isclass(value) else "module" if inspect.ismodule(value) else "function"
    return f"the {kind} {value.__name__}"
