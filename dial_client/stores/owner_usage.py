"""What each owner has used, by day: turns, tokens and money, the same for all processes over one database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.stores.database import Database
from dial_client.stores.row_batches import execute, to_seconds, to_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_ADD = """INSERT INTO owner_usage (owner, day, turns, input_tokens, output_tokens, cost_usd)
    VALUES (:owner, :day, :turns, :input_tokens, :output_tokens, :cost_usd)
    ON CONFLICT (owner, day) DO UPDATE SET turns = owner_usage.turns + excluded.turns,
    input_tokens = owner_usage.input_tokens + excluded.input_tokens,
    output_tokens = owner_usage.output_tokens + excluded.output_tokens,
    cost_usd = owner_usage.cost_usd + excluded.cost_usd"""
# Owners of one list.
MAX_OWNERS = 1_000


@dataclass(frozen=True, slots=True)
class UsedAmount:
    """What turns have used."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    """The known cost in US dollars: turns whose price is unknown add nothing."""

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, amount: UsedAmount) -> UsedAmount:
        return UsedAmount(
            self.turns + amount.turns,
            self.input_tokens + amount.input_tokens,
            self.output_tokens + amount.output_tokens,
            self.cost_usd + amount.cost_usd,
        )


class OwnerUsage:
    """What the owners of one database have used.

    All methods raise `ConfigError` if the database cannot be used, and `DialError` if it failed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, amounts: Mapping[tuple[str, str], UsedAmount]) -> None:
        """Add amounts, each of an owner and a day (``2026-11-28``, in UTC), in one transaction."""
        # In the same order in every process, to prevent deadlocks.
        rows = [
            {
                "owner": owner,
                "day": day,
                "turns": amount.turns,
                "input_tokens": amount.input_tokens,
                "output_tokens": amount.output_tokens,
                "cost_usd": amount.cost_usd,
            }
            for (owner, day), amount in sorted(amounts.items())
        ]
        if rows:
            await self._database.run(lambda connection: execute(connection, _ADD, rows), writes=True)

    async def read_days(self, owner: str, since: str) -> dict[str, UsedAmount]:
        """Return what an owner has used on each day since a day, the latest day first."""
        statement = "SELECT * FROM owner_usage WHERE owner = :owner AND day >= :since ORDER BY day DESC"
        return {row["day"]: _to_amount(row) for row in await self._read(statement, owner=owner, since=since)}

    async def read_owners(self, since: str) -> dict[str, UsedAmount]:
        """Return what each owner has used since a day: at most `MAX_OWNERS`, those with the most tokens."""
        statement = (
            "SELECT owner, sum(turns) AS turns, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,"
            " sum(cost_usd) AS cost_usd FROM owner_usage WHERE day >= :since GROUP BY owner"
            " ORDER BY sum(input_tokens) + sum(output_tokens) DESC, owner LIMIT :limit"
        )
        return {
            to_text(row["owner"]): _to_amount(row) for row in await self._read(statement, since=since, limit=MAX_OWNERS)
        }

    async def _read(self, statement: str, **values: Any) -> list[Mapping[str, Any]]:
        async def read(connection: AsyncConnection) -> list[Mapping[str, Any]]:
            return [dict(row) for row in (await execute(connection, statement, values)).mappings()]

        return await self._database.run(read, writes=False)


def _to_amount(row: Mapping[str, Any]) -> UsedAmount:
    turns, read, written = (int(row[name]) for name in ("turns", "input_tokens", "output_tokens"))
    return UsedAmount(turns, read, written, to_seconds(row["cost_usd"]))
