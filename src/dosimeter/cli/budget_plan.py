# SPDX-License-Identifier: Apache-2.0
"""`dosimeter budget plan`: what is left of budgets, in steps or in noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from dosimeter.cli.costs import given_cost, is_cost_given
from dosimeter.cli.database import DEFAULT_DB, Db, members, opened
from dosimeter.cli.errors import ExitCode
from dosimeter.cli.options import Block, Json, Name, Noise, SampleRate, Steps
from dosimeter.cli.output import Table, print_json
from dosimeter.rounding import exact, share_words

if TYPE_CHECKING:
    from dosimeter.ledger import Budget


def plan(
    context: typer.Context,
    name: Name,
    noise_multiplier: Noise = None,
    steps: Steps = None,
    sample_rate: SampleRate = 1.0,
    block: Block = None,
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Count the steps or queries that are left, or find their noise.

    Nothing is spent, and others may spend before you do. What fits into all blocks of a group is
    what fits into the one that has least left. Any cost is counted that `spend` takes.

    \b
    Example:
      dosimeter budget plan patients --sample-rate 0.01 --noise-multiplier 1
      dosimeter budget plan patients --zcdp 0.005
      dosimeter budget plan visits --block 2026-01..2026-06 --steps 10
    """
    from dosimeter.accounting.calibrate import mechanism
    from dosimeter.cli.progress import spinning

    given = is_cost_given(context)
    cost = given_cost(context) if given else None
    ways = [noise_multiplier is not None, steps is not None, cost is not None]
    if sum(ways) != 1:
        raise ValueError(
            "plan must be given one of --noise-multiplier, --steps and a cost such as --gaussian, "
            f"got {sum(ways)} of them"
        )
    if noise_multiplier is not None:
        cost = mechanism(sample_rate, noise_multiplier)
    word, wanted = ("steps", 1) if steps is None else ("noise_multiplier", steps)
    with opened(db) as ledger, spinning("asking"):
        budgets = [ledger[one] for one in members(ledger, name, block)]
        noises = [] if given else [_least(budget, sample_rate, wanted) for budget in budgets]
        found = noises if cost is None else [budget.affordable(cost) for budget in budgets]
        what = f"{steps:,} steps" if cost is None else f"{cost}"
        heading = "least noise" if cost is None else "steps"
        table = _table(budgets, found, heading, f"{what} in what is left")
    if as_json:
        print_json([{"budget": b.name, word: one} for b, one in zip(budgets, found, strict=True)])
    else:
        table.print()
    if math.inf in noises or 0 in found:
        typer.echo(f"not enough is left{_fitting(noises, wanted)}", err=True)
        raise typer.Exit(ExitCode.REFUSED)


def _fitting(noises: Sequence[float], wanted: int) -> str:
    """What would fit, where steps or noise were asked for."""
    if not noises:
        return " for one of them"
    fits = "at no noise" if math.inf in noises else f"at noise {exact(max(noises))}"
    many = "one step fits" if wanted == 1 else f"{wanted:,} steps fit"
    return f"; {many} {fits}"


def _least(budget: Budget, sample_rate: float, steps: int) -> float:
    """The least noise at which a budget has room for some steps; infinite if there is none."""
    from dosimeter.accounting.calibrate import least, mechanism

    noise = least(lambda noise: budget.admits(mechanism(sample_rate, noise), steps))
    return math.inf if noise is None else noise


def _table(budgets: Sequence[Budget], found: Sequence[float], heading: str, title: str) -> Table:
    """Return the steps or the noise of each budget; one without limit affords any."""
    rows = []
    for budget, number in zip(budgets, found, strict=True):
        least = "none" if number == math.inf else exact(number)
        said = f"{number:,}" if heading == "steps" else least
        limited = budget.limit < math.inf
        used = share_words(budget.spent_share) if limited else "no limit"
        rows.append((budget.name, used, said if limited else "any"))
    return Table(("budget", "used up", heading), rows, right=("used up", heading), title=title)
