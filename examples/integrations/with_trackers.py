# SPDX-License-Identifier: Apache-2.0
"""One run, written to Weights & Biases without a network, and its curve of epsilon."""

import torch
import wandb
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.integrations.wandb import to_wandb
from dosimeter.training import fit


def main() -> None:
    """Trains, and shows what was written."""
    torch.manual_seed(0)
    x = torch.randn(1000, 10)
    data = TensorDataset(x, (x.sum(dim=1) > 0).long())
    run = wandb.init(mode="offline", project="private")
    history = fit(
        torch.nn.Linear(10, 2),
        data,
        dm.Filter(epsilon=3, delta=1e-5),
        epochs=5,
        noise_multiplier=2.0,
        batch_size=100,
        progress=False,
        callbacks=[to_wandb(run)],
    )
    for epoch in history.epochs:
        print(f"epoch {epoch.epoch}: epsilon {epoch.epsilon:.3f}")
    print(run.summary["privacy/guarantee"])
    run.finish()


if __name__ == "__main__":
    main()
