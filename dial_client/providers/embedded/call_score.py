"""How sure the embedded model is of a decision, by the probabilities of its tokens.

A decision begins with ``{"tool``, ``{"answer`` or ``{"unknown``. After ``{"tool``, the grammar allows only the offered
tools, even if the model would write another name: for a poem it would call "write_poem", which the grammar turns into
"get_current_time". The probability of the name before the grammar was applied tells such calls from real ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.providers.embedded.json_prompt_format import ANSWER, UNKNOWN

CALL_THRESHOLD = -5.5
"""The minimum score of a call that is made."""
LOOK_UP_THRESHOLD = -7.5
"""The minimum score of a call that only looks up something that the question names."""
CODE_THRESHOLD = -9.0
"""The minimum score of a call that looks up a code of the question, or computes its expression: models know neither."""
UNKNOWN_DISCOUNT = 1.3
"""Subtracted from the log-probability of "unknown" when it is compared with a call: the model also says "unknown" for
live data, which calls can find."""
UNKNOWN_BONUS = 1.0
"""Added to the log-probability of "unknown" when it is compared with an answer. On the tuning half, without tools, 0.8
finds all questions that cannot be known; 1.1 adds "Is the sky blue?"."""
_UNLIKELY = -20.0
"""The log-probability that is used for a key word that is not among the likeliest tokens."""


@dataclass(frozen=True, slots=True)
class DecisionScore:
    """The scores of a decision, from the probabilities of its tokens."""

    call: float
    """The log-probability of the call: of its key word relative to the other two, plus that of the tool's name."""
    is_unknown: bool
    """True if "unknown" is likelier than an answer."""

    @property
    def is_call(self) -> bool:
        """True if the call is likely enough to be made."""
        return self.call >= CALL_THRESHOLD


def score_decision(tokens: Sequence[Mapping[str, Any]]) -> DecisionScore | None:
    """Return the score of a decision; None if the tokens do not begin with a decision.

    Args:
        tokens: The tokens as chat completions return them, ``{"token", "logprob", "top_logprobs"}``, with the
            log-probabilities before grammar and biases.
    """
    at = next((at for at, token in enumerate(tokens) if token["token"].strip('{" \n')), None)
    if at is None:
        return None
    likeliest = {top["token"].strip('{" \n'): float(top["logprob"]) for top in reversed(tokens[at]["top_logprobs"])}
    call, answer, unknown = (likeliest.get(word, _UNLIKELY) for word in ("tool", ANSWER, UNKNOWN))
    name = math.fsum(_find_name_logprobs(tokens[at + 1 :]))
    return DecisionScore(
        call=call - max(answer, unknown - UNKNOWN_DISCOUNT) + name, is_unknown=unknown + UNKNOWN_BONUS > answer
    )


def _find_name_logprobs(tokens: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Yield the log-probabilities of the tokens of a tool's name, after the key word ``tool``."""
    text = ""
    for token in tokens:
        text += token["token"]
        if text.count('"') >= 3 or "}" in text:
            yield float(token["logprob"])
            return
        if text.count('"') == 2 and text.rstrip()[-1:] != '"':
            yield float(token["logprob"])
