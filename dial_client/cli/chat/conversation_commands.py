"""The commands about the conversation: begin, find and copy conversations, and undo or repeat questions."""

from __future__ import annotations

from dial_client.cli.chat.chat_session import ChatSession, CommandResult, resolve
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message, Role, TextPart
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun

MAX_LINES = 40
"""The maximum lines of an earlier answer that are shown again."""


async def begin_new(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Begin a new conversation; the current one stays stored."""
    previous_id, session.conversation_id = session.conversation_id, None
    kept = f" /resume {previous_id[:8]} goes back to the previous one." if previous_id and session.options.save else ""
    session.print(f"A new conversation.{kept}")


async def resume(session: ChatSession, arguments: str) -> None:
    """Continue another stored conversation: by its id, by words in it, or chosen from a list."""
    known = await resolve(arguments, session.manager, session.screen)
    if known is None:
        session.print("The conversation stays the same.")
        return
    session.conversation_id = known
    await show_last_exchange(session)


async def show_last_exchange(session: ChatSession) -> None:
    """Print the title of the conversation, and its last question and answer."""
    if session.conversation_id is None:
        return
    conversation = await session.manager.get(session.conversation_id)
    session.print(f"Conversation {conversation.id[:8]}: {to_one_line(conversation.title, 60) or '(no title)'}")
    messages = conversation.messages
    start = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=None)
    if start is None:
        return
    hidden = sum(message.role is Role.USER for message in messages[:start])
    if hidden:
        session.print(f"({count_noun(hidden, 'earlier question')}: /export writes all of them)")
    session.print(f"> {_format_beginning(messages[start].text)}")
    calls = sum(len(message.tool_calls) for message in messages[start:])
    if calls:
        session.print(f"({count_noun(calls, 'tool call')})")
    answer = next((m.text for m in reversed(messages[start:]) if m.role is Role.ASSISTANT and m.text.strip()), "")
    lines = session.render(answer).rstrip("\n").splitlines() or ["(no answer)"]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"… {len(lines) - MAX_LINES + 1} more lines"]
    session.print("\n".join(lines))
    for note in conversation.notes:
        session.print(sanitize(note))


async def fork(session: ChatSession, arguments: str) -> None:
    """Continue in a copy of the conversation; the original is not changed."""
    original_id = session.require_id()
    copy = await session.manager.fork(original_id, title=arguments or None)
    session.conversation_id = copy.id
    session.print(f"This is a copy now ({copy.id[:8]}). /resume {original_id[:8]} goes back to the original.")


async def rename(session: ChatSession, arguments: str) -> None:
    """Change the title of the conversation."""
    if not arguments:
        raise ConfigError("missing title", hint="/rename TITLE")
    await session.manager.rename(session.require_id(), arguments)
    session.print(f"Renamed: {to_one_line(arguments, 60)}")


async def undo(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Remove the last question and its answer."""
    question = await _remove_exchange(session)
    session.print(
        f"Undone: {to_one_line(question.text, 80)} (/redo restores it). Effects of tool calls are not undone."
    )


async def redo(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Restore the exchange that /undo removed."""
    if await session.manager.restore(session.require_id()):
        await show_last_exchange(session)
    else:
        session.print("There is nothing to restore: nothing was undone, or you have asked another question since.")


async def retry(session: ChatSession, arguments: str) -> CommandResult:  # noqa: ARG001 - a `Run`
    """Ask the last question again, in place of its answer."""
    question = await _remove_exchange(session)
    session.print(f"> {_format_beginning(question.text)}")
    return CommandResult(question)


async def edit(session: ChatSession, arguments: str) -> CommandResult:  # noqa: ARG001 - a `Run`
    """Remove the last exchange, and put its question into the input line."""
    question = await _remove_exchange(session)
    parts = () if isinstance(question.content, str) else question.content
    if len(parts) > 1:
        session.print("The attachments of the question are not in the input line: mention them again.")
    session.print("Removed the last exchange: edit the question and send it (/redo restores the exchange).")
    question_text = next((part.text for part in parts if isinstance(part, TextPart)), question.text)
    return CommandResult(draft=question_text)


async def compact(session: ChatSession, arguments: str) -> None:
    """Let the model summarize the older part of the conversation, or undo the summary."""
    conversation_id = session.require_id()
    if arguments == "undo":
        is_undone = await session.manager.restore(conversation_id, "compact")
        session.print("The whole conversation is back." if is_undone else "Nothing of the conversation is summarized.")
        return
    if arguments:
        raise ConfigError(f"unknown argument {arguments!r}", hint="/compact, or /compact undo")
    session.print("Summarizing …")
    compaction = await session.compact()
    if compaction is None:
        session.print("There is nothing to summarize: the conversation is short.")
        return
    session.print(session.render(compaction.summary).rstrip("\n"))
    session.print(f"({compaction.message_count} messages; /compact undo restores them)")


async def _remove_exchange(session: ChatSession) -> Message:
    removed = await session.manager.undo(session.require_id())
    if not removed:
        raise ConfigError("there is nothing to undo", hint="the conversation has no question")
    return removed[0]


def _format_beginning(text: str) -> str:
    lines = sanitize(text).strip().splitlines() or [""]
    return "\n  ".join(lines) if len(lines) <= 6 else "\n  ".join([*lines[:5], f"… {len(lines) - 5} more lines"])
