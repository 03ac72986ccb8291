"""Resources of MCP Apps: the HTML of an app with the origins it may reach, and resources that an app reads itself."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import ServerError
from dial_client.messages.mcp_apps import MAX_HTML, MIME_TYPE, AppResource, is_app_uri, parse_resource
from dial_client.servers.connection import Connection
from dial_client.servers.resources import find_read_timeout
from dial_client.servers.tool_listing import read_all_pages

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import BlobResourceContents, Resource, TextResourceContents

    _Contents = TextResourceContents | BlobResourceContents


async def read_app_resource(connection: Connection, uri: str) -> AppResource:
    """Return the resource of an app.

    Its metadata is read from the content, or, if the content has no ``ui`` metadata, from the server's resource list.

    Raises:
        ServerGone: The server is not available.
        ServerError: There is no such resource, or it is not the HTML of an app.
    """
    server = connection.name
    if not is_app_uri(uri):
        raise ServerError(server, "the URI of an app must begin with ui://")

    async def request(client: Client) -> tuple[_Contents | None, Mapping[str, Any] | None]:
        contents = (await client.read_resource(uri)).contents
        content = contents[0] if contents else None
        meta: Mapping[str, Any] | None = content.meta if content is not None else None
        if content is not None and not (meta and "ui" in meta):
            meta = await _find_listed_meta(client, uri)
        return content, meta

    content, meta = await connection.ask(request, find_read_timeout(connection))
    if content is None:
        raise ServerError(server, f"the resource {uri!r} is empty")
    if _normalize(content.mime_type or "") != MIME_TYPE:
        raise ServerError(server, f"the resource {uri!r} has the type {content.mime_type!r}, expected {MIME_TYPE!r}")
    return parse_resource(server, uri, _decode(server, content), meta)


async def read_for_app(connection: Connection, uri: str) -> dict[str, Any]:
    """Return the server's unchanged ``ReadResourceResult`` of a resource, for an app.

    Raises:
        ServerGone: The server is not available.
        ServerError: There is no such resource, or the server did not answer in time.
    """

    async def request(client: Client) -> dict[str, Any]:
        return (await client.read_resource(uri)).model_dump(mode="json", by_alias=True, exclude_none=True)

    return await connection.ask(request, find_read_timeout(connection))


async def _find_listed_meta(client: Client, uri: str) -> Mapping[str, Any] | None:
    """Return a resource's metadata from the server's resource list; None if it is not listed there."""
    from mcp import MCPError
    from pydantic import ValidationError

    async def request_page(cursor: str | None) -> tuple[list[Resource], str | None]:
        read = await client.list_resources(cursor=cursor)
        return list(read.resources), read.next_cursor

    try:
        listed = await read_all_pages("resources", request_page, lambda resource: str(resource.uri), lambda _: None)
    except (MCPError, ValidationError):
        return None
    return next((resource.meta for resource in listed if str(resource.uri) == uri), None)


def _decode(server: str, content: _Contents) -> str:
    """Return the HTML of a resource's content.

    Raises:
        ServerError: The HTML is too large, or its bytes are not UTF-8 in base64.
    """
    from mcp_types import TextResourceContents

    text = content.text if isinstance(content, TextResourceContents) else content.blob
    if not isinstance(content, TextResourceContents) and len(text) <= 2 * MAX_HTML:
        try:
            text = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError):
            raise ServerError(server, "the HTML of the app is not UTF-8 in base64") from None
    if len(text) > MAX_HTML:
        raise ServerError(server, f"the HTML of the app is over {MAX_HTML:,} characters")
    return text


def _normalize(mime_type: str) -> str:
    return "".join(mime_type.split()).lower()
