"""The work of ``dial-chat servers add``: a program, a URL, or the server of a link, a bundle or the MCP registry.

Links, bundles and registries are untrusted: the command shows what a server would run, and asks, before it writes or
unpacks anything.

The registry is requested with ``GET /v0.1/servers`` and ``GET /v0.1/servers/{name}/versions/{version}`` (the document
docs/reference/api/openapi.yaml of modelcontextprotocol/registry, 2025-12-01). The base URL is an option, so that a
company's own registry can be used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from dial_client.cli.options import ConfigChoice, ExitCode, NewServerOptions
from dial_client.cli.servers.server_proposals import is_installed
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.streams.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.cli.trust.changed_config import change_config, confirm_addition, find_file
from dial_client.messages.errors import ConfigError, DialError, ServerStartError
from dial_client.runtime.safe_text import escape_line, to_one_line
from dial_client.runtime.text import suggest_name
from dial_client.settings import bundles, config_editor, jsonc
from dial_client.settings.config_editor import check_text, read_text
from dial_client.settings.config_values import find_references
from dial_client.settings.host_documents import is_deep_link, read_deep_link
from dial_client.settings.registry_documents import RegistryServer, read_registry_document


async def add_server(
    name: str, target: Sequence[str], new: NewServerOptions, choice: ConfigChoice, *, replace: bool
) -> None:
    """Add a server to a configuration.

    Raises:
        ConfigError: The words describe no server, there is a server of this name, or the file cannot be written.
    """
    write_entry(name, build_server_entry(name, target, new), choice, replace=replace)


async def add_json_entry(name: str, text: str, choice: ConfigChoice, *, replace: bool) -> None:
    """Add a server whose entry is JSON to a configuration.

    Raises:
        ConfigError: The text is not a valid entry, there is a server of this name, or the file cannot be written.
    """
    entry = jsonc.read(text, "the entry").value
    if isinstance(entry, dict) and len(entry) == 1 and {"mcpServers", "servers"} & entry.keys():
        (servers,) = entry.values()
        if isinstance(servers, dict) and len(servers) == 1:
            (entry,) = servers.values()
    if not isinstance(entry, dict):
        raise ConfigError("the entry is not a JSON object", """like '{"command": "mcp-server-time"}'""")
    write_entry(name, entry, choice, replace=replace)


def write_entry(name: str, entry: Mapping[str, Any], choice: ConfigChoice, *, replace: bool) -> None:
    """Add an entry to a configuration, and print the change and warnings about the entry.

    Raises:
        ConfigError: The entry is wrong, there is a server of this name, or the file cannot be written.
    """
    before = read_text(find_file(choice))
    change_config(
        before, lambda text: config_editor.add_server(text, name, entry, replace=replace), f"added {escape_line(name)}"
    )
    for warning in find_entry_warnings(entry):
        warn(warning)
    print(f"Try: dial-chat servers test {escape_line(name)}")


def build_server_entry(name: str, target: Sequence[str], new: NewServerOptions) -> dict[str, Any]:
    """Return the entry of a server, as ``servers.json`` has it.

    Args:
        name: The name of the server, for messages.
        target: A URL, or a program with its arguments.
        new: The options.

    Raises:
        ConfigError: The words describe no server.
    """
    if not target:
        raise ConfigError(
            "give a command or a URL",
            f"dial-chat servers add {name} -- uvx mcp-server-time, or dial-chat servers add {name} https://…",
        )
    first, *rest = target
    is_url = re.match(r"(?i)https?://", first) is not None
    if is_url and rest:
        raise ConfigError("nothing may follow a URL", "put options before it, and a program after --")
    entry: dict[str, Any] = {"type": new.transport} if new.transport else {}
    entry |= {"url": first} if is_url else {"command": first} | ({"args": rest} if rest else {})
    if new.env:
        entry["env"] = dict(_pair(text, "=", "--env KEY=VALUE") for text in new.env)
    if new.header:
        entry["headers"] = dict(_pair(text, ":", "--header 'Name: value'") for text in new.header)
    if new.cwd is not None:
        entry["cwd"] = new.cwd
    if new.allow:
        entry["autoApprove"] = list(new.allow)
    misplaced = {"env": is_url, "headers": not is_url, "cwd": is_url}
    for key, is_misplaced in misplaced.items():
        if is_misplaced and key in entry:
            kind = "a server with a URL" if is_url else "a program"
            raise ConfigError(f"{kind} has no {key}", "dial-chat servers add --help")
    return entry


def find_entry_warnings(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about an entry: secrets in plain text, variables that are not set, a missing program."""
    from dial_client.servers.secret_masking import find_literal_secrets
    from dial_client.servers.transports.server_process import find_program

    for place, variable in find_literal_secrets(entry):
        yield f"{place} seems to contain a secret in plain text; set a variable, and write ${{{variable}}} in its place"
    text = json.dumps(entry, ensure_ascii=False)
    for name in dict.fromkeys(find_references(text)):
        if name not in os.environ and f"{name}:-" not in text:
            yield f"the variable {name} is not set yet: the server needs it"
    command = entry.get("command")
    if isinstance(command, str) and "${" not in command:
        try:
            find_program("the server", command, os.environ.get("PATH"), None)
        except ServerStartError as error:
            yield error.problem


