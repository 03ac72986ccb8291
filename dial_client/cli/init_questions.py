"""The questions of ``dial-chat init``: which model, which servers, which file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from dial_client.cli.models.endpoint_trial import EndpointTrial, try_endpoint
from dial_client.cli.models.model_proposals import ModelOffers, ModelProposal, ModelSource, describe_name
from dial_client.cli.servers.server_proposals import ServerProposal
from dial_client.cli.streams.tty import ask_for_line
from dial_client.cli.streams.word_wrap import count_cells, print_lines
from dial_client.messages.errors import ConfigError
from dial_client.providers import open_provider
from dial_client.providers.http.endpoint import normalize_url
from dial_client.runtime.safe_text import escape_line

# The maximum number of models of an endpoint that are printed at once.
_MAX_CHOICES = 12
# The maximum width of the names of choices in columns.
_MAX_NAME = 20


async def ask_for_model(offers: ModelOffers, title: str = "1. Which model answers?") -> ModelProposal | None:
    """Return the model that the user chooses; None if the user names none.

    Raises:
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    print(f"\n{title}")
    _print_choices([(row.name, row.about) for row in offers.rows], offers.unusable)
    usual = offers.usual
    while True:
        answer = await ask_for_line(
            f"   A number, the name of any model, or Enter for {usual.name if usual else 'none'}: "
        )
        if not answer:
            return usual
        chosen: ModelProposal | ModelSource | None = _find_row(answer, offers.rows) or _find_model(answer)
        if isinstance(chosen, ModelSource):
            chosen = await (_choose_listed_model(chosen.models) if chosen.models else ask_for_endpoint())
        if chosen is not None:
            return chosen


async def ask_for_endpoint(url: str = "", variable: str = "") -> ModelProposal | None:
    """Ask for an endpoint and its key, try them, and return the model of it that the user chooses.

    Args:
        url: The address; empty to ask for it.
        variable: The environment variable of the key; empty to ask for it.

    Returns:
        The model, or None if the user goes back.

    Raises:
        ConfigError: The address that was given cannot be used.
        Unanswered: The user cancels with Ctrl-C or Ctrl-D.
    """
    while True:
        address = url or await ask_for_line("   Its address, such as http://127.0.0.1:8080/v1 (Enter goes back): ")
        if not address:
            return None
        try:
            address = normalize_url(address if "://" in address else f"http://{address}", "the address")
            if model := await _ask_at_address(address, variable):
                return model
        except ConfigError as error:
            if url:
                raise
            print(f"   {escape_line(str(error))}")
        if url:
            raise ConfigError(f"no model of {url} was chosen", "dial-chat init asks again")


async def _ask_at_address(address: str, variable: str) -> ModelProposal | None:
    """Ask for the key of an address, try it, and return the model that the user chooses; None to ask again."""
    variable = variable or await _ask_for_key_variable(needs_key=False)
    trial = await try_endpoint(address, os.environ.get(variable, ""))
    while trial.refuses_key:
        print(f"   {escape_line(trial.problem)}")
        variable = await _ask_for_key_variable(needs_key=True)
        if not variable:
            return None
        trial = await try_endpoint(address, os.environ.get(variable, ""))
    if trial.problem:
        print(f"   {escape_line(trial.problem)}")
        return None
    return await _choose_served_model(trial, variable)


async def _ask_for_key_variable(*, needs_key: bool) -> str:
    """Return the name of the environment variable that has a key, which is set for this process; empty for none."""
    usual = "Enter goes back" if needs_key else "Enter if it needs none"
    while True:
        name = await ask_for_line(f"   The environment variable with its key, such as OPENAI_API_KEY ({usual}): ")
        if not name:
            return ""
        if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            break
        print("   Please give the name of a variable, in capital letters: the file never has the key itself.")
    if not os.environ.get(name):
        key = await ask_for_line(f"   {name} is not set here. The key, for this run only, never written: ", hidden=True)
        if key:
            os.environ[name] = key  # so that the question at the end of init is answered
    return name


async def _choose_served_model(trial: EndpointTrial, variable: str) -> ModelProposal | None:
    host = escape_line(trial.endpoint.host)
    if trial.ids:
        print(f"   {host} answers.")
        return await _choose_listed_model([trial.propose(model, variable) for model in trial.ids])
    print(f"   {host} answers, and has no list of models.")
    model = await ask_for_line("   The model's name there (Enter goes back): ")
    return trial.propose(model, variable) if model else None


async def _choose_listed_model(models: Sequence[ModelProposal]) -> ModelProposal | None:
    """Return one of these models, which the user chooses by its number, its name, or a part of names."""
    shown = [*models]
    while True:
        if len(shown) == 1:
            print(f"   {escape_line(shown[0].name)}")
            return shown[0]
        for number, model in enumerate(shown[:_MAX_CHOICES], 1):
            print_lines([f"   {number:>3}  {escape_line(str(model.profile.get('model') or model.name))}"])
        if len(shown) > _MAX_CHOICES:
            print(f"        … and {len(shown) - _MAX_CHOICES} more: a part of a name shows those that have it")
        answer = await ask_for_line(f"   A number, a part of a name, or Enter for {shown[0].name}: ")
        if not answer:
            return shown[0]
        if answer.isdecimal() and 0 < int(answer) <= len(shown):
            return shown[int(answer) - 1]
        ids = {model.profile.get("model") or model.name: model for model in models}
        found = [ids[answer]] if answer in ids else [model for name, model in ids.items() if answer in name]
        if not found:
            print("   No model has that in its name.")
        shown = found or shown


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


def _print_choices(choices: Sequence[tuple[str, str]], unusable: Sequence[tuple[str, str]] = ()) -> None:
    """Print the choices with their numbers, and below them what cannot be chosen yet."""
    width = min(_MAX_NAME, max((count_cells(name) for name, _ in (*choices, *unusable)), default=0))
    rows = [(f"{number:>2}", *choice) for number, choice in enumerate(choices, 1)]
    for sign, name, about in (*rows, *((" -", *choice) for choice in unusable)):
        label = f"   {sign}  {escape_line(name)}"
        if count_cells(name) > width:  # the description of a long name begins in the next row
            print(label)
            label = ""
        print_lines([f"{label:<{width + 7}}  {escape_line(about)}"], width + 9)


def _find_row(answer: str, rows: Sequence[ModelProposal | ModelSource]) -> ModelProposal | ModelSource | None:
    """Return the row of a number or of a name; None if there is none."""
    if answer.isdecimal() and 0 < int(answer) <= len(rows):
        return rows[int(answer) - 1]
    return next((row for row in rows if row.name == answer), None)


def _find_model(name: str) -> ModelProposal | None:
    """Return the model of a typed name; if there is no such model, print the reason and return None."""
    try:
        open_provider(name)
    except ConfigError as error:
        print(f"   {escape_line(str(error))}")
        return None
    return ModelProposal(name, describe_name(name))
