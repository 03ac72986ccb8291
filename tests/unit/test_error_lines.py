"""The line that explains an error is selected from the output of a program or a tool."""

from __future__ import annotations

import pytest

from tests.inner import find_error_line, summarize_error

NODE_CAUSE = """node:internal/deps/undici/undici:14976
      Error.captureStackTrace(err);
            ^

TypeError: fetch failed
    at node:internal/deps/undici/undici:14976:13
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5) {
  [cause]: Error: getaddrinfo ENOTFOUND nothing.invalid
      at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {
    errno: -3008,
    code: 'ENOTFOUND',
    hostname: 'nothing.invalid'
  }
}

Node.js v20.20.2
"""
NODE_EVENT = """node:events:502
      throw er; // Unhandled 'error' event
      ^

Error: connect ECONNREFUSED 127.0.0.1:1
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1611:16)
Emitted 'error' event on Socket instance at:
    at emitErrorNT (node:internal/streams/destroy:169:8)
    at process.processTicksAndRejections (node:internal/process/task_queues:82:21) {
  errno: -111,
  code: 'ECONNREFUSED',
  port: 1
}

Node.js v20.20.2
"""
NODE_MODULE = """node:internal/modules/esm/resolve:873
  throw new ERR_MODULE_NOT_FOUND(packageName, fileURLToPath(base), null);
        ^

Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /srv/main.mjs
    at packageResolve (node:internal/modules/esm/resolve:873:9)
    at #cachedDefaultResolve (node:internal/modules/esm/loader:657:25) {
  code: 'ERR_MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
NODE_MANY = """AggregateError [ECONNREFUSED]:
    at internalConnectMultiple (node:net:1122:18) {
  code: 'ECONNREFUSED',
  [errors]: [
    Error: connect ECONNREFUSED ::1:5432
        at createConnectionError (node:net:1652:14) {
      errno: -111,
      address: '::1',
      port: 5432
    }
  ]
}

Node.js v22.1.0
"""
NPM = """npm warn Unknown user config "nodedir".
npm error code E404
npm error 404 Not Found - GET https://registry.test/@x%2fserver
npm error 404
npm error 404  The requested resource '@x/server@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/debug-0.log
"""
NPM_OFFLINE = """npm error code ENOTFOUND
npm error syscall getaddrinfo
npm error errno ENOTFOUND
npm error network request to https://registry.test/x failed, reason: getaddrinfo ENOTFOUND
npm error network This is a problem related to network connectivity.
"""
PYTHON_GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "<stdin>", line 5, in <module>
  |     raise BaseExceptionGroup(
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "main.py", line 327, in _run_coro
    |     retval = await self._coro
    |              ^^^^^^^^^^^^^^^^
    | ValueError: no API key
    +------------------------------------
"""
PYTHON_FIELD = """Traceback (most recent call last):
  File "main.py", line 4, in <module>
    Settings()
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/missing
"""
PYTHON_ODD_NAME = """Traceback (most recent call last):
  File "main.py", line 4, in <module>
    connect()
psycopg.errors.UndefinedTable: relation "notes" does not exist
"""
PYTHON_LOG = """INFO:     Started server process [3]
ERROR:    [Errno 98] error while binding to ('127.0.0.1', 80): address already in use
INFO:     Waiting for application shutdown.
INFO:     Application shutdown complete.
"""
UV_RESOLUTION = """  \u00d7 No solution found when resolving tool dependencies:
  ╰─▶ Because mcp-server-nothing was not found in the package registry and you
      require mcp-server-nothing, we can conclude that your requirements are
      unsatisfiable.
"""
UV_NETWORK = """error: Failed to fetch: `https://registry.test/simple/mcp-server-time/`
  Caused by: Request failed after 3 retries
  Caused by: error sending request for url (https://registry.test/simple/mcp-server-time/)
  Caused by: dns error: failed to lookup address information
"""
DOCKER = """docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?

Run 'docker run --help' for more information
"""
DOCKER_PULL = """Unable to find image 'mcp/nothing:latest' locally
docker: Error response from daemon: pull access denied for mcp/nothing, repository does not exist

See 'docker run --help'.
"""
TYPER = """Usage: server [OPTIONS] DIR
Try 'server --help' for help.
╭─ Error ───────────────────╮
│ Missing argument 'DIR'.   │
╰───────────────────────────╯
"""
GO = """panic: no token

goroutine 1 [running]:
main.main()
\t/src/main.go:5 +0x27
exit status 2
"""
RUST = """thread 'main' panicked at src/main.rs:2:5:
the key is missing
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
JAVA = """Exception in thread "main" java.lang.IllegalStateException: cannot start
\tat com.example.Main.main(Main.java:7)
Caused by: java.net.ConnectException: Connection refused
\t... 5 more
"""
ELIXIR = """** (RuntimeError) there is no API token
    server.exs:4: Server.start/0
    (elixir 1.17.2) src/elixir_compiler.erl:77: :elixir_compiler.dispatch/4
