# SPDX-License-Identifier: Apache-2.0
"""Rule: which blocks a stream of data has, by the calendar or by shards.

A rule looks at one record alone, its day or its shard, and never at whether there is one: the
blocks of the last 30 days are there on days without a record too, so that they tell nobody
anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from dosimeter.nearest import hint

MOST_BLOCKS = 4000
"""How many blocks a stream by the calendar may have made at once: ten years of days."""

LABEL = "*"
"""The label of the rule itself, beside those of its blocks."""

_WRITTEN = re.compile(
    r"stream by (?:(day|week|month) since (\d{4}-\d\d-\d\d)|(shard))(?:: .*)?", re.DOTALL
)


class Every(StrEnum):
    """What a block of a stream holds."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    SHARD = "shard"

    @classmethod
    def named(cls, word: object) -> Every:
        """The one with this name.

        Raises:
            ValueError: There is none.
        """
        known = [one.value for one in cls]
        if word not in known:
            raise ValueError(
                f"every must be one of {', '.join(known)}, got {word!r}{hint(str(word), known)}"
            )
        return cls(str(word))


@dataclass(frozen=True)
class Rule:
    """How the records of a stream fall into blocks.

    Attributes:
        every: What a block holds: a day, a week (ISO, from Monday), a month, all in UTC, or a
            shard that is named as it arrives.
        since: The first day that has a block; None for shards.
    """

    every: Every
    since: date | None = None

    def __post_init__(self) -> None:
        if (self.since is None) != (self.every is Every.SHARD):
            raise ValueError(
                f"since must be given for days, weeks and months alone, got {self.since!r} for "
                f"{self.every}"
            )

    def words(self, purpose: str = "") -> str:
        """The rule as its journal says it."""
        since = "" if self.since is None else f" since {self.since.isoformat()}"
        return f"stream by {self.every}{since}" + (f": {purpose}" if purpose else "")

    @classmethod
    def read(cls, words: str) -> Rule | None:
        """The rule that a journal says; None if it says none."""
        found = _WRITTEN.fullmatch(words)
        if found is None:
            return None
        every, since, shard = found.groups()
        try:
            return cls(Every(every or shard), date.fromisoformat(since) if since else None)
        except ValueError:
            return None

    def label(self, day: date) -> str:
        """The label of the block that a day's records lie in."""
        if self.every is Every.SHARD:
            raise ValueError("a shard must be named by whoever adds it, got a day")
        if self.every is Every.WEEK:
            year, week, _ = day.isocalendar()
            return f"{year}-W{week:02}"
        return day.isoformat()[: 10 if self.every is Every.DAY else 7]

    def labels(self, today: date, last: int | None = None) -> list[str]:
        """The labels from the first day to today, the oldest first; at most the last so many."""
        assert self.since is not None
        found: list[str] = []
        day = self._start(today)
        while day >= self._start(self.since) and (last is None or len(found) < last):
            if len(found) == MOST_BLOCKS:
                raise ValueError(
                    f"since must be at most {MOST_BLOCKS} blocks ago, got {self.since.isoformat()} "
                    f"by {self.every}; take longer blocks"
                )
            found.append(self.label(day))
            day = self._start(day - timedelta(days=1))
        return found[::-1]

    def _start(self, day: date) -> date:
        """The first day of the block that a day lies in."""
        if self.every is Every.WEEK:
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.every is Every.MONTH else day
