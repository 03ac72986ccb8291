"""One exchange with a stand-in model, for tests of how it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.inner import (
    ActiveFormat,
    ChatModel,
    Completion,
    ContextWindow,
    ConversationContext,
    Deadline,
    FinishReason,
    Message,
    ModelCaller,
    NativeFormatHandler,
    Reply,
    ToolChoice,
    ToolFormatHandler,
    ToolSpec,
    TurnInstructions,
    TurnRecorder,
    separate_instructions,
)
from tests.support.fakes import Model, ReceivedEvents, Step

QUESTION = Message.user("What time is it?")
NOW = ToolSpec("now", "Tells the time.", {"type": "object", "properties": {}}, server="clock", tool="now")
STOP = Completion(FinishReason.STOP)


class Exchange:
    """An asker, its model, and what was heard of it."""

    def __init__(
        self,
        *replies: Sequence[Step],
        handler: ToolFormatHandler | None = None,
        stream: bool = True,
        seconds: float = 60,
        automatic: bool = False,
        guidance: str | None = "",
        context_window: int | None = None,
    ) -> None:
        self.model = Model(*replies)
        self.heard = ReceivedEvents()
        self.recorder = TurnRecorder()
        self.tools: tuple[ToolSpec, ...] = (NOW,)
        handler = handler or NativeFormatHandler()
        deadline = Deadline(seconds)
        self.window = ContextWindow(context_window)
        chosen = ActiveFormat(handler, automatic=automatic)
        self.asker = ModelCaller(
            model=ChatModel(self.model, chosen, self.window),
            tools=lambda: self.tools,
            instructions=TurnInstructions(guidance=guidance),
            recorder=self.recorder,
            emit=self.heard.emit,
            deadline=deadline,
            stream=stream,
        )

    async def ask(self, depth: int = 0, *messages: Message) -> Reply:
        instructions, conversation = separate_instructions(messages or (QUESTION,))
        asker = replace(self.asker, instructions=replace(self.asker.instructions, conversation=instructions))
        return await asker.exchange(ConversationContext(conversation, 5, depth))

    async def ask_for_answer(self, depth: int = 0) -> Reply:
        return await self.asker.exchange(ConversationContext((QUESTION,), 5, depth), ToolChoice.NONE)
