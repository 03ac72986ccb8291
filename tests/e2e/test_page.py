"""The web page in a real browser: main actions of a user, with a real server, real tools and a scripted model."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.support.browser import Browser
from tests.support.program import HERE, python_server
from tests.support.web_page import (
    DONE,
    assert_harmless,
    open_page,
    open_relay,
    read_text,
    send_message,
    serve_page,
    two_servers,
)

ASK = "document.querySelector('.request')"
LAST = ".turn:last-child"
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CHIPS = "[...document.querySelectorAll('.file-name')].map(e => e.textContent)"
MESSAGES = "[...document.querySelectorAll('.user-message')].map(e => e.textContent)"
DOTS = "[...document.querySelectorAll('.user img')].map(e => e.naturalWidth)"


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"text": f"I will use {name}.", "tool_calls": [{"name": name, "arguments": arguments}]}


def test_an_answer_is_shown_while_streaming_and_can_be_stopped(chromium: Browser, tmp_path: Path) -> None:
    text = "# Title\n\nSome **bold** words:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n"
    text += "".join(f"{at}. item\n\n" for at in range(1, 13)) + "and so on"
    replies = [{"text": text, "chunk_size": 1, "hang": True}, "You are welcome."]
    with serve_page(tmp_path, replies, DIAL_TEST_FRESH="1") as address:
        tab = open_page(chromium, address)
        send_message(tab, "Tell me")
        tab.until(f"document.querySelector('{LAST} .prose').textContent.includes('and so on')")
        assert read_text(tab, f"{LAST} .prose strong") == "bold"
        assert read_text(tab, f"{LAST} .prose td") == "1"
        assert read_text(tab, f"{LAST} .prose pre code").strip() == "print(1)"
        assert tab.run("[...document.querySelectorAll('.prose ol')].map(e => e.children.length)") == [12]
        assert tab.run("document.getElementById('send').title") == "Stop"
        tab.press("Escape")
        assert read_text(tab, f"{LAST} .stopped") == "Stopped."
        tab.until("document.getElementById('send').title === 'Send'")
        send_message(tab, "Thanks")
        tab.until(f"document.querySelector('{LAST} .prose')?.textContent.includes('welcome')")
        assert tab.run("document.querySelectorAll('.turn').length") == 2
        assert_harmless(tab, address)


def test_a_late_answer_about_an_earlier_turn_does_not_hide_a_later_turn(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["First.", "Second."]) as address:
        tab = open_page(chromium, address)
        tab.run("""(() => {
          const { fetch } = window;
          Object.assign(window, { held: [], reads: 0 });
          window.fetch = async (...request) => {
            const response = await fetch(...request);
            const isRead = /conversations\\/[^/?]+$/.test(String(request[0])) && request[1]?.method === "GET";
            if (isRead && !window.isOpen) await new Promise((deliver) => window.held.push(deliver));
            else if (isRead) setTimeout(() => { window.reads += 1; }, 100);
            return response;
          };
        })()""")
        send_message(tab, "One")
        tab.until("window.held.length === 1")
        tab.run("window.isOpen = true")
        send_message(tab, "Two")
        tab.until("window.reads === 1")
        tab.run("window.held[0]()")
        tab.run("new Promise((passed) => setTimeout(passed, 200))")
        assert tab.run("document.querySelectorAll('.turn').length") == 2
        assert_harmless(tab, address)


def test_a_tool_call_is_a_collapsed_line_with_arguments_and_result(chromium: Browser, tmp_path: Path) -> None:
    replies = [{"reasoning": "Hm, echo.", **calls("echo", text="hello <b>there</b>")}, "It said hello."]
    with serve_page(tmp_path, replies, two_servers(autoApprove=["echo"])) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Echo it")
        tab.until(DONE)
        assert tab.run("document.querySelector('.tool').open") is False
        assert tab.run("document.querySelector('.tool').dataset.state") == "done"
        assert tab.run("document.querySelector('.reasoning').open") is False
        assert read_text(tab, ".reasoning summary") == "Thoughts"
        tab.click(".reasoning summary")
        tab.until("document.querySelector('.reasoning-text').checkVisibility()")
        assert read_text(tab, ".reasoning-text") == "Hm, echo."
        assert "echo" in read_text(tab, ".tool summary")
        assert "library" in read_text(tab, ".tool summary")
        tab.click(".tool summary")
        tab.until("document.querySelector('.tool').open")
        assert json.loads(read_text(tab, ".tool pre")) == {"text": "hello <b>there</b>"}
        assert read_text(tab, ".tool-result pre") == "hello <b>there</b>"
        tab.reload()
        assert "library" in read_text(tab, ".tool summary")
        assert read_text(tab, ".tool-result pre") == "hello <b>there</b>"
        assert_harmless(tab, address)


def paste_or_drop(event: str, name: str) -> str:
    """Return a script that pastes or drops an image by browser events."""
    kind, member = {"paste": ("ClipboardEvent", "clipboardData"), "drop": ("DragEvent", "dataTransfer")}[event]
    return (
        f"(() => {{ const bytes = Uint8Array.from(atob('{DOT}'), (char) => char.charCodeAt(0)); "
        f"const {member} = new DataTransfer(); "
        f"{member}.items.add(new File([bytes], '{name}', {{type: 'image/png'}})); "
        f"const event = new {kind}('{event}', {{{member}, bubbles: true, cancelable: true}}); "
        "document.getElementById('message').dispatchEvent(event); return event.defaultPrevented; })()"
    )


def test_images_and_documents_can_be_attached_to_a_message(chromium: Browser, tmp_path: Path) -> None:
    pdf, image, script = (tmp_path / name for name in ("a report.pdf", "<b>dot.png", "run.bin"))
    pdf.write_bytes(b"%PDF-1.7")
    image.write_bytes(base64.b64decode(DOT))
    script.write_bytes(b"\x7fELF\0\xff")
    books = python_server(HERE / "servers" / "library.py", "stdio")
    with serve_page(tmp_path, ["I see a dot.", "Again."], {"books": books}) as address:
        tab = open_page(chromium, address)
        for path in (pdf, image, script):
            tab.choose_file("#attach-input", path)
        assert "run.bin was not attached" in read_text(tab, ".toast")
        assert tab.run(f"({CHIPS})") == ["a report.pdf", "<b>dot.png"]
        assert tab.run(paste_or_drop("paste", "pasted.png")) is True
        assert tab.run(paste_or_drop("drop", "dropped.png")) is True
        tab.until(f"({CHIPS}).length === 4")
        tab.click("[aria-label='Remove a report.pdf']")
        assert tab.run(f"({CHIPS})") == ["<b>dot.png", "pasted.png", "dropped.png"]
        send_message(tab, "What is it? @books:book://1")
        tab.until(DONE)
        assert tab.run(f"({CHIPS})") == []
        for _ in range(2):
            tab.until(f"({DOTS}).join() === '1,1,1'")
            assert read_text(tab, ".user-message") == "What is it? @books:book://1"
            tab.reload()
            tab.until(DONE)
        assert read_text(tab, ".resource summary").startswith("[resource book://1 of the server books")
        assert "The first book." in read_text(tab, ".resource .reasoning-text")
        assert tab.run("document.querySelector('.resource').open") is False
        tab.choose_file("#attach-input", pdf)
        tab.until("!document.getElementById('send').disabled")
        tab.click("#send")
        assert "a report.pdf" in read_text(tab, f"{LAST} .user .attachment")
        tab.until(f"document.querySelector('{LAST} .prose')?.textContent === 'Again.'")
        assert_harmless(tab, address)


def test_a_call_runs_after_approval(chromium: Browser, tmp_path: Path) -> None:
    replies = [
        calls("echo", text="one"),
        "Once.",
        calls("echo", text="two"),
        "Again.",
        calls("echo", text="three"),
        "More.",
    ]
    with serve_page(tmp_path, replies, two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "First")
        assert read_text(tab, ".request h2") == "library wants to run echo"
        assert read_text(tab, ".request-question") == "Allow library to run echo?"
        assert read_text(tab, ".request pre") == "text: one"
        assert tab.run("document.activeElement.id") == "message"  # keys now go to the message field and approve nothing
        assert tab.run("document.querySelector('.tool').dataset.state") == "waiting"
        tab.click(".request .primary")
        tab.until(DONE)
        assert read_text(tab, ".tool-result pre") == "one"
        send_message(tab, "Second")
        tab.until(ASK)
        tab.click(".request-buttons .button:nth-child(2)")
        tab.until(f"!{ASK} && {DONE}")
        send_message(tab, "Third")
        tab.until(f"document.querySelector('{LAST} .prose:last-of-type')?.textContent === 'More.'")
        assert read_text(tab, f"{LAST} .tool-result pre") == "three"
        assert_harmless(tab, address)


def test_a_denied_call_does_not_run_and_the_model_gets_the_reason(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, [calls("die"), "I did not."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Die")
        tab.until(ASK)
        tab.click("#request-reason")
        tab.type("it is too early")
        tab.press("Enter")
        tab.until(DONE)
        assert tab.run("document.querySelector('.tool').dataset.state") == "failed"
        assert "it is too early" in read_text(tab, ".tool-result pre")
        assert_harmless(tab, address)


def test_a_reload_during_a_turn_resumes_the_turn(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello.", calls("echo", text="still here"), "The end."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Hi")
        tab.until(DONE)
        send_message(tab, "Echo, please")
        tab.until(ASK)
        tab.type("a draft")
        tab.reload()
        tab.until(ASK)
        assert tab.run("document.getElementById('message').value") == "a draft"
        assert tab.run(MESSAGES) == ["Hi", "Echo, please"]
        assert tab.run("document.querySelectorAll('.tool').length") == 1
        tab.click(".request .primary")
        tab.until(DONE)
        assert read_text(tab, ".tool-result pre") == "still here"
        assert tab.run(f"document.querySelector('{LAST} .answer').innerText").count("I will use echo.") == 1
        assert read_text(tab, f"{LAST} .answer .prose:last-of-type") == "The end."
        assert_harmless(tab, address)


def test_a_lost_connection_is_restored(chromium: Browser, tmp_path: Path) -> None:
    with (
        serve_page(tmp_path, [calls("echo", text="back"), "We are back."], two_servers()) as address,
        open_relay(address) as (relay, way),
    ):
        tab = open_page(chromium, way)
        send_message(tab, "Echo")
        tab.until(ASK)
        relay.cut()
        tab.until("document.getElementById('status-text').textContent.includes('Connection lost')")
        relay.mend()
        tab.until("document.getElementById('status-text').textContent === 'Waiting for your answer'")
        tab.click(".request .primary")
        tab.until(DONE)
        assert tab.run("document.querySelectorAll('.tool').length") == 1
        assert read_text(tab, f"{LAST} .answer .prose:last-of-type") == "We are back."


def test_a_message_that_cannot_be_sent_returns_to_the_field(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello.", "There you are."]) as address, open_relay(address) as (relay, way):
        tab = open_page(chromium, way)
        send_message(tab, "Hi")
        tab.until(DONE)
        relay.cut()
        send_message(tab, "Are you there?")
        assert "cannot be reached" in read_text(tab, ".toast")
        tab.until("document.getElementById('message').value === 'Are you there?'")
        assert tab.run("document.querySelectorAll('.turn').length") == 1
        relay.mend()
        tab.press("Enter")
        tab.until(f"document.querySelector('{LAST} .prose')?.textContent === 'There you are.'")
        assert tab.run("document.querySelectorAll('.turn').length") == 2


def test_an_elicitation_is_shown_as_a_form(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, [calls("asks"), "It was meant."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Ask me")
        assert "asking asks for input while it runs asks:" in read_text(tab, ".request h2")
        assert read_text(tab, ".request-message") == "Really?"
        tab.click(".request input[type=checkbox]")
        tab.click(".request-form .primary")
        tab.until(DONE)
        assert read_text(tab, ".tool-result pre") == "the user said accept"
        assert_harmless(tab, address)


def test_a_model_failure_is_shown(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(
        tmp_path, [{"text": "I beg", "error": {"message": "the model is on holiday", "status": 400}}]
    ) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Hello?")
        assert "the model is on holiday" in read_text(tab, ".failed p")
        assert read_text(tab, ".failed button") == "Ask again"
        assert_harmless(tab, address)


def test_the_panel_shows_the_error_of_a_server_and_restarts_it(chromium: Browser, tmp_path: Path) -> None:
    servers = two_servers() | {"broken": {"command": "no-such-program"}}
    with serve_page(tmp_path, ["Hello."], servers) as address:
        tab = open_page(chromium, address)
        tab.until("document.getElementById('servers-button').dataset.state === 'failed'")
        tab.click("#servers-button")
        tab.until("document.querySelectorAll('#servers .server').length === 3")
        tab.until("document.querySelectorAll('#servers .server[data-state=ready]').length === 2")
        assert "no-such-program" in read_text(tab, "#servers .server[data-state=failed] .failure")
        names = "[...document.querySelectorAll('#servers .server h3')].map(({ textContent }) => textContent)"
        assert tab.run(names) == ["asking", "broken", "library"]
        tab.click("#servers-search")
        tab.type("say again")
        tab.until(f"({names}).join() === 'library'")
        assert "Say it again." in read_text(tab, "#servers .server dl")
        tab.run("document.getElementById('servers-search').select()")
        tab.press("Backspace")
        tab.until(f"({names}).length === 3")
        # A list request fails if its server restarts meanwhile, and Chromium reports that as an error.
        lists = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('resources?server='))"
        tab.until(f"{lists}.length === 2")
        tab.click("[aria-label='Restart library']")
        assert read_text(tab, ".toast") == "library is restarting."
        tab.until("document.querySelectorAll('#servers .server[data-state=ready]').length === 2")
        tab.press("Escape")
        tab.until("!document.getElementById('servers').open")
        assert_harmless(tab, address)
