"""The model's endpoint of the probes for tests of this library, with providers of its own.

with model_endpoint([Say("Hello"), refuse(429)]) as endpoint:
    provider = open_provider("chat:m", base_url=f"{endpoint.url}/v1")
    ...
    endpoint.requests[0].json["messages"]
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, fields
from typing import Any

from probes.model_endpoint import (
    Answer,
    Bytes,
    Call,
    ModelEndpoint,
    Raw,
    Recorded,
    Say,
    events,
    model_endpoint,
    one_json,
    refuse,
    write_chat,
    write_messages,
    write_reply,
    write_responses,
)
from tests.inner import (
    Api,
    CallChunk,
    Completion,
    FinishReason,
    HttpProvider,
    Message,
    ModelProfile,
    ModelRequest,
    ModelSettings,
    Provider,
    ProviderState,
    ReasoningChunk,
    Role,
    TextChunk,
    ToolCallRequest,
    model,
    open_provider,
)

__all__ = (
    "Answer",
    "Bytes",
    "Call",
    "ModelEndpoint",
    "ParsedReply",
    "Raw",
    "Recorded",
    "Say",
    "events",
    "hear",
    "model_endpoint",
    "one_json",
    "provider_of",
    "refuse",
    "write_chat",
    "write_messages",
    "write_reply",
    "write_responses",
)


@dataclass(slots=True)
class ParsedReply:
    """A whole reply."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCallRequest] = field(default_factory=list)
    completion: Completion = field(default_factory=lambda: Completion(FinishReason.CUT))
    deltas: int = 0

    @property
    def asked(self) -> list[tuple[str, Any]]:
        """The calls as names and arguments."""
        return [(call.name, call.arguments) for call in self.calls]

    def message(self, provider: Provider) -> Message:
        """Return the message the reply is stored as."""
        echo = None if self.completion.echo is None else ProviderState(provider.info.name, self.completion.echo)
        return Message(Role.ASSISTANT, self.text, tuple(self.calls), echo=echo)


def provider_of(endpoint: ModelEndpoint | str, wire: Api = Api.CHAT, **settings: Any) -> HttpProvider:
    """Open a provider for the endpoint, or its address; `settings` are further fields, or settings, of the profile."""
    url = endpoint if isinstance(endpoint, str) else endpoint.url
    own = ModelSettings(
        **{each.name: settings.pop(each.name) for each in fields(ModelSettings) if each.name in settings}
    )
    profile = ModelProfile("p", settings=own, **({"api": wire, "base_url": url, "model": "m"} | settings))
    provider = open_provider("p", models={"p": profile}, environ={})
    assert isinstance(provider, HttpProvider)
    return provider


async def hear(provider: Provider, *messages: Message, **request: Any) -> ParsedReply:
    """Ask a provider, and hear its reply to the end; `request` are fields of `ModelRequest` and of its settings."""
    own_names = {own.name for own in fields(ModelSettings)} - {own.name for own in fields(ModelRequest)}
    settings = {name: request.pop(name) for name in own_names & request.keys()}
    heard = ParsedReply()
    ended = False
    instructions, conversation = model.separate_instructions(messages)
    asked = ModelRequest(
        conversation or (Message.user("Hello?"),),
        instructions=instructions,
        settings=ModelSettings(**settings),
        **request,
    )
    async with aclosing(provider.generate(asked)) as deltas:
        async for delta in deltas:
            assert not ended, "nothing comes behind the completion"
            heard.deltas += 1
            match delta:
                case TextChunk(text):
                    heard.text += text
                case ReasoningChunk(text):
                    heard.reasoning += text
                case CallChunk(call):
                    heard.calls.append(call)
                case Completion():
                    heard.completion, ended = delta, True
    assert ended, "a reply ends in its completion"
    return heard
