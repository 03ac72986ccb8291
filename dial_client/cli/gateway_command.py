"""The command ``gateway``: all servers of the configuration as one MCP server on standard input and output.

With ``--print HOST`` it prints what a user pastes into another host, so that the host starts the gateway.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dial_client.cli.load_settings import open_model, read_settings
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, ListingOptions, Options
from dial_client.cli.streams.error_stream import print_notes, warn_once
from dial_client.cli.trust.configuration_files import PROFILE_VARIABLE, ask_for_files, find_profile_name
from dial_client.client import client_setup
from dial_client.gateway.early_answers import EarlyAnswers, FirstAnswers
from dial_client.gateway.tool_listing import ToolListing, parse_tool_listing
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.servers.sdk_import import import_sdk
from dial_client.settings import gateway_entry
from dial_client.settings.config_locations import FILE_NAME, build_user_config_path
from dial_client.settings.config_trust import TrustStore
from dial_client.settings.config_types import Settings
from dial_client.settings.config_values import find_references
from dial_client.settings.mcp_hosts import HOSTS
from dial_client.tools.argument_paths import find_current_folder
from dial_client.tools.snippets.sandbox import MISSING, is_installed


async def serve_gateway(options: Options, listing: ListingOptions, early: EarlyAnswers) -> int:
    """Serve until the client closes standard input, and return the exit code.

    Standard output carries nothing but the protocol. Nobody is at this terminal: nothing is asked here.

    Args:
        options: The options of the command line.
        listing: The options of the gateway.
        early: Standard input and output, and the answers that the client gets meanwhile.

    Raises:
        ConfigError: An option or the configuration is wrong; or the file of this folder is not trusted.
    """
    import_sdk()
    from dial_client.gateway.denials import Denials
    from dial_client.gateway.gateway import Gateway, GatewayOptions
    from dial_client.gateway.questions import Questions

    which = read_listing(listing.tools, "--tools")
    settings = _without_gateways(await read_settings(options, may_ask=False, leaves_out=True))
    denials = Denials(build_grants_command(options), find_current_folder())
    questions = Questions(denials.deny, is_single=True)
    provider = open_model(options, settings) if options.sampling else None
    callbacks = Callbacks(callers=questions, sample="model" if options.sampling else None, apps=True)
    async with open_client(options, settings, provider, questions, callbacks, at_once=False) as dial:
        # What is printed appears on standard error, which hosts show to their users.
        gateway_options = GatewayOptions(
            denials=denials,
            report=print_notes,
            listing=which,
            max_result_chars=listing.max_result_chars,
            calls_per_minute=listing.calls_per_minute,
        )
        first = FirstAnswers(early, *_list_dependencies(options, settings))
        await Gateway(dial, options=gateway_options, questions=questions).serve_stdio(early.files, first)
    return ExitCode.ANSWERED


def read_listing(text: str, option: str) -> ToolListing:
    """Return which tools clients see, after a word on standard error if programs cannot run here.

    Raises:
        ConfigError: There is no such listing.
    """
    listing = parse_tool_listing(text, option)
    if listing is ToolListing.CODE and not is_installed():
        warn_once(f"{option} {listing}: run_code is not offered to clients: {MISSING}")
    return listing


def _list_dependencies(options: Options, settings: Settings) -> tuple[list[Path], list[str]]:
    """Return the files and the variables of the environment that the first answers depend on."""
    import mcp

    configurations = [Path(FILE_NAME), build_user_config_path(), *settings.sources]
    if options.config is not None:
        configurations.append(options.config)
    caches = [client_setup.open_cache(directory=True, name=name) for name in (client_setup.CACHE, client_setup.STATE)]
    paths = [path.absolute() for path in configurations]
    paths += [cache.find_path(server) for cache in caches if cache for server in settings.servers.values()]
    paths += [TrustStore().folder, Path(mcp.__file__)]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in settings.sources if path.is_file()]
    return paths, [PROFILE_VARIABLE, *(name for text in texts for name in find_references(text))]


def _without_gateways(settings: Settings) -> Settings:
    """Return the settings without servers that are this gateway: each would start the next, without end."""
    kept = {
        name: server
        for name, server in settings.servers.items()
        if not gateway_entry.is_gateway({"command": server.command, "args": server.args})
    }
    for name in settings.servers.keys() - kept.keys():
        warn_once(f"the server {name!r} is left out: it is this gateway, which would start itself without end")
    return replace(settings, servers=kept)


def build_grants_command(options: Options) -> str:
    """Return the command that changes grants, with the options by which it finds the servers of this gateway."""
    words = ["dial-chat", "grants"]
    if options.config is not None:
        words += ["-c", str(options.config.absolute())]
    if profile := find_profile_name(options):
        words += ["--profile", profile]
    if options.trust:
        words.append("--trust")
    return shlex.join(words)


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
