# SPDX-License-Identifier: Apache-2.0
"""The command line: how soon it answers, beside Python doing nothing."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import Result, best_seconds

HELP = ("-c", "from dosimeter.cli import main; main()", "--help")


def run() -> list[Result]:
    """All figures of the command line."""
    nothing = _seconds("-c", "pass")
    shown = _seconds(*HELP)
    return [
        Result.at_most("dosimeter --help", shown, 0.4, "s"),
        Result.at_most("that over python -c pass", shown / nothing, 20, "times"),
        Result("import dosimeter", _seconds("-c", "import dosimeter") - nothing, "s", "", True),
    ]


def _seconds(*arguments: str) -> float:
    command = [sys.executable, *arguments]
    return best_seconds(
        lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True), repeats=15
    )
