# SPDX-License-Identifier: Apache-2.0
"""Plan: how long trials last and how noisy they are, so that the budget pays for the whole search.

Everything here follows from the config and the number of records, which are public; the plan is
written down before the first spend, and a search that goes on keeps to it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from dosimeter.accounting import Filter
from dosimeter.accounting.calibrate import MOST, calibrated, least
from dosimeter.decisions import StepSettings, filter_for
from dosimeter.decisions.menus import without_menu
from dosimeter.errors import StateError
from dosimeter.files import replaced
from dosimeter.rdp import Cost, Gaussian, SampledGaussian
from dosimeter.rounding import exact
from dosimeter.runs.config import Config
from dosimeter.search.profile import approximate
from dosimeter.search.selection import selection
from dosimeter.search.table import PRICED, Search, batch_of, epochs_of

if TYPE_CHECKING:
    from dosimeter.ledger import Budget

_REDUCTION, _SCORE_SHARE = 3, 0.1

_KEPT = 1 / 128
"""The share of delta that a filter keeps where the rest pays for a selection."""


@dataclass(frozen=True)
class Plan:
    """What a search was begun with.

    Attributes:
        id: Its name in journals.
        noise: The noise of the steps of the config's own setting.
        score_noise: The noise of a score; None where scores are public.
        counts: How many trials reach each rung.
        steps: How many steps the config's own setting has taken by the end of each.
        delta: What pays for a selection as one (epsilon, delta); None for its Rényi curve.
        before: What had been spent from the budget when the search began.
    """

    id: str
    noise: float
    score_noise: float | None
    counts: list[int]
    steps: list[int]
    delta: float | None = None
    before: float = 0.0

    @property
    def score(self) -> Gaussian | None:
        """What a score costs."""
        return None if self.score_noise is None else Gaussian(self.score_noise)

    @property
    def total_steps(self) -> int:
        """How many steps all trials take together, those of dropped ones included."""
        before = [0, *self.steps]
        grown = (after - had for had, after in zip(before, self.steps, strict=False))
        return sum(count * more for count, more in zip(self.counts, grown, strict=True))

    def noise_of(self, config: Config) -> float:
        """The noise of a setting: its own, or that of the plan."""
        return config.training.noise_multiplier or self.noise

    def write(self, path: pathlib.Path) -> None:
        """Writes it down."""
        text = json.dumps(dataclasses.asdict(self), indent=1) + "\n"
        replaced(path, lambda part: part.write_text(text, encoding="utf-8"))

    @classmethod
    def read(cls, path: pathlib.Path) -> Plan:
        """The plan that a search was begun with.

        Raises:
            StateError: There is none, or it is no plan.
        """
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise StateError(f"{path} must be as the search wrote it: {error}") from error


def rungs(trials: int, reduction: int, steps: int) -> tuple[list[int], list[int]]:
    """How many trials reach each rung of successive halving, and after how many steps each.

    The last rung has one trial and all steps; a rung before it is shorter by the reduction.

    Raises:
        ValueError: There are too few steps for so many rungs.
    """
    counts = [trials]
    while counts[-1] > 1:
        counts.append(max(1, counts[-1] // reduction))
    lengths = [steps // reduction ** (len(counts) - 1 - rung) for rung in range(len(counts))]
    if not lengths[0] >= 1:
        raise ValueError(
            f"training.epochs must give at least {reduction ** (len(counts) - 1)} steps for "
            f"{trials} trials in {len(counts)} rungs, got {steps}; begin with fewer trials"
        )
    return counts, lengths


class Planner:
    """Makes the plan of a search.

    Args:
        search: What is asked for.
        records: How many records are trained on.
        budget: The budget, if it is one in a ledger.
        note: Told what someone should know.
        scored: How many records are scored on.
    """

    def __init__(
        self,
        search: Search,
        records: int,
        budget: Budget | None,
        note: Callable[[str], None],
        *,
        scored: int,
    ) -> None:
        training, table = search.config.training, search.table
        batch, epochs = batch_of(training), epochs_of(training)
        if not batch <= records:
            raise ValueError(
                f"training.batch_size must be at most the {records} records to train on, got "
                f"{batch}"
            )
        self._search, self._budget, self._note = search, budget, note
        self._batch, self._records, self._scored = batch, records, scored
        self._apart: float | None = None
        if budget is None:
            epsilon, delta = search.config.budget.epsilon, search.config.budget.delta
            assert epsilon is not None
            assert delta is not None
            self._epsilon, self._delta = epsilon, delta
        else:
            standing = budget.statement()
            self._epsilon, self._delta = standing.limit, standing.delta
        steps = epochs * -(-records // batch)
        if table.method == "best_of":
            self._counts, self._steps = [1], [steps]
        else:
            self._counts, self._steps = rungs(table.trials, table.reduction or _REDUCTION, steps)

    def plan(self) -> tuple[Plan, Filter]:
        """The plan, and a filter that pays for it, of which nothing is spent.

        Raises:
            ValueError: The budget is too small; it is said what it would take.
        """
        given = self._search.config.training.noise_multiplier
        if not self._scores_tell(self._epsilon):
            raise self._useless(f"in {self._scores} scores on {self._scored} records")
        if given is not None and self._fits(self._gate(given), given):
            return self._at(given), self._gate(given)
        if self._search.table.method == "best_of" and self._budget is None:
            # Its filter pays for one selection and little else, so its profile is the price.
            self._apart = _apart(self._delta)
        if given is not None:
            if self._apart is None or not self._fits(self._gate(given), given):
                raise self._too_small(given)
            return self._at(given), self._gate(given)
        noise, gate = self._least()
        if not noise < self._bearable:
            raise self._useless(f"in {self._steps[-1]} steps of {self._batch} records")
        return self._at(noise), gate

    def _least(self) -> tuple[float, Filter]:
        """The least noise with which the budget pays for everything, and the filter that does."""
        if self._search.table.method == "best_of":
            noise = least(lambda tried: self._fits(self._gate(tried), tried))
            if noise is None:
                raise self._too_small(None)
            return noise, self._gate(noise)
        try:
            return calibrated(
                self._epsilon,
                self._delta,
                menu=self._costs if self._menu else None,
                planned=self._planned,
                note=lambda error: self._note(without_menu(error)),
            )
        except ValueError as error:
            raise self._too_small(None) from error

    def step(self, noise: float) -> SampledGaussian:
        """What a step of the config's own setting costs."""
        return StepSettings(noise, self._batch, self._records).cost

    def _at(self, noise: float) -> Plan:
        score = None if self._score is None else self._score.noise_multiplier
        return Plan(secrets.token_hex(6), noise, score, self._counts, self._steps, self._apart)

    @cached_property
    def _score(self) -> Gaussian | None:
        return self._score_of(self._epsilon)

    def _score_of(self, epsilon: float) -> Gaussian | None:
        """A score with the least noise at which all of them keep to their share of a budget."""
        if self._search.table.public:
            return None
        noise = least(lambda tried: self._scores_fit(epsilon, tried))
        assert noise is not None  # or the scores would have told nothing
        return Gaussian(noise)

    def _scores_fit(self, epsilon: float, noise: float) -> bool:
        """Whether all scores keep to their share of a budget at some noise."""
        share = self._search.table.score_share or _SCORE_SHARE
        return Filter(epsilon, self._delta).affordable(Gaussian(noise)) * share >= self._scores

    def _scores_tell(self, epsilon: float) -> bool:
        """Whether scores say more than nothing: a half is off by a half at most, unlooked."""
        most = min(MOST, self._scored / 2)
        return self._search.table.public or self._scores_fit(epsilon, most)

    @property
    def _bearable(self) -> float:
        """The noise from which on the winner's steps say nothing (`require_useful` has why)."""
        return self._batch * math.sqrt(self._steps[-1])

    @property
    def _scores(self) -> int:
        return sum(self._counts)

    @property
    def _total_steps(self) -> int:
        return Plan("", 1.0, None, self._counts, self._steps).total_steps

    @property
    def _menu(self) -> bool:
        varied = {axis.key for axis in self._search.space} & set(PRICED)
        return self._search.config.budget.menu and not varied

    def _costs(self, noise: float) -> list[Cost]:
        return [cost for cost, _ in self._planned(noise)]

    def _planned(self, noise: float, epsilon: float | None = None) -> list[tuple[Cost, int]]:
        """What is run how often at some noise, with scores as another epsilon would have them."""
        table, score = self._search.table, self._score if epsilon is None else None
        if epsilon is not None:
            score = self._score_of(epsilon)
        if table.method == "best_of":
            mean, eta, step = float(table.trials), table.eta or 0.0, self.step(noise)
            chosen = selection(step, self._steps[0], mean=mean, score=score, eta=eta)
            return [(chosen if self._apart is None else approximate(chosen, self._apart), 1)]
        planned: list[tuple[Cost, int]] = [(self.step(noise), self._total_steps)]
        return planned if score is None else [*planned, (score, self._scores)]

    def _gate(self, noise: float) -> Filter:
        if self._menu and self._budget is None and self._search.table.method != "best_of":
            costs = partial(self._costs, noise)
            return filter_for(self._epsilon, self._delta, costs, note=self._note)
        return self._plain(self._epsilon, noise)

    def _plain(self, epsilon: float, noise: float) -> Filter:
        """A filter without a menu; that of a selection is planned for it."""
        if self._apart is not None:
            return Filter(epsilon, _KEPT * self._delta, approx_delta=self._apart)
        if self._search.table.method == "best_of":
            return Filter(epsilon, self._delta, plan=self._planned(noise, epsilon)[0])
        return Filter(epsilon, self._delta)

    def _fits(self, gate: Filter, noise: float, epsilon: float | None = None) -> bool:
        """Whether a filter, and what is left of a budget in a ledger, pay for all of it."""
        try:
            planned = self._planned(noise, epsilon)
        except ValueError:  # so little noise that a trial has no profile
            return False
        for cost, count in planned:
            if not gate.admits(cost, count):
                return False
            if self._budget is not None and not self._budget.admits(cost, count):
                return False
            gate.spend(cost, count)
        return True

    def _enough(self, epsilon: float, noise: float | None) -> bool:
        """Whether an epsilon pays for everything, at some noise or at one that leaves a signal."""
        if not self._scores_tell(epsilon):
            return False
        tried = min(MOST, 0.999 * self._bearable) if noise is None else noise
        return self._fits(self._plain(epsilon, tried), tried, epsilon)

    def _useless(self, where: str) -> ValueError:
        noise = self._search.config.training.noise_multiplier
        needed = least(lambda epsilon: self._enough(epsilon, noise))
        way = "more epsilon" if needed is None else f"epsilon {exact(needed)}"
        way += "" if noise is None else f", with noise_multiplier {exact(noise)},"
        scores = "" if self._search.table.public else ", more records to score on (search.holdout)"
        return ValueError(
            f"{self._key} must leave more signal than noise {where}, got epsilon "
            f"{exact(self._epsilon)}. It takes {way} for anything at all, and several times that "
            f"to search well; or fewer trials{scores}"
        )

    def _too_small(self, noise: float | None) -> ValueError:
        ways = []
        if noise is not None:
            enough = least(lambda tried: self._fits(self._plain(self._epsilon, tried), tried))
            ways += [] if enough is None else [f"noise_multiplier {exact(enough)}"]
        if self._budget is None:
            wide = least(lambda tried: self._enough(tried, noise))
            ways += [] if wide is None else [f"epsilon {exact(wide)}"]
        of = "" if noise is None else f" of noise_multiplier {exact(noise)}"
        steps = self._total_steps
        what = "a selection" if self._search.table.method == "best_of" else "all trials together"
        return ValueError(
            f"{self._key} must pay for {what}, {steps} steps{of} and {self._scores} scores, got "
            f"epsilon {exact(self._epsilon)}; "
            + (f"it fits from {' or '.join(ways)} on" if ways else "take fewer trials or epochs")
        )

    @property
    def _key(self) -> str:
        return "budget.epsilon" if self._budget is None else "budget.name"


def _apart(delta: float) -> float:
    """All of a delta but what a filter keeps, so that both add up to no more than it."""
    kept = _KEPT * delta
    rest = delta - kept
    while Filter(1.0, kept, approx_delta=rest).total_delta > delta:
        rest = math.nextafter(rest, 0.0)
    return rest
