# SPDX-License-Identifier: Apache-2.0
"""Approvals: a second opinion on large spends, where the owner of a budget asks for one.

A spend whose epsilon is over the budget's line is reserved and waits. An owner other than the one
who asked approves it, and the same key is then answered with its receipts; or denies it, and
what was reserved is free again, because nothing was drawn on its account.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from dosimeter import arguments
from dosimeter.ledger import AccessDenied, AwaitingApproval, KeyConflict, Ledger, Receipt
from dosimeter.ledger.records import canonical
from dosimeter.ledger.wire import to_wire
from dosimeter.rdp import Cost
from dosimeter.service.cabinet import Cabinet, lines, requests
from dosimeter.service.holds import LONGEST_LIFE, Holds

WAITING, APPROVED, DENIED = "waiting", "approved", "denied"
# Asked at every spend, so built once: building takes longer than asking.
_MINE = select(requests).where(
    requests.c.owner == bindparam("owner"), requests.c.key == bindparam("key")
)
_LINES = select(lines).where(lines.c.budget.in_(bindparam("names", expanding=True)))


@dataclass(frozen=True)
class Waiting:
    """A spend that waits, or was decided.

    Attributes:
        id: Its number.
        owner: Who asked.
        costs: What for, by budget, as plain costs.
        count: How many runs.
        purpose: What for, in words.
        asked: When, in seconds since 1970.
        state: "waiting", "approved" or "denied".
        decided_by: Who decided; None if nobody has.
    """

    id: str
    owner: str
    costs: dict[str, Any]
    count: int
    purpose: str
    asked: float
    state: str
    decided_by: str | None


class Approvals:
    """The lines over which spends wait, and those that do."""

    def __init__(
        self,
        cabinet: Cabinet,
        ledger: Ledger,
        holds: Holds,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cabinet = cabinet
        self._ledger = ledger
        self._holds = holds
        self._clock = clock

    def line(self, budget: str) -> float | None:
        """The epsilon of one spend over which it waits; None if none does."""
        return self._lines([budget]).get(budget)

    def draw_line(self, budget: str, above: float | None) -> None:
        """Makes spends over an epsilon wait, or none."""
        level = None if above is None else arguments.non_negative("above", above)
        with self._cabinet.writing() as connection:
            connection.execute(delete(lines).where(lines.c.budget == budget))
            if level is not None:
                connection.execute(insert(lines).values(budget=budget, above=level))

    def waits(self, costs: Mapping[str, Cost], count: int) -> bool:
        """Whether a spend is over the line of one of its budgets."""
        for name, above in self._lines(costs).items():
            price = self._ledger[name].price(costs[name], count)
            if price.admitted and not price.after - price.spent <= above:
                return True
        return False

    def ask(
        self, owner: str, costs: Mapping[str, Cost], count: int, *, key: str, purpose: str
    ) -> None:
        """Reserves a spend that has to wait, and says so.

        Raises:
            AwaitingApproval: It waits.
        """
        hold, _ = self._holds.make(
            owner, costs, count, key=_held(key), lifetime=LONGEST_LIFE, purpose=purpose
        )
        row = dict(owner=owner, key=key, costs=canonical(to_wire(costs)), runs=count, hold=hold)
        row |= dict(purpose=purpose, asked=self._clock(), state=WAITING)
        with self._cabinet.writing() as connection:
            connection.execute(insert(requests).values(id=secrets.token_hex(6), **row))
        raise _awaited(key)

    def answered(
        self, owner: str, costs: Mapping[str, Cost], count: int, *, key: str
    ) -> dict[str, Receipt] | None:
        """The receipts of a spend that was approved under a key; None if none was asked for.

        Raises:
            AwaitingApproval: It still waits.
            AccessDenied: It was denied.
            KeyConflict: The key is that of another spend.
        """
        with self._cabinet.reading() as connection:
            row = connection.execute(_MINE, {"owner": owner, "key": key}).first()
        if row is None:
            return None
        asked = json.loads(row.costs)
        if row.runs != count or any(asked.get(n) != to_wire(c) for n, c in costs.items()):
            raise KeyConflict(f"key must name one spend, got {key!r} again for another")
        if row.state == WAITING:
            raise _awaited(key)
        if row.state == DENIED:
            raise AccessDenied(f"the spend with key {key!r} was denied by {row.decided_by}")
        self._holds.settle(owner, row.hold, row.runs)
        with self._cabinet.writing() as connection:
            first = update(requests).where(requests.c.id == row.id, requests.c.taken.is_(None))
            new = connection.execute(first.values(taken=self._clock())).rowcount == 1
        receipts = self._holds.receipts(owner, row.hold)
        return {name: receipts[name]._replace(replayed=not new) for name in costs}

    def decide(self, id: str, *, approve: bool, by: str) -> None:
        """Approves or denies a spend that waits; the same again is no error.

        Raises:
            AccessDenied: It was asked for by the one who decides.
            KeyConflict: It was decided otherwise.
        """
        found = self.request(id)
        if found.owner == by:
            raise AccessDenied("a spend must be decided by someone else than who asked for it")
        state = APPROVED if approve else DENIED
        with self._cabinet.writing() as connection:
            open_ = update(requests).where(requests.c.id == id, requests.c.state == WAITING)
            connection.execute(open_.values(state=state, decided_by=by))
            row = connection.execute(select(requests).where(requests.c.id == id)).one()
        if row.state != state:
            raise KeyConflict(f"request must still wait, it was {row.state} by {row.decided_by}")
        self._holds.settle(row.owner, row.hold, row.runs if approve else 0, untouched=True)

    def request(self, id: str) -> Waiting:
        """A spend that waits, or was decided."""
        with self._cabinet.reading() as connection:
            row = connection.execute(select(requests).where(requests.c.id == id)).first()
        if row is None:
            raise ValueError(f"id must be that of a request, got {id!r:.80}")
        return _waiting(row)

    def listed(self, most: int = 200) -> list[Waiting]:
        """Those that wait first, then those decided, the newest first."""
        order = (requests.c.state.desc(), requests.c.asked.desc())
        with self._cabinet.reading() as connection:
            rows = connection.execute(select(requests).order_by(*order).limit(most)).all()
        return [_waiting(row) for row in rows]

    def _lines(self, names: Any) -> dict[str, float]:
        with self._cabinet.reading() as connection:
            rows = connection.execute(_LINES, {"names": list(names)}).all()
        return {row.budget: row.above for row in rows}


def _held(key: str) -> str:
    return f"approval of {key}"


def _awaited(key: str) -> AwaitingApproval:
    return AwaitingApproval(
        f"the spend must be approved first, and is reserved until then; spend the same again with "
        f"key={key!r} once it is"
    )


def _waiting(row: Any) -> Waiting:
    return Waiting(
        id=row.id,
        owner=row.owner,
        costs=json.loads(row.costs),
        count=row.runs,
        purpose=row.purpose,
        asked=row.asked,
        state=row.state,
        decided_by=row.decided_by,
    )
