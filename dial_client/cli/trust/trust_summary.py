"""What a configuration would do, or what changed in it, in rows of text, before the user trusts it.

Every value of the file is printed as JSON on a line of its own. Control characters and invisible characters are
escaped, and a value that is too long for a line continues after a mark, if possible with a whole word: no value can
imitate a line of the program. Command lines, URLs and names are shown in full; values of environment variables, headers
and keys are hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dial_client.cli.streams.word_wrap import count_cells
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.settings.config_trust import EnvFiles
from dial_client.settings.config_types import ConfigChange, Outline, OutlineEntry, is_enabled
from dial_client.settings.config_values import Node, find_references, parse_env_file

# The warning about a program without a version (`has_unpinned_package`).
UNPINNED = "(!) downloaded from a package registry, in its newest version"
_LABEL = 24
_MARK = "> "
_LEAST_WIDTH = 20
# The maximum lines of both texts together for a comparison, which takes quadratic time.
_MAX_LINES = 4000


class SummaryRow(NamedTuple):
    """One line of the summary: an action, and its object."""

    label: str
    value: str = ""


def build_rows(outline: Outline, env_files: EnvFiles, folder: Path) -> Iterator[SummaryRow]:
    """Yield the rows about the effects of the configuration: its default model, models, servers and other keys.

    Args:
        outline: The configuration as it is written.
        env_files: Reads those env files that are safe to read before the configuration is trusted.
        folder: The folder that relative paths start from.
    """
    if outline.default_model is not None:
        yield SummaryRow("Model, unless -m is given", format_value(outline.default_model.value))
    for name, entry in outline.models.items():
        yield SummaryRow(f"Model {format_value(name)}")
        yield from _build_model_rows(entry)
    for name, entry in outline.servers.items():
        yield SummaryRow(f"Server {format_value(name)}{'' if is_enabled(entry) else ' (disabled: not used)'}")
        yield from _build_server_rows(entry, env_files, folder)
    for key, node in outline.unknown.items():
        if key == "policy":
            yield from _build_list_rows("Decides calls by rules", map(format_value, _list_parts(node.value)))
            continue
        yield SummaryRow(f"Key {format_value(key)}")
        yield SummaryRow("  says", format_value(node.value))
    if not outline.servers and not outline.models:
        yield SummaryRow("No servers or models are configured.")


def build_change_rows(changes: Iterable[ConfigChange]) -> Iterator[SummaryRow]:
    """Yield rows with ``-`` for the old and ``+`` for the new values of changes; secrets are hidden."""
    for change in changes:
        if change.kind == "key" or change.key:
            # The sign says whether a key is new or gone, and the value follows.
            place = escape_line(change.place if change.key else change.name)
            yield from _build_value_rows(place, change.key or change.name, change.before, change.after)
            continue
        yield SummaryRow(f"{'-' if change.after is None else '+'} {escape_line(change.place)}")
        entry = change.after or {}
        for key, value in entry.items():
            yield from _build_value_rows(f"{escape_line(f'{change.kind} {change.name}: {key}')}", key, None, value)
        if has_unpinned_package([word for key in ("command", "args") for word in _list_words(entry.get(key))]):
            yield SummaryRow(f"  {UNPINNED}")


def _build_value_rows(place: str, key: str, before: Any, after: Any) -> Iterator[SummaryRow]:
    sides = ("-", before), ("+", after)
    if key == "args":  # the order of arguments matters, and what stayed the same helps to understand what is new
        yield from (
            SummaryRow(f"{sign} {place}", " ".join(map(format_value, _list_words(value))) or "none")
            for sign, value in sides
            if value is not None
        )
    elif all(value is None or isinstance(value, dict) for _, value in sides):
        yield from _build_changed_member_rows(place, key, before or {}, after or {})
    elif all(value is None or isinstance(value, list) for _, value in sides):
        old, new = (list(map(format_value, value or [])) for _, value in sides)
        gone, added = [text for text in old if text not in new], [text for text in new if text not in old]
        yield from (SummaryRow(f"- {place}", text) for text in gone)
        yield from (SummaryRow(f"+ {place}", text) for text in added)
        if not gone and not added:
            yield SummaryRow(f"+ {place}", "in another order, or another number of times")
    else:
        hides = bool(SECRET.search(key))
        yield from (
            SummaryRow(f"{sign} {place}", hide_value(value) if hides else format_value(value))
            for sign, value in sides
            if value is not None
        )


def _build_changed_member_rows(
    place: str, key: str, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[SummaryRow]:
    hides_all = key in ("env", "headers")
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield SummaryRow(f"- {place}", format_value(name))
        elif name not in before or before[name] != after[name]:
            remark = ", another value than before" if name in before else ""
            shown = format_member(name, after[name], hides_all=hides_all, warns=key == "env")
            yield SummaryRow(f"+ {place}", f"{shown}{remark}")


def _list_words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def diff_text(before: str, after: str) -> Iterator[SummaryRow]:
    """Yield the differences of two texts line by line."""
    from difflib import unified_diff

    old, new = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (before, after))
    if len(old) + len(new) > _MAX_LINES:
        yield SummaryRow("  (too many lines to be compared here)")
        return
    lines = list(unified_diff(old, new, "trusted", "now", lineterm=""))
    yield from (SummaryRow(f"  | {escape_line(line)}") for line in lines)
    if not lines:
        yield SummaryRow("  (only the encoding, the line ends, or bytes that are not text)")


def summarize_counts(outline: Outline) -> str:
    """Return the number of programs, addresses, models and approvals, in one line."""
    used = [entry for entry in outline.servers.values() if is_enabled(entry)]
    counts = {
        "programs it starts": sum("command" in entry for entry in used),
        "addresses it connects to": sum("url" in entry for entry in used),
        "models": len(outline.models) or int(outline.default_model is not None),
        "servers whose tools run without asking": sum(
            "autoApprove" in entry and bool(entry["autoApprove"].value) for entry in used
        ),
        "further keys": len(outline.unknown),
    }
    return f"In all: {'; '.join(f'{what}: {count:,}' for what, count in counts.items() if count) or 'nothing'}."


def render_rows(lines: Iterable[SummaryRow], width: int | None) -> str:
    """Return the rows as text, no line wider than `width` cells; None for any width."""
    return "\n".join(line for row in lines for line in _wrap_row(row, width))


def number_lines(text: str, width: int | None) -> str:
    """Return a whole file with line numbers."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    return render_rows((SummaryRow(f"{number:>5} |", escape_line(line)) for number, line in enumerate(lines, 1)), width)


