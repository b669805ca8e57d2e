# SPDX-License-Identifier: Apache-2.0
"""Halving: trials that share one budget, of which the better ones go on from rung to rung.

What is to be done next follows from the scores that are written down, so any number of processes
may work on one search, and one that was killed is gone on with by the next: a trial goes on from
its last checkpoint, for which it has paid, and pays again only for what was lost. Scores are in
Optuna's journal, spends in the ledger's.
"""

from __future__ import annotations

import math
import pathlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch

from dosimeter.accounting import Gate
from dosimeter.decisions import History
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.runs.config import Config
from dosimeter.runs.networks import Network, build
from dosimeter.runs.purse import Noted
from dosimeter.search.allowance import Allowance, Measure, Prepaid
from dosimeter.search.plan import Plan
from dosimeter.search.table import Search, Value
from dosimeter.search.workshop import Lost, Workshop, trained

if TYPE_CHECKING:
    from dosimeter.ledger import Budget

_NAME, _ENDED, _SKIPPED, _LOST, _PAID = "search", "ended", "skipped", "lost ", "paid "
_PATIENCE = 0.2
_MOST_SKIPPED = 200
_REFUSED = "the budget refused more"


@dataclass(frozen=True)
class Unit:
    """One trial to be brought to the end of one rung, held by one process."""

    number: int
    rung: int
    settings: Mapping[str, Value]
    lock: Any


