"""What a server's process is given of the host's environment, and where its program is found."""

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
"""What programs that fetch servers (npx, uvx) need behind a proxy, a private authority or in another language."""

FAMILIES = ("LC_", "NPM_CONFIG_", "UV_", "XDG_")
_CREDENTIAL = re.compile(r"^UV_PUBLISH_|PASS|TOKEN|AUTH|SECRET|CREDENTIAL|USERNAME|(?:^|_)(?:KEY|OTP)(?:_|$)")
"""Members of the families that are secrets, or of no use without them. A server gets those its entry passes on."""
_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s?#]*@")
_USER_OF_PROXY = re.compile(r"^[^/\s?#]*@")
"""A proxy may be written without a scheme."""


def child_environment(entry: Mapping[str, str]) -> dict[str, str]:
    """Give a process's whole environment: a short list of the host's variables, and over them the entry's own.

    An allow-list, because every other variable of the host may be a secret. Of what is on it, proxies and package
    indexes come without the user names and passwords in their addresses.
    """
    inherited = {
        name: _without_user(name.upper(), value)
        for name, value in os.environ.items()
        if _is_passed_on(name.upper(), value)
    }
    return inherited | dict(entry)


def _is_passed_on(name: str, value: str) -> bool:
    if value.startswith("()"):  # a shell function, the way into Shellshock
        return False
    return name in BASIC or name in USEFUL or (name.startswith(FAMILIES) and _CREDENTIAL.search(name) is None)


def _without_user(name: str, value: str) -> str:
    if name not in USEFUL and not name.startswith(FAMILIES):
        return value
    value = _USER.sub(r"\g<scheme>", value)
    return _USER_OF_PROXY.sub("", value) if name.endswith("_PROXY") else value


def find_program(server: str, command: str, path: str | None, cwd: str | None) -> str:
    """Give the absolute path of a command: as it stands, else from `path` (a ``PATH``), else beside the interpreter.

    A relative path with a slash is seen from `cwd`. The last place makes servers that are installed in the same
    environment be found without activating it.

    Raises:
        ServerStartError: there is no such program, or it may not be executed.
    """
    if os.path.dirname(command):  # noqa: PTH120 (`Path` forgets the "./" that says "not from PATH")
        program = Path(cwd or ".", command)
        if not program.is_file():
            raise ServerStartError(server, f"there is no file {command!r} to run")
        if not os.access(program, os.X_OK):
            raise ServerStartError(server, f"the file {command!r} may not be executed")
        return os.path.abspath(program)  # noqa: PTH100 (a link must stay one: its name tells the program who it is)
    found = _installed(command, path or os.defpath) or _installed(command, str(Path(sys.executable).parent))
    if found is None:
        raise ServerStartError(server, f"the command {command!r} was not found: is it installed and in PATH?")
    return found


def _installed(command: str, path: str) -> str | None:
    """Return where a command lies in `path`: not in relative folders of it, nor in the current one, as Windows has it.

    The folder somebody works in may be a stranger's: a program that lies there has to be named by a path.
    """
    endings = [""]
    if sys.platform == "win32":
        runnable = [ending.lower() for ending in os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if ending]
        endings = endings if command.lower().endswith(tuple(runnable)) else runnable
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117 - a text
    places = (Path(folder, f"{command}{ending}") for folder in folders for ending in endings)
    return next((str(place) for place in places if place.is_file() and os.access(place, os.X_OK)), None)
