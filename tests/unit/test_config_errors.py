"""Each mistake in a configuration is described, with its place."""

from __future__ import annotations

import pytest

from tests.inner import ConfigError, read_server_mapping
from tests.support.config_files import HERE, RUN, error_of, in_a_file, server

ENTRY_ERRORS = [
    ("⟦3", "time: expected an object, found a number", ""),
    ("⟦null", "time: expected an object, found null", ""),
    ('⟦"npx"', "time: expected an object, found a string", ""),
    ('{"command": ⟦3}', "time.command: expected a string, found a number", "double quotes"),
    ('{"command": ⟦["npx", "-y"]}', "time.command: expected a string, found a list", ""),
    ('{"command": ⟦""}', "time.command: expected the name or the path of a program", ""),
    (r'{"command": ⟦"C:\\x\node.exe"}', "time.command: expected the name", r"written \\"),
    ('{"command": ⟦"${E}"}', "time.command: expected the name or the path of a program", ""),
    ('{"command": ⟦"a\\u0000b"}', "time.command: a NUL character is not allowed", ""),
    ('{"command": "x", "args": ["a", ⟦8080]}', "time.args[1]: expected a string, found a number", "double quotes"),
    ('{"command": "x", "args": ⟦"a b"}', "time.args: expected a list, found a string", ""),
    ('{"command": "x", "args": [⟦"\\u0000"]}', "time.args[0]: a NUL character is not allowed", ""),
    ('{"command": "x", "env": ⟦["A=1"]}', "time.env: expected an object, found a list", ""),
    ('{"command": "x", "env": {"A": ⟦["x"]}}', "time.env.A: expected a string, found a list", ""),
    ('{"command": "x", "env": {"A": ⟦"\\u0000"}}', "time.env.A: a NUL character", ""),
    ('{"command": "x", "env": {⟦"A=B": "x"}}', "time.env['A=B']: expected the name of a variable", ""),
    ('{"command": "x", "env": {⟦"": "x"}}', "time.env['']: expected the name of a variable", ""),
    ('{"command": "x", "cwd": ⟦1}', "time.cwd: expected a string", ""),
    ('{"command": "x", ⟦"url": "http://h"}', "time.url: must not be combined with command", "not both"),
    ('⟦{"args": []}', "time: neither command nor url is present", 'a program ("command") or a URL ("url")'),
    ('⟦{"serverUrl": "x"}', "time: neither command nor url is present", 'write "url" in place of "serverUrl"'),
    ('⟦{"comand": "x"}', "time: neither command nor url is present", 'did you mean "command"?'),
    ('{"type": ⟦"http", "command": "x"}', "time.type: this type needs url", "leave the type out"),
    ('{"type": ⟦"stdio", "url": "http://h"}', "time.type: this type needs command", "leave the type out"),
    ('{"type": ⟦"ws", "url": "http://h"}', 'time.type: expected one of "stdio", "http", "sse"', ""),
    ('{"transport": ⟦"streamhttp", "url": "http://h"}', "time.transport: expected one of", '"streamable-http"?'),
    ('{"type": "http", ⟦"transport": "sse", "url": "http://h"}', "time.transport: contradicts type", ""),
    ('{"url": ⟦"ftp://h"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"unix:///run/x"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"localhost:8000/mcp"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http:///mcp"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://h:port/"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://[::1/"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://h/a b"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://h/${LINES}"}', "time.url: expected an http:// or https:// address", ""),
    ('{"httpUrl": ⟦"x"}', "time.httpUrl: expected an http:// or https:// address", ""),
    (
        '{"url": "http://h", "headers": {"A": ⟦"${LINES}"}}',
        "time.headers.A: expected one line",
        "end with a line break?",
    ),
    (
        '{"url": "http://h", "headers": {"A": ⟦"a\\r\\nB: c"}}',
        "time.headers.A: expected one line of printable ASCII",
        "",
    ),
    ('{"url": "http://h", "headers": {"A": ⟦"é"}}', "time.headers.A: expected one line of printable ASCII", ""),
    ('{"url": "http://h", "headers": {⟦"A b": "c"}}', "time.headers['A b']: expected the name of a header", ""),
    ('{"url": "http://h", "headers": {⟦"A\\n": "c"}}', "time.headers['A\\n']: expected the name of a header", ""),
    ('{"command": "x", "disabled": ⟦"true"}', "time.disabled: expected true or false, found a string", ""),
    ('{"command": "x", "enabled": true, ⟦"disabled": true}', "time.disabled: contradicts enabled", ""),
    ('{"command": "x", "autoApprove": ⟦"*"}', "time.autoApprove: expected a list, found a string", ""),
    ('{"command": "x", "alwaysAllow": [⟦1]}', "time.alwaysAllow[0]: expected a string", ""),
    ('{"command": "x", "autoApprove": [], ⟦"alwaysAllow": ["a"]}', "time.alwaysAllow: contradicts", "keep one"),
    ('{"command": "x", "includeTools": ⟦true}', "time.includeTools: expected a list, found true or false", ""),
    ('{"command": "x", "startupTimeout": ⟦-1}', "time.startupTimeout: expected a number that is not negative", ""),
    ('{"command": "x", "startupTimeout": ⟦0}', "time.startupTimeout: expected a number greater than 0", ""),
    ('{"command": "x", "toolTimeout": ⟦true}', "time.toolTimeout: expected a finite number, found true or false", ""),
    ('{"command": "x", "toolTimeout": ⟦"60"}', "time.toolTimeout: expected a finite number, found a string", ""),
    (
        '{"command": "x", "backgroundAfter": {"a": ⟦-1}}',
        "time.backgroundAfter.a: expected a number that is not negative",
        "",
    ),
    ('{"command": "x", "backgroundAfter": ⟦"1"}', "time.backgroundAfter: expected a finite number, found a string", ""),
    ('{"command": "x", "timeout": ⟦-5}', "time.timeout: expected a number that is not negative", ""),
    (
        '{"command": "x", "protocol": ⟦"2025-11-25"}',
        'time.protocol: expected one of "auto", "legacy", "2026-07-28"',
        "",
    ),
    ('{"command": "x", "resources": ⟦"model"}', 'time.resources: expected one of "user", "tools"', ""),
    ('{"command": "x", "protocol": ⟦"legasy"}', "time.protocol: expected one of", 'did you mean "legacy"?'),
    ('{"command": "x", "required": ⟦1}', "time.required: expected true or false, found a number", ""),
    ('{"command": "x", "trusted": ⟦[]}', "time.trusted: expected true or false, found a list", ""),
    ('{"command": "x", "args": [⟦"${TOKEN}"]}', "time.args[0]: the variable TOKEN is not set", "${TOKEN:-…}"),
    ('{"command": ⟦"${env:TOKEN}"}', "time.command: the variable TOKEN is not set", "${TOKEN:-…}"),
    ('{"command": "x", "env": {"A": ⟦"${TOKEN}"}}', "time.env.A: the variable TOKEN is not set", ""),
    ('{"command": "x", "cwd": ⟦"${TOKEN}"}', "time.cwd: the variable TOKEN is not set", ""),
    ('{"command": "x", "envFile": ⟦"${TOKEN}"}', "time.envFile: the variable TOKEN is not set", ""),
    ('{"url": ⟦"http://${TOKEN}"}', "time.url: the variable TOKEN is not set", ""),
    ('{"url": "http://h", "headers": {"A": ⟦"${TOKEN}"}}', "time.headers.A: the variable TOKEN is not set", ""),
    ('{"command": "x", "args": [⟦"${input:token}"]}', "time.args[0]: ${input:…} is not supported", "write ${NAME}"),
    ('{"command": "x", "args": [⟦"${command:pick}"]}', "time.args[0]: unknown variable syntax", "${VAR:-default}"),
    ('{"command": "x", "args": [⟦"${}"]}', "time.args[0]: unknown variable syntax", "${VAR:-default}"),
    ('{"command": "x", "args": [⟦"${:-x}"]}', "time.args[0]: unknown variable syntax", ""),
    ('{"command": "x", "args": [⟦"${TOKEN"]}', "time.args[0]: unknown variable syntax", ""),
    ('{"command": "x", "args": [⟦"${A:-${E}}"]}', "time.args[0]: unknown variable syntax", "without nesting"),
    ('{"command": "x", "args": [⟦"${a\\u001bb}"]}', "time.args[0]: unknown variable syntax", ""),
]


