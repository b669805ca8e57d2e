# SPDX-License-Identifier: Apache-2.0
"""Events: a page is told when a budget on it has moved, and asks for itself again.

Budgets are looked at once a second however many watch, because other servers and other programs
spend too. A browser that lost the line comes back by itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from dosimeter.ledger import BudgetNotFound, LedgerError
from dosimeter.service.api import Desk
from dosimeter.service.faults import TooMuch
from dosimeter.service.pages import Who, cookie
from dosimeter.service.roles import Caller

routes = APIRouter(include_in_schema=False)
_EVERY = 1.0
_MOST_WATCHERS = 200
_MOST_NAMES = 100


class Watch:
    """What budgets looked like a moment ago, for all who watch.

    Attributes:
        ending: Says whether the server is about to end, and with it all watching.
    """

    def __init__(self, ending: Callable[[], bool]) -> None:
        self.ending = ending
        self.watchers = 0
        self._heads: dict[str, tuple[float, str]] = {}

    def head(self, desk: Desk, who: Caller, name: str) -> str:
        """The last entry of a budget, as of a second ago at most."""
        at, known = self._heads.get(name, (0.0, ""))
        if time.monotonic() - at < _EVERY:
            return known
        found = desk.office.statement(who, name).head
        if len(self._heads) > 10 * _MOST_WATCHERS:
            self._heads.clear()
        self._heads[name] = (time.monotonic(), found)
        return found


@routes.get("/events")
async def events(
    request: Request,
    who: Who,
    name: Annotated[list[str], Query(max_length=_MOST_NAMES)] = [],  # noqa: B006
    run: Annotated[list[str], Query(max_length=_MOST_NAMES)] = [],  # noqa: B006
) -> StreamingResponse:
    """Tells of budgets and runs that move, for as long as the session lasts."""
    watch: Watch = request.app.state.watch
    if watch.watchers >= _MOST_WATCHERS:
        raise TooMuch(503, "too many pages are open; load this one again later")
    for one in name:
        if who.role(one) is None:
            raise BudgetNotFound(one)
    return StreamingResponse(_told(request, watch, name, run), media_type="text/event-stream")


async def _told(
    request: Request, watch: Watch, names: Sequence[str], runs: Sequence[str]
) -> AsyncIterator[str]:
    desk: Desk = request.app.state.desk
    secret, before = request.cookies.get(cookie(request), ""), ""
    watch.watchers += 1
    try:
        yield "retry: 2000\n\n"
        while not watch.ending():
            # A token that was revoked sees nothing more.
            who = await desk.do(desk.office.tokens.session, secret)
            if who is None:
                return
            now = await desk.do(_heads, desk, watch, who, names)
            if runs:
                now += await desk.do(_reports, desk, who, runs)
            if now != before:
                yield f"data: {json.dumps({'state': now})}\n\n"
            else:
                yield ": still here\n\n"
            before = now
            await asyncio.sleep(_EVERY)
    except LedgerError:
        return  # the browser asks again
    finally:
        watch.watchers -= 1


def _reports(desk: Desk, who: Caller, ids: Sequence[str]) -> str:
    """When runs told last, and whether they are to stop."""
    told = {one.id: f" {one.updated} {one.stop}" for one in desk.office.runs.listed(who)}
    return "".join(told.get(id, " ") for id in ids)


def _heads(desk: Desk, watch: Watch, who: Caller, names: Sequence[str]) -> str:
    return " ".join(watch.head(desk, who, name)[:16] for name in names)
