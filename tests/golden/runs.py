"""Small private runs, each repeatable by its seed, and what they end with."""

import datetime
import functools
import hashlib
import io
import json
import pathlib

import torch
from torch import distributed, nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import PrivateEngine

RECORDS, BATCH, STEPS = 40, 8, 20
WORDS, LENGTH, WIDTH, CLASSES = 7, 6, 4, 3


class Attention(nn.Module):
    """Words, attention among them, and a class."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words):
        x = self.embed(words)
        return self.head(self.norm(x + self.attend(x, x, x, need_weights=False)[0]).mean(1))


class Recurrent(nn.Module):
    """An LSTM over positions, and a class of its last state."""

    def __init__(self):
        super().__init__()
        self.recur = nn.LSTM(WIDTH, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.head(self.recur(x)[0][:, -1])


class Tied(nn.Module):
    """Words that are guessed by the very weights that embed them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        return self.head(torch.tanh(self.embed(words).mean(1)))


def _cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 3, stride=2), nn.Flatten(), nn.Linear(3, CLASSES),
    )  # fmt: skip


def _normed(channels):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4 * channels, CLASSES),
    )  # fmt: skip


def _bag():
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Flatten(), nn.Linear(LENGTH * WIDTH, 3))


MODELS = {
    "linear": (lambda: nn.Linear(5, CLASSES), (5,)),
    "cnn": (_cnn, (1, 6, 6)),
    "lstm": (Recurrent, (LENGTH, WIDTH)),
    "attention": (Attention, "words"),
    "embedding": (_bag, "words"),
    "tied weights": (Tied, "words"),
}
"""Makes a model, and the shape of a record."""

CONVERTED = {
    f"batch norm of {channels} channels": (functools.partial(_normed, channels), (1, 6, 6))
    for channels in (4, 48)
}
"""The same for models that only `fix` makes private."""


def data(shape, dtype):
    """Records of a shape, or some words each; and their classes."""
    random = torch.Generator().manual_seed(1)
    if shape == "words":
        x = torch.randint(WORDS, (RECORDS, LENGTH), generator=random)
    else:
        x = torch.randn(RECORDS, *shape, generator=random, dtype=torch.float64).to(dtype)
    return TensorDataset(x, torch.randint(CLASSES, (RECORDS,), generator=random))


class Run:
    """A run of a model by name, which can stop and go on as another."""

    def __init__(self, name, dtype=torch.float64, **options):
        make, shape = (MODELS | CONVERTED)[name]
        torch.manual_seed(0)
        self.model = make().double().to(dtype)
        self.engine = PrivateEngine(dm.Filter(50.0, 1e-5), seed=5)
        self.parts = self.engine.make_private(
            self.model,
            torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.5),
            data(shape, dtype),
            **{"noise_multiplier": 0.6, "max_grad_norm": 0.5, "batch_size": BATCH, **options},
        )

    def train(self, steps):
        """Goes on until so many steps were taken in all."""
        model, optimizer, loader = self.parts
        while self.engine.steps < steps:
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        return self

    def saved(self):
        """What a file holds of it."""
        file = io.BytesIO()
        torch.save(self.engine.state_dict(), file)
        return file.getvalue()

    def load(self, saved):
        """Goes on from what another saved."""
        self.engine.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True))
        return self

    def ended(self):
        """Its parameters' hash, and what it spent."""
        return {
            "parameters": digest(self.model.parameters()),
            "steps": self.engine.steps,
            "spends": self.engine.spends,
            "epsilon": self.engine.epsilon.hex(),
        }


def digest(parameters):
    """The hash of parameters, rounded to single precision."""
    values = torch.cat([each.detach().double().flatten() for each in parameters])
    return hashlib.sha256(values.float().numpy().tobytes()).hexdigest()


def end_on_ranks(rank, folder, names):
    """Trains in a process of two, and writes what it ended with to a file."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )  # fmt: skip
    try:
        found = {name: Run(name).train(STEPS).ended() for name in names}
        pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(found))
    finally:
        distributed.destroy_process_group()
