"""Tab completion in the interactive chat."""

from __future__ import annotations

import pytest

from dial_client import Agent, DialClient
from tests.inner import propose_completions
from tests.support.servers.launch import raw
from tests.support.servers.library import Library, library

pytestmark = pytest.mark.anyio

COMMANDS = {"/tools": "", "/talk": "", "/help": ""}


async def completed_lines(dial: DialClient, text: str) -> list[str]:
    """Return the complete lines that the completions of a text produce."""
    found = await propose_completions(dial, text, COMMANDS)
    return [text[: len(text) - completion.replaced] + completion.text for completion in found]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("What is @", ["What is @books:", "What is @bookshop:"]),
        ("What is @books", ["What is @books:", "What is @bookshop:"]),
        ("What is @bookso", []),
        ("mail ada@b", []),
        ("@books:book://l", ["@books:book://long"]),
        ("@books:book://1", []),
        ("@books:bo", [f"@books:book://{book}" for book in ("1", "2", "long", "cover", "paper", "sound", "")]),
        ("@books:book://s", ["@books:book://sound", "@books:book://shelf", "@books:book://sofa"]),
        ("@books:book://sofa/", ["@books:book://sofa/sofa-1", "@books:book://sofa/sofa-2"]),
        ("@books:book://sofa/sofa-2", []),
        ("see @books:book://1 and @books:book://c", ["see @books:book://1 and @books:book://cover"]),
        ("@gone:", []),
        ("/t", ["/tools", "/talk"]),
        ("/books:", ["/books:greet ", "/books:show", "/books:talk"]),
        ("/books:greet ", ["/books:greet name=", "/books:greet how="]),
        ("/books:greet h", ["/books:greet how="]),
        ("/books:greet name=A", ["/books:greet name=Ada", "/books:greet name=Alan"]),
        ("/books:greet name=Ada how=", ["/books:greet name=Ada how='like Ada'"]),
        ("/books:greet name=Ada ", ["/books:greet name=Ada how="]),
        ("/books:greet other=", []),
        ("/nobody:x ", []),
    ],
)
async def test_completions_of_a_line(
    text: str, lines: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    servers = {"books": library(), "bookshop": library(), "gone": raw("ExitsAtOnce"), "bare": raw()}
    async with DialClient(servers=servers) as dial:
        assert await completed_lines(dial, text) == lines


async def test_the_start_of_a_line_names_agents(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    agents = [Agent("reviewer", "Reviews."), Agent("writer", "Writes.")]
    async with DialClient(agents=agents) as dial:
        assert await completed_lines(dial, "@") == ["@reviewer ", "@writer "]
        assert await completed_lines(dial, "@reviewer @w") == ["@reviewer @writer "]
        assert await completed_lines(dial, "ask @w") == []


async def test_unsafe_resource_names_are_not_completed() -> None:
    it = Library()
    it.texts = {"book://\x1b[2J": "", "book://a\nb": "", "book://good": ""}
    async with DialClient(servers={"books": library(it)}) as dial:
        assert await completed_lines(dial, "@books:book://g") == ["@books:book://good"]
        assert not [line for line in await completed_lines(dial, "@books:") if "\x1b" in line or "\n" in line]
