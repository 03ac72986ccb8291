"""The end of a login at its authorization server: its tokens are revoked (RFC 7009), after they are deleted here."""

from __future__ import annotations

from contextlib import aclosing

import anyio

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.logs import get_logger
from dial_client.servers.oauth.login_stores import MemoryLogins
from dial_client.servers.oauth.oauth_http_client import find_origin, to_display
from dial_client.servers.oauth.token_storage import TokenRecord
from dial_client.servers.secret_masking import SecretMask
from dial_client.settings.config_types import ServerSettings

log = get_logger(__name__)

# Who removes a login waits no longer for its authorization server.
REVOKE_SECONDS = 10.0


async def revoke_tokens(settings: ServerSettings, record: TokenRecord, seconds: float = REVOKE_SECONDS) -> str:
    """Revoke the tokens of a login that was deleted here.

    Args:
        settings: The server of the login.
        record: What was stored of it.
        seconds: The most seconds to wait for the authorization server.

    Returns:
        What stays valid, why, and where the user can end it; empty if nothing does.
    """
    if record == TokenRecord():
        return describe_valid_tokens(record, settings.url, "what was stored could not be read")
    if not record.tokens:
        return ""
    from dial_client.servers.oauth.server_auth import ServerAuth  # the SDK takes long to load

    try:
        auth = ServerAuth(settings, None, MemoryLogins(), SecretMask.from_settings(settings))
        with anyio.fail_after(seconds):
            async with aclosing(auth):
                await auth.revoke(record)
    except TimeoutError:
        reason = f"it does not answer within {seconds:g} seconds"
    except LoginFailed as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the SDK, or a damaged private key, may raise anything
        log.failure("not_revoked", error, server=settings.name)
        reason = type(error).__name__
    else:
        return ""
    return describe_valid_tokens(record, settings.url, reason)


def describe_valid_tokens(record: TokenRecord, url: str | None, reason: str) -> str:
    """Return in words that tokens stay valid, where the user can end that, and why."""
    place = record.issuer or (find_origin(url) if url else "")
    where = f", or until you end the login at {to_display(place)}" if place else ""
    return f"its tokens stay valid until they expire{where} ({reason})"
