"""A module as people write it, and a Trainer that keeps quiet."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():  # of Lightning's own imports
    warnings.simplefilter("ignore")
    import lightning

torch.set_num_threads(1)


class Classifier(lightning.LightningModule):
    """What was there before anyone thought of privacy."""

    def __init__(self, lr=0.1):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        self.lr = lr
        self.validated = 0

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.validated += 1
        self.log("val_accuracy", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def points(count=200, seed=0):
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(dim=1) > 0).long())


@pytest.fixture
def data():
    return points


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return Classifier()


@pytest.fixture
def fit(tmp_path):
    """Fits a module with some callbacks, on batches of 20."""

    def run(module, *callbacks, records=None, loader=None, ckpt_path=None, **options):
        settings = {"max_epochs": 1, "accelerator": "cpu", "logger": False,
                    "enable_checkpointing": False, "enable_progress_bar": False,
                    "enable_model_summary": False, "default_root_dir": tmp_path,
                    **options}  # fmt: skip
        trainer = lightning.Trainer(callbacks=list(callbacks), **settings)
        if loader is None:
            loader = DataLoader(records or points(), batch_size=20, shuffle=True)
        trainer.fit(module, loader, DataLoader(points(50, 1), batch_size=50), ckpt_path=ckpt_path)
        return trainer

    return run
