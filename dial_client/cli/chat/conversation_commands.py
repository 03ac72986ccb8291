"""The commands about the conversation: begin, find, copy and undo; and about its model, instructions and usage."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from anyio import to_thread

from dial_client.cli.chat.chat_session import COMPACT_AT, MODEL_SETTINGS, ChatSession, CommandResult
from dial_client.cli.chat.conversation_list import ALL, resolve, shorten_id
from dial_client.cli.open_client import switch_model
from dial_client.cli.options import Format
from dial_client.cli.streams import tty
from dial_client.cli.terminal.command_screen import Choice, pick
from dial_client.conversations.history import build_transcript
from dial_client.conversations.turn_input import Continuation, find_typed_text
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message, Role
from dial_client.messages.token_usage import Usage
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.settings.config_types import ModelProfile
from dial_client.turns import prices
from dial_client.turns.context_report import ContextPart, ContextReport

# The maximum lines of an earlier answer that are shown again.
MAX_LINES = 40
# The maximum number of models of endpoints that /models prints.
_MAX_OFFERED = 30


async def begin_new(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Begin a new conversation; the current one stays stored."""
    previous_id, session.conversation_id = session.conversation_id, None
    if previous_id is None or session.options.no_save:
        session.print("A new conversation.")
    else:
        session.print(f"A new conversation. /resume {shorten_id(previous_id)} goes back to the previous one.")


async def resume(session: ChatSession, arguments: str) -> None:
    """Continue another stored conversation: by its id, by words in it, or chosen from a list."""
    words = arguments.split()
    text = " ".join(word for word in words if word != ALL)
    known = await resolve(text, session.manager.store, session.screen, is_everywhere=ALL in words)
    if known is None:
        session.print("The conversation stays the same.")
        return
    session.conversation_id = known
    await show_last_exchange(session)


async def show_last_exchange(session: ChatSession) -> None:
    """Print the title of the conversation, and its last question and answer."""
    if session.conversation_id is None:
        return
    conversation = build_transcript(await session.manager.store.get(session.conversation_id))
    session.print(f"Conversation {shorten_id(conversation.id)}: {to_one_line(conversation.title, 60) or '(no title)'}")
    messages = conversation.messages
    start = max((index for index, message in enumerate(messages) if message.is_question), default=None)
    if start is None:
        return
    hidden = sum(message.is_question for message in messages[:start])
    if hidden:
        session.print(f"({count_noun(hidden, 'earlier question')}: /export writes all of them)")
    session.print(f"\n> {_format_beginning(messages[start].text)}")
    calls = sum(len(message.tool_calls) for message in messages[start:])
    if calls:
        session.print(f"({count_noun(calls, 'tool call')})")
    answer = next((m.text for m in reversed(messages[start:]) if m.role is Role.ASSISTANT and m.text.strip()), "")
    lines = session.screen.render(answer).rstrip("\n").splitlines() or ["(no answer)"]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"… {len(lines) - MAX_LINES + 1} more lines"]
    session.screen.print("\n".join(lines))
    for note in conversation.notes:
        session.print(sanitize(note))


async def fork(session: ChatSession, arguments: str) -> None:
    """Continue in a copy of the conversation; the original is not changed."""
    original_id = session.require_id()
    copy = await session.manager.fork(original_id, title=arguments or None)
    session.conversation_id = copy.id
    session.print(
        f"This is a copy now ({shorten_id(copy.id)}). /resume {shorten_id(original_id)} goes back to the original."
    )


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
    session.print(f"\n> {_format_beginning(question.text)}")
    return CommandResult(question)


async def go_on(session: ChatSession, arguments: str) -> CommandResult:
    """Let the model go on with an answer that was cut off, or with work that a limit stopped."""
    if arguments:
        raise ConfigError(f"unknown argument {arguments!r}", hint="/resume ID opens another conversation")
    session.require_id()
    return CommandResult(Continuation())


async def edit(session: ChatSession, arguments: str) -> CommandResult:  # noqa: ARG001 - a `Run`
    """Remove the last exchange, and put its question into the input line."""
    question = await _remove_exchange(session)
    if not isinstance(question.content, str) and len(question.content) > 1:
        session.print("The attachments of the question are not in the input line: mention them again.")
    session.print("Removed the last exchange: edit the question and send it (/redo restores the exchange).")
    return CommandResult(draft=find_typed_text(question))


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
    session.screen.print(session.screen.render(compaction.summary).rstrip("\n"))
    session.print(f"({compaction.message_count} messages; /compact undo restores them)")


async def _remove_exchange(session: ChatSession) -> Message:
    removed = await session.manager.undo(session.require_id())
    if not removed:
        raise ConfigError("there is nothing to undo", hint="the conversation has no question")
    return removed[0]


