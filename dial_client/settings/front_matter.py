"""Front matter: the fields in YAML with which a ``SKILL.md``, or the file of an agent, begins.

It is read strictly: it has no anchors, no aliases, no tags and no key twice, so that the text that a person reads and
the values that the program uses cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean

# Maximum bytes of the front matter: the parser of YAML takes a third of a second for so many.
MAX_FRONT_MATTER = 16 * 1024
MAX_NAME, MAX_DESCRIPTION = 64, 1024
_MAX_DEPTH = 20
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
# The kinds of values; YAML has a tag for each of them.
_KINDS = frozenset(("str", "int", "float", "bool", "null", "timestamp", "seq", "map", "value"))


def read_front_matter(data: bytes, path: str, expected: str) -> tuple[Fields, str]:
    """Return the fields at the start of a file, and the text below them.

    Args:
        data: The content of the file.
        path: The path of the file, for messages.
        expected: The required fields, for messages.

    Raises:
        ConfigError: There are no fields; the error names the line, and what was expected.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("this is not text in UTF-8", path=path, line=line) from None
    found = _FRONT_MATTER.match(text)
    if found is None:
        raise ConfigError(
            "expected front matter", f"the file begins with --- and {expected}, and ends it with ---", path, 1
        )
    if len(found[1].encode()) > MAX_FRONT_MATTER:
        raise ConfigError(f"front matter has at most {MAX_FRONT_MATTER:,} bytes", path=path, line=1)
    return Fields(_compose(found[1], path, expected), path), text[found.end() :].strip()


def is_name(name: object) -> bool:
    """Return True for a name of a skill or an agent: lowercase letters, digits, and single hyphens between them."""
    return isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _compose(text: str, path: str, expected: str) -> Any:
    """Return the node of front matter, which is a mapping without anchors, tags and repeated keys."""
    from yaml import MarkedYAMLError, SafeLoader, YAMLError

    class Loader(SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.peek_event()
            if event.anchor is not None:  # of an anchor or of an alias: the nodes do not tell that there was one
                line = event.start_mark.line + 2
                raise ConfigError("front matter has no anchors and no aliases", "write the value itself", path, line)
            return super().compose_node(parent, index)

    try:
        node = Loader(text).get_single_node()
    except RecursionError:
        raise ConfigError("front matter is nested too deeply", path=path, line=2) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        hint = "put a value with a colon in quotes" if "mapping values" in (error.problem or "") else ""
        line = 2 if mark is None else mark.line + 2
        raise ConfigError(f"this is not YAML: {error.problem or error.context}", hint, path, line) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"this is not YAML: {' '.join(str(error).split())}", path=path, line=2) from None
    if node is None or node.id != "mapping":
        raise ConfigError(f"expected front matter with {expected}", path=path, line=2)
    _check(node, path, 0)
    return node


def _check(node: Any, path: str, depth: int) -> None:
    """Raise `ConfigError` for a tag, a key twice, a key that is no text, and for too many levels."""
    line = node.start_mark.line + 2
    if depth > _MAX_DEPTH:
        raise ConfigError("front matter is nested too deeply", path=path, line=line)
    if node.tag.removeprefix("tag:yaml.org,2002:") not in _KINDS:
        raise ConfigError(f"front matter has no tags: {node.tag[:80]}", path=path, line=line)
    if node.id == "sequence":
        for child in node.value:
            _check(child, path, depth + 1)
    elif node.id == "mapping":
        keys: set[str] = set()
        for key, child in node.value:
            place = key.start_mark.line + 2
            if key.id != "scalar" or key.tag.endswith(":merge"):
                raise ConfigError("expected a key that is a text", path=path, line=place)
            if key.value in keys:
                raise ConfigError(f"the key {key.value[:60]!r} is there twice", path=path, line=place)
            keys.add(key.value)
            _check(child, path, depth + 1)


class Fields:
    """Typed access to the fields of front matter, with errors that name the line."""

    def __init__(self, node: Any, path: str) -> None:
        self.node, self._path = node, path
        self._members = {key.value: (key, value) for key, value in node.value}

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def check_near(self, names: Collection[str]) -> None:
        """Check that no field has a name that is nearly one of these, which a typing error would leave without effect.

        Raises:
            ConfigError: A field is nearly one of `names`.
        """
        for key in self._members:
            if key not in names and (hint := did_you_mean(key, names)):
                raise self.build_error(key, f"there is no field {key[:60]!r}", hint)

    def build_error(self, name: str, problem: str, hint: str = "") -> ConfigError:
        """Return an error that names the line of a field."""
        key, _ = self._members.get(name, (self.node, None))
        return ConfigError(problem, hint, self._path, key.start_mark.line + 2)

    def read_text(self, name: str, max_chars: int = MAX_DESCRIPTION, *, required: bool = True) -> str:
        """Return a text of at most `max_chars` characters; empty for one that is missing and not required.

        Raises:
            ConfigError: The text is missing, or no text, or too long.
        """
        _, node = self._members.get(name, (None, None))
        if node is None or (node.id == "scalar" and not node.value.strip()):
            if not required:
                return ""
            near = [key for key in self._members if did_you_mean(key, (name,))] if name not in self._members else []
            hint = f"did you mean {name} by {near[0][:60]!r}?" if near else ""
            raise self.build_error(name, f"{name} is missing" if node is None else f"{name} is empty", hint)
        if node.id != "scalar":
            raise self.build_error(name, f"expected {name} as a text, found a {node.id}")
        text: str = node.value.strip()
        if len(text) > max_chars:
            raise self.build_error(name, f"{name} has {len(text):,} characters, and at most {max_chars:,} are allowed")
        return text

    def read_words(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, or the words of a text; a pattern may have spaces in parentheses.

        Raises:
            ConfigError: The field is neither.
        """
        _, node = self._members.get(name, (None, None))
        if node is None:
            return ()
        if node.id == "sequence" and all(child.id == "scalar" for child in node.value):
            return tuple(child.value for child in node.value)
        if node.id != "scalar":
            raise self.build_error(name, f"expected {name} as a text of words, found a {node.id}")
        return tuple(re.findall(r"[^\s,(]+(?:\([^)]*\))?", node.value))

    def read_texts(self, name: str) -> dict[str, str]:
        """Return the texts of a mapping by their keys; other values are left out.

        Raises:
            ConfigError: The field is no mapping.
        """
        _, node = self._members.get(name, (None, None))
        if node is None:
            return {}
        if node.id != "mapping":
            raise self.build_error(name, f"expected {name} as keys with texts, found a {node.id}")
        return {key.value: child.value for key, child in node.value if child.id == "scalar"}
