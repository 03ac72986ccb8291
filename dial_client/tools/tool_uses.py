"""How often each person's tools were called, so that a search ranks them higher.

It is kept in memory, for a limited number of persons and tools, and nobody's calls change what others find.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType

from dial_client.tools.catalog import Key

# Maximum number of persons, and of tools of one person; the ones used longest ago are forgotten first.
MAX_OWNERS = 1_000
MAX_TOOLS = 200

_NONE: Mapping[Key, int] = MappingProxyType({})


class ToolUses:
    """Counts the calls of tools that succeeded, for each person."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[str, OrderedDict[Key, int]] = OrderedDict()

    def add(self, owner: str, tool: Key) -> None:
        """Count a call.

        Args:
            owner: The person that the call was for; empty for none.
            tool: The server and the tool.
        """
        counts = self._by_owner.setdefault(owner, OrderedDict())
        counts[tool] = counts.get(tool, 0) + 1
        counts.move_to_end(tool)
        self._by_owner.move_to_end(owner)
        if len(counts) > MAX_TOOLS:
            counts.popitem(last=False)
        if len(self._by_owner) > MAX_OWNERS:
            self._by_owner.popitem(last=False)

    def count(self, owner: str) -> Mapping[Key, int]:
        """Return how often a person's tools were called."""
        return self._by_owner.get(owner, _NONE)
