"""The price of a request to a model, as its profile states it, and else from ``genai-prices`` if it is installed.

The context window of a model is in this list, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dial_client.messages.model import ModelInfo
from dial_client.messages.token_usage import Usage


@cache
def load_prices() -> Any:
    """Return the module ``genai_prices``, or None if it is not installed.

    The first call should be in a worker thread: the import takes a while. Python does not remember what is missing, and
    would look for it in every folder at each request.
    """
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices


def compute_cost(usage: Usage, info: ModelInfo) -> float | None:
    """Return the price of one request in US dollars.

    None if the model or its endpoint is unknown, ``genai-prices`` is not installed, or the endpoint ran tools itself,
    which it bills separately from tokens.
    """
    if usage == Usage() or usage.server_tool_calls:
        return None
    if info.prices:
        price = info.prices
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        cost = (usage.input_tokens - cached - written) * price["input"] + usage.output_tokens * price["output"]
        cost += cached * price.get("cached_input", price["input"])
        cost += written * price.get("cache_write", price["input"])
        return cost / 1_000_000
    if not info.url or (prices := load_prices()) is None:
        return None
    billed = prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        return float(prices.calc_price(billed, info.model, provider_api_url=info.url).total_price)
    except (LookupError, ValueError):  # an unknown model; counts that contradict each other
        return None


def find_context_window(info: ModelInfo) -> int | None:
    """Return the size of a model's context window in tokens, from the price list; None if it is unknown."""
    if not info.url or (prices := load_prices()) is None:
        return None
    try:
        model = prices.data_snapshot.get_snapshot().find_provider_model(info.model, None, None, info.url)[1]
    except LookupError:
        return None
    window: int | None = model.context_window
    return window
