"""Addresses of the gateway: no two URIs of any servers collide, and everything a client receives can be sent back."""

from __future__ import annotations

import copy
from typing import Any
from urllib.parse import urlsplit

import mcp_types as wire
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import AnyUrl

from tests.inner import (
    parse_address,
    restore_arguments,
    rewrite_contents,
    rewrite_meta,
    rewrite_prompt,
    rewrite_resource,
    rewrite_result,
    to_address,
)

NAMES = st.text() | st.sampled_from(
    ["docs", "Docs", "a.b", "a+b", "a:b", "a/b", "my server", "dial+x", "zażółć", "-", "."]
)
"""Names of servers, odd ones too."""
URIS = st.text() | st.sampled_from(
    [
        "file:///a b",
        "ui://x/y.html",
        "UI://x",
        "ui://dial+y/z",
        "dial+y:file:///a",
        "a\nb",
        "",
        "demo://x?q=1#f",
        "ui://",
    ]
)
META: dict[str, Any] = {"ui": {"resourceUri": "ui://x/y", "visibility": ["app"]}, "kept": {"a": 1}}


@pytest.mark.parametrize(
    ("server", "uri", "address"),
    [
        ("docs", "file:///notes.md", "dial+docs:file:///notes.md"),
        ("docs", "book://{shelf}/{number}", "dial+docs:book://{shelf}/{number}"),
        ("my_server", "a:b", "dial+my.5fserver:a:b"),
        ("Docs", "a:b", "dial+.44ocs:a:b"),
        ("docs", "ui://clock/app.html", "ui://dial+docs/clock/app.html"),
        ("é", "a:b", "dial+.c3.a9:a:b"),
    ],
)
def test_an_address_names_the_server_and_contains_the_uri(server: str, uri: str, address: str) -> None:
    assert to_address(server, uri) == address
    assert parse_address(address) == (server, uri)


@given(NAMES, URIS)
def test_an_address_leads_back_to_the_server_and_its_uri(server: str, uri: str) -> None:
    address = to_address(server, uri)
    assert parse_address(address) == (server, uri)
    assert address.startswith("ui://") == uri.startswith("ui://")


@given(NAMES, URIS, NAMES, URIS)
@example("a", "b", "A", "b")
@example("a", "dial+b:c", "b", "dial+a:c")
def test_addresses_of_different_resources_differ(server: str, uri: str, other_server: str, other_uri: str) -> None:
    is_same = to_address(server, uri) == to_address(other_server, other_uri)
    assert is_same == ((server, uri) == (other_server, other_uri))


@given(
    NAMES, st.sampled_from(["file:///A b/%C3%A9?x=Y#Z", "demo://Host/Path", "ui://Clock/App.html", "mailto:A@b.test"])
)
def test_programs_that_normalize_uris_keep_an_address(server: str, uri: str) -> None:
    address = to_address(server, uri)
    lowered, colon, rest = address.partition(":")
    assert parse_address(f"{lowered.upper()}{colon}{rest}") == (server, uri)
    assert parse_address(urlsplit(address).geturl()) == (server, uri)
    if not uri.startswith("ui:"):
        found = parse_address(str(AnyUrl(address)))
        assert found is not None and found[0] == server


@pytest.mark.parametrize(
    "text",
    [
        *("", "file:///a", "dial+", "dial+docs", "dial:docs:x", "dial+a_b:x", "dial+.6:x", "dial+.61:x", "dial+.ff:x"),
        *("ui://x/y", "ui://dial+docs", " dial+docs:x"),
    ],
)
def test_other_texts_are_not_addresses(text: str) -> None:
    assert parse_address(text) is None


def test_an_address_of_another_gateway_is_a_uri_like_any() -> None:
    inner = to_address("docs", "file:///a")
    assert parse_address(to_address("gateway", inner)) == ("gateway", inner)


def blocks() -> list[wire.ContentBlock]:
    """Return a content block of each type."""
    text = wire.TextResourceContents(uri="f:t", text="t", mime_type="text/plain", _meta={"k": 1})
    blob = wire.BlobResourceContents(uri="ui://x/b", blob="YQ==")
    return [
        wire.TextContent(type="text", text="see f:t", annotations=wire.Annotations(audience=["user"])),
        wire.ImageContent(type="image", data="YQ==", mime_type="image/png"),
        wire.AudioContent(type="audio", data="YQ==", mime_type="audio/wav"),
        wire.ResourceLink(type="resource_link", uri="f:l", name="l", title="L", size=3, _meta={"k": 2}),
        wire.EmbeddedResource(type="resource", resource=text, annotations=wire.Annotations(priority=0.5)),
        wire.EmbeddedResource(type="resource", resource=blob),
    ]


