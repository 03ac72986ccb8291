"""Scenes of the `dial-chat serve` page for pictures: ``python -m tests.pictures.page_scenes FOLDER [NAME]…``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pictures.scenes import CALLS, COMPARISON, QUESTION, entry
from tests.support.browser import Browser, Tab, browser
from tests.support.model_endpoint import Call, Say, model_endpoint
from tests.support.program import write_config
from tests.support.web_page import DONE, open_page, send_message, serve_folder

NOTE = "# Trip\n\n- umbrella\n- sun cream\n- sandals, because it will be warm in São Paulo\n"
# Without a Japanese font, Chromium draws empty boxes.
COMPARED = (
    Say("", (*CALLS[:-1], Call("get_forecast", {"city": "Lisbon"}, "call_4")), usage=(1_480, 96)),
    Say(COMPARISON.replace("東京", "Lisbon"), usage=(2_099, 184), pieces=40),
)
ANSWERS = (*COMPARED, Say("", (Call("write_file", {"path": "notes.md", "content": NOTE}),)))


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture of the page."""

    width: int
    height: int
    theme: str
    prepare: Callable[[Tab], Any]
    """A function that brings the page, which shows a conversation, into the state of the picture."""
    is_waiting: bool = False
    """True for the conversation with a call that waits for approval; False for the conversation with an answer."""

    @property
    def is_phone(self) -> bool:
        """True for a touch screen."""
        return self.width < 500


def show_answer(tab: Tab) -> None:
    """Show the beginning of the answer: calls, table, formula and code."""
    tab.until("document.querySelector('.prose pre')")
    tab.run("document.querySelector('.prose pre').scrollIntoView({block: 'end'})")
    tab.until("document.querySelector('.prose math, .prose .katex') && document.querySelector('.prose [class^=code-]')")


def show_request(tab: Tab) -> None:
    """Show the call that waits for approval."""
    tab.until("document.querySelector('.request')")
    tab.run("document.querySelector('.request').scrollIntoView({block: 'end'})")


def show_servers(tab: Tab) -> None:
    """Show the panel of servers, with the tools of one of them."""
    tab.click("#servers-button")
    tab.until("document.querySelector('#servers .server dt')")
    tab.run("document.querySelector('#servers .server details').open = true")


def show_tool_form(tab: Tab) -> None:
    """Show the form that calls a tool."""
    show_servers(tab)
    tab.click("#servers .server dt .text-button")
    tab.until("document.querySelector('.tool-form')")


def show_settings(tab: Tab) -> None:
    """Show the settings of the conversation."""
    tab.click("#model")
    tab.until("document.querySelector('dialog.settings[open] textarea')")


def show_commands(tab: Tab) -> None:
    """Show the completion of commands after a slash."""
    tab.click("#message")
    tab.type("/")
    tab.until("document.querySelector('[role=listbox] [role=option]')")


SCENES = {
    "answer-light": Scene(1440, 900, "light", show_answer),
    "answer-dark": Scene(1440, 900, "dark", show_answer),
    "answer-tablet": Scene(768, 1024, "light", show_answer),
    "answer-phone": Scene(320, 640, "dark", show_answer),
    "approval-light": Scene(1440, 900, "light", show_request, is_waiting=True),
    "approval-phone": Scene(320, 640, "light", show_request, is_waiting=True),
    "servers-dark": Scene(1440, 900, "dark", show_servers, is_waiting=True),
    "servers-phone": Scene(320, 640, "light", show_servers),
    "tool-form-tablet": Scene(768, 1024, "dark", show_tool_form),
    "settings-light": Scene(1440, 900, "light", show_settings),
    "settings-phone": Scene(320, 640, "dark", show_settings),
    "commands-tablet": Scene(768, 1024, "light", show_commands),
}


@contextmanager
def _service(folder: Path, program: Browser) -> Iterator[tuple[str, dict[bool, str]]]:
    """Yield the URL of the page, and the URL hashes of its conversations by `Scene.is_waiting`."""
    entries = {"weather": entry("weather", autoApprove=["*"]), "files": entry("files")}
    with model_endpoint(ANSWERS) as endpoint:
        model = {"api": "chat", "base_url": f"{endpoint.url}/v1", "model": "qwen3"}
        write_config(folder, entries, models={"qwen3": model}, defaultModel="qwen3")
        with serve_folder(folder) as address:
            tab = open_page(program, address)
            send_message(tab, QUESTION)
            tab.until(f"{DONE} && document.querySelector('.turn-foot [title=\"Answer again\"]')")
            answered = tab.run("location.hash")
            tab.click("#new")
            tab.until("!document.querySelector('.turn')")
            send_message(tab, "Write a note about sun cream")
            tab.until("document.querySelector('.request')")
            yield address, {False: answered, True: tab.run("location.hash")}


def draw_pages(target: Path, names: Sequence[str]) -> None:
    """Run `dial-chat serve`, and write a picture of each scene."""
    target.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as profile,
        browser(Path(profile)) as program,
        _service(Path(folder), program) as (address, conversations),
    ):
        for name in names:
            scene = SCENES[name]
            tab = open_page(program, address, prefers_color_scheme=scene.theme, prefers_reduced_motion="reduce")
            tab.resize(scene.width, scene.height, phone=scene.is_phone)
            tab.run(f"location.hash = {conversations[scene.is_waiting]!r}")
            tab.until("document.querySelector('.turn')")
            scene.prepare(tab)
            tab.screenshot(target / f"{name}.webp")
            print(target / f"{name}.webp")


if __name__ == "__main__":
    draw_pages(Path(sys.argv[1]), sys.argv[2:] or sorted(SCENES))
