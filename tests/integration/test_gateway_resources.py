"""Resources, templates and prompts of all servers through the gateway: what a client sees directly, with addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.shared.uri_template import UriTemplate

from dial_client import DialClient, ServerState
from tests.inner import Protocol, parse_address, rewrite_template, to_address
from tests.integration.test_gateway import rich_server
from tests.support.clients import calculator
from tests.support.fakes import virtual_time
from tests.support.gateway_clients import Person, asking, connected
from tests.support.gateways import MODES, host, running
from tests.support.servers.launch import python_script, raw
from tests.support.servers.library import library

pytestmark = pytest.mark.anyio

NOTE = wire.TextResourceContents(uri="note://a", text="A note.", mime_type="text/plain", _meta={"example.com/part": 1})
LINK = wire.ResourceLink(uri="note://b", name="b", title="B", _meta={"example.com/link": 1})


class Notes:
    """A server with a few notes, whose answers have everything that the protocol allows."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, Mapping[str, Any]]] = []

    async def list_resources(self, *_: object) -> wire.ListResourcesResult:
        resource = wire.Resource(
            uri="note://a",
            name="a",
            title="A",
            description="A note.",
            mime_type="text/plain",
            size=7,
            icons=[wire.Icon(src="https://example.com/a.png")],
            annotations=wire.Annotations(audience=["user"], priority=0.5, last_modified="2026-11-01T00:00:00Z"),
            _meta={"example.com/kept": [1]},
        )
        return wire.ListResourcesResult(resources=[resource])

    async def list_templates(self, *_: object) -> wire.ListResourceTemplatesResult:
        template = wire.ResourceTemplate(uri_template="note://{name}{?q}", name="any", _meta={"example.com/kept": 2})
        return wire.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, context: Any, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
        self.requests.append((params.uri, dict(context.meta or {})))
        if params.uri == "note://none":
            raise MCPError(-32055, "no such note", {"uri": params.uri})
        return wire.ReadResourceResult(
            contents=[
                NOTE.model_copy(update={"uri": params.uri}),
                wire.BlobResourceContents(uri="note://x", blob="YQ=="),
            ],
            _meta={"example.com/whole": True},
        )

    async def list_prompts(self, *_: object) -> wire.ListPromptsResult:
        argument = wire.PromptArgument(name="about", title="About", required=True)
        return wire.ListPromptsResult(
            prompts=[wire.Prompt(name="write", title="Write", arguments=[argument], _meta={"example.com/kept": 3})]
        )

    async def get_prompt(self, _: object, params: wire.GetPromptRequestParams) -> wire.GetPromptResult:
        self.requests.append((params.arguments, {}))
        blocks: list[wire.ContentBlock] = [wire.TextContent(text="Write."), LINK, wire.EmbeddedResource(resource=NOTE)]
        return wire.GetPromptResult(
            description="To write.",
            messages=[wire.PromptMessage(role="user", content=block) for block in blocks],
            _meta={"example.com/whole": True},
        )

    async def complete(self, _: object, params: wire.CompleteRequestParams) -> wire.CompleteResult:
        self.requests.append((params.ref, {}))
        values = [f"{params.argument.value}{number}" for number in range(3)]
        return wire.CompleteResult(
            completion=wire.Completion(values=values, total=70, has_more=True), _meta={"example.com/whole": True}
        )

    async def call_tool(self, _: object, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        self.requests.append((params.arguments, {}))
        return wire.CallToolResult(content=[LINK, wire.EmbeddedResource(resource=NOTE)])

    async def list_tools(self, *_: object) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=[wire.Tool(name="find", input_schema={"type": "object"})])

    def serve(self) -> Server[Any]:
        return Server(
            "notes",
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_completion=self.complete,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )


def without_server(result: Any) -> Any:
    """Return a result without the name of the server that sent it."""
    meta = {key: value for key, value in (result.meta or {}).items() if not key.startswith("io.modelcontextprotocol/")}
    return result.model_copy(update={"meta": meta or None})


def replaced(value: Any, server: str) -> Any:
    """Return JSON with addresses in place of the notes' URIs."""
    if isinstance(value, dict):
        return {name: replaced(item, server) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, server) for item in value]
    return to_address(server, value) if isinstance(value, str) and value.startswith("note://") else value


