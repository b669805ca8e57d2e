# SPDX-License-Identifier: Apache-2.0
"""Tables as files: a .csv for programs, an .html page for people."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dosimeter.files import replaced

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a .csv or an .html page.")]
Row = Sequence[str]


def require_known(out: Path | None) -> None:
    """Raises if a file is not of a kind that is written."""
    if out is not None and out.suffix.lower() not in (".csv", ".html"):
        raise ValueError(f"--out must end in .csv or .html, got {str(out)!r}")


def write(
    out: Path,
    title: str,
    note: str,
    head: Row,
    rows: Sequence[Row],
    within: Sequence[Sequence[Row]] = (),
) -> None:
    """Writes a table, all of it or nothing.

    Args:
        out: A file whose name ends in .csv or .html.
        title: What the page is headed by.
        note: What is said above its table.
        head: The names of the columns.
        rows: What the page shows.
        within: For each of them the rows that it stands for, to be unfolded; a .csv has these.
    """
    if out.suffix.lower() == ".csv":
        text = io.StringIO()
        each = [row for parts in within for row in parts] if within else rows
        csv.writer(text, lineterminator="\n").writerows([head, *each])
        made = text.getvalue()
    else:
        made = _page(title, note, head, rows, within or [()] * len(rows))
    replaced(out, lambda part: part.write_text(made, encoding="utf-8"))


def _page(
    title: str, note: str, head: Row, rows: Sequence[Row], within: Iterable[Sequence[Row]]
) -> str:
    from importlib import resources

    style = resources.files("dosimeter.report").joinpath("page.css").read_text(encoding="utf-8")
    heads = "".join(f"<th>{html.escape(word)}</th>" for word in head)
    body = "".join(
        _cells(row) + _folded(parts, heads) for row, parts in zip(rows, within, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        f"<header><h1>{html.escape(title)}</h1></header>\n<main>"
        f'<p class="quiet">{html.escape(note)}</p>'
        f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></main></body></html>\n"
    )


def _cells(row: Row) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"


def _folded(parts: Sequence[Row], heads: str) -> str:
    """A row that unfolds into the rows that the one above it stands for."""
    if len(parts) < 2:
        return ""
    inner = "".join(map(_cells, parts))
    return (
        f'<tr><td colspan="{len(parts[0])}" style="text-align:left"><details><summary>'
        f"{len(parts):,} entries</summary><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{inner}</tbody></table></details></td></tr>\n"
    )
