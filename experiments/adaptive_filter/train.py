# SPDX-License-Identifier: Apache-2.0
"""One run: a model trained under a filter, with a policy or without.

The engine's own loop is used, so that averages and the sign rule can follow every step. The
test images are public here: what is measured on them decides nothing.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import (
    AdaptBatch,
    AdaptNoise,
    AveragedIterate,
    CorrectCount,
    LowerNoise,
    Policy,
    PrivateEngine,
    SignRule,
)
from experiments.seeds import Tell

_CHUNK = 1000


def step_cost(arm: dict[str, Any]) -> dm.SampledGaussian:
    """What a step costs as the arm begins."""
    return dm.SampledGaussian(arm["batch_size"] / arm["records"], arm["noise_multiplier"])


def new_filter(arm: dict[str, Any]) -> dm.Filter:
    """The filter of an arm; the plan shapes its tightness, and what follows may differ."""
    plan = arm["plan"]
    planned = step_cost({**arm, **plan}), plan["steps"]
    return dm.Filter(arm["limit"], arm["delta"], plan=planned, cut=0)


def train(
    arm: dict[str, Any],
    model: nn.Module,
    data: TensorDataset,
    test: TensorDataset,
    *,
    seed: int,
    tell: Tell,
) -> dict[str, Any]:
    """Trains until the epochs or the filter end it; gives what was spent and what came out."""
    engine = PrivateEngine(new_filter(arm), seed=seed)
    base = torch.optim.SGD(model.parameters(), lr=arm["lr"], momentum=arm["momentum"])
    private, optimizer, loader = engine.make_private(
        model,
        base,
        data,
        noise_multiplier=arm["noise_multiplier"],
        max_grad_norm=arm["max_grad_norm"],
        batch_size=arm["batch_size"],
        physical_batch_size=arm["physical_batch_size"],
        records=arm["records"],
    )
    loss_fn = engine.private_loss(nn.CrossEntropyLoss())
    average = AveragedIterate(engine, model, decay=arm["average"])
    rule = SignRule(engine, optimizer, **arm["sign_rule"]) if "sign_rule" in arm else None
    watch = _Watch(arm, engine, model, average, test)
    policy = new_policy(arm)
    if policy is not None:
        policy.begin(engine)
    for epoch in range(1, arm["epochs"] + 1):
        before = engine.steps
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(private(x), y).backward()
            optimizer.step()
        if engine.steps == before:
            break
        if policy is not None and policy.due(epoch):
            _adapt(arm, engine, policy, model, data)
        watch.after(epoch, tell)
        if engine.stopped or engine.exhausted:
            break
    return watch.end() | ({} if rule is None else {"lr_factor": round(rule.factor, 3)})


def new_policy(arm: dict[str, Any]) -> Policy | None:
    """The policy of Lécuyer (2021), Section 5, that the arm asks for, if any."""
    kinds = {"noise": AdaptNoise, "batch": AdaptBatch, "lower": LowerNoise}
    chosen = dict(arm.get("policy", {}))
    return kinds[chosen.pop("adapt")](**chosen) if chosen else None


def _adapt(
    arm: dict[str, Any], engine: PrivateEngine, policy: Policy, model: nn.Module, data: Any
) -> None:
    signal = CorrectCount(noise_multiplier=arm["signal_noise"], records=arm["records"])
    try:
        policy.update(engine, signal.read(model, data, gate=engine))
    except dm.BudgetExceeded:
        engine.stop("the filter refused the next reading")


class _Watch:
    """Measures as a run goes on, and sums it up."""

    def __init__(
        self,
        arm: dict[str, Any],
        engine: PrivateEngine,
        model: nn.Module,
        average: AveragedIterate,
        test: TensorDataset,
    ) -> None:
        self._arm, self._engine, self._model = arm, engine, model
        self._average, self._test = average, test
        self._curve: list[dict[str, float]] = []
        self._start, self._epoch = time.process_time(), 0

    def after(self, epoch: int, tell: Tell) -> None:
        """Notes how far the run is; measures now and then."""
        self._epoch = epoch
        if epoch % self._arm["measure_every"] == 0:
            self._measure()
        last = self._curve[-1]["average"] if self._curve else 0.0
        words = f"ε {self._engine.epsilon:.3f} noise {self._engine.noise_multiplier:.3g} "
        words += f"batch {self._engine.batch_size} accuracy {100 * last:.2f} %"
        tell(epoch, self._arm["epochs"], words)

    def end(self) -> dict[str, Any]:
        """All that is kept of the run."""
        if not self._curve or self._curve[-1]["epoch"] != self._epoch:
            self._measure()
        spends = self._engine.state_dict()["spends"]["costs"]
        return {
            "epochs": self._epoch,
            "steps": self._engine.steps,
            "epsilon": round(self._engine.epsilon, 6),
            "last": self._curve[-1]["last"],
            "average": self._curve[-1]["average"],
            "cpu_seconds": round(time.process_time() - self._start, 1),
            "spends": spends,
            "curve": self._curve,
        }

    def _measure(self) -> None:
        with self._average.applied():
            averaged = accuracy(self._model, self._test)
        self._curve.append(
            {
                "epoch": self._epoch,
                "epsilon": round(self._engine.epsilon, 6),
                "last": accuracy(self._model, self._test),
                "average": averaged,
            }
        )


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """The share of records that the model gets right."""
    was_training = model.training
    model.eval()
    x, y = data.tensors
    right = sum(
        int((model(x[start : start + _CHUNK]).argmax(1) == y[start : start + _CHUNK]).sum())
        for start in range(0, len(y), _CHUNK)
    )
    model.train(was_training)
    return right / len(y)
