# SPDX-License-Identifier: Apache-2.0
"""Results with where they came from, and figures that are the same bytes every time."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from typing import Any

PACKAGES = ("numpy", "scipy", "dp-accounting")


def save(folder: pathlib.Path, config: dict[str, Any], results: dict[str, Any]) -> None:
    """Writes results.json: what was asked, what came out, and with which code and versions."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()
    document = {
        "commit": commit,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "config": config,
        "results": results,
    }
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")


def load(folder: pathlib.Path) -> dict[str, Any]:
    """What `save` wrote."""
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


def save_figure(figure: Any, folder: pathlib.Path) -> None:
    """Writes figure.svg without a date and with repeatable names inside."""
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "dosimeter"
    figure.savefig(folder / "figure.svg", metadata={"Date": None})
