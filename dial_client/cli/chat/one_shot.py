"""Answers a single question of the command line, in text or in JSON of a schema."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from dial_client.cli.approval import elicitation_prompt
from dial_client.cli.approval.terminal_approver import build_approver
from dial_client.cli.chat.chat_session import ChatSession, describe_stop, open_session
from dial_client.cli.chat.startup_report import (
    WaitForServers,
    select_notes,
    wait_for_servers,
    wait_for_servers_in_lines,
)
from dial_client.cli.default_model import read_with_model
from dial_client.cli.input.input_references import with_attachments
from dial_client.cli.open_client import open_client, use_instructions
from dial_client.cli.options import ExitCode, Options, Output
from dial_client.cli.streams.error_stream import print_notes, report_error
from dial_client.cli.streams.tty import UserInput
from dial_client.cli.terminal.banner import can_draw
from dial_client.cli.terminal.command_screen import CommandScreen, PlainScreen
from dial_client.cli.terminal.screen import Screen
from dial_client.cli.terminal.turn_view import open_screen
from dial_client.cli.trust.folder_texts import read_folder_texts
from dial_client.conversations.persistence import LEFT_OUT
from dial_client.messages.errors import ConfigError, DialError, describe_system_error
from dial_client.messages.events import Event, Finished, StatusChanged, TextDelta, to_dict
from dial_client.messages.limits import StopReason
from dial_client.messages.turn_result import Turn, output_to_json
from dial_client.runtime.safe_text import to_one_line
from dial_client.sinks import sse_encoder
from dial_client.sinks.sse_encoder import describe_error
from dial_client.sinks.terminal import TerminalSink
from dial_client.sinks.turn_display import TurnSink
from dial_client.turns.status_text import WAITING_FOR_BACKGROUND

_RAISE = "`dial-chat config set limits.KEY N` raises a limit"
_WAY_ON = '`dial-chat --continue "Go on."` goes on'
# The maximum number of characters of an invalid answer that are printed.
_MAX_SHOWN = 2_000


def read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file.

    Raises:
        ConfigError: The file cannot be read, is not JSON, or is not a valid JSON Schema for an answer.
    """
    from dial_client.turns.output_type import build_output_type

    try:
        schema = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the schema cannot be read: {describe_system_error(error)}", path=str(path)) from error
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"this is not JSON: {error.msg}", path=str(path), line=error.lineno, column=error.colno
        ) from None
    except ValueError as error:
        raise ConfigError(f"this is not JSON: {error}", path=str(path)) from None
    if not isinstance(schema, dict):
        raise ConfigError(
            "expected a JSON Schema, which is an object", hint='such as {"type": "array"}', path=str(path)
        )
    try:
        build_output_type(schema)
    except (ConfigError, TypeError) as error:
        raise ConfigError("this is not a valid JSON Schema for an answer", hint=str(error), path=str(path)) from None
    return schema


def print_output(turn: Turn) -> None:
    """Print the typed answer to standard output; if there is none, print the model's text to standard error."""
    if turn.output is not None or turn.text == "null":
        print(json.dumps(output_to_json(turn.output)), flush=True)
    else:
        is_wrong = turn.stop_reason is StopReason.INVALID_OUTPUT
        problem = "the model answered" if is_wrong else f"no answer that fits the schema: {turn.stop_reason.sentence}"
        report_error(f"{problem}: {to_one_line(turn.text, _MAX_SHOWN)}")


async def answer(options: Options, question: str, typed: str = "") -> int:
    """Answer `question` in the form of ``--output``, and return the exit code.

    Resources and files that `typed` refers to are attached.
    """
    opened: list[ChatSession] = []
    try:
        return await _answer(options, question, typed, opened.append)
    except Exception as error:
        if isinstance(error, DialError) and error.left_out and not (options.continue_latest or options.resume):
            # The question was the only one: nothing follows that could leave it out.
            error.args = (str(error).removesuffix(f"; {LEFT_OUT}"),)
        print_error(error, options, opened[0].conversation_id if opened else None)
        raise


