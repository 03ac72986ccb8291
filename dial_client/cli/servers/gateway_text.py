"""``dial-chat gateway --print HOST``: what a user pastes into another host so that it starts the gateway."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dial_client.cli.configuration_files import ask_for_files
from dial_client.cli.error_stream import warn_once
from dial_client.cli.options import Options
from dial_client.settings import gateway_entry
from dial_client.settings.config_values import find_references
from dial_client.settings.mcp_hosts import HOSTS


async def print_entry(name: str, options: Options, words: Sequence[str]) -> None:
    """Print the entry on standard output; the places of the host's file, and a command, on standard error.

    Args:
        name: The host.
        options: The options that name the configuration, whose variables some hosts must pass on.
        words: The options of the gateway, which the entry has too.

    Raises:
        ConfigError: There is no such host, or the configuration cannot be read.
    """
    host = gateway_entry.find_host_by_name(name)
    files = await ask_for_files(options, warn_once, may_ask=False)
    variables = sorted({variable for file in files for variable in find_references(_decode(file.text))})
    entry = gateway_entry.build_gateway_entry(host, gateway_entry.find_own_program(), words, variables)
    printed = gateway_entry.write_gateway_text(host, entry)
    print(printed.text, end="")
    title = HOSTS[host].title
    lines = [f"# {title} reads {', '.join(printed.files)}."]
    if not printed.text.startswith("["):  # a table of TOML stands at the end of any file
        lines.append(f'# If the file has "{printed.key}" already, add "{gateway_entry.NAME}" to them.')
    if printed.command:
        verb = "open" if "://" in printed.command.partition(" ")[0] else "run"
        lines.append(f"# Or {verb}: {printed.command}")
    print("\n".join(lines), file=sys.stderr)


def _decode(text: str | bytes) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text
