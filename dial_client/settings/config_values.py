"""A value of a configuration with its place (`Node`), the readers of its types, and the expansion of ``${…}``.

Every error names the key path, the file, the line and the column. No message shows a value, because it may be a secret.
"""

from __future__ import annotations

import json
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.text import did_you_mean, fold_name

# The path from the top level to a value: ``("mcpServers", "time", "args", 0)``.
Keys = tuple[str | int, ...]

T = TypeVar("T")

# Prefixes of keys that are comments.
COMMENTS = ("_", "$", "//")
NO_ALIASES: Mapping[str, str] = {}

# Maximum nesting depth of objects and lists; deeper nesting raises `ConfigError`.
MAX_DEPTH = 100


@dataclass(frozen=True, eq=False, slots=True)
class JsoncSource:
    """A file with the places of all its values. Values made in Python have an empty source, and no place."""

    path: str = ""
    """The path of the file, as the user gave it."""
    lines: Sequence[int] = ()
    """The offset of the start of each line, in characters."""
    values: Mapping[Keys, int] = field(default_factory=dict, repr=False)
    """The offset of each value, in characters."""
    names: Mapping[Keys, int] = field(default_factory=dict, repr=False)
    """The offset of the key of each object member, in characters."""
    ends: Mapping[Keys, int] = field(default_factory=dict, repr=False)
    """The offset after each value, in characters."""

    def find_place(self, keys: Keys, *, at_name: bool = False) -> tuple[int, int]:
        """Return line and column of a value or of its key; for a missing value, those of the enclosing value.

        Both are counted from 1, columns in characters; (0, 0) for values that come from no file.
        """
        while keys and keys not in self.values:
            keys = keys[:-1]
        offset = self.values.get(keys, 0)
        return self.find_position(self.names.get(keys, offset) if at_name else offset)

    def find_position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset."""
        line = bisect_right(self.lines, offset)
        return (line, offset - self.lines[line - 1] + 1) if line else (0, 0)


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A value of a configuration with its place, typed access, and error messages that name the place.

    The methods for typed access raise `ConfigError` if the value has another type.
    """

    value: Any = field(repr=False)
    keys: Keys = ()
    source: JsoncSource = field(default_factory=JsoncSource, repr=False)

    def build_error(self, problem: str, hint: str = "", *, at_name: bool = False) -> ConfigError:
        """Return an error about this value or its key; the caller raises it."""
        text = f"{_format_keys(self.keys)}: {problem}" if self.keys else problem
        return ConfigError(text, hint, self.source.path, *self.source.find_place(self.keys, at_name=at_name))

    def build_type_error(self, expected: str, hint: str = "") -> ConfigError:
        """Return the error for a value that has another type or is out of range."""
        return self.build_error(f"expected {expected}, found {_describe_kind(self.value)}", hint)

    def read_members(self) -> dict[str, Node]:
        """Return the members of an object, in the order of the file."""
        if not isinstance(self.value, Mapping):
            raise self.build_type_error("an object")
        if not all(isinstance(key, str) for key in self.value):
            raise self.build_error("expected keys that are strings")
        return {key: self._get_child(key) for key in self.value}

    def read_elements(self) -> list[Node]:
        """Return the elements of a list."""
        if not isinstance(self.value, list | tuple):
            raise self.build_type_error("a list")
        return [self._get_child(index) for index in range(len(self.value))]

    def read_string(self) -> str:
        """Return a string; a `PurePath` is accepted, too, in configurations made in Python."""
        if not isinstance(self.value, str | PurePath):
            raise self.build_type_error(
                "a string", "put it in double quotes" if isinstance(self.value, int | float) else ""
            )
        return str(self.value)

    def read_strings(self) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(element.read_string() for element in self.read_elements())

    def read_boolean(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.build_type_error("true or false")
        return self.value

    def read_number(self) -> float:
        """Return a finite number that is not negative."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not abs(self.value) <= MAX_NUMBER:
            raise self.build_type_error("a finite number")
        if self.value < 0:
            raise self.build_error("expected a number that is not negative")
        return float(self.value)

    def read_positive(self) -> float:
        """Return a finite number above 0."""
        if self.read_number() == 0:
            raise self.build_error("expected a number greater than 0")
        return self.read_number()

    def read_count(self) -> int:
        """Return a whole number above 0."""
        if self.read_positive() != int(self.value):
            raise self.build_error("expected a whole number")
        return int(self.value)

    def read_scalar(self) -> str:
        """Return a string; a number, true or false is returned in JSON notation."""
        if isinstance(self.value, int | float) and abs(self.value) <= MAX_NUMBER:
            return json.dumps(self.value)
        return self.read_string()

    def read_scalars(self) -> dict[str, str]:
        """Return an object of scalars as strings; members that are null are left out."""
        return {key: child.read_scalar() for key, child in self.read_members().items() if child.value is not None}

    def split_members(self, keys: Iterable[str], aliases: Mapping[str, str]) -> tuple[dict[str, Node], dict[str, Node]]:
        """Return the members of an object with known keys, under the names in `keys`, and those with unknown keys.

        Null members count as absent. Letter case, ``_`` and ``-`` are ignored. `aliases` maps further names to `keys`.
        """
        proper = {fold_name(key): key for key in keys} | {fold_name(name): key for name, key in aliases.items()}
        found: dict[str, Node] = {}
        unknown: dict[str, Node] = {}
        for name, child in self.read_members().items():
            key = proper.get(fold_name(name))
            if key is None:
                unknown[name] = child
            elif child.value is not None and key in found and found[key].value != child.value:
                first = found[key].keys[-1]
                raise child.build_error(f"contradicts {first}", "keep one of the two", at_name=True)
            elif child.value is not None:
                found[key] = child
        return found, unknown

    def read_known_members(
        self, problem: str, keys: Collection[str], aliases: Mapping[str, str] = NO_ALIASES
    ) -> dict[str, Node]:
        """Return the members of an object like `split_members`; an unknown key that is no comment is an error.

        Args:
            problem: The text of the error; ``{}`` in it stands for the key.
            keys: The names of the members.
            aliases: Further names.
        """
        found, unknown = self.split_members(keys, aliases)
        for key, child in unknown.items():
            if not key.startswith(COMMENTS):
                raise child.build_error(problem.format(quote_key(key)), did_you_mean(key, keys), at_name=True)
        return found

    def with_strings(self, change: Callable[[Node], str]) -> Node:
        """Return the same node with each string in it replaced by `change(node of the string)`."""
        value = self.value
        if isinstance(value, str):
            value = change(self)
        elif isinstance(value, list | tuple):
            value = [child.with_strings(change).value for child in self.read_elements()]
        elif isinstance(value, Mapping):
            value = {key: child.with_strings(change).value for key, child in self.read_members().items()}
        return Node(value, self.keys, self.source)

    def _get_child(self, key: str | int) -> Node:
        if len(self.keys) > MAX_DEPTH:
            raise self.build_error(TOO_DEEP)
        return Node(self.value[key], (*self.keys, key), self.source)


def quote_key(key: str) -> str:
    """Return a key for a message: in quotes, escaped, and cut to 60 characters."""
    return repr(key if len(key) <= 60 else key[:60] + "…")


def build_choice_reader(meanings: Mapping[str, T]) -> Callable[[Node], T]:
    """Return a reader that maps a word by `meanings`; letter case, ``_`` and ``-`` of the word are ignored."""
    folded = {fold_name(word): meaning for word, meaning in meanings.items()}

    def read_choice(node: Node) -> T:
        value = fold_name(node.read_scalar())
        if value not in folded:
            words = ", ".join(f'"{word}"' for word in meanings)
            raise node.build_error(f"expected one of {words}", did_you_mean(value, meanings))
        return folded[value]

    return read_choice


MAX_NUMBER = 1e300
_BARE = compile_lazily(r"[\w@/-]{1,60}")
_KINDS = {bool: "true or false", int | float: "a number", str: "a string", Mapping: "an object", list | tuple: "a list"}
TOO_DEEP = f"objects and lists are nested more than {MAX_DEPTH} deep"


def _format_keys(keys: Keys) -> str:
    path = ""
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            path += f".{key}" if _BARE.fullmatch(key) else f"[{quote_key(key)}]"
    return path.removeprefix(".")


def _describe_kind(value: Any) -> str:
    python_name = "null" if value is None else type(value).__name__
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), python_name)


# The keys at the top level of a configuration.
TOP_KEYS = (
    *("mcpServers", "servers", "models", "defaultModel", "fallbackModels"),
    *("inputs", "policy", "startupPatience", "limits", "notify", "profiles", "skills", "agents"),
)


def check_name(name: str, node: Node) -> None:
    """Raise `ConfigError` if the name of a server or model is blank, or has characters that are not printable."""
    if not name.strip() or not name.isprintable():
        raise node.build_error("expected a name of printable characters", at_name=True)


def read_url(node: Node) -> str:
    """Return an http or https URL."""
    text = node.read_string()
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isprintable() or " " in text:
        raise node.build_error("expected an http:// or https:// address")
    return text


def read_env(node: Node) -> dict[str, str]:
    """Return environment variables; members that are null are left out."""
    for name, child in node.read_members().items():
        if not name or "=" in name or "\0" in name:
            raise child.build_error("expected the name of a variable", at_name=True)
    return node.read_scalars()


def read_line(node: Node) -> str:
    """Return the value of a header without leading and trailing blanks."""
    line = node.read_scalar().strip(" \t")
    if not re.fullmatch(r"[\t\x20-\x7e]*", line):
        raise node.build_error("expected one line of printable ASCII", "does a variable in it end with a line break?")
    return line


def read_headers(node: Node) -> dict[str, str]:
    """Return HTTP headers: names are tokens (RFC 9110, section 5.6.2), values printable ASCII on one line."""
    children = {name: child for name, child in node.read_members().items() if child.value is not None}
    for name, child in children.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise child.build_error("expected the name of a header", at_name=True)
    return {name: read_line(child) for name, child in children.items()}


def read_prices(node: Node) -> dict[str, float]:
    """Return prices of tokens: ``input`` and ``output``, and those of the cache, if they differ from ``input``."""
    found = node.read_known_members("unknown price", ("input", "output", "cached_input", "cache_write"))
    if missing := {"input", "output"} - found.keys():
        raise node.build_error(f"{min(missing)} is missing")
    return {name: child.read_number() for name, child in found.items()}


def read_object(node: Node) -> dict[str, Any]:
    """Return an object with any members."""
    return {key: child.value for key, child in node.read_members().items()}


def read_command(node: Node) -> str:
    """Return the name or the path of a program."""
    if re.search("[\0-\x1f]", node.read_string()) or not node.read_string().strip():
        raise node.build_error("expected the name or the path of a program", r"a backslash is written \\")
    return node.read_string()


def read_roots(node: Node) -> tuple[str, ...]:
    """Return the folders of ``roots``; objects with a file URI, the form of other hosts, are accepted, too."""
    folders = (
        item.read_members().get("uri", item) if isinstance(item.value, dict) else item for item in node.read_elements()
    )
    return tuple(folder.read_string() for folder in folders)


def read_urls(node: Node) -> tuple[str, ...]:
    """Return a list of http or https URLs."""
    return tuple(map(read_url, node.read_elements()))


def read_document_url(node: Node) -> str:
    """Return an https URL with a path."""
    parts = urlsplit(read_url(node))
    if parts.scheme != "https" or parts.path in ("", "/"):
        raise node.build_error("expected an https:// address with a path")
    return node.read_string()


def read_port(node: Node) -> int:
    """Return the number of a port."""
    if node.read_count() > 65_535:
        raise node.build_error("expected a port between 1 and 65535")
    return node.read_count()


def read_words(node: Node) -> tuple[str, ...]:
    """Return the words of a string, or a list of strings."""
    return tuple(node.value.split()) if isinstance(node.value, str) else node.read_strings()


def read_pattern(node: Node) -> str:
    """Return a regular expression."""
    try:
        re.compile(node.read_string())
    except (re.error, OverflowError, RecursionError):
        raise node.build_error("expected a regular expression") from None
    return node.read_string()


def read_tools(node: Node) -> tuple[str | dict[str, Any], ...]:
    """Return a list of names of tools, and of definitions of tools."""
    return tuple(
        read_object(tool) if isinstance(tool.value, Mapping) else tool.read_string() for tool in node.read_elements()
    )


# Returns the value of a key; raises `ConfigError` if the value is invalid.
Reader = Callable[[Node], Any]
_READERS: Mapping[Any, Reader] = {
    bool: Node.read_boolean,
    str: Node.read_string,
    float: Node.read_positive,
    int: Node.read_count,
    tuple[str, ...]: Node.read_strings,
    Mapping[str, Any]: read_object,
}


def build_readers(kind: type, *, without: Collection[str] = ()) -> dict[str, Reader]:
    """Return a reader for each field of a dataclass.

    The annotation of the field says which values are valid::

        bool, str, float, int            a value of this type; a number is above 0
        tuple[str, ...]                  a list of strings
        Mapping[str, Any]                an object with any members
        Literal["a", "b"], an Enum       one of the words
        Annotated[float, (low, high)]    a number in this range, both included
        Annotated[str, read_url]         what the reader returns

    ``| None`` may follow: null in a file counts as absent.

    Args:
        kind: The dataclass.
        without: Fields that need no reader.
    """
    hints = get_type_hints(kind, include_extras=True)
    return {name: _build_reader(hints[name]) for name in (own.name for own in fields(kind)) if name not in without}


def _build_reader(annotation: Any) -> Reader:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (choice for choice in get_args(annotation) if choice is not NoneType)
    if get_origin(annotation) is Annotated:
        detail: Reader | tuple[float, float] = annotation.__metadata__[0]
        return detail if callable(detail) else partial(_read_in_range, annotation.__origin__, *detail)
    if annotation in _READERS:
        return _READERS[annotation]
    words = get_args(annotation) if get_origin(annotation) is Literal else annotation
    return build_choice_reader({word: word for word in words})


def _read_in_range(kind: type[float], low: float, high: float, node: Node) -> float:
    number = node.read_number()
    if issubclass(kind, int) and not number.is_integer():
        raise node.build_error("expected a whole number")
    if not low <= number <= high:
        raise node.build_error(f"expected a number from {low} to {high}")
    return kind(node.value)


# Returns the content of a file; None if it cannot be read.
ReadFile = Callable[[Path], bytes | None]

_REFERENCE = compile_lazily(r"\$\{([^{}]*)\}|\$\{")
# What each person fills in (`user_variables`), and how the name inside ``${…}`` begins.
USER_REFERENCE = compile_lazily(r"\$\{user\.([A-Za-z_][A-Za-z0-9_]{0,59})\}")
_USER = "user."


def read_file(path: Path) -> bytes | None:
    """Return the content of a regular file; None if it does not exist or cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, eq=False, slots=True)
