# SPDX-License-Identifier: Apache-2.0
"""Meter: a lock around an account; what filters and odometers share."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from dosimeter.accounting import state as saved
from dosimeter.accounting.account import POSITION, Account
from dosimeter.accounting.burned import spent_share
from dosimeter.accounting.guarantee import Guarantee, Standing
from dosimeter.accounting.priced import share
from dosimeter.accounting.priced.items import Item, Menu
from dosimeter.accounting.tally import Tally
from dosimeter.neighbours import Neighbours
from dosimeter.notebook import card
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import at_most, exact, share_words

_TERMS = frozenset(["delta", "approx_delta", "orders", "weights"])
_SUMS = frozenset(["rdp", "pure_epsilon", "spent_delta", "mark"])


class Meter:
    """Holds an account and replaces it, one spend at a time."""

    _kind: str

    def __init__(self, account: Account) -> None:
        self._lock = threading.RLock()
        self._account = account
        self._mark: tuple[str, Account | None] = ("", None)

    @property
    def account(self) -> Account:
        """Where this meter stands, as a value that no later spend changes."""
        return self._account

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up; it never falls and never passes the limit."""
        with self._lock:
            return self._account.epsilon

    @property
    def limit(self) -> float:
        """The epsilon never to be passed; infinite for an odometer."""
        return self._account.limit

    @property
    def remaining(self) -> float:
        """How far epsilon is from the limit, rounded down; infinite for an odometer.

        While a menu is open, at least the share of the limit that its unsold quanta are.
        """
        with self._lock:
            return self._account.remaining

    @property
    def delta(self) -> float:
        """The delta of the guarantee apart from `approx_delta`, fixed at the start."""
        return self._account.terms.delta

    @property
    def approx_delta(self) -> float:
        """Cap on the summed delta of costs that have one, fixed at the start."""
        return self._account.terms.approx_delta

    @property
    def total_delta(self) -> float:
        """delta + approx_delta, the delta of the guarantee."""
        return self._account.terms.total_delta

    @property
    def neighbours(self) -> Neighbours:
        """Which two data sets the guarantee speaks about, fixed at the start."""
        return self._account.terms.neighbours

    @property
    def orders(self) -> Orders:
        """The grid of orders, fixed at the start."""
        return self._account.terms.mixture.orders

    @property
    def weights(self) -> FloatArray:
        """The weight of each order, fixed at the start, read-only."""
        return self._account.terms.mixture.weights

    @property
    def menu(self) -> Menu | None:
        """The declared mechanisms and their prices; None without a menu."""
        return self._account.terms.menu

    @property
    def quanta_left(self) -> int:
        """How many quanta the menu may still sell; 0 without a menu or once it has ended."""
        quanta = self._account.quanta
        return 0 if quanta is None else quanta.left

    @property
    def standing(self) -> Standing:
        """Which parts still hold: the menu, the mixture, or both."""
        return self._account.standing

    @property
    def tally(self) -> Tally:
        """The running sum of everything spent, rounded up; read-only."""
        return self._account.sums.tally

    def price(self, cost: Cost) -> Item | None:
        """The bundle in which the menu sells `cost`; None for what has no price.

        What is not on the menu is priced when it is first asked for, which takes a second.
        """
        return self._account.price(cost)

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of `count` runs of `cost` would be accepted now; changes nothing."""
        return self._account.admits(cost, count)

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Spends `count` runs of `cost`; call it before the data are touched.

        Raises:
            BudgetExceeded: The spend would pass the limit. Nothing has changed.
        """
        with self._lock:
            self._account = self._account.after(cost, count)

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that would be admitted now, at most 2**53."""
        return self._account.affordable(cost)

    def guarantee(self, *, stopped: bool = False) -> Guarantee:
        """Return what holds for everything admitted.

        Args:
            stopped: Whether to state, for a filter too, what holds ex-post if nothing more is
                spent: its reading, beside the limit that holds whatever follows (Theorem 3, T5
                in docs/guarantees.md).
        """
        with self._lock:
            return self._account.guarantee(stopped=stopped)

    def state(self) -> saved.State:
        """Everything needed to go on elsewhere, as plain JSON values."""
        with self._lock:
            mark, marked = self._mark
            if marked is not self._account:
                # Equal sums alone may be another gate's: the mark tells them apart.
                mark = secrets.token_hex(16)
                self._mark = (mark, self._account)
            return saved.seal(self._kind, {**self._account.plain(), "mark": mark})

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The gate that `state()` described.

        Raises:
            StateError: The state is of another kind or version, or was edited.
        """
        priced = isinstance(state, Mapping) and "menu" in state
        names = _TERMS | _SUMS | ({"epsilon"} if cls._kind == "filter" else set())
        if priced:
            share.require_format(state)
            names |= (POSITION - {"spent_cut", "strangers"}) | {"menu", "menu_format"}
            names |= {"strangers"} & set(state)
            names |= {"readings"} if cls._kind == "odometer" else set()
        if isinstance(state, Mapping) and "neighbours" in state:
            names |= {"neighbours"}
        if isinstance(state, Mapping) and "cut" in state:
            names |= {"cut", "spent_cut"}
        fields = dict(saved.unseal(cls._kind, state, names))
        for name in ("version", "checksum"):
            del fields[name]
        restored = cls.__new__(cls)
        Meter.__init__(restored, Account.from_plain(fields))
        restored._mark = (str(fields["mark"]), restored._account)
        return restored

    @property
    def spent_share(self) -> float:
        """The share that is used up by the filter's own measure, 0 to 1; 0 for an odometer.

        Unlike epsilon it adds up: after n runs of one cost, with room for m more, it is about
        n / (n + m).
        """
        with self._lock:
            return spent_share(self._account)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._lines())})"

    def _repr_html_(self) -> str:
        limited = self.limit < math.inf
        return card(type(self).__name__, self._lines(), self.spent_share if limited else None)

    def _lines(self) -> list[str]:
        """Where it stands, in a few words each."""
        delta = f"delta {exact(self.total_delta)}"
        if self.limit == math.inf:
            return [f"epsilon {at_most(self.epsilon)}", "no limit", delta]
        spent = f"epsilon {at_most(self.epsilon)} of {exact(self.limit)}"
        return [spent, delta, f"{share_words(self.spent_share)} used up"]

    def __reduce__(self) -> NoReturn:
        """Also keeps copy.copy and copy.deepcopy from making a second budget."""
        raise TypeError(
            f"a {type(self).__name__} must not be copied or pickled: a copy would be a second "
            "budget for the same data. Share this one, or move its state()."
        )
