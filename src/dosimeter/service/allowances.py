# SPDX-License-Identifier: Apache-2.0
"""Allowances: a part of a budget for a person, a team or a project, as a filter of its own.

An allowance is a budget of the ledger beside the one that it is of, named `budget@label`. What a
holder spends is spent in both or in neither, so an allowance can only refuse more, never less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import BindParameter, bindparam, delete, insert, select

from dosimeter.ledger import AccessDenied, Ledger, Statement
from dosimeter.rdp import Cost
from dosimeter.service.cabinet import Cabinet, allowances
from dosimeter.service.roles import owner_name

MOST_HOLDERS = 1000
_NAMES: BindParameter[str] = bindparam("names", expanding=True)
_ASKED = select(allowances).where(allowances.c.budget.in_(_NAMES) | allowances.c.name.in_(_NAMES))


@dataclass(frozen=True)
class Allowance:
    """A part of a budget, who may take it, and where it stands."""

    budget: str
    label: str
    holders: tuple[str, ...]
    statement: Statement


class Allowances:
    """The allowances in a ledger's budgets."""

    def __init__(self, cabinet: Cabinet, ledger: Ledger) -> None:
        self._cabinet = cabinet
        self._ledger = ledger

    def give(
        self, budget: str, label: str, holders: Iterable[str], epsilon: float, *, by: str
    ) -> None:
        """Gives a part of a budget to its holders.

        Raises:
            BudgetExists: There is, or was, an allowance of this label.
        """
        owner_name("label", label)
        named = sorted({owner_name("holder", holder) for holder in holders})
        if not 0 < len(named) <= MOST_HOLDERS:
            raise ValueError(f"holders must be 1 to {MOST_HOLDERS} names, got {len(named)}")
        whole, name = self._ledger[budget], f"{budget}@{label}"
        standing, promise = whole.statement(), whole.guarantee()
        if not 0 < epsilon <= standing.limit:
            raise ValueError(
                f"epsilon of an allowance must be > 0 and at most {standing.limit}, got {epsilon!r}"
            )
        self._ledger.create(
            name,
            epsilon,
            standing.delta,
            approx_delta=standing.approx_delta,
            neighbours=promise.neighbours,
            purpose=f"allowance of {', '.join(named)}",
            actor=by,
        )
        row = dict(name=name, budget=budget, label=label, holders="\n".join(named))
        with self._cabinet.writing() as connection:
            connection.execute(insert(allowances).values(**row))

    def end(self, budget: str, label: str, *, by: str) -> None:
        """Ends an allowance: its holders spend from the budget without it."""
        here = (allowances.c.budget == budget, allowances.c.label == label)
        with self._cabinet.reading() as connection:
            name = connection.execute(select(allowances.c.name).where(*here)).scalar()
        if name is None:
            raise ValueError(f"label must be that of an allowance in {budget!r}, got {label!r:.80}")
        self._ledger[name].close(purpose="allowance ended", actor=by)
        with self._cabinet.writing() as connection:
            connection.execute(delete(allowances).where(*here))

    def listed(self, budget: str) -> list[Allowance]:
        """The allowances in a budget."""
        query = select(allowances).where(allowances.c.budget == budget)
        with self._cabinet.reading() as connection:
            rows = connection.execute(query.order_by(allowances.c.label)).all()
        return [
            Allowance(
                row.budget,
                row.label,
                tuple(row.holders.split("\n")),
                self._ledger[row.name].statement(),
            )
            for row in rows
        ]

    def held(self, owner: str, budget: str) -> list[str]:
        """The names of the allowances that someone holds in a budget."""
        query = select(allowances).where(allowances.c.budget == budget)
        with self._cabinet.reading() as connection:
            rows = connection.execute(query).all()
        return [row.name for row in rows if owner in row.holders.split("\n")]

    def with_own(self, owner: str, costs: Mapping[str, Cost]) -> dict[str, Cost]:
        """Costs, and the same again in every allowance that someone holds in those budgets.

        Raises:
            AccessDenied: One of the names is that of an allowance.
        """
        with self._cabinet.reading() as connection:
            rows = connection.execute(_ASKED, {"names": list(costs)}).all()
        both = dict(costs)
        for row in rows:
            if row.name in costs:
                raise AccessDenied(
                    f"name must be that of a budget, got the allowance {row.name!r}; spend from "
                    f"{row.budget!r}, which takes from it too"
                )
            if owner in row.holders.split("\n"):
                both[row.name] = costs[row.budget]
        return both
