# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks [suite ...]: measures, prints a table and writes the report.

Suites that are not named keep what they found before, with its day and the load beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any

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

REPORT = pathlib.Path(__file__).parent / "report.json"
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
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def measured(run: Callable[[], Sequence[Result | Table]]) -> dict[str, Any]:
    """What a suite found, as plain values, and when and beside what other load."""
    load, day = round(os.getloadavg()[0], 2), datetime.date.today().isoformat()
    found = run()
    return {
        "day": day,
        "load": load,
        "results": [dataclasses.asdict(each) for each in found if isinstance(each, Result)],
        "tables": [dataclasses.asdict(each) for each in found if isinstance(each, Table)],
    }


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    facts = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    lines = ["# Benchmarks", "", f"Measured on: {facts}.", ""]
    lines += ["| suite | day | load before |", "|---|---|---|"]
    suites = report["suites"]
    lines += [f"| {name} | {suite['day']} | {suite['load']} |" for name, suite in suites.items()]
    lines += ["", "| suite | figure | measured | goal | met |", "|---|---|---|---|---|"]
    for name, suite in suites.items():
        for row in (Result(**row) for row in suite["results"]):
            met = "yes" if row.met else "**no**"
            lines.append(
                f"| {name} | {row.name} | {row.value:.4g} {row.unit} | {row.goal} | "
                f"{met if row.goal else ''} |"
            )
    for name, suite in suites.items():
        lines += ["", f"## {name.capitalize()}"] if suite["tables"] else []
        for table in suite["tables"]:
            lines += ["", Table(**table).markdown]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the suites that are named, or all; the exit code says whether each goal was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join(SUITES))
    names = parser.parse_args().suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        parser.error(f"suite must be one of {', '.join(SUITES)}, got {', '.join(unknown)}")
    before = json.loads(REPORT.read_text())["suites"] if REPORT.exists() else {}
    for place, name in enumerate(names, 1):
        print(f"{name} ({place} of {len(names)})", file=sys.stderr, flush=True)
        before[name] = measured(SUITES[name])
        kept = {each: before[each] for each in SUITES if each in before}
        report = {"machine": machine(), "suites": kept}
        REPORT.write_text(json.dumps(report, indent=2) + "\n")
        REPORT.with_suffix(".md").write_text(markdown(report))
    print(REPORT.with_suffix(".md").read_text())
    return 0 if all(row["met"] for name in names for row in before[name]["results"]) else 1


if __name__ == "__main__":
    sys.exit(main())
