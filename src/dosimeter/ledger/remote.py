# SPDX-License-Identifier: Apache-2.0
"""RemoteLedger: the ledger behind a budget service, with the same words as any other.

`Ledger.open("https://…", token=…)` gives it. Every spend carries a key, made here if the caller
gives none, so a lost answer is asked for again and never spent twice. Who spends is who the token
belongs to; an `actor` that is given here is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import uuid4

from dosimeter import arguments
from dosimeter.accounting import Guarantee
from dosimeter.ledger.budget import Budget, Price, Statement
from dosimeter.ledger.courier import Courier
from dosimeter.ledger.desk import Desk
from dosimeter.ledger.errors import BudgetNotFound, LedgerError, suggesting
from dosimeter.ledger.ledger import Ledger
from dosimeter.ledger.receipts import Receipt, Verification
from dosimeter.ledger.records import Entry
from dosimeter.ledger.request import Request, identifier
from dosimeter.ledger.reservation import Reservation
from dosimeter.ledger.rules import Every, Rule
from dosimeter.ledger.streams import Stream
from dosimeter.ledger.wire import entry_from, receipt_from, to_wire, value_from
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost

if TYPE_CHECKING:
    from dosimeter.ledger.anchors import AnchorLog, Sign


class RemoteLedger(Ledger):
    """The budgets of a service that a token may see; `ledger[name]` is a `Gate`.

    Guarantee:
        That of `Ledger`, kept by the service. A receipt says that the spend is on its disk.
    """

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    def create(self, name: str, epsilon: float, delta: float, **options: Any) -> Budget:
        """A new budget that refuses what would pass (epsilon, delta); see `Ledger.create`."""
        return self._created([name], {"epsilon": epsilon, "delta": delta}, options)[0]

    def create_odometer(self, name: str, delta: float, **options: Any) -> Budget:
        """A new budget without a limit, which reads epsilon; see `Ledger.create_odometer`."""
        return self._created([name], {"epsilon": None, "delta": delta}, options)[0]

    def create_blocks(
        self, prefix: str, labels: Iterable[str], epsilon: float, delta: float, **options: Any
    ) -> list[Budget]:
        """A budget `prefix/label` for each part, or none; see `Ledger.create_blocks`."""
        names = [f"{prefix}/{label}" for label in labels]
        return self._created(names, {"epsilon": epsilon, "delta": delta}, options)

    def create_stream(
        self,
        name: str,
        every: str,
        epsilon: float,
        delta: float,
        *,
        since: date | None = None,
        **options: Any,
    ) -> Stream:
        """A rule that gives every day, week, month or shard a block; see `Ledger.create_stream`."""
        limits = {"epsilon": epsilon, "delta": delta, "every": every}
        body = {"name": name, **limits, **_options(options)}
        if since is not None:
            body["since"] = since.isoformat()
        made = self._courier.tell("/v1/streams", body)
        return RemoteStream(self, self._courier, name, made)

    def stream(self, name: str) -> Stream:
        """The stream of that name."""
        found = self._courier.ask("/v1/stream", name=identifier("name", name))
        return RemoteStream(self, self._courier, name, found)

    def spend_all(
        self,
        costs: Mapping[str, Cost],
        count: int = 1,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
    ) -> dict[str, Receipt]:
        """Spends in every budget named, or in none; the receipts by name."""
        if not isinstance(costs, Mapping) or not costs:
            raise ValueError(f"costs must map the names of budgets to costs, got {costs!r}")
        asked = Request(costs, count, key=key, purpose=purpose, actor=actor)
        body = {"costs": to_wire(asked.costs), "count": asked.count, "purpose": purpose}
        answer = self._courier.tell("/v1/spend", body, key=asked.key or uuid4().hex)
        receipts = {name: receipt_from(plain) for name, plain in answer.items()}
        if asked.key is None:
            # Its answer was lost and asked for again: nobody has computed on it yet.
            receipts = {name: made._replace(replayed=False) for name, made in receipts.items()}
        return receipts

    @property
    def identity(self) -> str:
        """Refused: budgets are moved where the database is."""
        _not_here("a budget must be moved")

    def verify(
        self,
        name: str,
        *,
        receipt: Receipt | None = None,
        head: str | None = None,
        since: str = "",
        anchors: AnchorLog | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Verification:
        """Has the service replay a whole journal; see `Ledger.verify`.

        With anchors the journal is fetched and replayed here: a service that was tampered with is
        not asked whether it was.
        """
        if anchors is not None:
            from dosimeter.ledger.anchors import witnessed

            anchors.require_of(self._courier.ask("/v1/key")["ledger"])
            if receipt is None and head is None:
                return witnessed(name, self.export(name), anchors)
            raise ValueError("anchors must be compared by themselves, got a receipt or a head too")
        body = {"name": identifier("name", name), "receipt": to_wire(receipt), "head": head}
        return value_from(Verification, self._courier.tell("/v1/verify", body, again=True))

    def _signing(self, key: Path | None, new: bool) -> Sign:
        from dosimeter.ledger.anchors import Anchor

        if key is not None:
            raise ValueError("signing_key must be left out: the service signs with its own")

        def sign(heads: Mapping[str, tuple[int, str]], number: int, previous: str) -> Anchor:
            asked = {"names": sorted(heads), "number": number, "previous": previous}
            return Anchor.parse(self._courier.tell("/v1/anchor", asked, again=True)["line"])

        return sign

    def export(self, name: str, *, to: str | None = None) -> Iterator[str]:
        """The journal as lines of JSON; a budget is moved where its database is."""
        if to is not None:
            _not_here("a budget must be moved")
        return self._courier.lines("/v1/export", name=identifier("name", name))

    def import_journal(
        self, lines: Iterable[str], *, progress: Callable[[int], None] = lambda _: None
    ) -> Budget:
        """Refused: a journal is imported where the database is."""
        _not_here("a journal must be imported")

    def statements(self, *, after: str | None = None, most: int = 1000) -> list[Statement]:
        """Where budgets that the token may see stand, in the order of their names."""
        size = min(arguments.count("most", most), 1000)
        page = self._courier.ask("/v1/budgets", after=after or "", size=size)
        return [value_from(Statement, plain) for plain in page["budgets"]]

    def __getitem__(self, name: str) -> Budget:
        """The budget of that name, as a gate."""
        budget = RemoteBudget(self, identifier("name", name))
        with suggesting(self):
            budget.statement()
        return budget

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and bool(
                RemoteBudget(self, identifier("name", name)).statement()
            )
        except (BudgetNotFound, ValueError):
            return False

    def __iter__(self) -> Iterator[str]:
        """The names of the budgets that the token may see, in their order."""
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = self._courier.ask("/v1/budgets", after=page["next"])
            yield from (plain["name"] for plain in page["budgets"])

    def disconnect(self) -> None:
        """Closes the idle connections; the ledger can still be used and reconnects."""
        self._courier.close()

    def __repr__(self) -> str:
        return f"RemoteLedger({self._courier.url!r})"

    def _created(
        self, names: list[str], limits: Mapping[str, Any], options: Mapping[str, Any]
    ) -> list[Budget]:
        given = _options(options)
        named = [identifier("name", name) for name in names]
        self._courier.tell("/v1/budgets", {"names": named, **to_wire(limits), **given})
        return [RemoteBudget(self, name) for name in named]


class RemoteStream(Stream):
    """Blocks of one data set behind a service."""

    def __init__(self, ledger: RemoteLedger, courier: Courier, name: str, plain: Any) -> None:
        since = None if plain["since"] is None else date.fromisoformat(plain["since"])
        super().__init__(ledger, name, Rule(Every.named(plain["every"]), since))
        self._courier = courier

    def blocks(self, last: int | None = None) -> list[str]:
        """The names of its blocks, the oldest first; those up to now are made if need be."""
        return self._named("/v1/stream/blocks", last=last)

    def add(self, label: str) -> Budget:
        """The block of a shard, made if it is not there; needs the role owner."""
        self._named("/v1/stream/add", label=label)
        return self._ledger[f"{self._name}/{label}"]

    def offered(self, cost: Cost, count: int = 1, *, last: int | None = None) -> list[str]:
        """Those blocks that would accept a spend now; blocks that are used up drop out."""
        asked = {"cost": to_wire(cost), "count": count, "last": last}
        return self._named("/v1/stream/offered", **asked)

    def _named(self, path: str, **values: Any) -> list[str]:
        body = {"name": self._name, **values}
        return list(self._courier.tell(path, body, again=True)["blocks"])


class RemoteBudget(Budget):
    """A budget behind a service; a `Gate`, so whatever takes a `Filter` takes it."""

    def __init__(self, ledger: RemoteLedger, name: str) -> None:
        self._ledger = ledger
        self._courier = ledger._courier
        self._name = name

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, rounded up."""
        return self.statement().epsilon

    @property
    def limit(self) -> float:
        """The epsilon never to be passed; infinite for an odometer."""
        return self.statement().limit

    @property
    def remaining(self) -> float:
        """How far epsilon is from the limit, rounded down; infinite for an odometer."""
        return self.statement().remaining

    @property
    def closed(self) -> bool:
        """Whether it spends no more."""
        return self.statement().closed

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether a spend of this would be accepted now; changes nothing."""
        return self.price(cost, count).admitted

    def spend(
        self,
        cost: Cost,
        count: int = 1,
        *,
        key: str | None = None,
        purpose: str = "",
        actor: str = "",
    ) -> Receipt:
        """The receipt for `count` runs of `cost`; call it before the data are touched."""
        costs = {self._name: cost}
        return self._ledger.spend_all(costs, count, key=key, purpose=purpose)[self._name]

    def affordable(self, cost: Cost) -> int:
        """The largest count of `cost` that would be admitted now, at most 2**53."""
        return self.price(cost).affordable

    def price(self, cost: Cost, count: int = 1) -> Price:
        """What `count` runs of `cost` would take and leave; changes nothing."""
        return value_from(
            Price, self._courier.tell("/v1/price", self._asked(cost, count, ""), again=True)
        )

    def reserve(
        self,
        cost: Cost,
        count: int,
        *,
        lifetime: float = 3600.0,
        purpose: str = "",
        actor: str = "",
    ) -> Reservation:
        """Runs paid for now and drawn later by this process, within `lifetime` seconds."""
        seconds = arguments.positive("lifetime", lifetime)
        body = {**self._asked(cost, count, purpose), "lifetime": seconds}
        answer = self._courier.tell("/v1/reserve", body, key=uuid4().hex)
        counter = cast(Desk, _Counter(self._courier, answer["id"]))
        receipt = receipt_from(answer["receipt"])
        return Reservation(counter, receipt, lifetime=seconds, actor="")

    def settle(self, receipt: Receipt, drawn: int, *, actor: str = "") -> None:
        """Refused: the service keeps reservations by a number of its own; end it by `commit`."""
        raise LedgerError("a reservation of a service must be ended by its own commit()")

    def guarantee(self) -> Guarantee:
        """What holds for everything spent from this budget."""
        return Guarantee.from_plain(self._courier.ask("/v1/guarantee", name=self._name))

    def statement(self) -> Statement:
        """Where the budget stands."""
        return value_from(Statement, self._courier.ask("/v1/statement", name=self._name))

    def history(self, last: int = 100) -> list[Entry]:
        """The last entries of the journal, the oldest of them first."""
        last = arguments.count("last", last)
        found: Sequence[Any] = self._courier.ask("/v1/history", name=self._name, last=last)
        return [entry_from(plain) for plain in found]

    def opening(self) -> Entry:
        """The entry that made the budget, with its terms."""
        return entry_from(self._courier.ask("/v1/opening", name=self._name))

    @property
    def spent_share(self) -> float:
        """How much of the limit is used up, from 0 to 1."""
        return float(self._courier.ask("/v1/share", name=self._name)["share"])

    def holds(self, sequence: int, hash: str) -> bool:
        """Whether the journal has this very entry."""
        asked = {"name": self._name, "sequence": sequence, "hash": hash}
        return bool(self._courier.ask("/v1/holds", **asked)["holds"])

    def close(self, *, purpose: str = "", actor: str = "") -> None:
        """Stops spending for good; it stays readable, and closing twice is no error."""
        self._courier.tell("/v1/close", {"name": self._name, "purpose": purpose}, again=True)

    def _asked(self, cost: Cost, count: int, purpose: str) -> dict[str, Any]:
        asked = Request({self._name: cost}, count, purpose=purpose)
        body = {"name": self._name, "cost": to_wire(cost), "count": asked.count}
        return {**body, "purpose": purpose} if purpose else body


class _Counter:
    """Where a reservation is ended: the one thing that it asks of a desk."""

    def __init__(self, courier: Courier, id: str) -> None:
        self._courier = courier
        self._id = id

    def settle(self, reserved: Receipt, drawn: int, actor: str) -> None:
        self._courier.tell("/v1/settle", {"id": self._id, "drawn": drawn}, again=True)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a new budget as they are sent."""
    given = {name: value for name, value in options.items() if value is not None}
    given.pop("actor", None)
    if "neighbours" in given:
        given["neighbours"] = str(Neighbours(given["neighbours"]))
    for listed in ("menu", "orders", "weights", "plan"):
        if listed in given:
            given[listed] = to_wire(_listed(listed, given[listed]))
    return given


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(
            f"{name} must be a list to be sent to a service, got {value!r}; a menu is sent as the "
            "costs on it and priced there"
        )
    return list(value)


def _not_here(what: str) -> NoReturn:
    raise LedgerError(
        f"{what} where the database is, not through the service; use dosimeter budget there, with "
        "--db and the URL of the database"
    )
