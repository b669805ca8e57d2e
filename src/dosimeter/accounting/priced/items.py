# SPDX-License-Identifier: Apache-2.0
"""What builder, checker and counter of a menu have in common: the finished values, and no code.

A menu and a ladder say what is promised. They are built in `menu` and `ladder`, and confirmed by
another road in `verify`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, SupportsFloat, runtime_checkable

from dosimeter.rdp import Cost
from dosimeter.rdp.loss import Direction

__all__ = ["Direction", "Finite", "Item", "Ladder", "Menu"]


@runtime_checkable
class Finite(Protocol):
    """A cost that knows both probabilities of each of its finitely many outputs."""

    def worlds(self) -> Iterable[tuple[SupportsFloat, SupportsFloat]]:
        """(p, q) of every output."""
        ...


@dataclass(frozen=True)
class Item:
    """`steps` runs of `cost` are bought together for `price` quanta."""

    cost: Cost
    steps: int
    price: int

    @property
    def per_run(self) -> float:
        """Quanta that one run costs if the whole bundle is used."""
        return self.price / self.steps


@dataclass(frozen=True)
class Menu:
    """Items and the number of quanta that keep every adaptive use of them within (epsilon, delta).

    Attributes:
        epsilon: The budget.
        delta: What the worst adaptive adversary may reach.
        quanta: How many quanta may be spent in all.
        items: What they buy; the nominal mechanism first.
    """

    epsilon: float
    delta: float
    quanta: int
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Ladder:
    """A menu, and the epsilon that holds after each number of its quanta.

    Attributes:
        menu: The items; its epsilon is the last reading.
        readings: Epsilon after 0, 1, ... quanta, rounded up.
    """

    menu: Menu
    readings: tuple[float, ...]
