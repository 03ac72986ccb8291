"""OAuth logins: the request for the user, and the callback that handles it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A request for the user to log in with a browser."""

    server: str
    """The server's name in the configuration."""
    url: str = field(repr=False)
    """The http or https URL to open, without characters that a shell would interpret."""
    origin: str
    """The origin of the authorization server (``https://auth.example``); it may differ from the server's origin."""
    scopes: tuple[str, ...] = ()
    """The requested scopes."""
    needs_issuer: bool = False
    """True if the redirect URL must contain the issuer (RFC 9207, ``iss``), so that the code alone is not enough."""


class Login(Protocol):
    """A callback that lets the user log in. The client does not limit its time: the callback needs its own timeout."""

    redirect_uri: str
    """The redirect URI."""

    async def __call__(self, request: LoginRequest) -> str:
        """Let the user open `LoginRequest.url`, and return the complete redirect URL.

        Raises:
            LoginFailed: The user refused, or took too long.
        """


def build_login_hint(server: str) -> str:
    """Return a hint with the command that logs in to a server."""
    return f"run `dial-chat servers login {shlex.quote(server)}`"