def dump(model: Any) -> str:
    return str(model.model_dump_json(by_alias=True, exclude_none=True))


def test_a_result_differs_in_its_uris_only() -> None:
    result = wire.CallToolResult(
        content=blocks(), structured_content={"uri": "f:t"}, is_error=True, _meta=copy.deepcopy(META)
    )
    before = dump(result)
    published = dump(rewrite_result("docs", result))
    expected = before
    for uri in ("f:l", "ui://x/b", "ui://x/y"):
        expected = expected.replace(f'"{uri}"', f'"{to_address("docs", uri)}"')
    expected = expected.replace('"resource":{"uri":"f:t"', '"resource":{"uri":"dial+docs:f:t"')
    assert published == expected
    assert dump(result) == before, "the server's result is as it was"
    assert dump(rewrite_result("docs", result)) == published


def test_a_result_without_uris_is_not_copied() -> None:
    result = wire.CallToolResult(content=blocks()[:3], _meta={"kept": 1})
    assert rewrite_result("docs", result) is result


def test_messages_of_a_prompt_have_addresses() -> None:
    messages = [wire.PromptMessage(role="user", content=block) for block in blocks()]
    published = rewrite_prompt("docs", wire.GetPromptResult(messages=messages, description="d", _meta={"k": 1}))
    assert [message.content for message in published.messages] == rewrite_result(
        "docs", wire.CallToolResult(content=blocks())
    ).content
    assert (published.description, published.meta) == ("d", {"k": 1})


def test_listed_resources_keep_everything_but_their_uri() -> None:
    resource = wire.Resource(uri="f:a", name="a", title="A", description="d", mime_type="t/p", size=1, _meta={"k": 1})
    published = rewrite_resource("docs", resource)
    assert published.uri == "dial+docs:f:a"
    assert published.model_copy(update={"uri": "f:a"}) == resource


def test_the_content_that_was_read_has_the_address_that_was_asked_for() -> None:
    contents: list[Any] = [wire.TextResourceContents(uri=uri, text=uri) for uri in ("f:a", "f:a/b")]
    result = wire.ReadResourceResult(contents=contents, ttl_ms=7, cache_scope="public", _meta={"k": 1})
    published = rewrite_contents("docs", result, "f:a", "f:a")
    assert [part.uri for part in published.contents] == ["f:a", "dial+docs:f:a/b"]
    assert (published.ttl_ms, published.cache_scope, published.meta) == (7, "public", {"k": 1})


@pytest.mark.parametrize(
    "meta",
    [META, {"ui/resourceUri": "ui://x/y"}, {"openai/outputTemplate": "ui://x/y"}, {"ui": {"resourceUri": "ui://x/y"}}],
)
def test_the_app_of_a_tool_has_an_address(meta: dict[str, Any]) -> None:
    before = copy.deepcopy(meta)
    published = rewrite_meta("docs", meta)
    assert str(published) == str(before).replace("ui://x/y", "ui://dial+docs/x/y")
    assert meta == before


@pytest.mark.parametrize(
    "meta",
    [None, {}, {"ui": 7}, {"ui": {"resourceUri": 7}}, {"ui": {"resourceUri": "https://a.test"}}, {"a": "ui://x"}],
)
def test_other_metadata_stays(meta: dict[str, Any] | None) -> None:
    assert rewrite_meta("docs", meta) is meta


def test_arguments_that_are_addresses_of_the_server_are_restored() -> None:
    arguments = {
        "uri": "dial+docs:f:a",
        "app": "ui://dial+docs/x/y",
        "foreign": "dial+mail:f:a",
        "text": "see dial+docs:f:a",
        "list": [{"dial+docs:k": "dial+docs:f:b"}, 7, None, True],
    }
    assert restore_arguments("docs", arguments) == {
        "uri": "f:a",
        "app": "ui://x/y",
        "foreign": "dial+mail:f:a",
        "text": "see dial+docs:f:a",
        "list": [{"dial+docs:k": "f:b"}, 7, None, True],
    }


LEAVES = st.sampled_from([None, True, 7, "text", "dial+mail:f:a", "dial+", "ui://x"])
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(LEAVES.map(str), inner), max_leaves=5)


@given(st.dictionaries(LEAVES.map(str), JSON))
def test_arguments_without_addresses_stay(arguments: dict[str, Any]) -> None:
    assert restore_arguments("docs", arguments) == arguments
