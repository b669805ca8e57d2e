# SPDX-License-Identifier: Apache-2.0
"""Who may do what: a role over the budgets that a scope names.

A scope is the name of a budget, or the beginning of names and a star: `visits/*` covers every
budget whose name begins with `visits/`, and `*` covers all. Whoever has no role over a budget is
told that there is none of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from dosimeter.ledger import AccessDenied, BudgetNotFound

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
_LONGEST_SCOPE = 500


class Role(IntEnum):
    """What someone may do; each may do what those before it may."""

    READER = 1
    """See balances, journals and prices, verify and export."""
    SPENDER = 2
    """Spend and reserve."""
    OWNER = 3
    """Make and close budgets, give allowances, decide requests."""
    ADMIN = 4
    """Issue and revoke tokens; over everything only."""

    @classmethod
    def named(cls, word: str) -> Role:
        """The role with this name.

        Raises:
            ValueError: There is none.
        """
        known = {role.name.lower(): role for role in cls}
        if word not in known:
            raise ValueError(f"role must be one of {', '.join(known)}, got {word!r}")
        return known[word]

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Grant:
    """A role over the budgets that a scope names."""

    role: Role
    scope: str

    def __post_init__(self) -> None:
        inside = self.scope.removesuffix("*")
        if not 0 < len(self.scope) <= _LONGEST_SCOPE or "*" in inside or not inside.isprintable():
            raise ValueError(
                "scope must be the name of a budget, or the beginning of names and one star at "
                f"its end, got {self.scope[:80]!r}"
            )
        if self.role is Role.ADMIN and self.scope != "*":
            raise ValueError(
                f"scope of an admin must be '*', because tokens are for everything, got "
                f"{self.scope!r}; an owner may do all else"
            )

    def covers(self, name: str) -> bool:
        """Whether a budget of this name is in the scope."""
        if self.scope.endswith("*"):
            return name.startswith(self.scope[:-1])
        return name == self.scope

    @classmethod
    def read(cls, text: str) -> Grant:
        """The grant written as `role:scope`."""
        role, colon, scope = text.partition(":")
        if not colon:
            raise ValueError(f"grant must be written role:scope, as spender:visits/*, got {text!r}")
        return cls(Role.named(role), scope)

    def __str__(self) -> str:
        return f"{self.role}:{self.scope}"


@dataclass(frozen=True)
class Caller:
    """Whoever holds a token that was accepted.

    Attributes:
        token: The public part of the token.
        owner: Whom it was issued to; the actor in journals.
        grants: What it allows.
    """

    token: str
    owner: str
    grants: tuple[Grant, ...]

    def role(self, name: str) -> Role | None:
        """The highest role over a budget of this name; None if it may not even be known of."""
        return max((grant.role for grant in self.grants if grant.covers(name)), default=None)

    def require(self, role: Role, names: Iterable[str]) -> None:
        """Raises unless the caller has the role over every budget named.

        Raises:
            BudgetNotFound: One of them is outside all scopes, whether it exists or not.
            AccessDenied: One of them may be seen, but not this done with it.
        """
        held = {name: self.role(name) for name in names}
        for name, found in held.items():
            if found is None:
                raise BudgetNotFound(name)
        for name, found in held.items():
            if found is not None and found < role:
                raise AccessDenied(
                    f"token must have the role {role} over budget {name!r}, got {found}; an admin "
                    "can issue one"
                )

    @property
    def is_admin(self) -> bool:
        """Whether tokens are its business."""
        return any(grant.role is Role.ADMIN for grant in self.grants)

    def require_admin(self) -> None:
        """Raises AccessDenied unless the caller is an admin."""
        if not self.is_admin:
            raise AccessDenied("token must have the role admin for this")


def owner_name(what: str, text: object) -> str:
    """The name of a person, a team or a program, as tokens and allowances know it."""
    if isinstance(text, str) and text.startswith("dsm_"):
        raise ValueError(f"{what} must be a name, got what looks like a token")
    if not isinstance(text, str) or not _OWNER.fullmatch(text):
        raise ValueError(
            f"{what} must be 1 to 100 letters, digits or . _ @ + -, and begin with a letter or "
            f"digit, got {text!r:.120}"
        )
    return text
