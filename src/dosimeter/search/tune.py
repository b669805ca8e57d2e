# SPDX-License-Identifier: Apache-2.0
"""tune: a search for good settings, charged as a whole to one gate.

Trials run one after another. After each score the worse trials are dropped and the better ones
go on (successive halving). To drop a trial by its score is an adaptive choice, which a filter
allows, so the guarantee of the whole search is that of the gate.
"""

from __future__ import annotations

import inspect
import math
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.accounting.burned import share_of
from dosimeter.errors import BudgetExceeded, DosimeterError
from dosimeter.rdp import Cost
from dosimeter.rounding import at_most, exact
from dosimeter.search.allowance import Allowance, Measure
from dosimeter.search.space import Space, draw, require_space

_MOST_DRAWS = 100
"""How many draws in a row may be impossible settings, or repeat earlier ones."""

Objective = Callable[[dict[str, Any], Gate], Any]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a search.

    Attributes:
        number: Its place among all trials, from 0.
        settings: What was tried.
        scores: Every score that the objective gave, in order.
        charged: What the trial was charged: how many runs of each cost.
        ended: "completed", "pruned" (dropped or refused), "lost" (an error) or "skipped"
            (impossible settings, at no cost).
        reason: Why, in words; empty for a completed trial.
        result: What the objective gave along with its last score.
    """

    number: int
    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    charged: Mapping[Cost, int]
    ended: str
    reason: str
    result: Any = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """What a search found, and what it cost.

    Attributes:
        best: The winning trial.
        trials: Every trial, in the order in which they began.
        epsilon: Epsilon spent from the gate by the end, rounded up.
        guarantee: What holds for the whole search: for every score and result of every trial.
    """

    best: Trial
    trials: tuple[Trial, ...]
    epsilon: float
    guarantee: object

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the winner."""
        return self.best.settings

    @property
    def score(self) -> float:
        """The last score of the winner."""
        return self.best.scores[-1]

    def __str__(self) -> str:
        rows = [("trial", "settings", "scores", "charged", "ended")]
        rows += [
            (
                str(trial.number),
                _in_words(trial.settings),
                ", ".join(f"{score:.4g}" for score in trial.scores) or "-",
                _charges(trial.charged),
                f"{trial.ended}: {trial.reason}" if trial.reason else trial.ended,
            )
            for trial in self.trials
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        best = f"trial {self.best.number} ({_in_words(self.settings)}), score {self.score:.4g}"
        lines = [f"best: {best}"]
        lines += [f"the whole search: epsilon {at_most(self.epsilon)} spent; {self.guarantee}"]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)


def tune(
    objective: Objective,
    space: Space,
    gate: Gate,
    *,
    trials: int | Sequence[int],
    progress: bool = True,
) -> TuningResult:
    """Search for the settings with the best score.

    Args:
        objective: Called with the settings and the gate of one trial. It must charge that gate
            before it touches data, its score included, and return the score, the larger the
            better, or the pair of a score and a result to keep, such as the model. A generator
            function yields a score (or a pair) whenever the trial could be dropped.
        space: The ranges and lists to draw settings from, by name.
        gate: What all trials are charged to: a filter, or a budget with a limit in a ledger.
        trials: How many trials to run, each to its end. A falling sequence such as (9, 3, 1)
            drops trials: nine begin, the best three go on after their first score, and the best
            one after its second.
        progress: Print a line to the error stream for every score.

    Returns:
        The winner, every other trial, and the guarantee.

    Raises:
        TypeError: An argument is of another kind, or the gate has no limit. Nothing was spent.
        ValueError: An argument is out of range or the budget is used up, and nothing was spent;
            or no trial came to a score.
        DosimeterError: The ledger of the gate failed. What was spent stays spent.

    Guarantee:
        Everything that all trials released is together as private as the gate promises, if the
        objective charges before it touches data, and neither `space` nor an error that it raises
        depends on private records. Each trial has an allowance that the others cannot take.
        A trial that asks for more is pruned; one that raises is lost; what both spent stays spent.
        Settings for which the objective raises before it is charged are skipped at no cost. An
        interrupted search cannot be resumed, and what it spent stays spent.

    Example:
        >>> import dosimeter as dm
        >>> from dosimeter.search import Uniform, tune
        >>> def objective(settings, gate):
        ...     gate.spend(dm.Gaussian(30.0))  # before the data are touched
        ...     return -((settings["rate"] - 0.3) ** 2)
        >>> budget = dm.Filter(epsilon=2, delta=1e-6)
        >>> found = tune(objective, {"rate": Uniform(0, 1)}, budget, trials=20, progress=False)
        >>> len(found.trials), found.epsilon < 2
        (20, True)
    """
    if not callable(objective):
        raise TypeError(f"objective must be a function of settings and a gate, got {objective!r}")
    require_space(space)
    counts = _counts(trials)
    if len(counts) > 1 and not _yields(objective):
        raise TypeError(
            "objective must be a generator function, which yields its scores, where trials are "
            f"dropped, got {objective!r}; write yield, or give trials as one number"
        )
    return _Search(objective, dict(space), gate, counts, progress).run()