def _pair(text: str, separator: str, usage: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise ConfigError(f"this has no {separator!r}", usage)
    return (name.strip(), value.strip()) if separator == ":" else (name, value)


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
    return is_deep_link(text) or is_file or (_NAME.fullmatch(text) is not None and not path.exists())


async def add_source(
    source: str,
    name: str | None,
    new: NewServerOptions,
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
        new: The options about a program or a URL, which a source does not take.
        choice: The file to change.
        values: The options of a bundle, each as ``KEY=VALUE``.
        replace: Replace a server of the same name.
        is_agreed: Ask nothing.

    Raises:
        ConfigError: The source has no usable server, or there is no terminal to ask at.
    """
    if given := [f"--{name}" for name in NewServerOptions.__dataclass_fields__ if getattr(new, name)]:
        key = f"mcpServers.{name or 'NAME'}.KEY"
        raise ConfigError(
            f"{given[0]} has no effect with a SOURCE, which describes the server",
            f"add it without {given[0]}, then `dial-chat config set {key} VALUE`",
        )
    before = read_text(find_file(choice))
    server = await _read_source(source, values, is_agreed=is_agreed)
    entry_name = (name or server.name).replace("/", "-")
    check_text(config_editor.add_server(before.text, entry_name, server.entry, replace=replace), before)
    for note in server.notes:
        print(escape_line(note))
    if not await confirm_addition({entry_name: server.entry}, before.path, is_agreed=is_agreed):
        return ExitCode.USAGE
    if server.prepare is not None:
        server.prepare()
    write_entry(entry_name, server.entry, choice, replace=replace)
    return ExitCode.ANSWERED


async def _read_source(source: str, values: Sequence[str], *, is_agreed: bool) -> SourceServer:
    if values and Path(source).suffix not in BUNDLE_SUFFIXES:
        raise ConfigError("--set is for the options of a bundle", "this source has none")
    if is_deep_link(source):
        linked = read_deep_link(source)
        if linked.entry is None:
            raise ConfigError(f"the link contains no server: {'; '.join(linked.losses)}")
        return SourceServer(linked.name, linked.entry, linked.losses)
    path = Path(source)
    if path.suffix in BUNDLE_SUFFIXES:
        return await _read_bundle(path, values, is_agreed=is_agreed)
    return _from_registry(_read_file(path) or await fetch_server(source))


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
            hint = suggest_name(key, sorted(known)) if has_value else "--set KEY=VALUE"
            raise ConfigError(f"the bundle has no option {key!r}", hint)
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


if TYPE_CHECKING:
    import httpx2

URL = "https://registry.modelcontextprotocol.io"
# The environment variable that names another registry.
VARIABLE = "DIAL_REGISTRY_URL"
# Timeout of one request in seconds.
SECONDS = 15.0
LIMIT = 30
_MAX_BYTES = 8_000_000
_NAME = re.compile(r"[A-Za-z0-9-]+\.[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")


class RegistryError(DialError):
    """The registry cannot be reached, or its response is invalid."""


async def search_registry(words: str, registry: str | None, *, as_json: bool) -> None:
    """Print the servers of the registry whose names contain a word.

    Raises:
        ConfigError: The URL of the registry is wrong.
        RegistryError: The registry cannot be reached, or its response is invalid.
    """
    base = _find_base_url(registry)
    answer = await _get(f"{base}/v0.1/servers?search={quote(words, safe='')}&version=latest&limit={LIMIT}", base)
    listed = answer.get("servers") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise RegistryError(f"{base} does not answer as an MCP registry: there is no list of servers")
    found = list(filter(None, map(_read, listed)))
    if as_json:
        rows = [
            {
                "name": server.name,
                "version": server.version,
                "description": server.description,
                "status": server.status,
                "kinds": [choice.kind for choice in server.choices],
            }
            for server in found
        ]
        print(json.dumps(rows, indent=2))
        return
    for server in found:
        kinds = ", ".join(dict.fromkeys(choice.kind for choice in server.choices)) or "cannot be used here"
        print_lines([f"{to_one_line(server.name, 100)}  {to_one_line(server.version, 20)}  ({kinds})"])
        print_lines((f"    {to_one_line(text, 200)}" for text in (server.description, server.warning) if text), 4)
    metadata = answer.get("metadata")
    if isinstance(metadata, dict) and metadata.get("nextCursor"):
        print(f"There are more: only the first {len(listed)} are listed; use a longer search term.")
    print(
        "dial-chat servers add NAME adds a server."
        if found
        else f"{base} has no server with {to_one_line(words, 60)!r}."
    )


async def fetch_server(name: str) -> RegistryServer:
    """Return the newest version of a server of the registry.

    Raises:
        ConfigError: The registry has no such server, or the URL of the registry is wrong.
        RegistryError: The registry cannot be reached, or its response is invalid.
    """
    base = _find_base_url(None)
    answer = await _get(f"{base}/v0.1/servers/{quote(name, safe='')}/versions/latest", base, name)
    return read_registry_document(answer)


def _find_base_url(registry: str | None) -> str:
    base = (registry or os.environ.get(VARIABLE) or URL).rstrip("/")
    if not re.match(r"https?://[^/\s]+", base):
        raise ConfigError(f"{base!r} is not the URL of a registry", "it begins with https://")
    return base


async def _get(url: str, base: str, name: str = "") -> Any:
    import httpx2

    try:
        with anyio.fail_after(SECONDS):
            async with (
                httpx2.AsyncClient(timeout=SECONDS, follow_redirects=True) as client,
                client.stream("GET", url, headers={"Accept": "application/json"}) as response,
            ):
                body = await _read_bounded(response)
        if response.status_code == 404 and name:
            raise ConfigError(f"{base} has no server {name!r}", "dial-chat servers search finds names")
        if not response.is_success:
            raise RegistryError(f"the MCP registry {base} answers with status {response.status_code}")
        if len(body) > _MAX_BYTES:
            raise RegistryError(f"the answer of the MCP registry {base} is too long")
        return json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        reason = str(error) or type(error).__name__
        raise RegistryError(f"the MCP registry {base} cannot be reached: {reason}; is this machine offline?") from None
    except (ValueError, RecursionError):
        raise RegistryError(f"{base} does not answer as an MCP registry: this is not JSON") from None


async def _read_bounded(response: httpx2.Response) -> bytes:
    """Return the body, cut off after the piece that exceeds `_MAX_BYTES`."""
    pieces, length = list[bytes](), 0
    async with aclosing(response.aiter_bytes()) as body:
        async for piece in body:
            pieces.append(piece)
            length += len(piece)
            if length > _MAX_BYTES:
                break
    return b"".join(pieces)


def _read(document: Any) -> RegistryServer | None:
    try:
        return read_registry_document(document)
    except ConfigError:
        return None
