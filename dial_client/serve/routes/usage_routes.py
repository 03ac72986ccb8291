"""``GET /usage``: what a person has used, and what the person may use; for admins, what each person has used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.serve.http_messages import HttpError, build_json_response
from dial_client.serve.people.authentication import ADMIN, Refusal, build_refusal
from dial_client.serve.people.owner_limits import OwnerLimiter
from dial_client.serve.people.usage_ledger import UsageLedger, amount_to_dict, get_today
from dial_client.serve.security import find_person

# Days before today that are listed.
_DAYS = 30


@dataclass(frozen=True, slots=True)
class UsageRoutes:
    """The route of what persons have used."""

    ledger: UsageLedger | None
    """What persons have used; None without a database."""
    limits: OwnerLimiter | None

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/usage", self._read, methods=["GET"])]

    async def _read(self, request: Request) -> Response:
        if self.ledger is None:
            raise HttpError(404, "without a database this service does not count what is used", "no_usage")
        person, today = find_person(request), get_today()
        if "owners" in request.query_params:
            if ADMIN not in person.scopes:
                raise build_refusal(Refusal(f"this needs a token with the scope {ADMIN}", (ADMIN,)))
            since = today.replace(day=1)
            owners = await self.ledger.read_owners(since)
            rows = [{"owner": owner, **amount_to_dict(amount)} for owner, amount in owners.items()]
            return build_json_response({"since": since.isoformat(), "owners": rows})
        days = await self.ledger.read_days(person.name, today - timedelta(days=_DAYS))
        used_today, month = await self.ledger.read(person.name)
        return build_json_response(
            {
                "owner": person.name,
                "today": amount_to_dict(used_today),
                "month": amount_to_dict(month),
                "days": [{"day": day, **amount_to_dict(amount)} for day, amount in days.items()],
                "limits": self.limits.find(person.name).to_dict() if self.limits is not None else {},
            }
        )
