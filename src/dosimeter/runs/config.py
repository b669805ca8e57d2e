# SPDX-License-Identifier: Apache-2.0
"""Config: what a training run is, table by table, each checked by itself.

Every check names the key it is about, so that whoever wrote the file finds the place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from dosimeter import arguments
from dosimeter.data.tables import class_names
from dosimeter.nearest import first

MODELS = ("linear", "mlp", "cnn", "features")
EXTRACTORS = ("random",)


Bounds = list[float] | list[list[float]] | dict[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """[data]: what to train on, and which records are public.

    Attributes:
        kind: What it is.
        path: Where it is; the digits come with scikit-learn.
        label: The column of labels of a CSV.
        classes: The classes of a table: their names, or how many.
        bounds: The least and the greatest value of a table: one pair for all columns, a pair
            for each, or by the name of the column.
        public_test: Declares the test part of the data public, to show accuracy on it.
        public_share: Sets this share of the records aside and declares them public.
    """

    kind: Literal["csv", "npz", "digits"]
    path: str | None = None
    label: str | None = None
    classes: int | list[str] | None = None
    bounds: Bounds | None = None
    public_test: bool = False
    public_share: float | None = None

    def __post_init__(self) -> None:
        tables = ("csv", "npz")
        _require("data.path", self.path, self.kind != "digits", f"for {self.kind}")
        _require("data.label", self.label, self.kind == "csv", f"for {self.kind}")
        _require("data.classes", self.classes, self.kind in tables, f"for {self.kind}")
        if self.classes is not None:
            try:
                class_names(self.classes)
            except ValueError as error:
                raise ValueError(f"data.{error}") from error
        if self.bounds is not None:
            if self.kind not in tables:
                raise ValueError(
                    f"data.bounds must be left out for {self.kind}, got {self.bounds!r}"
                )
            _require_pairs(self.bounds)
        if self.public_share is not None:
            arguments.open_unit("data.public_share", self.public_share)
            if self.public_test:
                raise ValueError(
                    "data.public_share must be left out together with public_test, got both"
                )

    @property
    def declares_public(self) -> bool:
        """Whether some records are declared public."""
        return self.public_test or self.public_share is not None


@dataclass(frozen=True, kw_only=True)
class ModelTable:
    """[model]: a network by name, or "module:factory"; and what shapes it.

    Attributes:
        kind: One of MODELS, or "module:factory".
        hidden: Units in the hidden layer of an mlp.
        extractor: What makes the frozen features: one of EXTRACTORS, or "module:factory".
    """

    kind: str
    hidden: int | None = None
    extractor: str | None = None

    def __post_init__(self) -> None:
        one_of("model.kind", self.kind, MODELS)
        if self.hidden is not None:
            _require("model.hidden", self.hidden, self.kind == "mlp", f"for {self.kind}")
            arguments.count("model.hidden", self.hidden)
        features = self.kind == "features"
        _require("model.extractor", self.extractor, features, f"for {self.kind}")
        if self.extractor is not None:
            one_of("model.extractor", self.extractor, EXTRACTORS)


@dataclass(frozen=True, kw_only=True)
class BudgetTable:
    """[budget]: a filter, an odometer, or a budget in a ledger.

    Attributes:
        kind: Which of them.
        epsilon: The epsilon that a filter never passes.
        delta: The delta of a filter or an odometer.
        ledger: The database of a ledger, as `dosimeter budget --db` has it; DOSIMETER_DB in
            the environment by default.
        name: The name of the budget in the ledger.
        menu: Whether a filter or an odometer prices beforehand what the run can ask for, which
            needs less noise; see docs/prices.md.
    """

    kind: Literal["filter", "odometer", "ledger"]
    epsilon: float | None = None
    delta: float | None = None
    ledger: str | None = None
    name: str | None = None
    menu: bool = True

    def __post_init__(self) -> None:
        what = f"for a budget of kind {self.kind}"
        shared = self.kind == "ledger"
        _require("budget.epsilon", self.epsilon, self.kind == "filter", what)
        _require("budget.delta", self.delta, not shared, what)
        if self.ledger is not None and not shared:
            raise ValueError(f"budget.ledger must be left out {what}, got {self.ledger!r}")
        _require("budget.name", self.name, shared, what)
        if self.epsilon is not None:
            arguments.positive("budget.epsilon", self.epsilon)
        if self.delta is not None:
            arguments.open_unit("budget.delta", self.delta)


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """[training]: DP-SGD; under a filter all of it may be left out, and is chosen as `fit` does.

    Attributes:
        epochs: How many at most; as many as make 400 steps by default.
        batch_size: Expected number of records in a step; from their number by default.
        noise_multiplier: Noise over the clipping norm. Under a filter it may be left out: the
            least noise with which the budget lasts for the epochs is taken.
        max_grad_norm: What the gradient of each record is clipped to. Without it all are given
            the same length.
        learning_rate: Of SGD. Without it, one that follows what gradients show.
        momentum: Of SGD; 0 with a learning rate, 0.9 without one.
        physical_batch_size: The most records held at once; all of a step by default.
        seed: Makes the run repeatable and its noise predictable.
    """

    epochs: int | None = None
    batch_size: int | None = None
    noise_multiplier: float | None = None
    max_grad_norm: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    physical_batch_size: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for key in ("epochs", "batch_size", "physical_batch_size"):
            if getattr(self, key) is not None:
                arguments.count(f"training.{key}", getattr(self, key))
        for key in ("noise_multiplier", "max_grad_norm", "learning_rate"):
            if getattr(self, key) is not None:
                arguments.positive(f"training.{key}", getattr(self, key))
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise ValueError(f"training.momentum must be from 0 to below 1, got {self.momentum!r}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"training.seed must be from 0 to below 2**63, got {self.seed!r}")


@dataclass(frozen=True, kw_only=True)
class PolicyTable:
    """[policy]: how noise or batches adapt to the signal; see docs/training.md.

    Attributes:
        kind: Which policy.
        step: How much changes at a time.
        every: How many epochs lie between two readings.
        horizon: Adapt only while the budget would last for more epochs than this.
        levels: How many times adapt_noise may add noise.
        start: The noise that lower_noise begins with.
        minimum: The smallest batch of adapt_batch, or the least noise of lower_noise.
    """

    kind: Literal["adapt_noise", "adapt_batch", "lower_noise"]
    step: float | None = None
    every: int | None = None
    horizon: int | None = None
    levels: int | None = None
    start: float | None = None
    minimum: float | None = None

    def __post_init__(self) -> None:
        for key, value in self.given.items():
            if key not in _POLICY_KEYS[self.kind]:
                raise ValueError(f"policy.{key} must be left out for {self.kind}, got {value!r}")
            if key in ("every", "horizon", "levels") or self.kind == "adapt_batch":
                arguments.count(f"policy.{key}", _whole(value))
            else:
                arguments.positive(f"policy.{key}", value)

    @property
    def given(self) -> dict[str, float]:
        """The values that were given, as the policy takes them."""
        values = {key: getattr(self, key) for key in sorted(set().union(*_POLICY_KEYS.values()))}
        whole = self.kind == "adapt_batch"
        return {
            key: _whole(value) if whole else value
            for key, value in values.items()
            if value is not None
        }


_POLICY_KEYS = {
    "adapt_noise": {"step", "every", "horizon", "levels"},
    "adapt_batch": {"step", "every", "horizon", "minimum"},
    "lower_noise": {"step", "every", "start", "minimum"},
}


@dataclass(frozen=True, kw_only=True)
class SignalTable:
    """[signal]: what the policy and the stop rule read.

    Attributes:
        kind: The count of correct records, or the mean loss.
        noise_multiplier: Noise over what one record can add; more is cheaper.
        bound: The largest loss that counts.
        public: Reads the public records instead, exactly and at no cost.
    """

    kind: Literal["correct_count", "mean_loss"] = "correct_count"
    noise_multiplier: float = 100.0
    bound: float | None = None
    public: bool = False

    def __post_init__(self) -> None:
        arguments.positive("signal.noise_multiplier", self.noise_multiplier)
        if self.bound is not None:
            arguments.positive("signal.bound", self.bound)
            if self.kind != "mean_loss":
                raise ValueError(f"signal.bound must be left out for {self.kind}")


@dataclass(frozen=True, kw_only=True)
class StopTable:
    """[stop]: when to end early.

    Attributes:
        target: The share of correct records, or the mean loss, that is good enough.
        patience: After how many readings without a rise to end.
        every: How many epochs lie between two readings.
    """

    target: float | None = None
    patience: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        if self.target is None and self.patience is None:
            raise ValueError("stop must hold a target or patience, got neither")
        if self.target is not None:
            arguments.positive("stop.target", self.target)
        if self.patience is not None:
            arguments.count("stop.patience", self.patience)
        arguments.count("stop.every", self.every)


@dataclass(frozen=True, kw_only=True)
class OutputTable:
    """[output]: where the results go; the folder must be new."""

    folder: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run."""

    data: DataTable
    model: ModelTable
    budget: BudgetTable
    output: OutputTable
    training: TrainingTable = TrainingTable()
    policy: PolicyTable | None = None
    signal: SignalTable | None = None
    stop: StopTable | None = None

    def __post_init__(self) -> None:
        noise, lowers = self.training.noise_multiplier, False
        if self.policy is not None:
            lowers = self.policy.kind == "lower_noise"
        if noise is not None and lowers:
            raise ValueError(
                "training.noise_multiplier must be left out for lower_noise, which begins with "
                f"policy.start, got {noise!r}"
            )
        if noise is None and not lowers and self.budget.kind != "filter":
            raise ValueError(
                "training.noise_multiplier must be given, for only a filter of this run's own "
                f"says how much noise fits, got a budget of kind {self.budget.kind}"
            )
        if self.signal is not None:
            if self.policy is None and self.stop is None:
                raise ValueError("signal must come with policy or stop, which read it, got neither")
            if self.signal.public and not self.data.declares_public:
                raise ValueError(
                    "signal.public must be false unless data.public_test or data.public_share "
                    "declares some records public, got true"
                )


