# SPDX-License-Identifier: Apache-2.0
"""RemoteStream: a stream behind a service, whose clock says what day it is."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from dosimeter.ledger.budget import Budget
from dosimeter.ledger.courier import Courier
from dosimeter.ledger.rules import Every, Rule
from dosimeter.ledger.streams import Stream
from dosimeter.ledger.wire import to_wire
from dosimeter.rdp import Cost

if TYPE_CHECKING:
    from dosimeter.ledger.remote import RemoteLedger


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
