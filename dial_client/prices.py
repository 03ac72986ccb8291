"""What an exchange with a model costs, where that is known: the prices are those of ``genai-prices``, if installed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from dial_client.messages import Usage


@dataclass(frozen=True, slots=True)
class Billing:
    """Under what a provider's tokens are billed."""

    model: str
    """The model's id at the endpoint."""
    url: str
    """The endpoint's address: a model's name alone does not say whose price is meant."""


def preload() -> None:
    """Import the prices, if they are installed: for a worker thread, while something else is waited for."""
    with suppress(ImportError):
        import genai_prices  # noqa: F401


def cost_at(provider: object, usage: Usage) -> float | None:
    """Give the price of one exchange with a provider; None where it has no `Billing`, or the price is not known."""
    return cost_usd(usage, getattr(provider, "billing", None))


def cost_usd(usage: Usage, billing: Billing | None) -> float | None:
    """Give the price of one exchange in US dollars; None where the model, its endpoint or all prices are unknown."""
    if billing is None or usage == Usage():
        return None
    try:
        from genai_prices import Usage as Billed
        from genai_prices import calc_price
    except ImportError:
        return None
    billed = Billed(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        return float(calc_price(billed, billing.model, provider_api_url=billing.url).total_price)
    except (LookupError, ValueError):  # an unknown model; counts that contradict each other
        return None
