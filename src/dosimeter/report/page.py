# SPDX-License-Identifier: Apache-2.0
"""The page: what each run did, side by side, what is guaranteed, and every spend."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from dosimeter.decisions import Epoch, History, Reading
from dosimeter.report.panels import panels, unchanged
from dosimeter.report.runs import Run, read_run, run_of
from dosimeter.report.svg import STYLES, swatch
from dosimeter.report.words import promised
from dosimeter.rounding import at_most, exact, number, share_words, shortened

_NONE = "&ndash;"
_SEEDED = (
    "A seed was given, so the noise is predictable: against anyone who knows or guesses the seed "
    "there is no privacy."
)
_OUTDATED = (
    "run.json was written when less had been spent than history.json tells of, so nothing that it "
    "claims is repeated here: what follows is what history.json says."
)


def write(folders: Sequence[Path], out: Path) -> None:
    """Writes one HTML page about the runs in these folders.

    Args:
        folders: Each holds a `history.json`, as `History.save` writes it, and may hold a
            `run.json` with name, limit, delta, kind, guarantee, in_words, note, data, model, seed.
        out: The page; it needs no other file and no network.

    Raises:
        ValueError: A folder holds no run, or a file of another form.
        OSError: A file cannot be read or written.
    """
    if not folders:
        raise ValueError("runs must be at least one folder, got none")
    put(page([read_run(Path(folder)) for folder in folders]), Path(out))


def write_history(history: History, out: str | os.PathLike[str], *, name: str) -> None:
    """Writes one HTML page about a history that need not be in a folder."""
    put(page([run_of(name, history)]), Path(out))


def put(text: str, out: Path) -> None:
    """Writes a page."""
    if not out.parent.is_dir():
        raise ValueError(f"out must be in a folder that exists, got {str(out)!r}")
    # Names of folders may hold bytes that are no text; they are shown by their codes.
    out.write_text(text, encoding="utf-8", errors="backslashreplace")


def page(runs: Sequence[Run]) -> str:
    """The page about some runs."""
    title = f"Private training: {runs[0].name}" if len(runs) == 1 else "Private training compared"
    fitting = "cards pairs" if len(runs) == 4 else "cards"
    cards = "".join(_card(run, i) for i, run in enumerate(runs))
    body = (
        f'<section class="{fitting}">{cards}</section>\n'
        f"<h2>How it went</h2>{_unseen(runs)}{_level(runs)}"
        f'<section class="plots">{"".join(panels(runs))}</section>\n'
        f"<h2>What is guaranteed</h2>{''.join(_promise(run, i) for i, run in enumerate(runs))}\n"
        f"<h2>Every spend</h2>{_counted(runs)}"
        f"{''.join(map(_spends, runs))}"
    )
    return _framed(title, _about(runs), body)


def _framed(title: str, about: str, body: str) -> str:
    """A page that needs no other file and no network around its body."""
    style = resources.files("dosimeter.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<link rel="icon" href="data:,">\n'
        f"<title>{_safe(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        f"<header><h1>{_safe(title)}</h1>{about}</header>\n<main>\n{body}\n"
        "</main></body></html>\n"
    )


def _about(runs: Sequence[Run]) -> str:
    """What all runs have in common, once."""
    first = runs[0].facts
    same = {k: v for k, v in first.items() if all(run.facts.get(k) == v for run in runs)}
    lines = [same.pop("data", "")]
    if len({run.history.records for run in runs}) == 1:
        records = number(runs[0].history.records)
        lines.append(f"{records} private records · {' · '.join(same.values())}")
    return "".join(f'<p class="quiet">{_safe(line.strip(" ·"))}</p>' for line in lines if line)


def _card(run: Run, index: int) -> str:
    style = index % STYLES
    accuracy = run.history.accuracy
    best = _NONE if accuracy is None else f"{100 * accuracy:.1f} %"
    unit = "no public data" if accuracy is None else "public accuracy"
    spent = f"ε {at_most(run.history.epsilon)}"
    meter, used = "", ""
    if run.limit is not None:
        share = run.history.spent_share
        if share is None:
            share = min(1.0, run.history.epsilon / run.limit)
        else:
            used = f"; {share_words(share)} of the budget used up"
        spent += f" of {exact(run.limit)}"
        meter = f'<div class="meter s{style}"><div style="width:{100 * share:.1f}%"></div></div>'
    steps = run.history.steps
    took = f"{_many(len(run.history), 'epoch')}, {_many(steps, 'step')}{used}."
    ended = f" Ended because {_safe(run.history.ended)}." if run.history.ended else ""
    note = f'<p class="quiet">{_safe(run.note)}</p>' if run.note else ""
    delta = "" if run.delta is None else f" · δ {exact(run.delta)}"
    return (
        f'<article class="card"><h3>{swatch(index)}{_safe(run.name)}</h3>'
        f'<div class="figures"><p class="big">{best}<small>{unit}</small></p>'
        f'<p class="big">{spent}<small>spent{delta}</small></p></div>{meter}'
        f'<p class="quiet">{took}{ended}</p>{note}</article>'
    )


def _unseen(runs: Sequence[Run]) -> str:
    if any(epoch.accuracy is not None for run in runs for epoch in run.history):
        return ""
    return (
        '<p class="quiet">No public data was given, so there is no accuracy to show: reading it '
        "off the private records would be one more release to pay for.</p>"
    )


def _level(runs: Sequence[Run]) -> str:
    return "".join(f'<p class="quiet">{sentence}</p>' for sentence in unchanged(runs))


def _promise(run: Run, index: int) -> str:
    warning = f'<p class="warn">{_SEEDED}</p>' if run.seeded else ""
    outdated = f'<p class="warn">{_OUTDATED}</p>' if run.outdated else ""
    formal = ""
    if run.guarantee and not run.overspent:
        formal = f'<p class="formal">Formally: {_safe(shortened(run.guarantee))}</p>'
    return (
        f'<div class="promise s{index % STYLES}"><h3>{_safe(run.name)}</h3>'
        f"{outdated}<p>{_safe(promised(run))}</p>{warning}{formal}</div>"
    )


def _counted(runs: Sequence[Run]) -> str:
    return (
        '<p class="quiet">One row an epoch. ε is what had been spent by its end: every step, and '
        "every private signal that was read; what is used up is the share of the budget, by the "
        "filter's own measure. A signal is shown with the standard deviation of its "
        "noise.</p>"
    )


def _spends(run: Run) -> str:
    heads = ("epoch", "ε", "used up", "steps", "noise", "batch", "accuracy", "signal")
    told = any(epoch.spent_share is not None for epoch in run.history)
    measured = any(epoch.accuracy is not None for epoch in run.history)
    read = any(epoch.signal is not None for epoch in run.history)
    used = [True, True, told, True, True, True, measured, read]
    rows = [
        [cell for cell, shown in zip(_cells(e), used, strict=True) if shown] for e in run.history
    ]
    head = "".join(f"<th>{h}</th>" for h, shown in zip(heads, used, strict=True) if shown)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return (
        f"<details><summary>{_safe(run.name)}: "
        f"{_many(len(run.history), 'epoch')}, ε {at_most(run.history.epsilon)}</summary>"
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _cells(epoch: Epoch) -> list[str]:
    return [
        str(epoch.epoch),
        at_most(epoch.epsilon, padded=True),
        _NONE if epoch.spent_share is None else share_words(epoch.spent_share),
        number(epoch.steps),
        number(epoch.noise_multiplier),
        number(epoch.batch_size),
        _NONE if epoch.accuracy is None else f"{100 * epoch.accuracy:.1f} %",
        _NONE if epoch.signal is None else signal_words(epoch.signal),
    ]


def signal_words(signal: Reading) -> str:
    """A reading with its noise, and what it is a part of."""
    value = number(round(signal.value, 4))
    of = f" of {number(signal.records)}" if signal.rising else ""
    noise = f" ± {number(round(signal.deviation, 4))}" if signal.deviation else ""
    return f"{value}{noise}{of}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
