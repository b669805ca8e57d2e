# SPDX-License-Identifier: Apache-2.0
"""Tokens: shown once, kept as hashes, expiring and revocable; and the sessions they open.

A token is `dsm_<id>_<secret>`. The id is public and finds the row; of the rest only a SHA-256 is
stored, which is enough because the secret has 256 random bits. A session is the same for a
browser, for some hours, and ends with its token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from dosimeter import arguments
from dosimeter.ledger import AccessDenied
from dosimeter.service.cabinet import Cabinet, sessions, tokens
from dosimeter.service.roles import Caller, Grant, owner_name

DAY = 86400.0
SESSION = 12 * 3600.0
_LONGEST_DAYS = 3660
_VALID = select(tokens).where(
    tokens.c.id == bindparam("id"),
    tokens.c.revoked.is_(None),
    tokens.c.expires > bindparam("now"),
)
_REFUSED = "token must be one that is valid here, got one that is unknown, expired or revoked"


@dataclass(frozen=True)
class Issued:
    """A token as it is listed; its secret is nowhere.

    Attributes:
        id: The public part.
        owner: Whom it was issued to.
        grants: What it allows.
        issued: When, in seconds since 1970.
        issued_by: By whom.
        expires: When it ends by itself.
        revoked: When it was revoked; None if it was not.
    """

    id: str
    owner: str
    grants: tuple[Grant, ...]
    issued: float
    issued_by: str
    expires: float
    revoked: float | None


class Tokens:
    """The tokens of a service."""

    def __init__(self, cabinet: Cabinet, clock: Callable[[], float] = time.time) -> None:
        self._cabinet = cabinet
        self._clock = clock

    def issue(
        self, owner: str, grants: Iterable[Grant], *, days: float = 90, issued_by: str
    ) -> str:
        """A new token; this is the only time that it can be read."""
        owner_name("owner", owner)
        given = sorted({str(grant) for grant in grants})
        if not given:
            raise ValueError("grants must name at least one role:scope, got none")
        if not 0 < arguments.positive("days", days) <= _LONGEST_DAYS:
            raise ValueError(f"days must be at most {_LONGEST_DAYS}, got {days!r}")
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        token, now = f"dsm_{id}_{secret}", self._clock()
        row = dict(id=id, hash=_hash(token), owner=owner, grants="\n".join(given), issued=now)
        with self._cabinet.writing() as connection:
            connection.execute(
                insert(tokens).values(**row, issued_by=issued_by, expires=now + days * DAY)
            )
        return token

    def issue_first(self, owner: str = "admin") -> str | None:
        """A token for everything if there was never one, else None."""
        with self._cabinet.reading() as connection:
            if connection.execute(select(func.count()).select_from(tokens)).scalar_one():
                return None
        return self.issue(owner, [Grant.read("admin:*")], days=365, issued_by="dosimeter serve")

    def caller(self, token: str) -> Caller:
        """Who holds a token.

        Raises:
            AccessDenied: It is unknown, expired or revoked; which of them is not said.
        """
        parts = token.split("_", 2)
        row = None
        if len(parts) == 3 and parts[0] == "dsm" and len(token) < 200 and token.isascii():
            row = self._valid(parts[1])
        # The same work whether or not there is such a row.
        known = row.hash if row is not None else _hash("")
        if not hmac.compare_digest(_hash(token), known) or row is None:
            raise AccessDenied(_REFUSED)
        return _caller(row)

    def revoke(self, id: str, *, by: str) -> None:
        """Ends a token now, and the sessions that it opened; twice is no error."""
        change = update(tokens).where(tokens.c.id == id, tokens.c.revoked.is_(None))
        with self._cabinet.writing() as connection:
            known = connection.execute(select(tokens.c.id).where(tokens.c.id == id)).first()
            if known is None:
                raise ValueError(f"id must be that of a token, got {id!r:.80}")
            connection.execute(change.values(revoked=self._clock(), revoked_by=by))
            connection.execute(delete(sessions).where(sessions.c.token == id))

    def listed(self) -> list[Issued]:
        """Every token that was ever issued, the newest first."""
        columns = [tokens.c[name] for name in Issued.__dataclass_fields__]
        with self._cabinet.reading() as connection:
            rows = connection.execute(select(*columns).order_by(tokens.c.issued.desc())).all()
        return [Issued(**{**row._mapping, "grants": _grants(row.grants)}) for row in rows]

    def open_session(self, token: str) -> str:
        """A secret for a browser's cookie, in place of the token."""
        caller, now, secret = self.caller(token), self._clock(), secrets.token_urlsafe(32)
        row = dict(hash=_hash(secret), token=caller.token, expires=now + SESSION)
        with self._cabinet.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= now))
            connection.execute(insert(sessions).values(**row))
        return secret

    def session(self, secret: str) -> Caller | None:
        """Who opened a session; None if it is over, or its token is."""
        query = select(sessions.c.token).where(
            sessions.c.hash == _hash(secret), sessions.c.expires > self._clock()
        )
        with self._cabinet.reading() as connection:
            id = connection.execute(query).scalar()
        row = None if id is None else self._valid(id)
        return None if row is None else _caller(row)

    def close_session(self, secret: str) -> None:
        """Ends a session."""
        with self._cabinet.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.hash == _hash(secret)))

    def _valid(self, id: str) -> Any:
        with self._cabinet.reading() as connection:
            return connection.execute(_VALID, {"id": id, "now": self._clock()}).first()


def _caller(row: Any) -> Caller:
    return Caller(row.id, row.owner, _grants(row.grants))


def _grants(text: str) -> tuple[Grant, ...]:
    return tuple(Grant.read(line) for line in text.split("\n"))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