class _Running:
    """A trial and what is known of it so far."""

    def __init__(
        self, number: int, settings: dict[str, Any], gate: Allowance, objective: Objective
    ) -> None:
        self.number, self.settings, self.gate = number, settings, gate
        self.scores: list[float] = []
        self.rung, self.result = -1, None
        self.ended = self.reason = self.traceback = ""
        self._founds = _founds(objective, dict(settings), gate)

    @property
    def rank(self) -> tuple[int, float, int]:
        """What the best of some trials has most of: how far it came, its score, its age."""
        return self.rung, self.scores[-1], -self.number

    def advance(self, rung: int) -> bool:
        """Run the objective to its next score; return whether there is one."""
        try:
            found = next(self._founds)
            score, self.result = found if isinstance(found, tuple) else (found, None)
            if not math.isfinite(score := float(score)):
                raise ValueError(f"score must be a finite number, got {score!r}")
            self.scores.append(score)
            self.rung = rung
        except StopIteration:
            self.end(*(("completed",) if self.scores else ("lost", "it gave no score")))
        except BudgetExceeded as refusal:
            self.end("pruned", str(refusal))
        except (DosimeterError, OSError):
            raise  # a ledger or a file failed, which is no fault of the settings
        except Exception as error:
            blamed = "lost" if self.gate.spent or self.scores else "skipped"
            # Kept as text: the traceback itself would keep the model of the trial in memory.
            self.traceback = "".join(traceback.format_exception(error))
            self.end(blamed, f"it raised {type(error).__name__}: {error}")
        return not self.ended

    def end(self, how: str, reason: str = "") -> None:
        """End the trial and let go of what it holds."""
        self.ended, self.reason = how, reason
        self._founds.close()

    def trial(self) -> Trial:
        """Return it as a value."""
        return Trial(
            number=self.number,
            settings=self.settings,
            scores=tuple(self.scores),
            charged=Counter(self.gate.spent),
            ended=self.ended,
            reason=self.reason,
            result=self.result,
        )


