# SPDX-License-Identifier: Apache-2.0
"""Account: what a filter and an odometer share.

A mixture fixed at the start, a cap on failures fixed at the start, and a running tally
behind one lock.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from dosimeter import arguments
from dosimeter.accounting import state as saved
from dosimeter.accounting.mixture import Mixture, Root
from dosimeter.accounting.tally import Tally
from dosimeter.errors import StateError
from dosimeter.rdp import Orders
from dosimeter.rdp.cost import UP
from dosimeter.rdp.orders import FloatArray
from dosimeter.rounding import at_most, exact


class Account:
    """The parameters and the tally of a gate; parameters never change."""

    def __init__(
        self,
        orders: Iterable[float],
        weights: Sequence[float] | FloatArray,
        delta: float,
        approx_delta: float,
        *,
        share: float = 1.0,
    ) -> None:
        self._delta = arguments.open_unit("delta", delta)
        self._mixture = Mixture(orders, weights, self._delta * share)
        self._approx_delta = arguments.non_negative("approx_delta", approx_delta)
        if not self.total_delta < 1:
            raise ValueError(f"approx_delta must leave delta below 1, got {approx_delta!r}")
        self._lock = threading.RLock()
        self._tally = Tally.nothing(self.orders)
        self._reported = 0.0
        self._root: Root | None = None
        self._read: Tally | None = None
        self._mark: tuple[str, Tally | None, Mapping[str, Any]] = ("", None, {})

    @property
    def delta(self) -> float:
        """The delta of the guarantee apart from `approx_delta`, fixed at the start."""
        return self._delta

    @property
    def approx_delta(self) -> float:
        """Cap on the summed delta of costs that have one, fixed at the start."""
        return self._approx_delta

    @property
    def total_delta(self) -> float:
        """delta + approx_delta, the delta of the guarantee."""
        return (self.delta + self._approx_delta) * UP if self._approx_delta else self.delta

    @property
    def orders(self) -> Orders:
        """The grid of orders, fixed at the start."""
        return self._mixture.orders

    @property
    def weights(self) -> FloatArray:
        """The weight of each order, fixed at the start, read-only."""
        return self._mixture.weights

    @property
    def tally(self) -> Tally:
        """The running sum of everything spent, rounded up; read-only."""
        with self._lock:
            self._tally.rdp.flags.writeable = False
            return self._tally

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up; it never falls."""
        with self._lock:
            if self._read is not self._tally:
                mixed, self._root = self._mixture.solve(self._tally.rdp, self._root)
                # The loss never passes the pure total, so its minimum needs no weight.
                value = min(mixed, self._tally.pure_epsilon)
                self._reported = max(self._reported, value)
                self._read = self._tally
            return self._reported

    def __reduce__(self) -> NoReturn:
        """Also keeps copy.copy and copy.deepcopy from making a second budget."""
        raise TypeError(
            f"a {type(self).__name__} must not be copied or pickled: a copy would be a second "
            "budget for the same data. Share this one, or move its state()."
        )

    def _failure_excess(self, tally: Tally) -> str | None:
        """Why the failure probabilities of a tally pass their cap, or None if they do not."""
        if tally.delta <= self._approx_delta:
            return None
        return (
            f"the deltas of its costs would sum to {at_most(tally.delta)}, over "
            f"approx_delta={exact(self._approx_delta)}, which was set when the gate was made"
        )

    def _state(self, kind: str, more: Mapping[str, Any]) -> saved.State:
        with self._lock:
            fields = {
                "delta": self.delta,
                "approx_delta": self._approx_delta,
                "orders": list(self.orders),
                "weights": self.weights.tolist(),
                "rdp": [saved.number(value) for value in self._tally.rdp.tolist()],
                "pure_epsilon": saved.number(self._tally.pure_epsilon),
                "spent_delta": self._tally.delta,
                "mark": self._marked(more),
            }
        return saved.seal(kind, {**fields, **more})

    def _marked(self, more: Mapping[str, Any]) -> str:
        """The same random text until the next spend: equal sums alone may be another gate's."""
        mark, tally, before = self._mark
        if tally is not self._tally or before != more:
            mark = secrets.token_hex(16)
            self._mark = (mark, self._tally, more)
        return mark

    def _restore(self, fields: Mapping[str, Any]) -> None:
        """Takes over the tally of a state whose parameters this account was made from."""
        rdp = saved.numbers("rdp", fields["rdp"])
        if len(rdp) != len(self.orders):
            raise StateError(f"state rdp must hold {len(self.orders)} values, got {len(rdp)}")
        pure, delta = (
            saved.numbers(name, [fields[name]])[0] for name in ("pure_epsilon", "spent_delta")
        )
        if not delta <= self._approx_delta:
            raise StateError(f"state spent_delta must be within approx_delta, got {delta!r}")
        self._tally = Tally(rdp, float(pure), float(delta))

    def _keep_mark(self, fields: Mapping[str, Any]) -> None:
        """Takes over the mark of a state that was restored whole."""
        more = {name: value for name, value in fields.items() if name not in FIELDS | SEAL}
        if "mark" in fields:  # states of the first releases have none
            self._mark = (str(fields["mark"]), self._tally, more)


FIELDS = frozenset(
    ["delta", "approx_delta", "orders", "weights", "rdp", "pure_epsilon", "spent_delta", "mark"]
)
SEAL = frozenset(["kind", "version", "checksum"])


def largest(admits: Callable[[int], bool]) -> int:
    """The largest count up to MAX_COUNT that a monotone rule admits, by doubling and halving."""
    low, high = 0, 1
    while high <= arguments.MAX_COUNT and admits(high):
        low, high = high, 2 * high
    high = min(high, arguments.MAX_COUNT + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admits(middle) else (low, middle)
    return low