class Halving:
    """Works on a search in a folder; `work` until nothing is left to do.

    Args:
        search: What is asked for.
        plan: What it was begun with.
        folder: Where its files are.
        budget: What is charged.
        workshop: Where trials are trained.
    """

    def __init__(
        self, search: Search, plan: Plan, folder: pathlib.Path, budget: Budget, workshop: Workshop
    ) -> None:
        self.plan, self._folder, self._budget, self._workshop = plan, folder, budget, workshop
        self._measure = Measure(budget)
        self._space = {axis.key: axis.distribution() for axis in search.space}
        self._base = workshop.cost(search.config)
        self.study = _study(folder, search.table.sampler or "tpe")
        (folder / "trials").mkdir(exist_ok=True)

    # -- what is known -------------------------------------------------------------------

    def scores(self) -> dict[tuple[int, int], float]:
        """The score of every trial at every rung that it has reached."""
        found = self.study.user_attrs.items()
        keys = ((key.split(), value) for key, value in found if key.startswith("score "))
        return {(int(number), int(rung)): value for (_, number, rung), value in keys}

    def scored_at(self, number: int) -> int | None:
        """After how many steps a trial was scored last; None where an earlier release did it."""
        rungs = [rung for one, rung in self.scores() if one == number]
        found = self.study.user_attrs.get(f"steps {number} {max(rungs, default=0)}")
        return None if found is None else int(found)

    def settings(self) -> dict[int, dict[str, Value]]:
        """The settings of every trial that was not skipped."""
        trials = self.study.get_trials(deepcopy=False)
        return {t.number: dict(t.params) for t in trials if _SKIPPED not in t.user_attrs}

    def skipped(self) -> list[dict[str, Any]]:
        """The settings that could not be trained, once each, and why; they cost nothing."""
        trials = self.study.get_trials(deepcopy=False)
        found = [
            {"settings": dict(t.params), "reason": t.user_attrs[_SKIPPED]}
            for t in trials
            if _SKIPPED in t.user_attrs
        ]
        return [one for place, one in enumerate(found) if one not in found[:place]]

    def lost(self) -> dict[int, str]:
        """The trials that came to nothing, and why; what they cost stays spent."""
        found = self.study.user_attrs.items()
        return {
            int(key.removeprefix(_LOST)): str(why) for key, why in found if key.startswith(_LOST)
        }

    def members(self, rung: int) -> list[int]:
        """The trials of a rung: all that were begun, or the best of the rung before.

        Where all of those were lost, the next best one stands in.
        """
        scores, lost = self.scores(), self.lost()
        there = sorted(self.settings())[: self.plan.counts[0]]
        for below in range(rung):
            if any((number, below) not in scores and number not in lost for number in there):
                return []
            done = [number for number in there if (number, below) in scores]
            ranked = sorted(done, key=lambda number: (-scores[number, below], number))
            there = ranked[: self.plan.counts[below + 1]]
            if all(number in lost for number in there):
                there = [number for number in ranked if number not in lost][:1]
        return there

    @property
    def ended(self) -> str | None:
        """Why the search ended before its plan did, if it did."""
        said = self.study.user_attrs.get(_ENDED)
        return None if said is None else str(said)

    def winner(self) -> int | None:
        """The trial that went furthest, the best of those; none that was lost."""
        lost = self.lost()
        scores = {at: score for at, score in self.scores().items() if at[0] not in lost}
        best = max(scores, key=lambda at: (at[1], scores[at], -at[0]), default=None)
        return None if best is None else best[0]

    # -- what is done --------------------------------------------------------------------

    def work(self, then: Any = lambda: None) -> None:
        """Takes one unit after another until nothing is left, and tells so after each."""
        while (unit := self._claimed()) is not None:
            try:
                self._run(unit)
            except Lost as loss:
                self._lose(unit.number, str(loss))
            finally:
                unit.lock.release()
            then()

    def _claimed(self) -> Unit | None:
        from filelock import FileLock

        while True:
            with FileLock(self._folder / ".claims"):
                unit, over = self._next()
            if unit is not None or over:
                return unit
            time.sleep(_PATIENCE)  # others are at work, and the next rung waits for their scores

    def _next(self) -> tuple[Unit | None, bool]:
        """A unit that nobody works on, and whether the search is over."""
        if self.ended is not None:
            return None, True
        scores, lost = self.scores(), self.lost()
        for rung, count in enumerate(self.plan.counts):
            members = self.members(rung)
            open_ = [n for n in members if (n, rung) not in scores and n not in lost]
            for number in open_:
                lock = self._lock(number)
                if lock is None:
                    continue
                # Whoever held it may have done it since the scores were read.
                if (number, rung) not in self.scores() and number not in self.lost():
                    return Unit(number, rung, self.settings()[number], lock), False
                lock.release()
            if rung == 0 and len(members) < count:
                number = self._asked()
                return Unit(number, 0, self.settings()[number], self._lock(number)), False
            if open_:
                return None, False
        return None, True

    def _asked(self) -> int:
        """A new trial with settings that can be trained; others are skipped and cost nothing."""
        import optuna

        for _ in range(_MOST_SKIPPED):
            trial = self.study.ask(self._space)
            try:
                if not self.target(self._workshop.settled(trial.params), 0):
                    raise ValueError("its share of the budget pays for no step")
                return int(trial.number)
            except ValueError as error:
                reason = str(error)
                trial.set_user_attr(_SKIPPED, reason)
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise ValueError(
            f"search.space must hold settings that can be trained, got {_MOST_SKIPPED} in a row "
            f"that cannot; the last because {reason}"
        )

    def _lock(self, number: int) -> Any:
        """The lock on a trial, which its process's end opens; None if another holds it."""
        from filelock import FileLock, Timeout

        lock = FileLock(self._checkpoint(number).with_suffix(".lock"), timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return None
        return lock

    def _run(self, unit: Unit) -> None:
        """Pays for a trial's score, trains it to the end of a rung, and writes its score down."""
        config = self._workshop.settled(unit.settings)
        try:
            score = self._paid(unit)
        except BudgetExceeded:
            self.study.set_user_attr(_ENDED, _REFUSED)
            return
        path, cost = self._checkpoint(unit.number), self._workshop.cost(config)
        target = self.target(config, unit.rung)
        ledger = Noted(self._budget, f"search {self.plan.id}, trial {unit.number}")
        kept = _kept(path, ledger)
        # A trial killed between its last step and its score has no step to take, and none to pay.
        gate: Gate = Prepaid({})
        if kept < target:
            share = Fraction(target - kept, self._measure.runs(cost))
            gate = Allowance(ledger, min(share, Fraction(1)), measure=self._measure)
        trial = self._workshop.begun(config, gate, target)
        trial.trainer.resume(path, spends_kept=True)
        steps = trained(trial, target, path)
        if steps < target:
            self.study.set_user_attr(_ENDED, _REFUSED)
        self._use_up(unit)
        with trial.averaged() as network:
            value = self._workshop.score(config, network, score)
        self.study.set_user_attr(f"steps {unit.number} {unit.rung}", steps)
        self.study.set_user_attr(f"score {unit.number} {unit.rung}", value)
        self.study.tell(unit.number, value, skip_if_finished=True)

    def _paid(self, unit: Unit) -> Prepaid:
        """A gate for one score, charged before the steps that lead to it, so that it is there.

        Raises:
            BudgetExceeded: The budget refused it; nothing was trained.
            StateError: One was paid before a kill, and was another, or the ledger forgot it.
        """
        if self.plan.score is None:
            return Prepaid({})
        key = f"{_PAID}{unit.number} {unit.rung}"
        ledger = Noted(self._budget, f"search {self.plan.id}, score of trial {unit.number}")
        paid = self.study.user_attrs.get(key)
        if paid is None or paid["read"]:
            ledger.spend(self.plan.score)
            paid = {"entry": ledger.state(), "noise": self.plan.score_noise, "read": False}
            self.study.set_user_attr(key, paid)
        elif not ledger.holds(paid["entry"]):
            raise _forgotten(self._folder / "study.log")
        elif paid["noise"] != self.plan.score_noise:
            raise StateError(
                f"{self._folder / 'plan.json'} must be as the search wrote it, got scores of noise "
                f"{self.plan.score_noise!r}, where one of noise {paid['noise']!r} was paid"
            )
        return Prepaid({self.plan.score: 1})

    def _use_up(self, unit: Unit) -> None:
        """Writes down that the score which was paid is read, before it is."""
        key = f"{_PAID}{unit.number} {unit.rung}"
        paid = self.study.user_attrs.get(key)
        if paid is not None:
            self.study.set_user_attr(key, {**paid, "read": True})

    def require_remembered(self) -> None:
        """Raises StateError if the ledger has forgotten anything that this search has spent.

        Each entry of a journal holds the hash of the one before, so the last one is enough.
        """
        checkpoints = sorted((self._folder / "trials").glob("*.pt"))
        kept = [(_state(path)["engine"]["gate"], path) for path in checkpoints]
        log, found = self._folder / "study.log", self.study.user_attrs.items()
        kept += [(paid["entry"], log) for key, paid in found if key.startswith(_PAID)]
        if kept:
            entry, path = max(kept, key=lambda one: _place(one[0]))
            if not Noted(self._budget, "").holds(entry):
                raise _forgotten(path)

    def _lose(self, number: int, why: str) -> None:
        """Writes down that a trial came to nothing; to Optuna it is worse than any score."""
        import optuna

        self.study.set_user_attr(f"{_LOST}{number}", why)
        self.study.tell(number, state=optuna.trial.TrialState.PRUNED, skip_if_finished=True)

    def target(self, config: Config, rung: int) -> int:
        """How many steps a run has taken by the end of a rung.

        As many as cost the share of the budget that the config's own setting costs by then.
        """
        runs, base = self._measure.runs(self._workshop.cost(config)), self._measure.runs(self._base)
        return self.plan.steps[rung] * runs // max(1, base)

    def kept(self, number: int) -> tuple[Network, History]:
        """The network that a trial ended with, as it was scored, and its epochs."""
        config, path = self._workshop.settled(self.settings()[number]), self._checkpoint(number)
        network = build(config.model, self._workshop.parts.records)
        state = _state(path)
        network.trained.load_state_dict(state["engine"]["model"])
        average = state.get("average", {"steps": 0})  # an earlier release had none
        if average["steps"]:
            free = [p for p in network.trained.parameters() if p.requires_grad]
            with torch.no_grad():
                for parameter, value in zip(free, average["average"], strict=True):
                    parameter.copy_(value)
        return network, History.from_state(state["history"])

    def _checkpoint(self, number: int) -> pathlib.Path:
        return self._folder / "trials" / f"{number:04}.pt"


def _study(folder: pathlib.Path, sampler: str) -> Any:
    """Optuna's study in the folder; its own words stay unsaid, for the command has its own."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.log"))),
        study_name=_NAME,
        direction="maximize",
        sampler=samplers[sampler](),
        load_if_exists=True,
    )


def _state(path: pathlib.Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:  # bytes that are no checkpoint can raise anything
        raise StateError(f"{path} must be as the search wrote it: {error}") from error


def _place(position: object) -> float:
    """Where in a journal an entry is; what says nothing of it comes last, and no journal has it."""
    match position:
        case {"sequence": int(sequence)}:
            return sequence
    return math.inf


def _kept(path: pathlib.Path, ledger: Noted) -> int:
    """How many steps a checkpoint holds, all of them paid for in this ledger.

    Raises:
        StateError: The ledger does not know of them.
    """
    if not path.exists():
        return 0
    engine = _state(path)["engine"]
    if not ledger.holds(engine["gate"]):
        raise _forgotten(path)
    return int(engine["steps"])


def _forgotten(path: pathlib.Path) -> StateError:
    return StateError(
        f"budget must be the one that {path} was paid from, got one whose journal does not "
        "hold the entry that it names; put back the ledger as it was last"
    )
