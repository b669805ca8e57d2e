# SPDX-License-Identifier: Apache-2.0
"""`dosimeter audit`: does the engine do what it charges for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli.errors import ExitCode
from dosimeter.cli.options import Json
from dosimeter.cli.output import Table, print_json
from dosimeter.rounding import at_least, at_most, exact

if TYPE_CHECKING:
    from dosimeter.attack import Audit


def audit(
    epsilon: Annotated[float, typer.Option(metavar="NUMBER", help="Epsilon of the filter.")] = 4.0,
    delta: Annotated[float, typer.Option(metavar="NUMBER", help="Delta of the filter.")] = 1e-5,
    canaries: Annotated[int, typer.Option(metavar="COUNT", help="Records made to be seen.")] = 5000,
    noise_multiplier: Annotated[
        float, typer.Option(metavar="NUMBER", help="Noise of the first step.")
    ] = 2.0,
    sample_rate: Annotated[
        float, typer.Option(metavar="NUMBER", help="Sample rate of the first step.")
    ] = 0.1,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Keep noise and rate, instead of changing them.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Stop after so many steps.")
    ] = None,
    false_alarm: Annotated[
        float, typer.Option(metavar="NUMBER", help="How often a sound engine may be accused.")
    ] = 1e-3,
    seed: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Repeat who is in; noise stays new.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test whether the engine does what it charges for.

    One training run on thousands of canaries, each seen at coordinates of its own. Nothing found
    is no proof; what is found is wrong no more often than --false-alarm.

    \b
    Example:
      dosimeter audit
      dosimeter audit --canaries 1000 --steps 20 --json

    Exit codes: 0 nothing found; 2 wrong values; 5 the engine does not do what it charges for.
    """
    from dosimeter.accounting import Filter
    from dosimeter.attack import audit as audited
    from dosimeter.attack import fixed as unchanged
    from dosimeter.cli.progress import waiting

    gate = Filter(epsilon, delta)
    from dosimeter.training import PrivateEngine

    with waiting("auditing") as tell:
        done = audited(
            PrivateEngine,
            gate,
            canaries=canaries,
            noise_multiplier=noise_multiplier,
            sample_rate=sample_rate,
            steps=steps,
            policy=unchanged if fixed else None,
            false_alarm=false_alarm,
            seed=seed,
            progress=lambda share: tell("auditing", share),
        )
    print_json(_plain(done)) if as_json else _print(done)
    if not done.passed:
        raise typer.Exit(ExitCode.DOES_NOT_VERIFY)


def _plain(done: Audit) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(done), "violations": list(done.violations), "passed": done.passed}


def _print(done: Audit) -> None:
    Table(
        ("epsilon", "", "takes for granted"),
        [
            (at_most(done.claimed), "claimed by the gate", ""),
            (at_most(done.exact), "of what was charged, exactly", "a schedule fixed beforehand"),
            *(
                (at_least(bound.epsilon), f"seen at least, {bound.name}", bound.assumes)
                for bound in (done.gaussian, done.one_run)
            ),
        ],
        right=("epsilon",),
        title=f"{done.steps} steps on {done.canaries:,} canaries, "
        f"epsilon at delta {exact(done.delta)}",
    ).print()
    typer.echo()
    Table(
        ("test", "stands out most", "p", "verdict"),
        [
            (
                one.name,
                one.measured,
                f"{one.p:.1e}",
                "VIOLATED" if done.alarm(one) else "as charged",
            )
            for one in done.findings
        ],
        right=("p",),
        title=f"tests against what was charged, false alarm {exact(done.false_alarm)} in all",
        styles={"VIOLATED": "red", "as charged": "green"},
    ).print()
    typer.echo()
    typer.echo(done.verdict)
