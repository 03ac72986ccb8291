"""A server behind a login, and its authorization server, over real HTTP in this process; as odd as a test wants."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TOOLS = ("echo", "admin", "together")
WELL_KNOWN = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"


class Guarded(ThreadingHTTPServer):
    """The server; what is set on it changes what it does, and `seen` has the requests, oldest first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server_address[1]}"
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.tokens: dict[str, set[str]] = {}
        self.refreshable: set[str] = set()
        self.codes: dict[str, dict[str, str]] = {}
        self.metadata: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.redirected: dict[str, str] = {}
        self.answers: dict[str, tuple[int, str]] = {}
        self.challenge = ""
        self.expires_in: int | None = 3600
        self.endless: Callable[[int], str] | None = None
        self.together = threading.Barrier(2)
        self.count = 0
        self.forgets = False
        self.clients: set[str] = set()
        self.knows_nobody = False
        self.invalid_client_status = 401
        self.unknown_client_page: tuple[int, str] | None = None
        self.granted: dict[str, Any] = {}
        self.keeps_refresh_tokens = False
        self.nulls = False
        self.challenges = 0
        self.challenges_before_refresh = 0
        self.challenged = threading.Condition()
        self.says_token = False
        self.revoking = threading.Event()
        self.revoking.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients leave as they like."""

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def forms(self, path: str) -> list[dict[str, str]]:
        return [form for seen, form in self.seen if seen == path]

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}-{self.count}-secret"

    def grant(self, scope: str) -> dict[str, Any]:
        token, refresh = self.new("token"), self.new("refresh")
        self.tokens[token] = set(scope.split())
        self.refreshable.add(refresh)
        token_body = {"access_token": token, "token_type": "Bearer", "refresh_token": refresh, "scope": scope}
        return token_body | ({} if self.expires_in is None else {"expires_in": self.expires_in}) | self.granted

    def offer_revocation(self) -> None:
        self.metadata["revocation_endpoint"] = f"{self.base}/revoke"

    def revoke_tokens(self) -> None:
        """Revoke all access tokens. A refresh is answered when two requests with such a token have been refused."""
        self.tokens.clear()
        self.challenges, self.challenges_before_refresh = 0, 2

    def count_refreshes(self) -> int:
        return [form["grant_type"] for form in self.forms("/token")].count("refresh_token")

    def forget_clients(self) -> None:
        """Forget the registered clients, and their access tokens."""
        self.clients.clear()
        self.tokens.clear()

    def knows(self, client: str) -> bool:
        """Return True for a registered client, and for each that the user registered."""
        return not self.knows_nobody and (client in self.clients or not client.startswith("client-"))

    def build_metadata(self) -> dict[str, Any]:
        usual = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "code_challenge_methods_supported": ["S256"],
        }
        document = usual | self.metadata
        return {name: value for name, value in document.items() if value is not None or self.nulls}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Guarded

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name it has there)
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        form = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.server.seen.append((parts.path, form))
        if parts.path in self.server.answers:
            status, text = self.server.answers[parts.path]
            self.reply(status, text, **({"Location": text} if status == 307 else {}))
        elif parts.path == RESOURCE:
            usual = {"resource": self.server.url, "authorization_servers": [self.server.base]}
            self.reply(200, json.dumps(usual | self.server.resource))
        elif parts.path == WELL_KNOWN:
            self.reply(200, json.dumps(self.server.build_metadata()))
        elif parts.path == "/authorize":
            self.authorize(form)
        elif parts.path == "/mcp" and self.scopes() is None:
            self.challenge()
        else:
            self.reply(404, "{}")

    def authorize(self, form: dict[str, str]) -> None:
        page = self.server.unknown_client_page
        if page is not None and not self.server.knows(form["client_id"]):
            status, text = page[0], page[1].format_map(form) if page[0] == 302 else page[1]
            self.reply(status, text, **({"Location": text} if status == 302 else {}))
            return
        code = self.server.new("code")
        self.server.codes[code] = form
        answer = {"code": code, "state": form["state"], "iss": self.server.base} | self.server.redirected
        self.reply(302, "", Location=f"{form['redirect_uri']}?{urlencode(answer)}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
        if self.path == "/mcp":
            self.mcp(json.loads(body))
            return
        if self.path == "/register":
            form = json.loads(body)
        else:
            form = {name: values[0] for name, values in parse_qs(body).items()}
        self.server.seen.append((self.path, form | {"authorization": self.headers.get("authorization", "")}))
        if self.path in self.server.answers:
            status, text = self.server.answers[self.path]
            self.reply(status, text.replace("{body}", body))
        elif self.path == "/register":
            self.server.count += 1
            client = f"client-{self.server.count}"
            self.server.clients.add(client)
            self.reply(201, json.dumps(form | {"client_id": client}))
        elif self.path == "/token":
            self.token(form)
        elif self.path == "/revoke":
            self.server.refreshable.discard(form["token"])
            self.server.tokens.clear()
            self.server.revoking.wait(60)
            self.reply(200, "")
        else:
            self.reply(404, "{}")

    def token(self, form: dict[str, str]) -> None:
        server = self.server
        if not server.knows(form.get("client_id", "")):
            self.reply(server.invalid_client_status, json.dumps({"error": "invalid_client"}))
            return
        match form["grant_type"]:
            case "authorization_code":
                asked = server.codes.pop(form["code"])
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                good = asked["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
                scope = asked.get("scope", "")
            case "refresh_token":
                with server.challenged:
                    server.challenged.wait_for(lambda: server.challenges >= server.challenges_before_refresh, 60)
                good, scope = form["refresh_token"] in server.refreshable, "read"
                if not server.keeps_refresh_tokens:
                    server.refreshable.discard(form["refresh_token"])
            case _:
                good, scope = True, form.get("scope", "")
        if good:
            self.reply(200, json.dumps(server.grant(scope)))
        else:
            self.reply(400, json.dumps({"error": "invalid_grant"}))

    def mcp(self, message: dict[str, Any]) -> None:
        self.server.seen.append((f"mcp {message['method']}", dict(self.headers)))
        scopes = self.scopes()
        scope = self.find_scope(message)
        if self.server.forgets and "mcp-session-id" in self.headers:
            self.reply(404, "")
        elif scopes is None:
            self.challenge()
        elif not set(scope.split()) <= scopes:
            self.reply(403, "", **{"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'})
        elif "id" not in message:
            self.reply(202, "")
        else:
            session = {"Mcp-Session-Id": "s"} if message["method"] == "initialize" else {}
            self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message["id"]} | self.answered(message)), **session)

    def scopes(self) -> set[str] | None:
        return self.server.tokens.get(self.headers.get("authorization", "").removeprefix("Bearer "))

    def challenge(self) -> None:
        with self.server.challenged:
            self.server.challenges += 1
            self.server.challenged.notify_all()
        where = self.server.challenge or f'resource_metadata="{self.server.base}{RESOURCE}"'
        self.reply(401, "", **{"WWW-Authenticate": f"Bearer {where}"})

    def find_scope(self, message: dict[str, Any]) -> str:
        if message["method"] != "tools/call" or message["params"]["name"] != "admin":
            return ""
        if self.server.endless is not None:
            self.server.count += 1
            return self.server.endless(self.server.count)
        return "admin"

    def answered(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                info = {"name": "guarded", "version": "1"}
                capabilities: dict[str, Any] = {"tools": {}}
                result = {"protocolVersion": "2025-11-25", "serverInfo": info, "capabilities": capabilities}
                return {"result": result}
            case "tools/list":
                return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}}
            case "tools/call":
                if message["params"]["name"] == "together":
                    with suppress(threading.BrokenBarrierError):
                        self.server.together.wait(60)
                token = self.headers.get("authorization", "").removeprefix("Bearer ")
                text = f"your token is {token}" if self.server.says_token else "done"
                return {"result": {"content": [{"type": "text", "text": text}]}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    def do_DELETE(self) -> None:
        self.reply(200, "")

    def reply(self, status: int, text: str, **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def guarded() -> Iterator[Guarded]:
    """Run such a server as long as this lasts."""
    with Guarded() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
