"""Type checks of arguments. Each error names the expected type, the given type and the correction."""

from __future__ import annotations

import inspect
from typing import Any

from dial_client.errors import ConfigError
from dial_client.model import Provider


def check_model(model: Any) -> None:
    """Check that an argument can be a client's model.

    Args:
        model: The name of a model, or a `Provider`.

    Raises:
        TypeError: The argument is neither a name nor a `Provider`.
    """
    if isinstance(model, str):
        return
    check_members(model, Provider, "the name of a model, or a Provider")
    if inspect.iscoroutinefunction(model.generate):
        name = type(model).__name__
        raise TypeError(f"{name}.generate returns its whole reply: it has to `yield` the deltas, a Completion last")


def check_members(value: Any, protocol: type, expected: str, hint: str = "") -> None:
    """Check that an object has the members of a protocol.

    Args:
        value: The object.
        protocol: The protocol.
        expected: The description of the expected value, for the error.
        hint: A correction for the error; empty for none.

    Raises:
        TypeError: The object lacks a member of the protocol.
    """
    names = [name for name in vars(protocol) if not name.startswith("_")]
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
            raise TypeError(f"{name} takes {kind.__name__}(…), not {describe_type(value)}")


def check_on_limit(on_limit: Any) -> None:
    """Check that the option ``on_limit`` is ``"answer"``, ``"raise"`` or None.

    Raises:
        ConfigError: The option has another value.
    """
    if on_limit not in (None, "answer", "raise"):
        raise ConfigError(f"unknown on_limit {on_limit!r}", hint='expected "answer" or "raise"')


def check_approver(approve: Any) -> None:
    """Check that an approver is callable; None is accepted.

    Raises:
        TypeError: The approver is not callable.
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
