# SPDX-License-Identifier: Apache-2.0
"""Per-record gradients: a private step over a plain one, ours and Opacus', in time and memory.

All arms train the same network on the same records with Poisson batches, in turns and in one
process; a time is the best of all steps, per record since batches vary in size. On one thread it is
the processor's, in which the turns of other programs do not count. Three processes are tried and
the best is that of all of them; arms that take more than twice as long as a plain step in the first
one have two steps there on trial and no more.

Times are of processes that keep what is freed, by the variables that docs/training.md names. That
holds for every arm, the plain one too, which would otherwise pay for new pages.

Memory is the peak of the first steps in a process of its own, tested batches included, over what
it held before them, likewise per record. In both arms libraries were loaded by a step of another
model before, and freed memory goes back to the system at once: the peak is what a step holds, not
how the heap was cut by the batches before it.
"""

from __future__ import annotations

import gc
import json
import math
import os
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import dosimeter as dm
from benchmarks.measure import Result, Table
from dosimeter.runs.networks import linear, small_cnn
from dosimeter.training import PrivateEngine
from experiments.resnet9 import Resnet9

THREADS = (1, 2)
OPACUS = {"Opacus hooks": "hooks", "Opacus ghost": "ghost", "Opacus ew": "ew"}
"""Opacus' ways to the gradients of records, which draw their batches as a plain step does."""
ARMS = ("ours", *OPACUS)
PROCESSES, TRIAL = 3, 2
TURN = 0.6
"""Seconds of plain steps after those on trial: every arm takes so many, but at least two."""

KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
"""What a process that is timed has in its environment: its heap keeps what is freed."""

Step = Callable[[], int]


class Block(nn.Module):
    """Attention and two linear layers, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        b, t, d = x.shape
        split = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(mixed)
        hidden: torch.Tensor = self.down(functional.gelu(self.up(self.norm2(x))))
        return x + hidden


class Transformer(nn.Module):
    """A small classifier of sequences of tokens."""

    def __init__(self, width: int = 128, blocks: int = 2, tokens: int = 1000) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of the classes."""
        places = torch.arange(x.shape[1]).expand(x.shape).contiguous()
        hidden = self.blocks(self.tokens(x) + self.places(places))
        scores: torch.Tensor = self.head(self.norm(hidden).mean(1))
        return scores


class Lora(nn.Module):
    """A frozen linear layer and a trained product of two thin ones."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output of both."""
        output: torch.Tensor = self.base(x) + self.up(self.down(x))
        return output


def lora() -> nn.Module:
    """A frozen transformer with thin layers beside its attention, and a trained head."""
    model = Transformer(width=256, blocks=4).requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.out = Lora(block.qkv), Lora(block.out)  # type: ignore[arg-type]
    model.head.requires_grad_(True)
    return model


@dataclass(frozen=True)
class Case:
    """A network, its records, and how much slower and larger a private step may be."""

    make: Callable[[], nn.Module]
    records: Callable[[], torch.Tensor]
    classes: int
    batch: int
    time: float
    memory: float


CASES = {
    "linear, 2,000 features": Case(
        lambda: linear(2000, 10), lambda: torch.randn(20000, 2000), 10, 4096, 1.25, 1.2
    ),
    "small CNN": Case(
        lambda: small_cnn(3, 10), lambda: torch.randn(5000, 3, 32, 32), 10, 256, 1.30, 1.5
    ),
    "ResNet9 (w16)": Case(
        lambda: Resnet9(3, 10, width=16), lambda: torch.randn(1000, 3, 32, 32), 10, 64, 1.50, 3.0
    ),
    "transformer": Case(Transformer, lambda: torch.randint(0, 1000, (2000, 64)), 4, 64, 1.35, 2.0),
    "LoRA": Case(lora, lambda: torch.randint(0, 1000, (2000, 64)), 4, 64, 1.3, 1.3),
}


def parts(case: Case) -> tuple[nn.Module, Any, TensorDataset]:
    """A model, its optimizer and its data, the same each time."""
    torch.manual_seed(0)
    model, x = case.make(), case.records()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    return model, optimizer, TensorDataset(x, torch.randint(0, case.classes, (len(x),)))


def plain(case: Case) -> Step:
    """A step without privacy, on a Poisson batch."""
    model, optimizer, data = parts(case)
    return _on_samples(case, data, model, optimizer, nn.CrossEntropyLoss())


def opacus(case: Case, mode: str) -> Step:
    """A step of Opacus."""
    model, optimizer, data = parts(case)
    made, stepper, *rest = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=DataLoader(data, batch_size=case.batch),
        noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False, grad_sample_mode=mode,
    )  # fmt: skip
    return _on_samples(
        case, data, made, stepper, rest[0] if mode == "ghost" else nn.CrossEntropyLoss()
    )


def _on_samples(
    case: Case, data: TensorDataset, model: nn.Module, optimizer: Any, loss_fn: Any
) -> Step:
    x, y = data.tensors
    rate = case.batch / len(y)

    def step() -> int:
        chosen = torch.nonzero(torch.rand(len(y)) < rate).flatten()
        optimizer.zero_grad()
        loss_fn(model(x.index_select(0, chosen)), y.index_select(0, chosen)).backward()
        optimizer.step()
        return len(chosen)

    return step


