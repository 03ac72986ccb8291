"""Reads ``servers.json`` and the environment into `Settings`. All checks of a configuration are made here, once.

    load             a file
      parse          its text
        _server      an entry of ``mcpServers`` -> `ServerSettings`
        _model       a profile of ``models``    -> `ModelSettings`

No message and no repr shows a value: it may be a secret. Messages name the key, and the place where it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dial_client.errors import ConfigError, system_reason
from dial_client.model import ToolFormat
from dial_client.settings.config_locations import find_config
from dial_client.settings.config_outline import Outline
from dial_client.settings.config_types import ModelSettings, Protocol, ServerSettings, Settings, Transport, Wire
from dial_client.settings.jsonc import Node, did_you_mean, one_of, quoted
from dial_client.settings.jsonc import read as document
from dial_client.settings.oauth_config import oauth
from dial_client.settings.policy_config import policy, untrusted
from dial_client.settings.variables import ReadFile, Variables, env_file, read_file, variables

__all__ = [
    "QUIRKS",
    "ModelSettings",
    "Protocol",
    "ServerSettings",
    "Settings",
    "Transport",
    "Wire",
    "find_config",
    "load",
    "outline",
    "parse",
    "server_from_mapping",
]


def load(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Read a file; `environ` replaces the environment of the process.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = system_reason(error, "this is not the name of a file")
        raise ConfigError(f"cannot be read: {reason}", path=str(path)) from None
    return parse(data, path=str(path), environ=environ)


def parse(
    text: str | bytes,
    *,
    path: str = "",
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    read: ReadFile = read_file,
) -> Settings:
    """Read the text of a configuration.

    Args:
        text: JSON; comments and trailing commas are accepted.
        path: The file, as messages call it.
        folder: Where relative paths begin, and what ``${workspaceFolder}`` is; else the folder of `path`.
        environ: Stands for the process's own environment.
        read: Returns the content of an ``envFile``.

    Raises:
        ConfigError: something is wrong; it says where, and what was expected.
    """
    root = document(text, path)
    names = variables(environ, Path(path).parent if folder is None else folder, read)
    top, unknown = root.known(_TOP, {})
    servers = {name: _server(name, node, names) for name, node in _entries(top, unknown).items()}
    models = top["models"].children() if "models" in top else {}
    return Settings(
        servers,
        {name: _model(name, node, names) for name, node in models.items()},
        names.text(top["defaultModel"]) if "defaultModel" in top else None,
        Path(path) if path else None,
        tuple(warning for server in servers.values() for warning in server.warnings),
        policy(top["policy"], names) if "policy" in top else (),
    )


def outline(text: str | bytes, path: str = "") -> Outline:
    """Return the entries as they are written: no variable is expanded, and no other file is read.

    Raises:
        ConfigError: this is not JSON, or not made of entries.
    """
    top, unknown = document(text, path).known(_TOP, {})
    servers, models = _entries(top, unknown), top["models"].children() if "models" in top else {}
    shown = {"mcpServers", "servers", "models", "defaultModel"}
    if not {"mcpServers", "servers"} & top.keys():
        shown |= servers.keys()
    return Outline(
        {name: reduce(or_, node.known(_SERVER, _ALIASES)) for name, node in servers.items()},
        {name: reduce(or_, node.known(_MODEL, {})) for name, node in models.items()},
        top.get("defaultModel"),
        {key: node for key, node in {**unknown, **top}.items() if key not in shown},
    )


def server_from_mapping(
    name: str,
    entry: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ServerSettings:
    """Read one entry that was made in Python; relative paths begin at `folder`, by default the current one.

    Raises:
        ConfigError: something is wrong; it names the key, and what was expected.
    """
    return _server(name, Node(entry, (name,)), variables(environ, folder or ""))


def _entries(top: Mapping[str, Node], unknown: Mapping[str, Node]) -> Mapping[str, Node]:
    """Return the entries of the servers: the value of ``mcpServers`` or ``servers``, or else the top level itself."""
    if "mcpServers" in top and "servers" in top:
        raise top["servers"].error("must not be combined with mcpServers", "keep one of the two", at_name=True)
    for key in ("mcpServers", "servers"):
        if key in top:
            return top[key].children()
    entries = {name: node for name, node in unknown.items() if not name.startswith(_COMMENTS)}
    for name, node in entries.items():
        if not isinstance(node.value, Mapping):
            raise node.wrong("a server's entry", did_you_mean(name, _TOP) or 'servers stand under "mcpServers"')
    return entries


def _server(name: str, node: Node, variables: Variables) -> ServerSettings:
    _check_name(name, node)
    if "/" in name:
        raise node.error("the name of a server holds no /", "patterns of tools are SERVER/TOOL", at_name=True)
    found, unknown = node.known(_SERVER, _ALIASES)
    enabled = _enabled(found)
    values: dict[str, Any] = {}
    for key, child in found.items():
        if enabled and key in _EXPANDED:
            values[key] = _SERVER[key](variables.expanded(child, home=key in _PATHS))
        else:
            read_value = Node.string if key == "url" else _SERVER[key]
            values[key] = read_value(child)
    if "command" not in found and "url" not in found:
        raise _nothing_to_reach(node, unknown)
    transport = _transport(found, values)
    if enabled and "cwd" in values:
        values["cwd"] = str(variables.folder / values["cwd"])
    if enabled and "roots" in values:
        folders = values["roots"]
        values["roots"] = tuple(
            folder if folder.startswith("file:") else str(variables.folder / folder) for folder in folders
        )
    if enabled and "envFile" in values:
        values["env"] = _merged_env(found, values, variables)
    if "timeout" in values:
        values.setdefault("toolTimeout", values["timeout"] / 1000)
    settings = {_FIELDS[key]: value for key, value in values.items() if key in _FIELDS}
    return ServerSettings(name, transport, enabled=enabled, warnings=tuple(_warnings(found, unknown)), **settings)


def _check_name(name: str, node: Node) -> None:
    if not name.strip() or not name.isprintable():
        raise node.error("expected a name that can be read and shown", at_name=True)


def _enabled(found: Mapping[str, Node]) -> bool:
    on, off = (found[key].boolean() if key in found else None for key in ("enabled", "disabled"))
    if on is not None and on == off:
        raise found["disabled"].error("contradicts enabled", "keep one of the two", at_name=True)
    return not off if on is None else on


def _nothing_to_reach(node: Node, unknown: Mapping[str, Node]) -> ConfigError:
    hints = [did_you_mean(key, ("command", "url")) for key in list(unknown)[:10]]
    if node.source.lines and len(node.keys) == 1:
        hints.append(did_you_mean(str(node.keys[0]), _TOP))
    usual = 'a server is a program ("command") or an address ("url")'
    return node.error("neither command nor url is present", next(filter(None, hints), usual), at_name=True)


def _transport(found: Mapping[str, Node], values: Mapping[str, Any]) -> Transport:
    """Return the transport that the entry names, else the one that its command or URL implies."""
    program, address = "command" in values, "url" in values
    if program and address:
        raise found["url"].error(
            "must not be combined with command", "a server is a program or an address, not both", at_name=True
        )
    if "type" in values:
        if (values["type"] is Transport.STDIO) != program:
            raise found["type"].error(f"this type needs {'url' if program else 'command'}", "or leave the type out")
        return Transport(values["type"])
    if program:
        return Transport.STDIO
    if found["url"].keys[-1] != "httpUrl" and re.match(r"[^/]*//[^/?#]*/(?:[^?#]*/)?sse/?(?:[?#]|$)", values["url"]):
        return Transport.SSE
    return Transport.HTTP


def _merged_env(found: Mapping[str, Node], values: Mapping[str, Any], variables: Variables) -> dict[str, str]:
    """Return the variables of the file with those of ``env`` on top; null in ``env`` removes a variable."""
    environment = found["env"].value if "env" in found else {}
    from_file = env_file(found["envFile"], variables.read(variables.folder / values["envFile"]))
    return {name: value for name, value in from_file.items() if name not in environment} | dict(values.get("env", {}))


def _warnings(found: Mapping[str, Node], unknown: Mapping[str, Node]) -> Iterator[str]:
    odd = [key for key in unknown if key not in _OF_OTHER_HOSTS and not key.startswith(_COMMENTS)]
    if odd:
        hints = {key: did_you_mean(key, (*_SERVER, *_ALIASES)) for key in odd[:5]}
        named = ", ".join(quoted(key) + (f" ({hint})" if hint else "") for key, hint in hints.items())
        more = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
        yield str(unknown[odd[0]].error(f"unknown keys have no effect: {named}{more}", at_name=True))
    if "timeout" in found and found["timeout"].value < 1000:
        yield str(found["timeout"].error("less than a second", "timeout is in milliseconds, toolTimeout in seconds"))
    for key in ("env", "headers"):
        for child in found[key].children().values() if key in found else ():
            if re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", str(child.value)):
                yield str(
                    child.error("this is not a variable, and is used as it is written", "a variable is written ${NAME}")
                )


def _model(name: str, node: Node, variables: Variables) -> ModelSettings:
    _check_name(name, node)
    found, unknown = node.known(_MODEL, {})
    for key, child in unknown.items():
        if not key.startswith(_COMMENTS):
            raise child.error("unknown setting of a model", did_you_mean(key, _MODEL), at_name=True)
    values = {key: _MODEL[key](variables.expanded(child)) for key, child in found.items()}
    quirks = {key: values.pop(key) for key in QUIRKS if key in values}
    return ModelSettings(name, quirks=quirks, **({"model": name} | values))


def _command(node: Node) -> str:
    if re.search("[\0-\x1f]", node.string()) or not node.string().strip():
        raise node.error("expected the name or the path of a program", r"a backslash is written \\")
    return node.string()


def _url(node: Node) -> str:
    text = node.string()
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isprintable() or " " in text:
        raise node.error("expected an http:// or https:// address")
    return text


def _env(node: Node) -> dict[str, str]:
    for name, child in node.children().items():
        if not name or "=" in name or "\0" in name:
            raise child.error("expected the name of a variable", at_name=True)
    return node.scalars()


def _line(node: Node) -> str:
    """Return the value of a header without the blanks around it."""
    line = node.scalar().strip(" \t")
    if not re.fullmatch(r"[\t\x20-\x7e]*", line):
        raise node.error("expected one line of printable ASCII", "does a variable in it end with a line break?")
    return line


def _headers(node: Node) -> dict[str, str]:
    children = {name: child for name, child in node.children().items() if child.value is not None}
    for name, child in children.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise child.error("expected the name of a header", at_name=True)
    return {name: _line(child) for name, child in children.items()}


def _roots(node: Node) -> tuple[str, ...]:
    """Return the folders of ``roots``; objects with a file URI, as other hosts have them, are accepted."""
    folders = (item.children().get("uri", item) if isinstance(item.value, dict) else item for item in node.elements())
    return tuple(folder.string() for folder in folders)


def _object(node: Node) -> dict[str, Any]:
    return {key: child.value for key, child in node.children().items()}


def _tool_list(node: Node) -> tuple[str | dict[str, Any], ...]:
    return tuple(_object(tool) if isinstance(tool.value, dict) else tool.string() for tool in node.elements())


def _pattern(node: Node) -> str:
    try:
        re.compile(node.string())
    except (re.error, OverflowError, RecursionError):
        raise node.error("expected a regular expression") from None
    return node.string()


def _words(*words: str) -> Callable[[Node], str]:
    return one_of({word: word for word in words})


_TOP = ("mcpServers", "servers", "models", "defaultModel", "inputs", "policy")
_SERVER: Mapping[str, Callable[[Node], Any]] = {
    "type": one_of({**{kind: kind for kind in Transport}, "streamable-http": Transport.HTTP, "local": Transport.STDIO}),
    "command": _command,
    "args": Node.strings,
    "env": _env,
    "envFile": Node.string,
    "cwd": Node.string,
    "url": _url,
    "headers": _headers,
    "oauth": oauth,
    "roots": _roots,
    **dict.fromkeys(("enabled", "disabled", "lazy", "required", "pinned", "trusted", "instructions"), Node.boolean),
    **dict.fromkeys(("autoApprove", "enabledTools", "disabledTools"), Node.strings),
    "untrusted": untrusted,
    **dict.fromkeys(("startupTimeout", "toolTimeout", "timeout"), Node.positive),
    "protocol": one_of({era: era for era in Protocol}),
    "resources": one_of({who: who for who in ("user", "tools")}),
}
_ALIASES = {
    "transport": "type",
    "httpUrl": "url",
    "auth": "oauth",
    "alwaysAllow": "autoApprove",
    "includeTools": "enabledTools",
    "excludeTools": "disabledTools",
    "startup_timeout_sec": "startupTimeout",
    "tool_timeout_sec": "toolTimeout",
}
_FIELDS = {
    key: re.sub("([A-Z])", r"_\1", key).lower()
    for key in _SERVER.keys() - {"type", "enabled", "disabled", "envFile", "timeout"}
}
_EXPANDED = frozenset({"command", "args", "env", "envFile", "cwd", "url", "headers", "oauth", "roots"})
_PATHS = frozenset({"command", "envFile", "cwd", "roots"})
_COMMENTS = ("_", "$", "//")
_OF_OTHER_HOSTS = frozenset(
    (
        *("authProviderType", "description", "dev", "displayName", "gallery", "icon", "iconUrl", "icons", "id"),
        *("keep_alive", "logoUrl", "metadata", "modernLogLevel", "name", "note", "notes", "protocolEra"),
        *("sandbox", "sandboxEnabled", "sse_read_timeout", "tags", "title", "tools", "trust", "version"),
    )
)

QUIRKS: Mapping[str, Callable[[Node], Any]] = {
    "tools": _words("native", "text"),
    "tool_content": _words("str", "parts"),
    "tool_name_re": _pattern,
    "tool_name_len": Node.count,
    "schema_dialect": _words("full", "openai", "gemini"),
    "parallel": _words("omit", "send_true", "false"),
    "constrain": _words("none", "grammar", "structured_outputs", "response_format"),
    "max_tokens_field": _words("max_tokens", "max_completion_tokens"),
    "reasoning_in": Node.strings,
    "reasoning_field": Node.string,
    "echo_reasoning": _words("none", "tool_turns", "always"),
    "idle_timeout": Node.positive,
    "key_header": Node.string,
    "api_version": Node.string,
    "headers": _headers,
    "extra_body": _object,
    "server_tools": _tool_list,
    **dict.fromkeys(
        ("documents", "echo_call_extra", "fenced_calls", "forced_choice", "images", "prompt_cache"), Node.boolean
    ),
    **dict.fromkeys(("sampling", "short_ids", "stream_usage", "strict", "tool_search"), Node.boolean),
    **dict.fromkeys(("tool_choice", "user_after_tool"), Node.boolean),
}
"""How an endpoint may differ from OpenAI's chat completions: each flag, and what reads its value."""

_MODEL: Mapping[str, Callable[[Node], Any]] = {
    "preset": Node.string,
    "wire": one_of({wire: wire for wire in Wire}),
    "base_url": _url,
    "model": Node.string,
    "api_key": _line,
    "tool_format": one_of({**{kind: kind for kind in ToolFormat}, "auto": None}),
    "temperature": Node.number,
    **dict.fromkeys(("max_tokens", "context_window"), Node.count),
    **QUIRKS,
}
