# SPDX-License-Identifier: Apache-2.0
"""`dosimeter demo`: private training in four ways, and a page about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli.output import Table


def demo(
    repeats: Annotated[
        int, typer.Option(metavar="COUNT", min=1, max=1000, help="How often to train each way.")
    ] = 5,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.")] = Path(
        "dosimeter-demo"
    ),
) -> None:
    """Train on digits privately in four ways, and write a report.

    Four people with the same budget: three who each guess one number (a learning rate, a clipping
    norm, a noise), and one who gives none. Needs the extra torch.

    \b
    Example:
      dosimeter demo --repeats 1
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, got {str(out)!r}, which is a file")
    from dosimeter.cli.digits import WAYS, conclusion, row, save, train
    from dosimeter.report import write

    results = {way: train(way, repeats) for way in WAYS}
    write([save(way, histories, out) for way, histories in results.items()], out / "report.html")
    typer.echo()
    Table(
        ("way", "test accuracy", "epsilon, at most", "epochs"),
        [row(way, histories) for way, histories in results.items()],
        title=f"Digits, each way trained {'once' if repeats == 1 else f'{repeats} times'}",
    ).print()
    typer.echo(f"\n{conclusion(results)}")
    typer.echo("\nOpen the report in a browser:")
    typer.echo(f"  {(out / 'report.html').resolve().as_uri()}")
