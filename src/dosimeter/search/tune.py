# SPDX-License-Identifier: Apache-2.0
"""tune: a search as its config describes it, from the data to the winner in its folder.

The budget is always one in a ledger: that of the config, or one of the search's own in its
folder. So every spend is on the disk before the data are touched, whichever process makes it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import torch

from dosimeter.accounting import Filter
from dosimeter.decisions import History
from dosimeter.decisions.menus import patiently
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.rounding import exact, score_words
from dosimeter.runs.folder import RunFolder
from dosimeter.runs.networks import Network
from dosimeter.runs.purse import Noted, Purse, shared
from dosimeter.runs.run import write_results
from dosimeter.runs.words import Scope
from dosimeter.search.allowance import Prepaid
from dosimeter.search.halving import Halving
from dosimeter.search.plan import Plan, Planner
from dosimeter.search.results import outcome, tried, written
from dosimeter.search.selection import best_of
from dosimeter.search.table import Search, Value, read_search
from dosimeter.search.workshop import Lost, Parts, Workshop, parts, trained

if TYPE_CHECKING:
    from dosimeter.ledger import Budget

_OWN = "search"

_WINNER = (
    "This is the winner of a search, and the promise is that of the whole search: of every step "
    "and every score of every trial. The results are model.safetensors, history.json, run.json and "
    "this page, and in the folder of the search search.json, report.html, plan.json"
)
_PUBLISHED = {
    "halving": f"{_WINNER}, study.log and trials. All of them may be given away, but for what a "
    "model said that raised an error, if one did: that was not released with noise.",
    "best_of": f"{_WINNER}. All of them may be given away, and nothing else: how many trials there "
    "were, how long they took and what the others came to must stay unknown.",
}
Tell = Callable[[str, int, int], None]


def tune(
    search: Search,
    path: pathlib.Path,
    *,
    resume: bool = False,
    processes: int = 1,
    note: Callable[[str], None] = print,
    tell: Tell = lambda words, done, of: None,
) -> dict[str, Any]:
    """Searches as the config says, or goes on, and writes the results.

    Args:
        search: What to do.
        path: The file it was read from; other processes read it again.
        resume: Whether to go on with the search in the folder.
        processes: How many trials to run side by side.
        note: Told what someone should know beforehand.
        tell: Told how far a search is; of one that publishes its best trial only, nothing.

    Returns:
        What search.json holds.
    """
    folder = SearchFolder(search.config.output.folder)
    folder.require(search.text, resume=resume)
    done = folder.path / "search.json"
    if resume and done.is_file():
        note(f"{folder.path} is finished; nothing is left to resume")
        return dict(json.loads(done.read_text(encoding="utf-8")))
    if search.table.method == "best_of":
        note(
            "note: a selection keeps nothing to go on from, so this pays for another one"
            if resume
            else "note: all of it is paid for at the start; once interrupted it cannot go on"
        )
    found = parts(search)
    plan, gate = _priced(search, folder.path, found, note)
    with folder.held(search.text, resume=resume):
        with _budget(search, folder.path, gate) as budget:
            if not folder.checkpoint.exists():
                plan = dataclasses.replace(plan, before=budget.epsilon)
                plan.write(folder.checkpoint)
            workshop = Workshop(search, found, plan)
            if search.table.method == "best_of":
                result = _best_of(search, plan, workshop, budget, folder)
            else:
                result = _halving(search, plan, workshop, budget, folder, path, processes, tell)
            folder.write("search.json", json.dumps(result, indent=1) + "\n")
        if search.table.method == "best_of":
            undated(folder.path)
        return result


def undated(folder: pathlib.Path) -> None:
    """Gives all files of a selection the time of its plan: how long it took tells how many ran."""
    then = (folder / "plan.json").stat().st_mtime
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


class SearchFolder(RunFolder):
    """The folder of a search, which can be gone on with as soon as its plan is there."""

    @property
    def checkpoint(self) -> pathlib.Path:
        """What a search goes on from."""
        return self.path / "plan.json"


def _priced(
    search: Search, folder: pathlib.Path, found: Parts, note: Callable[[str], None]
) -> tuple[Plan, Filter | None]:
    """The plan in the folder, or a new one and the filter that pays for it."""
    if (folder / "plan.json").exists():
        return Plan.read(folder / "plan.json"), None
    if (folder / "study.log").exists():
        raise StateError(
            f"{folder / 'plan.json'} must be there, got a search that has begun without it; put it "
            "back, or search in another folder: what this one spent stays spent"
        )
    own = search.config.budget.kind == "filter"
    with patiently(note), nullcontext() if own else shared(search.config.budget) as budget:
        planner = Planner(
            search, len(found.records.private), budget, note, scored=len(found.scored)
        )
        plan, gate = planner.plan()
    _tell_plan(search, plan, found, note)
    return plan, gate


def _tell_plan(search: Search, plan: Plan, found: Parts, note: Callable[[str], None]) -> None:
    if search.config.training.noise_multiplier is None:
        note(f"note: noise_multiplier {exact(plan.noise)} lets the budget pay for the whole search")
    if plan.score_noise is not None:
        deviation = plan.score_noise / len(found.scored)
        words = f"scores on {len(found.scored)} records have a deviation of {deviation:.1%}"
        few = "; they hardly tell settings apart: give search.score_share more, or try fewer"
        note(f"note: {words}" + (few if deviation > 0.1 else ""))


@contextmanager
def _budget(search: Search, folder: pathlib.Path, gate: Filter | None) -> Iterator[Budget]:
    """The budget of the config, or the search's own, made if it is not there yet."""
    from dosimeter.ledger import Ledger

    asked = search.config.budget
    if asked.kind == "ledger":
        with shared(asked) as budget:
            yield budget
        return
    with Ledger.open(f"sqlite:///{folder / 'budget.db'}") as ledger:
        if _OWN not in ledger:
            assert asked.epsilon is not None
            if gate is None:
                raise StateError(
                    f"{folder / 'budget.db'} must be the ledger that the search began with, got "
                    "one without its budget; put it back as it was last, or search in another "
                    "folder: what this search spent stays spent"
                )
            weights = list(gate.weights)
            ledger.create(
                _OWN,
                asked.epsilon,
                gate.delta,
                approx_delta=gate.approx_delta,
                menu=gate.menu,
                orders=None if gate.menu else list(gate.orders),
                weights=None if gate.menu else weights,
                purpose="dosimeter tune",
            )
        yield ledger[_OWN]


