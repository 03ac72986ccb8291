"""``dial-chat bug-report``: writes a file with the facts that a maintainer needs to find a bug, without secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from anyio import to_thread

from dial_client import __version__
from dial_client.cli.doctor.check_registry import inspect
from dial_client.cli.doctor.doctor_report import build_subject
from dial_client.cli.doctor.findings import Finding
from dial_client.cli.doctor.subject import Subject
from dial_client.cli.doctor.tool_checks import estimate_server_tokens
from dial_client.cli.options import Options
from dial_client.cli.streams.tty import can_ask_user, user_agrees
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.private_files import write_private
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.secret_masking import SecretMask, find_in_url, find_in_variable

# Packages whose versions are reported, if they are installed.
PACKAGES = ("mcp", "openai", "anthropic", "anyio", "httpx2", "pydantic", "xllamacpp", "dbos", "asyncpg", "trio")
STDERR_LINES = 20
# Environment variables with "PWD" in their names that hold folders, not passwords.
_FOLDERS = ("PWD", "OLDPWD")


async def write_report(options: Options, path: Path, *, is_confirmed: bool) -> None:
    """Build a report, print it, and write it if the user agrees; without a terminal, ``--yes`` is required.

    Raises:
        ConfigError: The file exists already or cannot be written; or ``--yes`` is missing, and there is no terminal.
    """
    if await to_thread.run_sync(path.exists):
        raise ConfigError("the file exists already", "name another FILE", str(path))
    subject = build_subject(options)
    findings = await inspect(subject)
    text = sanitize(mask(subject, "\n".join(_format_lines(subject, findings))))
    print(text)
    if not is_confirmed and not can_ask_user():
        raise ConfigError("nothing was written: there is no terminal to ask at", "--yes writes the file")
    if not is_confirmed and not await user_agrees(f"Write this to {to_one_line(str(path), 300)}?"):
        print("Nothing was written.", file=sys.stderr)
        return
    try:
        await to_thread.run_sync(write_private, path, text.encode())
    except OSError as error:
        raise ConfigError(f"cannot be written: {describe_system_error(error)}", path=str(path)) from None
    print(f"Written to {path}. Read it before you send it.", file=sys.stderr)


def mask(subject: Subject, text: str) -> str:
    """Return a text without the secrets of servers and models, and without the name of the home folder."""
    for settings in subject.servers.values():
        text = SecretMask.from_settings(settings).mask_text(text)
    environ = [(name, value) for name, value in subject.environ.items() if name not in _FOLDERS]
    found = {secret for name, value in environ for secret in find_in_variable(name, value)}
    for model in subject.models.values():
        found.update(find_in_url(model.base_url or ""))
        found |= {model.api_key} if model.api_key else set()
    text = SecretMask("the environment", *sorted(found)).mask_text(text)
    home = subject.environ.get("HOME") or subject.environ.get("USERPROFILE") or ""
    return text.replace(home, "~") if len(home) > 1 else text


def _format_lines(subject: Subject, findings: list[Finding]) -> Iterator[str]:
    yield "# Report of dial-chat\n\n## Versions\n"
    yield f"- dial-client {__version__}, Python {platform.python_version()}, {platform.platform()}"
    for package in PACKAGES:
        try:
            yield f"- {package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    terminal = f"{os.environ.get('TERM', 'none')}, {'' if sys.stdout.isatty() else 'no '}terminal"
    yield f"- terminal: {terminal}\n\n## Findings\n"
    yield "\n".join(f"- {found.place} {found.level} {found.code}: {found.text}" for found in findings) or "none"
    yield f"\n## Configuration\n\n- files: {', '.join(file.path for file in subject.files) or 'none'}"
    yield f"- model: {subject.model or 'as in the files'}\n\n## Servers\n"
    outcome, tokens = subject.outcome, estimate_server_tokens(subject.outcome)
    for name, status in outcome.statuses.items():
        version = f"{status.server_name or '?'} {status.server_version or '?'}, MCP {status.protocol_version or '?'}"
        seconds = f", ready after {outcome.seconds[name]:.1f} s" if name in outcome.seconds else ""
        size = f"{count_noun(len(status.tools), 'tool')}, about {tokens.get(name, 0):,} tokens"
        yield f"- {to_one_line(name, 60)}: {status.state.value}, {version}, {size}{seconds}"
        for line in status.stderr[-STDERR_LINES:]:
            yield f"      {to_one_line(line, 300)}"
