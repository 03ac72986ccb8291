"""The commands ``tools``, ``resources``, ``prompts``, ``servers list`` and ``call``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dial_client.cli import elicitation_prompt
from dial_client.cli.configuration_files import describe_sources
from dial_client.cli.load_settings import print_notes, read_settings, warn
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.word_wrap import print_lines
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Failure, TextPart, ToolCallResult, ToolSpec, describe
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.resources import Resource, ResourceTemplate
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.sinks.terminal import TerminalSink
from dial_client.tools.prompts import Prompt


async def list_tools(options: Options, *, as_json: bool) -> int:
    """Print the tools as they are offered to the model, one per line, or as JSON."""
    async with open_client(options, await read_settings(options), None, None) as dial:
        await dial.ready()
        print_notes(dial.notes)
        if as_json:
            tools = [
                {
                    "name": tool.name,
                    "server": tool.server,
                    "tool": tool.tool,
                    "title": tool.title,
                    "description": tool.description,
                    "input_schema": tool.input_schema,
                    "output_schema": tool.output_schema,
                    "annotations": {
                        "read_only": tool.read_only,
                        "idempotent": tool.idempotent,
                        "destructive": tool.destructive,
                        "open_world": tool.open_world,
                    },
                    "icons": [icon.to_dict() for icon in tool.icons],
                }
                for tool in dial.tools
            ]
            print(json.dumps(tools, indent=2))
        else:
            width = max((len(tool.name) for tool in dial.tools), default=0)
            for tool in dial.tools:
                rows = [f"{tool.name:<{width}}  {to_one_line(f'{tool.server}: {tool.description}', 120)}"]
                if options.verbose:
                    rows.append(f"{'':<{width}}  {to_one_line(_format_hints(tool), 120)}")
                print_lines(rows, width + 2)
    return ExitCode.ANSWERED


def _format_hints(tool: ToolSpec) -> str:
    """Return the annotations of a tool in one line."""
    words = [
        *(["read only"] if tool.read_only else []),
        *(["idempotent"] if tool.idempotent else []),
        *([] if tool.destructive is None else ["destructive" if tool.destructive else "not destructive"]),
        *([] if tool.open_world is None else ["open world" if tool.open_world else "closed world"]),
        *(["structured results"] if tool.output_schema else []),
    ]
    return f"{f'{tool.title}: ' if tool.title else ''}{', '.join(words) or 'no hints'}"


async def list_servers(options: Options, *, as_json: bool) -> int:
    """Print the servers and their states, as lines or as JSON."""
    settings = await read_settings(options)
    async with open_client(options, settings, None, None) as dial:
        await dial.ready()
        if as_json:
            config = describe_sources(settings.sources)
            print(json.dumps([{**status.to_dict(), "config": config} for status in dial.servers.values()], indent=2))
        else:
            warn(f"configuration: {describe_sources(settings.sources)}")
            for status in dial.servers.values():
                error = status.error or ""
                own = (*status.notes, *(line for line in status.stderr if error and line.strip() not in error))
                print_lines([_format_status(status), *(f"    {to_one_line(line, 200)}" for line in own)])
    return ExitCode.ANSWERED


def _format_status(status: ServerStatus) -> str:
    name = to_one_line(status.name, 60)
    if status.error and status.state is not ServerState.READY:
        return f"{name}: {status.state.value}: {to_one_line(status.error, 600)}"
    version = f", MCP {status.protocol_version}" if status.protocol_version else ""
    return f"{name}: {status.state.value}{version}, {count_noun(len(status.tools), 'tool')}"


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a call, typed as JSON.

    Raises:
        ConfigError: The text is not a JSON object.
    """
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the arguments are not JSON: {error}", hint="""like '{"a": 1}'""") from None
    if not isinstance(parsed, dict):
        raise ConfigError("the arguments are not a JSON object", hint="""like '{"a": 1}'""")
    return parsed


async def call_tool(options: Options, name: str, arguments: str, *, as_json: bool) -> int:
    """Call a tool and print its result.

    Raises:
        ConfigError: The arguments are not a JSON object, or there is no such tool.
    """
    call_arguments = parse_arguments(arguments)
    options = replace(options, yes=True)
    callbacks = elicitation_prompt.build_callbacks(options, TerminalSink())
    async with open_client(options, await read_settings(options), None, None, callbacks) as dial:
        await dial.ready()
        print_notes(dial.notes)
        result = await dial.call(name, call_arguments)
    if result.failure is Failure.UNKNOWN_TOOL:
        raise ConfigError(result.error or "unknown tool", hint="`dial-chat tools` lists them")
    print(json.dumps(result.to_dict(), indent=2) if as_json else format_result(result))
    return ExitCode.ANSWERED if result.success else ExitCode.UNEXPECTED


def format_result(result: ToolCallResult) -> str:
    """Return the content of a result as text that is safe in a terminal."""
    if isinstance(result.content, str):
        return sanitize(result.content)
    lines = [part.text if isinstance(part, TextPart) else f"[{describe(part)}]" for part in result.content]
    return sanitize("\n".join(lines))


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
        print_notes(dial.notes)
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
