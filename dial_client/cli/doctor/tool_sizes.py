"""The number of tokens that the definitions of tools take in each request, and the model's context window."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from anyio import to_thread

from dial_client.cli.doctor.server_run import ServerOutcome
from dial_client.cli.doctor.subject import Subject
from dial_client.messages.errors import ConfigError
from dial_client.providers import open_provider
from dial_client.runtime.safe_text import to_one_line
from dial_client.turns import prices

BYTES_PER_TOKEN = 3
"""Bytes of a definition that count as one token, an estimate."""


def estimate_server_tokens(outcome: ServerOutcome) -> Mapping[str, int]:
    """Return for each server the estimated number of tokens of its tools' definitions."""
    counts: Counter[str] = Counter()
    for tool in outcome.tools:
        text = json.dumps([tool.name, tool.description, tool.input_schema], ensure_ascii=False, default=str)
        counts[tool.server] += len(text.encode(errors="replace")) // BYTES_PER_TOKEN
    return counts


async def find_window(subject: Subject) -> int | None:
    """Return the size of the model's context window in tokens; None if it is unknown.

    The sources are, in this order, the configuration, the provider and the price list.
    """
    name = subject.model_name
    if name is None:
        return None
    profile = subject.models.get(name)
    if profile is not None and profile.context_window is not None:
        return profile.context_window
    try:
        provider = open_provider(name, models=subject.models, base_url=subject.target.base_url, environ=subject.environ)
    except ConfigError:
        return None
    try:
        return provider.info.context_window or await to_thread.run_sync(prices.find_context_window, provider.info)
    finally:
        await provider.aclose()


def format_size_lines(outcome: ServerOutcome, window: int | None) -> list[str]:
    """Return the lines of a table: for each server with tools, and in total, the number of tools and their tokens."""
    tokens = estimate_server_tokens(outcome)
    if not tokens:
        return []
    counts = Counter(tool.server for tool in outcome.tools)
    rows = [(to_one_line(server, 40), counts[server], f"{size:,}") for server, size in tokens.items()]
    total = sum(tokens.values())
    share = f" of {window:,} ({total / window:.0%})" if window else ""
    rows.append(("all", counts.total(), f"{total:,}"))
    width = max(len(name) for name, _, _ in rows)
    digits = max(len(size) for _, _, size in rows)
    lines = [
        f"  {name:<{width}}  {count:>4} {'tool ' if count == 1 else 'tools'}  {size:>{digits}}"
        for name, count, size in rows
    ]
    return ["Tools in each request, in tokens (a token is taken to be 3 bytes):", *lines[:-1], f"{lines[-1]}{share}"]
