"""An MCP server over stdio whose tool ``delete_record`` returns the arguments it was called with, as JSON."""

from __future__ import annotations

import argparse
import json
from typing import Any

from raw import Server, text  # type: ignore[import-not-found]  # beside this program

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "reason": {"type": "string"}}}


class Records(Server):  # type: ignore[misc]  # `raw` is imported without types
    """Deletes records by their numbers."""

    def list(self) -> dict[str, Any]:
        return {"tools": [{"name": "delete_record", "description": "Delete a record.", "inputSchema": SCHEMA}]}

    def call(self) -> dict[str, Any] | None:
        return text(json.dumps(self.params["arguments"]))  # type: ignore[no-any-return]  # as above


Records(argparse.Namespace(log=None)).run()
