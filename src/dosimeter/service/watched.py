# SPDX-License-Identifier: Apache-2.0
"""Runs over HTTP: where they report, and the pages that show and stop them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from dosimeter.ledger.wire import to_wire
from dosimeter.report.svg import Axes, Guide, Point, Trace, draw
from dosimeter.report.words import STILL
from dosimeter.rounding import at_most, exact, share_words
from dosimeter.service import pages
from dosimeter.service.api import At, Who
from dosimeter.service.render import render
from dosimeter.service.runs import Halt, Report

routes = APIRouter(prefix="/v1", default_response_class=JSONResponse)
page_routes = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@routes.post("/runs", summary="Tell where a run stands")
async def report(who: Who, at: At, told: Report) -> Any:
    """Whether it is to stop at its next step."""
    return {"stop": await at.write([""], at.office.runs.report, who, told)}


@routes.get("/runs", summary="The runs that the token may see")
async def listed(who: Who, at: At) -> Any:
    """The last that told first."""
    return to_wire(await at.do(at.office.runs.listed, who))


@routes.post("/runs/stop", summary="End a run at its next step")
async def stop(who: Who, at: At, ask: Halt) -> Any:
    """Its results are kept; for whoever reports, owners of its budget, and admins."""
    await at.write([""], at.office.runs.stop, who, ask.id)
    return {"stopping": True}


@page_routes.get("/runs")
async def runs_page(request: Request, who: pages.Who, at: pages.At) -> Response:
    """All runs."""
    found = await at.do(at.office.runs.listed, who)
    rows = [{"run": one, "state": _state(one.status, at.office.runs.silent(one))} for one in found]
    return render(request, "runs.html", rows=rows)


@page_routes.get("/run")
async def run_page(
    request: Request, who: pages.Who, at: pages.At, id: Annotated[str, Query(max_length=80)]
) -> Response:
    """One run."""
    found = await at.do(at.office.runs.run, who, id)
    shown = view(found.status, silent=at.office.runs.silent(found), stop=found.stop is not None)
    may = at.office.runs.may_stop(who, found)
    return render(request, "run.html", **shown, run=found, may_stop=may)


@page_routes.post("/runs/stop")
async def stop_page(who: pages.Who, at: pages.At, fields: pages.Own) -> Response:
    """Stops a run."""
    id = fields.get("id", "")
    await at.write([""], at.office.runs.stop, who, id)
    return RedirectResponse(f"/run?id={id}", 303)


def view(status: Mapping[str, Any], *, silent: bool, stop: bool) -> dict[str, Any]:
    """What the page of a run shows."""
    history, state = status["history"], _state(status, silent)
    last = history[-1] if history else None
    limit = status["limit"]
    return {
        "status": status,
        "state": "stopping" if stop and state == "running" else state,
        "going": status["state"] == "running" and not stop,
        "last": last,
        "left": _duration(status["left"]) if status["state"] == "running" else "",
        "loss": _curve(history, "loss", "loss on public data", "", None),
        "spent": _curve(history, "epsilon", "ε spent", "ε ", limit),
        "used": _used(history),
        "still": STILL * (sum(row["epsilon"] == limit for row in history) > 1),
    }


def _state(status: Mapping[str, Any], silent: bool) -> str:
    return "silent" if silent else str(status["state"])


def _curve(history: list[Any], name: str, words: str, unit: str, limit: float | None) -> str:
    points = [
        Point(row["epoch"], row[name], f"epoch {row['epoch']}: {unit}{at_most(row[name])}")
        for row in history
        if isinstance(row[name], int | float)
    ]
    if not points:
        return ""
    guides = [] if limit is None else [Guide(limit, f"limit {exact(limit)}")]
    return draw(Axes("epoch", words), [Trace(0, tuple(points))], guides)


def _used(history: list[Any]) -> str:
    """The share of the budget that is used up, which adds up where epsilon does not."""
    points = [
        Point(row["epoch"], 100 * share, f"epoch {row['epoch']}: {share_words(share)} used up")
        for row in history
        if (share := row["spent_share"]) is not None
    ]
    if not points:
        return ""
    axes = Axes("epoch", "share of the budget used up, %", most=100)
    return draw(axes, [Trace(0, tuple(points))], [Guide(100, "all of it")])


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s"
