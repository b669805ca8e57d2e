# SPDX-License-Identifier: Apache-2.0
"""`dosimeter serve`: the budgets of a database behind tokens and HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli.database import DEFAULT_DB, Db


def serve(
    db: Db = DEFAULT_DB,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="Port; 0 takes a free one.")] = 8421,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate, to speak TLS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy that speaks TLS stands before it.")
    ] = False,
    rate: Annotated[
        float, typer.Option(metavar="NUMBER", help="Requests a second for one token.")
    ] = 1000.0,
    signing_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="DOSIMETER_SIGNING_KEY",
            help="Key that signs receipts and anchors; made if it is not there.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what goes wrong.")] = False,
) -> None:
    """Serve budgets over HTTP, to people and programs with tokens.

    The first start prints a token for everything, once. Requests under way are finished when it
    is told to end. The log goes to the standard error, as lines of JSON without secrets.

    \b
    Example:
      dosimeter serve --db sqlite:///budgets.db
    """
    from dosimeter import service

    listening = service.Listening(
        host=host, port=port, certificate=certificate, key=key, proxy=behind_proxy, rate=rate
    )
    service.serve(db, listening, _announce, quiet=quiet, signing_key=signing_key)


def _announce(token: str | None, address: str) -> None:
    lines = [f"serving {address}"]
    if token is not None:
        lines.append(f"first token {token}")
        lines.append("it may do everything and is not shown again; keep it where secrets are kept")
    typer.echo("\n".join(lines))  # at once: whoever sees the address sees the token
