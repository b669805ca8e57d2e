# SPDX-License-Identifier: Apache-2.0
"""Account: the terms, and where everything spent so far has brought the potentials.

A frozen value. `after` gives the account after a spend or the refusal, and everything that
holds a budget folds this one function: a `Filter` and an `Odometer` behind a lock, a ledger
from row to row, an audit over a journal.

The OR-lemma (docs/prices.md) lives here and nowhere else: potentials whose deltas add up to
delta may stand side by side, and whichever vouches for a spend is enough, provided that every
potential is charged for every run that any of them vouched for, used or not, or is dropped for
good. Runs of a bundle that were charged and not yet run are prepaid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dosimeter import arguments
from dosimeter.accounting import state as saved
from dosimeter.accounting.guarantee import Guarantee, Standing
from dosimeter.accounting.potential import Potential
from dosimeter.accounting.priced.items import Item
from dosimeter.accounting.priced.quanta import Quanta
from dosimeter.accounting.priced.share import confirm_strangers, plain_item, read_item
from dosimeter.accounting.sums import Sums
from dosimeter.accounting.tally import Tally, charge, largest
from dosimeter.accounting.terms import Terms
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.rdp import Cost

_TOLERANCE = 1e-7
"""Spends are admitted by bounds that may be this much finer than a fresh solve."""


class Account:
    """Terms and the potentials that still hold; never changed, only followed by another.

    Attributes:
        terms: What is fixed.
        potentials: The proofs that still stand, the tightest first and the mixture last.
        prepaid: Runs of each item of the menu that every potential was charged for and that were
            not yet asked for; then of each stranger.
        strangers: What the menu sold though it is not on it, and how.
    """

    __slots__ = ("potentials", "prepaid", "strangers", "terms")

    def __init__(
        self,
        terms: Terms,
        potentials: tuple[Potential, ...],
        prepaid: tuple[int, ...] = (),
        strangers: tuple[Item, ...] = (),
    ) -> None:
        self.terms = terms
        self.potentials = potentials
        self.prepaid = prepaid
        self.strangers = strangers

    @classmethod
    def open(cls, terms: Terms) -> Account:
        """The account before the first spend."""
        sums = _sums(terms, Tally.nothing(terms.mixture.orders))
        if terms.menu is None:
            return cls(terms, (sums,))
        quanta = Quanta(terms.menu, terms.menu.quanta, terms.readings)
        return cls(terms, (quanta, sums), (0,) * len(terms.menu.items))

    def after(self, cost: Cost, count: int = 1) -> Account:
        """The account once `count` runs of `cost` are spent.

        Raises:
            BudgetExceeded: No potential vouches for them.
        """
        cost, count, place = self._checked(cost, count)
        after = self._after(cost, count, place)
        if after is None:
            raise self._refusal(cost, count, place)
        return after

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether there is an account after such a spend."""
        cost, count, place = self._checked(cost, count)
        if place is None and self._apart(cost):
            return self._after(cost, count, place) is not None
        wanted = count - self._held(place)
        if wanted <= 0:
            return True
        for potential in self.potentials:  # `any` of a generator takes a third longer in all
            if potential.take(cost, wanted) is not None:
                return True
        return False

    def released(self, cost: Cost, count: int) -> Account:
        """The account once runs that were spent, and will never be run, are given back.

        Where a potential takes nothing back they are prepaid again.
        """
        cost, count, place = self._checked(cost, count)
        if self._apart(cost):
            account = self
            for part in cost.parts:
                account = account.released(part, count)
            return account
        without = [potential.released(cost, count) for potential in self.potentials]
        kept = tuple(potential for potential in without if potential is not None)
        if len(kept) == len(self.potentials):
            return Account(self.terms, kept, self.prepaid, self.strangers)
        if place is None:
            raise ValueError(f"cost must be one that was spent to be given back, got {cost}")
        held = self._prepaid(place, self._held(place) + count)
        return Account(self.terms, self.potentials, held, self.strangers)

    @property
    def sums(self) -> Sums:
        """The mixture's potential, which is never dropped."""
        last = self.potentials[-1]
        assert isinstance(last, Sums)
        return last

    @property
    def quanta(self) -> Quanta | None:
        """The menu's potential; None without a menu or once it has ended."""
        first = self.potentials[0]
        return first if isinstance(first, Quanta) else None

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up; it never falls and never passes the limit."""
        # Whatever was admitted is certified to be within the limit, and more finely than
        # the last digits of a fresh solve.
        if len(self.potentials) == 1:
            return min(self.terms.limit, self.potentials[0].reading)
        return min(self.terms.limit, *(potential.reading for potential in self.potentials))

    @property
    def limit(self) -> float:
        """The epsilon never to be passed; infinite for an odometer."""
        return self.terms.limit

    @property
    def remaining(self) -> float:
        """How far epsilon is from the limit, rounded down.

        While a menu is open, at least the share of the limit that its unsold quanta are: the
        mixture beside it reaches the limit long before they are gone.
        """
        if self.limit == math.inf:
            return math.inf
        return max(potential.remaining(self.limit) for potential in self.potentials)

    @property
    def standing(self) -> Standing:
        """Which potentials still hold."""
        return Standing(menu=self.quanta is not None, mixture=self.sums.holds)

    def price(self, cost: Cost) -> Item | None:
        """The bundle in which the menu sells a cost; None if it does not."""
        menu, quanta = self.terms.menu, self.quanta
        item = None if menu is None else menu.item(cost)
        return quanta.item(cost) if item is None and quanta is not None else item

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that would be admitted now, at most 2**53."""
        cost, _, place = self._checked(cost, 1)
        if self._apart(cost):
            return largest(lambda count: self._after(cost, count, None) is not None)
        most = max(potential.most(cost) for potential in self.potentials)
        return min(most + self._held(place), arguments.MAX_COUNT)

    def guarantee(self, *, stopped: bool = False) -> Guarantee:
        """What holds: for a filter whatever it ever admits, for an odometer if one stops now.

        A filter that is stopped is read as an odometer is.
        """
        terms = self.terms
        kind = "odometer" if stopped else terms.kind
        return Guarantee(
            kind=kind,
            epsilon=terms.limit if kind == "filter" else self.epsilon,
            delta=terms.total_delta,
            neighbours=terms.neighbours,
            menu=terms.menu is not None,
        )

    def plain(self) -> dict[str, Any]:
        """The terms and where the account stands, as plain JSON values."""
        tally = self.sums.tally
        plain = {
            **self.terms.plain(),
            "rdp": [saved.number(value) for value in tally.rdp.tolist()],
            "pure_epsilon": saved.number(tally.pure_epsilon),
            "spent_delta": tally.delta,
            **({"spent_cut": saved.number(tally.cut)} if self.terms.cut else {}),
        }
        if self.terms.menu is not None:
            plain["quanta_left"] = 0 if self.quanta is None else self.quanta.left
            plain["prepaid"] = list(self.prepaid)
            plain["menu_open"] = self.quanta is not None
        if self.strangers:
            plain["strangers"] = [plain_item(item) for item in self.strangers]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Account:
        """The account that `plain` wrote.

        Raises:
            StateError: It is not one that terms and spends lead to.
        """
        try:
            fixed = {name: value for name, value in plain.items() if name not in POSITION}
            terms = Terms.from_plain(fixed)
            tally = Tally(
                saved.numbers("rdp", plain["rdp"]),
                saved.one("pure_epsilon", plain["pure_epsilon"]),
                saved.one("spent_delta", plain["spent_delta"]),
                saved.one("spent_cut", plain["spent_cut"]) if terms.cut else 0.0,
            )
            counts = None
            if terms.menu is not None:
                strangers = [read_item(item) for item in plain.get("strangers", ())]
                counts = plain["quanta_left"], plain["prepaid"], plain["menu_open"], strangers
            return cls.at(terms, tally, counts)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state must describe an account: {error}") from error

    @classmethod
    def at(
        cls,
        terms: Terms,
        tally: Tally,
        counts: Counts | None = None,
        *,
        near: Account | None = None,
    ) -> Account:
        """The account of some terms at sums and, with a menu, at what was sold of it.

        It is found faster from another one of the same terms that stands near.

        Raises:
            StateError: They are beyond the terms.
        """
        if len(tally.rdp) != len(terms.mixture.orders):
            wanted = len(terms.mixture.orders)
            raise StateError(f"state rdp must hold {wanted} values, got {len(tally.rdp)}")
        if not tally.delta <= terms.approx_delta:
            raise StateError(f"state spent_delta must be within approx_delta, got {tally.delta!r}")
        if not (
            tally.cut <= (terms.cutting.cap if terms.cutting else 0.0) or tally.cut == math.inf
        ):
            raise StateError(
                f"state spent_cut must be within its share of delta, got {tally.cut!r}"
            )
        sums = _sums(terms, tally) if near is None else near.sums.at(tally)
        quanta, prepaid, strangers = _counted(terms, counts)
        if quanta is None and terms.limit < math.inf:
            within = min(sums.tangent.epsilon, tally.pure_epsilon)
            if not within <= terms.limit + _TOLERANCE * max(1.0, terms.limit):
                raise StateError(f"state must be within its limit {terms.limit}, got {within}")
        return cls(terms, (sums,) if quanta is None else (quanta, sums), prepaid, strangers)

    def _after(self, cost: Cost, count: int, place: int | None) -> Account | None:
        if place is None and self._apart(cost):
            account: Account | None = self
            for part in cost.parts:
                if account is not None:
                    account = account._after(*account._checked(part, count))
            return account
        if place is None and len(self.potentials) == 1:  # as nearly all spends without a menu
            only = self.potentials[0].take(cost, count)
            return only and Account(self.terms, (only[0],), self.prepaid, self.strangers)
        held = 0 if place is None else self.prepaid[place]
        if place is not None and count <= held:
            left = self._prepaid(place, held - count)
            return Account(self.terms, self.potentials, left, self.strangers)
        wanted = count - held
        for chosen in self.potentials:
            sold = chosen.take(cost, wanted)
            if sold is not None:
                break
        else:
            return None
        taken, runs = sold
        # All runs are charged when they are bought: charging prepaid ones only when they are used
        # would let a stranger in between be paid by one potential and them by another.
        standing: list[Potential] = []
        for potential in self.potentials:
            after = taken if potential is chosen else potential.charged(cost, runs)
            if after is not None:
                standing.append(after)
        strangers, prepaid = self.strangers, self.prepaid
        if place is not None:
            if runs - wanted != held:
                prepaid = self._prepaid(place, runs - wanted)
        elif isinstance(taken, Quanta):
            strangers, prepaid = taken.strangers, (*prepaid, runs - wanted)
        return Account(self.terms, tuple(standing), prepaid, strangers)

    def _checked(self, cost: Cost, count: int) -> tuple[Cost, int, int | None]:
        """The cost as the menu knows it, the count, and its place on the menu if it has one."""
        count = arguments.count("count", count)
        terms = self.terms
        # A class of costs has the relation of its instances.
        if isinstance(cost, type) or getattr(cost, "neighbours", None) is not terms.neighbours:
            charge(cost, count, terms.mixture.orders)  # says so if it is no cost
            terms.require_relation(cost)
        if terms.menu is None:
            return cost, count, None
        place = terms.menu.place(cost)
        if place is not None:
            return terms.menu.items[place].cost, count, place
        for place, item in enumerate(self.strangers, len(terms.menu.items)):
            if item.cost == cost:
                return cost, count, place
        return cost, count, None

    def _apart(self, cost: Cost) -> bool:
        """Whether a cost is a bundle that a menu may sell in parts."""
        return self.terms.menu is not None and cost.parts[0] is not cost

    def _held(self, place: int | None) -> int:
        return 0 if place is None else self.prepaid[place]

    def _prepaid(self, place: int, runs: int) -> tuple[int, ...]:
        return (*self.prepaid[:place], runs, *self.prepaid[place + 1 :])

    def _refusal(self, cost: Cost, count: int, place: int | None) -> BudgetExceeded:
        return BudgetExceeded(
            cost=cost,
            count=count,
            spent=self.epsilon,
            limit=self.limit,
            affordable=self.affordable(cost),
            reason=self._reason(cost, count, place),
        )

    def _reason(self, cost: Cost, count: int, place: int | None) -> str:
        if self._apart(cost):
            account = self
            for part in cost.parts:
                asked = account._checked(part, count)
                after = account._after(*asked)
                if after is None:
                    return f"at its {part} {account._reason(*asked)}"
                account = after
        wanted = count - self._held(place)
        reason = self.sums.shortage(cost, wanted)
        if self.quanta is None or cost.delta:
            return reason
        return f"{self.quanta.shortage(cost, wanted)}, and by the mixture {reason}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Account must not be copied or pickled: move its plain()")


