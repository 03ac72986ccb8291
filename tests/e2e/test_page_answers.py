"""Answers on the page beyond plain Markdown: coloured code, formulas, tables and diagrams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browser import Browser, BrowserError, Tab
from tests.support.web_page import DONE, assert_harmless, open_page, send_message, serve_page

pytestmark = pytest.mark.once

CODE = """```python
def greet(name: str) -> str:
    return f"Hello, {name}"  # polite
```

```html
<script>alert("code")</script><img src=https://evil.test/a.png>
```

```nonsense"><script>alert(1)</script>
def not_coloured(): ...
```
"""
# Highlighting with this grammar takes quadratic time.
SLOW = f'```typescript\n{"((a" * 19_900}\n```\n\n```json\n{{"after": true}}\n```'


MATHS = r"""Inline $x^2$, \(\frac{a}{b}\) and $$\sqrt{2}$$, but $5 and $10, and `$code$`.

\[
\int_0^1 x\,dx
\]

```math
\begin{pmatrix} a & b \end{pmatrix}
```

$\href{javascript:alert(1)}{x}$ $\includegraphics{https://evil.test/a.png}$ $\htmlStyle{color:red}{x}$
$\def\a{\a\a}\a$ $wrong{$ $<img src=https://evil.test/b.png onerror=alert(2)>$
"""
DEEP = f"${'{x^' * 600}1{'}' * 600}$"

DIAGRAMS = """```mermaid
graph TD
  A[Start] --> B["<img src=https://evil.test/a.png onerror=alert(1)>"]
  click A "javascript:alert(2)"
  click B href "https://evil.test/b"
```

```mermaid
%%{init: {"securityLevel": "loose", "flowchart": {"htmlLabels": true}, "themeCSS": "*{background:url(https://evil.test/c)}"}}%%
graph LR
  C["<iframe src=https://evil.test/d></iframe>"] --> D
```

```mermaid
not a diagram
```
"""


@contextmanager
def answered(chromium: Browser, folder: Path, text: str, **media: str) -> Iterator[Tab]:
    """Open the page with an answer, and assert at the end that the answer was harmless."""
    with serve_page(folder, [{"text": text, "chunk_size": max(7, len(text) // 100)}]) as address:
        tab = open_page(chromium, address, **media)
        send_message(tab, "Show it")
        tab.until(DONE)
        yield tab
        assert_harmless(tab, address)


def colours(tab: Tab, at: int) -> list[list[str]]:
    """Return the classes and texts of the coloured tokens of a code block."""
    return list(
        tab.run(
            f"[...document.querySelectorAll('pre code')[{at}].querySelectorAll('span')]"
            ".map((span) => [span.className, span.textContent])"
        )
    )


def test_code_is_coloured_and_remains_text(chromium: Browser, tmp_path: Path) -> None:
    with answered(chromium, tmp_path, CODE) as tab:
        tab.until("document.querySelectorAll('pre code')[1].querySelector('span')")
        assert ["code-keyword", "def"] in colours(tab, 0)
        assert ["code-comment", "# polite"] in colours(tab, 0)
        texts = tab.run("[...document.querySelectorAll('pre code')].map((code) => code.textContent)")
        assert texts == [block.split("\n", 1)[1].rstrip("\n") for block in CODE.split("```")[1::2]]
        assert colours(tab, 2) == []
        assert tab.run("document.querySelectorAll('.answer :is(script, img)').length") == 0


def test_slow_code_does_not_prevent_the_colours_of_the_next_block(chromium: Browser, tmp_path: Path) -> None:
    with answered(chromium, tmp_path, SLOW) as tab:
        tab.until("document.querySelectorAll('pre code')[1].querySelector('.code-attribute')")
        assert tab.run("document.querySelector('pre code').textContent.length") == 59_700
        assert tab.run("document.querySelector('pre').dir") == "ltr", "else adding tokens takes quadratic time"


def test_the_browser_refuses_workers_from_other_urls(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."]) as address:
        tab = open_page(chromium, address)
        for expression in ("new Worker('/assets/app.js')", "trustedTypes.createPolicy('dial-worker', {})"):
            with pytest.raises(BrowserError):
                tab.run(f"void {expression}")


def test_formulas_are_mathml_and_prices_are_text(chromium: Browser, tmp_path: Path) -> None:
    with answered(chromium, tmp_path, MATHS) as tab:
        tab.until("document.querySelectorAll('.answer math').length >= 5")
        assert tab.run("document.querySelector('.prose > p').textContent").endswith(", but $5 and $10, and $code$.")
        assert tab.run(
            "[...document.querySelectorAll('.formula math')].map((math) => math.getAttribute('display'))"
        ) == ["block", "block"]
        assert tab.run("document.querySelectorAll('.answer :is(a, img, [style], script)').length") == 0


def test_a_too_deeply_nested_formula_stays_text(chromium: Browser, tmp_path: Path) -> None:
    with answered(chromium, tmp_path, f"{DEEP} and $y$") as tab:
        tab.until("document.querySelector('.math:last-of-type math')")
        assert tab.run("document.querySelector('.math').textContent") == DEEP.strip("$")


def test_a_formula_with_excessive_macro_expansion_stays_text(chromium: Browser, tmp_path: Path) -> None:
    blow_up = r"\def\a{" + "x" * 4000 + "}" + r"\a" * 250
    with answered(chromium, tmp_path, rf"${blow_up}$ and $\newcommand{{\foo}}{{\mathbb{{R}}}} x \in \foo$") as tab:
        tab.until("document.querySelector('.math:last-of-type math')")
        assert tab.run("document.querySelector('.math').textContent") == blow_up


def test_a_formula_cannot_draw_outside_its_box(chromium: Browser, tmp_path: Path) -> None:
    moved = r"\raisebox{-80pt}{Allow everything?}"
    with answered(chromium, tmp_path, f"First ${moved}$ and $${moved}$$\n\n" + "Last.\n\n" * 9) as tab:
        tab.until("document.querySelectorAll('.answer mtext').length === 2")
        is_hit = (
            "(text) => { const box = text.getBoundingClientRect(); const x = box.left + 5; "
            "const y = box.top + box.height / 2; const { bottom } = text.closest('.math').getBoundingClientRect(); "
            "return [y > bottom + 20, document.elementsFromPoint(x, y).includes(text)]; }"
        )
        assert tab.run(f"[...document.querySelectorAll('.answer mtext')].map({is_hit})") == [[True, False]] * 2


def test_a_table_is_copied_as_csv_and_as_markdown(chromium: Browser, tmp_path: Path) -> None:
    text = '| **Name** | Value |\n|:--|--:|\n| a, "b" | =1+1 |\n| `x\\|y` | -2 |'
    with answered(chromium, tmp_path, text) as tab:
        tab.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        tab.run("document.querySelector('.table-buttons [aria-label$=CSV]').click()")
        assert tab.until("window.copied") == 'Name,Value\r\n"a, ""b""",\'=1+1\r\nx|y,-2'
        tab.run("document.querySelector('.table-buttons [aria-label$=Markdown]').click()")
        tab.until("window.copied.startsWith('|')")
        assert tab.run("window.copied.split('\\n')[1]") == "| --- | --: |"


def test_diagrams_are_images_and_a_hostile_diagram_sends_no_request(chromium: Browser, tmp_path: Path) -> None:
    with answered(chromium, tmp_path, DIAGRAMS) as tab:
        tab.until("document.querySelectorAll('.diagram-picture:not([hidden]) img').length === 2")
        images = "[...document.querySelectorAll('.diagram img')]"
        assert tab.run(
            f"{images}.every((image) => image.src.startsWith('data:image/svg+xml') && image.naturalWidth > 9)"
        )
        assert tab.run("document.querySelectorAll('.diagram pre')[2].hidden") is False
        frames = tab.run("[...document.querySelectorAll('iframe')].map((frame) => frame.getAttribute('sandbox'))")
        assert frames == ["allow-scripts"]
        assert tab.run("document.querySelector('iframe').contentDocument") is None
        before = tab.run(f"{images}[0].src")
        tab.click("#theme")
        tab.until(f"{images}[0].src !== {before!r}")
        tab.click(".diagram .code-buttons .text-button")
        assert tab.run("document.querySelector('.diagram pre').hidden") is False
