"""Shows a client in a notebook, and in a terminal with rich."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.runtime.value_summary import ValueSummary
from dial_client.servers.status import ServerStatus


class NotebookMethods(ABC):
    """The methods that notebooks and rich call to show a client: its model, servers and tools."""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name of the model's provider; empty for a client without a model."""

    @property
    @abstractmethod
    def servers(self) -> Mapping[str, ServerStatus]:
        """The status of each server."""

    @property
    @abstractmethod
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as they are offered to the model."""

    def __rich__(self) -> Any:
        return self._summarize().to_rich()

    def _repr_html_(self) -> str:
        return self._summarize().to_html()

    def _summarize(self) -> ValueSummary:
        rows = tuple(
            (name, status.state.value, str(len(status.tools)), status.error or "; ".join(status.notes))
            for name, status in self.servers.items()
        )
        count = len(self.tools)
        return ValueSummary(
            title=f"DialClient: {self.model_name or 'no model'}",
            columns=("server", "state", "tools", "problem"),
            rows=rows,
            footer=f"{count} {'tool is' if count == 1 else 'tools are'} offered to the model",
        )
