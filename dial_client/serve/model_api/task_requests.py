"""Recognizes requests that no person sent: chat programs ask the model for titles, tags and follow-up questions.

They send these requests to the model of the conversation, several for each message of the person. With tools, a model
may call them again, and a call with a side effect would run several times. A program that says so itself is safer than
these texts: the name of a model with ``:plain``, or the header ``X-Dial-Plain``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dial_client.messages.message import Message, Role

# The beginnings of instructions, by program: opencode, Crush, Qwen Code, Open WebUI.
_INSTRUCTIONS = re.compile(
    r"You are a title generator\. You output ONLY"
    r"|You will generate a short title based on the first message a user begins a conversation with"
    r"|You are selecting memories that will be useful to an AI coding assistant"
    r"|You are now acting as the managed memory extraction subagent"
    r"|You are performing a managed memory dream"
    r"|Generate a concise, sentence-case title \(3-7 words\) that captures what this programming-assistant session"
    r"|Generate a short kebab-case name \(2-4 words\) that captures the main topic of this conversation"
    r"|Available Tools: .{0,200000}?Your task is to choose and return the correct tool\(s\) from the list",
    re.DOTALL,
)
# The whole conversation of a task of Open WebUI is one message. That of a question about documents begins with
# "### Task:" too, but has no history of the chat in it.
_QUESTIONS = re.compile(
    r"### Task:\n(?=.*<chat_history>)"
    r"|Your task is to reflect the speaker's likely facial expression through a fitting emoji\."
    r"|You have been provided with a set of responses from various models to the latest user query:",
    re.DOTALL,
)


def is_task_request(messages: Sequence[Message]) -> bool:
    """Return whether a conversation is a task that a program gives the model, and not the turn of a person."""
    instructions = next((message.text for message in messages if message.role is Role.SYSTEM), "")
    if _INSTRUCTIONS.match(instructions.lstrip()):
        return True
    conversation = [message for message in messages if message.role is not Role.SYSTEM]
    return len(conversation) == 1 and bool(_QUESTIONS.match(conversation[0].text.lstrip()))
