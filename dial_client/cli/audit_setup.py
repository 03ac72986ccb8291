"""The audit log of ``dial-chat``: its folder, its mode and the secrets it masks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from dial_client.cli.load_settings import warn
from dial_client.cli.options import AuditMode, Options
from dial_client.hooks.audit.log_writer import AuditLog
from dial_client.hooks.audit.record_format import build_mask
from dial_client.messages.errors import ConfigError
from dial_client.servers.secret_masking import find_secrets
from dial_client.settings import configuration

VARIABLE = "DIAL_AUDIT"
"""The environment variable with the mode of the audit log: ``off``, ``on`` or ``arguments``.

servers.json has no such key, because a project must not be able to switch the log off.

"""
_KEY_ENDINGS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


def find_audit_folder() -> Path:
    """Return the folder of the user's audit log."""
    return Path(platformdirs.user_state_dir("dial-client"), "audit")


def open_audit_log(options: Options, settings: configuration.Settings) -> AuditLog | None:
    """Return the user's audit log, whose files are created with its first entry; None if the log is switched off.

    Raises:
        ConfigError: The environment variable has an unknown value.
    """
    variable = os.environ.get(VARIABLE) or AuditMode.ON
    if variable not in tuple(AuditMode):
        raise ConfigError(f"unknown {VARIABLE} {variable!r}", hint=f"one of {', '.join(AuditMode)}")
    modes = {options.audit, AuditMode(variable)}
    if AuditMode.OFF in modes:
        return None
    return AuditLog(
        find_audit_folder(),
        program=options.command,
        with_arguments=AuditMode.ARGUMENTS in modes,
        mask=build_mask(_collect_secrets(settings)),
        on_problem=warn,
    )


def _collect_secrets(settings: configuration.Settings) -> Iterator[str]:
    """Yield the known secrets: those in the entries of servers, and keys, tokens and passwords of the environment."""
    for server in settings.servers.values():
        yield from find_secrets(server)
    yield from (value for name, value in os.environ.items() if name.upper().endswith(_KEY_ENDINGS))
