# SPDX-License-Identifier: Apache-2.0
"""What people are handed: the receipt of a spend, and what a verification found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dosimeter.notebook import card
from dosimeter.rdp import Cost
from dosimeter.rounding import at_most


class Receipt(NamedTuple):
    """Proof that a spend is recorded.

    Attributes:
        budget: The name of the budget.
        sequence: The place of the entry in its journal.
        cost: What one run costs.
        count: How many runs were paid for.
        epsilon: Epsilon spent after it, rounded up.
        hash: The hash of the entry; whoever keeps it can show that it was not removed.
        time: When, by the clock of the client that recorded it.
        replayed: The key was known, so nothing was spent now: this is the first receipt
            again. It pays for one computation, which may have run already.
        signature: The public key of the ledger's keeper, the identity of the ledger and the
            signature of that key; a service signs, see `dosimeter.ledger.anchors`.
    """

    budget: str
    sequence: int
    cost: Cost
    count: int  # type: ignore[assignment]  # no one counts the values of a receipt
    epsilon: float
    hash: str
    time: str
    replayed: bool = False
    signature: str = ""

    def __repr__(self) -> str:
        return f"Receipt({', '.join(self._lines())})"

    def _repr_html_(self) -> str:
        return card("receipt", self._lines())

    def _lines(self) -> list[str]:
        """What it is for, in a few words each."""
        entry = f"entry {self.sequence} of {self.budget!r}"
        spent = "nothing, recorded before" if self.replayed else f"{self.count} x {self.cost}"
        return [entry, spent, f"epsilon {at_most(self.epsilon)} after it"]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a replay of a journal found.

    Attributes:
        budget: The name of the budget.
        entries: How many entries fit, from the first on.
        epsilon: Epsilon recomputed over those.
        head: The hash of the last of those.
        sequence: The first entry that does not fit; None if all do.
        problem: What does not fit, in words; None if everything does.
        memory: What another verification goes on from; empty if something does not fit.
    """

    budget: str
    entries: int
    epsilon: float
    head: str
    sequence: int | None = None
    problem: str | None = None
    memory: str = ""

    @property
    def ok(self) -> bool:
        """Whether everything fits."""
        return self.problem is None

    def __str__(self) -> str:
        name = shown(self.budget)
        if self.ok:
            return f"{name}: all {self.entries} entries fit, epsilon {at_most(self.epsilon)}"
        where = "its balance" if self.sequence is None else f"entry {self.sequence}"
        return f"{name}: {where} does not fit: {self.problem}"


def shown(name: str) -> str:
    """A name as it may stand on a terminal: quoted if it could pass for something else."""
    plain = name.isprintable() and name == name.strip() and ":" not in name
    return name if plain else repr(name)
