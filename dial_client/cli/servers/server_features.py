"""The commands ``tools``, ``resources``, ``prompts``, ``servers list`` and ``servers test``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from dial_client.cli.approval import elicitation_prompt
from dial_client.cli.load_settings import read_settings
from dial_client.cli.markdown.themes import StyleName
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.streams.error_stream import print_notes, warn
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.cli.terminal.command_screen import PlainScreen
from dial_client.cli.trust.configuration_files import describe_sources
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import TextPart, ToolCallResult, ToolSpec, describe
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun, suggest_name
from dial_client.servers.resources import Resource, ResourceTemplate
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings
from dial_client.sinks.terminal import TerminalSink
from dial_client.tools.prompts import Prompt


async def list_tools(options: Options, *, as_json: bool) -> None:
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


async def list_servers(options: Options, *, as_json: bool) -> None:
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
                kind: StyleName = "success" if status.state is ServerState.READY else "failure" if error else "faint"
                first = _format_status(status, count_tools(dial, status))
                lines = [first, *(f"    {to_one_line(line, 200)}" for line in own)]
                print_lines(lines, styles={f": {status.state.value}": kind})


def count_tools(dial: DialClient, status: ServerStatus) -> str:
    """Return the number of tools of a server that the model is offered, and of those that it is not, in words."""
    offered = sum(tool.server == status.name for tool in dial.tools)
    left_out = len(status.tools) - offered
    return f"{count_noun(offered, 'tool')}{f' ({left_out:,} not offered)' if left_out > 0 else ''}"


def _format_status(status: ServerStatus, tools: str) -> str:
    name = to_one_line(status.name, 60)
    if status.error and status.state is not ServerState.READY:
        return f"{name}: {status.state.value}: {to_one_line(status.error, 600)}"
    version = f", MCP {status.protocol_version}" if status.protocol_version else ""
    return f"{name}: {status.state.value}{version}, {tools}"


def format_result(result: ToolCallResult) -> str:
    """Return the content of a result as text that is safe in a terminal."""
    if isinstance(result.content, str):
        return sanitize(result.content)
    lines = [part.text if isinstance(part, TextPart) else f"[{describe(part)}]" for part in result.content]
    return sanitize("\n".join(lines))


Item = Resource | ResourceTemplate | Prompt
_MAX_NAME = 300
_MAX_DESCRIPTION = 120


async def list_resources_or_prompts(options: Options, what: str, *, as_json: bool) -> None:
    """Print the resources and templates, or the prompts: one per line, as a question refers to them, or as JSON.

    Args:
        options: The options, which select the configuration.
        what: ``resources`` or ``prompts``.
        as_json: Print JSON in place of lines.
    """
    callbacks = elicitation_prompt.build_callbacks(options, TerminalSink(), PlainScreen())
    async with open_client(options, await read_settings(options), None, None, callbacks) as dial:
        await dial.ready()
        print_notes(dial.notes)
        found = await _list_items(dial, what)
        if as_json:
            print(json.dumps([item.to_dict() for item in found], indent=2))
        else:
            _print(found)


async def show(dial: DialClient, what: str) -> None:
    """Print the resources or the prompts of an open client, or that there are none."""
    if found := await _list_items(dial, what):
        _print(found)
    else:
        print(f"The servers have no {what}.")


async def _list_items(dial: DialClient, what: str) -> Sequence[Item]:
    if what == "prompts":
        return await dial.prompts.list()
    return (*await dial.resources.list(), *await dial.resources.templates())


def _print(found: Iterable[Item]) -> None:
    lines = [(_format_reference(item), _format_description(item)) for item in found]
    width = min(60, max((len(name) for name, _ in lines), default=0))
    print_lines(f"{name:<{width}}  {about}".rstrip() for name, about in lines)


def _format_reference(item: Item) -> str:
    match item:
        case Resource():
            reference = f"@{item.server}:{item.uri}"
        case ResourceTemplate():
            reference = f"@{item.server}:{item.uri_template}"
        case Prompt():
            arguments = (f"{a.name}=…" if a.required else f"[{a.name}=…]" for a in item.arguments)
            reference = " ".join((f"/{item.server}:{item.name}", *arguments))
    return to_one_line(reference, _MAX_NAME)


def _format_description(item: Item) -> str:
    name = item.title or ("" if isinstance(item, Prompt) else item.name)
    kind = "" if isinstance(item, Prompt) else item.mime_type or ""
    size = f"{item.size:,} bytes" if isinstance(item, Resource) and item.size is not None else ""
    head = ", ".join(part for part in (sanitize(name), kind, size) if part)
    return to_one_line(": ".join(part for part in (head, item.description) if part), _MAX_DESCRIPTION)


T = TypeVar("T")
_WIDTH = 100


@dataclass(slots=True)
class ServerCheck:
    """The result of the test of a server. Times are in seconds."""

    status: ServerStatus
    seconds: dict[str, float] = field(default_factory=dict)
    """The duration of each step: ``start`` (with the list of tools), ``resources``, ``prompts``, ``call``."""
    tools: tuple[ToolSpec, ...] = ()
    resources: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    called: str | None = None
    """The name of the tool that was called; None if none was."""
    result: ToolCallResult | None = None

    @property
    def is_good(self) -> bool:
        """True if the server is ready, and its tool, if one was called, did not fail."""
        return self.status.state is ServerState.READY and (self.result is None or self.result.success)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON types."""
        return {
            **self.status.to_dict(),
            "seconds": {step: round(seconds, 3) for step, seconds in self.seconds.items()},
            "resources": list(self.resources),
            "prompts": list(self.prompts),
            "called": self.called,
            "result": self.result.to_dict() if self.result is not None else None,
        }


