# SPDX-License-Identifier: Apache-2.0
"""`dosimeter report`: one page about one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs: each holds a history.json.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one HTML page that shows and compares runs.

    Accuracy against epochs and epsilon, the budget and its limit, noise and batch size, what is
    guaranteed, and every spend. The page needs no network and no other file.

    \b
    Example:
      dosimeter report runs/guessed-rate runs/no-guess --out runs.html
    """
    from dosimeter.report import write

    write(folders, out)
    typer.echo(f"report: {out.resolve().as_uri()}")
