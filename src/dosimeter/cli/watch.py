# SPDX-License-Identifier: Apache-2.0
"""`dosimeter watch`: a run of this machine on a local page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of the run.")],
    port: Annotated[int, typer.Option(metavar="PORT", help="Port; 0 takes a free one.")] = 0,
) -> None:
    """Show a run on a page of this machine, and stop it from there.

    The page follows the run: loss on public data, epsilon, noise, batch size, and the time that
    is left. A run that is stopped ends at its next step and keeps its results. The address has a
    secret in it, and nobody but this machine can reach it. Ctrl-C ends the page, not the run.

    \b
    Example:
      dosimeter watch run
    """
    from dosimeter import service

    service.watch(folder, lambda address: typer.echo(f"watch it at {address}"), port=port)
