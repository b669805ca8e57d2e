# SPDX-License-Identifier: Apache-2.0
"""How a command ends: an exit code that programs can act on, and one line for people.

Every command runs inside `Root`, so no command has to catch anything: it raises what the
library raises.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

UsageError: Any = typer.BadParameter.__bases__[0]
"""What wrong options and commands raise; Typer does not export it by name."""


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
"""Which extra of the package brings a module."""


class Group(TyperGroup):
    """Commands under one name."""

    def get_params(self, ctx: Any) -> Any:
        """The options of the group."""
        return _unconverted(super().get_params(ctx))


class Root(Group):
    """The root command: errors become one line and an exit code, tracebacks need --debug."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line and leaves with its exit code."""
        given = list(sys.argv[1:] if args is None else args)
        # People add --debug where they stand, which is the end of the line.
        asked = [word for word in given if word != "--debug"]
        try:
            code = super().main(asked, prog_name, complete_var, standalone_mode=False, **extra)
        except Exception as error:
            if len(asked) < len(given):
                raise
            code = tell(error, self._page(asked))
        sys.exit(code or ExitCode.DONE)

    def _page(self, words: Sequence[str]) -> str:
        """The command that words name, as far as they name one."""
        path, command = ["dosimeter"], cast(Any, self)
        for word in words:
            command = getattr(command, "commands", {}).get(word)
            if command is None:
                break
            path.append(word)
        return " ".join(path)


class Command(TyperCommand):
    """A command whose help names its arguments without their types in Python."""

    def get_params(self, ctx: Any) -> Any:
        """The arguments and the options."""
        return _unconverted(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and the options into the help."""
        found: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                name = record[0].partition(" <")[0] if argument else record[0]
                found[param.param_type_name].append((name, record[1]))
        for kind, rows in found.items():
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)


def _unconverted(params: list[Any]) -> list[Any]:
    """Parameters of which texts and flags are taken as they are.

    Newer releases of Typer convert every value by pydantic, which takes longer to load than most
    commands to run; these have nothing to convert.
    """
    with suppress(ImportError):
        from typer._coercion import PassThroughRuntimeParam

        for param in params:
            about = getattr(param, "type_descriptor", None)
            if about is not None and about.annotation in (str, bool):
                param._runtime_param = PassThroughRuntimeParam(
                    parameter_info=about.parameter_info, annotation=about.annotation
                )
    return params


def tell(error: Exception, page: str) -> int:
    """Prints one line about an error; returns the exit code.

    Args:
        error: What was raised; its notes say the way out where the message does not.
        page: The command whose help to name if the error does not know it.
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
    """What was wrong with the words of a command, and where to read how they go."""
    message = _condition(error) or error.format_message()
    options = sorted(getattr(error, "possibilities", None) or [])
    if options:
        message = f"{error.message}. Did you mean {' or '.join(options)}?"
    text = message[0].lower() + message[1:].strip().rstrip(".").replace(". Did", "; did")
    command = page if error.ctx is None else error.ctx.command_path
    return (text if text.endswith("?") else f"{text};") + f" see {command} --help"


def _condition(error: Any) -> str | None:
    """What a value must be, in the form of the library's own errors."""
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
            ((errors.LedgerUnavailable, errors.SchemaTooNew), ExitCode.UNAVAILABLE),
        ]
    known += [
        (BudgetExceeded, ExitCode.REFUSED),
        ((ValueError, TypeError, OSError), ExitCode.USAGE),
    ]
    return next((code for kinds, code in known if isinstance(error, kinds)), ExitCode.CRASHED)


def _one_line(text: str) -> str:
    """The text without line breaks, and without what could rewrite the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
