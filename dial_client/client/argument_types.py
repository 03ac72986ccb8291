"""Errors for arguments of the wrong type: what was expected, what was given, and what to write in its place."""

from __future__ import annotations

import inspect
from typing import Any

from dial_client.errors import ConfigError
from dial_client.model import Provider


def check_model(model: Any) -> None:
    """Check that an object can be a client's model.

    Args:
        model: A name of a model, or an object in place of one.

    Raises:
        TypeError: it is neither a name nor a `Provider`.
    """
    if isinstance(model, str):
        return
    check_members(model, Provider, "the name of a model, or a Provider")
    if inspect.iscoroutinefunction(model.generate):
        name = type(model).__name__
        raise TypeError(f"{name}.generate returns its reply as a whole: it has to `yield` it, a Completion last")


def check_members(value: Any, protocol: type, expected: str, hint: str = "") -> None:
    """Check that an object has the members of a protocol.

    Args:
        value: The object.
        protocol: The protocol.
        expected: What was expected, for the error.
        hint: What to write in its place; empty if that is not known.

    Raises:
        TypeError: it has not.
    """
    names = [name for name in vars(protocol) if not name.startswith("_")]
    missing = [name for name in names if not hasattr(value, name)]
    if inspect.isclass(value):
        hint = f": give an object of it, {value.__name__}(…)"
    elif not missing:
        return
    elif len(missing) < len(names):
        hint = f", which has no {', '.join(missing)}"
    raise TypeError(f"expected {expected}, not {describe_type(value)}{hint}")


def check_options(on_limit: Any = None, **options: tuple[Any, type]) -> None:
    """Check that options have their types.

    Args:
        on_limit: The option of this name.
        **options: For each other option its value, and its type; None is a value of any.

    Raises:
        ConfigError: there is no such `on_limit`.
        TypeError: an option has another type.
    """
    for name, (value, kind) in options.items():
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} takes {kind.__name__}(…), not {describe_type(value)}")
    if on_limit not in (None, "answer", "raise"):
        raise ConfigError(f"unknown on_limit {on_limit!r}", hint='expected "answer" or "raise"')


def check_approver(approve: Any) -> None:
    """Check that an object can be called as an approver.

    Raises:
        TypeError: it is no function.
    """
    if approve is not None and not callable(approve):
        raise TypeError(f"approve takes an asynchronous function, not {describe_type(approve)}")


def is_code(value: Any) -> bool:
    """Return True for a function, a class or a module."""
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def describe_type(value: Any) -> str:
    """Return the type of a value for an error message: ``int``, ``the function add``."""
    if not is_code(value):
        return type(value).__name__
    kind = "class" if inspect.isclass(value) else "module" if inspect.ismodule(value) else "function"
    return f"the {kind} {value.__name__}"
