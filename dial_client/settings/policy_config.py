"""The ``"policy"`` of a configuration: ordered rules that allow, ask about or deny tool calls.

    {"policy": [
      {"deny": "files/*", "paths": {"*": "~/.ssh"}, "reason": "keys stay where they are"},
      {"allow": "files/read_file", "paths": {"path": "${workspaceFolder}"}},
      {"ask": "mail/send", "arguments": {"to": "*@example.com"}}
    ]}

This module reads the rules; `tools.policy` applies them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dial_client.settings.config_locations import FILE_NAME, is_user_config, report_unreadable
from dial_client.settings.config_values import Node, Variables, build_variables
from dial_client.settings.jsonc import read

# The pattern of all tools of all servers.
EVERYTHING = "*"


def matches(pattern: str, server: str, tool: str) -> bool:
    """Return True if a pattern ``server/tool`` matches a tool; ``*`` alone matches every tool.

    Any other pattern without ``/`` matches nothing.
    """
    if pattern == EVERYTHING:
        return True
    server_pattern, slash, tool_pattern = pattern.partition("/")
    return bool(slash) and _is_named(server_pattern, server) and _is_named(tool_pattern, tool)


def restricts(pattern: str, server: str, tool: str) -> bool:
    """Return True if the pattern of a restriction matches a tool.

    In contrast to `matches`, a pattern without ``/`` matches tools of this name of any server.
    """
    return matches(pattern, server, tool) or ("/" not in pattern and _is_named(pattern, tool))


def names_server(pattern: str, server: str) -> bool:
    """Return True if a pattern can match tools of this server."""
    server_pattern, slash, _ = pattern.partition("/")
    return not slash or _is_named(server_pattern, server)


def matches_name(patterns: Iterable[str], name: str) -> bool:
    """Return True if at least one of the globs matches a name."""
    return any(_is_named(pattern, name) for pattern in patterns)


def _is_named(pattern: str, name: str) -> bool:
    return pattern in (name, "*") or fnmatchcase(name, pattern)


class Effect(StrEnum):
    """The effect of a rule on the tool calls it matches."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


# The hints that a rule may require (MCP 2025-06-18, schema, ``ToolAnnotations``).
ANNOTATIONS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule. It matches a call if all conditions that are present hold."""

    effect: Effect
    tools: tuple[str, ...]
    """Patterns ``server/tool`` (see `matches`); at least one must match."""
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps argument names, or globs of names, to globs; the argument's value must match at least one of them."""
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps argument names, or globs of names, to absolute folders; at least one must contain the argument's path."""
    annotations: Mapping[str, bool] = field(default_factory=dict)
    """The required annotations of the tool, by the names of `ANNOTATIONS`."""
    tainted: bool | None = None
    """True if the conversation must contain untrusted content, False if it must not; None for no condition."""
    read_only: bool = False
    """Whether the user says that the calls which the rule allows only read."""
    reason: str = ""
    """The reason of the rule, shown to the model and the user."""
    name: str = ""
    """The name of the rule in messages: ``rule 2 (servers.json)``, ``rule 1 of profile work (servers.json)``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of the configuration, with its name, as JSON types."""
        conditions: dict[str, Any] = {
            "arguments": {name: list(globs) for name, globs in self.arguments.items()},
            "paths": {name: list(folders) for name, folders in self.paths.items()},
            "annotations": dict(self.annotations),
            "tainted": self.tainted,
            "readOnly": self.read_only or None,
            "reason": self.reason,
        }
        present = {key: value for key, value in conditions.items() if value not in ({}, None, "")}
        return {"rule": self.name, self.effect.value: list(self.tools), **present}


# Rules, in the order they are tried.
Policy = tuple[PolicyRule, ...]


def read_policy(node: Node, names: Variables) -> Policy:
    """Return the rules of a list.

    Args:
        node: The value of ``"policy"``.
        names: The values of ``${…}`` in paths, and the base folder of relative paths.

    Raises:
        ConfigError: A rule is invalid; the error names the place, and what was expected.
    """
    origin = _describe_origin(node)
    return tuple(
        _read_rule(element, names, f"rule {number}{origin}") for number, element in enumerate(node.read_elements(), 1)
    )


def _describe_origin(node: Node) -> str:
    """Return the profile and the file of rules, for messages.

    The user's own file is named by its path, because files in other folders have the same name.
    """
    profile = f" of profile {node.keys[1]}" if len(node.keys) > 1 and node.keys[0] == "profiles" else ""
    path = Path(node.source.path) if node.source.path else None
    if path is None:
        return profile
    is_own = path.name == FILE_NAME and is_user_config(path)
    return f"{profile} ({_with_tilde(path) if is_own else path.name})"