def one_of(key: str, value: str, names: tuple[str, ...]) -> None:
    """Raises unless a value is one of the names, or of the form "module:factory"."""
    module, _, factory = value.partition(":")
    if value not in names and not (module and factory.isidentifier()):
        raise ValueError(f"{key} must be {', '.join(names)} or 'module:factory', got {value!r}")


def _require(key: str, value: object, wanted: bool, what: str) -> None:
    if wanted and value is None:
        raise ValueError(f"{key} must be given {what}")
    if not wanted and value is not None:
        raise ValueError(f"{key} must be left out {what}, got {value!r}")


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _require_pairs(bounds: Bounds) -> None:
    pairs: dict[str, Any]
    if isinstance(bounds, dict):
        pairs = {f" for {name!r}": pair for name, pair in bounds.items()}
    elif bounds and isinstance(bounds[0], list):
        pairs = {f" in place {place}": pair for place, pair in enumerate(bounds, 1)}
    else:
        pairs = {"": bounds}
    wrong = [
        f"{pair!r}{where}"
        for where, pair in pairs.items()
        if not (len(pair) == 2 and 0 < pair[1] - pair[0] < math.inf)
    ]
    if wrong or not pairs:
        raise ValueError(
            "data.bounds must be a lower and a higher finite number, or such a pair for each "
            f"column, got {first(wrong, 3)}"
        )