async def _answer(options: Options, question: str, typed: str, on_opened: Callable[[ChatSession], object]) -> int:
    schema = None if options.schema is None else read_schema(options.schema)
    settings, provider = await read_with_model(options)
    texts = await read_folder_texts(options, settings)
    user_input = UserInput(question, question, typed)

    async def answer_on(screen: CommandScreen, sink: TurnSink, wait: WaitForServers) -> int:
        callbacks = elicitation_prompt.build_callbacks(options, sink, screen)
        approve = build_approver(sink, screen, settings.servers)
        async with (
            open_client(options, settings, provider, approve, callbacks) as dial,
            open_session(options, settings, dial, screen, title=typed, is_one_shot=True) as session,
        ):
            on_opened(session)
            use_instructions(dial, texts)
            session.use_agent(texts.agents)
            await wait(dial)
            # A script may pass on untrusted text: without a terminal, attach only files of the working folder.
            message = await with_attachments(dial, user_input, None if sys.stderr.isatty() else Path.cwd())
            if isinstance(screen, Screen):
                screen.live.background = session.list_background_calls
            sink.begin()
            async with aclosing(_say_what_is_awaited(session.ask(message, output_type=schema), session)) as events:
                if options.output in ("sse", "ai-sdk", "ag-ui"):
                    await _print_stream(_encode(events, options.output, provider.info.name))
                else:
                    await _print(events, session, sink)
            print_notes(session.describe_left_calls())
            return choose_exit_code(session.turns[-1]) if session.turns else ExitCode.MODEL

    if options.output == "text" and schema is None and can_draw(options):
        screen, view = open_screen(options, has_input=False)
        screen.notify_by(settings.notify or "bell")
        wait = partial(wait_for_servers, screen=screen, quiet=options.quiet)
        return await screen.run(partial(answer_on, screen, view, wait))
    lines = PlainScreen()
    lines.notify_by(settings.notify or "bell")
    sink = TerminalSink(
        reasoning=options.verbose,
        usage=options.verbose,
        calls=not options.quiet,
        has_answer_alone=not sys.stdout.isatty(),
    )
    return await answer_on(lines, sink, partial(wait_for_servers_in_lines, quiet=options.quiet))


async def _say_what_is_awaited(
    events: AsyncGenerator[Event, None], session: ChatSession
) -> AsyncGenerator[Event, None]:
    """Yield the events; when the turn waits for calls in the background, say on standard error for which."""
    async with aclosing(events):
        async for event in events:
            yield event
            if isinstance(event, StatusChanged) and event.text == WAITING_FOR_BACKGROUND:
                running = [call.name for call in session.list_background_calls() if call.is_running]
                print_notes(f"waiting for {name}, which runs in the background; Ctrl-C stops it" for name in running)


async def _print(events: AsyncGenerator[Event, None], session: ChatSession, sink: TurnSink) -> None:
    options = session.options
    try:
        async for event in events:
            _show(event, session, sink)
            if isinstance(event, Finished):
                print_notes(select_notes(session.dial, event.turn.notes, quiet=options.quiet))
                print_notes(describe_stop(event.turn, "" if options.no_save else _WAY_ON, _RAISE))
    finally:
        sink.end()


def _show(event: Event, session: ChatSession, sink: TurnSink) -> None:
    """Print an event in the form of ``--output``; of a text answer with ``--schema``, print only the JSON."""
    options = session.options
    match options.output:
        case "text" if options.schema is None or not isinstance(event, TextDelta):
            sink.show(event)
            if options.schema is not None and isinstance(event, Finished):
                print_output(event.turn)
        case "jsonl":
            turn = {"turn": _describe_turn(event.turn, session, sink.seconds)} if isinstance(event, Finished) else {}
            print(json.dumps(to_dict(event) | turn), flush=True)
        case "json" if isinstance(event, Finished):
            print(json.dumps(_describe_turn(event.turn, session, sink.seconds)), flush=True)


def _describe_turn(turn: Turn, session: ChatSession, seconds: float) -> dict[str, Any]:
    """Return a turn in JSON types, with the conversation to resume, the model and the duration."""
    state = turn.without_kept().to_dict()
    first = {
        "text": state.pop("text"),
        "stop_reason": state.pop("stop_reason"),
        "conversation_id": None if session.options.no_save else session.conversation_id,
        "model": session.dial.model.name,
        "duration_s": round(seconds, 3),
    }
    return first | state


def print_error(error: Exception, options: Options, conversation_id: str | None = None) -> None:
    """Print an error as an object, if the form of ``--output`` is JSON; standard error has it as a sentence."""
    if options.output in ("json", "jsonl"):
        event = {"type": "error"} if options.output == "jsonl" else {}
        kept_id = None if options.no_save else conversation_id
        print(json.dumps({**event, "error": describe_error(error), "conversation_id": kept_id}), flush=True)


def _encode(events: AsyncGenerator[Event, None], form: Output, model: str) -> AsyncGenerator[str, None]:
    """Return the events in a form of server-sent events."""
    if form == "sse":
        return sse_encoder.encode(events, model=model)
    from dial_client.sinks.ag_ui_stream import AgUiEncoder
    from dial_client.sinks.ai_sdk_stream import AiSdkEncoder
    from dial_client.sinks.turn_frames import encode_turn

    turn, thread = secrets.token_hex(16), secrets.token_hex(16)
    return encode_turn(events, AiSdkEncoder(turn) if form == "ai-sdk" else AgUiEncoder(turn, thread, run=turn))


async def _print_stream(encoded: AsyncGenerator[str, None]) -> None:
    async with aclosing(encoded) as lines:
        async for line in lines:
            print(line, end="", flush=True)


def choose_exit_code(turn: Turn) -> ExitCode:
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