def _with_tilde(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return str(path)


def load_policy(
    source: Policy | str | os.PathLike[str] | list[Any] | Mapping[str, Any] | None,
    *,
    folder: str | os.PathLike[str] = "",
) -> Policy:
    """Return the rules of a file, or of the parsed content of such a file.

    A file is a list of rules, or an object with such a list under ``"policy"``; other keys of the object are ignored.

    Args:
        source: The rules, the file's path, or its parsed content; None for no rules.
        folder: The base of relative paths, and the value of ``${workspaceFolder}``; by default the current folder.

    Raises:
        ConfigError: The file cannot be read, or is invalid.
    """
    if source is None:
        return ()
    if isinstance(source, tuple) and all(isinstance(rule, PolicyRule) for rule in source):
        return source
    if isinstance(source, str | os.PathLike):
        with report_unreadable(source):
            node = read(Path(source).read_bytes(), os.fspath(source))
    else:
        node = Node(source)
    if isinstance(node.value, Mapping):
        found, _ = node.split_members(("policy",), {})
        if "policy" not in found:
            return ()
        node = found["policy"]
    return read_policy(node, build_variables(None, folder))


def read_untrusted(node: Node) -> tuple[str, ...]:
    """Return the globs of the tools whose results are untrusted; true means all tools.

    Raises:
        ConfigError: The value is neither true, false nor a list of strings.
    """
    if isinstance(node.value, bool):
        return ("*",) if node.value else ()
    if not isinstance(node.value, list | tuple):
        raise node.build_type_error("true, false or a list of tools")
    return node.read_strings()


def read_background_after(node: Node) -> dict[str, float]:
    """Return seconds by globs of tools; a number alone is for all tools.

    Raises:
        ConfigError: The value is neither a number nor an object of numbers, or a number is below 0.
    """
    if isinstance(node.value, Mapping):
        return {glob: child.read_number() for glob, child in node.read_members().items()}
    return {"*": node.read_number()}


def _read_rule(node: Node, names: Variables, name: str) -> PolicyRule:
    found = node.read_known_members("a rule has no key {}", (*Effect, *CONDITIONS))
    effects = [effect for effect in Effect if effect in found]
    if len(effects) != 1:
        raise node.build_error("expected one of allow, ask and deny", 'a rule is like {"deny": "files/delete_*"}')
    effect = effects[0]
    values = {_FIELDS.get(key, key): CONDITIONS[key](found[key], names) for key in CONDITIONS if key in found}
    if "readOnly" in found and effect is not Effect.ALLOW:
        raise found["readOnly"].build_error(
            "only a rule that allows has this key", "a mode never weakens a restriction"
        )
    return PolicyRule(effect, _read_tools(found[effect], effect), name=name, **values)


def _read_tools(node: Node, effect: Effect) -> tuple[str, ...]:
    patterns = _read_strings(node)
    if not patterns:
        raise node.build_error('expected a pattern of tools, like "server/tool"', '"*" matches all tools')
    for index, pattern in enumerate(patterns):
        if effect is Effect.ALLOW and "/" not in pattern and pattern != EVERYTHING:
            child = node.read_elements()[index] if isinstance(node.value, list | tuple) else node
            hint = f'write "SERVER/{pattern}" with the name of a server'
            raise child.build_error("a pattern that allows a tool must name its server", hint)
    return patterns


def _read_strings(node: Node) -> tuple[str, ...]:
    return node.read_strings() if isinstance(node.value, list | tuple) else (node.read_scalar(),)


def _read_globs(node: Node, _: Variables) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, child in node.read_members().items():
        if isinstance(child.value, list | tuple):
            found[name] = tuple(element.read_scalar() for element in child.read_elements())
        elif isinstance(child.value, str | bool | int | float):
            found[name] = (child.read_scalar(),)
        elif child.value is not None:
            raise child.build_type_error("a glob, or a list of globs")
    return _require_values(node, found)


def _read_folders(node: Node, names: Variables) -> dict[str, tuple[str, ...]]:
    found = {
        name: tuple(_resolve_folder(folder, names) for folder in _read_strings(names.expand(child, home=True)))
        for name, child in node.read_members().items()
        if child.value is not None
    }
    return _require_values(node, found)


def _require_values(node: Node, found: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return a condition; raise `ConfigError` if it is empty, because it would hold for every call, or for none."""
    if not found or not all(found.values()):
        raise node.build_error(
            "expected at least one argument, each with at least one value", '"*" matches all arguments'
        )
    return found


def _resolve_folder(folder: str, names: Variables) -> str:
    if not folder.strip():
        return str(names.folder)
    return folder if folder.startswith("**") else str(names.folder / folder)


def _read_annotations(node: Node, _: Variables) -> dict[str, bool]:
    found = node.read_known_members("there is no annotation {}", ANNOTATIONS)
    if not found:
        raise node.build_error(f"expected one of {', '.join(ANNOTATIONS)}")
    return {key: child.read_boolean() for key, child in found.items()}


CONDITIONS: Mapping[str, Callable[[Node, Variables], Any]] = {
    "arguments": _read_globs,
    "paths": _read_folders,
    "annotations": _read_annotations,
    "tainted": lambda node, _: node.read_boolean(),
    "readOnly": lambda node, _: node.read_boolean(),
    "reason": lambda node, _: node.read_string(),
}
# The fields of `PolicyRule` that are named otherwise than their keys.
_FIELDS = {"readOnly": "read_only"}
