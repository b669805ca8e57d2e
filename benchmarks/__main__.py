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

from benchmarks import core, face, ledger, training
from benchmarks.measure import Result

HERE = pathlib.Path(__file__).parent
PACKAGES = ("dosimeter", "numpy", "scipy", "dp-accounting", "opacus", "torch", "sqlalchemy")
SUITES = {"core": core.run, "face": face.run, "training": training.run, "ledger": ledger.results}


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def table(results: dict[str, list[Result]]) -> str:
    """The report as Markdown."""
    lines = ["| suite | figure | measured | goal | met |", "|---|---|---|---|---|"]
    for suite, rows in results.items():
        for row in rows:
            met = "yes" if row.met else "**no**"
            lines.append(
                f"| {suite} | {row.name} | {row.value:.4g} {row.unit} | {row.goal} | "
                f"{met if row.goal else ''} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Runs the suites; the exit code says whether every goal was met."""
    about = machine()
    results = {name: run() for name, run in SUITES.items()}
    text = table(results)
    print(text)
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    (HERE / "report.md").write_text(f"# Benchmarks\n\nMeasured on: {facts}.\n\n{text}\n")
    (HERE / "report.json").write_text(
        json.dumps(
            {
                "machine": about,
                "results": {
                    name: [dataclasses.asdict(row) for row in rows]
                    for name, rows in results.items()
                },
            },
            indent=2,
        )
        + "\n"
    )
    return 0 if all(row.met for rows in results.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
