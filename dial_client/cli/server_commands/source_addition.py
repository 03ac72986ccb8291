"""The work of ``dial-chat servers add`` for a link, a bundle, a ``server.json`` or a name of the MCP registry.

These sources are untrusted: the command shows what a server would run, and asks, before it writes or unpacks anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial_client.cli.bootstrap import warn
from dial_client.cli.config_summary import escape_line
from dial_client.cli.options import ExitCode
from dial_client.cli.server_commands.changed_config import ask_to_add, find_file, show_entries
from dial_client.cli.server_commands.registry_client import fetch_server, is_registry_name
from dial_client.cli.server_commands.server_addition import write_entry
from dial_client.cli.server_commands.server_group import ConfigChoice
from dial_client.cli.server_proposals import is_installed
from dial_client.cli.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.similar_names import did_you_mean
from dial_client.settings import jsonc, server_edits
from dial_client.settings.config_writer import check_text, read_text
from dial_client.settings.server_sources import bundles
from dial_client.settings.server_sources.deep_links import is_deep_link, read_deep_link
from dial_client.settings.server_sources.registry_documents import RegistryServer, read_registry_document

BUNDLE_SUFFIXES = (".mcpb", ".dxt")


@dataclass(frozen=True, slots=True)
class SourceServer:
    """A server from a source, before it is added."""

    name: str
    entry: Mapping[str, Any]
    notes: Sequence[str] = ()
    """Sentences to show to the user."""
    prepare: Callable[[], None] | None = None
    """A function to call before the server can start."""


def is_source(text: str) -> bool:
    """Return True for a link, the path of a bundle or of a ``server.json``, or a name of the registry."""
    path = Path(text)
    is_file = path.suffix in BUNDLE_SUFFIXES or (path.suffix == ".json" and path.is_file())
    return is_deep_link(text) or is_file or (is_registry_name(text) and not path.exists())


async def add_source(
    source: str,
    name: str | None,
    choice: ConfigChoice,
    *,
    values: Sequence[str] = (),
    replace: bool = False,
    is_agreed: bool = False,
) -> int:
    """Add the server of a source to a configuration, after a question. Return the exit code.

    Args:
        source: A link, a file, or a name of the registry.
        name: The name for the server; None to use the name in the source.
        choice: The file to change.
        values: The options of a bundle, each as ``KEY=VALUE``.
        replace: Replace a server of the same name.
        is_agreed: Ask nothing.

    Raises:
        ConfigError: The source has no usable server, or there is no terminal to ask at.
    """
    path = find_file(choice)
    server = await _read_source(source, values, is_agreed=is_agreed)
    entry_name = (name or server.name).replace("/", "-")
    before = read_text(path)
    check_text(server_edits.add_server(before.text, entry_name, server.entry, replace=replace), before)
    for note in server.notes:
        print(escape_line(note))
    show_entries({entry_name: server.entry}, path)
    if not is_agreed and not await ask_to_add({entry_name: server.entry}, path):
        return ExitCode.USAGE
    if server.prepare is not None:
        server.prepare()
    write_entry(entry_name, server.entry, choice, replace=replace)
    return ExitCode.ANSWERED


async def _read_source(source: str, values: Sequence[str], *, is_agreed: bool) -> SourceServer:
    if values and Path(source).suffix not in BUNDLE_SUFFIXES:
        raise ConfigError("--set is for the options of a bundle", "--env sets a variable of a program")
    if is_deep_link(source):
        linked = read_deep_link(source)
        if linked.entry is None:
            raise ConfigError(f"the link contains no server: {'; '.join(linked.losses)}")
        return SourceServer(linked.name, linked.entry, linked.losses)
    if Path(source).suffix in BUNDLE_SUFFIXES:
        return await _read_bundle(Path(source), values, is_agreed=is_agreed)
    return _from_registry(_read_file(Path(source)) or await fetch_server(source))


def _read_file(path: Path) -> RegistryServer | None:
    """Return the server of a ``server.json``; None if there is no such file."""
    return read_registry_document(jsonc.read(path.read_bytes(), str(path)).value) if path.is_file() else None


def _from_registry(server: RegistryServer) -> SourceServer:
    """Return the server with the first choice that can run on this machine; if none can, with its first choice."""
    for sentence in (*server.left_out, *filter(None, [server.warning])):
        warn(sentence)
    if not server.choices:
        raise ConfigError(f"{server.name} cannot be used here", "its server.json has no package and no URL that can")
    ready = [choice for choice in server.choices if "url" in choice.entry or is_installed(choice.entry["command"])]
    chosen = (ready or server.choices)[0]
    about = to_one_line(f"{server.name} {server.version}: {server.description}", 300)
    further = [choice.kind for choice in server.choices if choice is not chosen]
    notes = [about, *chosen.notes, *([f"also published as: {', '.join(further)}"] if further else [])]
    return SourceServer(server.short_name, chosen.entry, notes)


async def _read_bundle(path: Path, values: Sequence[str], *, is_agreed: bool) -> SourceServer:
    from platformdirs import user_data_dir

    bundle = bundles.read_bundle(path)
    known = {option.key for option in bundle.options}
    option_values: dict[str, bundles.Value] = {}
    for text in values:
        key, has_value, value = text.partition("=")
        if key not in known or not has_value:
            hint = did_you_mean(key, known) or f"it has {', '.join(sorted(known)) or 'none'}"
            raise ConfigError(f"the bundle has no option {key!r}", hint if has_value else "--set KEY=VALUE")
        earlier = option_values.get(key)
        option_values[key] = (
            value if earlier is None else [*(earlier if isinstance(earlier, list) else [earlier]), value]
        )
    if not is_agreed and can_ask_user():
        for option in bundles.find_missing_options(bundle, option_values):
            try:
                option_values[option.key] = await ask_for_line(f"{escape_line(option.title)}: ")
            except Unanswered:
                raise ConfigError(f"the bundle needs {option.key}", f"--set {option.key}=VALUE") from None
    folder = bundles.choose_bundle_folder(bundle, Path(user_data_dir("dial-client"), "bundles"))
    entry = bundles.build_bundle_entry(bundle, folder, option_values)
    notes = [
        to_one_line(f"{bundle.name} {bundle.version}: {bundle.description}", 300),
        f"It is unpacked into {folder}.",
    ]
    return SourceServer(bundle.name, entry, notes, lambda: bundles.unpack_bundle(bundle, folder))
