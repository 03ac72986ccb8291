"""The limits of persons: how often they may ask, how much they may use, and which models, servers and tools.

A file has them by the names of persons and groups:

    {
      "*": {"turns": 4, "requestsPerMinute": 120, "tokensPerDay": 2000000, "usdPerMonth": 20, "tools": ["time/*"]},
      "group:guests": {"servers": ["time", "docs"]},
      "group:staff": {"usdPerMonth": 100, "tools": ["*"]},
      "owner:anna@example.org": {"turns": 16}
    }
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, time, timedelta
from math import ceil
from pathlib import Path
from typing import Any

from dial_client.hooks.middleware import CallNext, Middleware, ModelReply, ToolCall
from dial_client.hooks.owners import find_owner
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.messages.message import Failure, ToolCallResult, ToolSpec, build_not_run_result
from dial_client.messages.model import ModelRequest
from dial_client.serve.http_messages import HttpError
from dial_client.serve.people.authentication import Person
from dial_client.serve.people.usage_ledger import UsageLedger, get_today
from dial_client.settings.policy_config import matches
from dial_client.stores.owner_usage import UsedAmount

# Persons whose groups are remembered.
_MAX_PERSONS = 10_000
EVERYBODY, GROUP, OWNER = "*", "group:", "owner:"


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """The limits of a person, a group or everybody; None for no limit."""

    turns: int | None = None
    """Turns at once. Turns that wait for a person count too."""
    requests_per_minute: int | None = None
    """Requests in a minute."""
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    usd_per_day: float | None = None
    usd_per_month: float | None = None
    models: tuple[str, ...] | None = None
    """The names of the models that may be chosen; the model of the service has its name in ``GET /v1/models``."""
    servers: tuple[str, ...] | None = None
    """The names of the servers that may be used: their tools, resources, prompts and apps."""
    tools: tuple[str, ...] | None = None
    """Patterns ``server/tool`` of the tools that may be called; ``*`` is all."""

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are set, by their names in the file."""
        return {_to_key(name): value for name, value in asdict(self).items() if value is not None}


def _to_key(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True, slots=True)
class LimitTable:
    """The limits by name: ``*``, ``group:NAME`` and ``owner:NAME``."""

    by_name: Mapping[str, OwnerLimits]

    def find(self, owner: str, groups: Collection[str]) -> OwnerLimits:
        """Return the limits of a person: each is the person's own, else the widest of the groups', else that of all."""
        own = self.by_name.get(f"{OWNER}{owner}", OwnerLimits())
        common = self.by_name.get(EVERYBODY, OwnerLimits())
        shared = [self.by_name[name] for group in groups if (name := f"{GROUP}{group}") in self.by_name]
        found: dict[str, Any] = {}
        for name in (field.name for field in fields(OwnerLimits)):
            values = [value for limits in shared if (value := getattr(limits, name)) is not None]
            if (value := getattr(own, name)) is None:
                value = _join(values) if values else getattr(common, name)
            found[name] = value
        return OwnerLimits(**found)


def _join(values: list[Any]) -> Any:
    """Return the largest number, or all names of several lists."""
    if isinstance(values[0], tuple):
        return tuple(dict.fromkeys(name for names in values for name in names))
    return max(values)


def read_limits(path: Path) -> LimitTable:
    """Return the limits in a file.

    Raises:
        ConfigError: The file cannot be read, or is wrong.
    """
    from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
    from pydantic.alias_generators import to_camel

    class Entry(BaseModel):
        model_config = ConfigDict(extra="forbid", alias_generator=to_camel, strict=True)
        turns: int | None = Field(None, ge=1)
        requests_per_minute: int | None = Field(None, ge=1)
        tokens_per_day: int | None = Field(None, ge=0)
        tokens_per_month: int | None = Field(None, ge=0)
        usd_per_day: float | None = Field(None, ge=0)
        usd_per_month: float | None = Field(None, ge=0)
        models: list[str] | None = None
        servers: list[str] | None = None
        tools: list[str] | None = None

    try:
        entries = TypeAdapter(dict[str, Entry]).validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the limits cannot be read: {describe_system_error(error)}", path=str(path)) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{place}: {first['msg']}".removeprefix(": "), path=str(path)) from error
    for name in entries:
        if name != EVERYBODY and not name.startswith((GROUP, OWNER)):
            raise ConfigError(f"{name!r} names nobody", "*, group:NAME or owner:NAME", path=str(path))
    table = {}
    for name, entry in entries.items():
        values = entry.model_dump()
        lists = {key: tuple(values[key]) for key in ("models", "servers", "tools") if values[key] is not None}
        table[name] = OwnerLimits(**values | lists)
    return LimitTable(table)


# The models that the person of the current request may use; None for all.
_MODELS: ContextVar[tuple[str, ...] | None] = ContextVar("models", default=None)


def has_model_limit() -> bool:
    """Return whether the person of the current request may use some models only."""
    return _MODELS.get() is not None