@pytest.mark.parametrize(("entry", "problem", "hint"), ENTRY_ERRORS)
def test_a_mistake_in_a_server_entry_is_reported_with_its_place(entry: str, problem: str, hint: str) -> None:
    marked = entry if not entry.startswith(HERE + "{") else entry.removeprefix(HERE)
    text = in_a_file(marked)
    if marked is not entry:  # the error is about the whole entry: it points to the name
        text = text.replace('"time"', f'{HERE}"time"')
    error = error_of(text, {"E": "", "A": "", "LINES": "a\nb"})
    assert error.problem.startswith("mcpServers." + problem)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("⟦[]", "expected an object, found a list", ""),
        ("⟦3", "expected an object, found a number", ""),
        ('{"mcpServers": ⟦[]}', "mcpServers: expected an object, found a list", ""),
        ('{"mcpServers": {}, ⟦"servers": {}}', "servers: must not be combined with mcpServers", "keep one of the two"),
        ('{"mcpServers": {⟦"": {"command": "x"}}}', "mcpServers['']: expected a name of printable characters", ""),
        ('{"mcpServers": {⟦" ": {"command": "x"}}}', "mcpServers[' ']: expected a name of printable characters", ""),
        ('{"mcpServers": {⟦"a\\u001b[0m": {"command": "x"}}}', "mcpServers['a\\x1b[0m']: expected a name", ""),
        ('{"mcpServers": {"a": {"command": "x"},\n ⟦"a": {}}}', "the key 'a' occurs twice in one object", "line 1"),
        ('{⟦"mcpServer": {"a": {"command": "x"}}}', "mcpServer: neither command nor url", 'did you mean "mcpServers"?'),
        ('{"theme": ⟦"dark"}', "theme: expected a server's entry, found a string", 'under "mcpServers"'),
        ('{"defaultModl": ⟦"m"}', "defaultModl: expected a server's entry", 'did you mean "defaultModel"?'),
        ('{"defaultModel": ⟦3}', "defaultModel: expected a string, found a number", ""),
        ('{"defaultModel": ⟦"${NO}"}', "defaultModel: the variable NO is not set", ""),
        ('{"models": ⟦[]}', "models: expected an object, found a list", ""),
        ('{"models": {⟦"": {}}}', "models['']: expected a name", ""),
        ('{"models": {"m": ⟦"x"}}', "models.m: expected an object, found a string", ""),
        (
            '{"models": {"m": {"api": ⟦"respones"}}}',
            'models.m.api: expected one of "chat", "responses"',
            '"responses"?',
        ),
        ('{"models": {"m": {"api": ⟦null}}}'.replace("null", "3"), "models.m.api: expected one of", ""),
        ('{"models": {"m": {"base_url": ⟦"h/v1"}}}', "models.m.base_url: expected an http:// or https:// address", ""),
        ('{"models": {"m": {"base_url": ⟦"${NO}"}}}', "models.m.base_url: the variable NO is not set", "${NO:-…}"),
        ('{"models": {"m": {"api_key": ⟦"a\\nb"}}}', "models.m.api_key: expected one line", ""),
        ('{"models": {"m": {"api_key": ⟦"${NO}"}}}', "models.m.api_key: the variable NO is not set", ""),
        ('{"models": {"m": {"tool_format": ⟦"reakt"}}}', 'models.m.tool_format: expected one of "native"', '"react"?'),
        ('{"models": {"m": {"temperature": ⟦-1}}}', "models.m.temperature: expected a number that is not negative", ""),
        ('{"models": {"m": {"max_tokens": ⟦1.5}}}', "models.m.max_tokens: expected a whole number", ""),
        ('{"models": {"m": {"context_window": ⟦0}}}', "models.m.context_window: expected a number greater than 0", ""),
        (
            '{"models": {"m": {⟦"echo_reasonin": "none"}}}',
            "models.m.echo_reasonin: unknown setting",
            '"echo_reasoning"?',
        ),
        ('{"models": {"m": {⟦"temprature": 1}}}', "models.m.temprature: unknown setting", '"temperature"?'),
        ('{"models": {"m": {⟦"frobnicate": 1}}}', "models.m.frobnicate: unknown setting of a model", ""),
        (
            '{"models": {"m": {"echo_reasoning": ⟦"tool_turn"}}}',
            'expected one of "none", "tool_turns"',
            '"tool_turns"?',
        ),
        ('{"models": {"m": {"tools": ⟦"react"}}}', 'models.m.tools: expected one of "native", "text"', ""),
        ('{"models": {"m": {"extra_body": ⟦[]}}}', "models.m.extra_body: expected an object, found a list", ""),
        ('{"models": {"m": {"headers": {"A": ⟦"a\\nb"}}}}', "models.m.headers.A: expected one line", ""),
        ('{"models": {"m": {"strict": ⟦"yes"}}}', "models.m.strict: expected true or false, found a string", ""),
        ('{"models": {"m": {"tool_name_len": ⟦true}}}', "models.m.tool_name_len: expected a finite number", ""),
        ('{"models": {"m": {"tool_name_re": ⟦"("}}}', "models.m.tool_name_re: expected a regular expression", ""),
        ('{"models": {"m": {"reasoning_in": ⟦"x"}}}', "models.m.reasoning_in: expected a list, found a string", ""),
        ('{"models": {"m": {"parallel": ⟦true}}}', 'models.m.parallel: expected one of "omit"', ""),
    ],
)
def test_a_mistake_outside_of_server_entries_is_reported_with_its_place(text: str, problem: str, hint: str) -> None:
    error = error_of(text)
    assert problem in error.problem
    assert hint in error.hint


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, True, "60", 10**400])
def test_a_timeout_set_in_python_is_checked_like_a_timeout_in_a_file(seconds: object) -> None:
    with pytest.raises(ConfigError, match=r"^time\.toolTimeout: expected"):
        server(RUN | {"toolTimeout": seconds})


def test_an_error_without_a_file_names_the_server_and_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        server({"command": "x", "args": [3]})
    assert str(caught.value) == "time.args[0]: expected a string, found a number (put it in double quotes)"
    with pytest.raises(ConfigError, match=r"^server: neither command nor url is present \(a server needs"):
        read_server_mapping("server", {})
