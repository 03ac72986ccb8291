"""Downloads by programs that fetch a server's package before they start it: uvx, npx, docker.

A download is recognized by the server's command and the program's standard error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from dial_client.settings.config_types import ServerSettings

_UV = re.compile(r"\s*(?:Downloading|Building|Preparing|Updating|Resolved|Prepared) .+")
_UV_DONE = re.compile(r"\s*Installed \d+ packages? .+")
_NPX = re.compile(r"npm warn exec The following package.* will be installed: .+", re.IGNORECASE)
_NPM = re.compile(r"npm (?:warn|notice|http) .*", re.IGNORECASE)
_DOCKER = re.compile(
    r"Unable to find image .+|.+: Pulling from .+|[0-9a-f]{12}: (?:Pulling fs layer|Download\w*|Extract\w*).*"
)
_DOCKER_DONE = re.compile(r"Status: (?:Downloaded|Image is up to date).*")
_FETCHERS = {
    "uvx": (_UV, _UV_DONE, "downloading"),
    "uv": (_UV, _UV_DONE, "downloading"),
    "npx": (_NPX, re.compile(rf"(?!{_NPM.pattern}).+", re.IGNORECASE), "downloading"),
    "docker": (_DOCKER, _DOCKER_DONE, "pulling"),
    "podman": (_DOCKER, _DOCKER_DONE, "pulling"),
}
# Options of uv, uvx and npx that are followed by a value.
_WITH_VALUE = (
    {"--from", "--with", "-p", "--package", "--python", "--index-url", "--registry", "-c", "--call"}
    | {"--directory", "--project", "--with-requirements", "--env-file"}
    | {"--index", "--default-index", "--extra-index-url", "--find-links", "--with-editable"}
)
# A package name in a registry, with optional extras and version; no URL, which may hold a password, and no file.
_PACKAGE = re.compile(
    r"@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?:\[[\w,-]+\])?(?:(?:@|[=<>~!]=?)[\w.*^~-]+)?(?<!\.py)(?<!\.js)"
)
_NAMES_PACKAGE = ("--from", "-p", "--package")


def find_program_name(settings: ServerSettings) -> str:
    """Return the name of the server's program without folder and extension: ``npx`` for ``npx.cmd``."""
    name = re.split(r"[/\\]", settings.command or "")[-1].lower()
    return PurePath(name).stem if name.endswith((".exe", ".cmd", ".bat", ".ps1")) else name


def find_package(settings: ServerSettings) -> str:
    """Return the package that uvx or npx runs; empty for other programs, and for packages that are URLs or files."""
    program, args = find_program_name(settings), list(settings.args)
    if program not in ("uvx", "uv", "npx"):
        return ""
    subcommands = ("tool", "run") if program == "uv" else ()
    package = ""
    while args and (args[0].startswith("-") or args[0] in subcommands):
        option, _, value = args.pop(0).partition("=")
        if option in _WITH_VALUE and not value:
            value = args.pop(0) if args else ""
        if option in _NAMES_PACKAGE:
            package = package or value
    package = package or (args[0] if args else "")
    return package if _PACKAGE.fullmatch(package) else ""


def describe_download(settings: ServerSettings | None, stderr: Sequence[str]) -> str:
    """Return a description of a running download (``uvx is downloading mcp-server-fetch``), or an empty text.

    Args:
        settings: The server's settings; None for a server object in this process.
        stderr: The last lines of the program's standard error, oldest first.
    """
    program = find_program_name(settings) if settings is not None else ""
    if settings is None or program not in _FETCHERS:
        return ""
    begins, ends, verb = _FETCHERS[program]
    places = [index for index, line in enumerate(stderr) if begins.fullmatch(line)]
    if not places or any(ends.fullmatch(line) for line in stderr[places[-1] + 1 :]):
        return ""
    unnamed = "its image" if verb == "pulling" else "its packages"
    return f"{program} is {verb} {find_package(settings) or unnamed}"
