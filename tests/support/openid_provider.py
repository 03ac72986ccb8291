"""An OpenID provider on loopback where everybody is logged in already: codes with PKCE, ID tokens, refresh tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

CLIENT = "dial"
CONFIGURATION = "/realm/.well-known/openid-configuration"
KEYS = "/realm/keys"


@cache
def make_key(name: str) -> RSAPrivateKey:
    """Return a private key, the same for the same name."""
    return generate_private_key(65537, 2048)


def to_jwk(key: RSAPrivateKey, key_id: str) -> dict[str, Any]:
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"}


@dataclass
class OpenIdProvider:
    """A provider that runs."""

    url: str
    """The issuer."""
    documents: dict[str, Any] = field(default_factory=dict)
    """What GET answers, by path."""
    requests: list[str] = field(default_factory=list)
    """The paths of all requests."""
    lifetime: int = 60
    """Seconds until an ID token expires."""
    refreshes: bool = True
    """Whether refresh tokens are accepted."""
    groups: list[str] = field(default_factory=lambda: ["staff"])
    """The groups of the persons who log in."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The codes that were not redeemed, with the query of their request."""

    def sign(self, *, key: Any = None, key_id: str = "first", algorithm: str = "RS256", **claims: Any) -> str:
        """Return a token; a claim that is None is left out."""
        usual = {"iss": self.url, "aud": CLIENT, "sub": "17", "exp": int(time.time()) + 60, "groups": self.groups}
        kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(kept, make_key("first") if key is None else key, algorithm, {"kid": key_id})

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser is sent, with a code."""
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.url})}"

    def redeem(self, form: dict[str, str]) -> dict[str, str] | None:
        """Return the tokens for a code or a refresh token; None if it is refused."""
        exp = int(time.time()) + self.lifetime
        if form["grant_type"] == "refresh_token":
            is_known = self.refreshes and form["refresh_token"] == "again"
            return {"id_token": self.sign(exp=exp, preferred_username="anna")} if is_known else None
        query = self.codes.pop(form["code"], {})
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        is_own = query.get("code_challenge") == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if not is_own or form["redirect_uri"] != query["redirect_uri"] or form["client_id"] != CLIENT:
            return None
        token = self.sign(exp=exp, preferred_username="anna", nonce=query["nonce"])
        return {"id_token": token, "refresh_token": "again"}


def first_values(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}


@contextmanager
def openid_provider() -> Iterator[OpenIdProvider]:
    """Run a provider."""
    provider = OpenIdProvider("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.requests.append(parts.path)
            if parts.path == "/realm/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(first_values(parts.query)))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.answer(provider.documents.get(parts.path), 404)

        def do_POST(self) -> None:
            provider.requests.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self.answer(provider.redeem(first_values(body)), 400)

        def answer(self, document: Any, status_without: int) -> None:
            body = json.dumps(document).encode()
            self.send_response(200 if document is not None else status_without)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}/realm"
    provider.documents |= {
        CONFIGURATION: {
            "issuer": provider.url,
            "jwks_uri": provider.url.replace("/realm", KEYS),
            "authorization_endpoint": f"{provider.url}/authorize",
            "token_endpoint": f"{provider.url}/token",
        },
        KEYS: {"keys": [to_jwk(make_key("first"), "first")]},
    }
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
