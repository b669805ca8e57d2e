# SPDX-License-Identifier: Apache-2.0
"""`dosimeter attack`: which rules stand against exact adversaries, and which noise."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli.outcome import Command, Group, print_json

if TYPE_CHECKING:
    from dosimeter.attack.noise import Attempt
    from dosimeter.attack.steps import Step

app = typer.Typer(cls=Group, invoke_without_command=True, rich_markup_mode=None)

_DELTA = 1e-5
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.callback()
def attack(context: typer.Context, as_json: Json = False) -> None:
    """Play exact adversaries against rules, and see which stand.

    Every view is enumerated in 60 digits: the delta that an adversary reaches is a fact about
    the rule, not an estimate. One that is larger than the delta claimed breaks the rule.

    \b
    Example:
      dosimeter attack
      dosimeter attack --json
    """
    if context.invoked_subcommand is not None:
        return
    from dosimeter.attack import examples, play
    from dosimeter.attack.__main__ import RULES, adversaries
    from dosimeter.cli.waiting import spinning

    rows = []
    with spinning("playing"):
        players = [step for _, step in adversaries()]
        for name, new_gate, measure in RULES:
            reached = [play(step, new_gate, examples.EPSILON) for step in players]
            worst = max(one.tail if measure == "tail" else one.hockey_stick for one in reached)
            rows.append((name, measure, worst))
    if as_json:
        print_json(
            [
                {
                    "rule": name,
                    "measure": measure,
                    "epsilon": examples.EPSILON,
                    "delta": examples.DELTA,
                    "reached": worst,
                    "holds": worst <= examples.DELTA,
                }
                for name, measure, worst in rows
            ]
        )
    else:
        _print(rows, examples.EPSILON, examples.DELTA)


@app.command(cls=Command)
def noise(as_json: Json = False) -> None:
    """Take torch's noise off a private step, and try the same with ours.

    The attacker sees two consecutive models and knows which words of a vocabulary are never used.
    Their rows of the embedding show the noise itself, hence bits of the Mersenne twister behind
    torch.normal, hence all its noise: what is left is the secret sum of gradients.

    \b
    Example:
      dosimeter attack noise
    """
    from dosimeter.cli.waiting import spinning

    with spinning("attacking"), warnings.catch_warnings():
        # Opacus hooks the first layer, whose input needs no gradient; torch remarks on it.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        from dosimeter.attack import noise, steps

        results = []
        for name, take in (("torch.normal", steps.plain_step), ("Dosimeter", steps.engine_step)):
            step, began = take(), time.perf_counter()
            attempt = noise.attack(step.view)
            result = _result(name, step, attempt, time.perf_counter() - began)
            result["epsilon"] = steps.epsilon(_DELTA)
            results.append(result)
            if not as_json:
                _tell(result)
        if as_json:
            print_json(results)


def _result(name: str, step: Step, attempt: Attempt, seconds: float) -> dict[str, Any]:
    found = attempt.recovered
    nothing = 0 * attempt.noise
    return {
        "noise": name,
        "parameters": len(step.view.after),
        "silent": int(step.view.silent.sum()),
        "bits": attempt.bits,
        "unknowns": found.unknowns,
        "rank": found.rank,
        "checks": found.checks,
        "contradictions": found.contradictions,
        "correlation": attempt.correlation,
        "succeeded": attempt.succeeded,
        "error_of_release": step.error(nothing),
        "error": step.error(attempt.noise),
        "words_told": step.words_told(attempt.noise),
        "seconds": seconds,
    }


def _tell(result: dict[str, Any]) -> None:
    from dosimeter.rounding import at_most, exact

    typer.secho(f"A private step with the noise of {result['noise']}", bold=True)
    broken = result["succeeded"]
    lines = [
        f"seen: {result['parameters']:,} parameters before and after one step, of which "
        f"{result['silent']:,} show noise alone",
        f"read as a twister they give {result['bits']:,} bits; {result['unknowns']:,} bits of its "
        f"state stay unknown, and the equations fix {result['rank']:,} of them",
        f"{result['contradictions']:,} of {result['checks']:,} further equations contradict that"
        + ("" if broken else ", as half of them do by chance: this is no twister"),
        f"noise that was held out is predicted with correlation {result['correlation']:.6f}",
        f"error of the secret sum: {result['error_of_release']:.3g} times its size as released, "
        f"{result['error']:.3g} with the predicted noise taken off",
    ]
    if broken:
        lines.append(
            f"BROKEN in {result['seconds']:.1f} s: whoever has both models sees for "
            f"{result['words_told']:.1%} of the words whether a record of the batch has them; "
            f"the step was charged epsilon {at_most(result['epsilon'])} at delta {exact(_DELTA)}"
        )
    else:
        lines.append(
            "stands: its noise comes from AES under a key of the operating system, new at each step"
        )
    for line in lines:
        typer.echo(f"  {line}")
    typer.echo()


def _print(rows: list[tuple[str, str, float]], epsilon: float, delta: float) -> None:
    from dosimeter.cli import tables

    tables.print_table(
        f"delta reached at epsilon {epsilon:g} where {delta:g} was claimed",
        ("rule", "measure", "reached", "verdict"),
        [
            (name, measure, f"{worst / delta:.4f} delta", _verdict(worst <= delta))
            for name, measure, worst in rows
        ],
        right=("reached",),
    )


def _verdict(holds: bool) -> str:
    return "[green]holds[/green]" if holds else "[red]BROKEN[/red]"