def _format_beginning(text: str) -> str:
    lines = sanitize(text).strip().splitlines() or [""]
    return "\n  ".join(lines) if len(lines) <= 6 else "\n  ".join([*lines[:5], f"… {len(lines) - 5} more lines"])


# The environment variable by which each kind of model name is listed as usable.
_KEYS = {
    "openai:ID": "OPENAI_API_KEY",
    "anthropic:ID": "ANTHROPIC_API_KEY",
    "dial:ID": "DIAL_API_KEY",
    "chat:ID": "OPENAI_BASE_URL",
    "ollama:ID": "OLLAMA_HOST",
}


def _list_usable() -> dict[str, str]:
    return {name: variable for name, variable in _KEYS.items() if os.environ.get(variable)}


async def show_or_switch(session: ChatSession, arguments: str) -> None:
    """Show the model, or switch to another model from the next question on; without a name, let the user choose."""
    if not arguments and tty.can_ask_user():
        session.print(describe_model(session))
        arguments = await _choose(session) or ""
        if not arguments:
            return
    if arguments:
        options = replace(session.options, model=arguments, base_url=None)
        if arguments in session.offered and arguments not in session.settings.models:
            models = {**session.settings.models, arguments: session.offered[arguments]}
            session.settings = replace(session.settings, models=models)
        await switch_model(session.dial, options, session.settings)
        session.manager.locked_settings |= frozenset(MODEL_SETTINGS)
        await to_thread.run_sync(prices.load_prices)  # the price list has the sizes of context windows
    session.print(describe_model(session))


async def _choose(session: ChatSession) -> str | None:
    """Return the name of a model that the user chooses from a list or types."""
    from dial_client.cli.models.model_names import list_installed

    names = {name: f"{about} (from the configuration)" for name, about in _list_profiles(session).items()}
    names |= dict.fromkeys(await to_thread.run_sync(list_installed), "on this machine")
    names = {**await _list_offered(session), **names}
    known = [Choice(name, to_one_line(f"{name}  {about}", 200)) for name, about in names.items()]
    prefixes = ", ".join(_list_usable()) or "openai:ID"

    async def search(words: str) -> list[Choice]:
        found = [choice for choice in known if all(word in choice.label.lower() for word in words.lower().split())]
        if words.strip() in names:
            return found
        return [*found, Choice(words.strip(), f"{to_one_line(words, 80)}  as it is typed")] if words.strip() else found

    nothing = f"No model is in the configuration or on this machine: /model NAME takes any, such as {prefixes}."
    return await pick(session.screen, f"Model (or a name such as {prefixes})", search, nothing=nothing)


def describe_model(session: ChatSession) -> str:
    """Return the model in one line."""
    model = session.dial.model
    window = f", context window of {model.window_tokens:,} tokens" if model.window_tokens else ""
    called = "in the API's own form" if model.format_name in ("auto", "native") else f"as {model.format_name}"
    return f"Model: {to_one_line(model.name, 200)} (tool calls {called}{window})"


