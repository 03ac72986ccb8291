"""Run the official suite's server scenarios against `/mcp` of dial-chat serve: ``python -m tests.conformance.gateway``.

Behind the gateway is `features.py`. The suite asks for its own names of tools and URIs, and the gateway adds the name
of the server: an HTTP proxy between the two adds and removes that name, and passes everything else on.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.conformance.__main__ import COMPILED, HERE, REVISIONS, ROOT, SUITE, node
from tests.support.program import environment, python_server, start_dial_chat, write_config

SERVER = "f"  # the longest name of the suite leaves no room for more
NAMES = (f"{SERVER}__".encode(), f"dial+{SERVER}:".encode())
TOKEN = "token-of-the-conformance-suite"
REVISION_SECONDS = 900
# Headers that belong to one connection.
HOP = {"content-length", "transfer-encoding", "connection", "date", "server", "accept-encoding"}


def add_names(body: bytes) -> bytes:
    """Return a request with the names and URIs of the gateway."""
    try:
        message = json.loads(body)
    except ValueError:
        return body
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict):
        return body
    reference: dict[str, Any] = params["ref"] if isinstance(params.get("ref"), dict) else params
    method = message.get("method")
    if method in ("tools/call", "prompts/get", "completion/complete") and isinstance(reference.get("name"), str):
        reference["name"] = f"{SERVER}__{reference['name']}"
    if isinstance(reference.get("uri"), str):
        reference["uri"] = f"dial+{SERVER}:{reference['uri']}"
    return json.dumps(message).encode()


def add_name(value: str) -> str:
    """Return a name or a URI of the suite as the gateway has it."""
    return f"dial+{SERVER}:{value}" if "://" in value else f"{SERVER}__{value}"


def build_proxy(url: str) -> Starlette:
    """Return the proxy of a gateway."""
    client = httpx2.AsyncClient(timeout=None)

    async def pass_on(request: Request) -> StreamingResponse:
        body = await request.body()
        # Headers name what the body names: also a wrong name of the suite gets the prefix of its kind.
        is_task = re.search(rb'"method":\s*"tasks/', body) is not None
        headers = [
            # Blanks around a value are no part of it (RFC 9110, 5.5), and httpx2 refuses to send them.
            (key, (add_name(value) if key == "mcp-name" and not is_task else value).strip(" \t"))
            for key, value in request.headers.items()
            if key not in HOP
        ]
        sent = client.build_request(
            request.method, url, headers=[*headers, ("authorization", f"Bearer {TOKEN}")], content=add_names(body)
        )
        answer = await client.send(sent, stream=True)

        async def read() -> AsyncGenerator[bytes]:
            try:
                async for chunk in answer.aiter_bytes():
                    yield re.sub(b"|".join(map(re.escape, NAMES)), b"", chunk)
            finally:
                await answer.aclose()

        kept = {key: value for key, value in answer.headers.items() if key not in {*HOP, "content-encoding"}}
        return StreamingResponse(read(), status_code=answer.status_code, headers=kept)

    return Starlette(routes=[Route("/mcp", pass_on, methods=["GET", "POST", "DELETE", "OPTIONS", "PUT"])])


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Run `dial-chat serve` with the server of the suite's features, and the proxy; yield the URL of the proxy."""
    server = python_server("tests.conformance.features", cwd=str(ROOT), autoApprove=["*"])
    write_config(folder, {SERVER: server}, ["unused"])
    variables = environment(folder, DIAL_SERVE_TOKEN=TOKEN)
    process = start_dial_chat(
        folder, "serve", "--port", "0", env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        threading.Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True).start()
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
            proxy = uvicorn.Server(uvicorn.Config(build_proxy(f"{url}/mcp"), log_level="error", lifespan="off"))
            thread = threading.Thread(target=proxy.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            proxy.should_exit = True
            thread.join(5)
    finally:
        process.terminate()
        process.wait(20)


def run(program: str, revision: str, *options: str) -> tuple[dict[str, bool], str]:
    """Return the scenarios of a revision, whether each passed, and the output of the suite."""
    with tempfile.TemporaryDirectory() as folder, gateway(Path(folder)) as url:
        chosen = options or ("--requirements", revision)
        argv = [program, "--no-deprecation", str(SUITE), "server", "--url", url, *chosen]
        done = subprocess.run(
            argv,
            capture_output=True,
            encoding="utf-8",
            check=False,
            env={**environment(Path(folder)), "NODE_COMPILE_CACHE": str(COMPILED)},
            timeout=REVISION_SECONDS,
        )
    output = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    summary = output.partition("SUMMARY ===")[2]
    return {name: mark == "✓" for mark, name in re.findall(r"^([✓✗]) (\S+): ", summary, re.MULTILINE)}, output


def check(program: str, revision: str, may_fail: set[str]) -> bool:
    """Run the scenarios of a revision, and print the outcome; return True if no other than the expected ones failed.

    A scenario that fails runs again by itself: the suite judges some scenarios by milliseconds.
    """
    outcomes, output = run(program, revision)
    if not outcomes:
        print("--- the suite ended without a summary:", *output.splitlines()[-25:], sep="\n    ")
    for name in sorted(name for name, is_good in outcomes.items() if not is_good and name not in may_fail):
        _, output = run(program, revision, "--scenario", name, "--spec-version", revision, "--force")
        outcomes[name] = re.search(r"Passed: (\d+)/\1, 0 failed", output) is not None
        if not outcomes[name]:
            lines = [line for line in output.splitlines() if "Error:" in line or "FAILURE" in line]
            print(f"--- {name} failed by itself:", *lines[:10], sep="\n    ")
    failed = {name for name, is_good in outcomes.items() if not is_good}
    for name in sorted(may_fail & outcomes.keys() - failed):
        print(f"--- {name} passed: take it off expected-failures-gateway.txt")
    known = ", ".join(sorted(failed & may_fail)) or "none"
    passed = len(outcomes) - len(failed)
    print(
        f"conformance of the gateway {revision}: {passed} of {len(outcomes)} passed; known to fail: {known}", flush=True
    )
    return bool(outcomes) and failed <= may_fail


def main(arguments: Sequence[str]) -> int:
    """Run the suite for the given revisions, or for all revisions."""
    program = node()
    if program is None or not SUITE.is_file():
        print("conformance of the gateway: not run, for want of the suite or of Node")
        return 0
    lines = (HERE / "expected-failures-gateway.txt").read_text(encoding="utf-8").splitlines()
    may_fail = {line.split()[0] for line in lines if line and not line.startswith("#")}
    results = [check(program, revision, may_fail) for revision in arguments or REVISIONS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
