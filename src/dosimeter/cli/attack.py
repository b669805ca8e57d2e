# SPDX-License-Identifier: Apache-2.0
"""`dosimeter attack`: which rules stand against exact adversaries."""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli.outcome import print_json


def attack(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Play exact adversaries against rules, and see which stand.

    Every view is enumerated in 60 digits: the delta that an adversary reaches is a fact about
    the rule, not an estimate. One that is larger than the delta claimed breaks the rule.

    \b
    Example:
      dosimeter attack
      dosimeter attack --json
    """
    from dosimeter.attack.__main__ import RULES, adversaries
    from dosimeter.cli.waiting import spinning
    from dosimeter.compare.adversaries import examples, play

    rows = []
    with spinning("playing"):
        players = [step for _, step in adversaries()]
        for name, new_gate, measure in RULES:
            reached = [play(step, new_gate, examples.EPSILON) for step in players]
            worst = max(one.tail if measure == "tail" else one.hockey_stick for one in reached)
            rows.append((name, measure, worst))
    if as_json:
        print_json(
            [
                {
                    "rule": name,
                    "measure": measure,
                    "epsilon": examples.EPSILON,
                    "delta": examples.DELTA,
                    "reached": worst,
                    "holds": worst <= examples.DELTA,
                }
                for name, measure, worst in rows
            ]
        )
    else:
        _print(rows, examples.EPSILON, examples.DELTA)


def _print(rows: list[tuple[str, str, float]], epsilon: float, delta: float) -> None:
    from dosimeter.cli import tables

    tables.print_table(
        f"delta reached at epsilon {epsilon:g} where {delta:g} was claimed",
        ("rule", "measure", "reached", "verdict"),
        [
            (name, measure, f"{worst / delta:.4f} delta", _verdict(worst <= delta))
            for name, measure, worst in rows
        ],
        right=("reached",),
    )


def _verdict(holds: bool) -> str:
    return "[green]holds[/green]" if holds else "[red]BROKEN[/red]"
