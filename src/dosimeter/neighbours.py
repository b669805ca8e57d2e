# SPDX-License-Identifier: Apache-2.0
"""Neighbours: which two data sets a guarantee speaks about.

An epsilon means nothing without it, and figures of different relations are never added up. Needs
nothing but the standard library, so that every part may say the relation in the same words.
"""

from __future__ import annotations

import enum


class Neighbours(enum.Enum):
    """The neighbouring relation; the words are also its written form, so they stay as they are."""

    ADD_REMOVE_RECORD = "add/remove one record"
    REPLACE_ONE_RECORD = "replace one record"
    ADD_REMOVE_USER = "add/remove one user"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"Neighbours.{self.name}"

    @classmethod
    def named(cls, words: object) -> Neighbours:
        """The relation of these words.

        Raises:
            ValueError: There is none.
        """
        for relation in cls:
            if relation.value == words:
                return relation
        known = ", ".join(repr(relation.value) for relation in cls)
        raise ValueError(f"neighbours must be one of {known}, got {words!r}")
