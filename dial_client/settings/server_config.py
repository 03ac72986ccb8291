"""Reads an entry of ``mcpServers`` as `ServerSettings`: the keys, their readers, and checks across keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean
from dial_client.settings.config_types import Protocol, ServerSettings, Transport
from dial_client.settings.config_values import TOP_KEYS, check_name, read_env, read_headers, read_url
from dial_client.settings.entry_warnings import OTHER_HOSTS_KEYS, find_odd_values, find_unknown_keys
from dial_client.settings.jsonc import Node, build_choice_reader, quote_key
from dial_client.settings.oauth_config import read_oauth
from dial_client.settings.policy_config import read_untrusted
from dial_client.settings.variables import Variables, parse_env_file


def read_server(name: str, node: Node, variables: Variables, *, is_selected: bool = True) -> ServerSettings:
    """Read one entry; its variables are expanded unless the server is disabled.

    Args:
        name: The name of the server.
        node: The entry.
        variables: The values of ``${…}``.
        is_selected: False to disable the server.

    Raises:
        ConfigError: The entry is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    if "/" in name:
        raise node.build_error("a server's name cannot contain /", "patterns of tools are SERVER/TOOL", at_name=True)
    found, unknown = node.split_members(SERVER_KEYS, SERVER_ALIASES)
    enabled = _read_enabled(found) and is_selected
    values: dict[str, Any] = {}
    for key, child in found.items():
        if enabled and key in _EXPANDED:
            values[key] = SERVER_KEYS[key](variables.expand(child, home=key in _PATHS))
        else:
            read_value = Node.read_string if key == "url" else SERVER_KEYS[key]
            values[key] = read_value(child)
    if "command" not in found and "url" not in found:
        raise _build_target_error(node, unknown)
    transport = _choose_transport(found, values)
    if enabled and "cwd" in values:
        values["cwd"] = str(variables.folder / values["cwd"])
    if enabled and "roots" in values:
        folders = values["roots"]
        values["roots"] = tuple(
            folder if folder.startswith("file:") else str(variables.folder / folder) for folder in folders
        )
    if enabled and "envFile" in values:
        values["env"] = _merge_env(found, values, variables)
    if "timeout" in values:
        values.setdefault("toolTimeout", values["timeout"] / 1000)
    settings = {_FIELDS[key]: value for key, value in values.items() if key in _FIELDS}
    return ServerSettings(name, transport, enabled=enabled, warnings=tuple(_list_warnings(found, unknown)), **settings)


def _read_enabled(found: Mapping[str, Node]) -> bool:
    on, off = (found[key].read_boolean() if key in found else None for key in ("enabled", "disabled"))
    if on is not None and on == off:
        raise found["disabled"].build_error("contradicts enabled", "keep one of the two", at_name=True)
    return not off if on is None else on


def _build_target_error(node: Node, unknown: Mapping[str, Node]) -> ConfigError:
    hints = [did_you_mean(key, ("command", "url")) for key in list(unknown)[:10]]
    if node.source.lines and len(node.keys) == 1:
        hints.append(did_you_mean(str(node.keys[0]), TOP_KEYS))
    usual = 'a server needs a program ("command") or a URL ("url")'
    return node.build_error("neither command nor url is present", next(filter(None, hints), usual), at_name=True)


def _choose_transport(found: Mapping[str, Node], values: Mapping[str, Any]) -> Transport:
    """Return the transport that the entry names, or the one that its command or URL implies."""
    program, address = "command" in values, "url" in values
    if program and address:
        raise found["url"].build_error(
            "must not be combined with command", "a server has a program or a URL, not both", at_name=True
        )
    if "type" in values:
        if (values["type"] is Transport.STDIO) != program:
            raise found["type"].build_error(
                f"this type needs {'url' if program else 'command'}", "or leave the type out"
            )
        return Transport(values["type"])
    if program:
        return Transport.STDIO
    if found["url"].keys[-1] != "httpUrl" and re.match(r"[^/]*//[^/?#]*/(?:[^?#]*/)?sse/?(?:[?#]|$)", values["url"]):
        return Transport.SSE
    return Transport.HTTP


def _merge_env(found: Mapping[str, Node], values: Mapping[str, Any], variables: Variables) -> dict[str, str]:
    """Return the variables of ``envFile``, overridden by those of ``env``; null in ``env`` removes a variable."""
    environment = found["env"].value if "env" in found else {}
    from_file = parse_env_file(found["envFile"], variables.read(variables.folder / values["envFile"]))
    return {name: value for name, value in from_file.items() if name not in environment} | dict(values.get("env", {}))


def _list_warnings(found: Mapping[str, Node], unknown: Mapping[str, Node]) -> Iterator[str]:
    odd = list(find_unknown_keys(unknown, (*SERVER_KEYS, *SERVER_ALIASES), OTHER_HOSTS_KEYS))
    if odd:
        named = ((str(warning.node.keys[-1]), warning.hint) for warning in odd[:5])
        names = ", ".join(quote_key(key) + (f" ({hint})" if hint else "") for key, hint in named)
        ending = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
        yield str(odd[0].node.build_error(f"unknown keys have no effect: {names}{ending}", at_name=True))
    yield from (str(warning.to_error()) for warning in find_odd_values(found))


def _read_command(node: Node) -> str:
    if re.search("[\0-\x1f]", node.read_string()) or not node.read_string().strip():
        raise node.build_error("expected the name or the path of a program", r"a backslash is written \\")
    return node.read_string()


def _read_roots(node: Node) -> tuple[str, ...]:
    """Return the folders of ``roots``; objects with a file URI, the form of other hosts, are accepted, too."""
    folders = (
        item.read_members().get("uri", item) if isinstance(item.value, dict) else item for item in node.read_elements()
    )
    return tuple(folder.read_string() for folder in folders)


SERVER_KEYS: Mapping[str, Callable[[Node], Any]] = {
    "type": build_choice_reader(
        {**{kind: kind for kind in Transport}, "streamable-http": Transport.HTTP, "local": Transport.STDIO}
    ),
    "command": _read_command,
    "args": Node.read_strings,
    "env": read_env,
    "envFile": Node.read_string,
    "cwd": Node.read_string,
    "url": read_url,
    "headers": read_headers,
    "oauth": read_oauth,
    "roots": _read_roots,
    **dict.fromkeys(
        ("enabled", "disabled", "lazy", "required", "pinned", "trusted", "instructions"), Node.read_boolean
    ),
    **dict.fromkeys(("autoApprove", "enabledTools", "disabledTools"), Node.read_strings),
    "untrusted": read_untrusted,
    **dict.fromkeys(("startupTimeout", "toolTimeout", "timeout"), Node.read_positive),
    "protocol": build_choice_reader({era: era for era in Protocol}),
    "resources": build_choice_reader({who: who for who in ("user", "tools")}),
}
SERVER_ALIASES = {
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
    for key in SERVER_KEYS.keys() - {"type", "enabled", "disabled", "envFile", "timeout"}
}
_EXPANDED = frozenset({"command", "args", "env", "envFile", "cwd", "url", "headers", "oauth", "roots"})
_PATHS = frozenset({"command", "envFile", "cwd", "roots"})
