"""Answers to servers' sampling requests: by a callback, or by the client's own model within a budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import AuditRecorder, find_common_origin, record_request
from dial_client.hooks.call_context import CallContext
from dial_client.hooks.middleware import MiddlewareChain
from dial_client.hooks.server_callbacks import Sample, Sampler, SamplingReply, SamplingRequest
from dial_client.messages.limits import Limits
from dial_client.messages.message import TextPart, ToolCallRequest, ToolSpec, describe_content
from dial_client.messages.model import (
    FinishReason,
    Instruction,
    InstructionSource,
    ModelInfo,
    ModelRequest,
    ModelSettings,
    Provider,
)
from dial_client.messages.token_usage import Usage
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.settings.policy_config import matches
from dial_client.tools.approval import ApprovalContext, Approver, read_answer
from dial_client.turns.model_call import generate_text
from dial_client.turns.prices import compute_cost

log = get_logger(__name__)

# The name of sampling in approvals and patterns. MCP advises against a slash in the name of a tool, but allows it: a
# pattern that matches a tool of this name allows sampling too.
SAMPLING = "sampling/createMessage"
# Estimated tokens of an image.
_IMAGE_TOKENS = 1_500
_CHARS_PER_TOKEN = 3


def build_callback_sampler(sample: Sample, audit: AuditRecorder | None = None) -> Sampler:
    """Return a sampler that calls `sample`; tool call timeouts pause meanwhile, because `sample` may ask the user."""

    async def answer(request: SamplingRequest, contexts: tuple[CallContext, ...]) -> SamplingReply | None:
        with call_context.pause_deadlines(contexts):
            reply: object = await sample(request)  # a callback may return a value of any type
        if isinstance(reply, str):
            reply = SamplingReply(reply)
        if reply is not None and not isinstance(reply, SamplingReply):
            raise TypeError(f"the `sample` callback returned {type(reply).__name__}, not a SamplingReply or a text")
        _record(audit, request, contexts, "denied" if reply is None else "allowed", "sample callback")
        return reply

    return answer


@dataclass(eq=False, slots=True)
class _Spending:
    """The requests and tokens that one server has used in one turn."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ModelSampler:
    """A sampler that asks the client's own model: only during a tool call, with the user's consent, within a budget."""

    provider: Callable[[], Provider]
    """Returns the client's current model."""
    approve: Approver | None
    """Asks for permission; None if the program enables sampling without approval."""
    allow: tuple[str, ...]
    """Patterns of servers that need no permission, such as ``server/sampling/createMessage``."""
    limits: Limits
    """The limits of a turn, which include the budget of one server."""
    audit: AuditRecorder | None = None
    """Records each decision before the model is asked."""
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    """Wraps each request to the model."""
    single_user: bool = False
    """True if one person answers for all turns (`ApprovalPolicy.single_user`)."""
    prefix: str = ""
    """What precedes the name of the patterns in the audit log (`ApprovalPolicy.prefix`)."""
    # The parties that allow all requests of a server until the client is closed, each with the server.
    _granted: set[tuple[tuple[str, str], str]] = field(default_factory=set, init=False)
    _approval_lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _spendings: WeakKeyDictionary[Deadline, dict[str, _Spending]] = field(default_factory=WeakKeyDictionary, init=False)

    async def __call__(self, request: SamplingRequest, contexts: tuple[CallContext, ...]) -> SamplingReply | None:
        """Return the model's reply; None if the request is refused."""
        spendings = [
            self._spendings.setdefault(context.turn, defaultdict(_Spending))[request.server] for context in contexts
        ]
        max_tokens = self._compute_max_tokens(request, spendings)
        if max_tokens <= 0:
            why = "no budget" if spendings else "no call under way"
            log.warning("sampling_refused", server=request.server, why=why)
            _record(self.audit, request, contexts, "denied", "sampling budget")
            return None
        for spending in spendings:
            spending.requests += 1
            spending.tokens += max_tokens  # reserve the maximum: requests may run concurrently
        used = Usage()
        try:
            is_allowed, decided_by = await self._decide(request, contexts)
            _record(self.audit, request, contexts, "allowed" if is_allowed else "denied", decided_by)
            if not is_allowed:
                return None
            reply, used, info = await self._ask(request, max_tokens)
        finally:
            for spending in spendings:
                spending.tokens += used.input_tokens + used.output_tokens - max_tokens
        if contexts and (spend := contexts[0].spend):
            spend(used, compute_cost(used, info))
        return reply

    def _compute_max_tokens(self, request: SamplingRequest, spendings: list[_Spending]) -> int:
        """Return the maximum tokens of the reply; 0 or less if the budget is used up, or no turn is running."""
        if any(spending.requests >= self.limits.max_sampling_requests for spending in spendings):
            return 0
        budget = min((self.limits.max_sampling_tokens - spending.tokens for spending in spendings), default=0)
        return min(budget - _estimate_tokens(request), request.max_tokens)

    async def _decide(self, request: SamplingRequest, contexts: tuple[CallContext, ...]) -> tuple[bool, str]:
        """Return whether the model may be asked, and who decided it."""
        name = f"{request.server}/{SAMPLING}"
        if self.approve is None:
            return True, "no approver"
        if pattern := next((p for p in self.allow if matches(p, request.server, SAMPLING)), None):
            return True, f"{self.prefix}allow {pattern}"
        # The approver shows the whole request.
        arguments = {"system": request.system} if request.system else {}
        for number, message in enumerate(request.messages, 1):
            arguments[f"{number}. {message.role}"] = describe_content(message.content)
        call = ToolCallRequest("sampling", name, {**arguments, "max_tokens": request.max_tokens})
        spec = ToolSpec(name, "Ask the model.", {"type": "object"}, request.server, SAMPLING)
        origin = find_common_origin(context.origin for context in contexts)
        circumstances = ApprovalContext(
            request.server, turn_id=origin.turn, conversation_id=origin.conversation, owner=origin.owner
        )
        is_shared = self.single_user and not origin.client
        grant = (("", "") if is_shared else origin.party), request.server
        with call_context.pause_deadlines(contexts):
            async with self._approval_lock:
                if grant in self._granted:
                    return True, "grant"
                given = await self.approve(call, spec, circumstances)
        try:
            answer = read_answer(given)
        except ValueError:
            return False, "approver"
        if not answer.allowed:
            return False, answer.decided_by or "approver"
        if answer.decision != "once" and (is_shared or any(origin.party)):
            self._granted.add(grant)
        return True, answer.decided_by or "approver"

    async def _ask(self, request: SamplingRequest, max_tokens: int) -> tuple[SamplingReply, Usage, ModelInfo]:
        """Return the model's reply, its usage, and the model that answered, which may be a fallback model."""
        instruction = Instruction(InstructionSource.SERVERS, request.system)
        model_request = ModelRequest(
            request.messages,
            instructions=(instruction,) if request.system else (),
            stop=request.stop,
            stream=False,
            settings=ModelSettings(max_tokens=max_tokens),
            endpoint_tools=False,
        )
        provider = self.provider()
        reply = await generate_text(provider, model_request, self.middleware)
        reason = "maxTokens" if reply.finish is FinishReason.LENGTH else "endTurn"
        info = reply.info or provider.info
        return SamplingReply(reply.message.text, info.name, reason), reply.usage, info


def _record(
    audit: AuditRecorder | None,
    request: SamplingRequest,
    contexts: Iterable[CallContext],
    decision: str,
    decided_by: str,
) -> None:
    origins = (context.origin for context in contexts)
    record_request(audit, "sampling", request.server, request.tools, origins, decision, decided_by)


def _estimate_tokens(request: SamplingRequest) -> int:
    """Return a conservative estimate of the request's tokens."""
    parts = [part for message in request.messages if not isinstance(message.content, str) for part in message.content]
    images = sum(_IMAGE_TOKENS for part in parts if not isinstance(part, TextPart))
    chars = len(request.system) + sum(len(message.text) for message in request.messages)
    return images + chars // _CHARS_PER_TOKEN
