"""OAuth logins: the request for the user, and the callback that presents it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A request to log in with a browser."""

    server: str
    """The server's name in the configuration."""
    url: str = field(repr=False)
    """The http or https URL to open, free of characters that a shell would act on."""
    host: str
    """The host of the authorization server; it may differ from the server's host."""
    scopes: tuple[str, ...] = ()
    """The requested scopes."""
    needs_issuer: bool = False
    """The redirect must name its issuer (RFC 9207, `iss`): the code alone is not enough."""


class Login(Protocol):
    """Lets the user log in. The client sets no time limit for it: the callback has to."""

    redirect_uri: str
    """The redirect URI."""

    async def __call__(self, request: LoginRequest) -> str:
        """Let the user open `LoginRequest.url`, and return the whole URL of the redirect.

        Raises:
            LoginFailed: the user refuses, or takes too long.
        """


def advice(server: str) -> str:
    """Return a hint how to log in."""
    return f"run `dial-chat servers login {shlex.quote(server)}`"
