"""The command ``call``: the tool that is named, its arguments, and the call without a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dial_client.cli.approval import elicitation_prompt
from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.servers.server_features import find_server, format_result
from dial_client.cli.streams.error_stream import print_notes
from dial_client.cli.terminal.command_screen import PlainScreen
from dial_client.client.client_setup import CACHE, open_cache
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.messages.message import ToolSpec
from dial_client.runtime.text import find_nearest_by_words
from dial_client.schema.tool_arguments import coerce
from dial_client.servers.server_cache import ServerCache
from dial_client.settings.config_types import Settings
from dial_client.sinks.terminal import TerminalSink
from dial_client.tools.catalog import assign_names

_EXAMPLES = """like timezone=Asia/Tokyo, or '{"timezone": "Asia/Tokyo"}'"""


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


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call: one JSON object, or ``key=value`` for each argument.

    A value becomes the type of its property in the schema: a number, a boolean, or JSON for a list or an object. A key
    that is given several times becomes a list. ``key=@FILE`` is the text of a file, and ``key=@@x`` the text ``@x``.

    Args:
        words: The words of the command line.
        schema: The JSON Schema of the arguments.

    Raises:
        ConfigError: The words have another form, or a file cannot be read.
    """
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return parse_arguments(words[0])
    values: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{word!r} is not an argument", _EXAMPLES)
        values.setdefault(key, []).append(_read_value(value))
    given = {key: found[0] if len(found) == 1 else found for key, found in values.items()}
    return coerce(given, schema, are_texts=True)


def _read_value(value: str) -> str:
    if not value.startswith("@") or value.startswith("@@"):
        return value.removeprefix("@")
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = describe_system_error(error, "this is not text in UTF-8")
        raise ConfigError(f"{value[1:]} cannot be read: {reason}", f"the text {value!r} is written @{value}") from None


async def call_tool(options: Options, name: str, words: Sequence[str], *, as_json: bool) -> int:
    """Call a tool and print its result. Only the server of the tool is started, if it is known.

    Args:
        options: The options of the command line.
        name: ``SERVER/TOOL``, or the name under which the tool is offered to models.
        words: The arguments, as `read_arguments` reads them.
        as_json: Print the result as JSON.

    Raises:
        ConfigError: There is no such tool, or the arguments have another form.
    """
    read_arguments(words, {})  # a mistake in them is reported before a server starts
    server, slash, tool = name.partition("/")
    settings = await read_settings(options, only_server=server if slash else None)
    if not slash:
        server, tool = _find_cached_tool(settings, name) or ("", name)
    if server:
        settings = replace(settings, servers={server: find_server(settings.servers, server)})
    # Nobody's context limits what a person, or a program of theirs, asked for.
    settings = replace(settings, limits={**settings.limits, "max_result_chars": sys.maxsize})
    callbacks = elicitation_prompt.build_callbacks(options, TerminalSink(), PlainScreen())
    async with open_client(replace(options, yes=True), settings, None, None, callbacks) as dial:
        await dial.ready()
        print_notes(dial.notes)
        spec = _find_tool(dial, server, tool)
        result = await dial.call(spec.name, read_arguments(words, spec.input_schema))
    print(json.dumps(result.to_dict(), indent=2) if as_json else format_result(result))
    return ExitCode.ANSWERED if result.success else ExitCode.UNEXPECTED


def _find_cached_tool(settings: Settings, name: str) -> tuple[str, str] | None:
    """Return server and tool of the name under which a tool was offered at the last run; None if it is not known."""
    cache = open_cache(True, CACHE)  # noqa: FBT003 - the user's own
    keys = [
        (server, tool.name)
        for server, entry in settings.servers.items()
        if entry.enabled
        for tool in ServerCache(entry, cache).read_tools() or ()
    ]
    return next((key for key, offered in assign_names(keys).items() if offered == name), None)


def _find_tool(dial: DialClient, server: str, name: str) -> ToolSpec:
    for tool in dial.tools:
        if tool.tool == name and server in ("", tool.server):
            return tool
    if not server and (offered := next((tool for tool in dial.tools if tool.name == name), None)) is not None:
        return offered
    known = {tool.tool: f"{tool.server}/{tool.tool}" for tool in dial.tools}
    nearest = find_nearest_by_words(name, known)
    failed = [status.name for status in dial.servers.values() if status.error]
    hint = f'did you mean "{known[nearest]}"?' if nearest else f"`dial-chat tools` lists the tools of {server or 'all'}"
    if failed and not nearest:
        hint = f"{', '.join(failed)} did not start: dial-chat servers test {failed[0]}"
    raise ConfigError(f"there is no tool {name!r}{f' of {server}' if server else ''}", hint)
