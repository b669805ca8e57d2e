"""A run on two ranks, started as a script because Lightning starts it again for the second."""

import json
import pathlib
import sys

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import dosimeter as dm
from dosimeter.integrations.lightning import PrivateTraining


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        self.seen = set()

    def training_step(self, batch, batch_idx):
        x, y, number = batch
        self.seen |= set(number.tolist())
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Paid:
    """A filter that counts."""

    def __init__(self):
        self.gate, self.count = dm.Filter(epsilon=1.2, delta=1e-6), 0

    def admits(self, cost, count=1):
        return self.gate.admits(cost, count)

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.count += count

    @property
    def epsilon(self):
        return self.gate.epsilon


def main(folder):
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, (x.sum(dim=1) > 0).long(), torch.arange(200))
    module, gate = Classifier(), Paid()
    privacy = PrivateTraining(gate, noise_multiplier=2.0, physical_batch_size=7)
    trainer = lightning.Trainer(
        max_epochs=100, accelerator="cpu", strategy="ddp", devices=2, callbacks=[privacy],
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)  # fmt: skip
    trainer.fit(module, DataLoader(data, batch_size=20, shuffle=True), DataLoader(data, 50))
    engine = privacy.engine
    told = {
        "steps": engine.steps,
        "spends": engine.spends,
        "paid": gate.count,
        "batch_size": engine.batch_size,
        "stopped": trainer.should_stop,
        "parameters": [p.tolist() for p in module.parameters()],
        "seen": sorted(module.seen),
    }
    (folder / f"{trainer.global_rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
