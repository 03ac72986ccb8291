"""A server with MCP Apps: ``python app_server.py stdio``. One app is well-behaved, one tries whatever it can reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, TextContent, ToolAnnotations

MIME_TYPE = "text/html;profile=mcp-app"
COUNTER, HOSTILE, REMOTE = "ui://apps/counter.html", "ui://apps/hostile.html", "ui://apps/remote.html"
PAGES = Path(__file__).parent / "app_pages"
REMOTE_POLICY = {
    "connectDomains": ["https://api.evil.test", "http://127.0.0.1:*"],
    "resourceDomains": ["https://cdn.evil.test", "*"],
}


def build() -> MCPServer[Any]:
    """Return the server."""
    server: MCPServer[Any] = MCPServer("apps", log_level="CRITICAL")
    count = 0

    def app(uri: str, *visibility: str) -> dict[str, Any]:
        return {"ui": {"resourceUri": uri, **({"visibility": list(visibility)} if visibility else {})}}

    @server.tool(meta=app(COUNTER))
    def show_counter(start: int) -> CallToolResult:
        """Show a counter."""
        nonlocal count
        count = start
        text = TextContent(type="text", text=f"The counter is at {start}.")
        structured = {"count": start, "note": None}
        return CallToolResult(content=[text], structured_content=structured, _meta={"seen": "by the app"})

    @server.tool(meta=app(COUNTER, "app"))
    def increase(by: int = 1) -> CallToolResult:
        """Increase the counter. For the app alone."""
        nonlocal count
        count += by
        text = TextContent(type="text", text=str(count))
        return CallToolResult(content=[text], structured_content={"count": count})

    @server.tool(meta=app(COUNTER, "model"))
    def reset() -> str:
        """Set the counter to zero. For the model alone."""
        return "0"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def capabilities(context: Context) -> str:
        """Return what the client has announced."""
        client = context.session.client_params
        announced = client.capabilities.extensions if client is not None else None
        return str(announced)

    @server.tool(meta=app(HOSTILE))
    def show_hostile(port: int = 0) -> str:
        """Show an app that attacks."""
        return "Shown."

    @server.tool(meta=app(REMOTE))
    def show_remote() -> str:
        """Show an app that needs other origins."""
        return "Shown."

    pages = {COUNTER: ("counter.html", {}), HOSTILE: ("hostile.html", {}), REMOTE: ("counter.html", REMOTE_POLICY)}
    for uri, (name, policy) in pages.items():
        server.resource(uri, name=name, mime_type=MIME_TYPE, meta={"ui": {"csp": policy}})(page_reader(name))
    server.resource("ui://apps/plain.html", name="plain", mime_type="text/html")(lambda: "<p>plain</p>")
    server.resource("ui://apps/large.html", name="large", mime_type=MIME_TYPE)(lambda: "x" * 5_000_001)
    server.resource("data://apps/words", name="words", mime_type="text/plain")(lambda: "words of the server")
    return server


def page_reader(name: str) -> Callable[[], str]:
    """Return a function that returns a page."""

    def read() -> str:
        return (PAGES / name).read_text("utf-8")

    return read


if __name__ == "__main__":
    build().run("stdio")