def format_value(value: Any) -> str:
    """Return a value as JSON, escaped."""
    return escape_line(json.dumps(value, ensure_ascii=False))


def hide_value(value: Any) -> str:
    """Return the part of a possibly secret value that may be shown: the names of its variables."""
    if value is None:
        return "unset"
    names = find_references(value) if isinstance(value, str) else []
    expanded = ", ".join(f"${{{escape_line(name)}}}" for name in names)
    if isinstance(value, str) and re.fullmatch(r"\$\{[^{}]*\}", value):
        return f"= {expanded or '***'}"
    return f"= *** with {expanded}" if expanded else "= ***"


def _build_server_rows(entry: OutlineEntry, env_files: EnvFiles, folder: Path) -> Iterator[SummaryRow]:
    words = [part for key in ("command", "args") if key in entry for part in _list_parts(entry[key].value)]
    yield from _build_list_rows("  runs", map(format_value, words))
    if has_unpinned_package([word for word in words if isinstance(word, str)]):
        yield SummaryRow("", UNPINNED)
    if "url" in entry:
        yield SummaryRow("  connects to", format_value(entry["url"].value))
    if "cwd" in entry:
        yield SummaryRow("  in the folder", format_value(entry["cwd"].value))
    yield from _build_variable_rows(entry, env_files, folder)
    yield from _build_member_rows("  sends the header", entry.get("headers"))
    yield from _build_member_rows("  logs in with", entry.get("oauth"), hides_all=False)
    if "autoApprove" in entry:
        yield from _build_list_rows("  runs without asking", map(format_value, _list_parts(entry["autoApprove"].value)))
    if "trusted" in entry and entry["trusted"].value is not False:
        yield SummaryRow("  is believed", "when it declares tools read-only, or safe to repeat")
    if "instructions" not in entry or entry["instructions"].value is not False:
        yield SummaryRow("  tells the model", "its instructions")
    yield from _build_further_rows(entry, _SHOWN_KEYS)


def _build_variable_rows(entry: OutlineEntry, env_files: EnvFiles, folder: Path) -> Iterator[SummaryRow]:
    yield from _build_member_rows("  sets the variable", entry.get("env"), warn=True)
    if "envFile" not in entry:
        return
    node = entry["envFile"]
    yield SummaryRow("  sets variables from", format_value(node.value))
    data = env_files.peek(node.value, folder) if isinstance(node.value, str) else None
    try:
        names = parse_env_file(node, data)
    except ConfigError:
        yield SummaryRow("", "(the names are not known: the file is outside of the folder, missing or invalid)")
        return
    yield from (SummaryRow("", f"{format_value(name)} = ***{_describe_danger(name)}") for name in names)


def _build_member_rows(
    label: str, node: Node | None, *, hides_all: bool = True, warn: bool = False
) -> Iterator[SummaryRow]:
    """Yield the members of an object: their names in full, and their values hidden.

    Args:
        label: The action.
        node: The object; None if it is not in the file.
        hides_all: False to show the values of members whose names do not suggest a secret.
        warn: True to warn of dangerous environment variables.
    """
    if node is None:
        return
    if not isinstance(node.value, dict):
        yield SummaryRow(label, "***" if hides_all else format_value(node.value))
        return
    values = (format_member(name, value, hides_all=hides_all, warns=warn) for name, value in node.value.items())
    yield from _build_list_rows(label, values)


