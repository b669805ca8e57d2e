# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on disk: what they must hold, and what a run that goes on may not change.

A run is resumed as it was begun. Another budget, noise or rate would be ignored, because the state
of the run decides, and what is said of the run would then be wrong; so it is refused.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dosimeter import arguments
from dosimeter.accounting import Gate
from dosimeter.decisions import History, Policy
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.rounding import exact

Told = dict[str, Any]
"""Arguments by name, as plain values."""

_HELD = ("told", "engine", "policies", "history", "ruled")


def loaded(path: pathlib.Path) -> dict[str, Any]:
    """What a checkpoint holds.

    Raises:
        StateError: It is no checkpoint, or damaged.
    """
    try:
        state = torch.load(path, weights_only=True)
        History.from_state(state["history"])
        missing = [name for name in _HELD if name not in state]
        if missing:
            raise ValueError(f"no {missing[0]}")
        return {**state, "told": dict(state["told"])}
    except Exception as error:  # bytes that are no checkpoint can raise anything
        raise StateError(
            f"checkpoint must be a file as training wrote it, got {path}, which is not "
            f"({_first_line(error)}); put the right one back, or use another file"
        ) from error


def told_in(path: pathlib.Path | None) -> Told:
    """Return what the run in a checkpoint was told; nothing where there is no checkpoint.

    Raises:
        FileNotFoundError: There is no folder to write it to; it is found before anything is spent.
    """
    if path is None:
        return {}
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"checkpoint must lie in a folder that is there, got {path}; make {path.parent} first"
        )
    if not path.exists():
        return {}
    told: Told = loaded(path)["told"]
    return told


def begun(
    gate: Gate | tuple[float, float], policies: Sequence[Policy], records: int, batch_size: int
) -> Told:
    """What is known of a run before its noise is: the terms of its gate, and its data."""
    if isinstance(gate, tuple):
        epsilon, delta = map(arguments.real, ("epsilon", "delta"), gate)
        terms: Told = {"epsilon": epsilon, "delta": delta, "gate": "Filter"}
    else:
        limits = getattr(gate, "limit", None), getattr(gate, "delta", None)
        terms = {
            name: float(value)
            for name, value in zip(("epsilon", "delta"), limits, strict=True)
            if isinstance(value, int | float)
        }
        terms["gate"] = type(gate).__name__
    names = ", ".join(type(policy).__name__ for policy in policies)
    return {**terms, "records": records, "batch_size": batch_size, "policy": names or None}


def require_same(path: pathlib.Path | None, old: Told, now: Told) -> None:
    """Raises for the first argument that a checkpoint was written with another value of.

    What only one of them names is not compared.
    """
    for name, value in now.items():
        if name in old and old[name] != value:
            raise ValueError(
                f"{name} must stay {_said(old[name])}, got {_said(value)}, for the checkpoint "
                f"{path} was written with it; go on with the same, or use another checkpoint file "
                "for another run"
            )


@contextmanager
def blaming(path: pathlib.Path) -> Iterator[None]:
    """Names the file in what is raised while its state is taken."""
    try:
        yield
    except BudgetExceeded as error:
        error.add_note(
            f"The checkpoint {path} holds a run that has spent more than this gate has left. Go on "
            "with the budget that it was written with, or use another checkpoint file."
        )
        raise
    except StateError as error:
        raise StateError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise StateError(
            f"checkpoint must be of a run like this one, got {path}, which is not "
            f"({_first_line(error)}); use another file"
        ) from error


def _said(value: object) -> str:
    if value is None:
        return "left out"
    return exact(value) if isinstance(value, float) and math.isfinite(value) else str(value)


def _first_line(error: Exception) -> str:
    words = str(error).splitlines()
    return f"{type(error).__name__}: {words[0]}" if words else type(error).__name__
