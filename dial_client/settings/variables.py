"""Expansion of ``${…}`` in a configuration, and files of environment variables.

The functions that read raise `ConfigError`, which names the variable and the place without showing a value.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dial_client.messages.errors import ConfigError
from dial_client.settings.jsonc import Node

ReadFile = Callable[[Path], bytes | None]
"""Returns the content of a file; None if it cannot be read."""

_REFERENCE = re.compile(r"\$\{([^{}]*)\}|\$\{")


def read_file(path: Path) -> bytes | None:
    """Return the content of a regular file; None if it does not exist or cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Variables:
    """The values of ``${…}``. References inside an inserted value are not expanded."""

    environ: Mapping[str, str] = field(repr=False)
    folder: Path
    read: ReadFile = read_file
    """Returns the content of a file of variables."""

    def expand(self, node: Node, *, home: bool = False) -> Node:
        """Return the same node with its variables replaced; with `home`, a leading ``~`` is replaced too."""
        return node.with_strings(lambda leaf: self.expand_text(leaf, home=home))

    def expand_text(self, node: Node, *, home: bool = False) -> str:
        """Return one string with its variables replaced."""
        written = node.read_string()
        text = _REFERENCE.sub(lambda found: self._expand_reference(node, found[1]), written)
        if home and re.match(r"~(?:[/\\]|$)", written):
            text = self._find_home(node) + text[1:]
        if "\0" in text:
            raise node.build_error("a NUL character is not allowed")
        return text

    def _expand_reference(self, node: Node, inside: str | None) -> str:
        if inside in ("userHome", "workspaceFolder"):
            return self._find_home(node) if inside == "userHome" else str(self.folder)
        name, has_default, default = (inside or "").partition(":-")
        name = name.removeprefix("env:")
        if name.startswith("input:"):
            raise node.build_error("${input:…} is not supported", "set an environment variable and write ${NAME}")
        if not name or ":" in name or not name.isprintable():
            known = "${VAR}, ${VAR:-default}, ${env:VAR}, ${userHome} and ${workspaceFolder}, without nesting"
            raise node.build_error("unknown variable syntax", f"supported are {known}")
        value = self.environ.get(name)
        if value is None and not has_default:
            shown = name[:60]
            raise node.build_error(f"the variable {shown} is not set", f"set it, or give a default: ${{{shown}:-…}}")
        return value or default

    def _find_home(self, node: Node) -> str:
        try:
            return self.environ.get("USERPROFILE" if sys.platform == "win32" else "HOME") or str(Path.home())
        except RuntimeError:
            raise node.build_error("the user's home folder is not known") from None


def build_variables(
    environ: Mapping[str, str] | None, folder: str | os.PathLike[str], read: ReadFile = read_file
) -> Variables:
    """Return the variables for a file in this folder; `environ` replaces the environment of this process."""
    try:
        return Variables(os.environ if environ is None else environ, Path(folder).absolute(), read)
    except OSError:
        raise ConfigError("the current folder does not exist any more") from None


_ENV_LINE = re.compile(
    r"""\s*(?:(?:export\s+)?([^\s=#"']+)\s*=\s*(?:'([^']*)'|"((?:[^"\\]|\\.)*)"|([^\s"'#]\S*(?:\s+[^\s#]\S*)*))?)?"""
    r"""\s*(?:#.*)?"""
)
_ESCAPED = {r"\n": "\n", r"\r": "\r", r"\t": "\t", r"\"": '"', r"\\": "\\", r"\$": "$"}


def find_references(text: str) -> list[str]:
    """Return the names of the environment variables that a string refers to."""
    names = (inside.partition(":-")[0].removeprefix("env:") for inside in _REFERENCE.findall(text))
    return [name for name in names if name and name not in ("userHome", "workspaceFolder")]


def parse_env_file(node: Node, data: bytes | None) -> dict[str, str]:
    """Read lines of KEY=VALUE, with ``export``, quotes and comments; no variable in them is expanded.

    Args:
        node: The value that names the file, for errors.
        data: The content of the file; None if it could not be read, which is an error.
    """
    try:
        text = "\0" if data is None else data.decode("utf-8-sig")
    except ValueError:
        text = "\0"
    if "\0" in text:
        raise node.build_error("there is no such file, or it cannot be read", "expected lines of KEY=VALUE in UTF-8")
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        parts = _ENV_LINE.fullmatch(line)
        if not parts:
            raise ConfigError("expected KEY=VALUE", "a quote must end on its line", node.read_string(), number, 1)
        key, single, double, bare = parts.groups("")
        if key:
            found[key] = single or bare or re.sub(r"\\.", lambda escape: _ESCAPED.get(escape[0], escape[0]), double)
    return found
