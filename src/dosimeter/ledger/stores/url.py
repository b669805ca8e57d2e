# SPDX-License-Identifier: Apache-2.0
"""Where a ledger is, as people write it: a URL, or the path of a file.

What is neither is refused here, before a file of that name is made, and without repeating it: it
may hold a password.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

_SCHEMES = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_KEYWORDS = re.compile(
    r"\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options)\s*=", re.I
)
_ONE_SLASH = re.compile(r"(sqlite|postgres(ql)?)(\+\w+)?:(?!//)", re.I)


class Place(NamedTuple):
    """A database.

    Attributes:
        backend: "sqlite" or "postgresql".
        target: What its driver connects to.
        file: The path of an SQLite file.
        uri: Whether SQLite takes the target for a URI.
    """

    backend: str
    target: str
    file: str = ""
    uri: bool = False


def placed(url: object) -> Place:
    """The database that a URL, or the path of a file, names.

    Raises:
        TypeError: It is no text.
        ValueError: It names none.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be text such as 'sqlite:///budgets.db', got {url!r}")
    if _KEYWORDS.match(url):
        raise ValueError(
            "url must be a URL, got keywords and values as libpq takes them; write "
            "postgresql://user@host/database?sslmode=…"
        )
    if _ONE_SLASH.match(url):
        scheme, _, rest = url.partition(":")
        right = f"///{rest.lstrip('/')}" if scheme.startswith("sqlite") else "//user@host/database"
        raise ValueError(f"url must have slashes after its scheme; write {scheme}:{right}")
    scheme, found, rest = url.partition("://")
    if not found:
        return _file(url)
    backend = _SCHEMES.get(scheme)
    if backend is None:
        raise ValueError(f"url must begin with sqlite:// or postgresql://, got {scheme!r}")
    if backend == "postgresql":
        return Place(backend, f"postgresql://{rest}")
    if rest and not rest.startswith("/"):
        raise ValueError(f"url must have three slashes before its path; write sqlite:///{rest}")
    return _sqlite(rest[1:])


def _sqlite(rest: str) -> Place:
    name, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not name.startswith("file:"):
        if options:
            raise ValueError(f"url must have options only with sqlite:///file:, got {query!r}")
        return _file(name)
    options.pop("uri", None)
    path = unquote(name.removeprefix("file:"))
    if path in ("", ":memory:") or options.get("mode") == "memory":
        raise not_a_file()
    target = f"{name}?{urlencode(options)}" if options else name
    return Place("sqlite", target, os.path.abspath(path), uri=True)


def _file(name: str) -> Place:
    if name in ("", ":memory:"):
        raise not_a_file()
    # Later connections lead to the same file, whatever folder the process is in by then.
    path = os.path.abspath(name)
    return Place("sqlite", path, path)


def not_a_file() -> ValueError:
    """What is said of a ledger in memory."""
    return ValueError(
        "url must name a file, because a ledger outlives the process, got one in memory; use "
        "dosimeter.Filter for a budget in memory"
    )
