# SPDX-License-Identifier: Apache-2.0
"""`dosimeter plan`: what a budget affords, and what being adaptive costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli.errors import ExitCode
from dosimeter.cli.options import Json, Noise, SampleRate, Steps
from dosimeter.cli.output import Table, print_json
from dosimeter.rounding import at_most, exact

if TYPE_CHECKING:
    from dosimeter.accounting.classic import Validity
    from dosimeter.compare import Plan

_GATES = {"filter": "filter or ledger, no menu"}
"""What people may not take a rule's name to mean."""


def plan(
    epsilon: Annotated[float, typer.Option(metavar="NUMBER", help="Epsilon of the budget.")],
    delta: Annotated[float, typer.Option(metavar="NUMBER", help="Delta of the budget.")],
    noise_multiplier: Noise = None,
    steps: Steps = None,
    sample_rate: SampleRate = 1.0,
    as_json: Json = False,
) -> None:
    """Count the steps a budget affords, or find the noise they need.

    One row for each way of accounting: those with full adaptivity, and those that hold only if
    everything is fixed beforehand. Without a menu a filter or a ledger needs more noise.
    Small sample rates take up to a minute.

    \b
    Example:
      dosimeter plan --epsilon 3 --delta 1e-6 --noise-multiplier 30
      dosimeter plan --epsilon 1 --delta 1e-6 --steps 10
    """
    from dosimeter.accounting.calibrate import mechanism
    from dosimeter.cli.progress import spinning
    from dosimeter.compare import plan as planned

    if (noise_multiplier is None) == (steps is None):
        got = "neither" if steps is None else "both"
        raise ValueError(f"plan must be given one of --noise-multiplier and --steps, got {got}")
    cost = None if noise_multiplier is None else mechanism(sample_rate, noise_multiplier)
    with spinning("pricing"):
        made = planned(epsilon, delta, cost=cost, steps=steps, sample_rate=sample_rate)
    if as_json:
        print_json(_plain(made))
    elif steps is None:
        _print_steps(made)
    else:
        _print_noise(made, sample_rate)
    if made.steps == 0 and made.rows[1].steps == 0:
        _refuse(made, sample_rate)


def _refuse(made: Plan, sample_rate: float) -> None:
    """Says what would be affordable where nothing is, and leaves with the code of a refusal."""
    from dosimeter.accounting import Filter
    from dosimeter.accounting.calibrate import least, mechanism

    budget = Filter(made.epsilon, made.delta)
    noise = least(lambda noise: budget.admits(mechanism(sample_rate, noise)))
    way_out = "no noise is enough" if noise is None else f"one step fits at noise {exact(noise)}"
    typer.echo(f"not one step fits into {_budget(made)}; {way_out}", err=True)
    raise typer.Exit(ExitCode.REFUSED)


def _plain(made: Plan) -> dict[str, object]:
    from dosimeter.rdp.plain import to_plain

    return {
        "epsilon": made.epsilon,
        "delta": made.delta,
        "cost": to_plain(made.cost),
        "rules": [
            {
                "rule": row.rule,
                "validity": row.validity.name.lower(),
                "steps": row.steps,
                "noise_multiplier": to_plain(row.cost)["noise_multiplier"],
            }
            for row in made.rows
        ],
    }


def print_rules(
    title: str,
    figures: tuple[str, str],
    rows: Iterable[tuple[str, str, str, Validity]],
    *,
    bold: Iterable[str] = (),
) -> None:
    """Print rules of accounting with two figures each, and when these hold.

    Args:
        title: The line above the table.
        figures: The headings of the two figures.
        rows: A rule, its figures and their validity.
        bold: The rules that are printed in bold.
    """
    from dosimeter.accounting.classic import Validity

    worth = {
        Validity.ANYTIME: "sound at any stop",
        Validity.FILTER: "sound as a filter",
        Validity.FIXED: "if fixed beforehand",
        Validity.UNSOUND: "UNSOUND",
    }
    Table(
        ("rule", *figures, "holds"),
        [(rule, one, other, worth[validity]) for rule, one, other, validity in rows],
        right=figures,
        title=title,
        styles={"UNSOUND": "red", **dict.fromkeys(bold, "bold")},
    ).print()


def _print_steps(made: Plan) -> None:
    most = max(row.steps for row in made.rows)
    print_rules(
        f"{made.cost} within {_budget(made)}",
        ("steps", "share"),
        [
            (
                _GATES.get(row.rule, row.rule),
                f"{row.steps:,}",
                f"{row.steps / most:.1%}" if most else "",
                row.validity,
            )
            for row in made.rows
        ],
    )


def _print_noise(made: Plan, sample_rate: float) -> None:
    from dosimeter.rdp.plain import to_plain

    noises = [to_plain(row.cost)["noise_multiplier"] for row in made.rows]
    print_rules(
        f"least noise for {made.steps:,} steps at sample rate {exact(sample_rate)} "
        f"within {_budget(made)}",
        ("noise multiplier", "ratio"),
        [
            (
                _GATES.get(row.rule, row.rule),
                exact(noise),
                at_most(noise / min(noises), padded=True),
                row.validity,
            )
            for row, noise in zip(made.rows, noises, strict=True)
        ],
    )


def _budget(made: Plan) -> str:
    return f"({exact(made.epsilon)}, {exact(made.delta)})"
