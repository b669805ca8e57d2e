# SPDX-License-Identifier: Apache-2.0
"""A script of Lightning with a budget: three lines are new, and say so."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from dosimeter.integrations.lightning import PrivateTraining  # new


class Digits(L.LightningModule):
    """A small network for images of 8 by 8 dots."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    """Trains for ten epochs and says what holds."""
    L.seed_everything(0, verbose=False)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
    train, public = random_split(data, [1500, len(data) - 1500])
    budget = PrivateTraining((4.0, 1e-5))  # new
    trainer = L.Trainer(
        max_epochs=10,
        logger=False,
        enable_checkpointing=False,
        callbacks=[budget],  # new
    )
    trainer.fit(Digits(), DataLoader(train, batch_size=150, shuffle=True), DataLoader(public, 300))
    print(f"accuracy {float(trainer.callback_metrics['accuracy']):.3f}")
    print(budget.engine.guarantee())


if __name__ == "__main__":
    main()
