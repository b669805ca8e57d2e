# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: each route reads what was sent, asks the office, and writes the answer.

Tokens come in the Authorization header and nowhere else, so that no other page can use them. A
command that spends needs a key, under which it is done once however often it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dosimeter.ledger.wire import to_wire
from dosimeter.service import asks
from dosimeter.service.door import Door
from dosimeter.service.office import PAGE, Office
from dosimeter.service.roles import Caller
from dosimeter.service.turns import Turns

T = TypeVar("T")
_bearer = HTTPBearer(auto_error=False, description="A token that an admin has issued.")
_LONG_WORK = 2
"""How many replays of journals and pricings of menus may run at once."""

Name = Annotated[str, Query(min_length=1, max_length=500, description="Name of the budget.")]
Key = Annotated[str, Header(alias="Idempotency-Key", description="A name for this very command.")]


class Desk:
    """What every route needs: the office, the door and the queues."""

    def __init__(self, office: Office, door: Door) -> None:
        self.office = office
        self.door = door
        self.turns = Turns(one=office.writes_one_at_a_time)
        self._long = CapacityLimiter(_LONG_WORK)

    async def do(self, work: Callable[..., T], *given: Any, long: bool = False, **named: Any) -> T:
        """The result of work that waits for the database, without making others wait."""
        return await run_sync(partial(work, *given, **named), limiter=self._long if long else None)

    async def write(
        self, names: Sequence[str], work: Callable[..., T], *given: Any, **named: Any
    ) -> T:
        """The result of work that moves budgets, when it is their turn."""
        async with self.turns.take(names):
            return await self.do(work, *given, **named)


