# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks: runs every benchmark, prints a table and writes the report."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Callable, Sequence

from benchmarks import (
    core,
    face,
    gradients,
    ledger,
    ledger_scale,
    peers,
    reading,
    service,
    tightness,
    training,
)
from benchmarks.measure import Result, Table

HERE = pathlib.Path(__file__).parent
PACKAGES = (
    *("dosimeter", "numpy", "scipy", "dp-accounting", "opacus", "torch", "psycopg"),
    *("opendp", "autodp"),
)
SUITES: dict[str, Callable[[], Sequence[Result | Table]]] = {
    "core": core.run,
    "face": face.run,
    "training": training.run,
    "gradients": gradients.run,
    "reading": reading.run,
    "ledger": ledger.results,
    "ledger at scale": ledger_scale.results,
    "service": service.results,
    "tightness": tightness.run,
    "peers": peers.run,
}


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def markdown(figures: dict[str, list[Result]], tables: dict[str, list[Table]]) -> str:
    """The report."""
    lines = ["| suite | figure | measured | goal | met |", "|---|---|---|---|---|"]
    for suite, results in figures.items():
        for row in results:
            met = "yes" if row.met else "**no**"
            lines.append(
                f"| {suite} | {row.name} | {row.value:.4g} {row.unit} | {row.goal} | "
                f"{met if row.goal else ''} |"
            )
    for suite, several in tables.items():
        lines += ["", f"## {suite.capitalize()}"] if several else []
        for each in several:
            lines += ["", each.markdown]
    return "\n".join(lines)


def main() -> int:
    """Runs the suites; the exit code says whether every goal was met."""
    about = machine()
    made = {name: run() for name, run in SUITES.items()}
    figures = {
        name: [each for each in every if isinstance(each, Result)] for name, every in made.items()
    }
    tables = {
        name: [each for each in every if isinstance(each, Table)] for name, every in made.items()
    }
    text = markdown(figures, tables)
    print(text)
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    (HERE / "report.md").write_text(f"# Benchmarks\n\nMeasured on: {facts}.\n\n{text}\n")
    plain = {
        "machine": about,
        "results": {
            name: [dataclasses.asdict(row) for row in rows] for name, rows in figures.items()
        },
        "tables": {
            name: [dataclasses.asdict(row) for row in rows] for name, rows in tables.items()
        },
    }
    (HERE / "report.json").write_text(json.dumps(plain, indent=2) + "\n")
    return 0 if all(row.met for rows in figures.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
