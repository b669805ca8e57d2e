# SPDX-License-Identifier: Apache-2.0
"""Reservations that clients hold: made under a key, settled once, by whichever server is asked.

The row is written before the ledger is asked, so a server that dies between the two leaves one
without receipts: its key is then refused, and what may have been reserved stays spent. Where
several budgets are reserved in and one refuses, those before it are freed: nothing was drawn.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update

from dosimeter import arguments
from dosimeter.ledger import KeyConflict, Ledger, Receipt, ReservationError
from dosimeter.ledger.errors import LedgerUnavailable
from dosimeter.ledger.records import canonical
from dosimeter.ledger.wire import receipt_from, to_wire
from dosimeter.rdp import Cost
from dosimeter.service.cabinet import Cabinet, holds

LONGEST_LIFE = 30 * 86400.0


class Holds:
    """The reservations of a service's clients."""

    def __init__(
        self, cabinet: Cabinet, ledger: Ledger, clock: Callable[[], float] = time.time
    ) -> None:
        self._cabinet = cabinet
        self._ledger = ledger
        self._clock = clock

    def make(
        self,
        owner: str,
        costs: Mapping[str, Cost],
        count: int,
        *,
        key: str,
        lifetime: float,
        purpose: str,
    ) -> tuple[str, dict[str, Receipt]]:
        """Reserves in all budgets, once under a key; a second time gives the same reservation.

        Raises:
            KeyConflict: The key was used for another reservation, for one that has ended, or
                for one of which nobody knows whether it was made.
        """
        if not arguments.positive("lifetime", lifetime) <= LONGEST_LIFE:
            raise ValueError(f"lifetime must be at most {LONGEST_LIFE:g} s, got {lifetime!r}")
        asked = canonical({"costs": to_wire(costs), "count": count})
        row = dict(id=secrets.token_hex(12), owner=owner, key=key, asked=asked)
        with self._cabinet.writing() as connection:
            mine = select(holds).where(holds.c.owner == owner, holds.c.key == key)
            earlier = connection.execute(mine).first()
            if earlier is None:
                expires = self._clock() + lifetime
                connection.execute(insert(holds).values(**row, expires=expires))
        if earlier is not None:
            return _same(earlier, asked)
        made = self._reserved(row["id"], owner, costs, count, purpose)
        self._write(row["id"], receipts=canonical(to_wire(made)))
        return row["id"], made

    def _reserved(
        self, id: str, owner: str, costs: Mapping[str, Cost], count: int, purpose: str
    ) -> dict[str, Receipt]:
        made: dict[str, Receipt] = {}
        try:
            for name in sorted(costs, reverse=True):  # an allowance before its budget
                budget = self._ledger[name]
                reserved = budget.reserve(costs[name], count, purpose=purpose, actor=owner)
                made[name] = reserved.receipt
        except Exception as error:
            if not (isinstance(error, LedgerUnavailable) and error.outcome_unknown):
                for receipt in made.values():
                    self._ledger[receipt.budget].settle(receipt, 0, actor=owner)
                self._forget(id)
            raise
        return made

    def receipts(self, owner: str, id: str) -> dict[str, Receipt]:
        """The receipts of a reservation of an owner's, by budget."""
        return _receipts(self._row(owner, id))

    def settle(self, owner: str, id: str, drawn: int, *, untouched: bool = False) -> None:
        """Ends a reservation of an owner's; the same again is no error.

        Args:
            owner: Whose it is.
            id: Its number.
            drawn: How many runs were drawn.
            untouched: Whether it is certain that nothing was drawn but this, however late it is.

        Raises:
            ReservationError: There is none of this number, or it ended with another count.
        """
        row = self._row(owner, id)
        if row.drawn is not None:
            if row.drawn != drawn:
                raise ReservationError(
                    f"reservation must be settled once, with {row.drawn} drawn, got {drawn} now"
                )
            return
        if drawn == 0 and self._clock() > row.expires and not untouched:
            # Its owner may be gone, and nobody knows what they drew before.
            raise ReservationError("reservation must be freed before it expires; it stays spent")
        for receipt in _receipts(row).values():
            try:
                self._ledger[receipt.budget].settle(receipt, drawn, actor=owner)
            except ReservationError:
                # By another server, which died before it said so.
                self._require_noted(receipt, drawn)
        self._write(id, drawn=drawn)

    def _row(self, owner: str, id: str) -> Any:
        with self._cabinet.reading() as connection:
            mine = select(holds).where(holds.c.id == id, holds.c.owner == owner)
            row = connection.execute(mine).first()
        if row is None or row.receipts is None:
            raise ReservationError(f"id must be that of a reservation of yours, got {id!r:.80}")
        return row

    def _require_noted(self, receipt: Receipt, drawn: int) -> None:
        budget = self._ledger[receipt.budget]
        since = max(1, budget.statement().entries - receipt.sequence)
        ended = [e for e in budget.history(since) if e.reference == receipt.sequence]
        if [(e.count if e.kind == "commit" else 0) for e in ended] != [drawn]:
            raise ReservationError(
                f"reservation must be settled once, got {drawn} drawn after another end"
            )

    def _forget(self, id: str) -> None:
        with self._cabinet.writing() as connection:
            connection.execute(delete(holds).where(holds.c.id == id))

    def _write(self, id: str, **values: Any) -> None:
        with self._cabinet.writing() as connection:
            connection.execute(update(holds).where(holds.c.id == id).values(**values))


def _same(row: Any, asked: str) -> tuple[str, dict[str, Receipt]]:
    if row.asked != asked or row.drawn is not None:
        raise KeyConflict("key must name one reservation, got it again for another, or ended one")
    if row.receipts is None:
        raise KeyConflict(
            "key must be new: a server failed while it reserved under this one, and what it may "
            "have reserved stays spent"
        )
    return str(row.id), _receipts(row)


def _receipts(row: Any) -> dict[str, Receipt]:
    return {name: receipt_from(plain) for name, plain in json.loads(row.receipts).items()}