"""
ARGPARSE = """usage: server [-h] --directory DIRECTORY
server: error: the following arguments are required: --directory
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NODE_CAUSE, "Error: getaddrinfo ENOTFOUND nothing.invalid"),
        (NODE_EVENT, "Error: connect ECONNREFUSED 127.0.0.1:1"),
        (NODE_MODULE, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /srv/main.mjs"),
        (NODE_MANY, "Error: connect ECONNREFUSED ::1:5432"),
        (NPM, "npm error 404 Not Found - GET https://registry.test/@x%2fserver"),
        (NPM_OFFLINE, ("npm error network request to https://registry.test/x failed, reason: getaddrinfo ENOTFOUND")),
        (PYTHON_GROUP, "ValueError: no API key"),
        (
            PYTHON_FIELD,
            (
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings api_key "
                "Field required [type=missing, input_value={}, input_type=dict]"
            ),
        ),
        (PYTHON_ODD_NAME, 'psycopg.errors.UndefinedTable: relation "notes" does not exist'),
        (PYTHON_LOG, ("ERROR:    [Errno 98] error while binding to ('127.0.0.1', 80): address already in use")),
        (
            UV_RESOLUTION,
            (
                "No solution found when resolving tool dependencies: Because mcp-server-nothing was not found in the "
                "package registry and you require mcp-server-nothing, we can conclude that your "
                "requirements are unsatisfiable."
            ),
        ),
        (UV_NETWORK, "Caused by: dns error: failed to lookup address information"),
        (DOCKER, ("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?")),
        (
            DOCKER_PULL,
            ("docker: Error response from daemon: pull access denied for mcp/nothing, repository does not exist"),
        ),
        (TYPER, "Missing argument 'DIR'."),
        (GO, "panic: no token"),
        (RUST, "thread 'main' panicked at src/main.rs:2:5: the key is missing"),
        (JAVA, "Caused by: java.net.ConnectException: Connection refused"),
        (ELIXIR, "** (RuntimeError) there is no API token"),
        (ARGPARSE, "server: error: the following arguments are required: --directory"),
        ("Listening on standard input\nwaiting for the network\n", "waiting for the network"),
        ("}\n", "}"),
        ("", ""),
    ],
)
def test_the_reason_is_the_line_that_names_the_error(text: str, reason: str) -> None:
    assert find_error_line([line.rstrip() for line in text.splitlines() if line.strip()]) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("### Error\nThe page has no button 'Send'", "The page has no button 'Send'"),
        ("# Error\n\n```\nTimeout 5000ms exceeded.\n```", "Timeout 5000ms exceeded."),
        ("Validation failed:\n- name is required\n- age is required", "Validation failed: - name is required"),
        ("## Result\nErrors:\nQuery:\nno such table\nmore", "Errors: Query: no such table"),
        ("### Error", "Error"),
        ("Not found\nsecond line", "Not found"),
        ("Failed:", "Failed:"),
        ("", ""),
    ],
)
def test_the_error_of_a_tool_is_the_line_with_content(text: str, reason: str) -> None:
    assert summarize_error(text) == reason
