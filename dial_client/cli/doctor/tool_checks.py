"""Checks of the servers' tools: the texts and schemas that the model reads, and their size."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from anyio import to_thread

from dial_client.cli.doctor.findings import Finding
from dial_client.cli.doctor.subject import ServerOutcome, Subject
from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolSpec
from dial_client.providers import open_provider
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.server_cache import JsonCache, ToolPins
from dial_client.servers.status import ServerState
from dial_client.turns import prices

# Tokens of one server's definitions above which a finding reports them.
LARGE_SERVER_TOKENS = 10_000
# Tools may fill a quarter of the context window (1 divided by this number); above it, the model searches for tools.
WINDOW_SHARE = 4
# Phrases that do not describe a tool, but tell the model what to do or to hide.
_ORDERS = re.compile(
    r"<(?:important|system|instructions?|secret|critical)>|\[(?:system|inst)\]"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|other|all|system)\b"
    r".{0,30}\b(?:instruction|prompt|rule|message|direction)s?\b"
    r"|\b(?:do not|don't|never|without)\b.{0,30}\b(?:tell|mention|inform|notify|reveal|telling|mentioning)\b"
    r".{0,30}\b(?:user|anyone|anybody|human)\b"
    r"|\b(?:before|after|when(?:ever)?)\b.{0,40}\b(?:using|calling|invoking)\b.{0,30}\b(?:any|every|all|other|another)\b"
    r".{0,20}\btools?\b"
    r"|\bread\b.{0,40}(?:~/\.|\.ssh|id_rsa|\.env\b|credentials|mcp\.json)"
    r"|\b(?:send|forward|upload|exfiltrate)\b.{0,60}\b(?:conversation|chat history|system prompt|credentials|api keys?)"
    r"\b",
    re.IGNORECASE | re.DOTALL,
)
_TAKES_SECRETS = re.compile(
    r"(?:conversation|chat)_?(?:history|context|log)|system_?prompt|(?:user_?)?passwords?|private_?key|credit_?card"
    r"|all_?messages|previous_?messages|(?:environment|env)_?variables",
    re.IGNORECASE,
)


def check_descriptions(subject: Subject) -> Iterator[Finding]:
    """Yield the tools whose definitions instruct the model, mention other servers' tools, or have other problems."""
    owners: dict[str, list[str]] = {}
    for tool in subject.outcome.tools:
        owners.setdefault(tool.tool, []).append(tool.server)
    for tool in subject.outcome.tools:
        yield from _check_poisoning(subject, tool, owners)
        yield from _check_parameters(subject, tool)


def _check_poisoning(subject: Subject, tool: ToolSpec, owners: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    place, name = subject.find_place(tool.server), _describe_tool(tool)
    deny = f'"disabledTools": ["{tool.tool}"] disables the tool'
    texts = (tool.title or "", tool.description, *_find_descriptions(tool.original_schema))
    if orders := next((found for text in texts if (found := _ORDERS.search(text))), None):
        yield Finding("DC401", f"{name} has instructions for the model: {to_one_line(orders[0], 120)!r}", deny, *place)
    if tool.removed_invisible:
        text = f"{name} has {tool.removed_invisible:,} invisible characters, which the model does not get"
        yield Finding("DC402", text, deny, *place)
    for foreign in filter(tool.description.__contains__, owners):
        servers = owners[foreign]
        if tool.server not in servers and _is_distinctive(foreign) and _has_word(tool.description, foreign):
            text = f"{name} mentions the tool {foreign!r} of the server {servers[0]!r}"
            yield Finding("DC403", text, "a description that changes how other tools are used is an attack", *place)
    if not tool.description:
        yield Finding("DC407", f"{name} has no description: the model has only its name", "", *place)


def _is_distinctive(name: str) -> bool:
    """Return True if a tool's name is unlikely to be an ordinary word."""
    return len(name) > 3 and bool(re.search(r"[_-]|[a-z][A-Z]", name))


def _has_word(text: str, word: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text))


def _find_descriptions(schema: Any, depth: int = 0) -> Iterator[str]:
    """Yield the descriptions of all parameters."""
    if depth > 20:
        return
    if isinstance(schema, Mapping):
        if isinstance(schema.get("description"), str):
            yield schema["description"]
        for value in schema.values():
            yield from _find_descriptions(value, depth + 1)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from _find_descriptions(value, depth + 1)


def _check_parameters(subject: Subject, tool: ToolSpec) -> Iterator[Finding]:
    properties = tool.original_schema.get("properties")
    for parameter in properties if isinstance(properties, Mapping) else ():
        if _TAKES_SECRETS.fullmatch(str(parameter)):
            text = f"{_describe_tool(tool)} asks the model for {to_one_line(str(parameter), 60)!r}"
            hint = "a tool should ask only for the data it needs"
            yield Finding("DC408", text, hint, *subject.find_place(tool.server))


def check_schemas(subject: Subject) -> Iterator[Finding]:
    """Yield invalid schemas of tools, and names that several servers use."""
    for note in subject.outcome.notes:
        server = note.partition(":")[0]
        if server in subject.servers and " tool " in note:
            yield Finding("DC405", f"server {note}", "", *subject.find_place(server))
        elif "matches no" in note or "allows nothing" in note:
            yield Finding("DC116", note)
    names: dict[str, list[str]] = {}
    for tool in subject.outcome.tools:
        names.setdefault(tool.tool, []).append(tool.server)
    for name, servers in names.items():
        if len(servers) > 1:
            text = f"{len(servers)} servers have a tool {name!r}: {', '.join(servers)}"
            yield Finding("DC404", text, "the model sees them as SERVER__TOOL", *subject.find_place(servers[-1]))


