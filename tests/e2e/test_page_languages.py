"""The page in other languages: the browser's language or a chosen language, and right-to-left layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.accessibility import WHY_NOT, judge
from tests.support.browser import Browser, Tab
from tests.support.page_geometry import find_unreachable
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message, serve_page, two_servers

pytestmark = pytest.mark.once

ANSWER = {
    "text": "# مرحبا\n\nنص `code` و **غامق**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done",
    "reasoning": "I think.",
}
CALL = {"tool_calls": [{"name": "echo", "arguments": {"text": "hello"}}]}
LANGUAGE = "[document.documentElement.lang, document.documentElement.dir]"
WELCOME = "document.querySelector('#welcome h2').textContent"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_page(
        tmp_path_factory.mktemp("served"), {"replies": [ANSWER], "after": "repeat"}, two_servers()
    ) as found:
        yield found


def open_in(chromium: Browser, address: str, languages: str) -> Tab:
    """Open the page in a browser with the given preferred languages."""
    tab = chromium.tab(prefers_reduced_motion="reduce")
    agent = tab.run("navigator.userAgent")
    tab.call("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=languages)
    tab.go(address)
    tab.until("document.querySelector('#conversations > *') && document.activeElement.id === 'message'")
    return tab


def find_left(tab: Tab, selector: str) -> float:
    return float(tab.run(f"document.querySelector({selector!r}).getBoundingClientRect().left"))


def test_the_page_uses_the_first_supported_language_of_the_browser(chromium: Browser, address: str) -> None:
    tab = open_in(chromium, address, "is,ar-EG,en")
    assert tab.run(LANGUAGE) == ["ar", "rtl"]
    assert tab.run(WELCOME) == "ماذا تود أن تعرف؟"
    assert tab.run("document.getElementById('message').placeholder") == "رسالة"
    assert tab.run("document.getElementById('message').labels[0].textContent") == "رسالة"
    assert_harmless(tab, address)
    english = open_in(chromium, address, "is,la")
    assert english.run(LANGUAGE) == ["en", "ltr"]
    assert_harmless(english, address)


def test_a_chosen_language_is_kept_and_does_not_clear_the_draft(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    assert tab.run(LANGUAGE) == ["en", "ltr"]
    tab.type("a draft")
    tab.run("window.isOld = true")
    tab.run("language.value = 'ar'; language.dispatchEvent(new Event('change'))")
    tab.until("!window.isOld && document.querySelector('#conversations > *')")
    assert tab.run(LANGUAGE) == ["ar", "rtl"]
    assert tab.run("document.getElementById('message').value") == "a draft"
    tab.reload()
    tab.until(f"{WELCOME} === 'ماذا تود أن تعرف؟'")
    assert tab.run("document.getElementById('language').value") == "ar"
    assert_harmless(tab, address)


def test_each_language_loads_its_own_texts_and_fits_a_small_window(chromium: Browser, address: str) -> None:
    for language, title in {
        "de": "Was möchten Sie wissen?",
        "es": "¿Qué te gustaría saber?",
        "fr": "Que souhaitez-vous savoir\N{NO-BREAK SPACE}?",
        "ja": "何を知りたいですか\N{FULLWIDTH QUESTION MARK}",
    }.items():
        tab = open_in(chromium, address, f"{language}-XX")
        assert tab.run(LANGUAGE) == [language, "ltr"]
        assert tab.run(WELCOME) == title
        assert [url for url in tab.requests if "/strings_" in url] == [
            f"{address.partition('#')[0]}assets/strings_{language}.js"
        ]
        tab.resize(320, 640)
        assert find_unreachable(tab) == []
        tab.click("#model")
        tab.until("document.querySelector('.settings form')")
        assert find_unreachable(tab) == []
        assert_harmless(tab, address)


def test_numbers_and_plurals_are_those_of_the_language(chromium: Browser, address: str) -> None:
    script = "import('./assets/language.js').then(({{translate}}) => [1, 2].map((count) => translate({!r}, {{count}})))"
    english = open_page(chromium, address)
    assert english.run(script.format("servers.restarts")) == ["1 restart", "2 restarts"]
    arabic = open_in(chromium, address, "ar")
    french = open_in(chromium, address, "fr")
    usage = "import('./assets/descriptions.js').then(({describeUsage}) => describeUsage({usage: {input_tokens: 1234, "
    usage += "cost_usd: 0.0042}, duration_s: 1.5}))"
    status = "import('./assets/descriptions.js').then(({describeStatus}) => describeStatus({text: 'T', code: "
    assert french.run(status + "'using', tool: 'Echo'}))") == "Utilise Echo…"
    assert french.run(status + "'unknown'}))") == "T"
    failure = "import('./assets/api.js').then(({Api}) => new Api().fetchJson('GET', 'conversations/none'))"
    assert french.run(failure + ".catch((error) => error.message)").startswith("Introuvable.")
    assert english.run(usage) == "1,234 tokens, $0.0042, 1.5 s"
    assert french.run(usage).replace("\N{NARROW NO-BREAK SPACE}", " ") == "1 234 tokens, $0,0042, 1,5 s"
    assert [text[:4] for text in arabic.run(script.format("servers.tools"))] == ["الأد"] * 2


def test_the_right_to_left_layout_mirrors_the_window_but_not_code(chromium: Browser, address: str) -> None:
    tab = open_in(chromium, address, "ar")
    send_message(tab, "سؤال")
    tab.until(DONE)
    assert find_left(tab, "#sidebar") > find_left(tab, "#view")
    assert find_left(tab, "#send") < find_left(tab, "#model-picker") < find_left(tab, "#attach")
    assert tab.run("getComputedStyle(document.querySelector('.prose code')).direction") == "ltr"
    tab.resize(320, 700)
    assert tab.run("document.documentElement.scrollWidth") == 320
    tab.click("#menu")
    tab.until("document.getElementById('sidebar').getBoundingClientRect().right === 320")
    assert find_left(tab, "#sidebar") > 0
    tab.press("Escape")
    tab.until("getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden'")
    assert_harmless(tab, address)


def visit(tab: Tab) -> Iterator[str]:
    """Show the states of the page one after another."""
    yield "start"
    send_message(tab, "سؤال")
    tab.until(DONE)
    tab.click(".reasoning summary")
    yield "answer"
    send_message(tab, "أضف")
    tab.until("document.querySelector('.request .primary')")
    assert read_text(tab, ".request-question").startswith("هل تسمح لـ library بتشغيل echo")
    yield "approval"
    tab.click(".request .primary")
    tab.until(f"!document.querySelector('.request') && {DONE}")
    tab.click(".turn:last-child .tool summary")
    yield "tool call"
    for button, shown in (("#model", ".settings form"), ("#servers-button", "#servers .server[data-state=ready]")):
        tab.click(button)
        tab.until(f"document.querySelector('{shown}')")
        yield shown
        tab.press("Escape")
        tab.until("!document.querySelector('dialog[open]')")


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_axe_finds_no_violation_in_the_right_to_left_layout(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, [ANSWER, CALL, "تم."], two_servers()) as address:
        tab = open_in(chromium, address, "ar")
        violations = [issue for state in visit(tab) for issue in judge(tab, state)]
        assert not violations, "\n".join(violations)
        assert_harmless(tab, address)
