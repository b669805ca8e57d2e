# SPDX-License-Identifier: Apache-2.0
"""Runs every arm of an experiment with every seed, in a few processes of one thread each.

A finished run is one JSON file in the cache folder, named by a digest of the arm's settings
and the seed, and is not done again: whatever was interrupted goes on where it was. Each file
says which commit made it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from experiments import cifar, record

Tell = Callable[[int, int, str], None]
"""Takes how many epochs are done, how many there may be, and a few words."""

Run = Callable[[dict[str, Any], int, Tell], dict[str, Any]]
"""Does one run from an arm's settings and a seed, and gives plain values."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_told: Any = None
_commit = ""


def run_all(
    name: str, arms: Mapping[str, dict[str, Any]], seeds: Iterable[int], run: Run, *, jobs: int
) -> dict[str, list[dict[str, Any]]]:
    """Everything that `run` gives, arm by arm in the order of the seeds.

    Args:
        name: The folder for finished runs, below that of the experiments.
        arms: The settings of each arm; all that its outcome depends on, save the seed.
        seeds: The seeds of every arm.
        run: A function at the top of its module, called in another process.
        jobs: How many processes.
    """
    # All arms with the first seed come first, so that an early look shows every arm.
    tasks = [(arm, seed) for seed in seeds for arm in arms]
    paths = {task: place(name, arms[task[0]], task[1]) for task in tasks}
    left = [task for task in tasks if not paths[task].exists()]
    if left:
        for path in {path.parent for path in paths.values()}:
            path.mkdir(parents=True, exist_ok=True)
        _run_left(left, arms, paths, run, jobs, done=len(tasks) - len(left))
    results: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    for task in tasks:
        results[task[0]].append(json.loads(paths[task].read_text()))
    return results


def place(name: str, settings: Mapping[str, Any], seed: int) -> pathlib.Path:
    """Where a run with these settings and this seed is kept."""
    text = json.dumps(settings, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return cifar.folder() / name / f"{digest[:32]}-{seed}.json"


def _run_left(
    left: list[tuple[str, int]],
    arms: Mapping[str, dict[str, Any]],
    paths: Mapping[tuple[str, int], pathlib.Path],
    run: Run,
    jobs: int,
    *,
    done: int,
) -> None:
    # Inherited by the processes, which read them when they load their libraries.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, _bars() as bars:
        told = manager.Queue()
        pool = ProcessPoolExecutor(jobs, spawn, initializer=_start, initargs=(told,))
        overall = bars.add_task("all runs", total=done + len(left), completed=done, said="")
        with pool:
            waiting: set[Future[str]] = {
                pool.submit(_one, run, arm, arms[arm], seed, paths[arm, seed]) for arm, seed in left
            }
            try:
                while waiting:
                    finished, waiting = wait(waiting, 0.5, FIRST_COMPLETED)
                    _show(bars, told)
                    for future in finished:
                        bars.console.print(future.result(), highlight=False)
                        bars.advance(overall)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _one(run: Run, arm: str, settings: dict[str, Any], seed: int, path: pathlib.Path) -> str:
    """Does one run in this process and keeps it; gives a line about it."""
    title = f"{arm} seed {seed}"
    said, start = [""], time.perf_counter()

    def tell(done: int, total: int, words: str) -> None:
        said[0] = words
        _told.put((title, done, total, words))

    result = run(settings, seed, tell)
    seconds = round(time.perf_counter() - start, 1)
    _told.put((title, None, None, ""))
    kept = {"arm": arm, "seed": seed, "commit": _commit, "seconds": seconds, "result": result}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept))
    part.replace(path)
    return f"{title}: {said[0]} ({seconds:.0f} s)"


def _start(told: Any) -> None:
    global _told, _commit
    # Now is when this process loads the code that it runs.
    _told, _commit = told, record.commit(pathlib.Path(__file__).parent)


def _show(bars: Progress, told: Any) -> None:
    """Moves the bars of the runs under way to where they say they are."""
    shown = {task.description: task.id for task in bars.tasks}
    while not told.empty():
        title, done, total, words = told.get()
        if done is None:
            if title in shown:
                bars.remove_task(shown.pop(title))
        elif title in shown:
            bars.update(shown[title], completed=done, total=total, said=words)
        else:
            shown[title] = bars.add_task(title, completed=done, total=total, said=words)


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
    )
