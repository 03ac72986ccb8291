"""An MCP server whose tools always fail, with typical errors of services: ``python -m evals.broken``."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("broken", log_level="CRITICAL")


@server.tool()
def river_level(river: str) -> str:
    """Get the current water level of a river."""
    raise ToolError(f"gauge {river} did not answer within 10 s")


@server.tool()
def fetch_page(url: str) -> str:
    """Fetch a web page as text."""
    raise ToolError(f"HTTP 503 Service Unavailable: {url}")


@server.tool()
def sales_report(product: str, month: str) -> str:
    """Get how many pieces of a product were sold in a month."""
    raise ToolError(f'permission denied for table "sales" ({product}, {month})')


@server.tool()
def bus_departures(stop: str) -> str:
    """Get the next departures at a bus stop."""
    raise ToolError(f"401 Unauthorized for {stop!r}: the API key has expired")


@server.tool()
def account_balance(account: str) -> str:
    """Get the balance of a bank account."""
    raise ToolError(f"database is locked (reading {account})")


@server.tool()
def robot_battery() -> str:
    """Get the battery level of the robot."""
    raise ToolError("connection refused")


@server.tool()
def ticket_status(ticket: str) -> str:
    """Get the status of a ticket."""
    raise ToolError(f"Internal error: NoneType object has no attribute 'status' ({ticket})")


if __name__ == "__main__":
    server.run("stdio")