async def check_sizes(subject: Subject) -> AsyncIterator[Finding]:
    """Yield the servers with large definitions, and a warning if all tools take much of the context window."""
    tokens = estimate_server_tokens(subject.outcome)
    for server, count in tokens.items():
        if count > LARGE_SERVER_TOKENS:
            text = f"server {server!r}: the definitions of its tools take about {count:,} tokens of each request"
            yield Finding("DC410", text, 'list only the tools you need in "enabledTools"', *subject.find_place(server))
    window = await find_window(subject)
    total = sum(tokens.values())
    if window and total > window // WINDOW_SHARE:
        text = f"the tools take about {total:,} of the {window:,} tokens of the context window"
        hint = 'list only the tools you need in "enabledTools"; otherwise the model searches for tools'
        yield Finding("DC406", text, hint)


def check_pins(subject: Subject) -> Iterator[Finding]:
    """Yield the tools that have changed since they were approved."""
    if subject.tool_pins is None:
        return
    pins = ToolPins(JsonCache(subject.tool_pins), subject.servers)
    for tool in subject.outcome.tools:
        if pins.describe_change(tool):
            text = f"{_describe_tool(tool)} has changed since you approved it"
            yield Finding("DC409", text, "dial-chat shows the change and asks again", *subject.find_place(tool.server))


def _describe_tool(tool: ToolSpec) -> str:
    return f"tool {to_one_line(tool.tool, 60)!r} of server {to_one_line(tool.server, 60)!r}"


# Bytes of a definition that count as one token, an estimate.
BYTES_PER_TOKEN = 3


def measure_server_bytes(outcome: ServerOutcome) -> Counter[str]:
    """Return for each server the bytes of its tools' definitions, which requests repeat."""
    sizes: Counter[str] = Counter()
    for tool in outcome.tools:
        text = json.dumps([tool.name, tool.description, tool.input_schema], ensure_ascii=False, default=str)
        sizes[tool.server] += len(text.encode(errors="replace"))
    return sizes


def estimate_server_tokens(outcome: ServerOutcome) -> Mapping[str, int]:
    """Return for each server the estimated number of tokens of its tools' definitions."""
    return {server: size // BYTES_PER_TOKEN for server, size in measure_server_bytes(outcome).items()}


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
        provider = open_provider(name, models=subject.models, base_url=subject.base_url, environ=subject.environ)
    except ConfigError:
        return None
    try:
        return provider.info.context_window or await to_thread.run_sync(prices.find_context_window, provider.info)
    finally:
        await provider.aclose()


def format_size_lines(outcome: ServerOutcome, window: int | None, limits: Limits) -> list[str]:
    """Return the lines of a table: for each server with tools, and in total, the number of tools and their tokens.

    The first line says whether requests have all of them. The largest server is the first. A last line names the
    servers that are not available.
    """
    sizes = measure_server_bytes(outcome)
    if not sizes:
        return []
    tokens = estimate_server_tokens(outcome)
    counts = Counter(tool.server for tool in outcome.tools)
    rows = [
        (to_one_line(server, 40), counts[server], f"{tokens[server]:,}", f"{size:,}")
        for server, size in sizes.most_common()
    ]
    total = sum(tokens.values())
    share = f" of {window:,} ({total / window:.0%})" if window else ""
    rows.append(("all", counts.total(), f"{total:,}", f"{sum(sizes.values()):,}"))
    width = max(len(name) for name, *_ in rows)
    digits = max(len(token) for _, _, token, _ in rows)
    byte_digits = max(len(size) for *_, size in rows)
    lines = [
        f"  {name:<{width}}  {count:>4} {'tool ' if count == 1 else 'tools'}  "
        f"{size:>{byte_digits}} bytes  {token:>{digits}}"
        for name, count, token, size in rows
    ]
    left_out = (ServerState.READY, ServerState.DISABLED)
    missing = [name for name, status in outcome.statuses.items() if status.state not in left_out and name not in sizes]
    named = f"  not counted, because they are not available: {to_one_line(', '.join(missing), 400)}"
    why = _find_why_searched(counts.total(), sum(sizes.values()), window, limits)
    title = f"Tools that the model searches for, because they {why}" if why else "Tools in each request"
    return [
        f"{title}, in bytes and tokens (3 bytes):",
        *lines[:-1],
        f"{lines[-1]}{share}",
        *([named] if missing else ()),
    ]


def _find_why_searched(count: int, size: int, window: int | None, limits: Limits) -> str:
    """Return why requests do not have all tools; empty if they have."""
    if count > limits.max_tools:
        return f"are more than {limits.max_tools:,} (limits.maxTools)"
    if size > limits.max_tool_bytes:
        return f"have more than {limits.max_tool_bytes:,} bytes (limits.maxToolBytes)"
    is_large = window is not None and size // BYTES_PER_TOKEN > window // WINDOW_SHARE
    return "take more than a quarter of the context window" if is_large else ""
