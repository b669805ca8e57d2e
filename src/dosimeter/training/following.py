# SPDX-License-Identifier: Apache-2.0
"""Following: watches released gradients, sets the learning rate by a rule, and tells lost runs.

It reads nothing but what was released, after every step, and so costs no epsilon. A run whose
parameters are no longer finite is ended; one whose gradients cannot be told from noise says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from dosimeter import arguments
from dosimeter.decisions import RateRule, Released
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.optimizer import PrivateOptimizer

_FEW = 50
"""After fewer steps than these no run is called lost."""

_PEAK, _FIRST = 3.3, 9
"""A signal of so many deviations, after so many steps or more, is not noise whatever follows: a
model that has learned quickly shows nothing any more."""


class Following:
    """Follows the steps of an engine from now on.

    Args:
        engine: On which `make_private` was called.
        steps: How many steps are planned.
        rate: Sets the learning rate; None leaves the optimizer's own.

    Raises:
        TypeError: The first rate is no number.
        ValueError: It is negative or not finite.
    """

    def __init__(self, engine: PrivateEngine, *, steps: int, rate: RateRule | None = None) -> None:
        self._engine, self.rate = engine, rate
        self._optimizer: PrivateOptimizer = engine.made[1]
        self._parameters = [
            p for g in self._optimizer.param_groups for p in g["params"] if p.requires_grad
        ]
        self._values = sum(p.numel() for p in self._parameters)
        self._mean: list[torch.Tensor] | None = None
        self._signal, self._seen, self._peak = 0.0, 0, 0.0
        self._evidence: list[float] = []
        self._ended: str | None = None
        self.began: dict[str, float] | None = None
        if rate is not None:
            bound = self._optimizer.max_grad_norm * engine.batch_size
            bound /= self._optimizer.divisor(engine.batch_size)
            noise = self._deviation * math.sqrt(self._values) / bound
            rate.begin(steps=steps, noise=noise, bound=bound)
            self.began = {"steps": steps, "noise": noise, "bound": bound}
            self._set(_usable(rate))
        engine.after_step(self._update)

    @property
    def learning_rate(self) -> float | None:
        """The rate of the next step, where a rule sets it and it can be used."""
        try:
            return None if self.rate is None else _usable(self.rate)
        except (TypeError, ValueError):  # which has ended the run
            return None

    @property
    def trouble(self) -> str | None:
        """Why it ended the run, or why nothing was learned."""
        return self._ended or self.lost

    @property
    def lost(self) -> str | None:
        """Why nothing was learned, if all gradients together cannot be told from noise."""
        # Of nothing but noise the sum over k steps has deviation √k.
        if self._seen < _FEW or self._signal >= math.sqrt(self._seen) or self._peak >= _PEAK:
            return None
        # Where all gradients are given one length there is no norm to choose.
        norm = self._optimizer.clipping is Clipping.FLAT
        far = "the clipping norm is far above them, " if norm else ""
        smaller = "a smaller norm, or none, " if norm else ""
        return (
            f"the gradients of {self._seen} steps could not be told from noise, so the model may "
            f"have learned nothing: they vanish in it, its outputs are not finite, {far}or the "
            f"budget is too small. Try {smaller}inputs scaled to about one, a smaller model or a "
            "larger epsilon"
        )

    def taken(self) -> tuple[float, ...]:
        """What the rule has seen since this was asked last: lengths of released gradients."""
        found, self._evidence = tuple(self._evidence), []
        return found

    def state(self) -> dict[str, Any]:
        """What it remembers, for a checkpoint."""
        return {
            "mean": self._mean,
            "signal": self._signal,
            "seen": self._seen,
            "peak": self._peak,
            "rate": None if self.rate is None else self.rate.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave."""
        self._mean, self._signal, self._seen = state["mean"], state["signal"], state["seen"]
        self._peak, self._evidence = state["peak"], []
        if self.rate is not None and state["rate"] is not None:
            self.rate.restore(state["rate"])
            self._set_or_end()

    @property
    def _deviation(self) -> float:
        """Of the noise in one coordinate of a released gradient."""
        divisor = self._optimizer.divisor(self._engine.batch_size)
        return self._engine.noise_multiplier * self._optimizer.max_grad_norm / divisor

    def _set(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def _set_or_end(self) -> None:
        """Sets the rate of the next step; there is none if the rule gave no rate."""
        assert self.rate is not None
        try:
            self._set(_usable(self.rate))
        except (TypeError, ValueError) as error:
            self._end(f"the {error}, after step {self._engine.steps}")

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._engine.stop(reason)

    @torch.no_grad()
    def _update(self) -> None:
        grads = [p.grad.detach() for p in self._parameters if p.grad is not None]
        square = _dot(grads, grads)
        if self.rate is not None and math.isfinite(square):
            # Digits beyond these decide nothing, and a history holds one of these numbers a step.
            length = float(f"{math.sqrt(square):.4g}")
            self._evidence.append(length)
            self.rate.update(length)
            self._set_or_end()
        if self._mean is None:
            self._mean = [grad.clone() for grad in grads]
        else:
            self._compare(grads, self._mean, square)
        self._end_if_exploded()

    def _compare(self, grads: list[Any], means: list[Any], square: float) -> None:
        """Adds to the signal what a gradient shows, and the gradient to the mean of all so far."""
        noise = self._deviation
        seen = Released(
            product=_dot(grads, means),
            energy=square - self._values * noise**2,
            deviation=noise,
            length=math.sqrt(_dot(means, means)),
            values=self._values,
        )
        self._signal += seen.signal()
        self._seen += 1
        for mean, grad in zip(means, grads, strict=True):
            mean.lerp_(grad, 1 / (self._seen + 1))
        if self._seen >= _FIRST:
            self._peak = max(self._peak, self._signal / math.sqrt(self._seen))

    def _end_if_exploded(self) -> None:
        if not math.isfinite(_dot(self._parameters, self._parameters)):
            self._end(
                f"the parameters were no longer finite after step {self._engine.steps}: lower the "
                "learning rate, or scale inputs and layers so that outputs stay finite"
            )


def _usable(rule: RateRule) -> float:
    """The rate of the next step by a rule, if a step can be taken at it."""
    return arguments.non_negative(f"learning_rate of {type(rule).__name__}", rule.rate)


def _dot(ones: list[Any], others: list[Any]) -> float:
    """The inner product, over all ranks where parameters are cut."""
    total = 0.0
    for one, other in zip(ones, others, strict=True):
        product = (one * other).sum()
        total += float(product.full_tensor() if hasattr(product, "full_tensor") else product)
    return total
