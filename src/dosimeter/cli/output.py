# SPDX-License-Identifier: Apache-2.0
"""What commands print: a table of rows, or JSON for programs.

Only a printed table needs rich, which takes its time to load.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

_LONGEST = 200
"""A cell shows no more letters; a file holds all of them."""


@dataclass(frozen=True)
class Table:
    """Rows under headings, printed for people or written as CSV.

    Attributes:
        headings: The names of the columns.
        rows: The cells of each row.
        right: The headings of the columns that are aligned to the right.
        title: The lines above the headings.
        styles: The style, in rich's words, of cells with a certain text.
    """

    headings: Sequence[str]
    rows: Iterable[Sequence[object]]
    right: Collection[str] = ()
    title: str = ""
    styles: Mapping[str, str] = field(default_factory=dict)

    def print(self) -> None:
        """Print the table to the terminal, as wide as that is."""
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        console = Console(highlight=False)
        if self.title:
            title = "\n".join(map(printable, self.title.split("\n")))
            console.print(Text(f"{title}\n"), style="bold", soft_wrap=True)
        shown = RichTable(box=None, pad_edge=False)
        for heading in self.headings:
            right = heading in self.right
            # Words fold where there is little room, numbers do not.
            shown.add_column(
                heading, justify="right" if right else "left", overflow="fold", no_wrap=right
            )
        for row in self.rows:
            cells = [printable(str(cell))[:_LONGEST] for cell in row]
            # Text, unlike a plain string, is not searched for rich's own marks.
            shown.add_row(*(Text(cell, style=self.styles.get(cell, "")) for cell in cells))
        console.print(shown)

    def write_csv(self, out: Path) -> None:
        """Write the headings and rows to a CSV file, all of it or nothing."""
        from dosimeter.files import replaced

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.headings, *self.rows])
        replaced(out, lambda part: part.write_text(text.getvalue(), encoding="utf-8"))


def require_csv(out: Path | None) -> None:
    """Raise ValueError for a file name that does not end in .csv."""
    if out is not None and out.suffix.lower() != ".csv":
        raise ValueError(f"--out must end in .csv, got {str(out)!r}")


def printable(text: str) -> str:
    """Return the text with control characters, which could rewrite the terminal, escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_json(value: Any) -> None:
    """Print one line of JSON: infinity as the text "inf", NaN as null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
