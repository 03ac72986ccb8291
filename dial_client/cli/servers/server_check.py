"""The work of ``dial-chat servers test``: starts a server, lists its tools, and calls a harmless tool, with times."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar

from dial_client.cli import elicitation_prompt
from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.servers.server_features import format_result
from dial_client.cli.word_wrap import print_lines
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import ToolCallResult, ToolSpec
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import did_you_mean
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings
from dial_client.sinks.terminal import TerminalSink

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
    server = _find(settings.servers, name)
    single_server = replace(settings, servers={name: replace(server, lazy=False, required=False)})
    callbacks = elicitation_prompt.build_callbacks(options, TerminalSink())
    began = perf_counter()
    async with open_client(replace(options, yes=True), single_server, None, None, callbacks) as dial:
        await dial.ready()
        check = ServerCheck(dial.servers[name], {"start": perf_counter() - began}, dial.tools)
        if check.status.state is ServerState.READY:
            await _list_and_call(dial, check, with_call=with_call)
            check.status = dial.servers[name]
    if as_json:
        print(json.dumps(check.to_dict(), indent=2))
    else:
        print_lines(_format_lines(check, with_call=with_call))
    return ExitCode.ANSWERED if check.is_good else ExitCode.UNEXPECTED


def _find(servers: Any, name: str) -> ServerSettings:
    server = servers.get(name)
    if not isinstance(server, ServerSettings):
        hint = did_you_mean(name, servers) or f"there are {', '.join(servers) or 'none'}"
        raise ConfigError(f"there is no server {name!r}", hint)
    if not server.enabled:
        raise ConfigError(f"the server {name!r} is disabled", f"dial-chat servers enable {name}")
    return server


async def _list_and_call(dial: DialClient, check: ServerCheck, *, with_call: bool) -> None:
    resources = await _measure_step(check, "resources", dial.resources.list)
    templates = await dial.resources.templates()
    check.resources = (*(found.uri for found in resources), *(found.uri_template for found in templates))
    check.prompts = tuple(prompt.name for prompt in await _measure_step(check, "prompts", dial.prompts.list))
    tool = find_harmless_tool(check.tools) if with_call else None
    if tool is not None:
        check.called = tool.tool
        check.result = await _measure_step(check, "call", lambda: dial.call(tool.name, {}))


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
