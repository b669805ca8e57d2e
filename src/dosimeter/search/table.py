# SPDX-License-Identifier: Apache-2.0
"""[search]: how settings are searched for, and the space that they come from."""

from __future__ import annotations

import copy
import dataclasses
import math
import pathlib
import random
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dosimeter import arguments
from dosimeter.runs.config import Config, ModelTable, TrainingTable
from dosimeter.runs.reader import (
    blaming,
    config_from,
    kinds_of,
    read_toml,
    require_known,
    table_from,
    typed,
)

_RANGE = ("low", "high", "log")
_TABLES = {"model": ModelTable, "training": TrainingTable}
_FIXED = {
    "training.epochs": "the budget decides how long a trial lasts",
    "training.seed": "equal noise in several trials takes itself off",
}
PRICED = ("training.batch_size", "training.noise_multiplier")
Value = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class SearchTable:
    """[search] but for its space.

    Attributes:
        method: "halving": all trials are charged step by step, and the worse ones end early;
            "best_of": full trials, of a secret number, of which only the best is published.
        trials: How many trials halving begins with, or how many best_of expects.
        reduction: Halving keeps one in so many at each rung, 3 by default.
        sampler: What proposes settings for halving, "tpe" by default.
        eta: The shape of the law of the number of trials for best_of, 0 by default.
        holdout: The share of the private records that scores are read on, 0.2 by default.
        score_share: The share of the budget that pays for scores, 0.1 by default.
        public: Scores the public records instead, exactly and at no cost.
    """

    method: Literal["halving", "best_of"] = "halving"
    trials: int = 27
    reduction: int | None = None
    sampler: Literal["tpe", "random"] | None = None
    eta: float | None = None
    holdout: float | None = None
    score_share: float | None = None
    public: bool = False

    def __post_init__(self) -> None:
        arguments.count("search.trials", self.trials)
        for key in ("reduction", "sampler") if self.method == "best_of" else ("eta",):
            self._leave_out(key, f"for {self.method}")
        for key in ("holdout", "score_share") if self.public else ():
            self._leave_out(key, "for scores on public records")
        if self.reduction is not None and not 2 <= self.reduction <= arguments.MAX_COUNT:
            raise ValueError(f"search.reduction must be at least 2, got {self.reduction!r}")
        for key in ("holdout", "score_share"):
            if getattr(self, key) is not None:
                arguments.open_unit(f"search.{key}", getattr(self, key))
        if self.eta is not None and not -1 < self.eta < math.inf:
            raise ValueError(f"search.eta must be finite and above -1, got {self.eta!r}")

    def _leave_out(self, key: str, what: str) -> None:
        if getattr(self, key) is not None:
            raise ValueError(f"search.{key} must be left out {what}, got {getattr(self, key)!r}")


@dataclass(frozen=True)
class Axis:
    """What one key may be: one of some choices, or a number in a range."""

    key: str
    whole: bool = False
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Value, ...] = ()

    def draw(self) -> Value:
        """A value by the operating system's randomness, looking at nothing."""
        system = random.SystemRandom()
        if self.choices:
            return system.choice(self.choices)
        if self.whole and not self.log:
            return system.randint(int(self.low), int(self.high))
        if not self.log:
            return system.uniform(self.low, self.high)
        half = 0.5 if self.whole else 0.0
        value = math.exp(system.uniform(math.log(self.low - half), math.log(self.high + half)))
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else value

    def distribution(self) -> Any:
        """The same for Optuna."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self.choices)
        if self.whole:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return distributions.FloatDistribution(self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Search:
    """A config with a table [search], read and checked.

    Attributes:
        config: The run that settings are put into; it must be whole by itself.
        table: How to search.
        space: What may vary.
        text: The file.
    """

    config: Config
    table: SearchTable
    space: tuple[Axis, ...]
    text: str
    _values: Mapping[str, Any]

    def tables(self, settings: Mapping[str, Value]) -> dict[str, Any]:
        """The tables of the config with some settings put in."""
        values = copy.deepcopy(dict(self._values))
        for key, value in settings.items():
            table, _, name = key.partition(".")
            values[table][name] = value
        return values

    def with_settings(self, settings: Mapping[str, Value]) -> Config:
        """The run with these settings.

        Raises:
            ValueError: There is no such run.
        """
        return config_from(self.tables(settings))


def read_search(path: pathlib.Path) -> Search:
    """The search that a TOML file describes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not TOML, or a key is unknown, missing or wrong; the line is named.
    """
    values, text = read_toml(path)
    with blaming(path, text):
        asked = values.pop("search", None)
        if not isinstance(asked, dict):
            raise ValueError("search must be given as a table, got none; write [search]")
        space = asked.pop("space", None)
        if not (isinstance(space, dict) and space):
            raise ValueError("search.space must be given, got none; write [search.space]")
        table = table_from(SearchTable, "search", asked)
        config = config_from(values)
        axes = tuple(_axis(key, value) for key, value in _flat(space))
        _require_fit(config, table, axes)
        return Search(config, table, axes, text, values)


def _flat(space: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with their dots, however they were written."""
    for name, value in space.items():
        key = f"{prefix}{name}"
        leaf = not isinstance(value, dict) or not value or (set(value) & set(_RANGE))
        if leaf or key.count("."):
            yield key, value
        else:
            yield from _flat(value, f"{key}.")


