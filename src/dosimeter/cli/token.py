# SPDX-License-Identifier: Apache-2.0
"""`dosimeter token`: who may do what at a service, for whoever owns its database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli.commands import Command, Group
from dosimeter.cli.database import DEFAULT_DB, Db, office
from dosimeter.cli.options import Json
from dosimeter.cli.output import Table, print_json

if TYPE_CHECKING:
    from dosimeter.service.tokens import Issued

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
    now = datetime.now(UTC).timestamp()
    with office(db) as service:
        rows: list[dict[str, Any]] = [
            {
                "id": token.id,
                "owner": token.owner,
                "grants": [str(grant) for grant in token.grants],
                "state": _state(token, now),
                "expires": datetime.fromtimestamp(token.expires, UTC).date().isoformat(),
            }
            for token in service.tokens.listed()
        ]
    if as_json:
        print_json(rows)
        return
    headings = ("id", "state", "expires", "owner", "grants")
    for row in rows:
        row["grants"] = " ".join(row["grants"])
    Table(headings, [[row[heading] for heading in headings] for row in rows]).print()


def _state(token: Issued, now: float) -> str:
    if token.revoked:
        return "revoked"
    return "expired" if token.expires <= now else "valid"


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
