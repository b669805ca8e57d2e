# SPDX-License-Identifier: Apache-2.0
"""What each page is rendered with: the office asked on behalf of whoever looks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dosimeter.errors import DosimeterError
from dosimeter.ledger import Entry
from dosimeter.ledger.activity import activities
from dosimeter.ledger.usage import Use, used
from dosimeter.rdp import MECHANISMS, Cost, Neighbours
from dosimeter.rdp.cost import parameters
from dosimeter.rdp.plain import from_plain
from dosimeter.report.words import STILL
from dosimeter.service import views
from dosimeter.service.office import Office
from dosimeter.service.roles import Caller, Role

ON_A_PAGE = 40
_RECENT = 40
_ENTRIES = 2000
_RUNS = 20
_LATELY = 200
_LISTED = 12


def overview(office: Office, who: Caller, containing: str, after: str) -> dict[str, Any]:
    """Where some budgets stand, in the order of their names."""
    page = office.page(who, containing=containing, after=after, size=ON_A_PAGE)
    now = datetime.now(UTC)
    rows = []
    for statement in page.budgets:
        if statement.problem:
            rows.append(views.Row(statement, 100.0, "", None, None, None))
            continue
        recent = office.history(who, statement.name, _RECENT)
        cost = views.usual_cost(recent)
        left = usual = ends = None
        if cost is not None and not statement.closed:
            priced, usual = from_plain(json.loads(cost)), views.short(cost)
            if statement.kind == "filter":
                left = office.price(who, statement.name, priced, 1).affordable
                ends = views.forecast(recent, cost, left, now)
        burned = 100 * office.share(who, statement.name) if statement.kind == "filter" else 0.0
        last = views.last_spend(recent)
        rows.append(views.Row(statement, burned, usual or "", left, last, ends))
    blocks = views.blocks(rows)
    may_create = any(grant.role >= Role.OWNER for grant in who.grants)
    return {
        "rows": rows,
        "blocks": blocks,
        "streams": [prefix for prefix in blocks if office.has_stream(prefix)],
        "next": page.next,
        "first": not after,
        "may_create": may_create,
    }


def budget(office: Office, who: Caller, name: str) -> dict[str, Any]:
    """One budget: its numbers, its last entries by person, purpose and run, and its promise."""
    statement = office.statement(who, name)
    entries = office.history(who, name, _ENTRIES)
    promise = office.guarantee(who, name)
    cost = views.usual_cost(entries)
    usual, left = "", None
    if cost is not None and statement.kind == "filter" and not statement.closed:
        priced = from_plain(json.loads(cost))
        usual, left = views.short(cost), office.price(who, name, priced, 1).affordable
    runs = sorted(activities(entries), key=lambda one: one.last.sequence, reverse=True)
    whole = entries[0].sequence == 0
    journal = entries if whole else [office.opening(who, name), *entries]
    return {
        "statement": statement,
        "burned": 100 * office.share(who, name) if statement.kind == "filter" else 0.0,
        "entries": entries,
        "whole": whole,
        "listed": _LISTED,
        "picture": views.burn_down(statement, entries),
        "still": STILL * (sum(one.epsilon >= statement.limit for one in entries if one.cost) > 1),
        "people": _uses(journal, "person"),
        "purposes": _uses(journal, "purpose"),
        "runs": runs[:_RUNS],
        "more_runs": max(0, len(runs) - _RUNS),
        "guarantee": promise,
        "usual": usual,
        "left": left,
        "mechanisms": offered_mechanisms(),
        "role": who.role(name),
        "owns": (who.role(name) or Role.READER) >= Role.OWNER,
        "allowances": office.allowances_in(who, name),
        "line": office.approvals.line(name),
        "refused": [
            {"by": label, "entry": entry, "cost": views.short(entry.cost or "{}")}
            for label, entry in office.refusals(who, name, _LATELY)[:_RUNS]
        ],
    }


def _uses(journal: Sequence[Entry], by: str) -> list[Use]:
    """Whoever, or whatever, something was spent for, with what that would use up alone."""
    return [use for use in used([journal], (by,), _LISTED) if use.steps]


def what_if(
    office: Office, who: Caller, name: str, mechanism: str, numbers: str, count: str
) -> dict[str, Any]:
    """What a spend would do, or why it cannot be told."""
    asked = {"mechanism": mechanism, "numbers": numbers, "count": count}
    try:
        cost = cost_from(mechanism, numbers, office.neighbours(who, name))
        if not count.isascii() or not count.isdigit():
            raise ValueError(f"count must be a whole number, got {count!r}")
        return {"asked": asked, "price": office.price(who, name, cost, int(count)), "cost": cost}
    except (DosimeterError, ValueError, TypeError) as error:
        return {"asked": asked, "wrong": str(error)}


def requests(office: Office, who: Caller) -> dict[str, Any]:
    """Spends that wait for approval, or were decided, with whether the caller may decide."""
    return {
        "requests": [
            {
                "asked": one,
                "costs": [(n, views.short(json.dumps(c))) for n, c in sorted(one.costs.items())],
                "open": one.state == "waiting"
                and one.owner != who.owner
                and office.may_decide(who, one),
            }
            for one in office.requests(who)
        ]
    }


def tokens(office: Office) -> dict[str, Any]:
    """Every token that was ever issued."""
    return {"tokens": office.tokens.listed(), "now": time.time()}


def offered_mechanisms() -> list[tuple[str, str, str]]:
    """The mechanisms that a few numbers describe: name, what the numbers are, and in words."""
    return [
        (made.option.name, made.option.metavar, made.option.help)
        for made in MECHANISMS
        if made.option is not None
    ]


def cost_from(mechanism: str, numbers: str, neighbours: Neighbours) -> Cost:
    """The cost that a mechanism and its numbers, as people write them, describe."""
    known = {made.option.name: made for made in MECHANISMS if made.option is not None}
    if mechanism not in known:
        raise ValueError(f"mechanism must be one of {', '.join(known)}, got {mechanism!r}")
    made = known[mechanism]
    option = made.option
    assert option is not None
    names = parameters(made)
    try:
        values = [float(part) for part in numbers.split(",")]
    except ValueError:
        values = []
    if not sum(names.values()) <= len(values) <= len(names):
        raise ValueError(f"numbers must be {option.metavar}, got {numbers!r}")
    given: dict[str, Any] = dict(zip(names, values, strict=False))
    return made(**given, neighbours=neighbours)
