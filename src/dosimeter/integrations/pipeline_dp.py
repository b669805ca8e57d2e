# SPDX-License-Identifier: Apache-2.0
"""PipelineDP on one budget: an accountant that pays before a pipeline may run.

PipelineDP's pipelines are lazy: they cannot run until `compute_budgets` has handed out epsilon and
delta. Here it pays first, the whole pipeline at once, so one that was refused never runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from dosimeter.accounting import Gate
from dosimeter.integrations.parts import relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import ApproxDp

require("pipeline-dp", "0.3")

from pipeline_dp import NaiveBudgetAccountant  # noqa: E402  after the check of its version


class Accountant(NaiveBudgetAccountant):  # type: ignore[misc]  # it has no types
    """A `NaiveBudgetAccountant` for one pipeline, paid from a gate.

    Args:
        gate: A filter, an odometer or a budget of a ledger, for neighbours that add or remove one
            user: PipelineDP protects privacy ids.
        total_epsilon: What the pipeline may use; PipelineDP divides it.
        total_delta: Likewise; drawn from the gate's `approx_delta`.
        num_aggregations: As PipelineDP takes it.
        aggregation_weights: As PipelineDP takes it.

    Guarantee:
        The pipeline is charged as one (total_epsilon, total_delta)-DP mechanism before any of it
        can run. That it is one is PipelineDP's claim.
    """

    def __init__(
        self,
        gate: Gate,
        total_epsilon: float,
        total_delta: float,
        num_aggregations: int | None = None,
        aggregation_weights: Sequence[float] | None = None,
    ) -> None:
        relation = relation_of(gate)
        if relation is not Neighbours.ADD_REMOVE_USER:
            raise ValueError(
                f"gate must be for neighbours that {Neighbours.ADD_REMOVE_USER}, got one for "
                f"{relation}; make it with neighbours=dosimeter.{Neighbours.ADD_REMOVE_USER!r}"
            )
        self._gate = gate
        self._cost = ApproxDp(total_epsilon, total_delta, neighbours=relation)
        super().__init__(total_epsilon, total_delta, num_aggregations, aggregation_weights)

    def compute_budgets(self) -> None:
        """Pays for the pipeline, then lets it run.

        Raises:
            BudgetExceeded: The gate refuses. Nothing was spent, and the pipeline cannot run.
        """
        # What PipelineDP would refuse is not paid for.
        self._check_aggregation_restrictions()
        if self._mechanisms and not self._scopes_stack and not self.finalized:
            self._gate.spend(self._cost)
        super().compute_budgets()