def _axis(key: str, value: Any) -> Axis:
    where = f"search.space.{key}"
    table, _, name = key.partition(".")
    require_known("search.space.", [table], _TABLES)
    fields = {field.name: field for field in dataclasses.fields(_TABLES[table])}
    if not name:
        raise ValueError(
            f"{where} must name a key, got the table; such as {key}.{next(iter(fields))}"
        )
    require_known(f"search.space.{table}.", [name], fields)
    if key in _FIXED:
        raise ValueError(f"{where} must be left out: {_FIXED[key]}")
    hint = typing.get_type_hints(_TABLES[table])[name]
    kinds = kinds_of(hint)
    if isinstance(value, list):
        if not value or not all(isinstance(one, bool | int | float | str) for one in value):
            raise ValueError(f"{where} must list one or more values, got {value!r}")
        return Axis(key, choices=tuple(typed(where, hint, one) for one in value))
    if not isinstance(value, dict):
        raise ValueError(
            f"{where} must be a list of choices or a range, {{ low = …, high = … }}, got {value!r}"
        )
    require_known(f"{where}.", value, _RANGE)
    if not {int, float} & set(kinds):
        raise ValueError(f"{where} must be a list of choices, for it is no number, got {value!r}")
    return _range(where, key, value, whole=float not in kinds)


def _range(where: str, key: str, value: Mapping[str, Any], *, whole: bool) -> Axis:
    low, high, log = value.get("low"), value.get("high"), value.get("log", False)
    numbers = [one for one in (low, high) if isinstance(one, int | float) and type(one) is not bool]
    if len(numbers) < 2 or not -math.inf < numbers[0] < numbers[1] < math.inf:
        raise ValueError(f"{where} must have a low and a higher high, got {dict(value)!r}")
    if type(log) is not bool or (log and not numbers[0] > 0):
        raise ValueError(f"{where} must have a low above 0 for log = true, got {dict(value)!r}")
    if whole and not all(isinstance(one, int) for one in numbers):
        raise ValueError(f"{where} must be between whole numbers, got {dict(value)!r}")
    return Axis(key, whole, numbers[0], numbers[1], log)


def batch_of(training: TrainingTable) -> int:
    """The batch size, which a search must be given."""
    return _given("batch_size", training.batch_size)


def epochs_of(training: TrainingTable) -> int:
    """The epochs of the winner, which a search must be given."""
    return _given("epochs", training.epochs)


def _given(key: str, value: int | None) -> int:
    if value is None:
        raise ValueError(f"training.{key} must be given for a search, got none")
    return value


def _require_fit(config: Config, table: SearchTable, space: tuple[Axis, ...]) -> None:
    """Refuses what a search cannot do, by the key that is to be changed."""
    keys = [axis.key for axis in space]
    if config.budget.kind == "odometer":
        raise ValueError(
            "budget.kind must have a limit for a search, so that trials can have a share of it, "
            "got 'odometer'"
        )
    for name in ("policy", "stop", "signal"):
        if getattr(config, name) is not None:
            raise ValueError(f"{name} must be left out of a search, got [{name}]")
    batch_of(config.training)
    epochs_of(config.training)
    if config.training.seed is not None:
        raise ValueError(f"training.seed must be left out: {_FIXED['training.seed']}")
    if table.public and not config.data.declares_public:
        raise ValueError(
            "search.public must be false unless data.public_test or data.public_share declares "
            "some records public, got true"
        )
    if "training.noise_multiplier" in keys and config.training.noise_multiplier is None:
        raise ValueError(
            "training.noise_multiplier must be given beside its range, got none: what it costs "
            "says how long trials last"
        )
    for key in PRICED if table.method == "best_of" else ():
        if key in keys:
            raise ValueError(
                f"search.space.{key} must be left out for best_of, whose trials must all cost "
                "the same; halving takes it"
            )
