# SPDX-License-Identifier: Apache-2.0
"""Results with where they came from, and figures that are the same bytes every time."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from collections.abc import Iterable
from typing import Any

PACKAGES = ("numpy", "scipy", "dp-accounting")


def save(
    folder: pathlib.Path,
    config: dict[str, Any],
    results: dict[str, Any],
    packages: Iterable[str] = PACKAGES,
    name: str = "results.json",
) -> None:
    """Writes a file of results: what was asked, what came out, and with which code and versions."""
    document = {
        "commit": commit(folder),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "config": config,
        "results": results,
    }
    (folder / name).write_text(json.dumps(document, indent=1) + "\n")


def commit(folder: pathlib.Path) -> str:
    """The commit of the code at hand, and whether files were changed since."""

    def git(*words: str) -> str:
        run = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    root = git("rev-parse", "--show-toplevel")
    changes = git("-C", root, "status", "--porcelain", "--untracked-files=no", "src", "experiments")
    # The outcome of a run is written next to its code and is no change of it.
    code = [line for line in changes.splitlines() if not line.endswith((".json", ".svg", ".md"))]
    return git("rev-parse", "HEAD") + (" with changes" if code else "")


def load(folder: pathlib.Path) -> dict[str, Any]:
    """What `save` wrote."""
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


def save_figure(figure: Any, folder: pathlib.Path) -> None:
    """Writes figure.svg without a date and with repeatable names inside."""
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "dosimeter"
    figure.savefig(folder / "figure.svg", metadata={"Date": None})
