"""A folder with a small table, and a model that can be made to stop."""

import pytest

from configs import write_points

# A model of the user's own that ends its process, or interrupts it, in a chosen step.
TRAP = """
import os, signal
from torch import nn

class Trap(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.layer = nn.Linear(columns, classes)
        self.seen = 0

    def forward(self, x):
        if self.training and len(x) > 5:  # the self-test runs five records and fewer
            self.seen += 1
            if self.seen == int(os.environ.get("TRAP_STEP", 0)):
                os.kill(os.getpid(), getattr(signal, os.environ["TRAP_SIGNAL"]))
        return self.layer(x)

def make(shape, classes):
    return Trap(shape[0], classes)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_points(tmp_path / "points.csv")
    (tmp_path / "trap_of_mine.py").write_text(TRAP)
    return tmp_path


@pytest.fixture
def trap(monkeypatch):
    def set_trap(step, name="SIGINT"):
        monkeypatch.setenv("TRAP_STEP", str(step))
        monkeypatch.setenv("TRAP_SIGNAL", name)

    return set_trap
