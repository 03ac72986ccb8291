"""The environment of a server's process, and the search for its program."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from dial_client.errors import ServerStartError

if sys.platform == "win32":
    BASIC = frozenset(
        (
            *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT"),
            *("PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP"),
            *("USERNAME", "USERPROFILE", "WINDIR"),
        )
    )
else:
    BASIC = frozenset(("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"))

USEFUL = frozenset(
    (
        *("LANG", "LANGUAGE", "VIRTUAL_ENV"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    )
)
"""Variables that launchers (npx, uvx) need behind a proxy, with a private certificate authority or another language."""

FAMILIES = ("LC_", "NPM_CONFIG_", "UV_", "XDG_")
_CREDENTIAL = re.compile(r"^UV_PUBLISH_|PASS|TOKEN|AUTH|SECRET|CREDENTIAL|USERNAME|(?:^|_)(?:KEY|OTP)(?:_|$)")
"""Variables of the families that are secrets, or of no use without them. A server gets those its settings pass on."""
_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s?#]*@")
_USER_OF_PROXY = re.compile(r"^[^/\s?#]*@")
"""A proxy may be written without a scheme."""


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server's process: an allow-list of this process's variables, and its own `settings`.

    Every other variable may be a secret. Proxies and package indexes come without the user names and passwords in
    their URLs.
    """
    inherited = {
        name: _without_user(name.upper(), value)
        for name, value in os.environ.items()
        if _is_inherited(name.upper(), value)
    }
    return inherited | dict(settings)


def _is_inherited(name: str, value: str) -> bool:
    if value.startswith("()"):  # a shell function, the way into Shellshock
        return False
    return name in BASIC or name in USEFUL or (name.startswith(FAMILIES) and _CREDENTIAL.search(name) is None)


def _without_user(name: str, value: str) -> str:
    if name not in USEFUL and not name.startswith(FAMILIES):
        return value
    value = _USER.sub(r"\g<scheme>", value)
    return _USER_OF_PROXY.sub("", value) if name.endswith("_PROXY") else value


def find_program(server: str, command: str, path: str | None, cwd: str | None) -> str:
    """Return the absolute path of a command: a path itself, else found in `path` (a ``PATH``), else next to Python.

    A relative path with a slash is relative to `cwd`. Servers in the same virtual environment are found without
    activating it, next to its interpreter.

    Raises:
        ServerStartError: there is no such program, or it may not be executed.
    """
    if os.path.dirname(command):  # noqa: PTH120 (`Path` forgets the "./" that says "not from PATH")
        program = Path(cwd or ".", command)
        if not _is_file(program):
            raise ServerStartError(server, f"there is no file {command!r} to run")
        if not os.access(program, os.X_OK):
            raise ServerStartError(server, f"the file {command!r} may not be executed")
        return os.path.abspath(program)  # noqa: PTH100 (a link stays a link: programs read their own name)
    found = _installed(command, path or os.defpath) or _installed(command, str(Path(sys.executable).parent))
    if found is None:
        raise ServerStartError(server, f"the command {command!r} was not found: is it installed and in PATH?")
    return found


def _installed(command: str, path: str) -> str | None:
    """Return the path of a command in `path`, without its relative folders and without the current one (Windows).

    The current folder may come from a stranger: a program in it has to be named by a path.
    """
    suffixes = [""]
    if sys.platform == "win32":
        executable = [
            suffix.lower() for suffix in os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if suffix
        ]
        suffixes = suffixes if command.lower().endswith(tuple(executable)) else executable
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117 - a string
    candidates = (Path(folder, f"{command}{suffix}") for folder in folders for suffix in suffixes)
    return next((str(file) for file in candidates if _is_file(file) and os.access(file, os.X_OK)), None)


def _is_file(path: Path) -> bool:
    """Return True for a file; False also where a folder may not be searched, or a name is too long."""
    return os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises an error for these
