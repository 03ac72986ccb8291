"""An MCP server with tools that no task needs, offered with the needed tools: ``python -m evals.distractors``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature

from mcp.server import MCPServer

server = MCPServer("distractors", log_level="CRITICAL")

TOOLS: Mapping[str, tuple[str, Mapping[str, type]]] = {
    "book_table": ("Book a table in a restaurant.", {"restaurant": str, "time": str}),
    "compress_image": ("Make an image file smaller.", {"image": str, "quality": int}),
    "create_invoice": ("Create an invoice for a customer.", {"customer": str, "amount": float}),
    "deploy_service": ("Deploy a service to a cluster.", {"service": str, "cluster": str}),
    "get_horoscope": ("Get today's horoscope of a star sign.", {"sign": str}),
    "list_containers": ("List the running containers of a host.", {"host": str}),
    "merge_documents": ("Merge two PDF documents into one.", {"first": str, "second": str}),
    "order_taxi": ("Order a taxi to an address.", {"address": str}),
    "play_music": ("Play a song or an album.", {"title": str}),
    "post_comment": ("Post a comment on an issue.", {"issue": str, "comment": str}),
    "query_database": ("Run an SQL query on the sales database.", {"sql": str}),
    "rename_branch": ("Rename a branch of a hosted repository.", {"old_name": str, "new_name": str}),
    "scan_ports": ("Scan the open ports of a machine.", {"machine": str}),
    "set_alarm": ("Set an alarm clock.", {"alarm_time": str}),
    "shorten_url": ("Make a short link of a long one.", {"url": str}),
    "start_timer": ("Start a kitchen timer.", {"minutes": int}),
    "take_screenshot": ("Take a screenshot of a web page.", {"url": str}),
    "vacuum_room": ("Send the robot to vacuum a room.", {"room": str}),
}
"""The description and the arguments of each tool, by its name."""


def _build_function(name: str, arguments: Mapping[str, type]) -> Callable[..., str]:
    """Return a function with a name and arguments, whose result quotes the arguments."""

    def run(**values: object) -> str:
        return f"done: {' '.join(str(values[argument]) for argument in arguments)}"

    parameters = [
        Parameter(argument, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for argument, kind in arguments.items()
    ]
    run.__name__ = name
    run.__signature__ = Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    run.__annotations__ = {**arguments, "return": str}
    return run


for _name, (_description, _arguments) in TOOLS.items():
    server.add_tool(_build_function(_name, _arguments), description=_description)


if __name__ == "__main__":
    server.run("stdio")