def private(case: Case) -> Step:
    """A private step."""
    model, optimizer, data = parts(case)
    engine = PrivateEngine(dm.Odometer(1e-6))
    made, stepper, loader = engine.make_private(
        model, optimizer, data, noise_multiplier=1.0, max_grad_norm=1.0, batch_size=case.batch
    )
    batches = iter(loader)

    def step() -> int:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        stepper.zero_grad()
        functional.cross_entropy(made(batch[0]), batch[1]).backward()
        stepper.step()
        return len(batch[1])

    return step


def arms(case: Case, names: Sequence[str]) -> dict[str, Step]:
    """A plain step and one of every arm that takes the model."""
    steps = {"plain": plain(case)}
    for name in names:
        try:
            step = opacus(case, OPACUS[name]) if name in OPACUS else private(case)
            for _ in range(3):
                step()  # the first batches are tested
        except (ValueError, RuntimeError, NotImplementedError):
            continue
        steps[name] = step
    return steps


def ratios(name: str) -> dict[int, dict[str, float]]:
    """The time of each arm over that of a plain step, for each number of threads."""
    best: dict[int, dict[str, float]] = {threads: {} for threads in THREADS}
    names: Sequence[str] = ARMS
    for _ in range(PROCESSES):
        found = json.loads(_alone(f"report_times({name!r}, {tuple(names)!r})", **KEPT).stdout)
        for threads, times in best.items():
            for arm, seconds in found[str(threads)].items():
                times[arm] = min(times.get(arm, seconds), seconds)
        names = [each for each in names if any(_near(times, each) for times in best.values())]
    return {
        threads: {arm: seconds / times["plain"] for arm, seconds in times.items() if arm != "plain"}
        for threads, times in best.items()
    }


def _near(times: dict[str, float], arm: str) -> bool:
    """Whether an arm takes less than twice as long as a plain step."""
    return times.get(arm, math.inf) < 2 * times["plain"]


def report_times(name: str, names: Sequence[str]) -> None:
    """Prints the seconds of each arm's best step, for each record, by the number of threads."""
    steps = arms(CASES[name], names)
    print(json.dumps({threads: _times(steps, threads) for threads in THREADS}))


def _times(steps: dict[str, Step], threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    best = dict.fromkeys(steps, math.inf)

    def turns(names: list[str], count: int) -> None:
        for name in [name for name in names for _ in range(count)]:
            start = clock()
            records = steps[name]()
            best[name] = min(best[name], (clock() - start) / records)

    turns(list(steps), TRIAL)
    fast = [name for name in steps if _near(best, name)]
    turns(fast, max(2, math.ceil(TURN / _seconds(steps["plain"]))))
    return best


def _alone(call: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process of its own prints that calls a function of this module."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"from benchmarks.gradients import *; {call}"],
        capture_output=True, text=True, env={**os.environ, **environment}, check=False,
    )  # fmt: skip


def peak(name: str, make: str) -> float:
    """The peak memory of a few steps in a process of its own, over that before the first."""
    call = f"report_peak({name!r}, {make})"
    run = _alone(call, OMP_NUM_THREADS="1", MALLOC_MMAP_THRESHOLD_="131072")
    return float(json.loads(run.stdout)) if run.returncode == 0 else float("nan")


def report_peak(name: str, make: Callable[[Case], Step]) -> None:
    """Prints how many kilobytes a step takes at most, for each record, over what was there."""
    case = CASES[name]
    make(case)()
    arm = make(case)
    gc.collect()
    before, most = _memory("VmRSS"), 0.0
    for _ in range(4):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        records = arm()
        most = max(most, (_memory("VmHWM") - before) / records)
    print(most)


def _memory(field: str) -> int:
    """A field of this process' memory in kilobytes, as Linux has it."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def selftest_share(case: Case, steps: int = 1000) -> float:
    """The time of self-tests in a run of so many steps, over that of the run."""
    from dosimeter.training.onepass import module

    first = private(case)
    for _ in range(2 * module.FIRST):
        first()  # libraries are loaded by a run of another model
    step, count = private(case), module.FIRST
    start = time.perf_counter()
    for _ in range(count):
        step()
    tested = (time.perf_counter() - start) / count
    best = min(_seconds(step) for _ in range(8))
    extra = max(0.0, tested - best) * (count + (steps - count) / module.ONE_IN)
    return extra / (steps * best)


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def run() -> list[Result | Table]:
    """All figures of per-record gradients, on one thread and on two."""
    before, results = torch.get_num_threads(), []
    rows: list[tuple[str, ...]] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, case in CASES.items():
                for threads, found in ratios(name).items():
                    shown = [f"{found[arm]:.2f}" if arm in found else "refused" for arm in ARMS]
                    rows.append((name, str(threads), *shown))
                    label = f"a step over a plain one, {name}, {threads} thread(s)"
                    results.append(Result.at_most(label, found["ours"], case.time, "times"))
                torch.set_num_threads(1)
                memory = peak(name, "private") / peak(name, "plain")
                label = f"peak memory over a plain step's, {name}"
                results.append(Result.at_most(label, memory, case.memory, "times"))
                label = f"self-tests in a run of 1,000 steps, {name}"
                results.append(Result.at_most(label, 100 * selftest_share(case), 1.0, "%"))
    finally:
        torch.set_num_threads(before)
    title = (
        "A private step over a plain one, ours and Opacus': the best steps of three processes that "
        "keep freed memory, on one thread in processor time. Arms beyond twice a plain step had "
        "two steps in one process"
    )
    return [*results, Table(title, ("network", "threads", *ARMS), tuple(rows))]


if __name__ == "__main__":
    for each in run():
        print(each.markdown if isinstance(each, Table) else f"{each.name}: {each.value:.3g}")