class Variables:
    """The values of ``${…}``. References inside an inserted value are not expanded."""

    environ: Mapping[str, str] = field(repr=False)
    folder: Path
    read: ReadFile = read_file
    """Returns the content of a file of variables."""

    def expand(self, node: Node, *, home: bool = False, of_user: bool = False) -> Node:
        """Return the same node with its variables replaced; with `home`, a leading ``~`` is replaced too.

        With `of_user`, references to what each person fills in stay as they are (`USER_REFERENCE`).
        """
        return node.with_strings(lambda leaf: self.expand_text(leaf, home=home, of_user=of_user))

    def expand_text(self, node: Node, *, home: bool = False, of_user: bool = False) -> str:
        """Return one string with its variables replaced."""
        written = node.read_string()

        def expand(found: re.Match[str]) -> str:
            is_of_user = of_user and USER_REFERENCE.fullmatch(found[0])
            return found[0] if is_of_user else self._expand_reference(node, found[1])

        text = _REFERENCE.sub(expand, written)
        if home and re.match(r"~(?:[/\\]|$)", written):
            text = self._find_home(node) + text[1:]
        if "\0" in text:
            raise node.build_error("a NUL character is not allowed")
        return text

    def _expand_reference(self, node: Node, inside: str | None) -> str:
        if inside in ("userHome", "workspaceFolder"):
            return self._find_home(node) if inside == "userHome" else str(self.folder)
        if (inside or "").startswith(_USER):
            problem = "${user.NAME} is for args, env, headers and the path of url; NAME has letters, digits and _"
            raise node.build_error(problem)
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


_ENV_LINE = compile_lazily(
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