def format_member(name: str, value: Any, *, hides_all: bool, warns: bool) -> str:
    """Return a member of an object; its value is hidden with `hides_all`, or if its name suggests a secret.

    Args:
        name: The name of the member.
        value: Its value.
        hides_all: Hide the value in any case.
        warns: Warn of dangerous environment variables.
    """
    shown = hide_value(value) if hides_all or SECRET.search(name) else f"= {format_value(value)}"
    return f"{format_value(name)} {shown}{_describe_danger(name) if warns else ''}"


def _build_model_rows(entry: OutlineEntry) -> Iterator[SummaryRow]:
    address = format_value(entry["base_url"].value) if "base_url" in entry else "its usual address"
    yield SummaryRow("  is asked at", address)
    key = entry["api_key"].value if "api_key" in entry else None
    if key is None:
        yield SummaryRow("  sends there", "no key from the file; a vendor's own address gets your key for that vendor")
    elif isinstance(key, str) and find_references(key):
        yield from _build_list_rows(
            "  sends there", (f"your key ${{{escape_line(name)}}}" for name in find_references(key))
        )
    else:
        yield SummaryRow("  sends there", "a key that is written in the file")
    yield from _build_member_rows("  sends the header", entry.get("headers"))
    yield from _build_further_rows(entry, {"base_url", "api_key", "headers"})


def _build_further_rows(entry: OutlineEntry, shown: set[str]) -> Iterator[SummaryRow]:
    """Yield the keys that were not shown, and the variables that the entry reads."""
    for key, node in entry.items():
        if key not in shown:
            yield SummaryRow(f"  {format_value(key)}", format_value(node.value))
    names = sorted({name for node in entry.values() for name in _find_references(node.value)})
    yield from _build_list_rows("  reads the variable", map(escape_line, names))


def _build_list_rows(label: str, values: Iterable[str]) -> Iterator[SummaryRow]:
    for number, value in enumerate(values):
        yield SummaryRow("" if number else label, value)


def _list_parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def has_unpinned_package(words: list[str]) -> bool:
    """Return True if a command line runs a package runner, such as npx, with a package but no version."""
    if not words or not _RUNNER.fullmatch(words[0]):
        return False
    package = next((word for word in words[1:] if not word.startswith("-") and word not in _RUNNER_COMMANDS), "")
    return not re.search(r".@v?[0-9]|==|[/\\].*[/\\]", package)


def _find_references(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from find_references(value)
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _find_references(part)


def _describe_danger(name: str) -> str:
    return "  (!) changes which code runs, or which hosts are trusted" if _DANGEROUS.fullmatch(name) else ""


def _wrap_row(row: SummaryRow, width: int | None) -> Iterator[str]:
    label = f"{row.label:<{_LABEL}}" if row.value and row.label[:1].strip() == "" else row.label
    text = f"{label} {row.value}".rstrip()
    if width is None:
        yield text
        return
    width = max(width - 1, _LEAST_WIDTH)
    indent = " " * min(len(label) + 1, width // 2) + _MARK
    line, cells = "", 0
    # The offset after the last space of the row, and the least at which the row may end: half of it is filled.
    space, least = 0, max(len(label) + 1, width // 2)
    for character in text:
        size = count_cells(character)
        if cells + size > width + (character == " " and cells == width):  # a space may stand in the last column
            end = space if space > least else len(line)
            yield line[:end]
            line = indent + line[end:]
            cells, space, least = count_cells(line), 0, width // 2
        line, cells = line + character, cells + size
        if character == " ":
            space = len(line)
    yield line


_SHOWN_KEYS = {"command", "args", "url", "cwd", "env", "envFile", "headers", "oauth", "autoApprove", "trusted"}
_SHOWN_KEYS |= {"instructions", "enabled", "disabled"}
SECRET = re.compile(r"(?i)secret|key|token|password")
_RUNNER = re.compile(r"(?i)(?:.*[/\\])?(?:npx|bunx|uvx|pipx|pnpm|pnpx|yarn)(?:\.(?:cmd|exe|ps1))?")
_RUNNER_COMMANDS = {"run", "dlx", "exec", "x"}
# Names of environment variables that can make a program load code, start a program, or trust another host.
_DANGEROUS = re.compile(
    r"(?i:LD_\w+|DYLD_\w+|PYTHON\w+|NODE_\w+|NPM_CONFIG_\w+|UV_\w+|PIP_\w+|GIT_\w+|RUBY\w+|GEM_\w+|BUNDLE_\w+|PERL\w+"
    r"|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS4|IFS|PROMPT_COMMAND|PATH|PATHEXT|COMSPEC|SHELL|HOME|USERPROFILE|APPINIT_DLLS"
    r"|(JDK_|_)?JAVA_(TOOL_)?OPTIONS|CLASSPATH|GLIBC_TUNABLES|GCONV_PATH|LUA_\w+|PHPRC|PHP_INI_\w+|ELECTRON_\w+"
    r"|(DOTNET|COR|CORECLR)_\w+|(SSH|SUDO)_ASKPASS|EDITOR|VISUAL|PAGER|BROWSER|\w*_PROXY|SSL_CERT_\w+|\w*_CA_BUNDLE)"
)
