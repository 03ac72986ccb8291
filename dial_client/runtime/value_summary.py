"""Summaries of values for notebooks and for terminals with rich: a text, a table and a line below.

Models and servers write these texts. Markup, HTML and Markdown in them are escaped, so that a notebook does not load
images or run scripts of a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.runtime.safe_text import sanitize, to_one_line

# Maximum characters of a cell.
_MAX_CELL = 300


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """The displayed parts of a value. Empty parts are left out."""

    title: str = ""
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    footer: str = ""

    def to_html(self) -> str:
        """Return HTML in which every text is escaped."""
        parts = [f"<b>{_format_line(self.title)}</b>"] if self.title else []
        if self.text:
            parts.append(f'<div style="white-space: pre-wrap">{_escape(sanitize(self.text))}</div>')
        if self.rows:
            head = "".join(f"<th>{_format_line(column)}</th>" for column in self.columns)
            body = "".join(_to_row(row) for row in self.rows)
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if self.footer:
            parts.append(f"<small>{_format_line(self.footer)}</small>")
        return f"<div>{''.join(parts)}</div>"

    def to_rich(self) -> Any:
        """Return a rich renderable in which no text is interpreted as markup."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = [Text(to_one_line(self.title, _MAX_CELL), "bold")] if self.title else []
        if self.text:
            parts.append(Text(sanitize(self.text)))
        if self.rows:
            table = Table()
            for column in self.columns:
                table.add_column(Text(to_one_line(column, _MAX_CELL)))
            for row in self.rows:
                table.add_row(*(Text(to_one_line(cell, _MAX_CELL)) for cell in row))
            parts.append(table)
        if self.footer:
            parts.append(Text(to_one_line(self.footer, _MAX_CELL), "dim"))
        return Group(*parts)


def _format_line(text: str) -> str:
    return _escape(to_one_line(text, _MAX_CELL))


def _to_row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f'<td style="text-align: left">{_format_line(cell)}</td>' for cell in cells) + "</tr>"


def _escape(text: str) -> str:
    from html import escape  # loads a large table of entities, which would slow down each start

    return escape(text)
