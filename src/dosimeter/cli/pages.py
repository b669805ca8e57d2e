# SPDX-License-Identifier: Apache-2.0
"""Tables as CSV files, for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from dosimeter.files import replaced

Row = Sequence[str]


def require_known(out: Path | None) -> None:
    """Raise ValueError for a file name that does not end in .csv."""
    if out is not None and out.suffix.lower() != ".csv":
        raise ValueError(f"--out must end in .csv, got {str(out)!r}")


def write_csv(out: Path, head: Row, rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file, all of it or nothing."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    replaced(out, lambda part: part.write_text(text.getvalue(), encoding="utf-8"))
