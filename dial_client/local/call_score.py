"""How sure the embedded model is of a decision, by the probabilities of its tokens.

A decision begins with ``{"tool``, ``{"answer`` or ``{"unknown``. The grammar leaves only tools on offer behind the
first of them, whether or not the model meant one of those: for a poem it would call "write_poem", and the grammar makes
"get_current_time" of that. How likely the name was before the grammar tells the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.local.json_prompt_format import ANSWER, UNKNOWN

CALL_THRESHOLD = -5.5
"""The least score of a call that is made."""
LOOK_UP_THRESHOLD = -7.5
"""The least score of a call that only looks up what the question names."""
CODE_THRESHOLD = -9.0
"""The least score of a call that looks up a code of the question, or computes its sum: nobody knows these by heart."""
UNKNOWN_DISCOUNT = 1.3
"""Taken off the log-probability of "unknown" against a call: it is said of live things, for which calls are made."""
UNKNOWN_BONUS = 1.0
"""Added to it against an answer. On the tuning half, without tools, 0.8 finds all that cannot be known; 1.1 takes
"Is the sky blue?" for that."""
_UNLIKELY = -20.0
"""Stands for the log-probability of a key word that is not among the likeliest tokens."""


@dataclass(frozen=True, slots=True)
class DecisionScore:
    """What the probabilities of a decision say."""

    call: float
    """How likely the call was: of its key word against the other two, and of the tool's name; logarithms."""
    is_unknown: bool
    """Without the call, "unknown" is likelier than an answer."""

    @property
    def is_call(self) -> bool:
        """True if the call is likely enough to be made."""
        return self.call >= CALL_THRESHOLD


def score_decision(tokens: Sequence[Mapping[str, Any]]) -> DecisionScore | None:
    """Return the score of a decision, or None where the tokens do not begin like one.

    Args:
        tokens: as chat completions return them: ``{"token", "logprob", "top_logprobs"}``, before grammar and biases.
    """
    at = next((at for at, token in enumerate(tokens) if token["token"].strip('{" \n')), None)
    if at is None:
        return None
    likeliest = {top["token"].strip('{" \n'): float(top["logprob"]) for top in reversed(tokens[at]["top_logprobs"])}
    call, answer, unknown = (likeliest.get(word, _UNLIKELY) for word in ("tool", ANSWER, UNKNOWN))
    name = math.fsum(_name_logprobs(tokens[at + 1 :]))
    return DecisionScore(
        call=call - max(answer, unknown - UNKNOWN_DISCOUNT) + name, is_unknown=unknown + UNKNOWN_BONUS > answer
    )


def _name_logprobs(tokens: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Yield the log-probabilities of the tokens of a tool's name, behind the key word ``tool``."""
    text = ""
    for token in tokens:
        text += token["token"]
        if text.count('"') >= 3 or "}" in text:
            yield float(token["logprob"])
            return
        if text.count('"') == 2 and text.rstrip()[-1:] != '"':
            yield float(token["logprob"])
