"""A screen for tests, with a person who has the answers ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from tests.inner import MONO, Panel, Search, choose_by_number


class TypedScreen:
    """Keeps what is printed, and answers questions with these lines and keys, in their order."""

    theme = MONO
    set_theme: Callable[[str], None] | None = None
    suspend = nullcontext

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.printed: list[str] = []
        self.prose: list[str] = []

    @property
    def text(self) -> str:
        """All that was printed since this was asked for last."""
        text = "\n".join(self.printed)
        self.printed.clear()
        return text

    def render(self, answer: str) -> str:
        return answer

    def print(self, text: str) -> None:
        self.printed.append(text)

    async def ask_line(
        self,
        question: str,
        *,
        hidden: bool = False,  # noqa: ARG002
        default: str = "",  # noqa: ARG002
        on_move: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> str:
        self.printed.append(question)
        return self.lines.pop(0)

    async def choose(self, question: str, search: Search, words: str = "") -> str | None:
        return await choose_by_number(self, question, search, words)

    async def page(self, text: str) -> None:
        self.print(text)

    def print_prose(self, text: str) -> None:
        self.prose.append(text)
        self.print(text)

    def show_panel(self, panel: Panel, notice: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    async def ask_key(
        self,
        lines: Sequence[str],
        question: str,
        keys: Mapping[str, str],
        *,
        on_move: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> str:
        self.printed += [*lines, question]
        key = self.lines.pop(0)
        assert key in keys
        return key
