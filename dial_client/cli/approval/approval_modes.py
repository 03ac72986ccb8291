"""The mode of approval of a program: which one it begins with, which one follows, and where ``auto`` is not offered."""

from __future__ import annotations

from contextlib import suppress

from dial_client.cli.options import Options
from dial_client.cli.trust.changed_config import is_file_trusted
from dial_client.cli.trust.configuration_files import find_folder_config
from dial_client.messages.errors import ConfigError
from dial_client.tools.approval_mode import ApprovalMode

# The modes, each with its meaning in a few words.
MEANINGS = {
    ApprovalMode.ASK: "asks before each call that nothing allows",
    ApprovalMode.READ: "runs what only reads, and asks about the rest",
    ApprovalMode.PLAN: "runs only what reads, and the model answers with a plan",
    ApprovalMode.AUTO: "asks only where a rule or untrusted content demands it",
}


def choose_mode(options: Options) -> ApprovalMode:
    """Return the mode that a program begins with.

    ``--yes`` is the mode ``auto``, in which the questions that a rule or untrusted content demands are answered with
    yes, too.

    Raises:
        ConfigError: The options contradict each other, or ``--mode auto`` is not possible in this folder.
    """
    mode = ApprovalMode(options.mode or (ApprovalMode.AUTO if options.yes else ApprovalMode.ASK))
    if options.yes and mode is not ApprovalMode.AUTO:
        raise ConfigError(f"--yes cannot be combined with --mode {mode}", hint="--yes is --mode auto, and answers yes")
    if mode is ApprovalMode.AUTO and not options.yes and (why := find_reason_against_auto(options)):
        raise ConfigError(f"--mode auto is not possible here: {why}", hint="`dial-chat trust` shows and trusts it")
    return mode


def find_next_mode(mode: ApprovalMode, options: Options) -> ApprovalMode:
    """Return the mode that follows a mode, ``auto`` only where it is possible."""
    modes = [known for known in MEANINGS if known is not ApprovalMode.AUTO or not find_reason_against_auto(options)]
    return modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0]


def find_reason_against_auto(options: Options) -> str:
    """Return why calls cannot run without questions in this folder; empty if they can."""
    # Somebody who was shown the servers.json of a folder, and did not trust it, does not trust the author of the
    # folder. The other files of the folder are by the same author: the model reads them, and may follow instructions
    # in them. There a person has to see each call. `--yes` names no mode, but says yes, whatever is asked.
    found = find_folder_config()
    is_named = found is not None and options.config is not None and options.config.absolute() == found.absolute()
    if found is None or options.trust or options.yes or is_named:
        return ""
    with suppress(ConfigError):  # a file that cannot be read is not trusted
        if is_file_trusted(found):
            return ""
    return f"you have not trusted the {found.name} of this folder"
