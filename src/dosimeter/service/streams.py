# SPDX-License-Identifier: Apache-2.0
"""Streams over HTTP: routes of the API, and a page with a heat map of the blocks."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from dosimeter.errors import DosimeterError
from dosimeter.ledger import Stream
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import from_plain, to_plain
from dosimeter.service import asks, pages, shown, views
from dosimeter.service.api import At, Name, Who
from dosimeter.service.office import Office
from dosimeter.service.render import render
from dosimeter.service.roles import Caller

ON_A_PAGE = 400
_RECENT = 40
routes = APIRouter(prefix="/v1", default_response_class=JSONResponse)
page_routes = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


def _plain(stream: Stream) -> dict[str, Any]:
    rule = stream.rule
    since = None if rule.since is None else rule.since.isoformat()
    return {"name": stream.name, "every": str(rule.every), "since": since}


@routes.post("/streams", status_code=201, summary="Write down a rule by which blocks are made")
async def create(who: Who, at: At, ask: asks.NewStream) -> Any:
    """Every block has the same budget; needs the role owner over `name/*`."""
    work = partial(at.office.create_stream, who, ask.name, ask.every, ask.epsilon)
    return _plain(await at.write([ask.name], work, since=ask.since, **ask.terms()))


@routes.get("/stream", summary="The rule of a stream")
async def rule(who: Who, at: At, name: Name) -> Any:
    """What a block holds, and the first day that has one."""
    return _plain(await at.do(at.office.stream, who, name))


@routes.post("/stream/blocks", summary="The blocks of a stream")
async def blocks(who: Who, at: At, ask: asks.Blocks) -> Any:
    """The oldest first; those up to now are made by the rule."""
    stream = await at.do(at.office.stream, who, ask.name)
    return {"blocks": await at.write([ask.name], stream.blocks, ask.last)}


@routes.post("/stream/offered", summary="The blocks that would accept a spend")
async def offered(who: Who, at: At, ask: asks.Offer) -> Any:
    """Blocks that are used up drop out."""
    stream = await at.do(at.office.stream, who, ask.name)
    await at.write([ask.name], stream.blocks, ask.last)
    cost = from_plain(ask.cost)
    return {"blocks": await at.do(stream.offered, cost, ask.count, last=ask.last)}


@routes.post("/stream/add", summary="Give a shard that arrived its block")
async def add(who: Who, at: At, ask: asks.Shard) -> Any:
    """The same twice is one block; needs the role owner."""
    return {"blocks": [await at.write([ask.name], at.office.add_shard, who, ask.name, ask.label)]}


@page_routes.get("/stream")
async def page(
    request: Request,
    who: pages.Who,
    at: pages.At,
    name: Annotated[str, Query(min_length=1, max_length=500)],
    mechanism: Annotated[str, Query(max_length=50)] = "",
    numbers: Annotated[str, Query(max_length=200)] = "",
    last: Annotated[str, Query(max_length=10)] = "30",
) -> Response:
    """The blocks of a stream, how hot they are, and which of them a cost is offered."""
    stream = await at.do(at.office.stream, who, name)
    names = await at.write([name], stream.blocks, ON_A_PAGE)
    asked = (mechanism, numbers, last)
    found = await at.do(_shown, at.office, who, stream, names, asked)
    return render(request, "stream.html", **found)


def _shown(
    office: Office, who: Caller, stream: Stream, names: list[str], asked: tuple[str, str, str]
) -> dict[str, Any]:
    mechanism, numbers, last = asked
    offered, wrong = None, ""
    try:
        if mechanism:
            if not last.isascii() or not last.isdigit():
                raise ValueError(f"last must be a whole number, got {last!r}")
            cost = shown.cost_from(mechanism, numbers, office.neighbours(who, f"{stream.name}/*"))
            offered = stream.offered(cost, last=int(last))
    except (DosimeterError, ValueError, TypeError) as error:
        wrong = str(error)
    usual = _usual(office, who, names)
    out = set() if usual is None else {*names} - {*stream.offered(usual, last=ON_A_PAGE)}
    tiles = []
    for one in names:
        at = 100 * office.share(who, one)
        tile = {"name": one, "label": one[len(stream.name) + 1 :], "burned": at}
        tiles.append({**tile, "heat": 4 if one in out else views.heat(at), "out": one in out})
    terms = office.statement(who, f"{stream.name}/*")
    return {
        "stream": stream,
        "rule": stream.rule,
        "terms": terms,
        "tiles": tiles[::-1],
        "used_up": len(out),
        "usual": "" if usual is None else views.short(json.dumps(to_plain(usual))),
        "mechanisms": shown.offered_mechanisms(),
        "asked": {"mechanism": mechanism, "numbers": numbers, "last": last},
        "offered": offered,
        "wrong": wrong,
    }


def _usual(office: Office, who: Caller, names: list[str]) -> Cost | None:
    """The cost that was spent most often in the newest block with a spend."""
    for name in reversed(names[-_RECENT:]):
        cost = views.usual_cost(office.history(who, name, _RECENT))
        if cost is not None:
            return from_plain(json.loads(cost))
    return None
