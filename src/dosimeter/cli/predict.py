# SPDX-License-Identifier: Apache-2.0
"""`dosimeter predict`: what a trained model says about new records."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run of dosimeter train.")],
    data: Annotated[Path, typer.Argument(help="A CSV, or an .npz of arrays.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write; by default to the terminal."),
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Write lines of JSON in place of CSV.")
    ] = False,
) -> None:
    """Write the label and the probabilities of each record.

    A CSV needs the columns that the run was trained on, by name and in any order; others are
    ignored, the labels too. An .npz needs an array x. Predicting costs no budget.

    \b
    Example:
      dosimeter predict run patients.csv --out predictions.csv
      dosimeter predict run patients.csv --jsonl
    """
    from dosimeter.data import read_inputs
    from dosimeter.runs.trained import load_run

    trained = load_run(run)
    read = read_inputs(data, trained.columns)
    found = trained.probabilities(read.x)
    if read.ignored:
        typer.echo(f"note: ignored {', '.join(read.ignored)}", err=True)
    rows = _rows(trained.classes, found)
    file = out.open("w", encoding="utf-8", newline="") if out else nullcontext(sys.stdout)
    with file as target:
        (_write_lines if jsonl else _write_table)(target, trained.classes, rows)
    if out:
        typer.echo(f"{len(found):,} predictions are in {out}", err=True)


_Row = tuple[str, str, dict[str, float]]


def _rows(classes: tuple[str, ...], found: npt.NDArray[np.float64]) -> Iterator[_Row]:
    for number, row in enumerate(found, 1):
        each = {label: float(f"{value:.6g}") for label, value in zip(classes, row, strict=True)}
        yield str(number), classes[int(row.argmax())], each


def _write_table(file: TextIO, classes: tuple[str, ...], rows: Iterator[_Row]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["record", "label", *(f"probability {label}" for label in classes)])
    for record, label, each in rows:
        writer.writerow([record, label, *each.values()])


def _write_lines(file: TextIO, classes: tuple[str, ...], rows: Iterator[_Row]) -> None:
    for record, label, each in rows:
        line: dict[str, Any] = {"record": record, "label": label, "probabilities": each}
        file.write(json.dumps(line) + "\n")
