"""Reads the configuration and opens the model, before the first prompt is shown. `open_client` opens the client."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dial_client.cli.options import Options
from dial_client.cli.streams.download_progress import DownloadProgress
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.trust.configuration_files import ask_for_files, describe_sources, find_profile_name
from dial_client.messages.errors import ConfigError
from dial_client.messages.model import Provider
from dial_client.providers import is_recording_name, open_provider
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME
from dial_client.settings.config_types import ServerSettings, Settings


async def read_settings(
    options: Options,
    *,
    may_ask: bool = True,
    only_server: str | None = None,
    leaves_out: bool = False,
    report: Callable[[str], None] = warn_once,
    needs_servers: bool = True,
) -> Settings:
    """Read the configuration. Without a configuration file there are no servers, and a warning says so.

    If ``-m`` names a recording, no file is read. A ``./servers.json`` that no option names is used only if the user
    trusts it. The servers of ``--server`` are added.

    Args:
        options: The options of the command line.
        may_ask: Ask the user whether to trust a file.
        only_server: The only server that is not disabled; None for all.
        leaves_out: Leave a server or a model out whose variables are not set, with a warning in place of an error: for
            what another program starts, often without the variables of the user's terminal.
        report: Prints a warning.
        needs_servers: Whether the user misses something where there are no servers.

    Raises:
        ConfigError: The configuration is wrong; or it is not trusted, and the user cannot be asked.
    """
    added = {name: server for name, server in read_added_servers(options.server) if only_server in (None, name)}
    if options.model and is_recording_name(options.model):
        return replace(configuration.parse("{}"), servers=added)
    files = await ask_for_files(options, report, may_ask=may_ask)
    if needs_servers and not files and not added:
        advice = "there are no tools; dial-chat init writes the file"
        report(f"no {FILE_NAME} here or in your configuration folder: {advice}")
        from dial_client.settings.host_documents import describe_folder_servers

        if of_other_hosts := describe_folder_servers(Path.cwd()):
            report(of_other_hosts)
    settings = configuration.combine(files, find_profile_name(options), only_server, leaves_out=leaves_out)
    if options.verbose:
        report(f"configuration: {describe_sources(settings.sources)}")
    for warning in settings.warnings:
        report(warning)
    for name in added:
        if name in settings.servers:
            raise ConfigError(f"--server: there is a server {name!r} already", "give it another name")
    return replace(settings, servers={**settings.servers, **added})


def read_added_servers(texts: Iterable[str]) -> Iterator[tuple[str, ServerSettings]]:
    """Yield the servers of ``--server``: each text is ``NAME=COMMAND``, with its arguments, or ``NAME=URL``.

    Raises:
        ConfigError: A text has another form.
    """
    for text in texts:
        name, _, target = text.partition("=")
        try:
            words = shlex.split(target, posix=sys.platform != "win32")
        except ValueError:
            raise ConfigError(f"--server {name}: a quotation mark is not closed") from None
        if not name or not words:
            raise ConfigError(f"--server {text!r} has no name and command", "--server 'NAME=COMMAND ARG' or NAME=URL")
        is_url = len(words) == 1 and re.match("(?i)https?://", words[0])
        entry = {"url": words[0]} if is_url else {"command": words[0], "args": words[1:]}
        yield name, configuration.read_server_mapping(name, entry)


def open_model(options: Options, settings: Settings) -> Provider:
    """Open the model that the options or the configuration name.

    Raises:
        ConfigError: The model's name or key is wrong; or no model is named (`with_default_model` finds one).
    """
    name = find_model_name(options, settings)
    if not name:
        raise ConfigError("no model is named", hint="give -m NAME")
    return open_provider(
        name,
        models=settings.models,
        base_url=options.base_url,
        on_progress=DownloadProgress(),
        fallback_models=() if is_recording_name(name) else find_fallback_models(options, settings),
    )


def find_model_name(options: Options, settings: Settings) -> str:
    """Return the name of the model that the options or the configuration name; empty if they name none."""
    return options.model or settings.default_model or ""


def find_fallback_models(options: Options, settings: Settings) -> tuple[str, ...]:
    """Return the names of the models to ask if the model that the options or the configuration name cannot answer."""
    return options.fallback_model or settings.find_fallback_models(find_model_name(options, settings))
