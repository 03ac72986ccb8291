"""The commands about the model: choose the model, its instructions and tool format, and show the usage."""

from __future__ import annotations

import os
from dataclasses import replace

from anyio import to_thread

from dial_client.cli import tty
from dial_client.cli.chat.chat_session import COMPACT_AT, MODEL_SETTINGS, ChatSession
from dial_client.cli.command_screen import Choice, pick
from dial_client.cli.load_settings import open_model
from dial_client.cli.open_client import choose_tool_format, set_profiles
from dial_client.cli.options import Format
from dial_client.messages.errors import ConfigError
from dial_client.messages.token_usage import Usage
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.turns import prices

_KEYS = {
    "openai:ID": "OPENAI_API_KEY",
    "anthropic:ID": "ANTHROPIC_API_KEY",
    "dial:ID": "DIAL_API_KEY",
    "chat:ID": "OPENAI_BASE_URL",
    "ollama:ID": "OLLAMA_HOST",
}
"""The environment variable by which each kind of model name is listed as usable."""


async def show_or_switch(session: ChatSession, arguments: str) -> None:
    """Show the model, or switch to another model from the next question on; without a name, let the user choose."""
    if not arguments and tty.can_ask_user():
        session.print(describe_model(session))
        arguments = await _choose(session) or ""
        if not arguments:
            return
    if arguments:
        options = replace(session.options, model=arguments, base_url=None)
        provider = open_model(options, session.settings)
        session.dial.model.switch(provider, tool_format=choose_tool_format(options, session.settings))
        set_profiles(session.dial, options, session.settings)
        session.manager.locked_settings |= frozenset(MODEL_SETTINGS)
        await to_thread.run_sync(prices.preload)  # the price list has the sizes of context windows
    session.print(describe_model(session))


async def _choose(session: ChatSession) -> str | None:
    """Return the name of a model that the user chooses from a list or types."""
    names = {name: f"{about} (from the configuration)" for name, about in _list_profiles(session).items()}
    names |= dict.fromkeys(await to_thread.run_sync(_find_local), "on this machine")
    known = [Choice(name, to_one_line(f"{name}  {about}", 200)) for name, about in names.items()]
    prefixes = ", ".join(prefix for prefix, variable in _KEYS.items() if os.environ.get(variable)) or "openai:ID"

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
    lines = [describe_model(session)]
    for name, profile in session.settings.models.items():
        lines.append(f"  {to_one_line(name, 60)}: {to_one_line(profile.model or name, 80)} (from the configuration)")
    for name, variable in _KEYS.items():
        if os.environ.get(variable):
            lines.append(f"  {name} ({variable} is set)")
    lines += [f"  {name} (on this machine)" for name in _find_local()]
    session.print("\n".join([*lines, "/model NAME answers with another one; any ID of a vendor is accepted."]))


def _find_local() -> list[str]:
    from dial_client.cli.models.local_models import list_local_models
    from dial_client.providers.embedded.weights import find_cache_folder

    return [model.name for model in list_local_models(find_cache_folder()) if model.installed]


def _list_profiles(session: ChatSession) -> dict[str, str]:
    """Return the names of the configuration's models, with the ids of the models."""
    return {name: profile.model or name for name, profile in session.settings.models.items()}


def list_model_choices(session: ChatSession) -> dict[str, str]:
    """Return the names that /model completes, with descriptions."""
    return _list_profiles(session) | {
        name.removesuffix("ID"): f"{variable} is set" for name, variable in _KEYS.items() if os.environ.get(variable)
    }


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
    formats = [choice.value for choice in Format]
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
    if session.conversation_id is not None and (fill := await session.manager.measure(session.conversation_id)):
        rule = f"it is compacted from {COMPACT_AT:.0%} on (/compact does it now)"
        lines.append(f"Context window: about {fill:.0%} full; {rule}")
    session.print("\n".join(lines))


def _describe_cost(known: list[float], count: int) -> str:
    if not known:
        return "not known for this model" if count else "none yet"
    missing = f" (not known for {count - len(known)} of {count})" if len(known) < count else ""
    return f"about ${sum(known):.4f}{missing}"
