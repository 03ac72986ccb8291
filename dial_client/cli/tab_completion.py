"""Tab completion in a conversation: commands, prompts with their arguments, resources and their templates."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dial_client.client import DialClient
from dial_client.errors import ServerError
from dial_client.servers.resources import ResourceTemplate
from dial_client.servers.status import ServerState
from dial_client.text.safe_text import one_line
from dial_client.tools.prompts import Prompt
from dial_client.turns.mentions import MENTION

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

MAX_PROPOSALS = 200
_VARIABLE = re.compile(r"\{\+?([A-Za-z0-9_.]+)\}")
"""Of a template (RFC 6570): those that stand for one value. Where another kind begins, completion ends."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One completion."""

    text: str
    """Takes the place of what is replaced."""
    replaced: int
    """Characters before the cursor."""
    about: str = ""


async def proposals(dial: DialClient, text: str, commands: Iterable[str]) -> list[Proposal]:
    """Return the completions of `text`. Servers that are not ready, or do not answer, contribute none."""
    try:
        if text.startswith("/"):
            found = await _of_prompts(dial, text, commands)
        else:
            found = await _of_resources(dial, text)
    except ServerError:
        return []
    # What goes into the line is what is sent: a name that is not harmless as it stands is not proposed.
    return [one for one in found if one.text == one_line(one.text, len(one.text) + 1) or one.text.endswith(" ")][
        :MAX_PROPOSALS
    ]


async def _of_prompts(dial: DialClient, text: str, commands: Iterable[str]) -> list[Proposal]:
    prompts = [one for server in _ready(dial) for one in await dial.prompts.list(server)]
    called = [one for one in prompts if text.startswith(f"/{one.server}:{one.name} ")]
    if called:
        return await _of_arguments(dial, max(called, key=lambda one: len(one.name)), text)
    names = dict.fromkeys(commands, "")
    names |= {f"/{one.server}:{one.name}{' ' if one.arguments else ''}": one.description for one in prompts}
    return [Proposal(name, len(text), about) for name, about in names.items() if name.startswith(text) and name != text]


async def _of_arguments(dial: DialClient, prompt: Prompt, text: str) -> list[Proposal]:
    rest = text[len(f"/{prompt.server}:{prompt.name} ") :]
    *words, last = re.split(r"\s+", rest)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    name, equals, typed = last.partition("=")
    if not equals:
        open_ones = [one for one in prompt.arguments if one.name not in given and one.name.startswith(last)]
        return [Proposal(f"{one.name}=", len(last), one.description) for one in open_ones]
    if name not in [one.name for one in prompt.arguments]:
        return []
    values = await dial.prompts.complete(prompt.server, prompt.name, name, typed, given)
    return [Proposal(shlex.quote(value), len(typed)) for value in values]


async def _of_resources(dial: DialClient, text: str) -> list[Proposal]:
    at = max((found.end() for found in MENTION.finditer(text)), default=None)
    if at is None:
        return []
    typed = text[at:]
    servers = _ready(dial)
    server = next((one for one in sorted(servers, key=len, reverse=True) if typed.startswith(f"{one}:")), None)
    if server is None:
        having = [one for one in servers if one.startswith(typed) and await _has_resources(dial, one)]
        return [Proposal(f"{one}:", len(typed)) for one in having]
    uri = typed[len(server) + 1 :]
    listed = [one for one in await dial.resources.list(server) if one.uri.startswith(uri) and one.uri != uri]
    found = [Proposal(one.uri, len(uri), one.title or one.name) for one in listed]
    for template in await dial.resources.templates(server):
        found += await _of_template(dial, template, uri)
    return found


async def _has_resources(dial: DialClient, server: str) -> bool:
    return bool(await dial.resources.list(server) or await dial.resources.templates(server))


async def _of_template(dial: DialClient, template: ResourceTemplate, uri: str) -> list[Proposal]:
    """Return completions of a URI that is made from a template: fixed text, or values of a variable."""
    pieces = _VARIABLE.split(template.uri_template)
    about = template.title or template.name
    left, given = uri, dict[str, str]()
    for at in range(0, len(pieces), 2):
        fixed = pieces[at].partition("{")[0]
        if len(left) < len(fixed):
            return [Proposal(fixed, len(left), about)] if fixed.startswith(left) else []
        if not left.startswith(fixed) or fixed != pieces[at] or at + 1 == len(pieces):
            return []
        left, variable = left[len(fixed) :], pieces[at + 1]
        following = pieces[at + 2].partition("{")[0]
        value, found, _ = left.partition(following) if following else (left, "", "")
        if not found:
            values = await dial.resources.complete(template.server, template.uri_template, variable, value, given)
            return [Proposal(one, len(value), about) for one in values if one != value]
        given[variable], left = value, left[len(value) :]
    return []


def _ready(dial: DialClient) -> list[str]:
    return [name for name, status in dial.servers.items() if status.state is ServerState.READY]


def completer(dial: DialClient, commands: Iterable[str]) -> Completer:
    """Return a completer for prompt_toolkit; it never waits for a server that is still starting."""
    from prompt_toolkit.completion import Completer, Completion

    class Talk(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:  # noqa: ARG002
            return ()

        async def get_completions_async(
            self,
            document: Any,
            complete_event: Any,  # noqa: ARG002
        ) -> AsyncGenerator[Completion, None]:
            for one in await proposals(dial, document.text_before_cursor, commands):
                yield Completion(one.text, -one.replaced, display_meta=one_line(one.about, 60))

    return Talk()
