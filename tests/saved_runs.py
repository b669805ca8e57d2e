"""Folders of runs, without training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FILTER = "(4.0, 1e-05)-DP, add/remove one record, fully adaptive, filter"
ODOMETER = (
    "ex-post (1.25, 1e-05)-DP at the moment of stopping: P(S) <= e^1.25 Q(S) + 1e-05 for every set "
    "S of outcomes with no larger reading, add/remove one record, fully adaptive, odometer"
)

_SAME = {"delta": 1e-5, "neighbours": "add/remove one record", "menu": False, "seeded": False}
_PROMISES = {
    FILTER: {"kind": "filter", "epsilon": 4.0, **_SAME},
    ODOMETER: {"kind": "odometer", "epsilon": 1.25, **_SAME},
}


def epoch(number: int, **changed: Any) -> dict[str, Any]:
    """One epoch as `History.save` writes it."""
    reading = {"name": "correct count", "value": 1000.0 + 10 * number, "deviation": 20.0}
    reading |= {"records": 1437, "rising": True, "noise_multiplier": 20.0}
    return {
        "epoch": number,
        "steps": 6,
        "epsilon": round(0.5 * math.sqrt(number), 6),
        "noise_multiplier": 2.5 + (number // 4) / 2,
        "batch_size": 256 - 16 * (number // 8),
        "accuracy": round(1 - 0.8 / number, 4),
        "loss": round(2 / number, 4),
        "signal": reading if number % 2 == 0 else None,
        "seconds": 0.1,
        "learning_rate": None,
        "evidence": [],
        "spent_share": None,
        **changed,
    }


def history(epochs: int = 12, guarantee: str = FILTER, **changed: Any) -> dict[str, Any]:
    """A history as `History.save` writes it; `changed` goes into every epoch."""
    return {
        "version": 1,
        "records": 1437,
        "epochs": [epoch(number, **changed) for number in range(1, epochs + 1)],
        "ended": "the gate refused the next step",
        "guarantee": guarantee,
        "promise": _PROMISES.get(guarantee),
        "began": None,
    }


def save_run(
    folder: Path, past: dict[str, Any] | None = None, about: dict[str, Any] | None = None
) -> Path:
    """Writes a run, by default the one above without a run.json; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.json").write_text(json.dumps(history() if past is None else past))
    if about is not None:
        (folder / "run.json").write_text(json.dumps(about))
    return folder


def save_trained(folder: Path, table: Path) -> None:
    """Writes what `dosimeter train` leaves of a linear model, and a table it was trained on."""
    import torch
    from safetensors.torch import save_file

    from configs import write_config, write_points

    write_points(table)
    folder.mkdir()
    write_config(folder / "config.toml")
    about = {"finished": True, "classes": ["no", "yes"], "columns": ["a", "b", "c"], "input": [3]}
    (folder / "run.json").write_text(json.dumps(about))
    weights = {"1.weight": torch.ones(2, 3), "1.bias": torch.zeros(2)}
    save_file(weights, folder / "model.safetensors")
