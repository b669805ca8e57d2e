# SPDX-License-Identifier: Apache-2.0
"""Flower on one budget: a privacy accountant that pays for a round before its clients are asked.

Flower's strategies with fixed clipping ask their accountant whether a round would pass the limit,
train it on the clients, and account for it at the end. Here the question pays, so a round that is
refused reaches no client. Rounds have a fixed number of clients: where one is left out, another
takes its place, and the sum moves by two clipped updates. That is what is charged.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.integrations.parts import called_from, relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import Gaussian, Together

require("flwr", "1.41")

from flwr.serverapp import (  # noqa: E402  after the check of its version
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

_VERSION = 1


class Accountant:
    """A `PrivacyAccountant` of Flower that spends from a gate.

    Args:
        gate: A filter, an odometer or a budget of a ledger. Its neighbours are federations in which
            the data of one client differ: by a record that is added, removed or replaced, or by all
            of it (add/remove one user) where fewer clients are sampled than there are.
        population_size: How many clients there are, which is public.
        spends_kept: Says that the gate holds what a saved state was saved with; otherwise loading
            one charges it again.

    Guarantee:
        Each round is charged as a Gaussian with half its noise multiplier before any client is
        asked; a round that fails stays paid. That updates are clipped, weighed equally and
        noisy is Flower's claim. Metrics that clients send are not paid for.
    """

    def __init__(self, gate: Gate, *, population_size: int, spends_kept: bool = False) -> None:
        self._neighbours = relation_of(gate)
        self._gate, self._kept = gate, spends_kept
        limit = float(gate.limit)  # type: ignore[attr-defined]  # all with a guarantee have it
        self._config = PrivacyConfig(
            target_delta=self._delta,
            population_size=population_size,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            # Flower does not ask before a round unless there is one.
            max_epsilon=limit if math.isfinite(limit) else sys.float_info.max,
        )
        self._paid: list[tuple[GaussianPrivacyEvent, int]] = []
        self._open: GaussianPrivacyEvent | None = None  # paid and not yet released
        self._released = 0

    @property
    def config(self) -> PrivacyConfig:
        """What Flower asks of the settings of an accountant."""
        return self._config

    @property
    def num_releases(self) -> int:
        """How many rounds were released."""
        return self._released

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Whether the gate refuses a round; asked by Flower, which then runs it, it is paid.

        Raises:
            ValueError: The round has no bound for the gate's neighbours, or another limit than the
                gate's is asked about. Nothing was spent.
        """
        cost = self._cost(event)
        if max_epsilon is not None:
            raise ValueError(f"max_epsilon must be left to the gate, got {max_epsilon!r}")
        if called_from("flwr") is None:
            return not self._gate.admits(cost, count)
        try:
            self._spend(event, count)
        except BudgetExceeded:
            return True
        self._open = event
        return False

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Notes a round that was paid for before it began; spends for anyone else's.

        Raises:
            BudgetExceeded: It was not paid for, and the gate refuses it.
        """
        paid = called_from("flwr") is not None and count == 1 and event == self._open
        if not paid:
            self._spend(event, count)
        self._open, self._released = None, self._released + count

    def get_epsilon(self, delta: float) -> float:
        """Epsilon spent from the gate so far, by whomever, at its delta."""
        if not delta >= self._delta:
            raise ValueError(
                f"delta must be at least that of the gate, {self._delta!r}, which was fixed "
                f"before the first round, got {delta!r}"
            )
        return self._gate.epsilon

    def get_delta(self, epsilon: float) -> float:
        """The delta of the gate, for an epsilon that it has not passed."""
        if not epsilon >= self._gate.epsilon:
            raise ValueError(
                f"epsilon must be at least what was spent, {self._gate.epsilon!r}, got {epsilon!r}"
            )
        return self._delta

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """What was spent from the gate so far, by whomever."""
        delta = self._delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(delta), delta, self.num_releases, "dosimeter")

    def state_dict(self) -> dict[str, object]:
        """The rounds that were paid for, as plain values."""
        rounds = [
            [event.noise_multiplier, event.sample_size, event.population_size, count]
            for event, count in self._paid
        ]
        about = {"backend": "dosimeter", "version": _VERSION}
        return {**about, "rounds": rounds, "released": self._released}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Charges the gate with the rounds of a saved state, all or none.

        Raises:
            StateError: It is of another kind.
            BudgetExceeded: The gate cannot hold them.
        """
        if (state.get("backend"), state.get("version")) != ("dosimeter", _VERSION):
            raise StateError(f"state must be one that this accountant gave, got {state!r}")
        rounds = [(GaussianPrivacyEvent(*numbers), count) for *numbers, count in state["rounds"]]
        costs = [self._cost(event) for event, count in rounds for _ in range(count)]
        if costs and not self._kept:
            self._gate.spend(Together(costs))
        self._paid, self._open, self._released = rounds, None, int(state["released"])

    def _spend(self, event: GaussianPrivacyEvent, count: int) -> None:
        self._gate.spend(self._cost(event), count)
        self._paid.append((event, count))

    @property
    def _delta(self) -> float:
        return float(self._gate.guarantee().delta)  # type: ignore[attr-defined]

    def _cost(self, event: GaussianPrivacyEvent) -> Gaussian:
        if event.population_size != self._config.population_size:
            raise ValueError(
                f"population_size must be {self._config.population_size}, got "
                f"{event.population_size}"
            )
        whole = event.sample_size == event.population_size
        if whole and self._neighbours is Neighbours.ADD_REMOVE_USER:
            raise ValueError(
                "sample_size must be below population_size where the gate is for neighbours that "
                f"{self._neighbours}, got {event.sample_size} of {event.population_size}: a round "
                "that needs all clients shows whether one is there. Sample fewer, or make the gate "
                "for a record of a client."
            )
        return Gaussian(event.noise_multiplier / 2, neighbours=self._neighbours)
