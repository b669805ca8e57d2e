# SPDX-License-Identifier: Apache-2.0
"""Errors of commands: an exit code for programs, and one line for people."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

import typer

UsageError: Any = typer.BadParameter.__bases__[0]
"""The error of wrong options and commands; Typer does not export it by name."""


class ExitCode(IntEnum):
    """The exit codes of `dosimeter`."""

    DONE = 0
    CRASHED = 1
    USAGE = 2
    REFUSED = 3
    WRONG_NAME = 4
    DOES_NOT_VERIFY = 5
    UNAVAILABLE = 6


EXIT_CODES = """Exit codes: 0 done; 1 something unexpected; 2 wrong usage or values;
3 refused, over budget or closed, and nothing changed; 4 no such budget, or the name or key
is taken; 5 the journal, or an audit, does not verify; 6 the database cannot be used now."""

_EXTRAS = {
    "psycopg": "ledger",
    "torch": "torch",
    "cryptography": "torch",
    "safetensors": "torch",
    "filelock": "torch",
    "sklearn": "torch",
    "matplotlib": "plot",
    "rich": "cli",
    "httpx": "ledger",
    "sqlalchemy": "service",
    "fastapi": "service",
    "uvicorn": "service",
    "jinja2": "service",
    "prometheus_client": "service",
}
"""The extra of the package that brings a module."""


def print_error(error: Exception, page: str) -> int:
    """Print one line about an error and return its exit code.

    Args:
        error: The error; its notes say the way out where the message does not.
        page: The command whose help the line names if the error knows none.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(str(error), err=True)
        return ExitCode.USAGE
    if isinstance(error, UsageError):
        line, code = _misuse(error, page), ExitCode.USAGE
    elif isinstance(error, typer.Abort):
        line, code = "aborted; nothing more was done", ExitCode.CRASHED
    elif isinstance(error, ModuleNotFoundError):
        line, code = _missing(error), ExitCode.USAGE
    else:
        code = _exit_code(error)
        line = str(error)
        if code is ExitCode.CRASHED:
            line = f"{type(error).__name__}: {line} (--debug shows where)"
        elif isinstance(error, OSError) and error.strerror:
            named = f"{error.filename}: " if error.filename else ""
            line = f"{named}{error.strerror.lower()}"
        line = "; ".join([line, *getattr(error, "__notes__", [])])
    typer.echo(f"error: {_one_line(line)}", err=True)
    return code


def _misuse(error: Any, page: str) -> str:
    """Return what is wrong with the words of a command, and where its help is."""
    message = _condition(error) or error.format_message()
    options = sorted(getattr(error, "possibilities", None) or [])
    if options:
        message = f"{error.message}. Did you mean {' or '.join(options)}?"
    text = message[0].lower() + message[1:].strip().rstrip(".").replace(". Did", "; did")
    command = page if error.ctx is None else error.ctx.command_path
    return (text if text.endswith("?") else f"{text};") + f" see {command} --help"


def _condition(error: Any) -> str | None:
    """Return the condition of a value in the form of the library's own errors."""
    details = getattr(error.__cause__, "errors", None)
    if details is None or error.param is None:
        return None
    first = details()[0]
    wanted = first["msg"].removeprefix("Input should be ").split(",")[0]
    return f"{error.param.get_error_hint()} must be {wanted}, got {first['input']!r}"


def _missing(error: ModuleNotFoundError) -> str:
    module = (error.name or "").split(".")[0]
    extra = _EXTRAS.get(module)
    wanted = f"-c constraints.txt '.[{extra}]' in a clone of dosimeter" if extra else module
    return f"this command needs {module}, which is not installed; pip install {wanted}"


def _exit_code(error: Exception) -> ExitCode:
    from dosimeter.errors import BudgetExceeded

    known: list[tuple[type[Exception] | tuple[type[Exception], ...], ExitCode]] = []
    # A ledger that was never loaded raised nothing, and loading it may not be possible.
    errors = sys.modules.get("dosimeter.ledger.errors")
    if errors is not None:
        known = [
            (errors.BudgetClosed, ExitCode.REFUSED),
            (
                (errors.BudgetNotFound, errors.BudgetExists, errors.KeyConflict),
                ExitCode.WRONG_NAME,
            ),
            (errors.JournalError, ExitCode.DOES_NOT_VERIFY),
            ((errors.LedgerUnavailable, errors.SchemaMismatch), ExitCode.UNAVAILABLE),
        ]
    known += [
        (BudgetExceeded, ExitCode.REFUSED),
        ((ValueError, TypeError, OSError), ExitCode.USAGE),
    ]
    return next((code for kinds, code in known if isinstance(error, kinds)), ExitCode.CRASHED)


def _one_line(text: str) -> str:
    """Return the text without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
