# SPDX-License-Identifier: Apache-2.0
"""Counts by partition, pipeline after pipeline, until one budget says stop."""

import pipeline_dp as pdp

import dosimeter as dm
from dosimeter.integrations.pipeline_dp import Accountant

VISITS = [(user, ("north", "south", "west")[user % 3]) for user in range(6000)]
EXTRACTORS = pdp.DataExtractors(
    privacy_id_extractor=lambda visit: visit[0],
    partition_extractor=lambda visit: visit[1],
    value_extractor=lambda visit: 1,
)
PARAMS = pdp.AggregateParams(
    metrics=[pdp.Metrics.COUNT], max_partitions_contributed=1, max_contributions_per_partition=1
)


def main() -> None:
    """Runs pipelines until the budget refuses one."""
    users = dm.Neighbours.ADD_REMOVE_USER
    budget = dm.Filter(epsilon=1, delta=1e-6, approx_delta=1e-5, neighbours=users)
    for number in range(1, 100):
        accountant = Accountant(budget, total_epsilon=0.3, total_delta=1e-6)
        engine = pdp.DPEngine(accountant, pdp.LocalBackend())
        counts = engine.aggregate(VISITS, PARAMS, EXTRACTORS)
        try:
            accountant.compute_budgets()
        except dm.BudgetExceeded as refusal:
            print(f"pipeline {number} refused: {refusal.reason}")
            break
        print(number, {clinic: round(metrics.count) for clinic, metrics in counts})
    print(budget.guarantee())


if __name__ == "__main__":
    main()
