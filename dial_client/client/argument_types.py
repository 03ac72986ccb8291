"""Type checks of arguments. Each error names the expected type, the given type and the correction."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dial_client.hooks.server_callbacks import Callbacks
from dial_client.messages.errors import ConfigError
from dial_client.messages.model import Provider, ToolFormatHandler
from dial_client.settings.config_types import ModelProfile

_KINDS = {str: "a string", bool: "True or False"}
"""How errors name types that are not called to make a value."""


def check_model(model: Any) -> None:
    """Check that an argument can be a client's model.

    Args:
        model: The name of a model, or a `Provider`.

    Raises:
        TypeError: The argument is neither a name nor a `Provider`.
    """
    if isinstance(model, str):
        return
    hint = ": servers are given by name, DialClient(…, servers={…})" if isinstance(model, Mapping) else ""
    check_members(model, Provider, "the name of a model, or a Provider", hint)
    if inspect.iscoroutinefunction(model.generate):
        name = type(model).__name__
        raise TypeError(f"{name}.generate returns its whole reply: it has to `yield` the deltas, a Completion last")


def check_models(models: Any) -> None:
    """Check that an argument is a mapping of names to model profiles; None is accepted.

    Raises:
        TypeError: The argument is no mapping, or a profile is no `ModelProfile`.
    """
    if models is None:
        return
    if not isinstance(models, Mapping):
        raise TypeError(f"models takes a mapping of names to ModelProfile, not {describe_type(models)}")
    for name, profile in models.items():
        if not isinstance(profile, ModelProfile):
            raise TypeError(f"model {name!r}: expected a ModelProfile, not {describe_type(profile)}")


def check_fallback_models(models: Any) -> None:
    """Check that an argument is a list of models; a string is accepted, because `open_provider` refuses it.

    Raises:
        TypeError: The argument is no list, or an item is neither a name nor a `Provider`.
    """
    if isinstance(models, str):
        return
    if not isinstance(models, Collection) or isinstance(models, Mapping):
        raise TypeError(f"fallback_models takes a list of models, not {describe_type(models)}")
    for model in models:
        check_model(model)


def check_tool_format(tool_format: Any) -> None:
    """Check that an argument names a tool format, or is a `ToolFormatHandler`; None is accepted.

    Raises:
        TypeError: The argument is neither.
    """
    if tool_format is not None and not isinstance(tool_format, str):
        check_members(tool_format, ToolFormatHandler, "the name of a tool format, or a ToolFormatHandler")


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


def check_on_limit(on_limit: Any) -> None:
    """Check that the option ``on_limit`` is ``"answer"``, ``"raise"`` or None.

    Raises:
        ConfigError: The option has another value.
    """
    if on_limit not in (None, "answer", "raise"):
        raise ConfigError(f"unknown on_limit {on_limit!r}", hint='expected "answer" or "raise"')


def check_functions(**options: Any) -> None:
    """Check options that are asynchronous functions, or other objects that can be called; None is accepted.

    Raises:
        TypeError: An option is a class, or cannot be called.
    """
    for name, value in options.items():
        if value is not None and (inspect.isclass(value) or not callable(value)):
            raise TypeError(f"{name} takes an asynchronous function, not {describe_type(value)}")


def check_callbacks(callbacks: Callbacks) -> None:
    """Check the types of callbacks, and that folders for servers are a list.

    Raises:
        ConfigError: A text in place of the function that answers sampling requests is not ``"model"``.
        TypeError: A callback has the wrong type.
    """
    sample: Any = callbacks.sample
    if isinstance(sample, str):
        if sample != "model":
            raise ConfigError(f"unknown sample {sample!r}", hint='expected "model" or an asynchronous function')
        sample = None
    check_functions(elicit=callbacks.elicit, sample=sample, login=callbacks.login)
    on_log: Any = callbacks.on_log
    if on_log is not None and (inspect.isclass(on_log) or not callable(on_log)):
        raise TypeError(f"on_log takes a function, not {describe_type(on_log)}")
    check_types(apps=(callbacks.apps, bool))
    roots: Any = callbacks.roots
    if isinstance(roots, str | bytes | os.PathLike) or not isinstance(roots, Iterable):
        raise TypeError(f"roots takes a list of folders, not {describe_type(roots)}")


def is_code(value: Any) -> bool:
    """Return True for a function, a class or a module."""
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def describe_type(value: Any) -> str:
    """Return the type of a value for an error message: ``int``, ``the function add``."""
    if not is_code(value):
        return type(value).__name__
    kind = "class" if inspect.isclass(value) else "module" if inspect.ismodule(value) else "function"
    return f"the {kind} {value.__name__}"
