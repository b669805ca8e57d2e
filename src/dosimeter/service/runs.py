# SPDX-License-Identifier: Apache-2.0
"""Runs: training that tells the service how it goes, and whoever may stop it.

A run belongs to the owner of the token that it reports with. Whoever may see its budget sees it;
its owner, an owner of its budget and admins may stop it. It hears so with its next report.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import delete, insert, select, update

from dosimeter.ledger import AccessDenied
from dosimeter.service.asks import Ask, Name
from dosimeter.service.cabinet import Cabinet, runs
from dosimeter.service.roles import Caller, Role

MOST_SHOWN = 200
_KEPT = 500
"""How many runs of one owner are kept; older ones are forgotten."""
SILENT = 30.0
"""After so many seconds without a report a run is said to be silent."""

Size = Annotated[float, Field(allow_inf_nan=False)]


class EpochRow(Ask):
    """What one epoch did, as it was released."""

    epoch: Annotated[int, Field(ge=1)]
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["inf"]
    spent_share: Annotated[float, Field(ge=0, le=1)] | None = None
    noise_multiplier: Size
    batch_size: int
    loss: Size | Literal["inf"] | None = None
    accuracy: Size | None = None


class Report(Ask):
    """Where a run stands."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{24}$")]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    budget: Name | None = None
    limit: Size | None = None
    epochs: Annotated[int, Field(ge=1)]
    done: Annotated[int, Field(ge=0, le=100)]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    state: Literal["running", "ended", "failed"]
    ended: Annotated[str, Field(max_length=500)] = ""
    history: Annotated[list[EpochRow], Field(max_length=1000)]


class Halt(Ask):
    """A run to stop at its next step."""

    id: Annotated[str, Field(max_length=80)]


@dataclass(frozen=True)
class Run:
    """A run as it last told.

    Attributes:
        id: Its number.
        owner: Who reports.
        budget: What it spends from, if the reporter may spend from it.
        updated: When it told, in seconds.
        stop: Who wants it to stop; None if nobody does.
        status: What it told, as `Report` has it.
    """

    id: str
    owner: str
    budget: str | None
    updated: float
    stop: str | None
    status: dict[str, Any]


class Runs:
    """The runs that a service has heard of."""

    def __init__(self, cabinet: Cabinet, clock: Callable[[], float] = time.time) -> None:
        self._cabinet = cabinet
        self._clock = clock

    def report(self, caller: Caller, told: Report) -> bool:
        """Notes where a run stands; whether it is to stop.

        Raises:
            AccessDenied: The number is that of another's run.
        """
        spends = told.budget is not None and (caller.role(told.budget) or 0) >= Role.SPENDER
        row = {
            "budget": told.budget if spends else None,
            "updated": self._clock(),
            "status": told.model_dump_json(),
        }
        with self._cabinet.writing() as connection:
            found = connection.execute(select(runs).where(runs.c.id == told.id)).first()
            if found is None:
                connection.execute(insert(runs).values(id=told.id, owner=caller.owner, **row))
                self._forget(connection, caller.owner)
                return False
            if found.owner != caller.owner:
                raise AccessDenied("id must be that of a run of yours, got another's")
            connection.execute(update(runs).where(runs.c.id == told.id).values(**row))
        return found.stop is not None

    def _forget(self, connection: Any, owner: str) -> None:
        mine = select(runs.c.id).where(runs.c.owner == owner).order_by(runs.c.updated.desc())
        old = connection.execute(mine.offset(_KEPT)).scalars().all()
        if old:
            connection.execute(delete(runs).where(runs.c.id.in_(old)))

    def listed(self, caller: Caller) -> list[Run]:
        """The runs that a caller may see, the last that told first."""
        with self._cabinet.reading() as connection:
            rows = connection.execute(select(runs).order_by(runs.c.updated.desc()).limit(10_000))
            seen = [_run(row) for row in rows if self._may_see(caller, row)]
        return seen[:MOST_SHOWN]

    def run(self, caller: Caller, id: str) -> Run:
        """One run.

        Raises:
            ValueError: There is none that the caller may see.
        """
        with self._cabinet.reading() as connection:
            row = connection.execute(select(runs).where(runs.c.id == id)).first()
        if row is None or not self._may_see(caller, row):
            raise ValueError(f"id must be that of a run, got {id!r:.80}")
        return _run(row)

    def may_stop(self, caller: Caller, run: Run) -> bool:
        """Whether a caller may stop a run."""
        held = caller.role(run.budget) if run.budget is not None else None
        return run.owner == caller.owner or caller.is_admin or (held or 0) >= Role.OWNER

    def stop(self, caller: Caller, id: str) -> None:
        """Has a run end at its next step, once it hears of it; its results are kept."""
        found = self.run(caller, id)
        if not self.may_stop(caller, found):
            raise AccessDenied("run must be your own to be stopped, or its budget, got another's")
        change = update(runs).where(runs.c.id == id, runs.c.stop.is_(None))
        with self._cabinet.writing() as connection:
            connection.execute(change.values(stop=caller.owner))

    def silent(self, run: Run) -> bool:
        """Whether a run that did not end has not told for a while."""
        return run.status["state"] == "running" and self._clock() - run.updated > SILENT

    def _may_see(self, caller: Caller, row: Any) -> bool:
        of_budget = row.budget is not None and caller.role(row.budget) is not None
        return row.owner == caller.owner or caller.is_admin or of_budget


def _run(row: Any) -> Run:
    status = json.loads(row.status)
    return Run(row.id, row.owner, row.budget, row.updated, row.stop, status)
