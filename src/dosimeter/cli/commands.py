# SPDX-License-Identifier: Apache-2.0
"""The classes of commands: their help, their options and the way that they end.

Every command runs inside `Root`, so no command has to catch anything: it raises what the library
raises.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from typer.core import TyperCommand, TyperGroup

from dosimeter.cli.errors import ExitCode, print_error


class Group(TyperGroup):
    """Commands under one name."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the group."""
        return _unconverted(super().get_params(ctx))


class Root(Group):
    """The root command, which turns errors into one line and an exit code.

    With --debug they stay tracebacks.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and exit with its code."""
        given = list(sys.argv[1:] if args is None else args)
        # People add --debug where they stand, which is the end of the line.
        asked = [word for word in given if word != "--debug"]
        try:
            code = super().main(asked, prog_name, complete_var, standalone_mode=False, **extra)
        except Exception as error:
            if len(asked) < len(given):
                raise
            code = print_error(error, self._page(asked))
        sys.exit(code or ExitCode.DONE)

    def _page(self, words: Sequence[str]) -> str:
        """Return the command that words name, as far as they name one."""
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
        """Return the arguments and the options."""
        return _unconverted(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options into the help."""
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
    """Return the parameters, with texts and flags left as they are.

    Newer releases of Typer convert values by pydantic, which takes a third of a command's time
    to load; texts and flags need no conversion.
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
