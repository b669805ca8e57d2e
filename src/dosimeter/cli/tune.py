# SPDX-License-Identifier: Apache-2.0
"""`dosimeter tune`: a search for settings, charged as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli.database import require_there
from dosimeter.cli.outcome import print_json
from dosimeter.cli.train import INTERRUPTED, quietly, write_starter


def tune(
    config: Annotated[Path, typer.Argument(help="What to train, and what to search.")] = Path(
        "config.toml"
    ),
    init: Annotated[
        bool, typer.Option("--init", help="Write a config that runs as it is, and stop.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the search in the output folder.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many trials to run side by side.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Search for good settings, with all trials charged to one budget.

    The winner is in the folder `winner` of the folder that the config names, ready for dosimeter
    predict; beside it a report of every trial, its cost, and the epsilon of the whole search.

    \b
    Example:
      dosimeter tune --init
      dosimeter tune config.toml

    Exit codes: 0 done; 2 wrong config, file or value; 130 interrupted, can be resumed;
    others as in dosimeter budget --help.
    """
    if init:
        from dosimeter.search.starter import STARTER

        write_starter(config, STARTER, "tune")
        return
    from dosimeter.report.search import write

    try:
        result = _run(config, resume=resume, processes=processes, quiet=as_json)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {_way_on(config)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    page = Path(result["folder"]) / "report.html"
    write(result, page)
    if result["method"] == "best_of":
        from dosimeter.search.tune import undated

        undated(page.parent)
    if as_json:
        print_json(result)
    else:
        _print(result, page)


def _run(path: Path, *, resume: bool, processes: int, quiet: bool) -> dict[str, Any]:
    from dosimeter.search.table import read_search

    search = read_search(path)
    url = search.config.budget.ledger or os.environ.get("DOSIMETER_DB")
    if search.config.budget.kind == "ledger" and url:
        require_there(url, "budget.ledger")
    if search.table.method == "best_of" and processes > 1:
        raise ValueError(
            f"--processes must be 1 for best_of, whose trials nobody may count, got {processes}"
        )
    # Only now, for torch takes seconds to load: a typo is told at once.
    from dosimeter.cli.waiting import spinning, waiting
    from dosimeter.search.tune import tune

    shared: dict[str, Any] = {
        "resume": resume,
        "note": lambda words: typer.echo(words, err=True),
    }
    with quietly():
        if quiet:
            return tune(search, path, processes=processes, **shared)
        if search.table.method == "best_of":
            with spinning("searching; how far it is, nobody may know"):
                return tune(search, path, **shared)
        with waiting("searching") as tell:
            return tune(
                search,
                path,
                processes=processes,
                tell=lambda words, done, of: tell(f"{done} of {of}: {words}", done / of),
                **shared,
            )


def _way_on(path: Path) -> str:
    """What to do after Ctrl-C."""
    from dosimeter.search.table import read_search

    search = read_search(path)
    if not (Path(search.config.output.folder) / "plan.json").exists():
        return f"nothing was spent; begin again with: dosimeter tune {path}"
    if search.table.method == "best_of":
        return "what it was charged stays spent, and nothing of it can be gone on with"
    return f"go on with: dosimeter tune {path} --resume"


def _print(result: dict[str, Any], page: Path) -> None:
    from dosimeter.report.search import noise, unscored
    from dosimeter.rounding import at_most, exact, score_words, shortened

    winner = result["winner"]
    earlier = unscored(winner)
    when = "" if earlier is None else f", {earlier}"
    score = score_words(winner["score"])
    typer.echo(
        f"winner: {_settings(winner)}; {score} of the scored records right, {noise(result)}{when}"
    )
    spent = f"epsilon {at_most(result['epsilon'])} of {exact(result['limit'])}"
    if result["kind"] == "ledger":
        before = at_most(result["epsilon_before"])
        spent = f"its budget stands at {spent}, {before} before it"
    typer.echo(f"the whole search: {spent}; ended because {result['ended']}")
    skipped = result.get("skipped", [])
    if skipped:
        first = skipped[0]
        typer.echo(
            f"skipped at no cost: {len(skipped)} settings that cannot be trained, such as "
            f"{_settings(first)}, because {first['reason']}"
        )
    for one in result.get("trials", []):
        if one.get("lost"):
            typer.echo(f"lost: trial {one['trial']}, because {one['lost']}")
    typer.echo(f"guarantee: {shortened(result['guarantee'])}")
    typer.echo(f"the winner is in {winner['folder']}; guarantee.txt says what is promised")
    typer.echo(f"report: {page.resolve().as_uri()}")


def _settings(one: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_said(value)}" for key, value in one["settings"].items())


def _said(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
