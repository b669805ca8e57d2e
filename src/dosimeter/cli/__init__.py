# SPDX-License-Identifier: Apache-2.0
"""The command line (extra: cli). Commands talk; the library computes.

Nothing heavy is imported before a command runs, so that help and completion come at once.
"""

import io
import sys


def main() -> None:
    """Runs the `dosimeter` command."""
    try:
        from dosimeter.cli.app import app, narrow
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"error: the command line needs {error.name}; "
            "pip install -c constraints.txt '.[cli,ledger]' in a clone of dosimeter"
        ) from None
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows its code; that is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    narrow(sys.argv[1:])
    app(prog_name="dosimeter")
