"""Two MCP servers for the pictures: ``python trip_servers.py weather|files``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer

SECONDS = {"Berlin": 0.6, "東京": 0.4, "São Paulo": 0.8}

weather = MCPServer("weather")
files = MCPServer("files")


@weather.tool()
async def get_forecast(city: str, days: int = 3) -> str:
    """The forecast of a city, by the hour."""
    await anyio.sleep(SECONDS.get(city, 0.5))
    hours = [f"Mon {hour:02} h  {9 + hour % 7} °C" for hour in range(22)]
    return "\n".join([f"{city}, next {days} days", "Mon 12 °C clouds, later some rain", *hours])


@weather.tool()
def read_station(name: str) -> str:
    """The values of a weather station."""
    raise TimeoutError(f"the station {name} does not answer")


@weather.tool()
async def download_radar(region: str, context: Context) -> str:
    """The radar pictures of a region."""
    for tile in range(1, 14):
        await context.report_progress(tile, 20, f"tile {tile}.png")
        await anyio.sleep(0.1)
    await anyio.sleep(60)
    return "20 pictures"


@files.tool()
def write_file(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content, encoding="utf-8")
    return "written"


if __name__ == "__main__":
    if sys.argv[1] == "slow":
        time.sleep(60)
    (files if sys.argv[1] == "files" else weather).run()
