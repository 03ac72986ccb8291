"""The approver of ``dial-chat``: asks the user at the terminal; without a terminal, it denies calls.

Calls that wait for approval at the same time share one question.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread

from dial_client.cli.approval.approval_box import ApprovalBox
from dial_client.cli.approval.approval_prompt import (
    BACK,
    ESCAPE,
    KEYS,
    KEYS_FOR_REASON,
    KEYS_FOR_SAMPLING,
    KEYS_FOR_VALUE,
    LESS,
    SEPARATOR,
    AnswerKey,
    build_keys_for_all,
    build_question,
    describe_decision,
    explain,
    measure_terminal_width,
    parse_answer,
)
from dial_client.cli.approval.approval_rows import BAR, ShownCall
from dial_client.cli.input import user_programs
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.streams.tty import Escaped, Unanswered, can_ask_user
from dial_client.cli.streams.word_wrap import break_words
from dial_client.cli.terminal.attention import APPROVAL
from dial_client.cli.terminal.command_screen import CommandScreen, PlainScreen
from dial_client.client.sampling import SAMPLING
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.safe_text import escape_unseen, to_one_line
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.settings.config_types import ServerSettings
from dial_client.sinks.turn_display import TurnSink
from dial_client.tools.approval import Approval, ApprovalContext, Approver, Decision, deny_unattended
from dial_client.tools.file_changes import FileChange, find_changes, find_edits

# The maximum characters of a value that is edited in the prompt; longer and multi-line values open the editor.
MAX_INLINE = 200
# The highest number of a call or an argument that can be chosen by a key.
MAX_NUMBER = 9
# Seconds without a further call after which the question about the calls is asked: once all running calls wait, and
# while others run, which may be about to ask. Each call is stored before that, which takes a while on a slow disk.
GATHER, GATHER_OTHERS = 0.05, 0.5


async def edit_arguments(call: ToolCallRequest, tool: ToolSpec, screen: CommandScreen) -> ToolCallRequest:
    """Let the user edit an argument until the arguments fit the tool's schema, and return the changed call.

    The call is returned unchanged if it has no arguments, the editor fails, or the user drops the change or leaves by
    Esc.

    Args:
        call: The call as the model requested it, or as an earlier edit changed it.
        tool: The tool, whose schema the arguments must fit.
        screen: The screen that asks the questions.

    Raises:
        Unanswered: The user pressed Ctrl-C or Ctrl-D.
    """
    name = await _choose(call, screen)
    if name is None:
        return call
    value = call.arguments[name]
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=2)
    check = ArgumentCheck(tool.original_schema or tool.input_schema)
    while (edited := await _edit(name, text, screen)) is not None:
        text = edited
        try:
            arguments = {**call.arguments, name: text if is_text else json.loads(text)}
        except ValueError as error:
            problems = [f"{name} is not JSON: {error}"]
        else:
            if not (problems := check.find_problems(arguments)):
                return replace(call, arguments=arguments)
        lines = [f"The arguments do not fit: {to_one_line('; '.join(problems), 500)}"]
        keys = {"e": "edit again", "d": "drop the change"}
        if await screen.ask_key(lines, "e edit again · d drop the change:", keys) == "d":
            break
    return call


async def _choose(call: ToolCallRequest, screen: CommandScreen) -> str | None:
    """Return the name of the argument to change; None if there is none, or for Esc."""
    names = list(call.arguments)
    if len(names) <= 1:
        return names[0] if names else None
    keys = {str(number): to_one_line(escape_unseen(name), 30) for number, name in enumerate(names[:MAX_NUMBER], 1)}
    shown = SEPARATOR.join(f"{key} {name}" for key, name in keys.items())
    key = await screen.ask_key([shown], "Which argument?", keys | {ESCAPE: "none"})
    return None if key == ESCAPE else names[int(key) - 1]


async def _edit(name: str, text: str, screen: CommandScreen) -> str | None:
    """Return the text as the user edited it; None if the user pressed Esc, or the editor failed."""
    if len(text) <= MAX_INLINE and text == escape_unseen(text).strip() and "\n" not in text:
        with suppress(Escaped):
            return await screen.ask_line(f"{to_one_line(escape_unseen(name), 30)}:", default=text)
        return None
    async with screen.suspend():
        edited = await anyio.to_thread.run_sync(user_programs.edit, text)
    # `edit` removes the line break that editors add at the end: restore it if the text ended with one.
    return f"{edited}\n" if edited is not None and text.endswith("\n") else edited


def build_approver(sink: TurnSink, screen: CommandScreen, servers: Mapping[str, object]) -> Approver:
    """Return the approver that asks at the terminal; without a terminal, one that denies calls with a warning.

    Args:
        sink: Shows the turn, and reserves the terminal for a question.
        screen: Asks the questions.
        servers: The settings of servers by name; files in their folders are compared with what a call would write.
    """
    return TerminalApprover(sink, screen, servers).decide if can_ask_user() else _deny


async def _deny(_: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    name = f"{context.server}/{tool.tool}"
    if context.change:
        problem = f"{name} has changed since it was approved, and there is no terminal to ask at"
        warn_once(f"{problem}: not allowed; review it in a terminal, or allow all calls with --yes")
    elif context.why_asked:
        warn_once(f"not allowed without a terminal to ask at: {name}: {context.why_asked}")
    else:
        warn_once(f"not allowed without a terminal to ask at: {name}; --allow {name} allows it")
    return deny_unattended(tool, context)


@dataclass(eq=False)
class _Waiting:
    """A call that waits for its answer."""

    call: ToolCallRequest
    tool: ToolSpec
    context: ApprovalContext
    edited: ToolCallRequest
    """The call with the arguments that the user has edited."""
    changes: Sequence[FileChange] = ()
    answer: Approval | None = None
    number: int = 0
    """The number of the call in a question about several calls, from 1."""

    @property
    def is_sampling(self) -> bool:
        """Whether a server asks for an answer of the model."""
        return self.tool.tool == SAMPLING


class TerminalApprover:
    """Asks one question at a time. The arguments are those of `build_approver`."""

    def __init__(self, sink: TurnSink, screen: CommandScreen, servers: Mapping[str, object]) -> None:
        self._sink, self._screen, self._servers = sink, screen, servers
        self._waiting: list[_Waiting] = []

    async def decide(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        """Return the user's decision about a call."""
        waiting = _Waiting(call, tool, context, call)
        self._waiting.append(waiting)
        try:
            async with self._sink.question(None if waiting.is_sampling else call.id):
                if waiting.answer is None:
                    await self._gather()
                    # Waiting calls share one question; a sampling request has its own.
                    shared = [asked for asked in self._waiting if asked.answer is None and not asked.is_sampling]
                    batch = [waiting] if waiting.is_sampling else shared
                    for number, asked in enumerate(batch, 1):
                        asked.number = number
                        await self._compare(asked)
                    await self._ask(batch)
        finally:
            self._waiting.remove(waiting)
        assert waiting.answer is not None
        return waiting.answer

    async def _gather(self) -> None:
        """Wait until no further call has come for a while: calls that come later have a question of their own."""
        since, count = anyio.current_time(), len(self._waiting)
        while True:
            await anyio.sleep(GATHER)
            if len(self._waiting) > count:
                since, count = anyio.current_time(), len(self._waiting)
            elif count >= self._sink.running_calls or anyio.current_time() - since >= GATHER_OTHERS:
                return

    async def _ask(self, batch: list[_Waiting], *, is_one_of_several: bool = False) -> None:
        """Ask about calls until all of them are answered; a mistyped answer decides nothing.

        Args:
            batch: The calls.
            is_one_of_several: Whether the call was chosen from a list, to which the user can go back.
        """
        box = self._build_box(batch, is_one_of_several=is_one_of_several)
        lines: list[str] | None = None
        with self._screen.show_panel(lambda *size: box.render(*size), APPROVAL):  # noqa: PLW0108 - the box changes
            while batch:
                alone = {str(waiting.number): waiting for waiting in batch} if len(batch) > 1 else {}
                try:
                    text = await self._read(box, lines)
                    if is_one_of_several and parse_answer(text) == "back":
                        return
                    if text in alone:
                        await self._ask([alone[text]], is_one_of_several=True)
                        lines = None
                    else:
                        lines = await self._take(text, batch, box)
                except Unanswered as how:
                    self._answer(batch, Approval(Decision.DENY, str(how)))
                self._apply_lasting_approvals(batch)
                left = [waiting for waiting in batch if waiting.answer is None]
                if left and (lines is None or len(left) < len(batch)):
                    is_whole = box.is_whole and len(left) == len(batch)
                    box = self._build_box(left, is_one_of_several=is_one_of_several, is_whole=is_whole)
                batch = left

    async def _take(self, text: str, batch: list[_Waiting], box: ApprovalBox) -> list[str] | None:
        """Take an answer about all calls of a batch; return lines that explain the keys if the answer is unknown."""
        answer = parse_answer(text)
        if answer == "details":
            box.is_whole = not box.is_whole
        elif answer == "edit" and any(key.letter == "e" for key in box.keys):
            with box.show_keys(KEYS_FOR_VALUE):
                batch[0].edited = await edit_arguments(batch[0].edited, batch[0].tool, self._screen)
            await self._compare(batch[0])
        elif answer == "quit":
            process_runner.interrupts.interrupt()
            self._answer(batch, Approval(Decision.DENY, "the user ended the turn"))
        elif isinstance(answer, Approval):
            self._answer(batch, answer)
        else:
            return [explain(box.keys)]
        return None

    def _build_box(
        self, batch: Sequence[_Waiting], *, is_one_of_several: bool = False, is_whole: bool = False
    ) -> ApprovalBox:
        """Return the box about calls; one with the numbers of the calls if there are several."""
        keys: tuple[AnswerKey, ...] = KEYS
        if len(batch) > 1:
            keys = build_keys_for_all([waiting.number for waiting in batch if waiting.number <= MAX_NUMBER])
        elif batch[0].is_sampling:
            keys = KEYS_FOR_SAMPLING
        elif not batch[0].edited.arguments:
            keys = tuple(key for key in KEYS if key.letter != "e")
        if is_one_of_several:
            keys = (*keys[:-1], BACK, keys[-1])
        if is_whole:
            keys = tuple(LESS if key.letter == LESS.letter else key for key in keys)
        calls = {waiting.number: self._describe(waiting) for waiting in batch}
        return ApprovalBox(calls, keys, self._screen.theme, is_whole)

    def _answer(self, batch: Sequence[_Waiting], answer: Approval) -> None:
        """Answer all calls of a batch, and show what was decided."""
        for waiting in batch:
            arguments = waiting.edited.arguments
            waiting.answer = replace(answer, arguments=None if arguments == waiting.call.arguments else arguments)
        is_changed = any(waiting.edited.arguments != waiting.call.arguments for waiting in batch)
        shown = [self._describe(waiting) for waiting in batch]
        self._sink.note_decision(describe_decision(shown, answer, is_changed=is_changed))

    def _apply_lasting_approvals(self, batch: list[_Waiting]) -> None:
        """Approve waiting calls of tools that were approved for the session or always, but not of changed tools."""
        lasting = {
            (waiting.context.server, waiting.tool.tool)
            for waiting in batch
            if waiting.answer and waiting.answer.decision in (Decision.SESSION, Decision.ALWAYS)
        }
        for waiting in self._waiting:
            context = waiting.context
            # A changed tool, and a call with a reason to ask, need an answer of their own.
            may_share_answer = waiting.answer is None and not (context.change or context.why_asked)
            if may_share_answer and (context.server, waiting.tool.tool) in lasting:
                waiting.answer = Approval(Decision.ONCE)

    async def _compare(self, waiting: _Waiting) -> None:
        found = self._servers.get(waiting.context.server)
        settings = found if isinstance(found, ServerSettings) else None
        waiting.changes = await anyio.to_thread.run_sync(find_changes, waiting.edited.arguments, settings)

    def _describe(self, waiting: _Waiting) -> ShownCall:
        changes = [*find_edits(waiting.call.arguments, waiting.edited.arguments), *waiting.changes]
        settings = self._servers.get(waiting.context.server)
        is_trusted = isinstance(settings, ServerSettings) and settings.trusted
        return ShownCall(waiting.edited, waiting.tool, waiting.context, changes, is_trusted)

    async def _read(self, box: ApprovalBox, lines: Sequence[str] | None) -> str:
        """Return the user's answer, as text for `parse_answer`.

        Args:
            box: The box with the calls and the keys.
            lines: The lines to print in place of the box, where it has been printed already.
        """
        screen = self._screen
        if isinstance(screen, PlainScreen):
            columns = measure_terminal_width()
            before, last = build_question([*box.calls.values()], box.keys, columns)
            for line in [*(box.format_plain(columns) if lines is None else lines), *before]:
                print(line if line.startswith(BAR[0]) else break_words(line, columns), file=sys.stderr)
            sys.stderr.flush()
            return await screen.ask(last, notice=APPROVAL)
        numbers = {str(number): "that call alone" for number in box.calls if number <= MAX_NUMBER}
        keys = {key.letter: key.meaning for key in box.keys if len(key.letter) == 1} | (
            numbers if len(box.calls) > 1 else {}
        )
        key = await screen.ask_key([], "", keys | {ESCAPE: "do not run it"}, on_move=box.frame.move)
        if key != "n":
            return key
        with suppress(Unanswered), box.show_keys(KEYS_FOR_REASON):
            return f"n, {await screen.ask_line('No, because (Enter for no reason):')}"
        return key
