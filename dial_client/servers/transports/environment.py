"""The environment of a server's process, and the search for its program."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from dial_client.messages.errors import ServerStartError

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
"""Variables that launchers (npx, uvx) need with a proxy, a private certificate authority, or another language."""

FAMILIES = ("LC_", "NPM_CONFIG_", "UV_", "XDG_")
"""Prefixes of further inherited variables."""
_CREDENTIAL = re.compile(r"^UV_PUBLISH_|PASS|TOKEN|AUTH|SECRET|CREDENTIAL|USERNAME|(?:^|_)(?:KEY|OTP)(?:_|$)")
"""Names with such a prefix that are not inherited: credentials. A server gets them only through its settings."""
_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s?#]*@")
_USER_OF_PROXY = re.compile(r"^[^/\s?#]*@")
"""The user in a proxy URL without a scheme."""


def build_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server's process: allowed variables of this process, and the configured ones.

    Other variables are not inherited, because they may be secrets. User names and passwords are removed from the URLs
    of proxies and package indexes.

    Args:
        settings: The variables from the server's settings.
    """
    inherited = {
        name: _without_user(name.upper(), value)
        for name, value in os.environ.items()
        if _is_inherited(name.upper(), value)
    }
    return inherited | dict(settings)


def _is_inherited(name: str, value: str) -> bool:
    if value.startswith("()"):  # an exported shell function (Shellshock)
        return False
    return name in BASIC or name in USEFUL or (name.startswith(FAMILIES) and _CREDENTIAL.search(name) is None)


def _without_user(name: str, value: str) -> str:
    if name not in USEFUL and not name.startswith(FAMILIES):
        return value
    value = _USER.sub(r"\g<scheme>", value)
    return _USER_OF_PROXY.sub("", value) if name.endswith("_PROXY") else value


def find_program(server: str, command: str, path: str | None, cwd: str | None) -> str:
    """Return the absolute path of a command.

    A command with a slash is a path, relative to `cwd`. Other commands are searched in `path` (a ``PATH``), then in the
    folder of this Python interpreter, so that servers in a virtual environment are found without activating it.

    Raises:
        ServerStartError: The program does not exist, or may not be executed.
    """
    if os.path.dirname(command):  # noqa: PTH120 (`Path` drops a leading "./", which means "not from PATH")
        program = Path(cwd or ".", command)
        if not _is_file(program):
            raise ServerStartError(server, f"there is no file {command!r} to run")
        if not os.access(program, os.X_OK):
            raise ServerStartError(server, f"the file {command!r} may not be executed")
        return os.path.abspath(program)  # noqa: PTH100 (keep symbolic links: some programs read their own name)
    found = _find_installed(command, path or os.defpath) or _find_installed(command, str(Path(sys.executable).parent))
    if found is None:
        raise ServerStartError(server, f"the command {command!r} was not found: is it installed and in PATH?")
    return found


def _find_installed(command: str, path: str) -> str | None:
    """Return the path of a command in `path`, skipping relative folders and (Windows) the current folder.

    The current folder may hold untrusted files: a program in it must be named by a path.
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
    """Return True for a file; False also if a folder may not be searched, or the name is too long."""
    return os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises an error in these cases
