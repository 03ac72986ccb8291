"""Checks of the servers: the programs that run them, and their start."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from dial_client.cli.doctor.findings import Finding, Fix
from dial_client.cli.doctor.subject import Subject
from dial_client.messages.errors import ServerStartError
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.package_downloads import describe_download, find_package, find_program_name
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.servers.transports.server_process import find_program
from dial_client.settings.config_types import ServerSettings

# Seconds after which a start counts as slow.
SLOW_SECONDS = 5.0
_PROGRAM_PROBLEMS = ("was not found: ", "there is no file", "is not executable")
_STDOUT_NOTE = "lines to its standard output"
_FASTER = {
    "npx": "npm install --global {package}",
    "uvx": "uv tool install {package}",
    "uv": "uv tool install {package}",
}


def check_servers(subject: Subject) -> Iterator[Finding]:
    """Yield the servers that fail, start slowly, offer nothing, or behave unusually."""
    for name, status in subject.outcome.statuses.items():
        settings = subject.servers[name]
        if status.state is ServerState.STARTING:
            yield _report_slow_start(subject, settings, status)
        elif status.state in (ServerState.FAILED, ServerState.RESTARTING):
            yield from _check_failure(subject, settings, status)
        elif status.state is ServerState.READY:
            yield from _check_ready_server(subject, settings, status)
        yield from _check_notes(subject, name, status)


def _report_slow_start(subject: Subject, settings: ServerSettings, status: ServerStatus) -> Finding:
    download = describe_download(settings, status.stderr)
    why = download or (f"it last wrote: {status.stderr[-1]}" if status.stderr else "it has written nothing")
    seconds = subject.server_seconds
    text = f"server {status.name!r} is not ready after {seconds:g} seconds; {to_one_line(why, 200)}"
    hint = _suggest_faster_start(settings) or "a turn waits `startupPatience` seconds for it, by default 10"
    return Finding("DC302", text, hint, *subject.find_place(status.name))


def _check_failure(subject: Subject, settings: ServerSettings, status: ServerStatus) -> Iterator[Finding]:
    error = status.error or ""
    if not any(problem in error for problem in _PROGRAM_PROBLEMS):  # `check_programs` reports these, with their place
        code = _find_failure_code(error, has_url=settings.url is not None)
        hint = f"`dial-chat servers login {status.name}`" if code == "DC306" else ""
        text = f"server {status.name!r} does not start: {status.error}"
        yield Finding(code, text, hint, *subject.find_place(status.name))


def _check_ready_server(subject: Subject, settings: ServerSettings, status: ServerStatus) -> Iterator[Finding]:
    place, seconds = subject.find_place(status.name), subject.outcome.seconds.get(status.name, 0.0)
    hint = _suggest_faster_start(settings) if seconds > SLOW_SECONDS else ""
    if hint:
        yield Finding("DC303", f"server {status.name!r} needs {seconds:.0f} seconds to start", hint, *place)
    elif not status.tools and not status.notes and not status.instructions:
        text = f"server {status.name!r} offers no tools"
        yield Finding("DC307", text, "only you can use its resources and prompts, if it has any", *place)


def _suggest_faster_start(settings: ServerSettings) -> str:
    """Return how a server that a launcher downloads at each start would start faster; empty for other servers."""
    command, package = _FASTER.get(find_program_name(settings)), find_package(settings)
    if not command or not package:
        return ""
    return f"run `{command.format(package=package)}`, and use the installed program as command"


def _find_failure_code(error: str, *, has_url: bool) -> str:
    folded = error.lower()
    if not has_url:
        return "DC301"
    if "certificate" in folded or "ssl" in folded:
        return "DC508"
    if "401" in folded or "login" in folded or "log in" in folded:
        return "DC306"
    return "DC305"


def _check_notes(subject: Subject, name: str, status: ServerStatus) -> Iterator[Finding]:
    for note in status.notes:
        code = "DC304" if _STDOUT_NOTE in note else "DC405" if " tool" in note else "DC308"
        hint = "a server must print to its standard error instead" if code == "DC304" else ""
        yield Finding(code, f"server {name!r}: {to_one_line(note, 300)}", hint, *subject.find_place(name))


# How to install the programs that commonly run servers.
INSTALLATION = {
    "uvx": "uvx comes with uv: https://docs.astral.sh/uv, or `pip install uv`",
    "uv": "https://docs.astral.sh/uv, or `pip install uv`",
    "npx": "npx comes with Node.js: https://nodejs.org",
    "node": "https://nodejs.org",
    "docker": "https://docs.docker.com/get-docker",
    "podman": "https://podman.io",
    "deno": "https://deno.com",
    "bunx": "bunx comes with Bun: https://bun.sh",
    "pipx": "`pip install pipx`",
    "python": "the program may be called `python3` on this machine",
}
# The minimum major version of Node.js for MCP's TypeScript SDK.
OLDEST_NODE = 18
_SCRIPT = re.compile(r".*\.(?:js|mjs|cjs|ts|py)")
_RUNNERS = ("node", "python", "python3", "deno", "bun", "tsx", "ts-node")
_WIDE_MOUNT = re.compile(r"(?:.*(?:src|source)=)?(?:/|~|\$HOME|/var/run/docker\.sock)(?:[:,].*)?")


def check_programs(subject: Subject) -> Iterator[Finding]:
    """Yield the programs that cannot be run."""
    for name, settings in subject.servers.items():
        if settings.command is not None:
            yield from _check_program(subject, name, settings)
            yield from _check_script(subject, name, settings)


def _check_program(subject: Subject, name: str, settings: ServerSettings) -> Iterator[Finding]:
    command = settings.command or ""
    try:
        find_program(name, command, settings.env.get("PATH", subject.environ.get("PATH")), settings.cwd)
    except ServerStartError as error:
        words, place = command.split(), subject.find_place(name, "command")
        if len(words) > 1 and not Path(command).exists():
            edit = subject.build_edit(name, _split_command)
            fix = Fix(f"write {words[0]!r} as command, and the rest as args", place[0], edit)
            text = f"server {name!r}: the command contains its arguments"
            yield Finding("DC202", text, f'"command": "{words[0]}", and the rest in "args"', *place, fix)
        else:
            hint = INSTALLATION.get(find_program_name(settings), "")
            yield Finding("DC201", f"server {name!r}: {error.problem}", hint, *place)


def _check_script(subject: Subject, name: str, settings: ServerSettings) -> Iterator[Finding]:
    if find_program_name(settings) not in _RUNNERS:
        return
    script = next((arg for arg in settings.args if not arg.startswith("-")), "")
    is_module = "-m" in settings.args[:2] or "-c" in settings.args[:2] or "-e" in settings.args[:2]
    if is_module or not _SCRIPT.fullmatch(script) or (Path(settings.cwd or ".") / script).exists():
        return
    index = settings.args.index(script)
    place = subject.find_place(name, "args", index)
    yield Finding("DC206", f"server {name!r}: there is no file {script!r}", "a relative path starts at cwd", *place)


def check_options(subject: Subject) -> Iterator[Finding]:
    """Yield options of launchers that prevent a server from working, and rights that are too wide."""
    for name, settings in subject.servers.items():
        yield from _check_launcher_options(subject, name, settings)
        yield from _check_rights(subject, name, settings)


def _check_launcher_options(subject: Subject, name: str, settings: ServerSettings) -> Iterator[Finding]:
    program, args = find_program_name(settings), list(settings.args)
    place = subject.find_place(name, "args")

    def fix(description: str, change: Callable[[list[str]], list[str]]) -> Fix:
        edit = subject.build_edit(name, lambda entry: {"args": change(list(entry.get("args", ())))})
        return Fix(description, place[0], edit)

    if program == "npx" and not {"-y", "--yes", "--no"} & set(args):
        text = f"server {name!r}: npx asks before it installs a package, and nobody can answer"
        yield Finding("DC203", text, 'begin "args" with "-y"', *place, fix("add -y", lambda args: ["-y", *args]))
    if program in ("docker", "podman") and args[:1] == ["run"]:
        options = args[1 : _find_image_index(args)]
        short = "".join(arg[1:] for arg in options if re.fullmatch(r"-[a-z]+", arg))
        if "i" not in short and "--interactive" not in options:
            text = f"server {name!r}: without -i, {program} does not pass on standard input"
            change = fix("add -i", lambda args: ["run", "-i", *args[1:]])
            yield Finding("DC204", text, 'put "-i" after "run"', *place, change)
        if "t" in short or "--tty" in options:
            text = f"server {name!r}: with -t, {program} allocates a terminal, which changes the messages"
            yield Finding("DC205", text, "remove -t", *place, fix("remove -t", _without_terminal))


def _split_command(entry: Mapping[str, Any]) -> dict[str, Any]:
    program, *arguments = str(entry["command"]).split()
    return {"command": program, "args": [*arguments, *entry.get("args", ())]}


def _without_terminal(args: list[str]) -> list[str]:
    changed = [re.sub("t", "", arg) if re.fullmatch(r"-[it]+", arg) else arg for arg in args]
    return [arg for arg in changed if arg not in ("-", "--tty")]


def _find_image_index(args: Sequence[str]) -> int:
    """Return the index of the image in the arguments of ``docker run``: roughly, the first that is not an option."""
    for index, arg in enumerate(args[1:], 1):
        is_value = args[index - 1].startswith("-") and "=" not in args[index - 1] and len(args[index - 1]) <= 2
        if not arg.startswith("-") and not (is_value and args[index - 1] in ("-e", "-v", "-p", "-w", "-u")):
            return index
    return len(args)


def _check_rights(subject: Subject, name: str, settings: ServerSettings) -> Iterator[Finding]:
    program, place = find_program_name(settings), subject.find_place(name, "args")
    home = subject.environ.get("HOME") or subject.environ.get("USERPROFILE") or "~"
    if program in ("docker", "podman"):
        if "--privileged" in settings.args:
            yield Finding("DC208", f"server {name!r}: --privileged gives the container all rights", "remove it", *place)
        if any(_WIDE_MOUNT.fullmatch(arg.removeprefix("--volume=")) for arg in settings.args):
            text = f"server {name!r}: the container can change the whole machine"
            yield Finding("DC208", text, "mount only the folders that it needs", *place)
    elif "filesystem" in " ".join((settings.command or "", *settings.args)):
        for arg in settings.args:
            if arg in ("/", "~", "C:\\", "C:/") or arg.rstrip("/\\") == home.rstrip("/\\"):
                text = f"server {name!r}: it may read and write all files below {arg}"
                yield Finding("DC208", text, "name only the folders that it needs", *place)


async def check_node(subject: Subject) -> AsyncIterator[Finding]:
    """Yield the servers whose package needs a newer Node.js."""
    versions: dict[tuple[str, str | None], tuple[int, ...]] = {}
    for name, settings in subject.servers.items():
        command, runner = settings.command or "", find_program_name(settings)
        if runner not in ("node", "npx"):
            continue
        program = command if runner == "node" and "/" in command else "node"
        key = program, settings.env.get("PATH", subject.environ.get("PATH"))
        if key not in versions:
            versions[key] = await _read_node_version(name, *key, settings.cwd)
        version, needed = versions[key], _find_needed_node(settings)
        if version and version < needed:
            shown = ".".join(map(str, version)), ".".join(map(str, needed))
            text = f"server {name!r} needs Node.js {shown[1]} or newer, and this is {shown[0]}"
            yield Finding("DC207", text, INSTALLATION["node"], *subject.find_place(name, "command"))


async def _read_node_version(name: str, program: str, path: str | None, cwd: str | None) -> tuple[int, ...]:
    """Return the version of Node.js; empty if it cannot be run."""
    try:
        found = find_program(name, program, path, cwd)
        answer = await anyio.run_process([found, "--version"], check=False)
    except (ServerStartError, OSError):
        return ()
    numbers = re.match(rb"v(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in numbers.groups()) if numbers else ()


def _find_needed_node(settings: ServerSettings) -> tuple[int, ...]:
    """Return the minimum version that ``engines`` of the script's package names; otherwise `OLDEST_NODE`."""
    script = next((arg for arg in settings.args if not arg.startswith("-")), "")
    start = Path(os.path.realpath(Path(settings.cwd or ".") / script))
    for folder in list(start.parents)[:6] if _SCRIPT.fullmatch(script) else ():
        try:
            package = json.loads((folder / "package.json").read_bytes())
            engine = str(package["engines"]["node"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        numbers = re.fullmatch(r"\s*(?:>=|\^|~)?\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?\s*", engine)
        if numbers:
            return tuple(int(number or 0) for number in numbers.groups())
    return (OLDEST_NODE, 0, 0)
