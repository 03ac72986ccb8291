"""One question and one answer."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from dial_client.cli import elicitation_prompt, process_runner
from dial_client.cli.bootstrap import opened, provider_of, say_notes, settings_of, warn
from dial_client.cli.input.input_references import with_resources
from dial_client.cli.options import ExitCode, Options, Output
from dial_client.cli.terminal_approver import approver
from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.errors import ConfigError, DialError
from dial_client.events import Event, Finished, to_dict
from dial_client.limits import StopReason
from dial_client.messages import Message
from dial_client.sinks import sse_encoder
from dial_client.sinks.terminal import TerminalSink
from dial_client.stores.conversation_store import Conversation, ConversationSummary
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore
from dial_client.turn_result import Turn


async def answer(options: Options, question: str, typed: str = "") -> int:
    """Answer `question` in the form of ``--output``, and return the exit code.

    Resources that `typed` refers to are attached.
    """
    settings = await settings_of(options)
    provider = provider_of(options, settings)
    sink = TerminalSink(reasoning=options.verbose, usage=options.verbose)
    callbacks = elicitation_prompt.callbacks(options, sink)
    async with (
        opened(options, settings, provider, approver(sink), callbacks) as dial,
        conversation(options, dial) as ask,
    ):
        await dial.ready()
        say_notes(dial.notes)
        message = await with_resources(dial, question, typed)
        async with aclosing(ask(message)) as events:
            if options.output is Output.SSE:
                return await _print_sse(events, provider.info.name)
            return await _print(events, options, sink)


Ask = Callable[[str | Message], AsyncGenerator[Event, None]]


@asynccontextmanager
async def conversation(options: Options, dial: DialClient) -> AsyncGenerator[Ask, None]:
    """Open the conversation of the options, new or stored; the value it yields asks the next question in it.

    Raises:
        ConfigError: there is none to go on with.
        ConversationNotFound: there is none with the id of ``--resume``.
    """
    if not options.save and (options.continue_latest or options.resume):
        raise ConfigError("--no-save does not go with --continue or --resume")
    store = SQLStore.sqlite() if options.save else MemoryStore()
    try:
        if isinstance(store, SQLStore):
            await store.warm()  # the servers are starting meanwhile
        manager = ConversationManager(dial, store)
        conversation_id = await _known_id(options, manager)

        async def ask(question: str | Message) -> AsyncGenerator[Event, None]:
            nonlocal conversation_id
            # A new one begins with its first question: one that was given up before is not worth going on with.
            conversation_id = conversation_id or (await manager.create()).id
            watch = process_runner.interrupts.watch
            stream = manager.stream_chat(conversation_id, question, stream=options.stream, on_started=watch)
            async with aclosing(stream) as events:
                async for event in events:
                    yield event

        yield ask
    finally:
        await store.aclose()


async def _known_id(options: Options, manager: ConversationManager) -> str | None:
    known: Conversation | ConversationSummary | None = None
    if options.resume:
        known = await manager.get(options.resume)
    elif options.continue_latest:
        known = next(iter(await manager.list(limit=1)), None)
        if known is None:
            raise ConfigError("there is no conversation to continue")
    if known is not None and known.running:
        warn("a turn of this conversation is running, or its program was just killed: waiting for it")
    return None if known is None else known.id


async def _print(events: AsyncGenerator[Event, None], options: Options, sink: TerminalSink) -> int:
    code: int = ExitCode.UNEXPECTED
    try:
        async for event in events:
            match options.output:
                case Output.TEXT:
                    sink.show(event)
                case Output.JSONL:
                    print(json.dumps(to_dict(event)), flush=True)
                case Output.JSON if isinstance(event, Finished):
                    print(json.dumps(event.turn.to_dict()), flush=True)
            if isinstance(event, Finished):
                code = exit_code(event.turn)
                say_notes(event.turn.notes)
    except DialError as error:
        if options.output is Output.JSONL:
            print(json.dumps({"type": "error", "error": type(error).__name__, "message": str(error)}), flush=True)
        raise
    return code


async def _print_sse(events: AsyncGenerator[Event, None], model: str) -> int:
    code: int = ExitCode.MODEL

    async def watched() -> AsyncGenerator[Event, None]:
        nonlocal code
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Finished):
                    code = exit_code(event.turn)
                yield event

    async with aclosing(sse_encoder.encode(watched(), model=model)) as lines:
        async for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
    return code


def exit_code(turn: Turn) -> ExitCode:
    """Return the exit code of a finished turn."""
    match turn.stop_reason:
        case StopReason.ANSWERED:
            return ExitCode.DENIED if any(record.denied for record in turn.tool_calls) else ExitCode.ANSWERED
        case StopReason.CANCELLED:
            return ExitCode.INTERRUPTED
        case StopReason.REFUSED:
            return ExitCode.MODEL
        case _:
            return ExitCode.LIMIT
