"""The commands ``resources`` and ``prompts``: list the resources and prompts of servers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dial_client.cli import elicitation_prompt
from dial_client.cli.bootstrap import read_settings, say_notes
from dial_client.cli.client_start import open_client
from dial_client.cli.line_wrap import print_lines
from dial_client.cli.options import ExitCode, Options
from dial_client.client.dial_client import DialClient
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.servers.resources import Resource, ResourceTemplate
from dial_client.sinks.terminal import TerminalSink
from dial_client.tools.prompts import Prompt

_MAX_NAME = 300
_MAX_DESCRIPTION = 120


async def list_resources_or_prompts(options: Options, what: str, *, as_json: bool) -> int:
    """Print the resources and templates, or the prompts: one per line, as a question refers to them, or as JSON.

    Args:
        options: The options, which select the configuration.
        what: ``resources`` or ``prompts``.
        as_json: Print JSON in place of lines.
    """
    callbacks = elicitation_prompt.build_callbacks(options, TerminalSink())
    async with open_client(options, await read_settings(options), None, None, callbacks) as dial:
        await dial.ready()
        say_notes(dial.notes)
        found: list[Any] = list(await (_list_resources(dial) if what == "resources" else dial.prompts.list()))
        if as_json:
            print(json.dumps([item.to_dict() for item in found], indent=2))
        else:
            _print(found)
    return ExitCode.ANSWERED


async def show(dial: DialClient, what: str) -> None:
    """Print the resources or the prompts of an open client, or that there are none."""
    found = list(await (_list_resources(dial) if what == "resources" else dial.prompts.list()))
    if found:
        _print(found)
    else:
        print(f"The servers have no {what}.")


async def _list_resources(dial: DialClient) -> tuple[Resource | ResourceTemplate, ...]:
    return (*await dial.resources.list(), *await dial.resources.templates())


def _print(found: Iterable[Resource | ResourceTemplate | Prompt]) -> None:
    lines = [(_format_reference(item), _format_description(item)) for item in found]
    width = min(60, max((len(name) for name, _ in lines), default=0))
    print_lines(f"{name:<{width}}  {about}".rstrip() for name, about in lines)


def _format_reference(item: Resource | ResourceTemplate | Prompt) -> str:
    match item:
        case Resource():
            reference = f"@{item.server}:{item.uri}"
        case ResourceTemplate():
            reference = f"@{item.server}:{item.uri_template}"
        case Prompt():
            arguments = (f"{a.name}=…" if a.required else f"[{a.name}=…]" for a in item.arguments)
            reference = " ".join((f"/{item.server}:{item.name}", *arguments))
    return to_one_line(reference, _MAX_NAME)


def _format_description(item: Resource | ResourceTemplate | Prompt) -> str:
    name = item.title or ("" if isinstance(item, Prompt) else item.name)
    kind = "" if isinstance(item, Prompt) else item.mime_type or ""
    size = f"{item.size:,} bytes" if isinstance(item, Resource) and item.size is not None else ""
    head = ", ".join(part for part in (sanitize(name), kind, size) if part)
    return to_one_line(": ".join(part for part in (head, item.description) if part), _MAX_DESCRIPTION)
