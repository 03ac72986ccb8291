"""HTTP routes for prompts and resources of servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.inner import MAX_CONTENT, ResourceContent, content_to_dict
from tests.support.http_service import HttpService, serve
from tests.support.servers.library import PNG, TEMPLATE, library
from tests.support.servers.skills import SkillServer, write_skill

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def post(service: HttpService, path: str, **body: Any) -> tuple[int, Any]:
    response = await service.http.post(path, json=body)
    return response.status_code, response.json()


async def test_prompts_are_listed_filled_in_and_completed() -> None:
    async with serve([], {"books": library()}) as service:
        listed = (await service.http.get("/prompts")).json()["prompts"]
        assert (listed[0]["server"], listed[0]["name"]) == ("books", "greet")
        filled = await post(service, "/prompts/get", server="books", name="greet", arguments={"name": "Ada"})
        assert filled == (200, {"messages": [{"role": "user", "content": "Greet Ada kindly."}], "taint": ""})
        found = await post(service, "/completions", server="books", prompt="greet", argument="name", value="A")
        assert found == (200, {"values": ["Ada", "Alan"]})


async def test_resources_are_listed_and_templates_expanded() -> None:
    async with serve([], {"books": library()}) as service:
        listed = (await service.http.get("/resources")).json()
        assert "book://1" in [resource["uri"] for resource in listed["resources"]]
        assert listed["templates"][0]["variables"] == ["shelf", "number"]
        body = {"server": "books", "uri_template": TEMPLATE, "values": {"shelf": "a b", "number": "7"}}
        assert await post(service, "/resources/expand", **body) == (200, {"uri": "book://a%20b/7"})
        status, _ = await post(service, "/completions", server="books", template=TEMPLATE, argument="shelf")
        assert status == 200


async def test_the_resources_of_one_server_are_listed_and_read() -> None:
    async with serve([], {"books": library(), "others": library()}) as service:
        listed = (await service.http.get("/resources?server=others")).json()
        assert {resource["server"] for resource in listed["resources"]} == {"others"}
        assert (await service.http.get("/resources?server=none")).status_code == 404
        status, read = await post(service, "/resources/read", server="books", uri="book://all")
        assert (status, [content["text"] for content in read["contents"]]) == (
            200,
            ["The first book.", "The second book."],
        )
        _, cover = await post(service, "/resources/read", server="books", uri="book://cover")
        content = {"uri": "book://cover", "mime_type": "image/png", "text": None, "blob": PNG, "is_cut": False}
        assert cover == {"contents": [content]}


def test_a_long_text_is_truncated_and_a_long_blob_is_left_out() -> None:
    text = content_to_dict(ResourceContent("book://1", text="x" * (MAX_CONTENT + 1)))
    assert (len(text["text"]), text["is_cut"]) == (MAX_CONTENT, True)
    blob = content_to_dict(ResourceContent("book://1", blob="x" * (MAX_CONTENT + 1)))
    assert (blob["blob"], blob["is_cut"]) == (None, True)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/prompts/get", {"server": "none", "name": "greet"}, 404),
        ("/prompts/get", {"server": "books", "name": "no such prompt"}, 502),
        ("/prompts/get", {"server": "books"}, 400),
        ("/prompts/get", {"server": "books", "name": "greet", "arguments": {"name": 1}}, 400),
        ("/resources/expand", {"server": "books", "uri_template": "x"}, 404),
        ("/resources/read", {"server": "none", "uri": "book://1"}, 404),
        ("/resources/read", {"server": "books", "uri": "book://none"}, 502),
        ("/resources/read", {"server": "books"}, 400),
        ("/completions", {"server": "books", "argument": "name"}, 400),
    ],
)
async def test_invalid_requests_are_refused_with_a_reason(path: str, body: dict[str, Any], status: int) -> None:
    async with serve([], {"books": library()}) as service:
        found, answer = await post(service, path, **body)
    assert found == status
    assert answer["error"]["message"]


async def test_the_taint_of_a_message_must_name_a_server() -> None:
    async with serve(["Hello."], {"books": library()}) as service:
        conversation = (await service.http.post("/conversations", json={})).json()["id"]
        path = f"/conversations/{conversation}/chat"
        assert (await post(service, path, text="Hi", taint="none", stream=False))[0] == 400
        assert (await post(service, path, text="Hi", taint="books", stream=False))[0] == 200
        stored = (await service.http.get(f"/conversations/{conversation}")).json()
    assert stored["messages"][0]["taint"] == "books"


async def test_skills_are_listed_without_folders_and_read_as_a_message(tmp_path: Path) -> None:
    own, served = write_skill(tmp_path / "own", "notes", "Write briefly."), tmp_path / "served"
    write_skill(served, "forms", "Fill them.", "Fills forms.")
    async with serve([], {"docs": SkillServer(served).build()}, skills=[own]) as service:
        answer = (await service.http.get("/skills")).json()
        assert answer == {
            "skills": [
                {"name": "notes", "description": "Does it.", "server": "", "withheld": False},
                {"name": "docs/forms", "description": "Fills forms.", "server": "docs", "withheld": False},
            ]
        }
        status, read = await post(service, "/skills/get", name="docs/forms")
        assert (status, read["taint"]) == (200, "docs")
        assert "Fill them." in str(read["messages"])
        status, read = await post(service, "/skills/get", name="notes")
        assert (status, read["taint"]) == (200, "")
        assert "Write briefly." in str(read["messages"])
        assert str(tmp_path) not in str(read)
        status, read = await post(service, "/skills/get", name="none")
        assert status == 400
        assert "there is no skill 'none'" in read["error"]["message"]


async def test_a_changed_skill_of_a_server_is_trusted_as_it_was_shown(tmp_path: Path) -> None:
    write_skill(tmp_path, "forms", "Fill them.", "Fills forms.")
    async with serve([], {"docs": SkillServer(tmp_path).build()}) as service:
        assert (await post(service, "/skills/get", name="docs/forms"))[0] == 200
        write_skill(tmp_path, "forms", "Send them.", "Fills forms.")
        assert (await post(service, "/skills/get", name="docs/forms"))[0] == 502
        status, review = await post(service, "/skills/review", name="docs/forms")
        assert status == 200
        assert "-Fill them.\n+Send them." in review["change"]
        write_skill(tmp_path, "forms", "Sell them.", "Fills forms.")
        path, shown = "/servers/docs/skills/trust", {"name": "docs/forms", "digest": review["digest"]}
        refused = await service.http.post(path, json=shown)
        assert refused.status_code == 400
        assert "changed again" in refused.json()["error"]["message"]
        _, again = await post(service, "/skills/review", name="docs/forms")
        assert (await service.http.post("/servers/other/skills/trust", json=shown)).status_code == 400
        assert (await service.http.post(path, json=shown | {"digest": again["digest"]})).status_code == 204
        status, read = await post(service, "/skills/get", name="docs/forms")
        assert (status, "Sell them." in str(read)) == (200, True)
