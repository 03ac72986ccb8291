"""Tab completion: commands, agents, files, prompts with their arguments, resources and their templates."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dial_client.cli.input.file_completion import Proposal, propose_files
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ServerError
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.resources import ResourceTemplate
from dial_client.servers.status import ServerState
from dial_client.tools.prompts import Prompt
from dial_client.turns.agent_mentions import list_agents, split_mentions
from dial_client.turns.mentions import MENTION

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
