# SPDX-License-Identifier: Apache-2.0
"""Results: what search.json says of a search; costs are read from the ledger's journal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dosimeter import __version__
from dosimeter.accounting import Filter
from dosimeter.accounting.calibrate import least
from dosimeter.decisions.words import in_words
from dosimeter.errors import BudgetExceeded
from dosimeter.rdp import Cost
from dosimeter.search.halving import Halving
from dosimeter.search.plan import Plan
from dosimeter.search.table import Search
from dosimeter.search.workshop import Workshop

if TYPE_CHECKING:
    from dosimeter.ledger import Budget


def outcome(
    search: Search,
    plan: Plan,
    workshop: Workshop,
    budget: Budget,
    winner: Mapping[str, Any],
    ended: str,
) -> dict[str, Any]:
    """What is said of every search."""
    standing, folder = budget.statement(), search.config.output.folder
    promise = budget.guarantee()
    halving = search.table.method == "halving"
    law = {
        "rungs": [{"trials": n, "steps": s} for n, s in zip(plan.counts, plan.steps, strict=True)]
    }
    chance = {"mean": search.table.trials, "eta": search.table.eta or 0.0, "steps": plan.steps[0]}
    return {
        "id": plan.id,
        "folder": folder,
        "method": search.table.method,
        **(law if halving else chance),
        "space": [axis.key for axis in search.space],
        "noise_multiplier": plan.noise,
        "score_noise": plan.score_noise,
        "records": len(workshop.parts.records.private),
        "scored_records": len(workshop.parts.scored),
        "kind": search.config.budget.kind,
        "epsilon": standing.epsilon,
        "epsilon_before": plan.before,
        "limit": standing.limit,
        "delta": promise.delta,
        "guarantee": str(promise),
        "in_words": in_words(
            search.config.budget.kind,
            spent=standing.epsilon,
            limit=standing.limit,
            delta=promise.delta,
        ),
        "winner": {**winner, "folder": f"{folder}/winner"},
        "ended": ended,
        "dosimeter": __version__,
    }


def charged(plan: Plan, budget: Budget) -> dict[int, Counter[Cost]]:
    """What each trial was charged, steps that were lost included, by the ledger's journal."""
    found: dict[int, Counter[Cost]] = {}
    for entry in budget.history(budget.statement().entries):
        words = entry.purpose.removeprefix(f"search {plan.id}, ").removeprefix("score of ")
        if words != entry.purpose and words.startswith("trial ") and entry.kind == "spend":
            number = int(words.removeprefix("trial "))
            found.setdefault(number, Counter())[entry.priced()] += entry.count
    return found


def tried(halving: Halving, plan: Plan, budget: Budget) -> dict[int, dict[str, Any]]:
    """Every trial: its settings, its scores, what it cost, and why it was lost if it was."""
    scores, paid, standing = halving.scores(), charged(plan, budget), budget.statement()
    lost = halving.lost()
    found = {}
    for number, settings in halving.settings().items():
        costs = paid.get(number, Counter())
        found[number] = {
            "trial": number,
            "settings": settings,
            "rungs": [
                {"rung": rung, "score": scores[number, rung]}
                for rung in range(len(plan.counts))
                if (number, rung) in scores
            ],
            "charged": {repr(cost): count for cost, count in costs.items()},
            "epsilon_alone": alone(costs, standing.delta),
            "lost": lost.get(number),
        }
    return found


def alone(costs: Mapping[Cost, int], delta: float) -> float | None:
    """The least epsilon of a filter that would pay for some costs and nothing else."""

    def enough(epsilon: float) -> bool:
        gate = Filter(epsilon, delta)
        try:
            for cost, count in costs.items():
                gate.spend(cost, count)
        except BudgetExceeded:
            return False
        return True

    return least(enough) if costs else 0.0


def written(tables: Mapping[str, Any]) -> str:
    """A config as TOML."""
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{_text(key)} = {_text(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_text(key)} = {_text(one)}" for key, one in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False)
