# SPDX-License-Identifier: Apache-2.0
"""A simulated federation that learns a mean, round by round, until one budget halts it."""

import logging

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation

import dosimeter as dm
from dosimeter.integrations.flower import Accountant

CLIENTS, SAMPLED = 6, 5

client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One step towards the mean of the client's own numbers."""
    own = np.random.default_rng(context.node_id % 1000).normal(1.0, 0.1, 50)
    model = message.content["arrays"]["mean"].numpy()
    moved = model + 0.5 * (own.mean() - model)
    # Equal weights, and nothing else: metrics would leave without noise.
    reply = {
        "arrays": ArrayRecord({"mean": Array(moved)}),
        "metrics": MetricRecord({"num-examples": 1}),
    }
    return Message(RecordDict(reply), reply_to=message)


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Trains until the budget refuses a round."""
    users = dm.Neighbours.ADD_REMOVE_USER
    gate = dm.Filter(epsilon=8, delta=1e-5, neighbours=users)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(
            fraction_train=SAMPLED / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS
        ),
        noise_multiplier=3.0,
        clipping_norm=1.0,
        num_sampled_clients=SAMPLED,
        accountant=Accountant(gate, population_size=CLIENTS),
    )
    start = ArrayRecord({"mean": Array(np.zeros(1))})
    try:
        strategy.start(grid, start, num_rounds=100)
    except PrivacyBudgetExhausted:
        last = strategy.current_arrays["mean"].numpy()
        print(f"halted after {strategy.privacy_spent().num_releases} rounds, mean {last[0]:.2f}")
    print(f"epsilon {gate.epsilon:.3f}")
    print(gate.guarantee())


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(server, client, num_supernodes=CLIENTS)
