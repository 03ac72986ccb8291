"""MCP Apps: declared origins, the content security policy made of the origins, and bounded results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import (
    MAX_RESULT,
    App,
    AppPolicy,
    is_for_app,
    is_for_model,
    parse_app_uri,
    parse_policy,
    parse_resource,
)

APP = App("call_1", "maps", "show", "ui://maps/view.html", {"at": [1, 2]})


@pytest.mark.parametrize(
    "source",
    [
        "https://api.test",
        "https://*.cdn.test",
        "wss://live.test:8443",
        "https://a.test/",
        "http://localhost:5173",
        "ws://127.0.0.1:*",
    ],
)
def test_an_origin_may_be_declared(source: str) -> None:
    assert parse_policy({"connect": [source]}).connect == (source,)


@pytest.mark.parametrize(
    "source",
    [
        "*",
        "https:",
        "https://*",
        "https://*.test",
        "http://plain.test",
        "'self'",
        "'unsafe-eval'",
        "data:",
        "https://a.test; script-src *",
        "https://a.test https://b.test",
        "https://a.test/path",
        "https://a.test\nx: y",
        "https://user@a.test",
        "javascript:alert(1)",
        "https://\u0430.test",
        "",
        f"https://{'a' * 300}.test",
    ],
)
def test_an_invalid_origin_is_left_out_of_the_policy(source: str) -> None:
    meta = {"ui": {"csp": {"connectDomains": [source], "resourceDomains": [source]}}}
    resource = parse_resource("maps", APP.uri, "", meta)
    assert resource.policy == AppPolicy()
    assert resource.left_out == (source,)


def test_without_declared_origins_the_policy_allows_no_connection() -> None:
    header = AppPolicy().header
    directives = dict(part.partition(" ")[::2] for part in header.split("; "))
    for name in ("default-src", "connect-src", "frame-src", "object-src", "base-uri", "form-action"):
        assert directives[name] == "'none'"
    assert directives["sandbox"].split() == ["allow-scripts", "allow-forms"]
    assert "http" not in header
    assert "'self'" not in header.replace("frame-ancestors 'self'", "")


def test_each_list_of_origins_applies_to_its_own_directives() -> None:
    policy = parse_policy({"connect": ["https://c.test"], "resource": ["https://r.test"], "frame": ["https://f.test"]})
    directives = dict(part.partition(" ")[::2] for part in policy.header.split("; "))
    assert directives["connect-src"] == "https://c.test"
    assert directives["frame-src"] == "https://f.test"
    resources = {name for name, sources in directives.items() if "https://r.test" in sources}
    assert resources == {"script-src", "style-src", "img-src", "font-src", "media-src"}


@pytest.mark.parametrize(
    ("meta", "uri", "for_model", "for_app"),
    [
        (None, "", True, True),
        ({"ui": {"resourceUri": "ui://a"}}, "ui://a", True, True),
        ({"ui/resourceUri": "ui://old"}, "ui://old", True, True),
        ({"ui": {"resourceUri": "https://a.test"}}, "", True, True),
        ({"ui": {"resourceUri": 5, "visibility": ["app"]}}, "", False, True),
        ({"ui": {"visibility": ["model"]}}, "", True, False),
        ({"ui": {"visibility": []}}, "", False, False),
        ({"ui": {"visibility": "app"}}, "", True, True),
        ({"ui": "odd"}, "", True, True),
    ],
)
def test_the_metadata_of_a_tool_determines_its_app_and_its_visibility(
    meta: Any, uri: str, for_model: bool, for_app: bool
) -> None:
    assert (parse_app_uri(meta), is_for_model(meta), is_for_app(meta)) == (uri, for_model, for_app)


def test_an_app_round_trips_through_json() -> None:
    app = APP.with_result({"content": [], "structuredContent": {"a": None}})
    assert App.from_dict(app.to_dict()) == app
    assert App.from_dict(APP.to_dict()) == APP


@pytest.mark.parametrize("data", [None, "x", 5, [], {}, {"call_id": 1, "server": "", "tool": "", "uri": ""}])
def test_an_app_that_cannot_be_read_is_none(data: Any) -> None:
    assert App.from_optional(data) is None


@pytest.mark.parametrize("result", [{"content": "x" * (MAX_RESULT + 1)}, {"content": {1, 2}}])
def test_a_result_that_is_too_large_or_not_json_becomes_an_error_for_the_app(result: Any) -> None:
    given = APP.with_result(result).result
    assert given is not None
    assert given["isError"] is True
