"""What the page makes of an answer beside plain Markdown: coloured code, formulas, tables, diagrams."""

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
# For this grammar the time grows with the square of the length.
SLOW = f'```typescript\n{"((a" * 19_900}\n```\n\n```json\n{{"after": true}}\n```'


@contextmanager
def answered(chromium: Browser, folder: Path, text: str, **media: str) -> Iterator[Tab]:
    """Provide the page with an answer; at the end assert that it did no harm."""
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


def test_code_that_takes_too_long_stays_text_and_the_next_block_gets_its_colours(
    chromium: Browser, tmp_path: Path
) -> None:
    with answered(chromium, tmp_path, SLOW) as tab:
        tab.until("document.querySelectorAll('pre code')[1].querySelector('.code-attribute')")
        assert tab.run("document.querySelector('pre code').textContent.length") == 59_700


def test_a_worker_of_another_address_is_refused_by_the_browser(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."]) as address:
        tab = open_page(chromium, address)
        for expression in ("new Worker('/assets/app.js')", "trustedTypes.createPolicy('dial-worker', {})"):
            with pytest.raises(BrowserError):
                tab.run(f"void {expression}")