async def check_server(options: Options, name: str, *, with_call: bool, as_json: bool) -> int:
    """Start a server, and print its tools, resources and prompts with times; return 1 if it does not work, else 0.

    Args:
        options: The options, which select the configuration.
        name: The name of the server.
        with_call: Call a tool that only reads and needs no arguments, if there is one.
        as_json: Print JSON in place of lines.

    Raises:
        ConfigError: There is no such server, or it is disabled.
    """
    settings = await read_settings(options, only_server=name)
    server = find_server(settings.servers, name)
    single_server = replace(settings, servers={name: replace(server, lazy=False, required=False)})
    callbacks = elicitation_prompt.build_callbacks(options, TerminalSink(), PlainScreen())
    began = perf_counter()
    async with open_client(replace(options, yes=True), single_server, None, None, callbacks) as dial:
        await dial.ready()
        check = ServerCheck(dial.servers[name], {"start": perf_counter() - began}, dial.tools)
        if check.status.state is ServerState.READY:
            resources = await _measure_step(check, "resources", dial.resources.list)
            templates = await dial.resources.templates()
            check.resources = (*(found.uri for found in resources), *(found.uri_template for found in templates))
            check.prompts = tuple(prompt.name for prompt in await _measure_step(check, "prompts", dial.prompts.list))
            tool = find_harmless_tool(check.tools) if with_call else None
            if tool is not None:
                check.called = tool.tool
                check.result = await _measure_step(check, "call", partial(dial.call, tool.name, {}))
            check.status = dial.servers[name]
    if as_json:
        print(json.dumps(check.to_dict(), indent=2))
    else:
        print_lines(_format_lines(check, with_call=with_call))
    return ExitCode.ANSWERED if check.is_good else ExitCode.UNEXPECTED


def find_server(servers: Mapping[str, ServerSettings], name: str) -> ServerSettings:
    """Return the settings of a server.

    Raises:
        ConfigError: There is no such server, or it is disabled.
    """
    server = servers.get(name)
    if server is None:
        raise ConfigError(f"there is no server {name!r}", suggest_name(name, servers))
    if not server.enabled:
        raise ConfigError(f"the server {name!r} is disabled", f"dial-chat servers enable {name}")
    return server


def find_harmless_tool(tools: tuple[ToolSpec, ...]) -> ToolSpec | None:
    """Return the first tool that is declared read-only and needs no arguments; None if there is none."""
    return next((tool for tool in tools if tool.read_only and not tool.input_schema.get("required")), None)


async def _measure_step(check: ServerCheck, step: str, request: Callable[[], Awaitable[T]]) -> T:
    began = perf_counter()
    result = await request()
    check.seconds[step] = perf_counter() - began
    return result


def _format_lines(check: ServerCheck, *, with_call: bool) -> Iterator[str]:
    status, name = check.status, to_one_line(check.status.name, 60)
    seconds = {step: f"{value:.2f} s" for step, value in check.seconds.items()}
    if status.state is not ServerState.READY:
        yield f"{name}: {status.state.value} after {seconds['start']}: {to_one_line(status.error or 'no reason', 600)}"
    else:
        program = to_one_line(" ".join(filter(None, (status.server_name, status.server_version))), 80)
        yield f"{name}: ready in {seconds['start']}, MCP {status.protocol_version}" + (
            f", {program}" if program else ""
        )
        yield _format_count(len(check.tools), "tool")
        width = min(40, max((len(tool.tool) for tool in check.tools), default=0))
        for tool in check.tools:
            yield f"  {to_one_line(tool.tool, width):<{width}}  {to_one_line(tool.description, _WIDTH)}".rstrip()
        for kind, found in (("resource", check.resources), ("prompt", check.prompts)):
            listed = to_one_line(", ".join(found), _WIDTH)
            yield f"{_format_count(len(found), kind)} in {seconds[f'{kind}s']}{f': {listed}' if found else ''}"
        yield from _format_call(check, seconds, with_call=with_call)
    for title, lines in (("notes", status.notes), ("standard error", status.stderr)):
        if lines:
            yield f"{title}:"
            yield from (f"  {to_one_line(line, 200)}" for line in lines)


def _format_call(check: ServerCheck, seconds: dict[str, str], *, with_call: bool) -> Iterator[str]:
    if check.result is None:
        reason = "no tool is both declared read-only and callable without arguments"
        yield f"no tool was called: {reason if with_call else '--no-call was given'}"
        return
    outcome = "answered" if check.result.success else "failed"
    text = to_one_line(format_result(check.result) if check.result.success else check.result.error or "", _WIDTH)
    yield f"{to_one_line(check.called or '', 60)} was called, and {outcome} in {seconds['call']}: {text}"


def _format_count(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'s' * (count != 1)}"
