"""The HTTP client for OAuth requests: it sends only to URLs the policy allows, and limits the time and the size.

It is separate from the client for MCP requests, so that headers and cookies meant for the MCP server are not sent to
the authorization server. It connects to the IP address that was checked, which prevents DNS rebinding.
"""

from __future__ import annotations

import base64
import json
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, unquote
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.oauth.url_policy import Address, UrlPolicy, to_display

MAX_BODY = 1024 * 1024
"""Maximum bytes of a response; metadata and tokens have a few thousand bytes."""
MAX_WORDS = 200
"""Maximum characters kept of an authorization server's error description."""
ANSWER_SECONDS, CONNECT_SECONDS = 30.0, 10.0
_SECRET_FIELDS = ("assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token")


class OAuthHttpClient:
    """Sends the OAuth requests for the login to one server."""

    def __init__(self, url_policy: UrlPolicy) -> None:
        self._url_policy = url_policy
        self._client: httpx2.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request without following redirects, and return the response with its body read.

        The body of an error response is reduced to OAuth's error fields.

        Raises:
            LoginFailed: The URL is not allowed, nothing answers in time, or the response is too large.
        """
        addresses = await self._url_policy.resolve_allowed(str(request.url))
        place = to_display(str(request.url))
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                response = await self._connect_and_send(request, addresses)
        except TimeoutError:
            raise LoginFailed(f"{place} does not answer") from None
        except (httpx2.HTTPError, OSError) as error:
            reason = to_one_line(str(error) or type(error).__name__, MAX_WORDS)
            raise LoginFailed(f"{place} cannot be reached: {reason}") from None
        if response.status_code >= 400:
            response = _shorten_error(request, response)
        return response

    async def _connect_and_send(self, request: httpx2.Request, addresses: tuple[Address, ...]) -> httpx2.Response:
        proxies, url = getproxies(), request.url
        if (proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(url.host):
            return await self._read(request, request)  # the proxy connects; the name may be resolvable only there
        for address in addresses:
            # With the name in place of the address, it would be resolved again, and could now lead into a private
            # network (DNS rebinding; MCP security best practices, "Server-Side Request Forgery").
            try:
                return await self._read(request, _pin_request(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        raise LoginFailed(f"the name of {to_display(str(request.url))} cannot be resolved")

    async def _read(self, request: httpx2.Request, pinned: httpx2.Request) -> httpx2.Response:
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS))
        # A redirect could lead where the policy does not allow, and would take a POST with its secrets along.
        response = await self._client.send(pinned, stream=True, follow_redirects=False)
        try:
            body = await read_body(response, MAX_BODY)
        finally:
            await response.aclose()
        if body is None:
            raise LoginFailed(f"{to_display(str(request.url))} answers with more than {MAX_BODY:,} bytes")
        # The flow needs no other header. Cookies stay in the client, which is used for this login alone.
        headers = {"content-type": response.headers.get("content-type", "")}
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def read_body(response: httpx2.Response, max_bytes: int) -> bytes | None:
    """Return the body of a response; None if it is larger than `max_bytes`."""
    # The length may be missing or false, and a compressed body may be much longer than announced: count, too.
    length, body = response.headers.get("content-length", ""), bytearray()
    if length.isdecimal() and int(length) > max_bytes:
        return None
    async with aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > max_bytes:
                return None
    return bytes(body)


def _pin_request(request: httpx2.Request, address: Address) -> httpx2.Request:
    """Return the same request for one IP address of its host; TLS still verifies the host name."""
    url = request.url.copy_with(host=str(address))
    extensions = {**request.extensions, "sni_hostname": request.url.host}
    return httpx2.Request(request.method, url, headers=request.headers, content=request.content, extensions=extensions)


def _shorten_error(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return an error response with only OAuth's two error fields (RFC 6749, 5.2), and without the sent secrets.

    The SDK quotes the whole body of an error response in its message.
    """
    fields = read_oauth_error(response)
    for secret in _find_secrets(request):
        fields = {name: text.replace(secret, "…") for name, text in fields.items()}
    fields = {name: to_one_line(text, MAX_WORDS) for name, text in fields.items()}
    return httpx2.Response(response.status_code, json=fields, request=request)


def read_oauth_error(response: httpx2.Response) -> dict[str, str]:
    """Return ``error`` and ``error_description`` of a response, if present."""
    try:
        body: Any = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(body, dict):
        return {}
    fields = ((name, body.get(name)) for name in ("error", "error_description"))
    return {name: text for name, text in fields if isinstance(text, str) and text}


def _find_secrets(request: httpx2.Request) -> list[str]:
    # An authorization server may quote the request in its error, which is shown and logged.
    sent = [value for name, value in parse_qsl(request.content.decode("utf-8", "replace")) if name in _SECRET_FIELDS]
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        password = base64.b64decode(credentials).decode("utf-8", "replace").partition(":")[2]
        sent += [credentials, password, unquote(password)]
    return [secret for secret in sent if secret]
