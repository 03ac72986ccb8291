"""The message field of the page: queued messages, completion, forms of prompts and attachments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import HERE, python_server
from tests.support.servers.skills import write_skill
from tests.support.web_page import (
    DONE,
    assert_harmless,
    fetch_conversation,
    open_page,
    read_text,
    send_message,
    serve_page,
)

pytestmark = pytest.mark.once

ASK = "document.querySelector('.request .primary')"
FIELD = "document.getElementById('message').value"
QUEUED = "[...document.querySelectorAll('.queued-text')].map((item) => item.textContent)"
LABELS = "[...document.querySelectorAll('.completion-label')].map((label) => label.textContent)"
SENT = "[...document.querySelectorAll('.user-message')].map((message) => message.textContent)"


def books(**settings: Any) -> dict[str, Any]:
    return {"books": python_server(HERE / "servers" / "library.py", "stdio", **settings)}


def write(text: str) -> dict[str, Any]:
    """Return a reply with a call that needs approval, which keeps the turn running."""
    return {"tool_calls": [{"name": "write", "arguments": {"uri": "book://1", "text": text}}]}


@contextmanager
def opened(chromium: Browser, folder: Path, replies: list[Any], **settings: Any) -> Iterator[Tab]:
    with serve_page(folder, replies, books(**settings)) as address:
        tab = open_page(chromium, address)
        yield tab
        assert_harmless(tab, address)


def choose(tab: Tab, typed: str, label: str) -> None:
    """Type into the field, and choose the completion with the label by keys."""
    tab.click("#message")
    tab.type(typed)
    tab.until(f"{LABELS}.includes({label!r})")
    for _ in range(int(tab.run(f"{LABELS}.indexOf({label!r})"))):
        tab.press("ArrowDown")
    tab.press("Enter")


def test_messages_sent_during_an_answer_are_queued_and_sent_after_it(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, [write("x"), "One.", "Two.", "Three."]) as tab:
        send_message(tab, "first")
        tab.until(ASK)
        for text in ("second", "wrong", "third"):
            send_message(tab, text)
        tab.until(f"{QUEUED}.join() === 'second,wrong,third'")
        tab.click("[aria-label='Remove “wrong”']")
        tab.press("ArrowUp")  # the last queued message is edited
        tab.until(f"{FIELD} === 'third'")
        tab.type("!")
        tab.press("Enter")
        tab.until(f"{QUEUED}.join() === 'second,third!'")
        tab.click(".request .primary")
        tab.until("document.querySelectorAll('.turn-foot').length === 3")
        assert tab.run(SENT) == ["first", "second", "third!"]
        assert tab.run(QUEUED) == []


def test_after_a_stop_queued_messages_wait_even_across_a_reload(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, [write("x"), "Later."]) as tab:
        send_message(tab, "first")
        tab.until(ASK)
        send_message(tab, "later")
        tab.until(f"{QUEUED}.length === 1")
        tab.press("Escape")
        tab.until("document.querySelector('.queued .button')")
        tab.reload()
        tab.click(".queued .button")
        tab.until("document.querySelectorAll('.turn-foot').length && document.querySelectorAll('.turn').length === 2")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Later.'")
        assert tab.run(SENT) == ["first", "later"]


def test_a_prompt_is_filled_in_with_completion_and_inserted_into_the_field(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."]) as tab:
        choose(tab, "/gre", "/books:greet")
        tab.until("document.activeElement.id === 'prompt-argument-0'")
        tab.type("A")
        tab.until("[...document.querySelectorAll('#prompt-argument-0-options option')].length === 2")
        tab.type("da")
        tab.press("Enter")
        tab.until(f"{FIELD} === 'Greet Ada kindly.'")
        assert tab.run("document.activeElement.id") == "message"
        tab.press("Enter")
        tab.until(DONE)
        assert tab.run(SENT) == ["Greet Ada kindly."]


def test_a_mention_is_completed_and_a_template_asks_for_its_variables(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."]) as tab:
        choose(tab, "Read @2", "@books:book://2")
        tab.until(f"{FIELD} === 'Read @books:book://2 '")
        choose(tab, "and @shelf", "@books:book://{shelf}/{number}")
        tab.until("document.activeElement.id === 'prompt-argument-0'")
        tab.type("a b")
        tab.click("#prompt-argument-1")
        tab.type("7")
        tab.press("Enter")
        tab.until(f"{FIELD} === 'Read @books:book://2 and @books:book://a%20b/7 '")
        assert tab.run("document.getElementById('completions').hidden") is True


def test_escape_closes_the_completions_and_a_path_is_sent_as_text(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."]) as tab:
        tab.click("#message")
        tab.type("/")
        tab.until(f"{LABELS}.length")
        selected = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
        assert tab.run(f"{selected}.ariaSelected") == "true"
        tab.press("Escape")
        tab.until("document.getElementById('completions').hidden")
        tab.type("etc/hosts")
        tab.press("Enter")
        tab.until(DONE)
        assert tab.run(SENT) == ["/etc/hosts"]


def test_a_saved_prompt_is_completed_and_inserted(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."]) as tab:
        send_message(tab, "/prompts")
        tab.click("#prompt-name")
        tab.type("short")
        tab.click("#prompt-text")
        tab.type("Answer in one sentence: <b>")
        tab.click("dialog .primary")
        assert "/short" in read_text(tab, ".saved-prompts")
        tab.click("dialog .button:not(.primary)")
        choose(tab, "/sh", "/short")
        tab.until(f"{FIELD} === 'Answer in one sentence: <b>'")


def test_arrow_up_in_the_empty_field_edits_the_last_message(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."]) as tab:
        send_message(tab, "a typo")
        tab.until(DONE)
        tab.press("ArrowUp")
        tab.until("document.activeElement.value === 'a typo'")


def test_a_prompt_of_an_untrusted_server_taints_the_message(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."], untrusted=True) as tab:
        choose(tab, "/show", "/books:show")
        tab.until("document.querySelector('.file')")
        tab.click("#message")
        tab.type("what is it?")
        tab.press("Enter")
        tab.until(DONE)
        stored = fetch_conversation(tab)
        assert stored["messages"][0]["taint"] == "books"


def test_a_skill_of_a_server_is_proposed_and_its_text_taints_the_message(chromium: Browser, tmp_path: Path) -> None:
    write_skill(tmp_path / "served", "pdf-forms", "Read the form first.", "Fills forms.")
    servers = {"docs": python_server(HERE / "servers" / "skills.py", str(tmp_path / "served"))}
    with serve_page(tmp_path, ["Done."], servers) as address:
        tab = open_page(chromium, address)
        choose(tab, "/skill docs/pdf", "/skill docs/pdf-forms")
        tab.until(f"{FIELD}.includes('Read the form first.')")
        tab.press("Enter")
        tab.until(DONE)
        assert fetch_conversation(tab)["messages"][0]["taint"] == "docs"


def test_hostile_names_of_prompts_are_shown_as_text(chromium: Browser, tmp_path: Path) -> None:
    name = "<img src=https://evil.test/a.png onerror=alert(1)>\u202e"
    teach = {"tool_calls": [{"name": "teach", "arguments": {"name": name}}]}
    with opened(chromium, tmp_path, [teach, "Done."], autoApprove=["*"]) as tab:
        send_message(tab, "Learn it")
        tab.until(DONE)
        tab.click("#message")
        tab.type("/books:<")
        tab.until(f"{LABELS}.length === 1")
        label = tab.run(f"{LABELS}[0]")
        assert label.startswith("/books:<img src=https://evil.test/a.png")
        assert label.endswith("\\u{202e}")
        assert tab.run("document.querySelectorAll('.composer img').length") == 0


def test_text_files_and_long_pasted_texts_are_attached_and_audio_is_refused(chromium: Browser, tmp_path: Path) -> None:
    table, sound = tmp_path / "sums.csv", tmp_path / "talk.mp3"
    table.write_text("name,sum\n<b>Ada</b>,2 @books:book://1\n")
    sound.write_bytes(b"ID3")
    paste = (
        "(() => { const clipboardData = new DataTransfer(); "
        "clipboardData.setData('text/plain', 'line\\n'.repeat(2000)); "
        "const event = new ClipboardEvent('paste', {clipboardData, bubbles: true, cancelable: true}); "
        "document.getElementById('message').dispatchEvent(event); return event.defaultPrevented; })()"
    )
    with opened(chromium, tmp_path, ["Done."]) as tab:
        tab.choose_file("#attach-input", sound)
        assert "audio and video are not supported" in read_text(tab, ".toast")
        tab.choose_file("#attach-input", table)
        assert tab.run(paste) is True
        tab.until("document.querySelectorAll('.file .icon-button').length === 2")
        send_message(tab, "Add them up")
        tab.until(DONE)
        tab.reload()
        tab.until(DONE)
        titles = tab.run("[...document.querySelectorAll('.resource summary')].map((title) => title.textContent)")
        assert titles == ["[file sums.csv; the user attached it]", "[file pasted text.txt; the user attached it]"]
        assert "<b>Ada</b>,2" in read_text(tab, ".resource .reasoning-text")
        assert tab.run(SENT) == ["Add them up"]


def test_the_taint_of_a_draft_survives_a_switch_of_conversations_and_a_reload(
    chromium: Browser, tmp_path: Path
) -> None:
    with opened(chromium, tmp_path, ["Done."], untrusted=True) as tab:
        choose(tab, "/books:greet", "/books:greet")
        tab.until("document.activeElement.id === 'prompt-argument-0'")
        tab.type("Ada")
        tab.press("Enter")
        tab.until(f"{FIELD} === 'Greet Ada kindly.'")
        tab.run("location.reload()")
        tab.until(f"document.readyState === 'complete' && {FIELD} === 'Greet Ada kindly.'")
        tab.click("#send")
        tab.until(DONE)
        assert fetch_conversation(tab)["messages"][0]["taint"] == "books"


def test_a_message_and_an_edit_that_are_rejected_are_kept(chromium: Browser, tmp_path: Path) -> None:
    with opened(chromium, tmp_path, ["Done."]) as tab:
        send_message(tab, "first")
        tab.until(DONE)
        tab.until("document.querySelector('[aria-label=\"Edit this message\"]')")
        tab.run(
            "window.answer = fetch; window.rejected = new Promise((resolve) => (window.reject = resolve));"
            "void (window.fetch = (url, ...rest) => String(url).endsWith('/chat')"
            " ? rejected.then(() => new Response('{}', {status: 500})) : answer(url, ...rest))"
        )
        tab.click("[aria-label='Edit this message']")
        tab.until("document.activeElement.value === 'first'")
        tab.type(" edited")
        tab.press("Enter")
        tab.click("#message")
        tab.type("the next")
        tab.run("reject()")
        tab.until(f"{QUEUED}.join() === 'first edited'")
        tab.press("Enter")
        tab.until(f"{FIELD} === 'the next'")
        tab.click(".queued button[title^=Edit]")
        tab.until(f"{FIELD} === 'the nextfirst edited'")


def test_an_edited_message_keeps_its_text_files(chromium: Browser, tmp_path: Path) -> None:
    table = tmp_path / "sums.csv"
    table.write_text("name,sum\nZoë,2\n", "utf-8")
    with opened(chromium, tmp_path, ["Done.", "Done again."]) as tab:
        tab.choose_file("#attach-input", table)
        tab.until("document.querySelector('.file .icon-button')")
        send_message(tab, "Add them")
        tab.until(DONE)
        tab.reload()
        tab.click("[aria-label='Edit this message']")
        tab.until("document.activeElement.value === 'Add them'")
        tab.type(" up")
        tab.press("Enter")
        tab.until("document.querySelector('.prose')?.textContent === 'Done again.'")
        tab.until(DONE)
        texts = [part["text"] for part in fetch_conversation(tab)["messages"][0]["content"]]
        assert texts == ["Add them up", "[file sums.csv; the user attached it]\nname,sum\nZoë,2\n\n[end of file]"]
