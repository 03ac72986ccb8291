"""Tool calls for a model without an API for them: a `Provider` that asks another provider in two steps.

First the model decides under a grammar, in the format of `local.json_prompt_format`: it chooses a call or an answer.
`local.call_policy` determines which calls are made. For an answer, the model is then asked again in plain text
(`local.answer_prompt`), without a grammar.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from dial_client.messages.message import Message, Role
from dial_client.messages.model import (
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    Instruction,
    InstructionSource,
    ModelRequest,
    OutputFormat,
    Provider,
    TextChunk,
)
from dial_client.messages.token_usage import Usage
from dial_client.providers.embedded.answer_prompt import (
    build_answer_instructions,
    build_answer_messages,
    find_question,
    find_results,
    has_results,
)
from dial_client.providers.embedded.call_policy import CallPolicy
from dial_client.providers.embedded.call_score import DecisionScore
from dial_client.providers.embedded.clause_policy import ClausePolicy, find_first_request
from dial_client.providers.embedded.decision_step import DecisionStep
from dial_client.providers.embedded.echo import ANSWER_NOW, Opening
from dial_client.providers.embedded.json_prompt_format import find_called_tool, is_unknown, parse_call
from dial_client.providers.embedded.repetition import Repetition
from dial_client.providers.embedded.result_check import ResultCheck, find_shown_result
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

_AS_JSON = "Answer with one JSON object that satisfies this JSON Schema:\n{schema}"

REPEATED = "the answer was stopped, because the embedded model repeated itself"
"""The note on an answer that was stopped because it repeated itself."""


class GrammarToolCallingProvider:
    """Asks a model for a decision, and then for an answer, and yields the deltas of an ordinary reply.

    The three providers ask the same model. They are closed with this provider.

    Args:
        decider: The provider for decisions, which must support a grammar.
        reporter: The provider for answers from tool results; None for `decider`.
        writer: The provider for other answers; None for `decider`.
    """

    def __init__(self, decider: Provider, reporter: Provider | None = None, writer: Provider | None = None) -> None:
        self.info = decider.info
        self._decider = decider
        self._reporter = reporter or decider
        self._writer = writer or decider

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model for decisions until a call or an answer is chosen, and yield the reply as it arrives.

        Raises:
            ProviderError: One of the inner providers raised it.
        """
        if _needs_no_decision(request):
            async with aclosing(self._reporter.generate(request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        # A decision has its own grammar, which would have no effect beside an output format in the same request.
        decision_request = replace(request, output_format=None)
        clauses = ClausePolicy(decision_request, self.info.name)
        policy = CallPolicy(decision_request, self.info.name)
        form, usage = request.output_format, Usage()
        if not _is_answer_next(request):
            usage += await self._decide_all(clauses)
            if clauses.call is None:
                policy, used = await self._decide_call(decision_request)
                usage += used
        if call := clauses.call or policy.call:
            yield CallChunk(call)
            echo = {"then": policy.next_tool} if policy.next_tool else None
            yield Completion(FinishReason.TOOL_CALLS, usage, echo)
        elif form is not None and not policy.reply:
            async with aclosing(self._reporter.generate(_build_json_request(request, form))) as deltas:
                async for delta in deltas:
                    yield replace(delta, usage=usage + delta.usage) if isinstance(delta, Completion) else delta
        elif reply := policy.reply or ("" if clauses.note else _find_shown_result(request)):
            yield TextChunk(reply)
            # A structured answer counts as refused: under its grammar the model would invent unknown facts.
            yield Completion(FinishReason.STOP if form is None else FinishReason.REFUSED, usage)
        else:
            async with aclosing(self._answer(request, usage, clauses.note)) as deltas:
                async for delta in deltas:
                    yield delta

    async def _answer(self, request: ModelRequest, usage: Usage, note: str) -> AsyncGenerator[Delta, None]:
        """Ask for an answer, and once more if the answer only repeats the question; append `note` to the answer."""
        model = self._reporter if has_results(request.messages) else self._writer
        answer_request = _build_answer_request(request)
        check = ResultCheck(find_question(request.messages), find_results(request.messages))
        for is_last in (False, True):
            opening, repetition = (
                Opening("" if is_last or not answer_request.messages else answer_request.messages[-1].text),
                Repetition(),
            )
            async with aclosing(model.generate(answer_request)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, TextChunk):
                        if shown := check.feed(opening.feed(delta.text)):
                            yield TextChunk(shown)
                        if repetition.feed(delta.text):
                            yield Completion(FinishReason.LENGTH, usage, notes=(REPEATED,))
                            return
                    elif not isinstance(delta, Completion):
                        yield delta
                    elif opening.is_echo:
                        usage += delta.usage
                    else:
                        if remaining_text := check.feed(opening.finish()) + check.finish() + (note and f"\n\n{note}"):
                            yield TextChunk(remaining_text)
                        yield replace(delta, usage=usage + delta.usage)
            if not opening.is_echo:
                return
            *before, last = answer_request.messages
            repeated_question = Message.user(ANSWER_NOW.format(question=last.text))
            answer_request = replace(answer_request, messages=(*before, repeated_question))

    async def _decide_call(self, request: ModelRequest) -> tuple[CallPolicy, Usage]:
        """Decide about the first request in the question alone; if that yields no call, about the whole question."""
        usage = Usage()
        if (first := find_first_request(request)) is not None:
            policy = CallPolicy(first, self.info.name)
            usage += await self._decide_all(policy)
            if policy.call is not None:
                return policy, usage
        policy = CallPolicy(request, self.info.name)
        return policy, usage + await self._decide_all(policy)

    async def _decide_all(self, policy: CallPolicy | ClausePolicy) -> Usage:
        """Run all steps of a policy."""
        usage = Usage()
        while (step := policy.step) is not None:
            usage += await self._decide(policy, step)
        return usage

    async def _decide(self, policy: CallPolicy | ClausePolicy, step: DecisionStep) -> Usage:
        """Run one step: ask the model for a decision, and pass the decision to the policy."""
        text: list[str] = []
        completion = Completion(FinishReason.CUT)
        async with aclosing(self._decider.generate(policy.request(step))) as deltas:
            async for delta in deltas:
                if isinstance(delta, Completion):
                    completion = delta
                elif isinstance(delta, TextChunk):
                    text.append(delta.text)
        reply = "".join(text)
        tool = find_called_tool(reply)
        score = DecisionScore(**completion.echo) if completion.echo else None
        is_unanswerable = score.is_unknown if score is not None and not tool else is_unknown(reply)
        if is_unanswerable:
            policy.take_unknown(score)
        else:
            policy.take(tool, parse_call(reply) if completion.finish is FinishReason.STOP else None, score)
        log.debug("step", tools=len(step.tools), tool=tool, is_made=policy.call is not None)
        return completion.usage

    async def aclose(self) -> None:
        """Close the inner providers."""
        for model in dict.fromkeys((self._decider, self._reporter, self._writer)):
            await model.aclose()


def _needs_no_decision(request: ModelRequest) -> bool:
    """Return True if the host uses a text tool format, or if there is no question to decide about."""
    if request.tools:
        return False
    is_question = bool(request.messages) and request.messages[-1].role is Role.USER
    return not is_question or bool(request.grammar or request.schema or request.stop)


def _is_answer_next(request: ModelRequest) -> bool:
    """Return True if no decision is needed: the answer has an output format, and no tool can be called.

    A decision would often misjudge a text for extraction as a question about current data.
    """
    return request.output_format is not None and not (request.tools and request.allows_calls)


def _build_json_request(request: ModelRequest, form: OutputFormat) -> ModelRequest:
    answer_request = _build_answer_request(request)
    text = _AS_JSON.format(schema=json.dumps(form.schema, ensure_ascii=False))
    return replace(
        answer_request, instructions=(*answer_request.instructions, Instruction(InstructionSource.HOST, text))
    )


def _find_shown_result(request: ModelRequest) -> str:
    return find_shown_result(find_question(request.messages), find_results(request.messages)) or ""


def _build_answer_request(request: ModelRequest) -> ModelRequest:
    return replace(
        request,
        instructions=build_answer_instructions(request),
        messages=build_answer_messages(request.messages),
        tools=(),
        settings=replace(request.settings, tool_choice=None),
    )
