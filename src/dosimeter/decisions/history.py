# SPDX-License-Identifier: Apache-2.0
"""History: one record an epoch, saved as JSON, and enough to replay a policy's choices."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dosimeter import arguments
from dosimeter.accounting import Gate, Guarantee
from dosimeter.decisions.controls import Rehearsal
from dosimeter.decisions.policy import Policy
from dosimeter.decisions.rates import RateRule
from dosimeter.decisions.readings import Reading
from dosimeter.decisions.settings import StepSettings
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.notebook import card, curve
from dosimeter.rdp import Gaussian
from dosimeter.rounding import at_most, share_words

_VERSION = 1


@dataclass(frozen=True)
class Epoch:
    """What one epoch did; accuracy and loss are those on public data, if there was any.

    Attributes:
        epoch: Counted from 1.
        steps: How many steps it took.
        epsilon: Epsilon spent by its end.
        noise_multiplier: The noise of its steps.
        batch_size: The expected batch size of its steps.
        accuracy: On public data.
        loss: On public data.
        signal: The reading that policies saw after it.
        seconds: How long it took.
        learning_rate: What a rule had made of it by its end; None where none sets it.
        evidence: What that rule has seen, step by step: norms of released gradients.
        spent_share: The share of the gate's limit used up by its end, by the gate's own measure,
            which goes on rising where epsilon already reads the limit; None without a limit.
    """

    epoch: int
    steps: int
    epsilon: float
    noise_multiplier: float
    batch_size: int
    accuracy: float | None
    loss: float | None
    signal: Reading | None
    seconds: float
    learning_rate: float | None = None
    evidence: tuple[float, ...] = ()
    spent_share: float | None = None


@dataclass
class History:
    """The epochs of a run, why it ended, and what is guaranteed about it.

    Attributes:
        records: How many records it was about.
        epochs: What each epoch did.
        ended: Why the last one was the last.
        guarantee: What is guaranteed, in words.
        promise: The same as data; None where the gate had words alone, or the run goes on.
        began: What the rule for the learning rate was told before the first step; None without one.
    """

    records: int
    epochs: list[Epoch] = field(default_factory=list)
    ended: str = ""
    guarantee: str = ""
    promise: Guarantee | None = None
    began: dict[str, float] | None = None

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, index: int) -> Epoch:
        return self.epochs[index]

    @property
    def epsilon(self) -> float:
        """Epsilon spent by the end of the last epoch."""
        return self.epochs[-1].epsilon if self.epochs else 0.0

    @property
    def spent_share(self) -> float | None:
        """The share of the gate's limit used up by then; None without a limit."""
        return self.epochs[-1].spent_share if self.epochs else None

    @property
    def accuracy(self) -> float | None:
        """Accuracy on public data after the last epoch."""
        return self.epochs[-1].accuracy if self.epochs else None

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return sum(epoch.steps for epoch in self.epochs)

    def report(self, path: str | os.PathLike[str], *, name: str = "training") -> None:
        """Writes an HTML page about the run, as `dosimeter report` does.

        Args:
            path: The page to write; it needs no other file and no network.
            name: What the run is called there.
        """
        # Pages are made of histories, so nothing here may depend on them before one is wanted.
        pages = importlib.import_module("dosimeter.report")
        pages.write_history(self, path, name=name)

    def __repr__(self) -> str:
        return f"History({', '.join(self._lines())})"

    def _repr_html_(self) -> str:
        shares = [epoch.spent_share for epoch in self.epochs if epoch.spent_share is not None]
        known = len(shares) == len(self.epochs)
        chart = curve(shares if known else [epoch.epsilon for epoch in self.epochs])
        what = "used up" if known else "epsilon"
        below = f"<div style='opacity:.8'>{what} by epoch</div>" if chart else ""
        return card("training run", self._lines()) + chart + below

    def _lines(self) -> list[str]:
        """How it went, in a few words each."""
        lines = [
            f"{len(self):,} epochs",
            f"{self.steps:,} steps on {self.records:,} records",
            f"epsilon {at_most(self.epsilon)}",
        ]
        if self.spent_share is not None:
            lines.append(f"{share_words(self.spent_share)} of the budget used up")
        if self.accuracy is not None:
            lines.append(f"public accuracy {self.accuracy:.1%}")
        return [*lines, f"ended because {self.ended}"] if self.ended else lines

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the history as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.state(), file, indent=1)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """The history that `save` wrote.

        Raises:
            StateError: The file holds something else.
        """
        with open(path, encoding="utf-8") as file:
            try:
                state = json.load(file)
            except (ValueError, RecursionError) as error:
                raise StateError(f"state must be that of a history: {error}") from error
        return cls.from_state(state)

    def state(self) -> dict[str, Any]:
        """The history as plain JSON values."""
        promise = None if self.promise is None else self.promise.plain()
        return {"version": _VERSION, **dataclasses.asdict(self), "promise": promise}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> History:
        """The history that `state` described.

        Raises:
            StateError: It describes something else.
        """
        try:
            fields = dict(state)
            if (version := fields.pop("version")) != _VERSION:
                raise ValueError(f"version {version!r}, not {_VERSION}")
            _require_fields(cls, fields)
            promise, began = fields["promise"], fields["began"]
            return cls(
                records=_whole(fields["records"]),
                epochs=[_epoch(values) for values in fields["epochs"]],
                ended=str(fields["ended"]),
                guarantee=str(fields["guarantee"]),
                promise=None if promise is None else Guarantee.from_plain(promise),
                began=None if began is None else _numbers(began),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StateError(f"state must be that of a history: {error}") from error

    def replay(
        self, policies: Policy | Sequence[Policy], gate: Gate
    ) -> list[tuple[float, int, str | None]]:
        """What the policies choose when they see these readings again.

        Args:
            policies: Fresh ones, made as they were for the run.
            gate: A fresh one, made as it was; it is charged as it was then.

        Returns:
            Noise, batch size, and why training stopped (or None), after each epoch.
        """
        if not self.epochs:
            return []
        policies = [policies] if isinstance(policies, Policy) else list(policies)
        first = self.epochs[0]
        again = Rehearsal(
            gate, StepSettings(first.noise_multiplier, first.batch_size, self.records)
        )
        for policy in policies:
            policy.begin(again)
        return [_repeat(again, epoch, policies) for epoch in self.epochs]

    def replay_rates(self, rule: RateRule) -> list[float]:
        """What a rule makes of the learning rate, epoch by epoch, when it sees all this again.

        Args:
            rule: A fresh one, made as it was for the run.

        Raises:
            ValueError: The run had no rule for its rate.
        """
        if self.began is None:
            raise ValueError(
                "history must be of a run with a rule for its learning rate, got one without"
            )
        rule.begin(**self.began)  # type: ignore[arg-type]
        found = []
        for epoch in self.epochs:
            for evidence in epoch.evidence:
                rule.update(evidence)
            found.append(rule.rate)
        return found


def _repeat(
    again: Rehearsal, epoch: Epoch, policies: Iterable[Policy]
) -> tuple[float, int, str | None]:
    settings = StepSettings(epoch.noise_multiplier, epoch.batch_size, again.records)
    try:
        for _ in range(epoch.steps):
            again.gate.spend(settings.cost)
        if epoch.signal is not None:
            if epoch.signal.noise_multiplier > 0:
                again.gate.spend(Gaussian(epoch.signal.noise_multiplier))
            for policy in policies:
                if policy.due(epoch.epoch):
                    policy.update(again, epoch.signal)
    except BudgetExceeded as error:
        raise StateError(f"gate must hold what the run had spent: {error}") from error
    return again.noise_multiplier, again.batch_size, again.stopped


def _require_fields(kind: type[History | Epoch], values: Mapping[str, Any]) -> None:
    odd = {field.name for field in dataclasses.fields(kind)} ^ set(values)
    if odd:
        raise ValueError(f"{', '.join(sorted(map(str, odd)))} missing or unknown")


def _epoch(values: Mapping[str, Any]) -> Epoch:
    fields = dict(values)
    _require_fields(Epoch, fields)
    signal, accuracy = fields.pop("signal"), fields["accuracy"]
    known = accuracy is not None and not math.isnan(accuracy)
    fields |= {name: _whole(fields[name]) for name in ("epoch", "steps", "batch_size")}
    fields |= {
        "epsilon": charged(fields["epsilon"]),
        "noise_multiplier": float(fields["noise_multiplier"]),
        "accuracy": float(accuracy) if known else None,
        "evidence": tuple(map(float, fields["evidence"])),
        "spent_share": _share(fields["spent_share"]),
    }
    return Epoch(signal=None if signal is None else _reading(signal), **fields)


def _reading(values: Mapping[str, Any]) -> Reading:
    fields = dict(values)
    fields |= {name: float(fields[name]) for name in ("value", "deviation", "noise_multiplier")}
    reading = Reading(**fields | {"records": _whole(fields["records"])})
    if reading.records < 1:
        raise ValueError(f"a reading of {reading.records} records")
    return reading


def charged(value: Any) -> float:
    """An epsilon that a file tells of; what is not a number is no bound at all."""
    epsilon = float(value)
    if epsilon < 0:
        raise ValueError(f"a negative epsilon, {epsilon!r}")
    return math.inf if math.isnan(epsilon) else epsilon


def _share(value: Any) -> float | None:
    """A share that a file tells of; what is not a number is all of it."""
    if value is None:
        return None
    share = float(value)
    if share < 0:
        raise ValueError(f"a negative share, {share!r}")
    return share if share <= 1 else 1.0


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """What a rule for the learning rate is told at the beginning."""
    steps, noise, bound = (values[name] for name in ("steps", "noise", "bound"))
    return {"steps": _whole(steps), "noise": float(noise), "bound": float(bound)}


def _whole(value: Any) -> int:
    number = int(value)
    if abs(number) > arguments.MAX_COUNT:
        raise ValueError("a whole number beyond 2**53")
    return number
