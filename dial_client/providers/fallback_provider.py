"""A provider that asks fallback models when the first model cannot answer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from dial_client.messages.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    OUTPUT_FORMAT_UNSUPPORTED,
    SEARCH_UNSUPPORTED,
    TOOLS_UNSUPPORTED,
    ProviderError,
)
from dial_client.messages.model import Completion, Delta, ModelInfo, ModelRequest, Preparable, Provider
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

PAUSE = 60.0
"""Seconds for which a model that failed is asked only after the other models."""

_REQUEST_REFUSAL_STATUSES = frozenset({400, 413, 422})
"""HTTP statuses that refuse the request itself, which another model would receive unchanged."""
_ADAPTABLE_CODES = frozenset(
    {CONTEXT_LENGTH_EXCEEDED, OUTPUT_FORMAT_UNSUPPORTED, SEARCH_UNSUPPORTED, TOOLS_UNSUPPORTED}
)
"""Codes of errors after which the same model receives a changed request."""


@dataclass(slots=True)
class _Candidate:
    """A model, with the record of its last failure."""

    provider: Provider
    paused_until: float = 0.0
    """The end of the pause after a failure, in seconds of the clock."""
    error: str = ""
    """The message of the last error; empty if there was none."""


class FallbackProvider:
    """Asks its models in order, until one of them can answer.

    The next model is asked if a model fails before the first delta of its reply: the endpoint cannot be reached, is
    still busy or broken after all retries, refuses the key, or does not have the model. The next model is not asked if
    the endpoint refuses the request itself. For `PAUSE` seconds, a model that failed is asked only after the others, so
    that later requests of a turn do not wait for it again.

    Args:
        providers: The providers of the models, in the order in which they are asked; at least one.
        clock: The function that returns the time in seconds.
    """

    def __init__(self, providers: Sequence[Provider], clock: Callable[[], float] = time.monotonic) -> None:
        self._candidates = [_Candidate(provider) for provider in providers]
        self._clock = clock

    @property
    def info(self) -> ModelInfo:
        """The known properties of the model that is asked next, with the secrets of all models."""
        secrets = (secret for candidate in self._candidates for secret in candidate.provider.info.secrets)
        return replace(self._sort_candidates()[0].provider.info, secrets=tuple(dict.fromkeys(secrets)))

    async def prepare(self) -> None:
        """Prepare the first model. The other models are prepared when they are asked."""
        provider = self._candidates[0].provider
        if isinstance(provider, Preparable):
            await provider.prepare()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the models one after the other, and yield the first reply that begins.

        Raises:
            ProviderError: No model could answer, the request was refused, or the connection broke during a reply.
        """
        errors: list[ProviderError] = []
        for candidate in self._sort_candidates():
            has_begun = False
            try:
                async with aclosing(candidate.provider.generate(request)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield self._with_origin(delta, candidate) if isinstance(delta, Completion) else delta
            except ProviderError as error:
                # The user has read the beginning of a reply: another model would begin a different one.
                if has_begun or not can_fall_back(error):
                    raise
                self._pause(candidate, error)
                errors.append(error)
            else:
                candidate.paused_until = 0.0
                return
        raise _join(errors)

    async def aclose(self) -> None:
        """Close all models."""
        for candidate in self._candidates:
            await candidate.provider.aclose()

    def _sort_candidates(self) -> list[_Candidate]:
        """Return the models in the current order: those that failed less than `PAUSE` seconds ago are last."""
        now = self._clock()
        return sorted(self._candidates, key=lambda candidate: candidate.paused_until > now)

    def _pause(self, candidate: _Candidate, error: ProviderError) -> None:
        # Otherwise each request of the turn would wait for the same failure again.
        candidate.paused_until = self._clock() + max(PAUSE, error.retry_after or 0.0)
        candidate.error = str(error)
        log.warning("model_fallback", provider=candidate.provider.info.name, status=error.status, code=error.code)

    def _with_origin(self, completion: Completion, answering: _Candidate) -> Completion:
        """Return the `Completion` with the model that answered, and a note on each earlier model that failed."""
        info = answering.provider.info
        if answering is self._candidates[0]:
            return replace(completion, info=info)
        before = self._candidates[: self._candidates.index(answering)]
        notes = (
            f"{info.name} answered in place of {candidate.provider.info.name}: {candidate.error}"
            for candidate in before
            if candidate.error
        )
        return replace(completion, info=info, notes=(*notes, *completion.notes))


def can_fall_back(error: ProviderError) -> bool:
    """Return True if another model may be able to answer the unchanged request."""
    return error.code not in _ADAPTABLE_CODES and error.status not in _REQUEST_REFUSAL_STATUSES


def _join(errors: Sequence[ProviderError]) -> ProviderError:
    """Return one error for all models, with the status and the code of the first error."""
    first = errors[0]
    if len(errors) == 1:
        return first
    text = "; then ".join(str(error) for error in errors)
    return ProviderError(text, status=first.status, code=first.code, retry_after=first.retry_after)
