"""Every resource, template, prompt and completion of server-everything is used once."""

from __future__ import annotations

import base64
import shutil

import anyio
import pytest

from dial_client import DialClient
from tests.e2e.test_main_job import NPM, needs_npm

pytestmark = [
    pytest.mark.anyio,
    needs_npm,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node is not here"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
]
SERVERS = {"it": {"command": str(NPM / "mcp-server-everything")}}
TEXTS = "demo://resource/dynamic/text/{resourceId}"
BLOBS = "demo://resource/dynamic/blob/{resourceId}"


async def test_every_resource_and_template_can_be_read() -> None:
    with anyio.fail_after(100):
        async with DialClient(servers=SERVERS) as dial:
            listed = await dial.resources.list()
            documents = [(await dial.resources.read("it", resource.uri))[0] for resource in listed]
            templates = await dial.resources.templates()
            [text] = await dial.resources.read("it", templates[0].expand({"resourceId": "7"}))
            [blob] = await dial.resources.read("it", templates[1].expand({"resourceId": "7"}))
            completed = [
                await dial.resources.complete("it", resource, "resourceId", "7") for resource in (TEXTS, BLOBS)
            ]
            attached = await dial.attach(f"@it:{text.uri} @it:{blob.uri}")
    assert len(listed) == 7
    assert all(resource.name.endswith(".md") and resource.mime_type == "text/markdown" for resource in listed)
    assert all((resource.text or "").startswith("# Everything Server") for resource in documents)
    assert [(resource.uri_template, resource.variables) for resource in templates] == [
        (TEXTS, ("resourceId",)),
        (BLOBS, ("resourceId",)),
    ]
    assert (text.text or "").startswith("Resource 7: This is a plaintext resource")
    assert base64.b64decode(blob.blob or "").startswith(b"Resource 7: This is a base64 blob")
    assert completed == [("7",), ("7",)]
    _, first, second = (getattr(part, "text", "") for part in attached.message.content)
    assert "Resource 7: This is a plaintext resource" in first
    assert "it cannot be shown here" in second


async def test_every_prompt_can_be_completed_and_sent() -> None:
    with anyio.fail_after(100):
        async with DialClient(servers=SERVERS) as dial:
            prompts = {prompt.name: prompt for prompt in await dial.prompts.list()}
            departments = await dial.prompts.complete("it", "completable-prompt", "department", "S")
            people = await dial.prompts.complete("it", "completable-prompt", "name", "", {"department": "Sales"})
            kinds = await dial.prompts.complete("it", "resource-prompt", "resourceType")
            numbers = await dial.prompts.complete("it", "resource-prompt", "resourceId", "3")
            given = {
                "simple-prompt": {},
                "args-prompt": {"city": "Tokyo"},
                "completable-prompt": {"department": "Sales", "name": people[0]},
                "resource-prompt": {"resourceType": "Text", "resourceId": "3"},
            }
            texts = {
                name: " ".join(message.text for message in await dial.prompts.get("it", name, arguments))
                for name, arguments in given.items()
            }
    assert prompts.keys() == given.keys()
    assert [(argument.name, argument.required) for argument in prompts["args-prompt"].arguments] == [
        ("city", True),
        ("state", False),
    ]
    assert departments == ("Sales", "Support")
    assert people
    assert kinds == ("Text", "Blob")
    assert numbers == ("3",)
    assert texts["simple-prompt"] == "This is a simple prompt without arguments."
    assert texts["args-prompt"] == "What's weather in Tokyo?"
    assert texts["completable-prompt"] == f"Please promote {people[0]} to the head of the Sales team."
    assert "[resource demo://resource/dynamic/text/3]\nResource 3:" in texts["resource-prompt"]


async def test_updates_of_subscribed_resources_are_reported() -> None:
    uri = TEXTS.format(resourceId=1)
    with anyio.fail_after(100):
        async with DialClient(servers=SERVERS) as dial, dial.resources.subscribe("it", uri) as changes:
            await dial.call("toggle-subscriber-updates", {})
            assert await anext(changes) == uri