def address(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else ""


async def _caller(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Caller:
    desk: Desk = request.app.state.desk
    token = given.credentials if given is not None else None
    found = await desk.do(desk.door.caller, token, address(request))
    request.state.caller = found
    return found


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


Who = Annotated[Caller, Depends(_caller)]
At = Annotated[Desk, Depends(_desk)]
routes = APIRouter(prefix="/v1", default_response_class=JSONResponse)


@routes.get("/budgets", summary="Where the budgets stand that the token may see")
async def budgets(
    who: Who,
    at: At,
    containing: Annotated[str, Query(max_length=500)] = "",
    after: Annotated[str, Query(max_length=500, description="The last name seen.")] = "",
    size: Annotated[int, Query(ge=1, le=1000)] = PAGE,
) -> Any:
    """A page of them in the order of their names; `next` is the `after` of the next page."""
    found = await at.do(at.office.page, who, containing=containing, after=after, size=size)
    return to_wire(found)


@routes.post("/budgets", status_code=201, summary="Make budgets")
async def create(who: Who, at: At, ask: asks.Creation) -> Any:
    """All of them or none; needs the role owner. Pricing a menu takes seconds."""
    work = partial(at.office.create, who, ask.names, ask.epsilon, **ask.terms())
    return to_wire(await at.do(work, long=ask.menu is not None))


@routes.post("/spend", summary="Spend before the data are touched")
async def spend(request: Request, who: Who, at: At, ask: asks.Spend, key: Key) -> Any:
    """The receipts by budget; a refusal (409 LedgerRefusal) spends nothing."""
    work = partial(at.office.spend, who, ask.priced(), ask.count, key=key, purpose=ask.purpose)
    receipts = to_wire(await at.write(list(ask.costs), work))
    request.app.state.metrics.spends.inc()
    return receipts


@routes.post("/price", summary="What a spend would take and leave")
async def price(who: Who, at: At, ask: asks.Question) -> Any:
    """Changes nothing."""
    return to_wire(await at.do(at.office.price, who, ask.name, ask.priced(), ask.count))


@routes.post("/reserve", summary="Pay now for runs to be drawn later")
async def reserve(who: Who, at: At, ask: asks.Reserve, key: Key) -> Any:
    """The client counts what it draws, and settles at the end; what it never draws stays spent."""
    work = partial(at.office.reserve, who, ask.name, ask.priced(), ask.count, key=key)
    id, receipt = await at.write([ask.name], work, lifetime=ask.lifetime, purpose=ask.purpose)
    return {"id": id, "receipt": to_wire(receipt)}


@routes.post("/settle", summary="End a reservation")
async def settle(who: Who, at: At, ask: asks.Settle) -> Any:
    """Notes how many runs were drawn; with none, what it held is free again."""
    await at.write([ask.id], at.office.settle, who, ask.id, ask.drawn)
    return {"settled": True}


@routes.get("/statement", summary="Where a budget stands")
async def statement(who: Who, at: At, name: Name) -> Any:
    """Its limit, what is spent and what is left."""
    return to_wire(await at.do(at.office.statement, who, name))


@routes.get("/share", summary="How much of a limit is used up")
async def share(who: Who, at: At, name: Name) -> Any:
    """From 0 to 1."""
    return {"share": await at.do(at.office.share, who, name)}


@routes.get("/guarantee", summary="What holds for everything spent from a budget")
async def guarantee(who: Who, at: At, name: Name) -> Any:
    """As data."""
    return (await at.do(at.office.guarantee, who, name)).plain()


@routes.get("/history", summary="The last entries of a journal")
async def history(who: Who, at: At, name: Name, last: int = 100) -> Any:
    """The oldest of them first."""
    return to_wire(await at.do(at.office.history, who, name, last))


@routes.get("/opening", summary="The entry that made a budget")
async def opening(who: Who, at: At, name: Name) -> Any:
    """With its terms."""
    return to_wire(await at.do(at.office.opening, who, name))


@routes.get("/holds", summary="Whether a journal has this very entry")
async def holds(
    who: Who,
    at: At,
    name: Name,
    sequence: Annotated[int, Query(ge=0, le=2**53)],
    hash: Annotated[str, Query(max_length=100)],
) -> Any:
    """For whoever kept the receipt of one."""
    return {"holds": await at.do(at.office.has_entry, who, name, sequence, hash)}


@routes.post("/verify", summary="Replay a journal")
async def verify(who: Who, at: At, ask: asks.Verify) -> Any:
    """Names the first entry that does not fit."""
    work = partial(at.office.verify, who, ask.name, receipt=ask.kept(), head=ask.head)
    return to_wire(await at.do(work, long=True))


@routes.get("/key", summary="Which ledger this is, and which key signs for it")
async def key(who: Who, at: At) -> Any:
    """The key is null if the service has none."""
    return await at.do(at.office.key)


@routes.post("/anchor", summary="Sign where journals end")
async def anchor(who: Who, at: At, ask: asks.NewAnchor) -> Any:
    """A line for a file of anchors that someone else keeps."""
    made = await at.do(at.office.anchor, who, ask.names, ask.number, ask.previous)
    return {"line": made.line()}


@routes.get("/export", summary="The whole journal as lines of JSON")
async def export(who: Who, at: At, name: Name) -> StreamingResponse:
    """The same bytes every time."""
    lines = await at.do(at.office.export, who, name)
    return StreamingResponse(_ended(lines), media_type="application/x-ndjson")


@routes.post("/close", summary="Stop a budget for good")
async def close(who: Who, at: At, ask: asks.Close) -> Any:
    """It stays readable; needs the role owner."""
    await at.write([ask.name], at.office.close_budget, who, ask.name, ask.purpose)
    return {"closed": True}


@routes.get("/allowances", summary="The allowances in a budget")
async def allowances(who: Who, at: At, name: Name) -> Any:
    """Who holds them, and where they stand."""
    return to_wire(await at.do(at.office.allowances_in, who, name))


@routes.post("/allowances", status_code=201, summary="Give a part of a budget")
async def give(who: Who, at: At, ask: asks.NewAllowance) -> Any:
    """Its holders spend from the budget and from it, or from neither; needs the role owner."""
    work = partial(at.office.give_allowance, who, ask.name, ask.label, ask.holders, ask.epsilon)
    await at.write([ask.name], work)
    return {"given": True}


@routes.post("/allowances/end", summary="End an allowance")
async def end_allowance(who: Who, at: At, ask: asks.EndOfAllowance) -> Any:
    """Its holders then spend without it; needs the role owner."""
    await at.write([ask.name], at.office.end_allowance, who, ask.name, ask.label)
    return {"ended": True}


@routes.post("/approval-line", summary="Let large spends wait for approval")
async def approval_line(who: Who, at: At, ask: asks.Line) -> Any:
    """Needs the role owner."""
    await at.write([ask.name], at.office.draw_line, who, ask.name, ask.above)
    return {"above": ask.above}


@routes.get("/requests", summary="Spends that wait for approval, or were decided")
async def requests(who: Who, at: At) -> Any:
    """The caller's own, and those that the caller may decide."""
    return to_wire(await at.do(at.office.requests, who))


@routes.post("/requests/decide", summary="Approve or deny a spend")
async def decide(who: Who, at: At, ask: asks.Decision) -> Any:
    """Needs the role owner over its budgets, and someone else than who asked."""
    await at.write([""], at.office.decide, who, ask.id, approve=ask.approve)
    return {"decided": True}


@routes.get("/tokens", summary="Every token, without its secret")
async def tokens(who: Who, at: At) -> Any:
    """Needs the role admin."""
    who.require_admin()
    found = await at.do(at.office.tokens.listed)
    return [{**to_wire(token), "grants": [str(grant) for grant in token.grants]} for token in found]


@routes.post("/tokens", status_code=201, summary="Issue a token")
async def issue(who: Who, at: At, ask: asks.NewToken) -> Any:
    """The only time that it is shown; needs the role admin."""
    who.require_admin()
    work = partial(at.office.tokens.issue, ask.owner, ask.given(), days=ask.days)
    return {"token": await at.write([""], work, issued_by=who.owner)}


@routes.post("/tokens/revoke", summary="End a token now")
async def revoke(who: Who, at: At, ask: asks.Revocation) -> Any:
    """And the sessions that it opened; needs the role admin."""
    who.require_admin()
    await at.write([""], at.office.tokens.revoke, ask.id, by=who.owner)
    return {"revoked": True}


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield f"{line}\n"