def may_use_model(name: str) -> bool:
    """Return whether the person of the current request may use a model."""
    models = _MODELS.get()
    return models is None or name in models


def check_model(name: str) -> None:
    """Check that the person of the current request may use a model.

    Raises:
        HttpError: The person may not.
    """
    if not may_use_model(name):
        raise HttpError(403, f"you may not use the model {name!r}", "model_not_allowed", param="model")


class OwnerLimiter(Middleware):
    """Keeps persons within their limits.

    It is middleware of the client, too: it refuses calls of tools that a person may not use, also those of `/mcp`, of
    apps, and of turns that another process has begun.

    Args:
        table: The limits.
    """

    def __init__(self, table: LimitTable) -> None:
        self._table = table
        self.count_request: Callable[[str, int], int] = lambda _name, _rate: 0
        """Counts a request of a name with so many in a minute, and returns the seconds until the next; set by the
        service (`RequestRates.take`)."""
        # The groups of the persons who have sent a request to this process.
        self._groups: OrderedDict[str, Collection[str]] = OrderedDict()

    def find(self, owner: str) -> OwnerLimits:
        """Return the limits of a person, with the groups that the last request has named."""
        return self._table.find(owner, self._groups.get(owner, ()))

    @contextmanager
    def admit(self, person: Person) -> Iterator[None]:
        """Within the context a request of a person is answered.

        Raises:
            HttpError: The person has sent too many requests in this minute.
        """
        self._groups[person.name] = person.groups
        self._groups.move_to_end(person.name)
        if len(self._groups) > _MAX_PERSONS:
            self._groups.popitem(last=False)
        limits = self.find(person.name)
        rate = limits.requests_per_minute
        if rate is not None and (seconds := self.count_request(f"{OWNER}{person.name}", rate)):
            raise _refuse(f"you have sent your {rate} requests of a minute", seconds, "requests")
        models = _MODELS.set(limits.models)
        try:
            yield
        finally:
            _MODELS.reset(models)

    async def check_budget(self, owner: str, ledger: UsageLedger) -> None:
        """Check that a person may still use something.

        Raises:
            HttpError: The tokens or the money of the day or the month are used up.
            DialError: The database failed.
        """
        limits = self.find(owner)
        amounts = (limits.tokens_per_day, limits.tokens_per_month, limits.usd_per_day, limits.usd_per_month)
        if all(amount is None for amount in amounts):
            return
        today, month = await ledger.read(owner)
        tomorrow = get_today() + timedelta(days=1)
        next_month = (get_today().replace(day=1) + timedelta(days=32)).replace(day=1)
        for used, tokens, usd, word, end in (
            (month, limits.tokens_per_month, limits.usd_per_month, "month", next_month),
            (today, limits.tokens_per_day, limits.usd_per_day, "day", tomorrow),
        ):
            if problem := _find_excess(used, tokens, usd):
                at = datetime.combine(end, time(), UTC)
                seconds = ceil((at - datetime.now(UTC)).total_seconds())
                raise _refuse(
                    f"you have used your {problem} of this {word}", seconds, "budget", f"{at:%Y-%m-%d %H:%M} UTC"
                )

    def may_use_server(self, owner: str, server: str) -> bool:
        """Return whether a person may use a server, with all that it has."""
        allowed = self.find(owner).servers
        return allowed is None or server in allowed

    def may_use_tool(self, owner: str, tool: ToolSpec) -> bool:
        """Return whether a person may use a tool; the tools of the host itself may all use."""
        limits = self.find(owner)
        if not tool.server:
            return True
        if limits.servers is not None and tool.server not in limits.servers:
            return False
        return limits.tools is None or any(matches(pattern, tool.server, tool.tool) for pattern in limits.tools)

    async def around_model_call(
        self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Offer the model only the tools that the person of the turn may use."""
        owner = find_owner()
        tools = tuple(tool for tool in request.tools if self.may_use_tool(owner, tool))
        return await call_next(request if tools == request.tools else replace(request, tools=tools))

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Refuse a call of a tool that the person may not use."""
        if call.spec is None or self.may_use_tool(call.owner, call.spec):
            return await call_next(call)
        refused = build_not_run_result(call.request.id, "this person may not use this tool", Failure.DENIED)
        return replace(refused, decided_by="limits of the person")


def _find_excess(used: UsedAmount, tokens: int | None, usd: float | None) -> str:
    if tokens is not None and used.tokens >= tokens:
        return f"{tokens:,} tokens"
    if usd is not None and used.cost_usd >= usd:
        return f"${usd:,.2f}"
    return ""


def _refuse(problem: str, seconds: int, what: str, at: str = "") -> HttpError:
    seconds = max(1, seconds)
    message = f"{problem}: try again {f'on {at}' if at else f'in {seconds} s'}"
    headers = {"retry-after": str(seconds)}
    return HttpError(429, message, f"{what}_limit_exceeded", kind="rate_limit_error", headers=headers)
