"""Agents that the user names at the start of a message (``@reviewer look at the diff``), and the calls of them.

The host makes these calls itself, before it asks the model: which agent works on the message is then the choice of the
user, and no model can leave it out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from dial_client.messages.message import MAIN, Message, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.providers.tool_call_codec import create_call_id
from dial_client.settings.agent import AGENTS
from dial_client.tools.catalog import HAND_BACK, Route

# The most agents that one message calls.
MAX_MENTIONED = 8
_MENTION = r"\s*@([a-z0-9]+(?:-[a-z0-9]+)*)(?=\s|\Z)"


def list_agents(tools: Collection[ToolSpec]) -> dict[str, str]:
    """Return the agents among tools: the first line of each description, by the name of the agent."""
    return {tool.tool: tool.description.partition("\n")[0] for tool in tools if tool.server == AGENTS}


def split_mentions(text: str, agents: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return the agents that a text names at its start, each once, and the rest of the text.

    A name later in the text is text: only the start of a message says for whom it is.
    """
    names: dict[str, None] = {}
    end, pattern = 0, re.compile(_MENTION)
    while (mention := pattern.match(text, end)) and mention[1] in agents and len(names) < MAX_MENTIONED:
        names[mention[1]] = None
        end = mention.end()
    return tuple(names), text[end:].lstrip() if names else text


def build_agent_calls(question: Message, routes: Mapping[str, Route]) -> tuple[ToolCallRequest, ...]:
    """Return the calls of the agents that a question names at its start; empty if it names none, or has no task.

    The task of each is the rest of the text, with the attached texts: an agent sees nothing else of the conversation,
    unless it takes the conversation over.

    Args:
        question: The last message of a conversation.
        routes: The routes of the tools of the turn, by their offered names.
    """
    parts = (TextPart(question.content),) if isinstance(question.content, str) else question.content
    first = parts[0] if parts else None
    # What a server has written names nobody.
    if question.role is not Role.USER or question.steers or not isinstance(first, TextPart) or first.foreign:
        return ()
    if "@" not in first.text[:1] and not first.text[:1].isspace():
        return ()
    offered = {route.spec.tool: name for name, route in routes.items() if route.spec.server == AGENTS}
    if HAND_BACK in routes:
        offered[MAIN] = HAND_BACK
    names, rest = split_mentions(first.text, offered)
    texts = [rest, *(part.text for part in parts[1:] if isinstance(part, TextPart))]
    task = "\n\n".join(filter(str.strip, texts))
    calls: list[ToolCallRequest] = []
    for name in (offered[name] for name in names):
        # Who takes the conversation over reads the message itself.
        if "task" not in routes[name].spec.input_schema.get("properties", {}):
            calls.append(ToolCallRequest(create_call_id(), name, {}))
        elif task:
            calls.append(ToolCallRequest(create_call_id(), name, {"task": task}))
    return tuple(calls)
