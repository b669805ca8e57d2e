# SPDX-License-Identifier: Apache-2.0
"""Tables as files: a .csv for programs, an .html page for people."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dosimeter.files import replaced

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a .csv or an .html page.")]
Row = Sequence[str]
_LONG = 24
"""A cell with more letters may be broken into lines."""


def require_known(out: Path | None) -> None:
    """Raises if a file is not of a kind that is written."""
    if out is not None and out.suffix.lower() not in (".csv", ".html"):
        raise ValueError(f"--out must end in .csv or .html, got {str(out)!r}")


def write_csv(out: Path, head: Row, rows: Iterable[Sequence[object]]) -> None:
    """Writes a table for programs, all of it or nothing."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    replaced(out, lambda part: part.write_text(text.getvalue(), encoding="utf-8"))


@dataclass(frozen=True)
class Table:
    """A table of a page; on a phone, each of its rows is a block of lines.

    Attributes:
        head: The names of the columns.
        rows: What it shows.
        right: The columns of numbers.
        total: Rows about all of them.
    """

    head: Row
    rows: Sequence[Row]
    right: Collection[str] = ()
    total: Sequence[Row] = ()

    def html(self, within: Sequence[Sequence[Row]] = ()) -> str:
        """The table, with the rows that each of its own stands for to be unfolded."""
        heads = "".join(f"<th{self._side(name)}>{html.escape(name)}</th>" for name in self.head)
        parts = within or [()] * len(self.rows)
        body = "".join(
            self._cells(row) + self._folded(inner)
            for row, inner in zip(self.rows, parts, strict=True)
        )
        body += "".join(self._cells(row, "total") for row in self.total)
        return f'<table class="rows"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'

    def _side(self, name: str, cell: str = "") -> str:
        long = " long" if len(cell) > _LONG else ""
        return "" if name in self.right else f' class="words{long}"'

    def _cells(self, row: Row, kind: str = "") -> str:
        cells = "".join(
            f'<td{self._side(name, cell)} data-is="{html.escape(name)}">{html.escape(cell)}</td>'
            for name, cell in zip(self.head, row, strict=True)
        )
        return f"<tr{f' class={kind!r}' if kind else ''}>{cells}</tr>\n"

    def _folded(self, parts: Sequence[Row]) -> str:
        """A row that unfolds into the rows that the one above it stands for."""
        if len(parts) < 2:
            return ""
        inner = Table(self.head, parts, self.right).html()
        return (
            f'<tr class="fold"><td colspan="{len(self.head)}"><details><summary>'
            f"{len(parts):,} entries</summary>{inner}</details></td></tr>\n"
        )


def write_page(
    out: Path, title: str, notes: Iterable[str], table: Table, within: Sequence[Sequence[Row]] = ()
) -> None:
    """Writes a page for people, all of it or nothing.

    Args:
        out: The page; it needs no other file and no network.
        title: What it is headed by.
        notes: What is said above its table.
        table: What it shows.
        within: For each row those that it stands for, to be unfolded.
    """
    from dosimeter.report.page import framed

    said = "".join(f'<p class="quiet">{html.escape(note)}</p>' for note in notes)
    made = framed(title, said, f'<div class="wide flush" tabindex="0">{table.html(within)}</div>')
    replaced(out, lambda part: part.write_text(made, encoding="utf-8"))
