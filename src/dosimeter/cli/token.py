# SPDX-License-Identifier: Apache-2.0
"""`dosimeter token`: who may do what at a service, for whoever owns its database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from dosimeter.cli.database import DEFAULT_DB, Db, office
from dosimeter.cli.errors import Command, Group, print_json
from dosimeter.cli.options import Json

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Tokens of a service, by the database that it serves.

\b
Example:
  dosimeter token issue ada --grant "spender:visits/*"
  dosimeter token list

Roles: reader (see, verify), spender (spend), owner (make and close budgets), admin
(tokens). A scope is the name of a budget, or the beginning of names and a star.""",
)


@app.command(cls=Command)
def issue(
    owner: Annotated[str, typer.Argument(help="Whom it is for; the actor in journals.")],
    grant: Annotated[
        list[str], typer.Option(metavar="ROLE:SCOPE", help="What it allows; repeat for more.")
    ],
    days: Annotated[float, typer.Option(metavar="NUMBER", help="How long it is valid.")] = 90,
    db: Db = DEFAULT_DB,
) -> None:
    """Issue a token; it is shown this once.

    \b
    Example:
      dosimeter token issue ada --grant "spender:visits/*" --days 30
      dosimeter token issue prometheus --grant "reader:*"
    """
    from dosimeter.service import Grant

    grants = [Grant.read(text) for text in grant]
    with office(db) as service:
        typer.echo(service.tokens.issue(owner, grants, days=days, issued_by="dosimeter token"))


@app.command("list", cls=Command)
def list_tokens(
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """List every token that was ever issued, without its secret.

    \b
    Example:
      dosimeter token list
    """
    with office(db) as service:
        now = datetime.now(UTC).timestamp()
        rows = []
        for token in service.tokens.listed():
            grants = [str(grant) for grant in token.grants]
            ends = datetime.fromtimestamp(token.expires, UTC).date().isoformat()
            over = "revoked" if token.revoked else "expired" if token.expires <= now else "valid"
            rows.append(
                dict(id=token.id, owner=token.owner, grants=grants, state=over, expires=ends)
            )
            if not as_json:
                typer.echo(f"{token.id}  {over:8}until {ends}  {token.owner}  {' '.join(grants)}")
        if as_json:
            print_json(rows)


@app.command(cls=Command)
def revoke(
    id: Annotated[str, typer.Argument(help="The first part of it, which list shows.")],
    db: Db = DEFAULT_DB,
) -> None:
    """End a token now, and the sessions that it opened.

    \b
    Example:
      dosimeter token revoke 3f9a1c0b7d52
    """
    with office(db) as service:
        service.tokens.revoke(id, by="dosimeter token")
        typer.echo(f"{id}: revoked")
