"""The price of a request to a model, and the model's context window, from ``genai-prices`` if it is installed."""

from __future__ import annotations

from contextlib import suppress

from dial_client.messages.model import ModelInfo
from dial_client.messages.token_usage import Usage


def preload() -> None:
    """Import the price list, if it is installed. Call it in a worker thread: the import takes a while."""
    with suppress(ImportError):
        import genai_prices  # noqa: F401


def compute_cost(usage: Usage, info: ModelInfo) -> float | None:
    """Return the price of one request in US dollars.

    None if the model or its endpoint is unknown, ``genai-prices`` is not installed, or the endpoint ran tools itself,
    which it bills separately from tokens.
    """
    if not info.url or usage == Usage() or usage.server_tool_calls:
        return None
    try:
        from genai_prices import Usage as BilledUsage
        from genai_prices import calc_price
    except ImportError:
        return None
    billed = BilledUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        return float(calc_price(billed, info.model, provider_api_url=info.url).total_price)
    except (LookupError, ValueError):  # an unknown model; counts that contradict each other
        return None


def find_context_window(info: ModelInfo) -> int | None:
    """Return the size of a model's context window in tokens, from the price list; None if it is unknown."""
    if not info.url:
        return None
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    try:
        return get_snapshot().find_provider_model(info.model, None, None, info.url)[1].context_window
    except LookupError:
        return None
