"""The programs in the documentation as files, for the type checker: `python -m site_pages.code_blocks FOLDER`.

A file is named after the page and the line of its block. Blocks with `await` or `async for` outside of a function are
parts of programs, and have no file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from site_pages.root_pages import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def find_programs() -> Iterator[tuple[str, str]]:
    """Yield the name of the file and the text of each program in README.md and docs/*.md."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if _is_program(block[1]):
                yield f"{page.stem.replace('-', '_')}_{line}.py", block[1]


def _is_program(block: str) -> bool:
    try:
        compile(block, "block", "exec")
    except SyntaxError:
        return False
    return "import " in block


def main(folder: Path) -> None:
    """Write the programs into a folder, in place of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for name, program in find_programs():
        (folder / name).write_text(program, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
