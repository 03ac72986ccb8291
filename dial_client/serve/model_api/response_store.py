"""The responses that clients may refer to: by ``previous_response_id``, or by the ids of their items.

Requests with ``"store": false`` leave nothing. Other responses are kept in memory within limits, and with a database
for an hour where other processes can read them. A response that is gone is an error: the client then has to send all
items, or a request without `store`.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.errors import DialError
from dial_client.runtime.json_fields import expect_object, to_list, to_object, to_text
from dial_client.runtime.logs import get_logger
from dial_client.serve.http_messages import HttpError
from dial_client.serve.model_api.handoffs import MAX_SHARED, SHARED_TTL
from dial_client.sinks.sse_encoder import to_json
from dial_client.stores.shared_values import SharedValues

log = get_logger(__name__)

# Characters of the JSON of all responses that are kept.
MAX_KEPT = 64_000_000
# Responses that one conversation may consist of.
MAX_CHAIN = 1_000

# The topic of the shared values: responses by the end of their ids.
_TOPIC = "response"

_RESPONSE_ID = re.compile("resp_([0-9a-f]{32})")
_ITEM_ID = re.compile("[a-z]+_([0-9a-f]{32})_([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class _Kept:
    owner: str
    previous: str | None
    given: Sequence[Any]
    output: Sequence[Any]
    size: int


class ResponseStore:
    """Keeps the latest responses with the items that led to them.

    Args:
        values: Shares responses with other processes; None without a database.
        max_kept: Characters of the JSON of all responses that are kept in memory.
    """

    def __init__(self, values: SharedValues | None = None, max_kept: int = MAX_KEPT) -> None:
        self._values = values
        self._max_kept = max_kept
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    async def add(self, owner: str, response: Mapping[str, Any], given: Sequence[Any]) -> None:
        """Keep a response.

        Args:
            owner: The person who may refer to it.
            response: The response.
            given: The items of the request's ``input``, with the items that they refer to.
        """
        key = response["id"].removeprefix("resp_")
        previous = response.get("previous_response_id")
        body = to_json({"owner": owner, "previous": previous, "given": given, "output": response["output"]})
        self._remember(key, _Kept(owner, previous, tuple(given), tuple(response["output"]), len(body)))
        if self._values is None or len(body) > MAX_SHARED:
            return
        try:
            await self._values.put(_TOPIC, key, body, SHARED_TTL)
        except DialError as error:
            log.debug("response_not_shared", error=type(error).__name__)

    async def resolve(self, owner: str, items: Sequence[Any]) -> list[Any]:
        """Return items with the items that they refer to in place of ``item_reference`` items.

        Raises:
            HttpError: A response is not kept any more.
            DialError: The database failed.
        """
        resolved = []
        for index, item in enumerate(items):
            reference = to_object(item)
            # An item with an id alone is a reference too.
            is_reference = reference.get("type") == "item_reference" or set(reference) == {"id"}
            resolved.append(await self._find_item(owner, to_text(reference.get("id")), index) if is_reference else item)
        return resolved

    async def list_items(self, owner: str, response_id: Any) -> list[Any]:
        """Return the items of a response and of all responses before it; none for None.

        Raises:
            HttpError: A response is not kept any more.
            DialError: The database failed.
        """
        parts: list[Sequence[Any]] = []
        while response_id is not None:
            match = _RESPONSE_ID.fullmatch(to_text(response_id))
            kept = await self._find(owner, match[1]) if match and len(parts) < MAX_CHAIN * 2 else None
            if kept is None:
                message = f"the response {response_id!r} is not here, or not any more: send all items in input"
                raise HttpError(400, message, "previous_response_not_found", param="previous_response_id")
            parts += [kept.output, kept.given]
            response_id = kept.previous
        return [item for part in reversed(parts) for item in part]

    async def _find_item(self, owner: str, id_: str, index: int) -> Any:
        match = _ITEM_ID.fullmatch(id_)
        kept = await self._find(owner, match[1]) if match else None
        if kept is None or match is None or int(match[2]) >= len(kept.output):
            message = f"the item {id_!r} is not here, or not any more: send the item itself, or a request without store"
            raise HttpError(404, message, "item_not_found", param=f"input[{index}]")
        return kept.output[int(match[2])]

    def _remember(self, key: str, kept: _Kept) -> None:
        if kept.size > self._max_kept:
            return
        self._kept[key] = kept
        self._size += kept.size
        while self._size > self._max_kept:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.size

    async def _find(self, owner: str, key: str) -> _Kept | None:
        kept = await self._load(key)
        return kept if kept is not None and kept.owner == owner else None

    async def _load(self, key: str) -> _Kept | None:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._values is None:
            return None
        try:
            body = (await self._values.read(_TOPIC, [key])).get(key)
            content = None if body is None else expect_object(json.loads(body))
        except (TypeError, ValueError, RecursionError) as error:  # from another version, or forged
            log.warning("response_invalid", error=type(error).__name__)
            return None
        if body is None or content is None:
            return None
        previous = content.get("previous")
        kept = _Kept(
            to_text(content.get("owner")),
            previous if isinstance(previous, str) else None,
            to_list(content.get("given")),
            to_list(content.get("output")),
            len(body),
        )
        self._remember(key, kept)
        return kept
