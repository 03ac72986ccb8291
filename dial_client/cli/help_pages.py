"""The command ``help``: the pages of the documentation that are installed with the program."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from dial_client.cli.input import user_programs
from dial_client.cli.markdown.markdown_stream import MarkdownStream
from dial_client.cli.markdown.themes import choose_theme
from dial_client.cli.streams.tty import can_move_cursor
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import find_nearest_by_words

# The folder of the pages in an installation, below the folder for data.
FOLDER = "share/doc/dial-client/"
# The permanent code of a check of ``dial-chat doctor``, which has a section of its own.
_CODE = re.compile(r"(?i)dc\d{3}")


async def show_help(words: Sequence[str], list_commands: Callable[[str], list[str]]) -> None:
    """Print a page in a pager, or as Markdown if standard output is not a terminal; without a topic, list the topics.

    Args:
        words: The topic: the name of a page, whose words may be separate, or the code of a finding of
            ``dial-chat doctor``; empty for the list.
        list_commands: Returns the names of the commands of a group; of the program, for an empty name.

    Raises:
        ConfigError: There is no such page.
    """
    pages, topic = find_pages(), " ".join(words)
    if not topic:
        width = max(map(len, pages), default=0)
        print_lines([f"{name:<{width}}  {_read_title(path)}" for name, path in pages.items()], width + 2)
        print("\ndial-chat help TOPIC shows a page, dial-chat help DC301 a finding of doctor; dial-chat --help, and ")
        print("dial-chat COMMAND --help, the options.")
        return
    if _CODE.fullmatch(topic):
        text = _cut_section(pages["doctor"].read_text(encoding="utf-8") if "doctor" in pages else "", topic.upper())
    else:
        path = pages.get("-".join(words).lower().removesuffix(".md"))
        text = "" if path is None else path.read_text(encoding="utf-8")
    if not text:
        raise ConfigError(f"there is no page {topic!r}", _find_hint(words, list(pages), list_commands))
    await _show(text)


def find_pages() -> dict[str, Path]:
    """Return the pages by their names, in alphabetical order; those of the source tree if none are installed."""
    try:
        listed = files("dial-client") or []
    except PackageNotFoundError:
        listed = []
    found = [Path(str(file.locate())) for file in listed if FOLDER in file.as_posix()]
    found = [path for path in found if path.is_file()] or list((Path(__file__).parents[2] / "docs").glob("*.md"))
    return {path.stem: path for path in sorted(found)}


def _read_title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), path.stem)


def _cut_section(text: str, code: str) -> str:
    """Return the section of a code; empty if there is none."""
    found = re.search(rf"^### {code}:.*?(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def _find_hint(words: Sequence[str], names: list[str], list_commands: Callable[[str], list[str]]) -> str:
    if words[0] in list_commands(""):
        known = words if len(words) == 2 and words[1] in list_commands(words[0]) else words[:1]
        return f"dial-chat {' '.join(known)} --help"
    nearest = find_nearest_by_words(" ".join(words), names)
    page = f"dial-chat help {nearest}" if nearest else "`dial-chat help` lists the pages"
    return f"{page}; to ask the model: dial-chat -p PROMPT"


async def _show(text: str) -> None:
    if not sys.stdout.isatty() or not can_move_cursor():
        print(text.rstrip())
        return
    columns, rows = shutil.get_terminal_size()
    stream = MarkdownStream(lambda: columns, choose_theme("auto", os.environ))
    shown = stream.feed(text) + stream.finish()
    if (
        not user_programs.find_pager()
        or not user_programs.is_longer(text, columns, rows)
        or not await user_programs.page(shown)
    ):
        print(shown.rstrip())
