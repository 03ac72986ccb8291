"""Resource addresses of the gateway: URIs of servers, changed so that those of two servers never collide.

to_address, parse_address    the address of a server's URI, and back
rewrite_…                    copies of what a server sent, with addresses in place of its URIs
restore_arguments            the arguments of a call, with the server's own URIs in place of its addresses

The address of ``file:///notes.md`` at the server ``docs`` is ``dial+docs:file:///notes.md``, and a template keeps its
variables: ``dial+docs:file:///{name}``. Hosts require the schemes ``ui`` for MCP Apps and ``skill`` for skills, so the
address of ``ui://clock/app.html`` is ``ui://dial+docs/clock/app.html``.

Programs compare schemes and hosts without case, so an address contains the server's name in lower case: every byte but
``a-z``, ``0-9`` and ``-`` is written as ``.`` and two hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from dial_client.messages.mcp_apps import URI_SCHEME

if TYPE_CHECKING:
    import mcp_types as wire

    Contents = TypeVar("Contents", bound=wire.ResourceContents)

_PREFIX = "dial+"
_ADDRESS = re.compile(r"dial\+(?P<server>[a-z0-9.-]*):(?P<uri>.*)", re.IGNORECASE | re.ASCII | re.DOTALL)
# The schemes that hosts require: of the pages of MCP Apps, and of skills (SEP-2640).
_KEPT_SCHEMES = (URI_SCHEME, "skill://")
_KEPT_ADDRESS = re.compile(
    r"(?P<scheme>ui://|skill://)dial\+(?P<server>[a-z0-9.-]*)/(?P<rest>.*)", re.IGNORECASE | re.ASCII | re.DOTALL
)
_UNSAFE_BYTE = re.compile(rb"[^a-z0-9-]")
_ESCAPE = re.compile(rb"\.([0-9a-f]{2})")

# The keys of ``_meta``, outside of ``ui``, whose value is the URI of an app: the name of MCP Apps before the extension
# was stable, and the name of OpenAI's Apps SDK.
_APP_URI_KEYS = ("ui/resourceUri", "openai/outputTemplate")


def to_address(server: str, uri: str) -> str:
    """Return the address of a server's URI, or of a server's URI template."""
    for scheme in _KEPT_SCHEMES:
        if uri.startswith(scheme):
            return f"{scheme}{_PREFIX}{_encode_name(server)}/{uri[len(scheme) :]}"
    return f"{_PREFIX}{_encode_name(server)}:{uri}"


def parse_address(address: str) -> tuple[str, str] | None:
    """Return the server's name and the server's URI of an address; None for a text that is not an address.

    There may be no server of this name.
    """
    if "+" not in address:  # most texts are not
        return None
    if (found := _KEPT_ADDRESS.fullmatch(address)) is not None:
        uri = f"{found['scheme'].lower()}{found['rest']}"
    elif (found := _ADDRESS.fullmatch(address)) is not None:
        uri = found["uri"]
    else:
        return None
    server = _decode_name(found["server"])
    return None if server is None else (server, uri)


@lru_cache(maxsize=1024)
def _encode_name(server: str) -> str:
    data = server.encode("utf-8", "surrogatepass")  # a JSON file may contain half of a surrogate pair
    return _UNSAFE_BYTE.sub(lambda match: b"." + match[0].hex().encode(), data).decode("ascii")


@lru_cache(maxsize=1024)
def _decode_name(text: str) -> str | None:
    data = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), text.lower().encode("ascii"))
    try:
        server = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    # A name has one encoding: two addresses of one URI would be two resources.
    return server if _encode_name(server) == text.lower() else None


def rewrite_resource(server: str, resource: wire.Resource) -> wire.Resource:
    """Return a listed resource with its address."""
    return resource.model_copy(update={"uri": to_address(server, resource.uri)})


def rewrite_template(server: str, template: wire.ResourceTemplate) -> wire.ResourceTemplate:
    """Return a resource template with the template of its addresses, whose variables are the same."""
    return template.model_copy(update={"uri_template": to_address(server, template.uri_template)})


def rewrite_contents(server: str, result: wire.ReadResourceResult, uri: str, address: str) -> wire.ReadResourceResult:
    """Return the contents of a resource with their addresses.

    Args:
        server: The server that was read.
        result: Its result.
        uri: The server's own URI that was read.
        address: What the client reads, which the content with that URI is to have: it may differ from `to_address`.
    """

    def rewrite(part: Contents) -> Contents:
        return part.model_copy(update={"uri": address if part.uri == uri else to_address(server, part.uri)})

    return result.model_copy(update={"contents": [rewrite(part) for part in result.contents]})


def rewrite_result(server: str, result: wire.CallToolResult) -> wire.CallToolResult:
    """Return the result of a call with addresses in its links, its embedded resources, and its ``_meta``."""
    content = [_rewrite_block(server, block) for block in result.content]
    meta = rewrite_meta(server, result.meta)
    if meta is result.meta and all(map(is_, content, result.content)):
        return result
    return result.model_copy(update={"content": content, "meta": meta})


def rewrite_prompt(server: str, result: wire.GetPromptResult) -> wire.GetPromptResult:
    """Return the messages of a prompt with addresses in their links and embedded resources."""
    messages = [
        message.model_copy(update={"content": _rewrite_block(server, message.content)}) for message in result.messages
    ]
    return result.model_copy(update={"messages": messages})


def _rewrite_block(server: str, block: wire.ContentBlock) -> wire.ContentBlock:
    if block.type == "resource_link":
        return block.model_copy(update={"uri": to_address(server, block.uri)})
    if block.type == "resource":
        resource = block.resource.model_copy(update={"uri": to_address(server, block.resource.uri)})
        return block.model_copy(update={"resource": resource})
    return block


def rewrite_meta(server: str, meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the ``_meta`` of a tool or a result with the address of its MCP App; the same object without an app."""
    if not meta:
        return meta
    changes: dict[str, Any] = {
        key: to_address(server, meta[key]) for key in _APP_URI_KEYS if _is_app_uri(meta.get(key))
    }
    section = meta.get("ui")
    if isinstance(section, Mapping) and _is_app_uri(section.get("resourceUri")):
        changes["ui"] = {**section, "resourceUri": to_address(server, section["resourceUri"])}
    return {**meta, **changes} if changes else meta


def _is_app_uri(value: object) -> bool:
    return isinstance(value, str) and value.startswith(URI_SCHEME)


def restore_arguments(server: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with the server's own URIs in place of its addresses.

    A model copies an address from a link into the arguments of another tool. Only values that are an address as a
    whole are restored, and only those of the server that receives them: another server's URIs mean nothing to it.
    """
    return {name: _restore(server, value) for name, value in arguments.items()}


def _restore(server: str, value: Any) -> Any:
    match value:
        case str():
            parsed = parse_address(value)
            return parsed[1] if parsed is not None and parsed[0] == server else value
        case list():
            return [_restore(server, item) for item in value]
        case dict():
            return {name: _restore(server, item) for name, item in value.items()}
    return value
