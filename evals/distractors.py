"""An MCP server whose tools no task needs: ``python -m evals.distractors``. They are on offer beside the right ones."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("distractors", log_level="CRITICAL")


@server.tool()
def book_table(restaurant: str, time: str) -> str:
    """Book a table in a restaurant."""
    return f"done: {restaurant} {time}"


@server.tool()
def compress_image(image: str, quality: int) -> str:
    """Make an image file smaller."""
    return f"done: {image} {quality}"


@server.tool()
def create_invoice(customer: str, amount: float) -> str:
    """Create an invoice for a customer."""
    return f"done: {customer} {amount}"


@server.tool()
def deploy_service(service: str, cluster: str) -> str:
    """Deploy a service to a cluster."""
    return f"done: {service} {cluster}"


@server.tool()
def get_horoscope(sign: str) -> str:
    """Get today's horoscope of a star sign."""
    return f"done: {sign}"


@server.tool()
def list_containers(host: str) -> str:
    """List the running containers of a host."""
    return f"done: {host}"


@server.tool()
def merge_documents(first: str, second: str) -> str:
    """Merge two PDF documents into one."""
    return f"done: {first} {second}"


@server.tool()
def order_taxi(address: str) -> str:
    """Order a taxi to an address."""
    return f"done: {address}"


@server.tool()
def play_music(title: str) -> str:
    """Play a song or an album."""
    return f"done: {title}"


@server.tool()
def post_comment(issue: str, comment: str) -> str:
    """Post a comment on an issue."""
    return f"done: {issue} {comment}"


@server.tool()
def query_database(sql: str) -> str:
    """Run an SQL query on the sales database."""
    return f"done: {sql}"


@server.tool()
def rename_branch(old_name: str, new_name: str) -> str:
    """Rename a branch of a hosted repository."""
    return f"done: {old_name} {new_name}"


@server.tool()
def scan_ports(machine: str) -> str:
    """Scan the open ports of a machine."""
    return f"done: {machine}"


@server.tool()
def set_alarm(alarm_time: str) -> str:
    """Set an alarm clock."""
    return f"done: {alarm_time}"


@server.tool()
def shorten_url(url: str) -> str:
    """Make a short link of a long one."""
    return f"done: {url}"


@server.tool()
def start_timer(minutes: int) -> str:
    """Start a kitchen timer."""
    return f"done: {minutes}"


@server.tool()
def take_screenshot(url: str) -> str:
    """Take a screenshot of a web page."""
    return f"done: {url}"


@server.tool()
def vacuum_room(room: str) -> str:
    """Send the robot to vacuum a room."""
    return f"done: {room}"


if __name__ == "__main__":
    server.run("stdio")
