"""An MCP server with books to read, prompts and completions: ``python library.py stdio|http``, or `library()`.

It speaks every version, lists two things a page, says what changes, and ends with its standard input.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import anyio
import mcp_types as wire
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.support.servers.listening import end_in_time, listen

PAGE = 2
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
BLOBS = {"book://cover": "image/png", "book://paper": "application/pdf", "book://sound": "audio/wav"}
LONG = "".join(f"Line {number} of a long book.\n" for number in range(20_000))
TEMPLATE = "book://{shelf}/{number}"

REGION = {"type": "string", "x-mcp-header": "Region"}
SCHEMAS = {"region": {"type": "object", "properties": {"region": REGION}, "required": ["region"]}}

Item = TypeVar("Item")


class Library:
    """What is there, and what was asked for."""

    def __init__(self) -> None:
        self.texts = {"book://1": "The first book.", "book://2": "The second book.", "book://long": LONG}
        self.prompts = ["greet", "show", "talk"]
        self.tools = ["write", "teach", "invent", "asked", "die", "region", "rezone"]
        self.requests: list[str] = []
        self.subscribed: set[str] = set()
        self.bus = InMemorySubscriptionBus()

    async def list_tools(self, context: Any, params: Any) -> wire.ListToolsResult:  # noqa: ARG002
        self.requests.append("tools/list")
        return wire.ListToolsResult(
            tools=[wire.Tool(name=name, input_schema=SCHEMAS.get(name, {"type": "object"})) for name in self.tools]
        )

    async def call_tool(self, context: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        result = await getattr(self, params.name)(context, **(params.arguments or {})) or "done"
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=result)])

    async def write(self, context: Any, uri: str, text: str) -> None:
        is_new = uri not in self.texts
        self.texts[uri] = text
        await self.bus.publish(ResourceUpdated(uri=uri))
        if is_new:
            await self.bus.publish(ResourcesListChanged())
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            if any(uri.startswith(prefix) for prefix in self.subscribed):
                await context.session.send_resource_updated(uri)
            if is_new:
                await context.session.send_resource_list_changed()

    async def teach(self, context: Any, name: str) -> None:
        self.prompts.append(name)
        await self.bus.publish(PromptsListChanged())
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await context.session.send_prompt_list_changed()

    async def invent(self, context: Any) -> None:
        """Have one more tool."""
        self.tools.append("invented")
        await self.bus.publish(ToolsListChanged())
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await context.session.send_tool_list_changed()

    async def invented(self, context: Any) -> None: ...

    async def region(self, context: Any, region: str) -> str:
        """Say a header of the request that has to say the same as the argument."""
        return f"{region}, {context.request.headers.get('mcp-param-region')}"

    async def rezone(self, context: Any) -> None:  # noqa: ARG002
        """Expect the argument of `region` in another header, without a word."""
        REGION["x-mcp-header"] = "Zone"

    async def asked(self, context: Any) -> str:  # noqa: ARG002
        return "\n".join(self.requests)

    async def die(self, context: Any) -> None:  # noqa: ARG002
        os._exit(7)

    async def list_resources(self, context: Any, params: Any) -> wire.ListResourcesResult:  # noqa: ARG002
        self.requests.append("resources/list")
        texts = [
            wire.Resource(
                uri=uri, name=uri.rpartition("/")[2], title="A book", mime_type="text/plain", size=len(self.texts[uri])
            )
            for uri in self.texts
        ]
        blobs = [wire.Resource(uri=uri, name=uri, mime_type=kind) for uri, kind in BLOBS.items()]
        items, following = paged([*texts, *blobs], params)
        return wire.ListResourcesResult(resources=items, next_cursor=following)

    async def list_templates(self, context: Any, params: Any) -> wire.ListResourceTemplatesResult:  # noqa: ARG002
        templates = [wire.ResourceTemplate(uri_template=TEMPLATE, name="shelves", description="Any book of a shelf.")]
        return wire.ListResourceTemplatesResult(resource_templates=templates)

    async def read(self, context: Any, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:  # noqa: ARG002
        uri = params.uri
        if uri == "book://dies":
            os._exit(7)
        if uri == "book://hangs":
            await anyio.sleep_forever()
        contents: list[Any] = []
        if uri in BLOBS:
            contents.append(wire.BlobResourceContents(uri=uri, mime_type=BLOBS[uri], blob=PNG))
        elif uri == "book://all":
            contents += [
                wire.TextResourceContents(uri=book, text=self.texts[book]) for book in ("book://1", "book://2")
            ]
        elif uri in self.texts:
            contents.append(wire.TextResourceContents(uri=uri, mime_type="text/plain", text=self.texts[uri]))
        elif uri.startswith("book://shelf/"):
            contents.append(wire.TextResourceContents(uri=uri, text=f"Book {uri.rpartition('/')[2]} of the shelf."))
        else:
            raise MCPError(wire.INVALID_PARAMS, f"there is no book {uri}")
        return wire.ReadResourceResult(contents=contents)

    async def subscribe(self, context: Any, params: wire.SubscribeRequestParams) -> wire.EmptyResult:  # noqa: ARG002
        self.requests.append(f"subscribe {params.uri}")
        self.subscribed.add(params.uri)
        return wire.EmptyResult()

    async def unsubscribe(self, context: Any, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:  # noqa: ARG002
        self.requests.append(f"unsubscribe {params.uri}")
        self.subscribed.discard(params.uri)
        return wire.EmptyResult()

    async def list_prompts(self, context: Any, params: Any) -> wire.ListPromptsResult:  # noqa: ARG002
        self.requests.append("prompts/list")
        name = wire.PromptArgument(name="name", description="Who.", required=True)
        arguments = {"greet": [name, wire.PromptArgument(name="how")]}
        prompts = [
            wire.Prompt(name=prompt, title=prompt.title(), description=f"To {prompt}.", arguments=arguments.get(prompt))
            for prompt in self.prompts
        ]
        items, following = paged(prompts, params)
        return wire.ListPromptsResult(prompts=items, next_cursor=following)

    async def get_prompt(self, context: Any, params: wire.GetPromptRequestParams) -> wire.GetPromptResult:  # noqa: ARG002
        given = params.arguments or {}
        if params.name == "greet" and "name" not in given:
            raise MCPError(wire.INVALID_PARAMS, "the argument name is missing")
        if params.name not in self.prompts:
            raise MCPError(wire.INVALID_PARAMS, f"there is no prompt {params.name}")
        text = wire.TextContent(type="text", text=f"Greet {given.get('name')} {given.get('how', 'kindly')}.")
        image = wire.ImageContent(type="image", data=PNG, mime_type="image/png")
        answer = wire.TextContent(type="text", text="Which one?")
        dialogues: dict[str, list[tuple[Any, Any]]] = {
            "show": [("user", image)],
            "talk": [("user", text), ("assistant", answer), ("assistant", image)],
        }
        messages = dialogues.get(params.name, [("user", text)])
        return wire.GetPromptResult(
            messages=[wire.PromptMessage(role=role, content=content) for role, content in messages]
        )

    async def complete(self, context: Any, params: wire.CompleteRequestParams) -> wire.CompleteResult:  # noqa: ARG002
        given = (params.context.arguments if params.context else None) or {}
        values = {
            "name": ["Ada", "Alan", "Grace"],
            "how": [f"like {given.get('name', 'nobody')}"],
            "shelf": ["shelf", "sofa"],
            "number": [f"{given.get('shelf')}-1", f"{given.get('shelf')}-2"],
        }[params.argument.name]
        found = [value for value in values if value.startswith(params.argument.value)]
        return wire.CompleteResult(completion=wire.Completion(values=found))


def paged(items: Sequence[Item], params: Any) -> tuple[list[Item], str | None]:
    begin = int((params and params.cursor) or 0)
    return list(items[begin : begin + PAGE]), str(begin + PAGE) if begin + PAGE < len(items) else None


def library(books: Library | None = None) -> Server[Any]:
    """Make the server; what it has and what it was asked is in `books`."""
    it = books or Library()
    return Server(
        "library",
        on_list_tools=it.list_tools,
        on_call_tool=it.call_tool,
        on_list_resources=it.list_resources,
        on_list_resource_templates=it.list_templates,
        on_read_resource=it.read,
        on_subscribe_resource=it.subscribe,
        on_unsubscribe_resource=it.unsubscribe,
        on_subscriptions_listen=ListenHandler(it.bus),
        on_list_prompts=it.list_prompts,
        on_get_prompt=it.get_prompt,
        on_completion=it.complete,
    )


def behind_proxy(app: Any, it: Library, dropped: Sequence[str]) -> Any:
    """Return an ASGI application whose requests lose some headers, and whose methods are written down."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        headers = [pair for pair in scope.get("headers", ()) if pair[0].decode() not in dropped]
        it.requests += [f"sent {value.decode()}" for name, value in headers if name == b"mcp-method"]
        await app(scope | {"headers": headers}, receive, send)

    return run


def main() -> None:
    end_in_time()
    it = Library()
    server = library(it)

    async def over_stdio() -> None:
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    if sys.argv[1] == "stdio":
        anyio.run(over_stdio)
        return
    listen(behind_proxy(server.streamable_http_app(), it, sys.argv[2:]))


if __name__ == "__main__":
    main()
