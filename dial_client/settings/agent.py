"""`Agent`: a model with instructions and tools of its own, which works on tasks that another model gives it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from dial_client.messages.limits import Limits
from dial_client.messages.message import MAIN
from dial_client.messages.model import Provider
from dial_client.runtime.foreign_names import refuse_names
from dial_client.settings.argument_types import check_items, check_types

# The server name of agents in events, in patterns and in the audit log.
AGENTS = "agents"
_NAME = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_MAX_NAME = 40


@refuse_names(instructions="system", prompt="system", system_prompt="system")
@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, which the model calls like a tool: ``Agent("reviewer", "Reviews a change.", tools=["git/*"])``.

    Each call is a turn of the same client, which begins with the task alone: the agent sees nothing of the
    conversation. What it says at the end is the result.

    Raises:
        ValueError: The name has other characters than lowercase letters, digits and single hyphens, or more than 40, or
            is ``main``; or the description is empty.
        TypeError: A field has the wrong type.
    """

    name: str
    """The name of the tool; in patterns ``agents/NAME``."""
    description: str
    """What the agent does, and when to ask it, for the model that calls it."""
    _: KW_ONLY
    system: str = ""
    """The instructions of the agent."""
    model: str | Provider | None = None
    """The model, as for `DialClient`; None for the model of the turn that calls the agent."""
    tools: Iterable[str] | None = None
    """Patterns of the tools that the agent can call, as the keyword `tools` of a turn; None for all tools, but no
    agents. Other agents are named: ``agents/linter``."""
    handoff: bool = False
    """Whether the agent takes the conversation over when the model calls it, in place of working on a task: from then
    on its instructions, model, tools and limits are those of the conversation, until it hands the conversation back."""
    limits: Limits | None = None
    """The limits of each of its turns; None for those of the client. The tokens and the time of the turn that calls the
    agent hold as well."""

    def __post_init__(self) -> None:
        check_types(name=(self.name, str), description=(self.description, str), system=(self.system, str))
        check_types(limits=(self.limits, Limits), handoff=(self.handoff, bool))
        if len(self.name) > _MAX_NAME or re.fullmatch(_NAME, self.name) is None:
            rule = "lowercase letters a-z, digits, and single hyphens between them"
            raise ValueError(f"{self.name[:_MAX_NAME]!r} is not the name of an agent: {rule}")
        if self.name == MAIN:
            raise ValueError(f"no agent can be named {MAIN!r}: it is the name of the conversation's own model")
        if not self.description.strip():
            raise ValueError(f"the agent {self.name!r} has no description, by which the model chooses it")
        given: Any = self.tools  # callers without a type checker may pass any type
        if given is not None:
            if isinstance(given, Iterable) and not isinstance(given, str):
                object.__setattr__(self, "tools", tuple(given))
            check_items(tools=(self.tools, str))


# An agent, or the path of its file or of a folder with such files.
AgentSource = Agent | str | os.PathLike[str]
