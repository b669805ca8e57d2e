# SPDX-License-Identifier: Apache-2.0
"""Options and arguments that several commands have, with one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli.database import complete_budgets

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a .csv file.")]

Name = Annotated[str, typer.Argument(help="Name of the budget.", autocompletion=complete_budgets)]
Block = Annotated[
    str | None, typer.Option(metavar="A..B", help="Only blocks from A to B of a group.")
]
Neighbouring = Annotated[
    str, typer.Option(metavar="WORDS", help="Or 'replace one record', 'add/remove one user'.")
]
RECORD = "add/remove one record"
"""The default of `Neighbouring`."""

Purpose = Annotated[str, typer.Option(metavar="WORDS", help="What for, in words.")]
Actor = Annotated[
    str, typer.Option(metavar="NAME", envvar=["DOSIMETER_ACTOR", "USER"], help="Who.")
]
Count = Annotated[int, typer.Option(metavar="COUNT", help="How many steps or queries.")]
Key = Annotated[
    str | None, typer.Option(metavar="KEY", help="A retry with the same key spends once.")
]

Noise = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Count the steps that this noise allows; or")
]
Steps = Annotated[
    int | None,
    typer.Option(metavar="COUNT", help="find the least noise that allows this many steps."),
]
SampleRate = Annotated[
    float, typer.Option(metavar="NUMBER", help="Probability that a record joins a step; 1 for all.")
]
