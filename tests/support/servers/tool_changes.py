"""How tests run `tool_versions.py`: a server that is another one whenever it starts."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dial_client.settings.config_types import ServerSettings
from tests.support.servers.launch import script

ANY = {"type": "object"}
TWICE = {"type": "object", "properties": {"times": {"type": "integer"}}, "required": ["times"]}


def tool(name: str = "echo", about: str = "Says it again.", schema: Any = ANY, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": about, "inputSchema": schema, **more}


@dataclass(frozen=True)
class ChangingServer:
    """A server whose tools change between its starts; its configuration and its log are files in a folder."""

    folder: Path
    name: str = "it"

    @property
    def args(self) -> tuple[str, str]:
        return (str(self.folder / f"{self.name}.json"), str(self.folder / f"{self.name}.log"))

    def write_config(self, **config: Any) -> None:
        """Write the configuration that the server reads at its next start."""
        Path(self.args[0]).write_text(json.dumps(config))

    def entry(self, **settings: Any) -> ServerSettings:
        """Return its entry."""
        return replace(script("tool_versions.py", *self.args), name=self.name, **settings)

    def asked(self) -> list[str]:
        """Return the requests since the last call of this method, each start included."""
        log = Path(self.args[1])
        words = log.read_text().split() if log.exists() else []
        log.write_text("")
        return words


def build_changing_server(folder: Path, name: str = "it", **config: Any) -> ChangingServer:
    """Return a server with this first configuration."""
    made = ChangingServer(folder, name)
    made.write_config(**config)
    return made
