# SPDX-License-Identifier: Apache-2.0
"""`dosimeter attack`: which rules stand against exact adversaries."""

from __future__ import annotations

from dosimeter.cli.options import Json
from dosimeter.cli.output import Table, print_json


def attack(as_json: Json = False) -> None:
    """Play exact adversaries against rules, and see which stand.

    Every view is enumerated in 60 digits: the delta that an adversary reaches is a fact about
    the rule, not an estimate. One that is larger than the delta claimed breaks the rule.

    \b
    Example:
      dosimeter attack
      dosimeter attack --json
    """
    from dosimeter.cli.progress import spinning
    from dosimeter.compare.adversaries import examples

    with spinning("playing"):
        outcomes = examples.outcomes()
    epsilon, delta = examples.EPSILON, examples.DELTA
    if as_json:
        print_json(
            [
                {
                    "rule": one.rule,
                    "measure": one.measure,
                    "epsilon": epsilon,
                    "delta": delta,
                    "reached": one.reached,
                    "holds": one.holds,
                }
                for one in outcomes
            ]
        )
        return
    Table(
        ("rule", "measure", "reached", "verdict"),
        [
            (
                one.rule,
                one.measure,
                f"{one.reached / delta:.4f} delta",
                "holds" if one.holds else "BROKEN",
            )
            for one in outcomes
        ],
        right=("reached",),
        title=f"delta reached at epsilon {epsilon:g} where {delta:g} was claimed",
        styles={"holds": "green", "BROKEN": "red"},
    ).print()
