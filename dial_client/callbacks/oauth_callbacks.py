"""What logging in is, to the person who does it and to whoever asks them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A person is asked to log in, in a browser."""

    server: str
    """As in the configuration."""
    url: str = field(repr=False)
    """What to open, as it is: http or https, with nothing in it that a shell would act on."""
    host: str
    """Where they will log in; may be none of the server's own."""
    scopes: tuple[str, ...] = ()
    """The rights that are asked for, by the server's own names."""
    needs_issuer: bool = False
    """The address they are sent back to says whom it is from (RFC 9207, `iss`): its code alone is not enough."""


class Login(Protocol):
    """How a person logs in. Waiting for them has no end but the one it is given here."""

    redirect_uri: str
    """Where the browser is sent back to."""

    async def __call__(self, request: LoginRequest) -> str:
        """Let them open `LoginRequest.url`, and give the whole address they were sent back to.

        Raises:
            LoginFailed: they do not want to, or took too long.
        """


def advice(server: str) -> str:
    """Say how to log in."""
    return f"run `dial-chat servers login {shlex.quote(server)}`"
