"""The provider that asks the embedded model for decisions, and scores each decision by its token probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dial_client.messages.model import Completion, Delta
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.chat_stream import ChatStreamParser
from dial_client.providers.embedded.call_score import score_decision

LOGPROBS: Mapping[str, Any] = {"logprobs": True, "top_logprobs": 20}
"""The fields of a request that ask for the log probabilities of the reply's tokens."""


class DecisionProvider(ChatProvider):
    """Asks for decisions. The echo of each `Completion` is the decision's `DecisionScore` as JSON, if there is one."""

    def _create_parser(self) -> ChatStreamParser:
        return _ScoringParser(self._adaptation.profile)


class _ScoringParser(ChatStreamParser):
    """Parses an unstreamed chat completion, and scores it by the probabilities of its tokens."""

    _tokens: Sequence[Mapping[str, Any]] = ()

    def feed(self, value: Any) -> Sequence[Delta]:
        deltas = super().feed(value)
        for choice in value.get("choices") or ():
            self._tokens = (choice.get("logprobs") or {}).get("content") or ()
        return deltas

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        score = score_decision(self._tokens)
        return [_with_echo(delta, asdict(score)) if score else delta for delta in super().finish(notes)]


def _with_echo(delta: Delta, echo: Mapping[str, Any]) -> Delta:
    return replace(delta, echo=echo) if isinstance(delta, Completion) else delta
