"""An MCP server over stdio that writes down each call it carries out: ``python call_counter.py FILE``.

``echo`` answers; ``stall`` never does. ``FILE.pid`` has the id of the process that a call has reached.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from raw import Server, text  # type: ignore[import-not-found]  # beside this program


class Counting(Server):  # type: ignore[misc]  # `raw` is imported without types
    """Counts in a file, which outlives it."""

    def list(self) -> dict[str, Any]:
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "stall")]}

    def call(self) -> dict[str, Any] | None:
        with Path(self.options.file).open("a", encoding="utf-8") as file:
            file.write(f"{self.params['name']}\n")
        Path(f"{self.options.file}.pid").write_text(str(os.getpid()), encoding="utf-8")
        return text("echoed") if self.params["name"] == "echo" else None


Counting(argparse.Namespace(log=None, file=sys.argv[1])).run()
