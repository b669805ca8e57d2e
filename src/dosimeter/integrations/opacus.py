# SPDX-License-Identifier: Apache-2.0
"""PrivacyEngine: Opacus' own, whose accountant spends from a gate; for loops that stay as they are.

Opacus accounts for a step when its gradients are clipped and noisy, just before the update. So a
refusal comes before the update, and the parameters stay as they were; but the batch was read and
its gradients were computed. `dosimeter.training.PrivateEngine` pays before it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.errors import BudgetExceeded
from dosimeter.integrations import parts
from dosimeter.rdp import SampledGaussian

parts.require("opacus", "1.6")

import opacus  # noqa: E402
from opacus.accountants import IAccountant  # noqa: E402

from dosimeter.training.group import Group  # noqa: E402

LATE = (
    "Opacus accounts at the end of a step: the gradients of this batch were already computed, and "
    "are dropped; no parameter has changed."
)


class GateAccountant(IAccountant):
    """An accountant of Opacus that spends every step from a gate.

    Args:
        gate: A filter, an odometer, a budget of a ledger.
        spends_kept: Says that the gate holds what a checkpoint was saved with; otherwise loading
            one charges it again.

    Guarantee:
        What the gate says, if Opacus clips each record to its norm and adds the noise it was
        asked for. Its noise is float, of a generator that can be predicted unless `secure_mode`
        is on.
    """

    def __init__(self, gate: Gate, *, spends_kept: bool = False) -> None:
        self.relation = parts.relation_of(gate)
        self.gate, self._kept = gate, spends_kept
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Spends one step; among several processes the first does for all.

        Raises:
            BudgetExceeded: The gate refused. Nothing has changed.
        """
        self._spend(noise_multiplier, sample_rate, 1)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """What an optimizer calls before each update."""

        def pay(optimizer: Any) -> None:
            batches = optimizer.accumulated_iterations
            if batches != 1:
                optimizer.zero_grad(set_to_none=True)
                raise ValueError(
                    "a step must be of one batch, for a record that is in two of them moves the "
                    f"sum twice, got {batches}. Use Opacus' BatchMemoryManager for batches that do "
                    "not fit."
                )
            try:
                self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)
            except BaseException as error:
                optimizer.zero_grad(set_to_none=True)
                if isinstance(error, BudgetExceeded):
                    error.add_note(LATE)
                raise

        return pay

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Epsilon spent so far, at the delta of the gate."""
        fixed = getattr(self.gate, "total_delta", getattr(self.gate, "delta", delta))
        if not delta >= fixed:
            raise ValueError(
                f"delta must be at least that of the gate, {fixed!r}, which was fixed before the "
                f"first step, got {delta!r}"
            )
        return self.gate.epsilon

    def __len__(self) -> int:
        return sum(count for _, _, count in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name of this way to account."""
        return "gate"

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Charges the gate with what a checkpoint says was spent, before anything is loaded.

        Raises:
            BudgetExceeded: The gate cannot hold it.
        """
        before = self.history
        super().load_state_dict(state_dict)
        saved, self.history = self.history, before
        for noise, rate, count in saved:
            self._spend(noise, rate, count, paid=self._kept)

    def _spend(self, noise: float, rate: float, count: int, *, paid: bool = False) -> None:
        cost = SampledGaussian(rate, noise)
        if not paid:
            Group.here().lead(lambda: self.gate.spend(cost, count))
        if self.history and self.history[-1][:2] == (noise, rate):
            count += self.history.pop()[2]
        self.history.append((noise, rate, count))


class PrivacyEngine(opacus.PrivacyEngine):
    """Opacus' engine on a budget: `PrivacyEngine(gate)` in the place of `PrivacyEngine()`.

    Args:
        gate: What every step is charged to.
        secure_mode: As Opacus has it.
        spends_kept: As `GateAccountant` has it.
    """

    def __init__(self, gate: Gate, *, secure_mode: bool = False, spends_kept: bool = False) -> None:
        super().__init__(secure_mode=secure_mode)
        self.accountant = GateAccountant(gate, spends_kept=spends_kept)

    def make_private(self, *, poisson_sampling: bool = True, **options: Any) -> Any:
        """As Opacus has it, with batches that are Poisson samples."""
        if not poisson_sampling:
            raise ValueError(
                "poisson_sampling must be on, for batches of a fixed size do not cost what they "
                "are charged for, got False. Leave it out."
            )
        return super().make_private(poisson_sampling=True, **options)

    def make_private_with_epsilon(self, **_: Any) -> Any:
        """Refused: the budget is the gate's."""
        raise ValueError(
            "make_private_with_epsilon must not be used with a gate, which has an epsilon of its "
            "own. Use make_private(noise_multiplier=dosimeter.noise_for(epsilon, delta, steps=…, "
            "sample_rate=…), …)."
        )
