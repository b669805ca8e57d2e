# SPDX-License-Identifier: Apache-2.0
"""Menus: what a run can ask its gate for, known before it begins, and a filter priced for that.

A filter that knows beforehand what it may be asked for needs less noise for the same guarantee
(docs/prices.md). What a policy may ask for without saying so beforehand is paid by a filter
without a menu instead.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dosimeter.accounting import Filter
from dosimeter.decisions.controls import Rehearsal
from dosimeter.decisions.policy import Policy
from dosimeter.decisions.settings import StepSettings
from dosimeter.rdp import Cost

_PATIENCE = 2.0


def costs_of(
    settings: StepSettings, policies: Sequence[Policy] = (), signal: Cost | None = None
) -> tuple[Cost, ...]:
    """Every cost that a run can ask its gate for, that of its first step first.

    Args:
        settings: The first step, but for what policies set when they begin.
        policies: Fresh ones; what they set when they begin is taken into account.
        signal: What a reading costs, where policies read a private signal.

    Raises:
        ValueError: A policy does not say beforehand what it asks for, or two of them change
            the steps, so that neither can; or all records are in each batch, for which steps
            have no menu.
    """
    run = Rehearsal(Filter(epsilon=1.0, delta=0.5), settings)
    for policy in policies:
        policy.begin(run)
    _require_sampled(run.batch_size, run.records)
    found: list[Cost] = [run.step_cost()]
    changing = 0
    for policy in policies:
        asked = policy.costs(run)
        if asked is None:
            raise ValueError(
                "policy must say beforehand what it may ask for, got "
                f"{type(policy).__name__}, whose `costs` are open"
            )
        changing += any(cost != found[0] for cost in asked)
        found += asked
    if changing > 1:
        raise ValueError(f"policies must leave all but one the steps alone, got {changing}")
    if policies and signal is not None:
        found.append(signal)
    return tuple(dict.fromkeys(found))


def _require_sampled(batch_size: int, records: int) -> None:
    """Raises if all records are in each batch, for which steps have no menu."""
    if batch_size == records:
        raise ValueError(
            f"batch_size must be below the number of records for a menu, got all {records} in each "
            "batch; with one fewer there is one"
        )


def readings_due(policies: Sequence[Policy], epochs: int) -> int:
    """How many readings of their signal policies want in so many epochs."""
    gaps = [policy.every for policy in policies]
    # An epoch after which several are due is read once (inclusion and exclusion).
    return sum(
        (-1) ** (size + 1) * (epochs // math.lcm(*chosen))
        for size in range(1, len(gaps) + 1)
        for chosen in itertools.combinations(gaps, size)
    )


def filter_for(
    epsilon: float,
    delta: float,
    costs: Callable[[], Sequence[Cost]],
    *,
    note: Callable[[str], None],
) -> Filter:
    """A filter with a menu of some costs; where there is none, a filter without, and a note."""
    plain = Filter(epsilon, delta)
    try:
        return Filter(epsilon, delta, menu=costs())
    except (TypeError, ValueError) as error:
        note(without_menu(error))
        return plain


def without_menu(error: Exception) -> str:
    """Why a gate has no menu, in a line."""
    return f"note: the budget has no menu and so lasts less long: {error}"


@contextmanager
def patiently(note: Callable[[str], None]) -> Iterator[None]:
    """Says what takes so long, if making a menu does; it is kept on disk for the next time."""
    words = (
        "note: pricing beforehand all that the run can ask for; this is kept on disk, and the next "
        "time only confirmed"
    )
    timer = threading.Timer(_PATIENCE, note, [words])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
