# SPDX-License-Identifier: Apache-2.0
"""What integrations share: the versions that were tried, who calls, and the relation of a gate."""

from __future__ import annotations

import importlib.metadata
import sys

from dosimeter.accounting import Gate
from dosimeter.neighbours import Neighbours


def require(package: str, works: str, *, install: str | None = None) -> None:
    """Raises ImportError unless a package is there, in a version that was tried.

    Args:
        package: The name of its distribution.
        works: How the versions that work begin, such as "0.16".
        install: What to hand to pip, if not the package in this version.
    """
    line = f"pip install '{install or f'{package}=={works}.*'}'"
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{package} must be installed; {line}") from None
    if not f"{found}.".startswith(f"{works}."):
        raise ImportError(f"{package} must be version {works}, got {found}; {line}")


def relation_of(gate: Gate) -> Neighbours:
    """Which two data sets the guarantee of a gate speaks about.

    Raises:
        TypeError: It is no gate with a guarantee.
    """
    if isinstance(gate, type) or not isinstance(gate, Gate) or not hasattr(gate, "guarantee"):
        raise TypeError(f"gate must be a Filter, an Odometer or a budget of a ledger, got {gate!r}")
    relation = gate.guarantee().neighbours
    assert isinstance(relation, Neighbours)
    return relation


def called_from(package: str) -> str | None:
    """The module of a package that called the method this is asked in, or None for anyone else.

    So an accountant can tell its library, whose question comes just before the data are touched,
    from people who only want to know.
    """
    found, _, module = str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")
    return module if found == package else None