# -- halving ---------------------------------------------------------------------------------


def _halving(
    search: Search,
    plan: Plan,
    workshop: Workshop,
    budget: Budget,
    folder: RunFolder,
    path: pathlib.Path,
    processes: int,
    tell: Tell,
) -> dict[str, Any]:
    halving = Halving(search, plan, folder.path, budget, workshop)
    of = sum(plan.counts)

    def told() -> None:
        scores = halving.scores()
        best = max(scores.values(), default=None)
        words = "" if best is None else f"best score {score_words(best)}, "
        tell(f"{words}epsilon {budget.epsilon:.3f} of {exact(budget.limit)}", len(scores), of)

    halving.require_remembered()
    told()
    if processes == 1:
        halving.work(told)
    else:
        _side_by_side(path, folder.path, processes, told)
    halving.require_remembered()
    number = halving.winner()
    if number is None and halving.lost():
        raise _all_lost([*halving.lost().values()][-1])
    if number is None:
        raise ValueError(
            "budget must pay for one score, got one that refused all of them; dosimeter budget "
            "show says what is left of it"
        )
    network, history = halving.kept(number)
    settings = halving.settings()[number]
    history.ended = halving.ended or "it had won"
    about = tried(halving, plan, budget)
    winner = {
        "trial": number,
        "settings": settings,
        "score": about[number]["rungs"][-1]["score"],
        "scored_at": halving.scored_at(number),
        "steps": history.steps,
    }
    _write_winner(search, plan, workshop, budget, folder, settings, network, history)
    result = outcome(search, plan, workshop, budget, winner, halving.ended or "all rungs were done")
    return {**result, "trials": [*about.values()], "skipped": halving.skipped()}


