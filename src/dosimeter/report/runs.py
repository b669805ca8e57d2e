# SPDX-License-Identifier: Apache-2.0
"""Runs as a report sees them: what `History.save` wrote, and what is known besides.

`run.json` may stand beside `history.json` with what a history does not know: name, limit, model,
data. Without it, or where it was written before the last epoch, the limit and delta are those that
the guarantee in the history has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dosimeter.decisions import History
from dosimeter.decisions.history import charged
from dosimeter.errors import StateError

_CLAIMS = ("guarantee", "in_words", "limit", "delta")
_WAY_OUT = "name the output folder of a training run"


@dataclass(frozen=True)
class Run:
    """One run: its epochs, how it ended, and what was known about it."""

    name: str
    history: History
    guarantee: str
    kind: str
    limit: float | None
    delta: float | None
    seeded: bool
    in_words: str | None
    note: str | None
    facts: Mapping[str, str]
    outdated: bool
    """Whether a run.json was left out of account because less was spent when it was written."""

    @property
    def overspent(self) -> bool:
        """Whether so much was spent that nothing the run claims can be true."""
        return math.isinf(self.history.epsilon) or (
            self.limit is not None and self.history.epsilon > self.limit
        )


def read_run(folder: Path) -> Run:
    """The run in a folder.

    Raises:
        ValueError: There is no run, or its files say something else.
        OSError: A file cannot be read.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise ValueError(f"run must be a folder, got {str(folder)!r} ({what}); {_WAY_OUT}")
    history = folder / "history.json"
    if not history.exists():
        inside = sorted(str(path.parent) for path in folder.glob("*/history.json"))
        way_out = f"the runs in it are {', '.join(inside)}" if inside else _WAY_OUT
        raise ValueError(f"run must hold history.json, got {str(folder)!r} without one; {way_out}")
    told = folder / "run.json"
    about = _json(told) if told.exists() else {}
    try:
        return _run(folder, _json(history), about)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StateError(f"{history} must be what History.save writes, got {reason}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} must be JSON, got {error}") from error
    if not isinstance(value, dict):
        raise StateError(f"{path} must hold an object, got {type(value).__name__}")
    return value


def run_of(name: str, past: History) -> Run:
    """A run of which nothing but its history is known."""
    return _told_of(name, past, {})


def _run(folder: Path, history: dict[str, Any], about: dict[str, Any]) -> Run:
    return _told_of(folder.resolve().name, History.from_state(history), about)


def _told_of(name: str, past: History, about: dict[str, Any]) -> Run:
    outdated = _told(about) < past.epsilon
    if outdated:
        about = {key: value for key, value in about.items() if key not in _CLAIMS}
    guarantee = str(about.get("guarantee") or past.guarantee)
    kind, limit, delta, seeded = _promised(past)
    seed = about.get("seed")
    facts = {key: about.get(key) for key in ("data", "model")}
    if "dosimeter" in about:
        facts["dosimeter"] = f"dosimeter {about['dosimeter']}"
    return Run(
        name=str(about.get("name") or name),
        history=past,
        guarantee=guarantee,
        kind=str(about.get("kind") or kind),
        limit=_positive(about["limit"]) if "limit" in about else limit,
        delta=_positive(about["delta"]) if "delta" in about else delta,
        seeded=seed is not None or seeded,
        in_words=_text(about.get("in_words")),
        note=_text(about.get("note")),
        facts={key: str(value) for key, value in facts.items() if value is not None},
        outdated=outdated,
    )


def _told(about: Mapping[str, Any]) -> float:
    """The epsilon that a run.json tells of; one that tells of none contradicts nothing."""
    return math.inf if about.get("epsilon") is None else charged(about["epsilon"])


def _promised(past: History) -> tuple[str, float | None, float | None, bool]:
    """The kind of gate, its limit, its delta and whether there was a seed, as far as known."""
    promise = past.promise
    if promise is None:
        return "", None, None, False
    limit = _positive(promise.epsilon) if promise.kind == "filter" else None
    return promise.kind, limit, _positive(promise.delta), promise.seeded


def _positive(value: Any) -> float | None:
    number = math.nan if value is None else float(value)
    return number if 0 < number < math.inf else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
