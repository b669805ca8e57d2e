# SPDX-License-Identifier: Apache-2.0
"""Office: the ledger with someone at the door.

Every method takes the caller first, asks whether they may, and then does what the ledger does
with the caller's own name in the journal. Nothing here decides about privacy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dosimeter.accounting import Guarantee
from dosimeter.ledger import (
    AccessDenied,
    BudgetNotFound,
    Entry,
    JournalError,
    Kind,
    Ledger,
    Price,
    Receipt,
    Statement,
    Stream,
    Verification,
)
from dosimeter.ledger.anchors import Anchor, sign_receipt
from dosimeter.ledger.book import utc
from dosimeter.ledger.desk import wall_clock
from dosimeter.ledger.rules import LABEL
from dosimeter.ledger.signing import Signer
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost
from dosimeter.service.allowances import Allowance, Allowances
from dosimeter.service.approvals import Approvals, Waiting
from dosimeter.service.cabinet import Cabinet
from dosimeter.service.holds import Holds
from dosimeter.service.roles import Caller, Role
from dosimeter.service.runs import Runs
from dosimeter.service.tokens import Tokens

PAGE = 100
MOST_ENTRIES = 10_000
MOST_BUDGETS = 1000
LONGEST_KEY = 300


@dataclass(frozen=True)
class Page:
    """Some budgets in the order of their names, and where the next page begins."""

    budgets: list[Statement]
    next: str | None


class Office:
    """A ledger, the tokens that open it, and what each of them may do."""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        signer: Signer | None = None,
    ) -> None:
        self._ledger = Ledger.open(url)
        self._signer = signer
        self._cabinet = Cabinet(url)
        self.tokens = Tokens(self._cabinet, clock)
        self.holds = Holds(self._cabinet, self._ledger, clock)
        self.allowances = Allowances(self._cabinet, self._ledger)
        self.runs = Runs(self._cabinet, clock)
        self.approvals = Approvals(self._cabinet, self._ledger, self.holds, clock)

    @property
    def writes_one_at_a_time(self) -> bool:
        """Whether all writers wait for one lock, as with SQLite, or for those of their budgets."""
        return self._cabinet.is_sqlite

    def names(self, caller: Caller, containing: str = "") -> list[str]:
        """The budgets that the caller may know of, in order."""
        words = containing.casefold()
        seen = (name for name in self._ledger if caller.role(name) is not None)
        return sorted(name for name in seen if words in name.casefold())

    def page(
        self, caller: Caller, *, containing: str = "", after: str = "", size: int = PAGE
    ) -> Page:
        """Where some of those budgets stand."""
        names = [name for name in self.names(caller, containing) if name > after]
        shown = names[:size]
        found = [self._standing(name) for name in shown]
        return Page(found, shown[-1] if len(names) > size else None)

    def _standing(self, name: str) -> Statement:
        """Where a budget stands; damage to one hides no other."""
        try:
            return self._ledger[name].statement()
        except JournalError as error:
            return Statement(
                name=name,
                kind="filter",
                limit=0.0,
                delta=0.0,
                approx_delta=0.0,
                epsilon=math.inf,
                remaining=0.0,
                closed=True,
                entries=0,
                head="",
                problem=str(error),
            )

    def create(
        self, caller: Caller, names: Sequence[str], epsilon: float | None, **terms: Any
    ) -> list[Statement]:
        """Makes budgets on the same terms, all of them or none."""
        if not 0 < len(names) <= MOST_BUDGETS or len(set(names)) < len(names):
            raise ValueError(
                f"names must be 1 to {MOST_BUDGETS} different ones, got {len(names)} of them"
            )
        caller.require(Role.OWNER, names)
        terms = {**terms, "actor": caller.owner}
        if epsilon is None:
            if len(names) > 1:
                raise ValueError("names must be one for a budget without a limit, got several")
            made = [self._ledger.create_odometer(names[0], **terms)]
        elif len(names) == 1:
            made = [self._ledger.create(names[0], epsilon, **terms)]
        else:
            prefix, labels = _blocks(names)
            made = self._ledger.create_blocks(prefix, labels, epsilon, **terms)
        return [budget.statement() for budget in made]

    def create_stream(
        self, caller: Caller, name: str, every: str, epsilon: float, **terms: Any
    ) -> Stream:
        """Writes down a rule by which blocks are made."""
        caller.require(Role.OWNER, [f"{name}/{LABEL}"])
        return self._ledger.create_stream(name, every, epsilon, actor=caller.owner, **terms)

    def stream(self, caller: Caller, name: str) -> Stream:
        """The stream of a name; its blocks are made by the rule, whoever looks."""
        caller.require(Role.READER, [f"{name}/{LABEL}"])
        return self._ledger.stream(name)

    def has_stream(self, name: str) -> bool:
        """Whether blocks of a name are made by a rule."""
        return f"{name}/{LABEL}" in self._ledger

    def add_shard(self, caller: Caller, name: str, label: str) -> str:
        """The block of a shard that arrived."""
        caller.require(Role.OWNER, [f"{name}/{label}", f"{name}/{LABEL}"])
        return self._ledger.stream(name).add(label).name

    def close_budget(self, caller: Caller, name: str, purpose: str) -> None:
        """Stops a budget for good."""
        caller.require(Role.OWNER, [name])
        self._ledger[name].close(purpose=purpose, actor=caller.owner)

    def spend(
        self, caller: Caller, costs: Mapping[str, Cost], count: int, *, key: str, purpose: str
    ) -> dict[str, Receipt]:
        """Spends in every budget named and in the caller's allowances there, or in none."""
        caller.require(Role.SPENDER, costs)
        own = own_key(caller, key)
        approved = self.approvals.answered(caller.owner, costs, count, key=key)
        if approved is not None:
            return {name: self._signed(receipt) for name, receipt in approved.items()}
        both = self.allowances.with_own(caller.owner, costs)
        if self.approvals.waits(costs, count):
            self.approvals.ask(caller.owner, both, count, key=key, purpose=purpose)
        made = self._ledger.spend_all(both, count, key=own, purpose=purpose, actor=caller.owner)
        return {name: self._signed(made[name]) for name in costs}

    def reserve(
        self,
        caller: Caller,
        name: str,
        cost: Cost,
        count: int,
        *,
        key: str,
        lifetime: float,
        purpose: str,
    ) -> tuple[str, Receipt]:
        """A number for runs that are paid for now and drawn by the client, and their receipt."""
        caller.require(Role.SPENDER, [name])
        own_key(caller, key)
        if self.approvals.waits({name: cost}, count):
            raise AccessDenied(
                f"a reservation in budget {name!r} must be below the line over which spends wait "
                "for approval; reserve less, or spend"
            )
        both = self.allowances.with_own(caller.owner, {name: cost})
        id, made = self.holds.make(
            caller.owner, both, count, key=key, lifetime=lifetime, purpose=purpose
        )
        return id, self._signed(made[name])

    def _signed(self, receipt: Receipt) -> Receipt:
        if self._signer is None:
            return receipt
        return sign_receipt(receipt, self._signer, self._ledger.identity)

    def key(self) -> dict[str, str | None]:
        """The identity of the ledger, and the public key that signs receipts and anchors."""
        public = None if self._signer is None else self._signer.public
        return {"ledger": self._ledger.identity, "key": public}

    def anchor(self, caller: Caller, names: Sequence[str], number: int, previous: str) -> Anchor:
        """Signs where journals end, for a file of anchors that the caller keeps."""
        caller.require(Role.READER, names)
        if self._signer is None:
            raise ValueError(
                "service must have a key to sign anchors, got none; start it with --signing-key"
            )
        found = [self._ledger[name].statement() for name in names]
        heads = {one.name: (one.entries - 1, one.head) for one in found}
        place = (self._ledger.identity, number, previous)
        return Anchor.signed(self._signer, *place, heads, utc(wall_clock))

    def settle(self, caller: Caller, id: str, drawn: int) -> None:
        """Ends a reservation of the caller's own with the number of runs that were drawn."""
        self.holds.settle(caller.owner, id, drawn)

    def give_allowance(
        self, caller: Caller, name: str, label: str, holders: Sequence[str], epsilon: float
    ) -> None:
        """Gives a part of a budget to some people."""
        caller.require(Role.OWNER, [name])
        self.allowances.give(name, label, holders, epsilon, by=caller.owner)

    def end_allowance(self, caller: Caller, name: str, label: str) -> None:
        """Ends an allowance."""
        caller.require(Role.OWNER, [name])
        self.allowances.end(name, label, by=caller.owner)

    def allowances_in(self, caller: Caller, name: str) -> list[Allowance]:
        """The allowances in a budget."""
        caller.require(Role.READER, [name])
        return self.allowances.listed(name)

    def refusals(self, caller: Caller, name: str, last: int) -> list[tuple[str, Entry]]:
        """Spends that were refused of late, the newest first: by which allowance, or by none."""
        caller.require(Role.READER, [name])
        asked = [("", name)]
        asked += [(one.label, one.statement.name) for one in self.allowances.listed(name)]
        found = [
            (label, entry)
            for label, one in asked
            for entry in self._ledger[one].history(last)
            if entry.kind is Kind.REFUSE
        ]
        return sorted(found, key=lambda pair: pair[1].time, reverse=True)

    def draw_line(self, caller: Caller, name: str, above: float | None) -> None:
        """Makes spends over an epsilon wait for approval, or none."""
        caller.require(Role.OWNER, [name])
        self._ledger[name].statement()
        self.approvals.draw_line(name, above)

    def requests(self, caller: Caller) -> list[Waiting]:
        """Spends that wait or were decided: those of the caller, and those to be decided."""
        found = self.approvals.listed()
        return [one for one in found if one.owner == caller.owner or self.may_decide(caller, one)]

    def may_decide(self, caller: Caller, request: Waiting) -> bool:
        """Whether the caller owns every budget of a request that has a line."""
        names = [name for name in request.costs if "@" not in name]
        return all((caller.role(name) or Role.READER) >= Role.OWNER for name in names)

    def decide(self, caller: Caller, id: str, *, approve: bool) -> None:
        """Approves or denies a spend that waits."""
        request = self.approvals.request(id)
        if not self.may_decide(caller, request):
            raise ValueError(f"id must be that of a request, got {id!r:.80}")
        self.approvals.decide(id, approve=approve, by=caller.owner)

    def price(self, caller: Caller, name: str, cost: Cost, count: int) -> Price:
        """What a spend of the caller's would take and leave, in their allowances too."""
        caller.require(Role.READER, [name])
        whole = self._ledger[name].price(cost, count)
        for own in self.allowances.held(caller.owner, name):
            part = self._ledger[own].price(cost, count)
            wrong = f"in allowance {own!r} {part.reason}" if part.reason else ""
            whole = replace(
                whole,
                admitted=whole.admitted and part.admitted,
                after=whole.after if part.admitted else whole.spent,
                remaining=min(whole.remaining, part.remaining),
                affordable=min(whole.affordable, part.affordable),
                reason=whole.reason or wrong,
            )
        return whole

    def statement(self, caller: Caller, name: str) -> Statement:
        """Where a budget stands."""
        caller.require(Role.READER, [name])
        return self._ledger[name].statement()

    def guarantee(self, caller: Caller, name: str) -> Guarantee:
        """What holds for everything spent from a budget."""
        caller.require(Role.READER, [name])
        return self._ledger[name].guarantee()

    def history(self, caller: Caller, name: str, last: int) -> list[Entry]:
        """The last entries of a journal, the oldest of them first."""
        caller.require(Role.READER, [name])
        if not 1 <= last <= MOST_ENTRIES:
            raise ValueError(f"last must be between 1 and {MOST_ENTRIES}, got {last}; export "
                             "gives the whole journal")  # fmt: skip
        return self._ledger[name].history(last)

    def opening(self, caller: Caller, name: str) -> Entry:
        """The entry that made a budget, with its terms."""
        caller.require(Role.READER, [name])
        return self._ledger[name].opening()

    def share(self, caller: Caller, name: str) -> float:
        """How much of a limit is used up, from 0 to 1."""
        caller.require(Role.READER, [name])
        return self._ledger[name].spent_share

    def has_entry(self, caller: Caller, name: str, sequence: int, hash: str) -> bool:
        """Whether a journal has this very entry."""
        caller.require(Role.READER, [name])
        return self._ledger[name].holds(sequence, hash)

    def verify(
        self,
        caller: Caller,
        name: str,
        *,
        receipt: Receipt | None = None,
        head: str | None = None,
    ) -> Verification:
        """Replays a journal."""
        caller.require(Role.READER, [name])
        return self._ledger.verify(name, receipt=receipt, head=head)

    def export(self, caller: Caller, name: str) -> Iterator[str]:
        """The lines of a journal."""
        caller.require(Role.READER, [name])
        if name not in self._ledger:
            raise BudgetNotFound(name)
        return self._ledger.export(name)

    def neighbours(self, caller: Caller, name: str) -> Neighbours:
        """The relation that costs of a budget must have."""
        return self.guarantee(caller, name).neighbours

    def ready(self) -> bool:
        """Whether the database answers."""
        return next(iter(self._ledger), "") is not None

    def close(self) -> None:
        """Closes the connections."""
        self._ledger.disconnect()
        self._cabinet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def own_key(caller: Caller, key: str) -> str:
    """A key as it stands in the journal: two people's keys are never one."""
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise ValueError(
            f"Idempotency-Key must have 1 to {LONGEST_KEY} characters that can be printed"
        )
    return f"{caller.owner}/{key}"


def _blocks(names: Sequence[str]) -> tuple[str, list[str]]:
    """What the names of blocks have before their last part, and those parts."""
    parts = [name.rpartition("/") for name in names]
    prefixes = {(prefix, slash) for prefix, slash, _ in parts}
    if len(prefixes) != 1 or not parts[0][1]:
        raise ValueError("names must be of blocks of one data set, as visits/2026-01, got others")
    return parts[0][0], [label for _, _, label in parts]