def _all_lost(why: str) -> ValueError:
    return ValueError(
        "search.space must hold settings of which one can be trained to an end, got trials that "
        f"were all lost, the last because {why}; what they cost stays spent"
    )


def _side_by_side(
    path: pathlib.Path, folder: pathlib.Path, processes: int, told: Callable[[], None]
) -> None:
    """Several processes work on one search; the first that fails ends it for all."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_work, path, folder, processes) for _ in range(processes)}
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            told()
            for one in done:
                one.result()


def _work(path: pathlib.Path, folder: pathlib.Path, processes: int) -> None:
    """What one of several processes does."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    search, plan = read_search(path), Plan.read(folder / "plan.json")
    with _budget(search, folder, None) as budget:
        Halving(search, plan, folder, budget, Workshop(search, parts(search), plan)).work()


# -- private selection -----------------------------------------------------------------------


def _best_of(
    search: Search, plan: Plan, workshop: Workshop, budget: Budget, folder: RunFolder
) -> dict[str, Any]:
    table, gate = search.table, Noted(budget, f"search {plan.id}, the best of many trials")
    cost, steps = workshop.cost(search.config), plan.steps[0]

    def trial(paid: Prepaid) -> tuple[float, tuple[dict[str, Value], Network, History] | Lost]:
        settings = _drawn(search, workshop)
        config = workshop.settled(settings)
        one = workshop.begun(config, paid, steps)
        try:
            trained(one, steps)
            one.average.keep()
            score = workshop.score(config, one.network, paid)
        except Lost as loss:
            return -math.inf, loss
        return score, (settings, one.network, one.trainer.history)

    begun = budget.statement().entries
    try:
        score, best = best_of(
            trial,  # type: ignore[arg-type]  # a prepaid gate is what it gets
            gate,
            cost=cost,
            steps=steps,
            mean=float(table.trials),
            score=plan.score,
            eta=table.eta or 0.0,
            delta=plan.delta,
        )
    except BudgetExceeded as refusal:
        if begun:
            refusal.add_note(
                "what was spent before, perhaps by a selection that was interrupted, stays spent: "
                "search in another folder with a budget that pays for both"
            )
        raise
    if isinstance(best, Lost):
        raise _all_lost(str(best))
    settings, network, history = best
    spent = budget.epsilon
    history.epochs = [dataclasses.replace(e, epsilon=spent, seconds=0.0) for e in history.epochs]
    history.ended = "it was the best"
    _write_winner(search, plan, workshop, budget, folder, settings, network, history)
    winner = {"settings": settings, "score": score}
    return outcome(search, plan, workshop, budget, winner, "the best trial was found")


def _drawn(search: Search, workshop: Workshop) -> dict[str, Value]:
    """Settings from the space by a law that looks at nothing, without those that are impossible."""
    for _ in range(1000):
        settings = {axis.key: axis.draw() for axis in search.space}
        try:
            workshop.settled(settings)
        except ValueError as error:
            reason = str(error)
            continue
        return settings
    raise ValueError(
        f"search.space must hold settings that can be trained, got none in 1,000; the last was "
        f"refused because {reason}"
    )


def _write_winner(
    search: Search,
    plan: Plan,
    workshop: Workshop,
    budget: Budget,
    folder: RunFolder,
    settings: dict[str, Value],
    network: Network,
    history: History,
) -> None:
    """The winner as a run of its own, in the folder `winner`: its epsilon is the whole search's."""
    place = RunFolder(str(folder.path / "winner"))
    place.path.mkdir(exist_ok=True)
    config = search.with_settings({**settings, "output.folder": str(place.path)})
    noise = {"training.noise_multiplier": plan.noise_of(config)}
    text = written(search.tables({**settings, **noise, "output.folder": str(place.path)}))
    promise, kind = budget.guarantee(), search.config.budget.kind
    purse = Purse(Noted(budget, ""), kind, budget.limit, promise.delta)
    history.guarantee, history.promise = str(promise), promise
    place.write("config.toml", text)
    scored = 0 if search.table.public else len(workshop.parts.scored)
    scope = Scope(_PUBLISHED[search.table.method], scored)
    write_results(config, place, workshop.parts.records, network, purse, history, scope)
