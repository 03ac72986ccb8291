"""What a turn is called with: its messages, the keywords of all methods that run a turn, and the tools it offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypedDict

from dial_client.messages.limits import Limits
from dial_client.messages.message import Message, ToolSpec
from dial_client.messages.model import ModelSettings, Provider
from dial_client.messages.turn_result import Turn
from dial_client.runtime.foreign_names import find_name
from dial_client.settings.argument_types import check_items, check_types
from dial_client.settings.policy_config import matches, restricts
from dial_client.tools.tool_selection import ToolSnapshot
from dial_client.turns.client_model import check_model

TurnInput = str | Message | Sequence[Message]
"""A conversation: its messages, a single message, or the text of a single user message."""


class TurnKeywords(TypedDict, total=False):
    """The keywords of every method that runs a turn. A keyword that is left out, or None, has the client's value.

    ``output_type``, the type of the answer, is a further keyword of these methods.
    """

    model: str | Provider | None
    """The model of this turn, as for `DialClient`. The caller closes a `Provider`."""
    system: str | None
    """Instructions for conversations that do not begin with a system message; empty for none, not even the host's own
    guidance on tools."""
    limits: Limits | None
    """The limits of this turn."""
    tools: Sequence[str] | None
    """Patterns of the tools that the model can call: ``["time/*"]`` only these, ``["!web/*"]`` all but these, ``[]`` no
    tools. Functions are ``functions/NAME``. Patterns with ``!`` precede the others."""
    settings: ModelSettings | None
    """How the model writes its replies."""
    history: Sequence[Message] | None
    """The messages before the question."""
    owner: str | None
    """The person that the turn is for, in the words of your program. An approval for the session applies to the turns
    of the same owner (`Approval`); a conversation is found only with its own owner."""
    wait_for_background: bool | None
    """True for an answer that has the results of calls in the background: if the model answers while such calls run,
    the turn waits for their end, no longer than its timeout, and the model answers with their results."""


# What is called otherwise in other libraries, or has its place in the value of a keyword.
_FOREIGN_KEYWORDS = {
    **{item.name: f"settings=ModelSettings({item.name}=…)" for item in fields(ModelSettings)},
    **dict.fromkeys(("max_turns", "max_steps", "max_depth", "recursion_limit"), "limits=Limits(max_depth=…)"),
    "model_settings": "settings",
    "timeout": "limits=Limits(timeout=…)",
    "usage_limits": "limits",
    "instructions": "system",
    "system_prompt": "system",
    "message_history": "history",
    "response_format": "output_type",
    "response_model": "output_type",
    "output_schema": "output_type",
    "result_type": "output_type",
    "toolsets": "tools, with patterns of the client's tools",
}


def to_messages(conversation: TurnInput) -> tuple[Message, ...]:
    """Return the messages of a conversation.

    Raises:
        TypeError: `conversation` is neither a string, a `Message` nor a sequence of `Message`s.
    """
    if isinstance(conversation, str):
        return (Message.user(conversation),)
    if isinstance(conversation, Message):
        return (conversation,)
    # Callers without a type checker may pass any type.
    items: Any = conversation
    if not isinstance(items, Sequence) or isinstance(items, bytes | bytearray):
        hint = ": its .messages are a sequence" if isinstance(items, Turn) else ""
        raise TypeError(f"expected a text, a Message or a sequence of Messages, not {type(items).__name__}{hint}")
    for index, message in enumerate(items):
        if not isinstance(message, Message):
            kind = type(message).__name__
            hint = {"str": ": use Message.user(text)", "dict": ": use Message.from_dict(data)"}.get(kind, "")
            raise TypeError(f"expected Messages, but item {index} is of type {kind}{hint}")
    return tuple(items)


def check_keywords(keywords: Mapping[str, Any]) -> None:
    """Check the names and types of the keywords of a turn.

    Raises:
        TypeError: A keyword is unknown, or its value has the wrong type.
    """
    names = TurnKeywords.__annotations__
    if found := find_name(keywords, _FOREIGN_KEYWORDS):
        raise TypeError(f"a turn has no keyword {found}")
    if unknown := sorted(keywords.keys() - names.keys()):
        raise TypeError(f"unknown keyword {unknown[0]!r}: a turn takes {', '.join(names)} and output_type")
    check_types(limits=(keywords.get("limits"), Limits), system=(keywords.get("system"), str))
    check_types(owner=(keywords.get("owner"), str))
    check_types(wait_for_background=(keywords.get("wait_for_background"), bool))
    check_types(settings=(keywords.get("settings"), ModelSettings))
    if (model := keywords.get("model")) is not None:
        check_model(model)
    if (tools := keywords.get("tools")) is not None:
        check_items(tools=(tools, str))
    to_messages(keywords.get("history") or ())


def merge_keywords(defaults: TurnKeywords, keywords: TurnKeywords) -> TurnKeywords:
    """Return the keywords with those of `defaults` for keywords, and for `ModelSettings`, that are left out or None."""
    given: Any = {name: value for name, value in keywords.items() if value is not None}
    merged: TurnKeywords = {**defaults, **given}
    settings, default_settings = keywords.get("settings"), defaults.get("settings")
    if settings is not None and default_settings is not None:
        merged["settings"] = settings.with_defaults(default_settings)
    return merged


def select_tools(
    snapshot: Callable[[], ToolSnapshot], patterns: Sequence[str] | None, hidden: Collection[str] = ()
) -> Callable[[], ToolSnapshot]:
    """Return a function that returns the current tools without those that a turn leaves out.

    Args:
        snapshot: Returns all current tools.
        patterns: The keyword ``tools`` of the turn.
        hidden: The offered names of further tools to leave out.
    """
    if patterns is None and not hidden:
        return snapshot
    denied = [pattern[1:] for pattern in patterns or () if pattern.startswith("!")]
    allowed = [pattern for pattern in patterns or () if not pattern.startswith("!")]
    # Only patterns with "!": all other tools are offered.
    allowed = allowed or (["*"] if denied or patterns is None else [])

    def is_offered(tool: ToolSpec) -> bool:
        return (
            tool.name not in hidden
            and any(matches(pattern, tool.server, tool.tool) for pattern in allowed)
            and not any(restricts(pattern, tool.server, tool.tool) for pattern in denied)
        )

    def select(current: ToolSnapshot) -> ToolSnapshot:
        catalog = current.catalog
        # A route that is missing makes a call of its tool fail, also if the model guesses the name.
        routes = {name: route for name, route in catalog.routes.items() if is_offered(route.spec)}
        tools = tuple(route.spec for route in routes.values())
        own_routes = tuple(route for route in current.own if is_offered(route.spec))
        return replace(current, catalog=replace(catalog, tools=tools, routes=routes), own=own_routes)

    key = (patterns if patterns is None else tuple(patterns), frozenset(hidden))
    return lambda: snapshot().derive(key, select)
