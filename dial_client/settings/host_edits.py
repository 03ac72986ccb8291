"""Changes of the servers in the file of another host: JSON with comments, TOML or YAML.

Whatever else is in the file stays as it is. A change of TOML or YAML cuts whole lines out, and adds lines; what comes
out is parsed again, and must be the same as before but for the servers. Otherwise the file is left alone.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.settings.config_editor import remove_value, set_value
from dial_client.settings.config_values import Keys
from dial_client.settings.host_documents import parse_document
from dial_client.settings.mcp_hosts import HostEntry, format_toml_table


def replace_servers(text: str, path: Path, removed: Iterable[Keys], added: Mapping[Keys, HostEntry]) -> str:
    """Return the text of a host's file without some servers, and with others.

    Args:
        text: The text of the file.
        path: The path of the file; its suffix says which format the text has.
        removed: The places of the servers to remove, as `HostServer.keys` has them.
        added: The entries to add, in the form of the host, by their places; an entry that is there is replaced.

    Raises:
        ConfigError: The text is not valid, or the change would alter something else.
    """
    before = parse_document(text.encode(), path)
    expected = _change(before, removed, added)
    # An entry that is replaced goes first, so that nothing of it is left.
    gone = [keys for keys in (*removed, *added) if find_value(before, keys) is not None]
    match path.suffix:
        case ".toml":
            changed = _cut_tables(text, gone) + "".join(
                f"\n{format_toml_table(keys, entry)}" for keys, entry in added.items()
            )
        case ".yaml" | ".yml":
            changed = _add_mapping_entries(_cut_mapping_entries(text, gone), added)
        case _:
            changed = _change_json(text, before, removed, added)
    try:
        is_exact = parse_document(changed.encode(), path) == expected
    except ConfigError:
        is_exact = False
    if not is_exact:
        raise ConfigError("its servers are written in a form that cannot be changed here", path=str(path))
    return changed


def find_value(top: Any, keys: Keys) -> Any:
    """Return the value at a place; None if there is none."""
    for key in keys:
        if not isinstance(top, Mapping) or key not in top:
            return None
        top = top[key]
    return top


def _change(before: Mapping[str, Any], removed: Iterable[Keys], added: Mapping[Keys, HostEntry]) -> dict[str, Any]:
    """Return what the changed text must mean."""
    top = copy.deepcopy(dict(before))
    for keys in removed:
        holder: Any = top
        for key in keys[:-1]:
            holder = holder[key]
        del holder[keys[-1]]
    for keys, entry in added.items():
        holder = top
        for key in keys[:-1]:
            if holder.get(key) is None:
                holder[key] = {}
            holder = holder[key]
        holder[keys[-1]] = json.loads(json.dumps({key: value for key, value in entry.items() if value is not None}))
    return top


def _change_json(text: str, before: Any, removed: Iterable[Keys], added: Mapping[Keys, HostEntry]) -> str:
    if not text.strip():
        text = "{}\n"
    for keys in removed:
        if find_value(before, keys) is None:
            raise ConfigError("its servers are in a list, which cannot be changed here")
        text = remove_value(text, [str(key) for key in keys])
    for keys, entry in added.items():
        text = set_value(text, [str(key) for key in keys], entry)
    return text


_TOML_HEADER = re.compile(r"[ \t]*(\[\[?[^\n]*\]\]?)[ \t]*(?:#[^\n]*)?")


def _cut_tables(text: str, places: Iterable[Keys]) -> str:
    """Return TOML without the tables at some places, and without the tables inside of them."""
    gone = list(places)
    kept: list[str] = []
    is_cut = False
    for block, keys in _split_tables(text):
        was_cut, is_cut = is_cut, keys is not None and any(keys[: len(place)] == place for place in gone)
        if not is_cut:
            kept += block
        elif was_cut is False and kept and not kept[-1].endswith("\n"):
            kept.append("\n")
    return "".join(kept)


def _split_tables(text: str) -> Iterator[tuple[list[str], Keys | None]]:
    """Yield the lines of each table with its path; the comments above a header belong to the table."""
    lines = text.splitlines(keepends=True)
    paths = [_read_header(line) for line in lines]
    starts = [0]
    for index, path in enumerate(paths):
        if path is not None:
            start = index
            while start > starts[-1] and _is_comment(lines[start - 1]):
                start -= 1
            starts.append(start)
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield lines[start:end], next((path for path in paths[start:end] if path is not None), None)


def _read_header(line: str) -> Keys | None:
    """Return the path of a table whose header is in this line; None if there is no header."""
    import tomllib

    found = _TOML_HEADER.fullmatch(line.rstrip("\r\n"))
    if found is None:
        return None
    try:
        value: Any = tomllib.loads(found[1])
    except tomllib.TOMLDecodeError:
        return None  # a line of a list of lists, or of a long string
    keys: list[str] = []
    while value:
        (key,) = value
        keys.append(key)
        value = value[key][0] if isinstance(value[key], list) else value[key]
    return tuple(keys)


def _cut_mapping_entries(text: str, places: Iterable[Keys]) -> str:
    """Return YAML without the entries at some places, which are blocks of whole lines."""
    gone = set(places)
    lines = text.splitlines(keepends=True)
    cut: set[int] = set()
    for keys, start, end in _find_mapping_entries(text):
        if keys in gone:
            own = [index for index in range(start, end) if lines[index].strip() and not _is_comment(lines[index])]
            # Comments behind the entry belong to what follows them.
            cut |= {*range(start, max(own, default=start) + 1)}
    return "".join(line for index, line in enumerate(lines) if index not in cut)


def _find_mapping_entries(text: str) -> Iterator[tuple[Keys, int, int]]:
    """Yield the place of each entry of a top-level mapping, with its first line, and the line behind its last."""
    from yaml import SafeLoader

    node = SafeLoader(text).get_single_node()
    top = node.value if node is not None else ()
    tops = [key.start_mark.line for key, _ in top]
    count = len(text.splitlines())
    for (key, value), end_of_top in zip(top, [*tops[1:], count], strict=True):
        entries = value.value if isinstance(value.value, list) else ()
        pairs = [entry for entry in entries if isinstance(entry, tuple)]
        starts = [name.start_mark.line for name, _ in pairs]
        for (name, _), start, end in zip(pairs, starts, [*starts[1:], end_of_top], strict=False):
            yield (str(key.value), str(name.value)), start, end


def _add_mapping_entries(text: str, added: Mapping[Keys, HostEntry]) -> str:
    """Return YAML with entries added: behind the line of the mapping's key, or with the key at the end."""
    from yaml import safe_dump

    for (key, name), entry in added.items():
        block = safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=100_000)
        lines = text.splitlines(keepends=True)
        index = next(
            (i for i, line in enumerate(lines) if re.fullmatch(rf"{key}:\s*(?:\{{\}}\s*)?(?:#.*\s*)?", line)), None
        )
        if index is None:
            separator = "" if not text or text.endswith("\n") else "\n"
            text = f"{text}{separator}{key}:\n{_indent(block, '  ')}"
            continue
        following = next((line for line in lines[index + 1 :] if line.strip() and not _is_comment(line)), "")
        indent = re.match(r"[ \t]*", following)
        lines[index] = re.sub(r":\s*\{\}", ":", lines[index].rstrip("\r\n")) + "\n"
        lines.insert(index + 1, _indent(block, indent[0] if indent and indent[0] else "  "))
        text = "".join(lines)
    return text


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _indent(block: str, indent: str) -> str:
    return "".join(f"{indent}{line}" for line in block.splitlines(keepends=True))
