# SPDX-License-Identifier: Apache-2.0
"""How a command ends: an exit code that programs can act on, and one line for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import typer

debug = False
"""Whether errors are shown with their tracebacks; set by --debug."""


class ExitCode(IntEnum):
    """What the exit codes of `dosimeter` mean."""

    DONE = 0
    CRASHED = 1
    USAGE = 2
    REFUSED = 3
    WRONG_NAME = 4
    DOES_NOT_VERIFY = 5
    UNAVAILABLE = 6


EXIT_CODES = """Exit codes: 0 done; 1 something unexpected; 2 wrong usage or values;
3 refused, over budget or closed, and nothing changed; 4 no such budget, or the name or key
is taken; 5 the journal does not verify; 6 the database cannot be used now."""


@contextmanager
def reported() -> Iterator[None]:
    """Turns errors of the library into an exit code and one line on standard error."""
    try:
        yield
    except (typer.Exit, typer.Abort, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        if debug:
            raise
        code = _exit_code(error)
        if code is ExitCode.CRASHED:
            typer.echo(f"error: {type(error).__name__}: {_one_line(error)} (see --debug)", err=True)
        else:
            typer.echo(f"error: {_one_line(error)}", err=True)
        raise typer.Exit(code) from error


def _exit_code(error: Exception) -> ExitCode:
    from dosimeter.errors import BudgetExceeded
    from dosimeter.ledger import errors

    known: list[tuple[type[Exception] | tuple[type[Exception], ...], ExitCode]] = [
        ((BudgetExceeded, errors.BudgetClosed), ExitCode.REFUSED),
        (
            (errors.BudgetNotFound, errors.BudgetExists, errors.KeyConflict),
            ExitCode.WRONG_NAME,
        ),
        (errors.JournalError, ExitCode.DOES_NOT_VERIFY),
        ((errors.LedgerUnavailable, errors.SchemaTooNew), ExitCode.UNAVAILABLE),
        ((ValueError, TypeError, OSError), ExitCode.USAGE),
    ]
    return next((code for kinds, code in known if isinstance(error, kinds)), ExitCode.CRASHED)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def print_json(value: Any) -> None:
    """One line of JSON; infinity as the text "inf"."""
    typer.echo(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "inf" if isinstance(value, float) and value == math.inf else value