@pytest.mark.parametrize("mode", MODES)
async def test_everything_is_as_the_server_sends_it_but_for_uris_and_names(mode: str) -> None:
    notes = Notes()
    template = wire.ResourceTemplateReference(uri="note://{name}{?q}")
    argument = {"name": "name", "value": "v"}
    async with Client(notes.serve(), mode=mode) as direct:
        expected = [
            *(await direct.list_resources()).resources,
            *(await direct.list_resource_templates()).resource_templates,
            *(prompt.model_copy(update={"name": "one__write"}) for prompt in (await direct.list_prompts()).prompts),
            await direct.read_resource("note://a"),
            await direct.get_prompt("write", {"about": "x"}),
            await direct.complete(template, argument),
            await direct.complete(wire.PromptReference(name="write"), argument),
        ]
    async with running(host({"one": notes.serve()})) as gateway, Client(gateway.server, mode=mode) as client:
        published = wire.ResourceTemplateReference(uri=to_address("one", template.uri))
        found = [
            *(await client.list_resources()).resources,
            *(await client.list_resource_templates()).resource_templates,
            *(await client.list_prompts()).prompts,
            await client.read_resource(to_address("one", "note://a")),
            await client.get_prompt("one__write", {"about": "x"}),
            await client.complete(published, argument),
            await client.complete(wire.PromptReference(name="one__write"), argument),
        ]
    dumps = [[without_server(item).model_dump(by_alias=True) for item in items] for items in (expected, found)]
    assert dumps[1] == replaced(dumps[0], "one")
    assert notes.requests[-2:] == [(template, {}), (wire.PromptReference(name="write"), {})]


@pytest.mark.parametrize("mode", MODES)
async def test_uris_of_two_servers_do_not_collide(mode: str) -> None:
    servers = {"one": library(), "Two of them": library()}
    async with running(host(servers)) as gateway, Client(gateway.server, mode=mode) as client:
        listed = (await client.list_resources()).resources
        addresses = [resource.uri for resource in listed]
        contents = [(await client.read_resource(address)).contents[0] for address in addresses[:1] + addresses[6:7]]
    assert len({*addresses}) == len(addresses) == 12
    assert [parse_address(address) for address in addresses[:1] + addresses[6:7]] == [
        ("one", "book://1"),
        ("Two of them", "book://1"),
    ]
    assert [content.uri for content in contents] == addresses[:1] + addresses[6:7]
    assert addresses[0] == "dial+one:book://1"


@pytest.mark.parametrize("server", ["docs", "a b/ü"])
async def test_a_template_of_addresses_expands_to_an_address(server: str) -> None:
    values = {"path": "a/b c", "q": "x", "base": "file:///z"}
    for text in ("book://{path}{?q}", "{+base}/x", "ui://app/{q}", "f:{/path}{#q}"):
        template = wire.ResourceTemplate(name="t", uri_template=text)
        published = UriTemplate.parse(rewrite_template(server, template).uri_template)
        assert published.variable_names == UriTemplate.parse(text).variable_names
        assert parse_address(published.expand(values)) == (server, UriTemplate.parse(text).expand(values))


@pytest.mark.parametrize("mode", MODES)
async def test_an_expanded_template_is_read_at_its_server(mode: str) -> None:
    async with running(host({"books": library()})) as gateway, Client(gateway.server, mode=mode) as client:
        [template] = (await client.list_resource_templates()).resource_templates
        address = UriTemplate.parse(template.uri_template).expand({"shelf": "shelf", "number": "7"})
        [content] = (await client.read_resource(address)).contents
    assert (template.uri_template, address) == ("dial+books:book://{shelf}/{number}", "dial+books:book://shelf/7")
    assert isinstance(content, wire.TextResourceContents) and content.text == "Book 7 of the shelf."