async def show_models(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """List the models that /model accepts."""
    from dial_client.cli.models.model_names import list_installed

    lines = [describe_model(session)]
    for name, profile in session.settings.models.items():
        lines.append(f"  {to_one_line(name, 60)}: {to_one_line(profile.model or name, 80)} (from the configuration)")
    lines += [f"  {name} (on this machine)" for name in list_installed()]
    offered = await _list_offered(session)
    unlisted = {prefix: variable for prefix, variable in _list_usable().items() if not _is_listed(prefix, offered)}
    lines += [f"  {name} ({variable} is set)" for name, variable in unlisted.items()]
    shown = [*offered.items()][:_MAX_OFFERED]
    lines += [f"  {to_one_line(name, 80)} ({to_one_line(about, 80)})" for name, about in shown]
    if len(offered) > _MAX_OFFERED:
        lines.append(f"  … and {len(offered) - _MAX_OFFERED} more: /model finds them by a part of their name")
    session.print("\n".join([*lines, "/model NAME answers with another one; any ID of a vendor is accepted."]))


def _is_listed(prefix: str, names: Iterable[str]) -> bool:
    """Return True if a name has the prefix of ``openai:ID``."""
    return any(name.startswith(prefix.removesuffix("ID")) for name in names)


async def _list_offered(session: ChatSession) -> dict[str, str]:
    """Return the models that endpoints list now, with descriptions; their profiles stay known to the session."""
    from dial_client.cli.models.model_table import list_usable_models

    found = await list_usable_models(session.settings, session.options.base_url)
    session.offered |= {model.name: ModelProfile(model.name, **model.profile) for model in found if model.profile}
    return {model.name: model.about for model in found if model.name not in session.settings.models}


def _list_profiles(session: ChatSession) -> dict[str, str]:
    """Return the names of the configuration's models, with the ids of the models."""
    return {name: profile.model or name for name, profile in session.settings.models.items()}


def list_model_choices(session: ChatSession) -> dict[str, str]:
    """Return the names that /model completes, with descriptions."""
    usable = {name.removesuffix("ID"): f"{variable} is set" for name, variable in _list_usable().items()}
    return _list_profiles(session) | usable


async def show_or_set_system(session: ChatSession, arguments: str) -> None:
    """Show the instructions for the model, or change them from the next question on."""
    if arguments:
        session.dial.system = None if arguments == "none" else arguments
        session.manager.locked_settings |= {"system"}
    text = session.dial.system
    session.print(
        f"Instructions: {sanitize(text)}"
        if text
        else "The model has no instructions of yours. /system TEXT gives some."
    )


async def show_or_set_format(session: ChatSession, arguments: str) -> None:
    """Show the format of tool calls, or change it from the next question on."""
    formats = get_args(Format)
    if arguments and arguments not in formats:
        raise ConfigError(f"unknown tool format {to_one_line(arguments, 40)!r}", hint=f"one of {', '.join(formats)}")
    if arguments:
        session.dial.model.switch(tool_format=arguments)
        session.manager.locked_settings |= {"tool_format"}
    session.print(f"Tool format: {session.dial.model.format_name} (one of {', '.join(formats)})")


async def show_usage(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Print the tokens and the cost of this run, and how full the context window is."""
    usage = sum([turn.usage for turn in session.turns] + [made.usage for made in session.compactions], Usage())
    costs = [turn.cost_usd for turn in session.turns] + [made.cost_usd for made in session.compactions]
    known = [cost for cost in costs if cost is not None]
    calls = sum(len(turn.tool_calls) for turn in session.turns)
    questions, cached = len(session.turns), f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    lines = [
        f"This run: {count_noun(questions, 'question')}, {count_noun(calls, 'tool call')}",
        f"Tokens: {usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out",
        f"Cost: {_describe_cost(known, len(costs))}",
    ]
    if session.conversation_id is not None and (fill := (report := await session.measure_context()).fill):
        about = "" if report.is_counted else "about "
        lines.append(f"Context window: {about}{fill:.0%} full (/context shows what fills it); {_COMPACTED}")
    session.print("\n".join(lines))


_COMPACTED = f"the conversation is compacted at about {COMPACT_AT:.0%} (/compact does it now)"


async def show_context(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Print what fills the context window: instructions, tools by server, messages and results of calls."""
    session.print(format_context(await session.measure_context()))


def format_context(report: ContextReport) -> str:
    """Return the parts of the context window as a table, with their tokens and their shares of the window."""
    total, window = report.tokens, report.window or 0
    # The shares of a window of unknown size are those of the request.
    whole = window or total or 1
    sizes = [(_describe_part(part), f"about {part.tokens:,}", part.tokens) for part in report.parts]
    if window:
        sizes.append(("free", f"about {max(0, window - total):,}", max(0, window - total)))
    names = max((len(name) for name, _, _ in sizes), default=0)
    numbers = max((len(number) for _, number, _ in sizes), default=0)
    about = "" if report.is_counted else "about "
    full = f"{about}{total:,} of {window:,} tokens ({total / whole:.0%})" if window else f"{about}{total:,} tokens"
    lines = [
        f"Context window: {full}" + (", as the endpoint counted the last request" if report.is_counted else ""),
        *(
            f"  {to_one_line(name, 60):<{names}}  {number:>{numbers}}  {tokens / whole:>4.0%}"
            for name, number, tokens in sizes
        ),
    ]
    if report.left_out:
        lines.append(f"{count_noun(report.left_out, 'message')} at the beginning are not sent: the window is full.")
    if report.searched_tools:
        tools = count_noun(report.searched_tools, "tool")
        lines.append(f"Not in it: {tools} of {report.searched_bytes:,} bytes, which the model searches for.")
    if not window:
        lines.append("The size of this model's window is not known; `contextWindow` of its profile sets it.")
    what = "The parts are estimates" if report.is_counted else "All numbers are estimates"
    lines.append(f"{what}. {_COMPACTED[0].upper()}{_COMPACTED[1:]}." if window else f"{what}.")
    return "\n".join(lines)


def _describe_part(part: ContextPart) -> str:
    return f"{part.name} ({part.count}{f', {part.bytes:,} bytes' if part.bytes else ''})"


def _describe_cost(known: list[float], count: int) -> str:
    if not known:
        return "not known for this model" if count else "none yet"
    missing = f" (not known for {count - len(known)} of {count})" if len(known) < count else ""
    return f"about ${sum(known):.4f}{missing}"
