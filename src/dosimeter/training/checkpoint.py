# SPDX-License-Identifier: Apache-2.0
"""What a run has spent, in a form that a checkpoint can hold and a gate can be charged with.

The budget must not roll back with the model: loading a checkpoint may add spends to a gate
and never removes any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dosimeter.errors import StateError
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain, to_plain

VERSION = 1

_FIELDS = frozenset(
    [
        *("version", "model", "optimizer", "sampler", "noise", "noise_multiplier", "batch_size"),
        *("records", "steps", "spends", "gate", "seeded"),
    ]
)


class Spends:
    """The spends of one run in order, equal ones after each other as one with a count."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.count = 0
        self._costs: list[tuple[Cost, int]] = []

    def __iter__(self) -> Any:
        return iter(self._costs)

    def add(self, cost: Cost, count: int = 1) -> None:
        """Writes down a spend that the gate has accepted."""
        self.count += count
        if self._costs and self._costs[-1][0] == cost:
            count += self._costs.pop()[1]
        self._costs.append((cost, count))

    def state(self) -> dict[str, Any]:
        """The spends as plain values."""
        return {"run": self.run, "costs": [[to_plain(cost), count] for cost, count in self._costs]}

    def missing(self, saved: Spends, *, kept: bool) -> list[tuple[Cost, int]]:
        """Which of the saved spends the gate still has to be charged with: all or none.

        None if the gate kept them, or if this very run made them and so charged them before.
        """
        if saved.run == self.run and saved.count <= self.count:
            return []
        if kept:
            own, self._costs, self.count = self._costs, [], 0
            for cost, count in [*saved, *own]:
                self.add(cost, count)
            return []
        return list(saved)


def read(state: Mapping[str, Any], *, records: int, weights: Mapping[str, Any]) -> Spends:
    """The spends in a saved state, after checking that it fits."""
    if not isinstance(state, Mapping) or set(state) != _FIELDS:
        raise StateError("state must hold exactly what state_dict() gave, got something else")
    if state["version"] != VERSION:
        raise StateError(f"state version must be {VERSION}, got {state['version']!r}")
    if state["records"] != records:
        raise StateError(
            f"state must be of a run on {records} records, got one on {state['records']!r}"
        )
    _require_shapes(state["model"], weights)
    spends = Spends(str(state["spends"]["run"]))
    try:
        for cost, count in state["spends"]["costs"]:
            spends.add(from_plain(cost), int(count))
    except (TypeError, ValueError) as error:
        raise StateError(f"state must hold costs as state_dict() wrote them: {error}") from error
    return spends


def _require_shapes(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises for the first weight that is not there, or not of this shape."""
    for name in [*own, *(name for name in saved if name not in own)]:
        was, now = _shape(saved, name), _shape(own, name)
        if was != now:
            raise StateError(
                f"state must be of a model like this one, which has {name!r} {now}, got one that "
                f"has it {was}; make the model that it was saved with, or begin another run"
            )


def _shape(weights: Mapping[str, Any], name: str) -> str:
    if name not in weights:
        return "nowhere"
    return f"of shape {tuple(getattr(weights[name], 'shape', ()))}"
