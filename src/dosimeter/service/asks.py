# SPDX-License-Identifier: Apache-2.0
"""What clients send, as OpenAPI shows it. Costs are checked by the mechanisms themselves."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from dosimeter.ledger import Receipt
from dosimeter.ledger.anchors import MOST_HEADS
from dosimeter.ledger.wire import receipt_from
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain
from dosimeter.service.roles import Grant

Plain = Annotated[
    dict[str, Any],
    Field(
        description="A cost as journals write it.",
        examples=[{"kind": "gaussian", "noise_multiplier": 20.0}],
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=500)]
Purpose = Annotated[str, Field(max_length=10_000, description="What for, in words.")]
Count = Annotated[StrictInt, Field(ge=1, le=2**53, description="How many runs.")]


class Ask(BaseModel):
    """Values by name; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class Terms(Ask):
    """What a budget is made with, but for its name and epsilon."""

    delta: float
    approx_delta: float = 0.0
    menu: Annotated[list[Plain], Field(max_length=50)] | None = None
    plan: tuple[Plain, Count] | None = None
    neighbours: str = str(Neighbours.ADD_REMOVE_RECORD)
    purpose: Purpose = ""

    def terms(self) -> dict[str, Any]:
        """The terms as the ledger takes them; what was not given is left to it."""
        named = {"name", "names", "epsilon", "every", "since"}
        given = self.model_dump(exclude=named, exclude_none=True)
        given["neighbours"] = Neighbours.named(self.neighbours)
        if self.menu is not None:
            given["menu"] = [from_plain(cost) for cost in self.menu]
        if self.plan is not None:
            given["plan"] = (from_plain(self.plan[0]), self.plan[1])
        return given


class Creation(Terms):
    """New budgets on the same terms, all of them or none; several are blocks of one data set."""

    names: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    epsilon: float | None = Field(description="Never to be passed; null only reads, no limit.")
    exist_ok: bool = Field(False, description="Leave those on these terms as they are.")
    orders: Annotated[list[float], Field(max_length=1000)] | None = None
    weights: Annotated[list[float], Field(max_length=1000)] | None = None


class NewStream(Terms):
    """A rule that gives every day, week, month or shard a block with the same budget."""

    name: Name
    every: Annotated[str, Field(max_length=20, description="day, week, month or shard.")]
    epsilon: float
    since: date | None = Field(default=None, description="The first day with a block.")
    exist_ok: bool = Field(False, description="Make do with one by this rule, on these terms.")


class Blocks(Ask):
    """The blocks of a stream: all of them, or the last so many."""

    name: Name
    last: Annotated[StrictInt, Field(ge=1, le=2**53)] | None = None


class Offer(Blocks):
    """A cost that blocks of a stream are asked for."""

    cost: Plain
    count: Count = 1


class Shard(Ask):
    """A shard that arrived."""

    name: Name
    label: Name


class Spend(Ask):
    """A cost in each of some budgets: in all of them or in none."""

    costs: Annotated[dict[Name, Plain], Field(min_length=1, max_length=1000)]
    count: Count = 1
    purpose: Purpose = ""

    def priced(self) -> dict[str, Cost]:
        """The costs by budget."""
        return {name: from_plain(cost) for name, cost in self.costs.items()}


class Question(Ask):
    """A cost in one budget."""

    name: Name
    cost: Plain
    count: Count = 1

    def priced(self) -> Cost:
        """The cost."""
        return from_plain(self.cost)


class Reserve(Question):
    """Runs to be paid for now and drawn by the client within a lifetime in seconds."""

    lifetime: float = 3600.0
    purpose: Purpose = ""


class Settle(Ask):
    """The end of a reservation, with the number of runs that were drawn."""

    id: str
    drawn: Annotated[StrictInt, Field(ge=0, le=2**53)]


class Verify(Ask):
    """A journal to replay, and a receipt or the hash of an entry that it must hold."""

    name: Name
    receipt: dict[str, Any] | None = None
    head: Annotated[str, Field(max_length=100)] | None = None

    def kept(self) -> Receipt | None:
        """The receipt."""
        try:
            return None if self.receipt is None else receipt_from(self.receipt)
        except (KeyError, TypeError) as error:
            raise ValueError("receipt must be one that a spend was answered with") from error


class NewAnchor(Ask):
    """Journals whose ends to sign, as the anchor of a number after the one with a hash."""

    names: Annotated[list[Name], Field(min_length=1, max_length=MOST_HEADS)]
    number: Annotated[StrictInt, Field(ge=0, le=2**53)]
    previous: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Close(Ask):
    """A budget to stop for good."""

    name: Name
    purpose: Purpose = ""


class NewAllowance(Ask):
    """A part of a budget for some people."""

    name: Name
    label: str
    holders: Annotated[list[str], Field(min_length=1, max_length=1000)]
    epsilon: float


class EndOfAllowance(Ask):
    """An allowance to end."""

    name: Name
    label: Annotated[str, Field(max_length=200)]


class Line(Ask):
    """The epsilon of one spend over which it waits for approval; null lets none wait."""

    name: Name
    above: float | None


class Decision(Ask):
    """Whether a spend that waits may be done."""

    id: Annotated[str, Field(max_length=80)]
    approve: bool


class NewToken(Ask):
    """A token to issue."""

    owner: str
    grants: Annotated[list[str], Field(min_length=1, max_length=100)]
    days: float = 90

    def given(self) -> list[Grant]:
        """What it will allow."""
        return [Grant.read(text) for text in self.grants]


class Revocation(Ask):
    """A token to end, by its public part."""

    id: Annotated[str, Field(max_length=80)]
