"""Options that contradict each other, or have no effect with each other: they are refused, not ignored in silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from dial_client.cli.options import Options
from dial_client.messages.errors import ConfigError
from dial_client.providers import is_recording_name


def check_options(options: Options) -> None:
    """Check the options that several commands share.

    Raises:
        ConfigError: Two options contradict each other; the hint says what to type.
    """
    for problem, hint in _find_contradictions(options):
        raise ConfigError(problem, hint)


def _find_contradictions(options: Options) -> Iterator[tuple[str, str]]:
    empty = {"--model": options.model, "--profile": options.profile, "--base-url": options.base_url}
    for name in (name for name, value in empty.items() if value == ""):
        yield f"{name} is empty", "is the variable in your command line set?"
    if options.no_audit and options.audit_arguments:
        yield "--audit-arguments cannot be combined with --no-audit", "give one of them"
    if options.strict and (options.trust or options.config):
        named = "--trust" if options.trust else "--config"
        yield f"--strict has no effect with {named}, which uses the file as it is", "give one of them"
    if options.agent is not None and options.system is not None:
        yield "--system cannot be combined with --agent, which has instructions of its own", "give one of them"
    if options.quiet and options.verbose:
        yield "--quiet cannot be combined with --verbose", "give one of them"
    if options.continue_latest and options.resume is not None:
        yield "--continue cannot be combined with --resume", "--resume ID names the conversation"
    if options.model and is_recording_name(options.model):
        given = {
            "--config": options.config,
            "--profile": options.profile,
            "--fallback-model": options.fallback_model,
            "--base-url": options.base_url,
        }
        for name in (name for name, value in given.items() if value):
            yield f"{name} has no effect with a recording", "the recording has its own servers and model"


_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def parse_lifetime(text: str, option: str) -> timedelta | None:
    """Return the time that the value of an option names, such as ``90d``; None for an empty value.

    Raises:
        ConfigError: It is not a time.
    """
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,4})([hdw])", text)
    if match is None or not int(match[1]):
        raise ConfigError(f"{option}: {text!r} is not a time", hint="like 12h, 90d or 52w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
