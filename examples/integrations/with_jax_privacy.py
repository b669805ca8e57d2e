# SPDX-License-Identifier: Apache-2.0
"""A logistic regression in JAX under one filter, which ends it; one line differs from without."""

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy.batch_selection import PartitionType, pad_to_multiple_of
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

import dosimeter as dm
from dosimeter.integrations.jax_privacy import paid

RECORDS, BATCH, RATE = 2000, 200, 0.5


def loss(weights: jax.Array, record: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The loss of a batch that holds one record."""
    x, y = record
    return jnp.mean(jnp.logaddexp(0.0, -y * (x @ weights)))


def main() -> None:
    """Trains until the filter refuses a step."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((RECORDS, 10)).astype(np.float32)
    y = np.sign(x.sum(axis=1))

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    config = BandMFExecutionPlanConfig(
        iterations=1000,
        strategy=np.ones(1),  # one band: DP-SGD
        epsilon=None,
        delta=None,
        noise_multiplier=2.0,
        sampling_prob=BATCH / RECORDS,
        normalize_by=BATCH,
        accountant=dp_accounting.pld.PLDAccountant(relation),
        partition_type=PartitionType.INDEPENDENT,
    )
    gate = dm.Filter(epsilon=2, delta=1e-5)
    plan = paid(config, gate)  # without a budget: config.plan

    weights = jnp.zeros(10)
    noise = plan.noise_addition_transform.init(weights)
    gradient = plan.clipped_grad(loss, batch_argnums=1)
    steps = 0
    for indices in plan.batch_selection_strategy.batch_iterator(RECORDS):
        indices = pad_to_multiple_of(indices, 2 * BATCH)  # shapes that are compiled once
        records = (x[indices], y[indices])
        clipped = gradient(weights, records, is_padding_example=indices == -1)
        released, noise = plan.noise_addition_transform.update(clipped, noise)
        weights -= RATE * released
        steps += 1

    right = float(jnp.mean(jnp.sign(x @ weights) == y))
    print(f"{steps} of {config.iterations} steps, then {plan.batch_selection_strategy.refusal}")
    print(f"accuracy {right:.3f}, epsilon {gate.epsilon:.3f}")
    print(gate.guarantee())


if __name__ == "__main__":
    main()
