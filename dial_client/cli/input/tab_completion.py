"""Tab completion: commands, agents, files, prompts with their arguments, resources and their templates.

The files of a mention (``@path``) are entries of a folder, or files anywhere below the working folder.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dial_client.cli.input.file_mentions import build_mention
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ServerError
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.resources import ResourceTemplate
from dial_client.servers.status import ServerState
from dial_client.tools.prompts import Prompt
from dial_client.turns.mentions import MENTION, list_agents, split_mentions

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

MAX_PROPOSALS = 200
# A URI template's variable (RFC 6570) with a single value. Completion stops at any other expression.
_VARIABLE = re.compile(r"\{\+?([A-Za-z0-9_.]+)\}")

# Maps the name of a command to a function that returns the values of its argument, with descriptions.
Arguments = Mapping[str, Callable[[], Mapping[str, str]]]


async def propose_completions(
    dial: DialClient, text: str, commands: Mapping[str, str], arguments: Arguments | None = None
) -> list[Proposal]:
    """Return the completions of `text`. Servers that are not ready, or do not answer, are skipped."""
    found = propose_local_completions(text, commands, arguments or {}, list_agents(dial.tools))
    with suppress(ServerError):
        found += await (_propose_prompts(dial, text) if text.startswith("/") else _propose_resources(dial, text))
    return [proposal for proposal in found if proposal.is_safe][:MAX_PROPOSALS]


def propose_local_completions(
    text: str, commands: Mapping[str, str], arguments: Arguments, agents: Mapping[str, str] = MappingProxyType({})
) -> list[Proposal]:
    """Return the completions that need no request to a server: commands, their arguments, agents and files.

    Args:
        text: The text before the cursor.
        commands: The descriptions of commands, by their names.
        arguments: The values of the commands' arguments.
        agents: The descriptions of agents, by their names; only the start of a text names agents.
    """
    if text.startswith("/"):
        name, space, rest = text.partition(" ")
        if not space:
            return _propose_names(text, commands)
        values = arguments[name]() if name in arguments else {}
        return [
            Proposal(value, len(rest), about)
            for value, about in values.items()
            if value.startswith(rest) and value != rest
        ]
    start = _find_mention_start(text)
    if start is None:
        return []
    typed = text[start:]
    is_first = not split_mentions(text[: start - 1], agents)[1].strip()
    named = [name for name in agents if is_first and name.startswith(typed) and name != typed]
    return [*(Proposal(f"{name} ", len(typed), agents[name]) for name in named), *propose_files(typed)]


def _find_mention_start(text: str) -> int | None:
    return max((mention.end() for mention in MENTION.finditer(text)), default=None)


async def _propose_prompts(dial: DialClient, text: str) -> list[Proposal]:
    prompts = [prompt for server in _list_ready(dial) for prompt in await dial.prompts.list(server)]
    called = [prompt for prompt in prompts if text.startswith(f"/{prompt.server}:{prompt.name} ")]
    if called:
        return await _propose_arguments(dial, max(called, key=lambda prompt: len(prompt.name)), text)
    names = {
        f"/{prompt.server}:{prompt.name}{' ' if prompt.arguments else ''}": prompt.description for prompt in prompts
    }
    return _propose_names(text, names)


def _propose_names(typed: str, names: Mapping[str, str]) -> list[Proposal]:
    """Return the names that begin with a typed text; if there are none, those that have its letters in their order.

    Of the latter, names that contain the text come first. One letter alone is in too many names.

    Args:
        typed: The text from ``/`` on.
        names: The descriptions of commands or prompts, by their names from ``/`` on.
    """
    letters = typed[1:].lower()
    found = [name for name in names if name[1:].lower().startswith(letters)]
    if not found and len(letters) > 1:
        scattered = re.compile(".*".join(map(re.escape, letters)))
        found = [name for name in names if scattered.search(name[1:].lower())]
        found.sort(key=lambda name: letters not in name[1:].lower())
    return [Proposal(name, len(typed), names[name]) for name in found if name != typed]


async def _propose_arguments(dial: DialClient, prompt: Prompt, text: str) -> list[Proposal]:
    rest = text[len(f"/{prompt.server}:{prompt.name} ") :]
    *words, last = re.split(r"\s+", rest)
    known = dict(word.split("=", 1) for word in words if "=" in word)
    name, equals, typed = last.partition("=")
    if not equals:
        missing = [
            argument for argument in prompt.arguments if argument.name not in known and argument.name.startswith(last)
        ]
        return [Proposal(f"{argument.name}=", len(last), argument.description) for argument in missing]
    if name not in [argument.name for argument in prompt.arguments]:
        return []
    values = await dial.prompts.complete(prompt.server, prompt.name, name, typed, known)
    return [Proposal(shlex.quote(value), len(typed)) for value in values]


async def _propose_resources(dial: DialClient, text: str) -> list[Proposal]:
    start = _find_mention_start(text)
    if start is None:
        return []
    typed = text[start:]
    servers = _list_ready(dial)
    server = next((name for name in sorted(servers, key=len, reverse=True) if typed.startswith(f"{name}:")), None)
    if server is None:
        matching = [name for name in servers if name.startswith(typed)]
        return [
            Proposal(f"{name}:", len(typed))
            for name in matching
            if await dial.resources.list(name) or await dial.resources.templates(name)
        ]
    uri = typed[len(server) + 1 :]
    resources = [item for item in await dial.resources.list(server) if item.uri.startswith(uri) and item.uri != uri]
    found = [Proposal(item.uri, len(uri), item.title or item.name) for item in resources]
    for template in await dial.resources.templates(server):
        found += await _propose_uris(dial, template, uri)
    return found


async def _propose_uris(dial: DialClient, template: ResourceTemplate, uri: str) -> list[Proposal]:
    """Return completions of a URI that is made from a template: fixed text, or values of a variable."""
    pieces = _VARIABLE.split(template.uri_template)
    about = template.title or template.name
    rest, known = uri, dict[str, str]()
    for at in range(0, len(pieces), 2):
        fixed = pieces[at].partition("{")[0]
        if len(rest) < len(fixed):
            return [Proposal(fixed, len(rest), about)] if fixed.startswith(rest) else []
        if not rest.startswith(fixed) or fixed != pieces[at] or at + 1 == len(pieces):
            return []
        rest, variable = rest[len(fixed) :], pieces[at + 1]
        following = pieces[at + 2].partition("{")[0]
        value, found, _ = rest.partition(following) if following else (rest, "", "")
        if not found:
            values = await dial.resources.complete(template.server, template.uri_template, variable, value, known)
            return [Proposal(text, len(value), about) for text in values if text != value]
        known[variable], rest = value, rest[len(value) :]
    return []


def _list_ready(dial: DialClient) -> list[str]:
    return [name for name, status in dial.servers.items() if status.state is ServerState.READY]


def build_completer(dial: DialClient, commands: Mapping[str, str], arguments: Arguments | None = None) -> Completer:
    """Return a completer for prompt_toolkit; it never waits for a server that is still starting.

    While the user types, without Tab, no request is sent to a server.
    """
    from prompt_toolkit.completion import Completer, Completion

    class ConversationCompleter(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:  # noqa: ARG002
            return ()

        async def get_completions_async(self, document: Any, complete_event: Any) -> AsyncGenerator[Completion, None]:
            text = document.text_before_cursor
            if complete_event.completion_requested:
                found = await propose_completions(dial, text, commands, arguments)
            else:
                found = propose_local_completions(text, commands, arguments or {}, list_agents(dial.tools))
            for proposal in found:
                if proposal.is_safe:
                    about = to_one_line(proposal.about, 60)
                    yield Completion(proposal.text, -proposal.replaced, display_meta=about)

    return ConversationCompleter()


# The maximum entries that a search below the working folder checks.
MAX_SCANNED = 5000
# The maximum number of proposed paths.
MAX_FOUND = 50
_SKIPPED = {"node_modules", "__pycache__", "venv", "site-packages", "target", "dist"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """One completion."""

    text: str
    """The completed text, which replaces the last `replaced` characters."""
    replaced: int
    """The number of characters before the cursor to replace."""
    about: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether the displayed form is the text itself, because a completed line is sent without a further look."""
        text = self.text.rstrip(" ")
        return text == to_one_line(text, len(text) + 1)


