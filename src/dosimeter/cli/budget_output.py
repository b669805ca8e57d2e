# SPDX-License-Identifier: Apache-2.0
"""Budgets and receipts as the commands of budgets and of streams print them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from dosimeter.cli.output import Table, print_json, printable
from dosimeter.rounding import at_most, exact, share_words, shortened

if TYPE_CHECKING:
    from dosimeter.ledger import Receipt, Statement


def print_budgets(statements: Iterable[Statement], *, as_json: bool) -> None:
    """Print a row for each budget."""
    from dosimeter.ledger.receipts import shown

    if as_json:
        print_json([asdict(one) for one in statements])
        return
    Table(
        ("name", "spent", "limit", "delta", "entries", "state"),
        [
            (
                shown(one.name),
                at_most(one.epsilon, padded=True),
                "none" if one.limit == math.inf else exact(one.limit),
                _delta(one),
                f"{one.entries:,}",
                "DAMAGED" if one.problem else "closed" if one.closed else "open",
            )
            for one in statements
        ],
        right=("spent", "limit", "delta", "entries"),
    ).print()


def print_receipts(receipts: Iterable[Receipt], *, as_json: bool) -> None:
    """Print a line for each spend."""
    from dosimeter.ledger.receipts import shown

    if as_json:
        print_json([{**one._asdict(), "cost": repr(one.cost)} for one in receipts])
        return
    for one in receipts:
        again = " then (recorded before, nothing spent now)" if one.replayed else ""
        line = (
            f"{shown(one.budget)}: entry {one.sequence}, {one.count:,} x {one.cost}, "
            f"epsilon {at_most(one.epsilon)}{again}"
        )
        typer.echo(printable(line))


def print_statement(one: Statement, guarantee: str, share: float) -> None:
    """Print everything about a budget but its journal; the bar shows the share that is used up."""
    from dosimeter.ledger.receipts import shown

    lines = [("budget", shown(one.name)), ("kind", one.kind + (", closed" if one.closed else ""))]
    if one.limit < math.inf:
        lines.append(("used up", f"{bar(share)} {share_words(share)}"))
        lines.append(("spent", f"epsilon {at_most(one.epsilon)} of {exact(one.limit)}"))
    else:
        lines.append(("spent", f"epsilon {at_most(one.epsilon)}"))
    lines += [
        ("delta", _delta(one)),
        ("entries", f"{one.entries:,}"),
        ("head", one.head),
        ("guarantee", shortened(guarantee)),
    ]
    for label, value in lines:
        typer.echo(f"{label:<11} {printable(value)}")


def bar(share: float, width: int = 32) -> str:
    """Return a bar of the share that is spent; it is full only when nothing is left."""
    filled = min(width - 1, math.ceil(width * share)) if share < 1 else width
    return "█" * filled + "░" * (width - filled)


def _delta(one: Statement) -> str:
    return exact(one.delta) + (f" + {exact(one.approx_delta)}" if one.approx_delta else "")


def warn_of_nobody(actor: str, db: str) -> None:
    """Says so where the journal does not know who spent; a service knows by the token."""
    if not actor and not db.startswith(("http://", "https://")):
        said = "--actor or DOSIMETER_ACTOR says who"
        typer.echo(f"warning: who spent is unknown to the journal; {said}", err=True)