@pytest.mark.parametrize("mode", MODES)
async def test_errors_of_a_server_keep_their_code(mode: str) -> None:
    async with running(host({"one": Notes().serve()})) as gateway, Client(gateway.server, mode=mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource("dial+one:note://none")
        missing = {}
        for uri in ("dial+two:note://a", "other://a"):
            with pytest.raises(MCPError) as unknown:
                await client.read_resource(uri)
            missing[uri] = unknown.value.error
        with pytest.raises(MCPError, match="Unknown prompt: one__nothing"):
            await client.get_prompt("one__nothing")
    assert (refused.value.code, refused.value.message) == (-32055, "no such note")
    code = -32002 if mode == "legacy" else wire.INVALID_PARAMS
    assert {uri: (error.code, error.data) for uri, error in missing.items()} == {
        uri: (code, {"uri": uri}) for uri in missing
    }


async def test_a_uri_from_a_text_is_read_if_one_server_has_it() -> None:
    servers = {"one": Notes().serve(), "books": library(), "more": library()}
    async with running(host(servers)) as gateway, Client(gateway.server) as client:
        read = await client.read_resource("note://a")
        assert [content.uri for content in read.contents] == ["note://a", "dial+one:note://x"]
        assert (await client.read_resource("note://other?q=1")).contents[0].uri == "note://other?q=1"
        for uri in ("book://1", "book://shelf/3"):
            with pytest.raises(MCPError, match="several servers have it: books, more"):
                await client.read_resource(uri)


async def test_links_of_a_result_lead_to_the_server_and_back() -> None:
    notes = Notes()
    async with running(host({"one": notes.serve()}, "one/*")) as gateway, Client(gateway.server) as client:
        link, embedded = (await client.call_tool("one__find", {})).content
        assert isinstance(link, wire.ResourceLink) and isinstance(embedded, wire.EmbeddedResource)
        await client.call_tool("one__find", {"uri": link.uri, "of": "dial+two:note://b"})
        await client.get_prompt("one__write", {"about": link.uri})
    assert (link.uri, link.meta) == ("dial+one:note://b", LINK.meta)
    assert embedded.resource == NOTE.model_copy(update={"uri": "dial+one:note://a"})
    assert [request for request, _ in notes.requests] == [
        {},
        {"uri": "note://b", "of": "dial+two:note://b"},
        {"about": "note://b"},
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_the_meta_of_a_request_reaches_the_server(mode: str) -> None:
    notes = Notes()
    meta: Any = {"example.com/trace": "t1"}
    async with running(host({"one": notes.serve()})) as gateway, Client(gateway.server, mode=mode) as client:
        await client.read_resource("dial+one:note://a", meta=meta)
    [(uri, received)] = notes.requests
    assert (uri, received["example.com/trace"]) == ("note://a", "t1")
    client_info = received.get("io.modelcontextprotocol/clientInfo")
    assert client_info is None or client_info["name"] == "dial-client"


async def test_a_server_that_failed_spoils_no_list() -> None:
    servers = {"gone": raw("ExitsAtOnce"), "books": python_script("library.py", "stdio", protocol=Protocol.LEGACY)}
    async with running(host(servers)) as gateway, Client(gateway.server) as client:
        assert len((await client.list_resources()).resources) == 6
        assert len((await client.list_prompts()).prompts) == 3
        with pytest.raises(MCPError, match=r"'gone' is not available: .*the database is missing"):
            await client.read_resource("dial+gone:book://1")


@virtual_time
async def test_a_server_that_hangs_delays_one_list() -> None:
    """The second list is answered at once; when the server answers, its resources follow, and are announced."""
    answer = anyio.Event()

    async def hang(*_: object) -> wire.ListResourcesResult:
        await answer.wait()
        return wire.ListResourcesResult(resources=[wire.Resource(uri="late://1", name="late")])

    servers = {"slow": Server("slow", on_list_resources=hang), "books": library()}
    changed = anyio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, wire.ResourceListChangedNotification):
            changed.set()

    async with (
        running(host(servers)) as gateway,
        Client(gateway.server, mode="legacy", message_handler=on_message) as client,
    ):
        began = anyio.current_time()
        first = (await client.list_resources()).resources
        middle = anyio.current_time()
        second = (await client.list_resources()).resources
        assert (middle - began, anyio.current_time() - middle) == (2.0, 0.0)
        assert len(first) == len(second) == 6
        answer.set()
        await changed.wait()
        third = (await client.list_resources()).resources
    assert third[0].uri == "dial+slow:late://1"


@pytest.mark.parametrize(
    ("kind", "ask", "begins"),
    [
        ("resources", lambda client: client.read_resource("late://1"), "Resource not found: no server has it."),
        ("prompts", lambda client: client.get_prompt("late__greet"), "Unknown prompt: late__greet."),
    ],
)
@virtual_time
async def test_what_is_not_found_may_be_at_a_server_that_starts_or_has_not_listed_its_own(
    kind: str, ask: Callable[[Client], Awaitable[object]], begins: str
) -> None:
    async def hang(*_: object) -> Any:
        await anyio.sleep_forever()

    slow = Server("slow", on_list_resources=hang) if kind == "resources" else Server("slow", on_list_prompts=hang)
    dial = host({"slow": slow, "books": library(), "calc": calculator()})
    async with running(dial) as gateway, Client(gateway.server) as client, anyio.create_task_group() as group:
        group.start_soon(dial.add_server, "late", rich_server(may_start=anyio.Event()))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(MCPError) as missing:
            await ask(client)
        group.cancel_scope.cancel()
    assert missing.value.message == (
        f"{begins} These servers are not available: "
        f"'slow' (it has not listed its {kind} yet), 'late' (it is still starting)."
    )


async def test_what_is_not_found_may_be_at_a_server_that_sleeps(tmp_path: Path) -> None:
    servers = {"one": raw("Server", lazy=True)}
    async with DialClient(servers=servers, cache_dir=tmp_path) as dial:
        assert dial.servers["one"].state is ServerState.READY
    dial = DialClient(servers=servers, cache_dir=tmp_path)
    async with running(dial) as gateway, Client(gateway.server) as client:
        assert dial.servers["one"].state is ServerState.SLEEPING
        with pytest.raises(MCPError) as resource:
            await client.read_resource("note://a")
        with pytest.raises(MCPError) as prompt:
            await client.get_prompt("one__greet")
    sleeps = "These servers are not available: 'one' (it sleeps until one of its tools is called)."
    assert resource.value.message == f"Resource not found: no server has it. {sleeps}"
    assert prompt.value.message == f"Unknown prompt: one__greet. {sleeps}"


async def test_prompts_of_two_servers_have_different_names() -> None:
    servers = {"one": library(), "two": library()}
    async with running(host(servers)) as gateway, Client(gateway.server) as client:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        messages = (await client.get_prompt("two__greet", {"name": "Ada"})).messages
    assert names == [f"{server}__{name}" for server in servers for name in ("greet", "show", "talk")]
    assert isinstance(messages[0].content, wire.TextContent) and "Ada" in messages[0].content.text


async def test_a_server_without_completions_completes_nothing() -> None:
    async def list_prompts(*_: object) -> wire.ListPromptsResult:
        return wire.ListPromptsResult(prompts=[wire.Prompt(name="p")])

    servers = {"one": Server("plain", on_list_prompts=list_prompts)}
    async with running(host(servers)) as gateway, Client(gateway.server) as client:
        found = await client.complete(wire.PromptReference(name="one__p"), {"name": "a", "value": ""})
    assert found.completion.values == []


READS: list[Callable[[Client], Any]] = [
    lambda client: client.read_resource("dial+books:book://1"),
    lambda client: client.get_prompt("books__greet", {"name": "Ada"}),
]


@pytest.mark.parametrize("read", READS)
async def test_what_a_client_reads_from_an_untrusted_server_taints_its_session(read: Callable[[Client], Any]) -> None:
    servers = {"books": python_script("library.py", "stdio", untrusted=True), "one": Notes().serve()}
    async with running(host(servers)) as gateway, Client(gateway.server, mode="legacy") as client:
        await client.read_resource("dial+one:note://a")
        [session] = gateway.sessions
        assert session.taint.sources == ()
        await read(client)
        sources: tuple[str, ...] = session.taint.sources
    assert sources == ("books",)


# What a server asks before it returns a resource or a prompt

FORM = wire.ElicitRequest(
    params=wire.ElicitRequestFormParams(
        message="Which page?", requested_schema={"type": "object", "properties": {"page": {"type": "integer"}}}
    )
)


def find_page(params: Any) -> Any:
    """Return the page that the user has named; None if nobody was asked."""
    answer = (params.input_responses or {}).get("page")
    return answer.content["page"] if isinstance(answer, wire.ElicitResult) and answer.content else None


def curious() -> Server[Any]:
    """Return a server that asks for a page before it returns a resource or a prompt."""
    question = wire.InputRequiredResult(input_requests={"page": FORM}, request_state="sealed")

    async def read(
        _: object, params: wire.ReadResourceRequestParams
    ) -> wire.ReadResourceResult | wire.InputRequiredResult:
        if (page := find_page(params)) is None:
            return question
        return wire.ReadResourceResult(contents=[wire.TextResourceContents(uri=params.uri, text=f"Page {page}.")])

    async def get_prompt(
        _: object, params: wire.GetPromptRequestParams
    ) -> wire.GetPromptResult | wire.InputRequiredResult:
        if (page := find_page(params)) is None:
            return question
        message = wire.PromptMessage(role="user", content=wire.TextContent(text=f"Page {page}."))
        return wire.GetPromptResult(messages=[message])

    async def list_prompts(*_: object) -> wire.ListPromptsResult:
        return wire.ListPromptsResult(prompts=[wire.Prompt(name="turn")])

    return Server("curious", on_read_resource=read, on_get_prompt=get_prompt, on_list_prompts=list_prompts)


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_asks_the_client_that_reads(mode: str, tmp_path: Path) -> None:
    reader = Person(wire.ElicitResult(action="accept", content={"page": 7}))
    bystander = Person(wire.ElicitResult(action="accept", content={"page": 8}))
    async with (
        asking({"one": curious()}, folder=tmp_path) as gateway,
        connected(gateway, mode, reader) as client,
        connected(gateway, mode, bystander),
    ):
        [content] = (await client.read_resource("dial+one:book://1")).contents
        [message] = (await client.get_prompt("one__turn")).messages
    assert isinstance(content, wire.TextResourceContents) and content.text == "Page 7."
    assert isinstance(message.content, wire.TextContent) and message.content.text == "Page 7."
    assert [request.message for request in reader.asked] == ["one asks: Which page?"] * 2
    assert bystander.asked == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_cannot_ask_gets_an_error(mode: str, tmp_path: Path) -> None:
    async with asking({"one": curious()}, folder=tmp_path) as gateway, Client(gateway.server, mode=mode) as client:
        with pytest.raises(MCPError, match="elicitation"):
            await client.read_resource("dial+one:book://1")