POSITION = frozenset(
    [
        *("rdp", "pure_epsilon", "spent_delta", "spent_cut"),
        *("quanta_left", "prepaid", "menu_open", "strangers", "mark"),
    ]
)
"""The fields of a plain account that move; the others are its terms."""


def _sums(terms: Terms, tally: Tally) -> Sums:
    return Sums(terms.mixture, terms.limit, terms.approx_delta, terms.cutting, tally)


Counts = tuple[int, Sequence[int], bool, Sequence[Item]]
"""Quanta left, prepaid runs of items and strangers, whether the menu is open, and the strangers."""


def _counted(
    terms: Terms, counts: Counts | None
) -> tuple[Quanta | None, tuple[int, ...], tuple[Item, ...]]:
    """The quanta, prepaid runs and strangers of a saved state, if the menu can have come there."""
    if terms.menu is None:
        return None, (), ()
    if counts is None:
        return None, (0,) * len(terms.menu.items), ()
    left, prepaid, is_open, strangers = counts
    confirm_strangers(terms.menu, strangers)
    whole = [left, *prepaid]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in whole):
        raise StateError(f"state quanta_left and prepaid must be whole numbers, got {whole!r}")
    items = (*terms.menu.items, *strangers)
    if not (left <= terms.menu.quanta and len(prepaid) == len(items)):
        raise StateError(f"state quanta_left must be within the menu's quanta, got {left!r}")
    bought = sum(
        -(-runs // item.steps) * item.price for item, runs in zip(items, prepaid, strict=True)
    )
    if not left + bought <= terms.menu.quanta:
        raise StateError(f"state prepaid must have been bought from the menu, got {prepaid!r}")
    if not isinstance(is_open, bool):
        raise StateError(f"state menu_open must be true or false, got {is_open!r}")
    sold = tuple(strangers)
    quanta = Quanta(terms.menu, left, terms.readings, sold) if is_open else None
    return quanta, tuple(prepaid), sold
