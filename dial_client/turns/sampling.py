"""What servers ask of a model: answered by the embedding program, or by the client's own model within a budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import anyio

from dial_client import call_context
from dial_client.audit.call_audit import new_id, record
from dial_client.audit.entries import AuditEntry, AuditRecorder, common_origin
from dial_client.call_context import CallContext
from dial_client.callbacks.server_callbacks import Sample, Sampler, SamplingReply, SamplingRequest
from dial_client.deadline import Deadline
from dial_client.limits import Limits
from dial_client.logs import get_logger
from dial_client.messages import TextPart, ToolCallRequest, ToolSpec, Usage, describe
from dial_client.model import (
    Completion,
    FinishReason,
    Instruction,
    InstructionSource,
    ModelRequest,
    Provider,
    TextChunk,
)
from dial_client.prices import cost_usd
from dial_client.settings.tool_patterns import matches
from dial_client.tools.approval import Approval, Approver

log = get_logger(__name__)

SAMPLING = "sampling/createMessage"
"""What it is called where permission is asked for; no tool may be called so (MCP, "Tool Names")."""
_IMAGE_TOKENS = 1_500
"""What an image is taken for."""
_CHARS_PER_TOKEN = 3


def by_callback(sample: Sample, audit: AuditRecorder | None = None) -> Sampler:
    """Let the embedding program answer. As it may ask a person, the clocks of the calls stop meanwhile."""

    async def answer(request: SamplingRequest, errands: tuple[CallContext, ...]) -> SamplingReply | None:
        with call_context.waiting_for_a_person(errands):
            # What the embedding program gives nobody has checked: it may be anything.
            said: object = await sample(request)
        if isinstance(said, str):
            said = SamplingReply(said)
        if said is not None and not isinstance(said, SamplingReply):
            raise TypeError("neither a SamplingReply nor a text")
        _record(audit, request, errands, is_allowed=said is not None, decided_by="sample callback")
        return said

    return answer


@dataclass(slots=True)
class _Spent:
    """What one server has had of the model in one turn."""

    requests: int = 0
    tokens: int = 0


class ModelSampler:
    """The client's own model answers: on behalf of a call only, with the user's consent, and within a budget.

    Args:
        provider: the model.
        approve: is asked each time; None for a program that has switched this on and asks nobody.
        allow: patterns of what runs without asking, as ``server/sampling/createMessage``.
        limits: have the budget of one server in one turn.
        audit: keeps what is decided, before the model is asked.
    """

    def __init__(
        self,
        provider: Provider,
        approve: Approver | None,
        allow: tuple[str, ...],
        limits: Limits,
        audit: AuditRecorder | None = None,
    ) -> None:
        self._provider = provider
        self._approve = approve
        self._allow = allow
        self._limits = limits
        self._audit = audit
        self._granted: set[str] = set()
        self._one_question_at_a_time = anyio.Lock()
        self._spent: WeakKeyDictionary[Deadline, dict[str, _Spent]] = WeakKeyDictionary()

    async def __call__(self, request: SamplingRequest, errands: tuple[CallContext, ...]) -> SamplingReply | None:
        """Answer; None where it is refused."""
        budgets = [self._spent.setdefault(one.turn, defaultdict(_Spent))[request.server] for one in errands]
        most = min((self._limits.max_sampling_tokens - spent.tokens for spent in budgets), default=0)
        most = min(most - _tokens_of(request), request.max_tokens)
        if most <= 0 or any(spent.requests >= self._limits.max_sampling_requests for spent in budgets):
            log.warning("sampling_refused", server=request.server, why="no budget" if budgets else "no call under way")
            _record(self._audit, request, errands, is_allowed=False, decided_by="sampling budget")
            return None
        for spent in budgets:
            spent.requests += 1
            spent.tokens += most  # until it is known better: requests may come side by side
        used = Usage()
        try:
            is_allowed, decided_by = await self._decision(request, errands)
            _record(self._audit, request, errands, is_allowed=is_allowed, decided_by=decided_by)
            if not is_allowed:
                return None
            reply, used = await self._said(request, most)
        finally:
            for spent in budgets:
                spent.tokens += used.input_tokens + used.output_tokens - most
        if errands and (spend := errands[0].spend):
            spend(used, cost_usd(used, self._provider.info))
        return reply

    async def _decision(self, request: SamplingRequest, errands: tuple[CallContext, ...]) -> tuple[bool, str]:
        """Return whether the model may be asked, and who decided it."""
        name = f"{request.server}/{SAMPLING}"
        if self._approve is None:
            return True, "no approver"
        if pattern := next((p for p in self._allow if matches(p, request.server, SAMPLING)), None):
            return True, f"--allow {pattern}"
        call = ToolCallRequest("sampling", name, _shown(request))
        spec = ToolSpec(name, "Ask the model.", {"type": "object"}, request.server, SAMPLING)
        with call_context.waiting_for_a_person(errands):
            async with self._one_question_at_a_time:
                if request.server in self._granted:
                    return True, "grant"
                answer: object = await self._approve(call, spec, request.server)
        if not isinstance(answer, Approval):
            return False, "approver"
        if not answer.allowed:
            return False, answer.decided_by or "approver"
        if answer.decision != "once":
            self._granted.add(request.server)
        return True, answer.decided_by or "approver"

    async def _said(self, request: SamplingRequest, most: int) -> tuple[SamplingReply, Usage]:
        instruction = Instruction(InstructionSource.SERVERS, request.system)
        asked = ModelRequest(
            request.messages,
            instructions=(instruction,) if request.system else (),
            stop=request.stop,
            stream=False,
            max_tokens=most,
        )
        text: list[str] = []
        end = Completion(FinishReason.CUT)
        async with aclosing(self._provider.generate(asked)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextChunk):
                    text.append(delta.text)
                elif isinstance(delta, Completion):
                    end = delta
        reason = "maxTokens" if end.finish is FinishReason.LENGTH else "endTurn"
        return SamplingReply("".join(text), self._provider.info.name, reason), end.usage


def _record(
    audit: AuditRecorder | None,
    request: SamplingRequest,
    errands: tuple[CallContext, ...],
    *,
    is_allowed: bool,
    decided_by: str,
) -> None:
    entry = AuditEntry(
        event="sampling",
        id=new_id(),
        origin=common_origin(errand.origin for errand in errands),
        server=request.server,
        tool=", ".join(request.tools),
        decision="allowed" if is_allowed else "denied",
        decided_by=decided_by,
    )
    record(audit, entry)


def _shown(request: SamplingRequest) -> Mapping[str, Any]:
    """Give all that the model would be asked, for whoever is to allow it."""
    said = {"system": request.system} if request.system else {}
    for at, message in enumerate(request.messages, 1):
        parts = (message.content,) if isinstance(message.content, str) else message.content
        texts = (part if isinstance(part, str) else _in_words(part) for part in parts)
        said[f"{at}. {message.role}"] = "\n".join(texts)
    return {**said, "max_tokens": request.max_tokens}


def _in_words(part: Any) -> str:
    return part.text if isinstance(part, TextPart) else f"[{describe(part)}]"


def _tokens_of(request: SamplingRequest) -> int:
    """Give the tokens of what is to be read: an estimate on the safe side."""
    parts = [part for message in request.messages if not isinstance(message.content, str) for part in message.content]
    images = sum(_IMAGE_TOKENS for part in parts if not isinstance(part, TextPart))
    chars = len(request.system) + sum(len(message.text) for message in request.messages)
    return images + chars // _CHARS_PER_TOKEN
