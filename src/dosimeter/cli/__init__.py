# SPDX-License-Identifier: Apache-2.0
"""The command line (extra: cli). Commands talk; the library computes.

Nothing heavy is imported before a command runs, so that help and completion come at once.
"""


def main() -> None:
    """Runs the `dosimeter` command."""
    try:
        from dosimeter.cli.app import app
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"error: the command line needs {error.name}; pip install 'dosimeter[cli,ledger]'"
        ) from None
    app(prog_name="dosimeter")
