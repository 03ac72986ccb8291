"""The names that other libraries have for arguments and attributes, for errors that say the name here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

ClassT = TypeVar("ClassT", bound=type)


def find_name(given: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the first foreign name among keyword arguments with what to use here: ``max_turns: use max_depth``.

    Args:
        given: The keyword arguments.
        names: What to use here, by the foreign name.

    Returns:
        The text; empty if no argument has a foreign name.
    """
    return next((f"{name}: use {names[name]}" for name in given if name in names), "")


def refuse_names(**names: str) -> Callable[[ClassT], ClassT]:
    """Return a decorator of a class, which then refuses foreign names of arguments with a `TypeError` that helps.

    Args:
        **names: What to use here, by the foreign name.
    """

    def decorate(cls: ClassT) -> ClassT:
        init: Any = cls.__init__  # type: ignore[misc]  # of this very class

        @wraps(init)
        def check_and_init(self: Any, *arguments: Any, **keywords: Any) -> None:
            try:
                init(self, *arguments, **keywords)
            except TypeError as error:
                # Looked for only after the failure: objects are built in each round of a turn.
                if found := find_name(keywords, names):
                    raise TypeError(f"{cls.__name__} has no {found}") from error
                raise

        cls.__init__ = check_and_init  # type: ignore[misc]
        return cls

    return decorate


def refuse_attributes(*, with_statement: str = "", **names: str) -> Callable[[ClassT], ClassT]:
    """Return a decorator of a class whose missing attributes raise an `AttributeError` that says what to use.

    The class is changed behind the back of type checkers, which go on to report each such attribute.

    Args:
        with_statement: What to use in place of ``with`` on an object; empty to leave ``with`` alone.
        **names: What to use here, by the foreign name.
    """

    def decorate(cls: ClassT) -> ClassT:
        def explain(self: Any, name: str) -> Any:
            if hasattr(cls, name):  # a property that raised an `AttributeError` itself
                return object.__getattribute__(self, name)
            hint = f": use {names[name]}" if name in names else ""
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

        def refuse(self: Any, *error: Any) -> Any:  # noqa: ARG001 - the arguments of `with`
            raise TypeError(f"{cls.__name__} cannot be used in `with`: use {with_statement}")

        cls.__getattr__ = explain  # type: ignore[attr-defined]
        if with_statement:
            cls.__enter__ = cls.__exit__ = refuse  # type: ignore[attr-defined]
        return cls

    return decorate
