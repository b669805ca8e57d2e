# SPDX-License-Identifier: Apache-2.0
"""Door: who is let in, and how often.

A token may ask so many times a second; an address that shows wrong tokens waits. Both are
counted in this process only, and for a bounded number of tokens and addresses.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from dosimeter import arguments
from dosimeter.ledger import AccessDenied
from dosimeter.service.faults import NotKnown, TooMuch
from dosimeter.service.roles import Caller
from dosimeter.service.tokens import Tokens

_REMEMBERED = 10_000
_FAILURES_A_SECOND, _FAILURES_AT_ONCE = 1 / 6, 20


class Pace:
    """Buckets that fill at some rate and are emptied by one for each request."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def level(self, who: str) -> float:
        """How many requests someone may still make at once."""
        at, level = self._levels.get(who, (self._clock(), self._burst))
        return min(self._burst, level + (self._clock() - at) * self._rate)

    def take(self, who: str) -> bool:
        """Counts a request; False if there were too many."""
        level = self.level(who)
        self._levels[who] = (self._clock(), max(0.0, level - 1))
        self._levels.move_to_end(who)
        if len(self._levels) > _REMEMBERED:
            self._levels.popitem(last=False)
        return level >= 1


class Door:
    """Knows callers by their tokens and keeps the pace."""

    def __init__(
        self, tokens: Tokens, *, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._pace = Pace(arguments.positive("rate", rate), 2 * rate, clock)
        self._failures = Pace(_FAILURES_A_SECOND, _FAILURES_AT_ONCE, clock)

    def caller(self, token: str | None, address: str) -> Caller:
        """Who asks.

        Raises:
            NotKnown: There is no token, or not a valid one.
            TooMuch: Too many wrong ones from here, or too many requests with this one.
        """
        if token is None:
            raise NotKnown("token must be sent, as Authorization: Bearer …, got none")
        if self._failures.level(address) < 1:
            raise TooMuch(429, "too many wrong tokens came from this address; wait a minute")
        try:
            found = self._tokens.caller(token)
        except AccessDenied as error:
            self._failures.take(address)
            raise NotKnown(str(error)) from None
        self.keep_pace(found)
        return found

    def keep_pace(self, caller: Caller) -> None:
        """Counts a request of a caller; raises TooMuch if they come too often."""
        if not self._pace.take(caller.token):
            raise TooMuch(429, "too many requests came with this token; wait a second")
