# SPDX-License-Identifier: Apache-2.0
"""Runs over HTTP: where they report, and the pages that show and stop them.

The same page shows one run of a folder on this machine, for `dosimeter watch`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.types import ASGIApp

from dosimeter.ledger.wire import to_wire
from dosimeter.report.svg import Axes, Guide, Point, Trace, draw
from dosimeter.report.words import STILL
from dosimeter.rounding import at_most, exact, share_words
from dosimeter.service import pages
from dosimeter.service.api import At, Who
from dosimeter.service.guard import Guard
from dosimeter.service.render import file, render
from dosimeter.service.runs import Halt, Report
from dosimeter.watching import LIVE, STOP

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
    return render(request, "run.html", **shown, run=found, may_stop=may, stop_at="/runs/stop")


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


def local_app(folder: Path, ending: Callable[[], bool] = lambda: False) -> tuple[ASGIApp, str]:
    """The page of the run in a folder, and the path that leads to it, which nobody can guess."""
    secret = secrets.token_urlsafe(16)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    live, halt = folder / LIVE, folder / STOP

    def shown(request: Request) -> Response:
        try:
            status = Report.model_validate_json(live.read_text(encoding="utf-8")).model_dump()
        except (FileNotFoundError, ValueError):
            return render(request, "waiting.html", folder=str(folder))
        found = view(status, silent=False, stop=halt.exists())
        at = f"/{secret}/stop"
        return render(request, "run.html", **found, run=None, may_stop=True, stop_at=at)

    def stopped() -> Response:
        halt.touch()
        return RedirectResponse(f"/{secret}/", 303)

    async def told() -> AsyncIterator[str]:
        before = ""
        yield "retry: 2000\n\n"
        while not ending():
            now = f"{_changed(live)} {halt.exists()}"
            yield f"data: {json.dumps({'state': now})}\n\n" if now != before else ": here\n\n"
            before = now
            await asyncio.sleep(1.0)

    def events() -> Response:
        return StreamingResponse(told(), media_type="text/event-stream")

    app.add_api_route(f"/{secret}/", shown, methods=["GET"], response_class=HTMLResponse)
    app.add_api_route(f"/{secret}/stop", stopped, methods=["POST"])
    app.add_api_route(f"/{secret}/events", events, methods=["GET"])
    app.add_api_route("/static/{name}", file, methods=["GET"])
    return Guard(app, https=False), f"/{secret}/"


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
