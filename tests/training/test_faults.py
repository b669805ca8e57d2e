"""Whatever goes wrong in the loop: nothing is spent twice, and nothing goes uncounted."""

import os
import pathlib
import runpy
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.errors import TicketError


def step(parts, x, y):
    parts.optimizer.zero_grad()
    cross_entropy(parts.model(x), y).backward()
    parts.optimizer.step()


@pytest.mark.parametrize("physical", [None, 8])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_after_the_forward_pass(build, train, counting_gate, physical, error):
    """The batch is lost, its spend is not, and its gradients leak into no other batch."""
    gate = counting_gate(dm.Odometer(delta=1e-6))
    parts = build(gate, physical_batch_size=physical)
    calls = iter(range(3))

    def loss_fn(out, y):
        loss = cross_entropy(out, y)
        if next(calls) == 2:
            raise error
        return loss

    with pytest.raises(error):
        train(parts, loss_fn=loss_fn)
    steps = parts.engine.steps
    assert len(gate.spends) == parts.engine.spends == steps + 1

    # With all records far from the boundary the clipped sum is known: nothing else may be in it.
    released = []
    parts.engine.after_step(
        lambda: released.append(torch.cat([p.grad.flatten() for p in parts.base.parameters()]))
    )
    parts.engine.noise_multiplier = 1e-6
    parts.engine.batch_size = 200
    x, y = next(iter(parts.loader))
    step(parts, x, y) if physical is None else finish(parts, x, y)
    train(parts)
    assert (
        len(gate.spends) == parts.engine.spends == parts.engine.steps + 1 + (physical is not None)
    )
    assert all(grad.norm() <= 1.0 + 1e-5 for grad in released)


def finish(parts, x, y):
    """Steps on one physical batch and leaves the rest."""
    before = parts.engine.steps
    step(parts, x, y)
    assert parts.engine.steps == before


def test_a_loader_left_early_costs_one_step(build, train):
    parts = build(physical_batch_size=8)
    for x, y in parts.loader:
        step(parts, x, y)
        break
    assert (parts.engine.steps, parts.engine.spends) == (0, 1)
    train(parts)
    assert (parts.engine.steps, parts.engine.spends) == (5, 6)


def test_the_sum_of_an_abandoned_batch_is_dropped(build):
    """One record, stepped on in a batch that is left: it must not be in the next release."""
    bare = {"noise_multiplier": 1e-6, "batch_size": 200}
    parts = build(dm.Odometer(delta=1e-6), physical_batch_size=8, **bare)
    for x, y in parts.loader:
        step(parts, x, y)
        break
    grads = []
    parts.engine.after_step(lambda: grads.append([p.grad.clone() for p in parts.base.parameters()]))
    reference = build(dm.Odometer(delta=1e-6), seed=99, **bare)
    reference.engine.after_step(
        lambda: grads.append([p.grad.clone() for p in reference.base.parameters()])
    )
    for each in (parts, reference):
        for x, y in each.loader:
            step(each, x, y)
    assert len(grads) == 2
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_an_interrupted_step_is_not_repeated(build):
    parts = build()
    interrupts = iter([True])

    def interrupt(*_):
        if next(interrupts, False):
            raise KeyboardInterrupt

    parts.plain.register_step_pre_hook(interrupt)
    x, y = next(iter(parts.loader))
    parts.optimizer.zero_grad()
    cross_entropy(parts.model(x), y).backward()
    with pytest.raises(KeyboardInterrupt):
        parts.optimizer.step()
    with pytest.raises(TicketError):
        parts.optimizer.step()
    assert (parts.engine.steps, parts.engine.spends) == (0, 1)


def test_missing_labels(build, train):
    parts = build(dataset=TensorDataset(torch.randn(200, 6)))
    with pytest.raises(ValueError, match="not enough values to unpack"):
        train(parts)
    assert (parts.engine.steps, parts.engine.spends) == (0, 1)


def test_a_gate_that_fails_is_not_a_refusal(build, train, snapshot):
    class Broken:
        epsilon = 0.0

        def admits(self, cost, count=1):
            return True

        def spend(self, cost, count=1):
            raise ConnectionError("database away")

    parts = build(Broken())
    with pytest.raises(ConnectionError):
        train(parts)
    assert (parts.engine.steps, parts.engine.spends, parts.engine.exhausted) == (0, 0, False)


SCRIPT = """
import os, pathlib, signal, sys
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
import dosimeter as dm
from dosimeter.training import PrivateEngine

torch.set_num_threads(1)
folder, kill_at = pathlib.Path(sys.argv[1]), int(sys.argv[2])


class FileGate:
    '''An odometer that writes every spend to disk before it lets the data be touched.'''

    def __init__(self, path):
        self.path, self.inner = path, dm.Odometer(delta=1e-6)
        for line in path.read_text().splitlines() if path.exists() else []:
            rate, noise = map(float, line.split())
            self.inner.spend(dm.SampledGaussian(rate, noise))

    def admits(self, cost, count=1):
        return self.inner.admits(cost, count)

    def spend(self, cost, count=1):
        assert count == 1
        with self.path.open("a") as file:
            file.write(f"{cost.sample_rate!r} {cost.noise_multiplier!r}\\n")
            file.flush()
            os.fsync(file.fileno())
        self.inner.spend(cost)

    @property
    def epsilon(self):
        return self.inner.epsilon


torch.manual_seed(0)
model = torch.nn.Linear(6, 2)
data = TensorDataset(torch.randn(100, 6), torch.randint(0, 2, (100,)))
engine = PrivateEngine(FileGate(folder / "spends"), seed=1)
model, optimizer, loader = engine.make_private(
    model, torch.optim.SGD(model.parameters(), lr=0.1), data,
    noise_multiplier=2.0, max_grad_norm=1.0, batch_size=20)
saved = folder / "checkpoint.pt"
if saved.exists():
    engine.load_state_dict(torch.load(saved), spends_kept=True)
for epoch in range(2):
    for x, y in loader:
        if engine.spends == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)  # spent, not yet stepped
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.save(engine.state_dict(), saved)
print(engine.steps, engine.spends, repr(engine.epsilon))
"""


def test_kill_between_spend_and_step_then_resume(tmp_path, monkeypatch, capsys):
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = [sys.executable, "-W", "ignore", str(script), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([*run, "8"], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert spent(tmp_path) == 8  # 7 steps taken, the eighth paid for

    # This process is another one, too, and has torch loaded.
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path), "0"])
    runpy.run_path(str(script))
    steps, _, epsilon = capsys.readouterr().out.split()
    # The checkpoint knew of 5 steps; the gate keeps its 8 and the 10 new ones come on top.
    assert int(steps) == 5 + 10
    assert spent(tmp_path) == 8 + 10
    core = dm.Odometer(delta=1e-6)
    for _ in range(18):
        core.spend(dm.SampledGaussian(0.2, 2.0))
    assert float(epsilon) == core.epsilon


def spent(folder: pathlib.Path) -> int:
    return len((folder / "spends").read_text().splitlines())
