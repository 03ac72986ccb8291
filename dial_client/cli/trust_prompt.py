"""Trust in a configuration of the working folder: its summary, the question, and the work of ``dial-chat trust``.

In the summary every value of the file is printed as JSON on a line of its own. Control characters and invisible
characters are escaped, and a value that is too long for a line continues after a mark: no value can imitate a line of
the program. Command lines, URLs and names are shown in full; values of environment variables, headers and keys are
hidden.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from anyio import lowlevel

from dial_client.cli.options import ExitCode
from dial_client.cli.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.cli.word_wrap import count_cells, find_terminal_width
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME, resolve_location
from dial_client.settings.config_trust import UNREADABLE, EnvFiles, FoundFile, TrustedFile, TrustStore, read_found
from dial_client.settings.config_types import Outline, OutlineEntry, is_enabled
from dial_client.settings.config_values import Node, build_variables, find_references, parse_env_file

_QUESTION = "[t]rust, [n]ot now, [v]iew the whole file: "
# The maximum lines of both texts together for a comparison, which takes quadratic time.
_MAX_LINES = 4000


async def is_trusted(found: FoundFile, env_files: EnvFiles, *, may_ask: bool = True) -> bool:
    """Return True if the user trusts a file that was found, and ask if it is new or changed; False for "not now".

    Variables in the file are expanded only after the decision, and the bytes that were shown and hashed are the bytes
    that are used.

    Raises:
        ConfigError: The file is wrong; or it is not trusted, and the user cannot be asked.
    """
    changes = find_changes(found, env_files)
    if changes == []:
        return True
    if not may_ask or not can_ask_user():
        problem = "it has changed since you trusted it" if changes else "you have not trusted it"
        raise ConfigError(
            f"this configuration was found, not named, and {problem}: nothing in it is used",
            hint=f"read it, then run `dial-chat trust {found.path}`, or give --trust to trust it for one run",
            path=found.location,
        )
    return await ask_for_trust(found, env_files, render_rows(changes or (), find_terminal_width(sys.stderr)))


async def ask_for_trust(found: FoundFile, env_files: EnvFiles, changes: str = "") -> bool:
    """Show what a file would do, ask whether to trust it, and store the answer "yes".

    Args:
        found: The file.
        env_files: Reads the env files that it names.
        changes: The changes since the file was trusted, which are shown first.

    Raises:
        ConfigError: The file does not have the form of a configuration.
    """
    outline = configuration.outline(found.data, str(found.path))
    shown = render_rows(build_rows(outline, env_files, found.path.parent.absolute()), find_terminal_width(sys.stderr))
    location = escape_line(found.location)
    if changes:
        _print_to_user(f"This file has changed since you trusted it: {location}", changes)
    else:
        _print_to_user(f"A configuration was found in this folder, which you have not trusted: {location}")
    _print_to_user("It would do this:", shown)
    _print_to_user(summarize_counts(outline))  # last, because a long file pushes its beginning off the screen
    _print_to_user("Its programs run as you, with all your permissions. Nothing in it is used unless you trust it.")
    while True:
        try:
            answer = (await ask_for_line(_QUESTION)).lower()
        except Unanswered:
            await lowlevel.checkpoint()  # if Ctrl-C cancelled the program, this raises the cancellation
            return False
        match answer:
            case "t" | "trust":
                _store_trust(found, env_files)
                return True
            case "n" | "no" | "not now":
                return False
            case "v" | "view":
                _print_to_user(number_lines(found.text, find_terminal_width(sys.stderr)))
            case _:
                _print_to_user("Please answer t, n or v.")


def trust_now(found: FoundFile, env_files: EnvFiles) -> TrustedFile:
    """Store that the user trusts a file with its current content.

    Raises:
        ConfigError: The file does not have the form of a configuration, or the decision cannot be stored.
    """
    store = TrustStore()
    try:
        return store.save(found, _compute_digests(found, env_files))
    except OSError as error:
        raise ConfigError(f"your trust in this file cannot be stored: {error.strerror}", path=str(found.path)) from None


def find_changes(found: FoundFile, env_files: EnvFiles) -> list[SummaryRow] | None:
    """Return the changes of a file since the user trusted it; empty if nothing changed, None if it was not trusted."""
    trusted = TrustStore().find(found.location)
    return None if trusted is None else find_changes_since(trusted, found, env_files)


def find_changes_since(trusted: TrustedFile, found: FoundFile, env_files: EnvFiles) -> list[SummaryRow]:
    """Return the changes of a file and of its env files since they were trusted; empty if nothing changed.

    The env files are read only if the file itself is unchanged.
    """
    if trusted.matches(found):
        return list(_find_env_changes(trusted.env_files, _compute_digests(found, env_files)))
    moved = (
        [] if trusted.target == found.target else [SummaryRow(f"  it is now a link to: {escape_line(found.target)}")]
    )
    return moved if trusted.digest == found.digest else [*moved, *_diff(trusted.text, found.text)]


def _store_trust(found: FoundFile, env_files: EnvFiles) -> None:
    try:
        trust_now(found, env_files)
    except ConfigError as error:
        _print_to_user(f"dial-chat: {escape_line(str(error))}: it is trusted for this run only")
    else:
        _print_to_user("Trusted, until it changes; `dial-chat trust --revoke` revokes this.")


def _compute_digests(found: FoundFile, env_files: EnvFiles) -> dict[str, str]:
    names = build_variables(None, found.path.parent, env_files.read)
    return env_files.hash_files(configuration.outline(found.data, str(found.path)), names)


def _find_env_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[SummaryRow]:
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path, UNREADABLE), now.get(path, UNREADABLE)
        if old != new:
            word = "is new" if old == UNREADABLE else "is missing" if new == UNREADABLE else "has changed"
            yield SummaryRow(f"  the env file {word}: {escape_line(path)}")


def _diff(before: str, after: str) -> Iterator[SummaryRow]:
    from difflib import unified_diff

    old, new = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (before, after))
    if len(old) + len(new) > _MAX_LINES:
        yield SummaryRow("  (too many lines to be compared here)")
        return
    lines = list(unified_diff(old, new, "trusted", "now", lineterm=""))
    yield from (SummaryRow(f"  | {escape_line(line)}") for line in lines)
    if not lines:
        yield SummaryRow("  (only the encoding, the line ends, or bytes that are not text)")


def _print_to_user(*texts: str) -> None:
    print("\n".join(texts), file=sys.stderr, flush=True)


async def manage(file: Path | None, *, list_all: bool, revoke: bool, as_json: bool) -> int:
    """Trust a file, list the trusted files, or revoke trust; return the exit code.

    Raises:
        ConfigError: The options contradict each other, there is no such file, or the user cannot be asked.
    """
    if list_all and (revoke or file is not None):
        raise ConfigError(
            "--list cannot be combined with --revoke or FILE", hint="dial-chat trust [FILE] | --list | --revoke [FILE]"
        )
    if list_all:
        _print_list(TrustStore().list(), as_json=as_json)
        return ExitCode.ANSWERED
    path = file or Path(FILE_NAME)
    if path.is_dir():
        path /= FILE_NAME
    if revoke:
        return _revoke(path)
    return await _ask(path) if file is None else _trust(path, as_json=as_json)


async def _ask(path: Path) -> int:
    found, env_files = read_found(path), EnvFiles()
    changes = find_changes(found, env_files)
    if changes == []:
        print(f"already trusted: {escape_line(found.location)}")
        return ExitCode.ANSWERED
    if not can_ask_user():
        raise ConfigError("there is no terminal to ask at", hint=f"naming the file trusts it: dial-chat trust {path}")
    agreed = await ask_for_trust(found, env_files, render_rows(changes or (), None))
    return ExitCode.ANSWERED if agreed else ExitCode.USAGE


def _trust(path: Path, *, as_json: bool) -> int:
    found, env_files = read_found(path), EnvFiles()
    outline = configuration.outline(found.data, str(path))
    trusted = trust_now(found, env_files)
    if as_json:
        print(json.dumps(_as_json(trusted), indent=2))
        return ExitCode.ANSWERED
    print(render_rows(build_rows(outline, env_files, path.parent.absolute()), None))
    print(f"trusted, until it changes: {escape_line(trusted.location)}")
    return ExitCode.ANSWERED


def _revoke(path: Path) -> int:
    location = resolve_location(path)
    try:
        was_trusted = TrustStore().revoke(location)
    except OSError as error:
        raise ConfigError(f"trust cannot be revoked: {error.strerror}", path=str(path)) from None
    print(f"{'not trusted any more' if was_trusted else 'it was not trusted'}: {escape_line(location)}")
    return ExitCode.ANSWERED


def _print_list(files: list[TrustedFile], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_json(trusted) for trusted in files], indent=2))
        return
    for trusted in files:
        print(f"{escape_line(trusted.trusted_at)}  {_find_state(trusted):<9}  {escape_line(trusted.location)}")


def _as_json(trusted: TrustedFile) -> dict[str, object]:
    return {
        "path": trusted.location,
        "target": trusted.target,
        "sha256": trusted.digest,
        "env_files": dict(trusted.env_files),
        "trusted_at": trusted.trusted_at,
        "state": _find_state(trusted),
    }


def _find_state(trusted: TrustedFile) -> str:
    """Return "unchanged", "changed" or "gone" for a trusted file. Its env files are not read."""
    try:
        found: FoundFile = read_found(Path(trusted.location))
    except ConfigError:
        return "gone"
    return "unchanged" if trusted.matches(found) else "changed"


_LABEL = 24
_MARK = "> "
_LEAST_WIDTH = 20


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
        yield SummaryRow("Model, unless -m is given", _format_value(outline.default_model.value))
    for name, entry in outline.models.items():
        yield SummaryRow(f"Model {_format_value(name)}")
        yield from _build_model_rows(entry)
    for name, entry in outline.servers.items():
        yield SummaryRow(f"Server {_format_value(name)}{'' if is_enabled(entry) else ' (disabled: not used)'}")
        yield from _build_server_rows(entry, env_files, folder)
    for key, node in outline.unknown.items():
        if key == "policy":
            yield from _build_list_rows("Decides calls by rules", map(_format_value, _list_parts(node.value)))
            continue
        yield SummaryRow(f"Key {_format_value(key)}")
        yield SummaryRow("  says", _format_value(node.value))
    if not outline.servers and not outline.models:
        yield SummaryRow("No servers or models are configured.")


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


def _format_value(value: Any) -> str:
    return escape_line(json.dumps(value, ensure_ascii=False))


def _hide_value(value: Any) -> str:
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
    yield from _build_list_rows("  runs", map(_format_value, words))
    if _has_unpinned_package([word for word in words if isinstance(word, str)]):
        yield SummaryRow("", "(!) the program is downloaded from a package registry, in its newest version")
    if "url" in entry:
        yield SummaryRow("  connects to", _format_value(entry["url"].value))
    if "cwd" in entry:
        yield SummaryRow("  in the folder", _format_value(entry["cwd"].value))
    yield from _build_variable_rows(entry, env_files, folder)
    yield from _build_member_rows("  sends the header", entry.get("headers"))
    yield from _build_member_rows("  logs in with", entry.get("oauth"), hides_all=False)
    if "autoApprove" in entry:
        yield from _build_list_rows(
            "  runs without asking", map(_format_value, _list_parts(entry["autoApprove"].value))
        )
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
    yield SummaryRow("  sets variables from", _format_value(node.value))
    data = env_files.peek(node.value, folder) if isinstance(node.value, str) else None
    try:
        names = parse_env_file(node, data)
    except ConfigError:
        yield SummaryRow("", "(the names are not known: the file is outside of the folder, missing or invalid)")
        return
    yield from (SummaryRow("", f"{_format_value(name)} = ***{_describe_danger(name)}") for name in names)


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
        yield SummaryRow(label, "***" if hides_all else _format_value(node.value))
        return
    values = []
    for name, value in node.value.items():
        is_hidden = hides_all or _SECRET.search(name)
        shown = _hide_value(value) if is_hidden else f"= {_format_value(value)}"
        values.append(f"{_format_value(name)} {shown}{_describe_danger(name) if warn else ''}")
    yield from _build_list_rows(label, values)


def _build_model_rows(entry: OutlineEntry) -> Iterator[SummaryRow]:
    address = _format_value(entry["base_url"].value) if "base_url" in entry else "its usual address"
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
            yield SummaryRow(f"  {_format_value(key)}", _format_value(node.value))
    names = sorted({name for node in entry.values() for name in _find_references(node.value)})
    yield from _build_list_rows("  reads the variable", map(escape_line, names))


def _build_list_rows(label: str, values: Iterable[str]) -> Iterator[SummaryRow]:
    for number, value in enumerate(values):
        yield SummaryRow("" if number else label, value)


def _list_parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _has_unpinned_package(words: list[str]) -> bool:
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
    return "  (!) it changes which code programs run, or which hosts they trust" if _DANGEROUS.fullmatch(name) else ""


def _wrap_row(row: SummaryRow, width: int | None) -> Iterator[str]:
    label = f"{row.label:<{_LABEL}}" if row.value and row.label[:1].strip() == "" else row.label
    text = f"{label} {row.value}".rstrip()
    if width is None:
        yield text
        return
    width = max(width - 1, _LEAST_WIDTH)
    indent = " " * min(len(label) + 1, width // 2) + _MARK
    line, cells = "", 0
    for character in text:
        size = count_cells(character)
        if cells + size > width:
            yield line
            line, cells = indent, len(indent)
        line, cells = line + character, cells + size
    yield line


_SHOWN_KEYS = {"command", "args", "url", "cwd", "env", "envFile", "headers", "oauth", "autoApprove", "trusted"}
_SHOWN_KEYS |= {"instructions", "enabled", "disabled"}
_SECRET = re.compile(r"(?i)secret|key|token|password")
_RUNNER = re.compile(r"(?i)(?:.*[/\\])?(?:npx|bunx|uvx|pipx|pnpm|pnpx|yarn)(?:\.(?:cmd|exe|ps1))?")
_RUNNER_COMMANDS = {"run", "dlx", "exec", "x"}
# Names of environment variables that can make a program load code, start a program, or trust another host.
_DANGEROUS = re.compile(
    r"(?i:LD_\w+|DYLD_\w+|PYTHON\w+|NODE_\w+|NPM_CONFIG_\w+|UV_\w+|PIP_\w+|GIT_\w+|RUBY\w+|GEM_\w+|BUNDLE_\w+|PERL\w+"
    r"|BASH_\w+|ENV|SHELLOPTS|BASHOPTS|PS4|IFS|PROMPT_COMMAND|PATH|PATHEXT|COMSPEC|SHELL|HOME|USERPROFILE|APPINIT_DLLS"
    r"|(JDK_|_)?JAVA_(TOOL_)?OPTIONS|CLASSPATH|GLIBC_TUNABLES|GCONV_PATH|LUA_\w+|PHPRC|PHP_INI_\w+|ELECTRON_\w+"
    r"|(DOTNET|COR|CORECLR)_\w+|(SSH|SUDO)_ASKPASS|EDITOR|VISUAL|PAGER|BROWSER|\w*_PROXY|SSL_CERT_\w+|\w*_CA_BUNDLE)"
)
