"""The questions of ``dial-chat init``: which model, which servers, which file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dial_client.cli.models.model_search import ModelProposal
from dial_client.cli.servers.server_proposals import ServerProposal
from dial_client.cli.tty import ask_for_line
from dial_client.cli.word_wrap import print_lines
from dial_client.providers import open_provider
from dial_client.runtime.safe_text import escape_line


async def ask_for_model(
    proposals: Sequence[ModelProposal], title: str = "1. Which model answers?"
) -> ModelProposal | None:
    """Return the model that the user chooses; None if no model was found and the user names none.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print(f"\n{title}")
    _print_choices([(proposal.name, proposal.about) for proposal in proposals])
    if not proposals:
        print("   None was found: set a key such as OPENAI_API_KEY, start Ollama, or pip install 'dial-client[local]'.")
    usual = f"Enter for {proposals[0].name}" if proposals else "Enter for none yet"
    while True:
        answer = await ask_for_line(f"   A number, the name of any model, or {usual}: ")
        if not answer:
            return proposals[0] if proposals else None
        if answer.isdecimal() and 0 < int(answer) <= len(proposals):
            return proposals[int(answer) - 1]
        chosen = _find_model(answer)
        if chosen is not None:
            return chosen


async def ask_for_servers(proposals: Sequence[ServerProposal]) -> list[ServerProposal]:
    """Return the servers that the user chooses.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print("\n2. Which servers? Their tools are offered to the model.")
    _print_choices([(proposal.name, f"{proposal.about} ({proposal.command})") for proposal in proposals])
    usual = [proposal for proposal in proposals if proposal.is_default]
    named = ", ".join(proposal.name for proposal in usual) or "none"
    while True:
        answer = await ask_for_line(f"   Numbers such as 1,3; all; none; or Enter for {named}: ")
        chosen = choose_servers(answer, proposals)
        if chosen is not None:
            return chosen
        print(f"   Please name numbers from 1 to {len(proposals)}.")


def choose_servers(answer: str, proposals: Sequence[ServerProposal]) -> list[ServerProposal] | None:
    """Return the servers that an answer names by numbers, ranges, names, ``all`` or ``none``; None if it is invalid."""
    if not answer:
        return [proposal for proposal in proposals if proposal.is_default]
    if answer.lower() in ("all", "none"):
        return [*proposals] if answer.lower() == "all" else []
    numbers: set[int] = set()
    names = [proposal.name for proposal in proposals]
    for word in re.split(r"[,\s]+", answer.strip(", ")):
        if found := re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", word):
            numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
        elif word in names:
            numbers.add(names.index(word) + 1)
        else:
            return None
    is_clear = bool(numbers) and numbers <= set(range(1, len(proposals) + 1))
    return [proposals[number - 1] for number in sorted(numbers)] if is_clear else None


async def ask_for_place(folder_file: str, user_file: str) -> bool:
    """Return True if the user chooses the file for every folder, False for the file of this folder.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print("\n3. Where?")
    _print_choices([("this folder", folder_file), ("every folder", user_file)])
    while True:
        answer = await ask_for_line("   1, 2, or Enter for this folder: ")
        if answer in ("", "1", "2"):
            return answer == "2"


def _print_choices(choices: Sequence[tuple[str, str]]) -> None:
    width = min(40, max((len(name) for name, _ in choices), default=0))
    for number, (name, about) in enumerate(choices, 1):
        label = f"   {number:>2}  {escape_line(name):<{width}}  "
        print_lines([label + escape_line(about)], len(label))


def _find_model(name: str) -> ModelProposal | None:
    """Return the model of a typed name; if there is no such model, print the reason and return None."""
    from dial_client.messages.errors import ConfigError

    try:
        open_provider(name)
    except ConfigError as error:
        print(f"   {escape_line(str(error))}")
        return None
    return ModelProposal(name, "as you named it")
