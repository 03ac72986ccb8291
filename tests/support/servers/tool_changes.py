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
class Changing:
    """One such server: its file and its log lie in a folder."""

    folder: Path
    name: str = "it"

    @property
    def args(self) -> tuple[str, str]:
        return (str(self.folder / f"{self.name}.json"), str(self.folder / f"{self.name}.log"))

    def be(self, **config: Any) -> None:
        """Be this from the next start on."""
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


def changing(folder: Path, name: str = "it", **config: Any) -> Changing:
    """Make one that is this at first."""
    made = Changing(folder, name)
    made.be(**config)
    return made