def propose_files(typed: str) -> list[Proposal]:
    """Return the completions of a path.

    Args:
        typed: The text between the ``@`` and the cursor.
    """
    quote = typed[:1] if typed[:1] in ('"', "'") else ""
    path = typed[1:] if quote else _unescape(typed)
    if path is None or (quote and quote in path):
        return []
    names = [*_find_in_folder(path)]
    if len(path) >= 2 and not re.search(r"[/\\~]", path):
        known = {name.rstrip("/") for name, _ in names}
        names += [(name, about) for name, about in _find_below(path) if name.rstrip("/") not in known]
    return [Proposal(_format_path(name, quote), len(typed), about) for name, about in names[:MAX_FOUND] if name != path]


def _unescape(typed: str) -> str | None:
    """Return the path of an unquoted mention; None if the mention ends before the cursor."""
    if sys.platform == "win32":
        return None if re.search(r"\s", typed) else typed
    return None if re.search(r"(?<!\\)\s", typed) else re.sub(r"\\(.)", r"\1", typed)


def _format_path(name: str, quote: str) -> str:
    """Return a path as it is written after the ``@``; the quote of a folder stays open."""
    if quote and not name.endswith("/"):
        return f"{quote}{name}{quote}"
    mention = f"{quote}{name}" if quote else build_mention(name)[1:]
    return mention.removesuffix('"') if name.endswith("/") else mention


def _find_in_folder(path: str) -> Iterator[tuple[str, str]]:
    """Yield the folder entries that begin with the last part of a path, each with its kind."""
    folder, prefix = os.path.split(path)
    try:
        entries = sorted(os.scandir(Path(folder or ".").expanduser()), key=lambda entry: entry.name.lower())
    except (OSError, ValueError, RuntimeError):
        return
    start = folder if folder.endswith(("/", "\\")) or not folder else f"{folder}/"
    for entry in entries:
        matches = entry.name.lower().startswith(prefix.lower())
        if matches and (not entry.name.startswith(".") or prefix.startswith(".")) and '"' not in entry.name:
            yield (f"{start}{entry.name}/", "folder") if entry.is_dir() else (f"{start}{entry.name}", "")


def _find_below(part: str) -> Iterator[tuple[str, str]]:
    """Yield files below the working folder whose name contains `part`; hidden and generated files are left out."""
    scanned = 0
    for folder, folders, files in os.walk("."):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        scanned += len(folders) + len(files)
        for name in sorted(files):
            if part.lower() in name.lower() and not name.startswith(".") and '"' not in name:
                yield Path(folder, name).as_posix(), ""
        if scanned > MAX_SCANNED:
            return
