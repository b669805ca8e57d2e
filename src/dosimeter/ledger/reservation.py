# SPDX-License-Identifier: Apache-2.0
"""Reservations: many steps paid for in one transaction, then drawn without one.

What is reserved is spent at once, in the ledger, before anything is drawn; the draws are
counted in this process only. So a crash loses what was not drawn, and never privacy. A
reservation belongs to the process that made it: a copy in another process could draw the
same steps again, and is refused.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dosimeter import arguments
from dosimeter.errors import BudgetExceeded
from dosimeter.ledger.errors import ReservationError
from dosimeter.ledger.receipts import Receipt
from dosimeter.rdp import Cost

if TYPE_CHECKING:
    from dosimeter.ledger.budget import Budget
    from dosimeter.ledger.desk import Desk


class Reservation:
    """Runs of one cost that are paid for and wait to be drawn.

    Guarantee:
        Every draw was spent in the ledger before it. Nothing goes back, except when the
        reservation ends with nothing drawn: then no data were touched on its account.
    """

    def __init__(self, desk: Desk, receipt: Receipt, *, lifetime: float, actor: str) -> None:
        self._desk = desk
        self._receipt = receipt
        self._actor = actor
        self._process = os.getpid()
        self._expires = time.monotonic() + arguments.positive("lifetime", lifetime)
        self._lock = threading.Lock()
        self._drawn = 0
        self._ended = False

    @property
    def receipt(self) -> Receipt:
        """The receipt for everything reserved."""
        return self._receipt

    @property
    def drawn(self) -> int:
        """How many runs were drawn."""
        return self._drawn

    @property
    def remaining(self) -> int:
        """How many runs can still be drawn; none once it is over."""
        over = self._ended or os.getpid() != self._process or time.monotonic() >= self._expires
        return 0 if over else self._receipt.count - self._drawn

    def draw(self, count: int = 1) -> None:
        """Takes runs that are paid for; call it before the data are touched.

        Raises:
            ReservationError: Fewer are left, or it is over. Nothing was drawn.
        """
        number = arguments.count("count", count)
        with self._lock:
            left = self.remaining
            if number > left:
                raise ReservationError(
                    f"count must be at most what is left of the reservation ({left}), "
                    f"got {count!r}; make another one"
                )
            self._drawn += number

    def commit(self) -> None:
        """Ends it and notes how many runs were drawn; frees it if there were none."""
        with self._lock:
            if self._ended:
                return
            if os.getpid() != self._process:
                raise ReservationError("reservation must be ended by the process that made it")
            # Whatever becomes of the note, nothing is drawn after it was begun.
            self._ended = True
            self._desk.settle(self._receipt, self._drawn, self._actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.commit()

    def __reduce__(self) -> Any:
        raise TypeError("a reservation must stay in the process that made it; make one in each")


class Buffered:
    """A gate that spends from a budget in reservations of many runs.

    For loops that spend the same cost again and again, faster than a database commits.
    Another cost, or the end of a block, begins a new reservation. Use it as a context
    manager, or call `commit` at the end, to note what was drawn.
    """

    def __init__(self, budget: Budget, block: int, *, lifetime: float, actor: str) -> None:
        self._budget = budget
        self._block = arguments.count("block", block)
        self._lifetime = arguments.positive("lifetime", lifetime)
        self._actor = actor
        self._lock = threading.RLock()
        self._current: Reservation | None = None

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing."""
        count = arguments.count("count", count)
        with self._lock:
            return self._holds(cost, count) or self._budget.admits(cost, count)

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Draws from the reservation, or makes another; call it before the data are touched.

        Raises:
            BudgetExceeded: The budget refused. Nothing changed.
        """
        count = arguments.count("count", count)
        with self._lock:
            if not self._holds(cost, count):
                current = self._current
                if current is not None and not (current.drawn and current.remaining):
                    self.commit()  # it holds nothing, or frees what it holds
                # A refusal leaves the reservation at hand, and what it still holds.
                made = self._reserve(cost, count)
                self.commit()
                self._current = made
            assert self._current is not None
            self._current.draw(count)

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, all that is reserved included."""
        return self._budget.epsilon

    def commit(self) -> None:
        """Ends the reservation at hand, if there is one."""
        with self._lock:
            current, self._current = self._current, None
            if current is not None:
                current.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.commit()

    def __reduce__(self) -> Any:
        raise TypeError("a buffered gate must stay in the process that made it; make one in each")

    def _holds(self, cost: Cost, count: int) -> bool:
        current = self._current
        return current is not None and current.receipt.cost == cost and count <= current.remaining

    def _reserve(self, cost: Cost, count: int) -> Reservation:
        size = max(count, self._block)
        while True:
            try:
                return self._budget.reserve(cost, size, lifetime=self._lifetime, actor=self._actor)
            except BudgetExceeded as refusal:
                # Near the end of a budget the last block is a smaller one.
                if not count <= refusal.affordable < size:
                    raise
                size = refusal.affordable