class _Search:
    """The trials of a search, run rung by rung."""

    def __init__(
        self, objective: Objective, space: Space, gate: Gate, counts: list[int], progress: bool
    ) -> None:
        self._objective, self._space, self._gate = objective, space, gate
        self._counts, self._progress = counts, progress
        self._measure = Measure(gate)
        self._trials: list[_Running] = []
        if not self._share(0, counts[0]) > 0:
            raise ValueError("gate must have budget left, got one that is used up; take another")

    def run(self) -> TuningResult:
        """Run all rungs."""
        try:
            alive = self._begin()
            for rung in range(1, len(self._counts)):
                ranked = sorted(alive, key=lambda one: one.rank, reverse=True)
                alive = ranked[: self._counts[rung]]
                for place, one in enumerate(ranked[len(alive) :], len(alive) + 1):
                    one.end("pruned", f"it was number {place} of {len(ranked)} in rung {rung}")
                allowed = self._share(rung, len(alive))
                for one in alive:
                    one.gate.renew(allowed)
                    self._advance(one, rung)
                alive = [one for one in alive if not one.ended]
        except BaseException as error:
            error.add_note(self._so_far())
            raise
        finally:
            for one in self._trials:
                if not one.ended:
                    one.end("pruned", "the search was interrupted")
        best = self._best()
        if best is None:
            raise self._useless(f"bring one trial to a score, got none from {len(self._trials)}")
        trials = tuple(one.trial() for one in self._trials)
        return TuningResult(
            best=trials[best.number],
            trials=trials,
            epsilon=self._gate.epsilon,
            guarantee=self._trials[0].gate.guarantee(),
        )

    def _begin(self) -> list[_Running]:
        """Run as many trials as asked for to their first scores; return those that can go on."""
        allowed, begun, skipped = self._share(0, self._counts[0]), 0, 0
        tried: set[str] = set()
        while begun < self._counts[0]:
            gate = Allowance(self._gate, allowed, measure=self._measure)
            one = _Running(len(self._trials), self._drawn(tried), gate, self._objective)
            self._trials.append(one)
            self._advance(one, 0)
            if one.ended != "skipped":
                begun, skipped = begun + 1, 0
            elif (skipped := skipped + 1) == _MOST_DRAWS:
                raise self._useless(f"accept some settings of space, got {skipped} errors in a row")
        return [one for one in self._trials if not one.ended]

    def _advance(self, one: _Running, rung: int) -> None:
        """Run a trial to its next score, or to its end in the last rung."""
        while one.advance(rung):
            self._tell(one, f"score {one.scores[-1]:.4g}")
            if rung < len(self._counts) - 1:
                return
        if one.ended != "completed":
            self._tell(one, f"{one.ended}, {one.reason}")

    def _share(self, rung: int, trials: int) -> Fraction:
        """Return the share of the budget for each trial of a rung.

        What is left is split over the rungs to come, then evenly over the trials of this one, so
        the last trials get all that is left. The rungs weigh what they cost where a trial trains
        longer in proportion as fewer go on.
        """
        left = 1 - Fraction(share_of(self._gate) or 0.0)
        grown = [1 - Fraction(less, more) for more, less in pairwise(self._counts)]
        weights = [Fraction(1), *grown][rung:]
        return left * weights[0] / sum(weights) / max(1, trials)

    def _drawn(self, tried: set[str]) -> dict[str, Any]:
        """Draw settings; none is tried twice while others are left."""
        for _ in range(_MOST_DRAWS):
            settings = draw(self._space)
            if repr(settings) not in tried:
                break
        tried.add(repr(settings))
        return settings

    def _best(self) -> _Running | None:
        scored = [one for one in self._trials if one.scores and one.ended != "lost"]
        return max(scored, key=lambda one: one.rank, default=None)

    def _so_far(self) -> str:
        """Return what an interrupted search leaves behind, in words."""
        words, best = f"the search ended after {len(self._trials)} trials", self._best()
        if best is not None:
            words += f"; the best score was {best.scores[-1]:.4g}, of {_in_words(best.settings)}"
        return f"{words}; what it spent stays spent"

    def _useless(self, words: str) -> ValueError:
        """Return the error of a search without a winner, with its last trial's traceback."""
        last = self._trials[-1]
        why = f"the last was {last.ended}: {last.reason}; what was spent stays spent"
        error = ValueError(f"objective must {words}; {why}")
        if last.traceback:
            error.add_note(last.traceback)
        return error

    def _tell(self, one: _Running, words: str) -> None:
        if self._progress:
            spent = f"epsilon {at_most(self._gate.epsilon)} of {exact(self._measure.limit)}"
            line = f"trial {one.number} ({_in_words(one.settings)}): {words}; {spent}"
            print(line, file=sys.stderr, flush=True)


def _founds(
    objective: Objective, settings: dict[str, Any], gate: Gate
) -> Generator[Any, None, None]:
    """Yield what an objective gives, once or many times."""
    found = objective(settings, gate)
    if inspect.isgenerator(found):
        yield from found
    else:
        yield found


def _counts(trials: int | Sequence[int]) -> list[int]:
    """Return how many trials reach each rung."""
    if not isinstance(trials, Sequence):
        return [arguments.count("trials", trials)]
    counts = [arguments.count("trials", count) for count in trials]
    if not counts or any(more <= less for more, less in pairwise(counts)):
        raise ValueError(f"trials must fall from rung to rung, as (9, 3, 1), got {trials!r}")
    return counts


def _yields(objective: Objective) -> bool:
    return any(map(inspect.isgeneratorfunction, (objective, type(objective).__call__)))


def _in_words(settings: Mapping[str, Any]) -> str:
    shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in settings.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _charges(charged: Mapping[Cost, int]) -> str:
    counts: Counter[str] = Counter()
    for cost, count in charged.items():
        counts[type(cost).__name__] += count
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"
