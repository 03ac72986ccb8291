"""Files of agents: ``NAME.md`` with front matter (description, model, tools, limits), and the instructions below it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.messages.limits import Limits
from dial_client.runtime.safe_text import sanitize
from dial_client.settings.agent import Agent
from dial_client.settings.config_entries import read_limits
from dial_client.settings.config_values import Node
from dial_client.settings.front_matter import Fields, read_front_matter

MAX_AGENTS = 50
MAX_BYTES = 256 * 1024
# The fields that restrict an agent: a typing error in one must not give the agent all tools. Other unknown fields are
# those of other hosts.
_RESTRICTIONS = ("tools", "disallowedTools", "limits")
# The words of Claude Code for a model, which is here that of the turn that calls the agent.
_OTHER_MODELS = frozenset(("inherit", "sonnet", "opus", "haiku"))


def read_agents(path: Path) -> tuple[Agent, ...]:
    """Return the agent of a file, or those of the files ``*.md`` in a folder, by their names.

    Raises:
        ConfigError: There is no such file or folder, it cannot be read, or an agent is wrong.
    """
    return tuple(read_agent(file) for file in list_files(path))


def list_files(path: Path) -> list[Path]:
    """Return the files of the agents at a path, which is a file or a folder.

    Raises:
        ConfigError: There is no such file or folder, it cannot be read, or has too many files.
    """
    if not path.is_dir():
        return [path]
    try:
        files = sorted(file for file in path.glob("*.md") if file.is_file())
    except OSError as error:
        raise ConfigError(f"cannot be read: {describe_system_error(error)}", path=str(path)) from None
    if len(files) > MAX_AGENTS:
        raise ConfigError(f"a folder has at most {MAX_AGENTS} agents", f"this one has {len(files):,}", str(path))
    return files


def read_agent(path: Path) -> Agent:
    """Return the agent of a file. Raises as `read_agents`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {describe_system_error(error)}", path=str(path)) from None
    return parse_agent(data, path)


def parse_agent(data: bytes, path: Path) -> Agent:
    """Return the agent that a file describes.

    Args:
        data: The content of the file.
        path: The path of the file, whose name is that of the agent unless the content has a name.

    Raises:
        ConfigError: The content is not an agent; the error names the line, and what was expected.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"an agent has at most {MAX_BYTES:,} bytes", path=str(path))
    fields, body = read_front_matter(data, str(path), "description")
    fields.check_near(_RESTRICTIONS)
    model = fields.read_text("model", required=False)
    try:
        return Agent(
            fields.read_text("name", required=False) or path.stem,
            " ".join(sanitize(fields.read_text("description")).split()),
            system=body,
            model=None if model in _OTHER_MODELS else model or None,
            tools=_read_tools(fields),
            limits=_read_limits(fields),
            handoff=_read_flag(fields, "handoff"),
        )
    except ValueError as error:
        raise fields.build_error("name", str(error)) from None


def _read_tools(fields: Fields) -> tuple[str, ...] | None:
    """Return the patterns of ``tools``, without those of ``disallowedTools``; None for all tools."""
    left_out = tuple(f"!{pattern}" for pattern in _to_patterns(fields.read_words("disallowedTools")))
    if "tools" in fields:
        return (*_to_patterns(fields.read_words("tools")), *left_out)
    return ("*", *left_out) if left_out else None


def _to_patterns(words: Iterable[str]) -> Iterable[str]:
    """Yield the patterns of tools; in the words of other hosts, ``mcp__git__diff`` is ``git/diff``."""
    for word in words:
        prefix, _, name = word.partition("mcp__")
        server, _, tool = name.partition("__")
        yield f"{server}/{tool or '*'}" if name and not prefix else word


def _read_flag(fields: Fields, name: str) -> bool:
    """Return whether a field is ``true``; a field that is missing is false."""
    text = fields.read_text(name, required=False)
    if text.lower() not in ("true", "false", ""):
        raise fields.build_error(name, f"expected {name} as true or false, found {text[:40]!r}")
    return text.lower() == "true"


def _read_limits(fields: Fields) -> Limits | None:
    """Return the limits of an agent, by the names of ``"limits"`` in servers.json; None if it has none."""
    texts = fields.read_texts("limits")
    if not texts:
        return None
    try:
        given = read_limits(Node({name: _to_number(text) for name, text in texts.items()}))
    except ConfigError as error:
        raise fields.build_error("limits", f"limits: {error}") from None
    return replace(Limits(), **given)


def _to_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
