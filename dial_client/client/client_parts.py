"""The parts of a `DialClient` that the gateway works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.server_manager import ServerManager
from dial_client.tools.executor import ToolExecutor


@dataclass(frozen=True, eq=False, slots=True)
class ClientParts:
    """What a `DialClient` calls tools with."""

    servers: ServerManager
    """The connections to the servers, by name."""
    executor: ToolExecutor
    """Validates, approves, makes and audits calls; `ToolExecutor.derive` is for other tools and another origin."""
    open_sandbox: Callable[[], Any]
    """Returns the `Sandbox` of code mode."""
    require_tasks: Callable[[], BackgroundTasks]
    """Returns what runs tasks until the client is closed; raises `RuntimeError` before it is open."""
