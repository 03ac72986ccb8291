"""The file ``SKILL.md``: front matter in YAML, and below it the instructions in Markdown (agentskills.io)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dial_client.runtime.safe_text import sanitize
from dial_client.settings.front_matter import MAX_DESCRIPTION, MAX_NAME, is_name, read_front_matter

FILE_NAME = "SKILL.md"
MAX_COMPATIBILITY = 500


@dataclass(frozen=True, slots=True)
class SkillDocument:
    """A ``SKILL.md`` that was read."""

    name: str
    description: str
    """What the skill does, and when to use it."""
    body: str
    """The instructions, without the front matter."""
    license: str = ""
    compatibility: str = ""
    """What the skill needs: programs, access to the network, a certain host."""
    allowed_tools: tuple[str, ...] = ()
    """The tools that the author of the skill would allow. They are shown, and allow nothing."""
    metadata: Mapping[str, str] | None = None
    front_matter: Any = None
    """The node of YAML with all fields, for `is_same`."""


def parse_skill(data: bytes, path: str) -> SkillDocument:
    """Read the content of a ``SKILL.md``.

    Args:
        data: The content of the file.
        path: The path of the file, for messages.

    Raises:
        ConfigError: The content is not a skill; the error names the line, and what was expected.
    """
    fields, body = read_front_matter(data, path, "name and description")
    name = fields.read_text("name", MAX_NAME)
    if not is_name(name):
        hint = "lowercase letters a-z, digits, and single hyphens between them"
        raise fields.build_error("name", f"{name[:MAX_NAME]!r} is not the name of a skill", hint)
    return SkillDocument(
        name,
        " ".join(sanitize(fields.read_text("description", MAX_DESCRIPTION)).split()),
        body,
        fields.read_text("license", required=False),
        fields.read_text("compatibility", MAX_COMPATIBILITY, required=False),
        fields.read_words("allowed-tools"),
        fields.read_texts("metadata"),
        fields.node,
    )


def is_same(node: Any, value: Any) -> bool:
    """Return True if a node of front matter has the content of a JSON value, as a server lists it.

    A plain scalar may be read in two ways, because YAML 1.1 and 1.2 differ: ``yes`` is true, or the text "yes". Both
    are the same characters.
    """
    match node.id, value:
        case "mapping", Mapping():
            members = {key.value: child for key, child in node.value}
            return members.keys() == value.keys() and all(is_same(members[key], value[key]) for key in members)
        case "sequence", list():
            return len(node.value) == len(value) and all(map(is_same, node.value, value))
        case "scalar", str():
            return bool(node.value == value)
        case "scalar", None | bool() | int() | float():
            return node.style is None and _is_same_scalar(node, value)
        case _:
            return False


def _is_same_scalar(node: Any, value: Any) -> bool:
    """Return True if a plain scalar is read as this value by YAML 1.1, or by JSON."""
    import json

    from yaml import SafeLoader

    try:
        read = SafeLoader("").construct_object(node)
        as_json = json.loads(node.value) if node.value else None
    except ValueError:
        as_json = read
    is_flag = isinstance(value, bool)
    return any(isinstance(found, bool) is is_flag and found == value for found in (read, as_json))
