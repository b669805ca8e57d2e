# SPDX-License-Identifier: Apache-2.0
"""An analyst asks adaptive noisy queries until a filter says stop.

Finds the median of each of the 30 measurements in scikit-learn's breast cancer data by
bisection on noisy counts. Every choice depends on earlier answers: where to cut next, and
how much noise to pay for (a coarse count first, a finer one only where the coarse one
cannot tell). A filter holds the total to (epsilon, delta) whatever the analyst does; an
odometer beside it reads what stopping now would cost. Writes demo.png.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_breast_cancer

import dosimeter as dm
from dosimeter.accounting.classic import LecuyerOdometer, RdpComposition

EPSILON, DELTA = 2.0, 1e-6
COARSE, FINE = 80.0, 20.0
PICTURE = pathlib.Path("demo.png")

# Upper ends of the scales of mean, error and worst value of the ten measurements: what is
# known about the instrument beforehand, not read off the data.
BOUNDS = [
    *(32.0, 64.0, 256.0, 4096.0, 0.25, 0.5, 0.5, 0.25, 0.5, 0.125),
    *(4.0, 8.0, 32.0, 1024.0, 0.0625, 0.25, 0.5, 0.0625, 0.125, 0.03125),
    *(64.0, 64.0, 256.0, 8192.0, 0.25, 2.0, 2.0, 0.5, 1.0, 0.25),
]


@dataclass
class Curator:
    """Holds the data; answers counts with Gaussian noise after the budget has been charged."""

    data: np.ndarray
    budget: dm.Filter
    rng: np.random.Generator
    watchers: dict[str, dm.Gate]
    readings: dict[str, list[float]] = field(default_factory=dict)
    noises: list[float] = field(default_factory=list)

    def count(self, column: int, below: float, noise: float) -> float:
        """How many records lie below a value; one record changes it by at most one."""
        cost = dm.Gaussian(noise)
        self.budget.spend(cost)
        for name, gate in self.watchers.items():
            gate.spend(cost)
            self.readings.setdefault(name, []).append(gate.epsilon)
        self.readings.setdefault("filter", []).append(self.budget.epsilon)
        self.noises.append(noise)
        true = np.count_nonzero(self.data[:, column] < below)
        return float(true + self.rng.normal(0.0, noise))


def median(curator: Curator, column: int, high: float, half: float) -> float:
    """Bisects [0, high], lowering the noise only where the answer is too close to call."""
    low = 0.0
    noise = COARSE
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        gap = curator.count(column, middle, noise) - half
        if abs(gap) > 2 * noise:
            low, high, noise = (low, middle, COARSE) if gap > 0 else (middle, high, COARSE)
        elif noise > FINE:
            noise /= 2
        else:
            return middle
    return (low + high) / 2


def explore(curator: Curator, names: list[str]) -> list[tuple[str, float]]:
    """Medians of as many columns as the budget allows."""
    # The number of records is private too: one noisy count of all of them pays for it.
    half = curator.count(0, np.inf, FINE) / 2
    found: list[tuple[str, float]] = []
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("ε {task.fields[spent]:.2f} of " + f"{EPSILON:g}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns) as progress:
        task = progress.add_task("medians", total=len(names), spent=0.0)
        for column, name in enumerate(names):
            try:
                found.append((name, median(curator, column, BOUNDS[column], half)))
            except dm.BudgetExceeded as refusal:
                progress.console.print(f"refused: {refusal}")
                break
            progress.update(task, advance=1, spent=curator.budget.epsilon)
    return found


def draw(curator: Curator) -> None:
    """Epsilon under each rule, and the noise of each query."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(8, 6.5), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    labels = {
        "filter": "Filter: spent of its limit (sound for this adaptive analyst)",
        "odometer": "Odometer: if one stopped here (sound)",
        "Lécuyer": "Lécuyer's odometer (sound)",
        "fixed": "fixed-schedule RDP (not valid here: the queries were adaptive)",
    }
    for name, style in {"Lécuyer": ":", "odometer": "-", "filter": "-", "fixed": "--"}.items():
        queries = np.arange(1, len(curator.readings[name]) + 1)
        top.plot(queries, curator.readings[name], style, label=labels[name])
    top.axhline(EPSILON, color="black", linewidth=1)
    top.annotate("limit", (1, EPSILON), xytext=(0, 4), textcoords="offset points")
    top.set_ylabel("ε")
    top.set_ylim(bottom=0)
    top.legend(loc="lower right", frameon=False)
    bottom.step(np.arange(1, len(curator.noises) + 1), curator.noises, where="mid", linewidth=0.8)
    bottom.set_yscale("log", base=2)
    bottom.set_ylabel("noise σ")
    bottom.set_xlabel("query")
    figure.suptitle(f"Adaptive medians under ε = {EPSILON:g}, δ = {DELTA:g}")
    figure.savefig(PICTURE, dpi=130)


def main() -> None:
    """Runs the analyst and reports."""
    data = load_breast_cancer()
    budget = dm.Filter(EPSILON, DELTA)
    curator = Curator(
        data=data.data,
        budget=budget,
        rng=np.random.default_rng(),
        watchers={
            "odometer": dm.Odometer(DELTA),
            "Lécuyer": LecuyerOdometer(DELTA),
            "fixed": RdpComposition(delta=DELTA),
        },
    )
    found = explore(curator, [str(name) for name in data.feature_names])
    console = Console()
    table = Table("measurement", "private median", "true median", title="what the analyst learnt")
    for column, (name, value) in enumerate(found):
        table.add_row(name, f"{value:.4g}", f"{np.median(data.data[:, column]):.4g}")
    console.print(table)
    console.print(f"{len(curator.noises)} queries, {len(found)} of 30 medians")
    console.print(f"filter:   {budget.guarantee()}")
    console.print(f"odometer: {curator.watchers['odometer'].guarantee()}")
    draw(curator)
    console.print(f"picture:  {PICTURE}")


if __name__ == "__main__":
    main()
