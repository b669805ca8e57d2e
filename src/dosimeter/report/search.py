# SPDX-License-Identifier: Apache-2.0
"""The page about a search: every trial, its cost, the winner, and the epsilon of all of it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dosimeter.report.page import framed, put
from dosimeter.rounding import at_most, exact, score_words, shortened

_SECRET = (
    "The number of trials was drawn at random and is secret, and nothing of the trials that did "
    "not win was kept: that is why publishing the best costs so little more than one trial."
)
_LOSERS = (
    "One row a trial, the winner first, then by how far they came. Every step and every score was "
    "charged before it was computed, also those of trials that were dropped. ε alone is what a "
    "filter would need for that trial and nothing else; such numbers do not add up, and only that "
    "of the whole search is a guarantee."
)


def write(result: Mapping[str, Any], out: Path) -> None:
    """Writes one HTML page about a search.

    Args:
        result: What search.json holds.
        out: The page; it needs no other file and no network.
    """
    put(page(result), out)


def page(result: Mapping[str, Any]) -> str:
    """The page about a search."""
    name = Path(result["folder"]).name
    body = (
        f'<section class="cards">{_winner(result)}{_spent(result)}</section>\n'
        f"<h2>How it went</h2>{_method(result)}\n"
        f"<h2>What is guaranteed</h2>{_promise(result)}\n"
        f"<h2>Every trial</h2>{_trials(result)}{_lost(result)}{_skipped(result)}"
    )
    records = f"{result['records']:,} records to train on, {result['scored_records']:,} to score on"
    return framed(f"Search: {name}", f'<p class="quiet">{records}</p>', body)


def _winner(result: Mapping[str, Any]) -> str:
    winner = result["winner"]
    lines = "".join(f"<li>{_safe(key)} = {_said(v)}</li>" for key, v in winner["settings"].items())
    earlier = unscored(winner)
    when = "" if earlier is None else f"<p>{earlier[0].upper()}{earlier[1:]}.</p>"
    return (
        f'<article class="card"><h3>Winner</h3><p class="big">{score_words(winner["score"])}'
        f"<small>of the scored records right, {noise(result)}</small></p>{when}<ul>{lines}</ul>"
        f'<p class="quiet">In {_safe(winner["folder"])}.</p></article>'
    )


def unscored(winner: Mapping[str, Any]) -> str | None:
    """What is to be said where a score is that of an earlier model than the published one."""
    at, steps = winner.get("scored_at"), winner.get("steps")
    if at is None or at == steps:
        return None
    return f"scored after {at:,} steps; the published model has taken {steps:,} and was not scored"


def noise(result: Mapping[str, Any]) -> str:
    """How exact scores are."""
    if result["score_noise"] is None:
        return "exactly, on public records"
    return f"± {100 * result['score_noise'] / result['scored_records']:.1f} % of noise"


def _spent(result: Mapping[str, Any]) -> str:
    share = min(1.0, result["epsilon"] / result["limit"])
    shared = ""
    if result["kind"] == "ledger":
        before = at_most(result["epsilon_before"])
        shared = f" It was {before} before this search, and others may have spent from it since."
    return (
        f'<article class="card"><h3>The whole search</h3><p class="big">ε '
        f"{at_most(result['epsilon'])} of {exact(result['limit'])}<small>spent · δ "
        f'{exact(result["delta"])}</small></p><div class="meter s0"><div style="width:'
        f'{100 * share:.1f}%"></div></div><p class="quiet">Ended because {_safe(result["ended"])}.'
        f"{shared}</p></article>"
    )


def _method(result: Mapping[str, Any]) -> str:
    if result["method"] == "best_of":
        law = f"About {result['mean']} trials of {result['steps']:,} steps were expected."
        return f"<p>{law} {_SECRET}</p>"
    rows = [
        [str(number), f"{rung['trials']:,}", f"{rung['steps']:,}"]
        for number, rung in enumerate(result["rungs"], 1)
    ]
    words = (
        "Trials that are better by their noisy scores go on to the next rung from where they are; "
        "steps are those of the config's own setting, and other settings get as many as cost the "
        "same share of the budget."
    )
    return f'<p class="quiet">{words}</p>' + _table(["rung", "trials", "steps by its end"], rows)


def _promise(result: Mapping[str, Any]) -> str:
    return (
        f'<div class="promise s0"><p>{_safe(result["in_words"])}</p>'
        f'<p class="formal">Formally: {_safe(shortened(result["guarantee"]))}</p></div>'
    )


def _trials(result: Mapping[str, Any]) -> str:
    if result["method"] == "best_of":
        return f'<p class="quiet">{_SECRET}</p>'
    keys, rungs = result["space"], range(len(result["rungs"]))
    heads = ["trial", *keys, *(f"score {rung + 1}" for rung in rungs), "ε alone", "charged"]
    won = result["winner"]["trial"]
    ranked = sorted(
        result["trials"],
        key=lambda one: (one["trial"] != won, -len(one["rungs"]), one["trial"]),
    )
    rows = [_row(one, keys, rungs) for one in ranked]
    return f'<p class="quiet">{_LOSERS}</p>' + _table(heads, rows)


def _row(one: Mapping[str, Any], keys: Sequence[str], rungs: range) -> list[str]:
    scores = {rung["rung"]: score_words(rung["score"]) for rung in one["rungs"]}
    paid = ", ".join(f"{count:,} × {_safe(cost)}" for cost, count in one["charged"].items())
    alone = one["epsilon_alone"]
    return [
        str(one["trial"]),
        *(_said(one["settings"][key]) for key in keys),
        *(scores.get(rung, "&ndash;") for rung in rungs),
        "&infin;" if alone is None else at_most(alone),
        paid or "nothing",
    ]


def _lost(result: Mapping[str, Any]) -> str:
    rows = [
        [str(one["trial"]), _safe(one["lost"])]
        for one in result.get("trials", [])
        if one.get("lost")
    ]
    if not rows:
        return ""
    words = (
        "They could not win, and what they cost stays spent. What a model said when it raised an "
        "error was not released with noise: read it before you pass it on."
    )
    return f'<h2>Lost</h2><p class="quiet">{words}</p>' + _table(["trial", "because"], rows)


def _skipped(result: Mapping[str, Any]) -> str:
    left_out = result.get("skipped") or []
    if not left_out:
        return ""
    rows = [
        [
            ", ".join(f"{_safe(k)} = {_said(v)}" for k, v in one["settings"].items()),
            _safe(one["reason"]),
        ]
        for one in left_out
    ]
    return "<h2>Skipped at no cost</h2>" + _table(["settings", "because"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_safe(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _said(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _safe(str(value))


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
